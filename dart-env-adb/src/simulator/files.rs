//! Files in memory.

use std::{collections::BTreeMap, sync::Arc};

/// Most bytes of all files together.
const MAX_TOTAL: usize = 512 << 20;

/// A file.
#[derive(Clone, Debug, Default)]
pub(crate) struct File {
    pub(crate) content: Arc<Vec<u8>>,
    pub(crate) mode: u32,
    pub(crate) time: u32,
}

/// Files and folders by path. Folders end with a slash.
#[derive(Clone, Debug, Default)]
pub(crate) struct Files {
    files: BTreeMap<String, File>,
    folders: std::collections::BTreeSet<String>,
}

impl Files {
    pub(crate) fn new() -> Self {
        let folders = [
            "/",
            "/sdcard/",
            "/data/",
            "/data/local/",
            "/data/local/tmp/",
        ];
        Self {
            files: BTreeMap::new(),
            folders: folders.map(str::to_owned).into(),
        }
    }

    pub(crate) fn get(&self, path: &str) -> Option<&File> {
        self.files.get(&clean(path))
    }

    pub(crate) fn is_folder(&self, path: &str) -> bool {
        self.folders.contains(&folder(path))
    }

    /// Writes a file; the reason if that is impossible.
    pub(crate) fn put(&mut self, path: &str, file: File) -> Result<(), String> {
        let path = clean(path);
        if self.is_folder(&path) {
            return Err(format!("couldn't create file '{path}': Is a directory"));
        }
        let others = self.files.iter().filter(|(name, _)| **name != path);
        let total: usize = others.map(|(_, file)| file.content.len()).sum();
        if total + file.content.len() > MAX_TOTAL {
            return Err("No space left on device".into());
        }
        self.make_folders(&path);
        self.files.insert(path, file);
        Ok(())
    }

    /// Makes every folder above `path`.
    fn make_folders(&mut self, path: &str) {
        for (at, _) in path.match_indices('/') {
            self.folders.insert(path[..=at].to_owned());
        }
    }

    pub(crate) fn make_folder(&mut self, path: &str) {
        let path = folder(path);
        self.make_folders(&path);
    }

    /// Removes a file, or a folder with all that is in it; whether there was one.
    pub(crate) fn remove(&mut self, path: &str) -> bool {
        let path = clean(path);
        let inside = folder(&path);
        let before = self.files.len() + self.folders.len();
        self.files
            .retain(|name, _| *name != path && !name.starts_with(&inside));
        self.folders
            .retain(|name| !name.starts_with(&inside) || inside == "/");
        before != self.files.len() + self.folders.len()
    }

    /// Names in a folder, with the file or `None` for a folder.
    pub(crate) fn list(&self, path: &str) -> Vec<(String, Option<File>)> {
        let inside = folder(path);
        let rest = |name: &str| name.strip_prefix(&inside).map(str::to_owned);
        let files = self.files.iter().filter_map(|(name, file)| {
            let rest = rest(name)?;
            (!rest.contains('/')).then(|| (rest, Some(file.clone())))
        });
        let folders = self.folders.iter().filter_map(|name| {
            let rest = rest(name)?;
            let name = rest.strip_suffix('/')?;
            (!name.contains('/')).then(|| (name.to_owned(), None))
        });
        let mut all: Vec<_> = files.chain(folders).collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }
}

/// An absolute path without empty parts, `.` and `..`.
fn clean(path: &str) -> String {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

fn folder(path: &str) -> String {
    let path = clean(path);
    if path == "/" {
        path
    } else {
        format!("{path}/")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_by_any_spelling_of_their_path() {
        let mut files = Files::new();
        files.put("/sdcard/a/b.txt", File::default()).unwrap();
        assert!(files.get("/sdcard//x/../a/./b.txt").is_some());
        assert!(files.is_folder("/sdcard/a"));
        let names: Vec<_> = files.list("/sdcard").into_iter().map(|e| e.0).collect();
        assert_eq!(names, ["a"]);
        assert!(files.put("/sdcard", File::default()).is_err());
        assert!(files.remove("/sdcard/a") && !files.remove("/sdcard/a"));
        assert!(files.get("/sdcard/a/b.txt").is_none());
    }
}
