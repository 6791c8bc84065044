//! [`System`]: what apps, shell and tests of a simulated phone share.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use dart_core::{Error, ErrorKind, Result};

use super::{
    files::{File, Files},
    sql::{Database, Row, Table},
};

/// Most lines of the log and of the trace of commands.
const MAX_LINES: usize = 10_000;
/// Most snapshots.
const MAX_SNAPSHOTS: usize = 16;
/// The package of the home screen.
pub(crate) const LAUNCHER: &str = "com.android.launcher3";

/// Settings, files, databases, log and snapshots of a simulated phone. A handle: clones are the same
/// system, so that apps inside the device and the shell outside see each other's changes.
///
/// ```
/// use dart_env_adb::simulator::System;
///
/// let system = System::new();
/// system.put_setting("global", "wifi_on", "0");
/// system.save("clean");
/// system.put_setting("global", "wifi_on", "1");
/// assert!(system.load("clean"));
/// assert_eq!(system.setting("global", "wifi_on").as_deref(), Some("0"));
/// ```
#[derive(Clone, Debug, Default)]
pub struct System(Arc<Mutex<State>>);

impl System {
    /// A phone as it leaves the factory.
    pub fn new() -> Self {
        Self::default()
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A setting of `system`, `secure` or `global`.
    pub fn setting(&self, namespace: &str, key: &str) -> Option<String> {
        let name = format!("{namespace}/{key}");
        self.state().kept.settings.get(&name).cloned()
    }

    /// Changes a setting.
    pub fn put_setting(&self, namespace: &str, key: &str, value: &str) {
        let name = format!("{namespace}/{key}");
        self.state().kept.settings.insert(name, value.to_owned());
    }

    /// The names of the files in a folder, in order.
    pub fn file_names(&self, folder: &str) -> Vec<String> {
        let entries = self.state().kept.files.list(folder).into_iter();
        let files = entries.filter(|(_, file)| file.is_some());
        files.map(|(name, _)| name).collect()
    }

    /// The content of a file.
    pub fn read_file(&self, path: &str) -> Option<Vec<u8>> {
        let state = self.state();
        state.kept.files.get(path).map(|file| file.content.to_vec())
    }

    /// Writes a file, and the folders above it.
    ///
    /// # Errors
    /// [`Exhausted`](ErrorKind::Exhausted) if there is no room, or a folder of that name.
    pub fn write_file(&self, path: &str, content: Vec<u8>) -> Result<()> {
        let file = File {
            content: Arc::new(content),
            mode: 0o100_644,
            time: 0,
        };
        let written = self.state().kept.files.put(path, file);
        written
            .map_err(|why| Error::new(ErrorKind::Exhausted, "dart-env-adb", "simulated file", why))
    }

    /// Removes a file, or a folder with all that is in it; whether there was one.
    pub fn remove_file(&self, path: &str) -> bool {
        self.state().kept.remove(path)
    }

    /// Looks at the rows of a table and changes them; a table that is missing is made.
    pub fn edit_table<T>(
        &self,
        (database, table): (&str, &str),
        columns: &[&str],
        edit: impl FnOnce(&mut Vec<Row>) -> T,
    ) -> T {
        let mut state = self.state();
        let tables = &mut state.kept.database(database).tables;
        let table = tables.entry(table.to_lowercase());
        let table = table.or_insert_with(|| Table::of(columns));
        let done = edit(&mut table.rows);
        for row in &mut table.rows {
            row.resize(table.columns.len(), String::new());
        }
        done
    }

    /// Writes a line to the log.
    pub fn log(&self, tag: &str, message: &str) {
        self.state().log(tag, message);
    }

    /// Notes that an app has come to the front.
    pub fn show(&self, package: &str) {
        self.state().show(package, ".Main");
    }

    /// Keeps settings, files and databases under a name, in place of what was kept there. Of more
    /// than 16 snapshots, the first by name are dropped.
    pub fn save(&self, name: &str) {
        let mut state = self.state();
        let kept = state.kept.clone();
        state.snapshots.insert(name.to_owned(), kept);
        while state.snapshots.len() > MAX_SNAPSHOTS {
            state.snapshots.pop_first();
        }
    }

    /// The names of the snapshots, in order.
    pub fn snapshots(&self) -> Vec<String> {
        self.state().snapshots.keys().cloned().collect()
    }

    /// Brings back what was kept under a name, with an empty log; whether there was such a snapshot.
    pub fn load(&self, name: &str) -> bool {
        let mut state = self.state();
        let Some(kept) = state.snapshots.get(name).cloned() else {
            return false;
        };
        state.kept = kept;
        state.clear_log();
        state.show(LAUNCHER, ".Main");
        true
    }
}

/// What a snapshot keeps.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) clipboard: String,
    databases: BTreeMap<String, Database>,
    pub(crate) files: Files,
    pub(crate) settings: BTreeMap<String, String>,
}

impl Kept {
    /// The database at a path; an empty one if there is none yet.
    pub(crate) fn database(&mut self, path: &str) -> &mut Database {
        self.databases.entry(path.to_owned()).or_default()
    }

    /// Removes a file, a database, or a folder with all that is in it; whether there was one.
    pub(crate) fn remove(&mut self, path: &str) -> bool {
        let inside = format!("{}/", path.trim_end_matches('/'));
        let before = self.databases.len();
        self.databases
            .retain(|name, _| name != path && !name.starts_with(&inside));
        let databases = before != self.databases.len();
        self.files.remove(path) || databases
    }
}

/// All of it.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) kept: Kept,
    pub(crate) commands: VecDeque<String>,
    /// The package in front, and its part that shows.
    pub(crate) front: String,
    pub(crate) activity: String,
    pub(crate) keyboard: String,
    log: VecDeque<String>,
    pub(crate) serial_number: String,
    snapshots: BTreeMap<String, Kept>,
    /// While it restarts.
    pub(crate) booting_until: Option<Instant>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            kept: Kept {
                clipboard: String::new(),
                databases: BTreeMap::new(),
                files: Files::new(),
                settings: BTreeMap::new(),
            },
            commands: VecDeque::new(),
            front: LAUNCHER.into(),
            activity: ".Main".into(),
            keyboard: "com.android.inputmethod.latin/.LatinIME".into(),
            log: VecDeque::new(),
            serial_number: String::new(),
            snapshots: BTreeMap::new(),
            booting_until: None,
        }
    }
}

impl State {
    pub(crate) fn log(&mut self, tag: &str, message: &str) {
        for line in message.lines() {
            self.log.push_back(format!("I/{tag}: {line}"));
        }
        while self.log.len() > MAX_LINES {
            self.log.pop_front();
        }
    }

    pub(crate) fn log_lines(&self) -> impl Iterator<Item = &String> {
        self.log.iter()
    }

    pub(crate) fn clear_log(&mut self) {
        self.log.clear();
    }

    pub(crate) fn trace(&mut self, command: &str) {
        self.commands.push_back(command.to_owned());
        while self.commands.len() > MAX_LINES {
            self.commands.pop_front();
        }
    }

    pub(crate) fn show(&mut self, package: &str, activity: &str) {
        package.clone_into(&mut self.front);
        activity.clone_into(&mut self.activity);
    }
}
