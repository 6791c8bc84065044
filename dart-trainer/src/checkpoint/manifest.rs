//! What belongs to a version, with sizes and checksums: whether it is whole.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::Read,
    path::Path,
};

use dart_core::PolicyVersion;
use serde::{Deserialize, Serialize};

use super::sync;
use crate::error::{Result, TrainerError};

const MANIFEST: &str = "manifest.json";
const FORMAT: u32 = 1;
/// Larger manifests are not read: a manifest lists a handful of files.
const MANIFEST_LIMIT: u64 = 1 << 20;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Manifest {
    format: u32,
    pub(super) version: PolicyVersion,
    files: BTreeMap<String, FileEntry>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileEntry {
    bytes: u64,
    blake3: String,
}

/// Lists and syncs all files of `dir`, then writes and syncs the manifest.
pub(super) fn seal(dir: &Path, version: PolicyVersion) -> Result<()> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(dir).map_err(TrainerError::io("list", dir))? {
        let path = entry.map_err(TrainerError::io("list", dir))?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let Some(name) = name.filter(|_| path.is_file()) else {
            return Err(TrainerError::corrupt(&path, "is no plain file"));
        };
        sync(&path)?;
        files.insert(name.to_owned(), entry_of(&path)?);
    }
    let manifest = Manifest {
        format: FORMAT,
        version,
        files,
    };
    let path = dir.join(MANIFEST);
    fs::write(&path, serde_json::to_vec_pretty(&manifest)?)
        .map_err(TrainerError::io("write", &path))?;
    sync(&path)?;
    sync(dir)
}

pub(super) fn read_manifest(dir: &Path) -> Result<Manifest> {
    let path = dir.join(MANIFEST);
    let file = File::open(&path).map_err(TrainerError::io("open", &path))?;
    let mut text = String::new();
    file.take(MANIFEST_LIMIT)
        .read_to_string(&mut text)
        .map_err(TrainerError::io("read", &path))?;
    let manifest: Manifest = serde_json::from_str(&text)
        .map_err(|error| TrainerError::corrupt(&path, format!("is no manifest: {error}")))?;
    if manifest.format == FORMAT {
        return Ok(manifest);
    }
    let message = format!(
        "has format {}, this program reads {FORMAT}",
        manifest.format
    );
    Err(TrainerError::corrupt(&path, message))
}

pub(super) fn verify(dir: &Path, version: PolicyVersion) -> Result<()> {
    let manifest = read_manifest(dir)?;
    if manifest.version != version {
        return Err(TrainerError::corrupt(
            dir,
            format!("holds version {}", manifest.version),
        ));
    }
    for (name, expected) in &manifest.files {
        let path = dir.join(name);
        // A manifest is data: its names must not lead out of the directory.
        if Path::new(name)
            .file_name()
            .is_none_or(|plain| plain != name.as_str())
        {
            return Err(TrainerError::corrupt(&path, "is no plain file name"));
        }
        let found = entry_of(&path)?;
        if found != *expected {
            let message = format!(
                "is not what was written ({} bytes, {} expected; checksum {})",
                found.bytes,
                expected.bytes,
                if found.blake3 == expected.blake3 {
                    "equal"
                } else {
                    "differs"
                },
            );
            return Err(TrainerError::corrupt(&path, message));
        }
    }
    Ok(())
}

fn entry_of(path: &Path) -> Result<FileEntry> {
    let mut file = File::open(path).map_err(TrainerError::io("open", path))?;
    let mut hasher = blake3::Hasher::new();
    std::io::copy(&mut file, &mut hasher).map_err(TrainerError::io("read", path))?;
    Ok(FileEntry {
        bytes: hasher.count(),
        blake3: hasher.finalize().to_hex().to_string(),
    })
}
