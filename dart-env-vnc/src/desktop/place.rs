//! Where the programs of a desktop live: one private directory, with a home for each.

use std::{
    fs::DirBuilder,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use super::{fault::Fault, secrets, supervisor::Program};

/// The directory that holds the directories of the programs.
#[derive(Debug)]
pub(super) struct Base {
    pub(super) path: PathBuf,
    label: String,
}

impl Base {
    pub(super) fn create(parent: Option<&Path>) -> Result<Self, Fault> {
        let label = secrets::token::<8>().map_err(Fault::Directory)?;
        let parent = parent.map_or_else(std::env::temp_dir, Path::to_path_buf);
        let path = parent.join(format!("dart-desktop-{label}"));
        private_directory(&path)?;
        Ok(Self { path, label })
    }

    /// A program with a fresh home called `name`.
    pub(super) fn program<'a>(
        &'a self,
        name: &str,
        program: &'a str,
        arguments: Vec<String>,
        display: &str,
    ) -> Result<Program<'a>, Fault> {
        let directory = self.path.join(name);
        if !directory.exists() {
            private_directory(&directory)?;
        }
        let text = |path: &Path| path.display().to_string();
        let environment = vec![
            ("DISPLAY", display.to_owned()),
            ("XAUTHORITY", text(&self.path.join("server/authority"))),
            ("HOME", text(&directory)),
            ("TMPDIR", text(&directory)),
            ("XDG_CONFIG_HOME", text(&directory.join("config"))),
            ("XDG_CACHE_HOME", text(&directory.join("cache"))),
            ("XDG_DATA_HOME", text(&directory.join("data"))),
            ("XDG_RUNTIME_DIR", text(&directory)),
            // No message bus: Chromium would look for one, and might find the user's.
            ("DBUS_SESSION_BUS_ADDRESS", "disabled:".to_owned()),
            ("LANG", "C.UTF-8".to_owned()),
            ("TZ", "UTC".to_owned()),
        ];
        Ok(Program {
            name: program,
            arguments,
            environment,
            directory,
            label: &self.label,
        })
    }
}

/// Makes a directory that only this user can enter.
pub(super) fn private_directory(path: &Path) -> Result<(), Fault> {
    let mut builder = DirBuilder::new();
    builder.mode(0o700).create(path).map_err(Fault::Directory)
}
