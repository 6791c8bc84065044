//! [`Platform`]: the system under the apps, and one of them in memory.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// A row of a table: the texts of its columns.
pub type Row = Vec<String>;

/// A table of a database file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    /// The file.
    pub database: &'static str,
    /// Its name there.
    pub name: &'static str,
    /// The names of its columns.
    pub columns: &'static [&'static str],
}

/// The system under the apps of an [`AppPhone`](super::AppPhone): settings, files, databases and the
/// log. Others may look at it and change it at any time; the apps show what is there now.
pub trait Platform: Debug + Send + Sync {
    /// A setting of `system`, `secure` or `global`.
    fn setting(&self, namespace: &str, key: &str) -> Option<String>;

    /// Changes a setting.
    fn put_setting(&self, namespace: &str, key: &str, value: &str);

    /// The names of the files in a folder, in order.
    fn file_names(&self, folder: &str) -> Vec<String>;

    /// The content of a file.
    fn read_file(&self, path: &str) -> Option<Vec<u8>>;

    /// Writes a file; whether there was room.
    fn write_file(&self, path: &str, content: Vec<u8>) -> bool;

    /// Removes a file.
    fn remove_file(&self, path: &str);

    /// Looks at the rows of a table, which is made if it is missing, and changes them.
    fn edit_table(&self, table: &Table, edit: &mut dyn FnMut(&mut Vec<Row>));

    /// Writes a line to the log.
    fn log(&self, tag: &str, message: &str);

    /// Notes that the app with this package has come to the front.
    fn show(&self, package: &str);
}

/// A [`Platform`] of its own, in memory.
#[derive(Debug, Default)]
pub struct MemoryPlatform(Mutex<Memory>);

#[derive(Debug, Default)]
struct Memory {
    files: BTreeMap<String, Vec<u8>>,
    front: String,
    log: Vec<String>,
    settings: BTreeMap<String, String>,
    tables: BTreeMap<&'static str, Vec<Row>>,
}

impl MemoryPlatform {
    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lines of the log: tag, colon, message.
    pub fn lines(&self) -> Vec<String> {
        self.memory().log.clone()
    }

    /// The package in front.
    pub fn front(&self) -> String {
        self.memory().front.clone()
    }
}

impl Platform for MemoryPlatform {
    fn setting(&self, namespace: &str, key: &str) -> Option<String> {
        let name = format!("{namespace}/{key}");
        self.memory().settings.get(&name).cloned()
    }

    fn put_setting(&self, namespace: &str, key: &str, value: &str) {
        let name = format!("{namespace}/{key}");
        self.memory().settings.insert(name, value.to_owned());
    }

    fn file_names(&self, folder: &str) -> Vec<String> {
        let inside = format!("{folder}/");
        let memory = self.memory();
        let names = memory
            .files
            .keys()
            .filter_map(|path| path.strip_prefix(&inside));
        names
            .filter(|name| !name.contains('/'))
            .map(str::to_owned)
            .collect()
    }

    fn read_file(&self, path: &str) -> Option<Vec<u8>> {
        self.memory().files.get(path).cloned()
    }

    fn write_file(&self, path: &str, content: Vec<u8>) -> bool {
        self.memory().files.insert(path.to_owned(), content);
        true
    }

    fn remove_file(&self, path: &str) {
        self.memory().files.remove(path);
    }

    fn edit_table(&self, table: &Table, edit: &mut dyn FnMut(&mut Vec<Row>)) {
        edit(self.memory().tables.entry(table.database).or_default());
    }

    fn log(&self, tag: &str, message: &str) {
        self.memory().log.push(format!("{tag}: {message}"));
    }

    fn show(&self, package: &str) {
        package.clone_into(&mut self.memory().front);
    }
}
