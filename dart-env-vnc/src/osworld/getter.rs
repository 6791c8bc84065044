//! Where the judgement takes what it compares from (`result` and `expected` of an evaluator).

use std::collections::BTreeSet;

use serde::{Deserialize, Deserializer, de};
use serde_json::{Map, Value};

use super::step::{CommandText, GuestCommand, truth};

/// A file, and the name under which the judgement keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRef {
    /// Path in the guest, or address.
    pub path: String,
    /// A plain file name.
    pub dest: String,
}

/// One source of a value.
#[derive(Clone, Debug, PartialEq)]
pub enum Getter {
    /// What the task file itself says.
    Rule(Value),
    /// Files of the guest.
    VmFile(Vec<FileRef>),
    /// Reference files from elsewhere.
    CloudFile(Vec<FileRef>),
    /// Output kept by an earlier step.
    CacheFile {
        /// The name it was kept under.
        name: String,
    },
    /// Standard output of a command in the guest.
    VmCommandLine(GuestCommand),
    /// Standard error of a command in the guest.
    VmCommandError(GuestCommand),
    /// The tree of files below a folder of the guest.
    ListDirectory {
        /// The folder.
        path: String,
    },
    /// What the guest's terminal shows.
    VmTerminalOutput,
    /// The guest's accessibility tree, XML.
    AccessibilityTree,
    /// A file of GIMP's settings.
    GimpConfigFile(FileRef),
    /// VLC's settings.
    VlcConfig(FileRef),
    /// Titles and addresses of the browser's pages.
    OpenTabsInfo,
    /// The browser's bookmarks.
    Bookmarks,
    /// A kind that this project does not know. An external evaluator gets it as it is.
    Other {
        /// Its name.
        kind: String,
    },
}

impl Getter {
    /// The name of its kind in task files.
    pub fn kind(&self) -> &str {
        match self {
            Self::Rule(_) => "rule",
            Self::VmFile(_) => "vm_file",
            Self::CloudFile(_) => "cloud_file",
            Self::CacheFile { .. } => "cache_file",
            Self::VmCommandLine(_) => "vm_command_line",
            Self::VmCommandError(_) => "vm_command_error",
            Self::ListDirectory { .. } => "list_directory",
            Self::VmTerminalOutput => "vm_terminal_output",
            Self::AccessibilityTree => "accessibility_tree",
            Self::GimpConfigFile(_) => "gimp_config_file",
            Self::VlcConfig(_) => "vlc_config",
            Self::OpenTabsInfo => "open_tabs_info",
            Self::Bookmarks => "bookmarks",
            Self::Other { kind } => kind,
        }
    }
}

/// A getter and the text it was read from, which external evaluators are given.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    /// What it says.
    pub getter: Getter,
    /// As it stands in the file.
    pub raw: Value,
}

#[derive(Deserialize)]
struct Rules {
    rules: Value,
}

/// `path` and `dest`: one of each, or as many of the one as of the other.
#[derive(Deserialize)]
struct Files {
    path: OneOrMany,
    #[serde(default)]
    dest: Option<OneOrMany>,
    #[serde(default, deserialize_with = "truth")]
    multi: bool,
    /// Which of several files the metric is given. Default the first.
    #[serde(default)]
    gives: Option<Vec<usize>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl OneOrMany {
    fn into_vec(self) -> Vec<String> {
        match self {
            Self::One(one) => vec![one],
            Self::Many(many) => many,
        }
    }
}

#[derive(Deserialize)]
struct Run {
    command: CommandText,
    #[serde(default, deserialize_with = "truth")]
    shell: bool,
}

#[derive(Deserialize)]
struct OnePath {
    path: String,
}

#[derive(Deserialize)]
struct ConfigFile {
    file_name: String,
    dest: String,
}

#[derive(Deserialize)]
struct OneDest {
    dest: String,
}

fn typed<T: de::DeserializeOwned>(kind: &str, raw: &Value) -> Result<T, String> {
    T::deserialize(raw).map_err(|error| format!("getter {kind}: {error}"))
}

/// A plain file name: it is joined to a folder of ours.
fn plain(name: &str) -> Result<(), String> {
    let bad = name.is_empty() || name.len() > 200 || name.starts_with('.');
    if bad || name.contains(['/', '\\', '\0']) {
        return Err(format!(
            "{:?} is not a plain file name",
            super::error::bounded(name)
        ));
    }
    Ok(())
}

fn last_part(path: &str) -> String {
    path.rsplit('/').next().unwrap_or(path).to_owned()
}

fn files(kind: &str, raw: &Value) -> Result<Vec<FileRef>, String> {
    let Files {
        path,
        dest,
        multi,
        gives,
    } = typed(kind, raw)?;
    let paths = path.into_vec();
    let dests = match dest {
        Some(dest) => dest.into_vec(),
        None => paths.iter().map(|path| last_part(path)).collect(),
    };
    if paths.is_empty() || paths.len() != dests.len() {
        return Err(format!("getter {kind}: as many dest as path are needed"));
    }
    dests.iter().try_for_each(|dest| plain(dest))?;
    let all: Vec<FileRef> = paths
        .into_iter()
        .zip(dests)
        .map(|(path, dest)| FileRef { path, dest })
        .collect();
    if !multi {
        return Ok(all.into_iter().take(1).collect());
    }
    // A set of places, as in the original: the order is that of the files.
    let gives: BTreeSet<usize> = gives.unwrap_or_else(|| vec![0]).into_iter().collect();
    let chosen = gives.iter().map(|at| all.get(*at).cloned());
    chosen
        .collect::<Option<_>>()
        .ok_or_else(|| format!("getter {kind}: gives names a file that is not there"))
}

fn command(kind: &str, raw: &Value) -> Result<GuestCommand, String> {
    let Run { command, shell } = typed(kind, raw)?;
    Ok(GuestCommand { command, shell })
}

fn settings(folder: &str, file: &str, dest: String) -> Result<FileRef, String> {
    plain(file)?;
    plain(&dest)?;
    Ok(FileRef {
        path: format!("~/{folder}/{file}"),
        dest,
    })
}

fn parse(kind: &str, raw: &Value) -> Result<Getter, String> {
    Ok(match kind {
        "rule" => Getter::Rule(typed::<Rules>(kind, raw)?.rules),
        "vm_file" => Getter::VmFile(files(kind, raw)?),
        "cloud_file" => Getter::CloudFile(files(kind, raw)?),
        "cache_file" => {
            let name = typed::<OnePath>(kind, raw)?.path;
            plain(&name)?;
            Getter::CacheFile { name }
        }
        "vm_command_line" => Getter::VmCommandLine(command(kind, raw)?),
        "vm_command_error" => Getter::VmCommandError(command(kind, raw)?),
        "list_directory" => Getter::ListDirectory {
            path: typed::<OnePath>(kind, raw)?.path,
        },
        "vm_terminal_output" => Getter::VmTerminalOutput,
        "accessibility_tree" => Getter::AccessibilityTree,
        "gimp_config_file" => {
            let ConfigFile { file_name, dest } = typed(kind, raw)?;
            Getter::GimpConfigFile(settings(".config/GIMP/2.10", &file_name, dest)?)
        }
        "vlc_config" => {
            let OneDest { dest } = typed(kind, raw)?;
            Getter::VlcConfig(settings(".config/vlc", "vlcrc", dest)?)
        }
        "open_tabs_info" => Getter::OpenTabsInfo,
        "bookmarks" => Getter::Bookmarks,
        other => Getter::Other {
            kind: other.to_owned(),
        },
    })
}

impl<'de> Deserialize<'de> for Source {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let raw = Map::<String, Value>::deserialize(from)?;
        let kind = raw.get("type").and_then(Value::as_str);
        let kind = kind
            .ok_or_else(|| de::Error::missing_field("type"))?
            .to_owned();
        let raw = Value::Object(raw);
        let getter = parse(&kind, &raw).map_err(de::Error::custom)?;
        Ok(Self { getter, raw })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn source(value: Value) -> Result<Getter, serde_json::Error> {
        Source::deserialize(value).map(|source| source.getter)
    }

    #[test]
    fn several_files_give_the_first_unless_told_otherwise() {
        let mut value = json!({
            "type": "vm_file", "path": ["/a", "/b"], "dest": ["a", "b"], "multi": "true"
        });
        let Getter::VmFile(files) = source(value.clone()).unwrap() else {
            panic!("files");
        };
        assert_eq!(files.len(), 1);
        value["gives"] = json!([1, 0, 1]);
        let Getter::VmFile(files) = source(value.clone()).unwrap() else {
            panic!("files");
        };
        assert_eq!(files.len(), 2);
        assert_eq!((files[0].dest.as_str(), files[1].dest.as_str()), ("a", "b"));
        value["gives"] = json!([2]);
        assert!(source(value).is_err());
    }

    #[test]
    fn names_that_would_leave_the_folder_are_refused() {
        for dest in ["../x", "a/b", "", ".", "..", ".bashrc"] {
            let value = json!({"type": "vm_file", "path": "/a", "dest": dest});
            assert!(source(value).is_err(), "{dest}");
            assert!(source(json!({"type": "cache_file", "path": dest})).is_err());
        }
    }

    #[test]
    fn unknown_kinds_keep_their_name() {
        let getter = source(json!({"type": "page_info", "url": "x"})).unwrap();
        assert_eq!(getter.kind(), "page_info");
        assert!(source(json!({"url": "x"})).is_err());
    }
}
