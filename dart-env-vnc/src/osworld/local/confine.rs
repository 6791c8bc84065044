//! Paths of task files to paths in an episode's home.
//!
//! A task file is downloaded data: it says `/home/user/...`, `~/...` or `/tmp/...`, and nothing else
//! of this machine may be meant. Files are opened beneath the home by the kernel (openat2(2),
//! `RESOLVE_BENEATH`), so that a symbolic link made meanwhile leads nowhere else.

use std::{
    fs::File,
    io::{self, Read, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::fchown,
    },
    path::{Component, Path, PathBuf},
};

use rustix::{
    fs::{Dir, Mode, OFlags, ResolveFlags, mkdirat, open, openat, openat2},
    io::Errno,
};
use serde_json::{Value, json};

use crate::osworld::error::Fault;

/// The home of OSWorld's user.
const GUEST_HOME: &str = "/home/user";

/// Deepest and largest tree that is listed.
const MAX_DEPTH: u32 = 16;
const MAX_ENTRIES: usize = 10_000;

/// The home of an episode, and the folder that stands for `/tmp`.
#[derive(Clone, Debug)]
pub(crate) struct Confined {
    home: PathBuf,
    temporary: PathBuf,
    /// Whom files and folders belong to, if not to this process's user.
    owner: Option<u32>,
}

/// A path split into the folder it is confined to and what is below it.
#[derive(Debug, PartialEq)]
enum Place<'a> {
    Home(&'a Path),
    Temporary(&'a Path),
}

fn refused(path: &str, why: &'static str) -> Fault {
    Fault::Path {
        path: path.chars().take(200).collect(),
        why,
    }
}

/// Which folder a path of a task file is in.
fn place(path: &str) -> Result<Place<'_>, Fault> {
    if path.is_empty() || path.len() > 4096 || path.contains('\0') {
        return Err(refused(path, "is not a path"));
    }
    let below = |prefix: &str| {
        let rest = path.strip_prefix(prefix)?;
        (rest.is_empty() || rest.starts_with('/')).then(|| Path::new(rest.trim_start_matches('/')))
    };
    let place = if let Some(rest) = below(GUEST_HOME).or_else(|| below("~")) {
        Place::Home(rest)
    } else if let Some(rest) = below("/tmp") {
        Place::Temporary(rest)
    } else if path.starts_with('/') {
        return Err(refused(path, "is outside /home/user and /tmp"));
    } else {
        Place::Home(Path::new(path))
    };
    let (Place::Home(rest) | Place::Temporary(rest)) = &place;
    let plain = |part| matches!(part, Component::Normal(_) | Component::CurDir);
    if rest.components().all(plain) {
        return Ok(place);
    }
    Err(refused(path, "leads upwards"))
}

/// Whether a path of a task file stays inside.
pub(crate) fn check(path: &str) -> Result<(), Fault> {
    place(path).map(|_| ())
}

impl Confined {
    pub(crate) const fn new(home: PathBuf, temporary: PathBuf, owner: Option<u32>) -> Self {
        Self {
            home,
            temporary,
            owner,
        }
    }

    fn split<'a>(&self, path: &'a str) -> Result<(&Path, &'a Path), Fault> {
        Ok(match place(path)? {
            Place::Home(rest) => (&self.home, rest),
            Place::Temporary(rest) => (&self.temporary, rest),
        })
    }

    /// The path on this machine, for a program's command line.
    pub(crate) fn path(&self, path: &str) -> Result<PathBuf, Fault> {
        let (base, rest) = self.split(path)?;
        Ok(base.join(rest))
    }

    /// `text` with the guest's home, `/tmp` and `~/` at its beginning replaced, each where it is a
    /// path or the beginning of one.
    pub(crate) fn text(&self, text: &str) -> String {
        let (home, temporary) = (self.home.display(), self.temporary.display());
        let mut real = String::with_capacity(text.len());
        let mut rest = text;
        if let Some(below) = text.strip_prefix("~/") {
            real = format!("{home}/");
            rest = below;
        }
        while let Some(c) = rest.chars().next() {
            let before = &text[..text.len() - rest.len()];
            let path = starts_path(before)
                .then(|| prefix(rest, GUEST_HOME).or_else(|| prefix(rest, "/tmp")))
                .flatten();
            rest = if let Some(below) = path {
                let is_home = rest.starts_with(GUEST_HOME);
                real += &if is_home {
                    home.to_string()
                } else {
                    temporary.to_string()
                };
                below
            } else {
                real.push(c);
                &rest[c.len_utf8()..]
            };
        }
        real
    }

    fn give(&self, to: impl AsFd) -> io::Result<()> {
        match self.owner {
            Some(owner) => fchown(to, Some(owner), Some(owner)),
            None => Ok(()),
        }
    }

    /// Opens a file beneath its folder.
    fn open(&self, path: &str, flags: OFlags) -> Result<Option<File>, Fault> {
        let (base, rest) = self.split(path)?;
        let cannot = |error: Errno| Fault::Read {
            what: path.to_owned(),
            cause: error.into(),
        };
        let folder = open(base, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        let folder = folder.map_err(cannot)?;
        let rest = if rest.as_os_str().is_empty() {
            Path::new(".")
        } else {
            rest
        };
        let flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let mode = if flags.contains(OFlags::CREATE) {
            Mode::RUSR | Mode::WUSR
        } else {
            Mode::empty()
        };
        match openat2(&folder, rest, flags, mode, resolve) {
            Ok(file) => Ok(Some(file.into())),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::ISDIR | Errno::ACCESS) => Ok(None),
            // The agent may have made a link that leads out: for the judgement there is no such file.
            Err(Errno::XDEV | Errno::LOOP) if !flags.contains(OFlags::CREATE) => Ok(None),
            Err(Errno::XDEV | Errno::LOOP) => Err(refused(
                path,
                "is a link that leads out of the episode's home",
            )),
            Err(error) => Err(cannot(error)),
        }
    }

    /// The content of a plain file of at most `limit` bytes; `None` if there is none.
    pub(crate) fn read(&self, path: &str, limit: usize) -> Result<Option<Vec<u8>>, Fault> {
        let Some(file) = self.open(path, OFlags::RDONLY)? else {
            return Ok(None);
        };
        let cannot = |cause: io::Error| Fault::Read {
            what: path.to_owned(),
            cause,
        };
        if !file.metadata().map_err(cannot)?.is_file() {
            return Ok(None);
        }
        let mut content = Vec::new();
        let read = file.take(limit as u64 + 1).read_to_end(&mut content);
        if read.map_err(cannot)? > limit {
            let what = path.to_owned();
            return Err(Fault::TooLarge { what, limit });
        }
        Ok(Some(content))
    }

    /// Writes a file, with the folders that it is in.
    pub(crate) fn write(&self, path: &str, content: &[u8]) -> Result<(), Fault> {
        self.make_folders(path)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
        let cannot = |cause: io::Error| Fault::Read {
            what: path.to_owned(),
            cause,
        };
        let file = self.open(path, flags)?;
        let mut file = file.ok_or_else(|| refused(path, "has no folder"))?;
        if !file.metadata().map_err(cannot)?.is_file() {
            return Err(refused(path, "is not a file"));
        }
        self.give(&file).map_err(cannot)?;
        file.write_all(content).map_err(cannot)
    }

    /// Makes the folders that `path` is in, one beneath the other.
    pub(crate) fn make_folders(&self, path: &str) -> Result<(), Fault> {
        let (base, rest) = self.split(path)?;
        let cannot = |error: Errno| Fault::Read {
            what: path.to_owned(),
            cause: error.into(),
        };
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut folder = open(base, flags, Mode::empty()).map_err(cannot)?;
        for part in rest.parent().into_iter().flat_map(Path::components) {
            // It may be there already; if it is a link that leads out, opening it fails.
            let made = mkdirat(&folder, part.as_os_str(), Mode::RWXU).is_ok();
            let next = openat2(
                &folder,
                part.as_os_str(),
                flags,
                Mode::empty(),
                ResolveFlags::BENEATH,
            );
            folder = next.map_err(cannot)?;
            if made {
                let given = self.give(&folder);
                given.map_err(|cause| Fault::Read {
                    what: path.to_owned(),
                    cause,
                })?;
            }
        }
        Ok(())
    }

    /// The tree of files below the folder `path`, called `name`; `None` if there is no such folder.
    /// Links are listed and not followed.
    pub(crate) fn tree(&self, path: &str, name: &str) -> Result<Option<Value>, Fault> {
        let Some(folder) = self.open(path, OFlags::RDONLY | OFlags::DIRECTORY)? else {
            return Ok(None);
        };
        let listed = tree(&folder.into(), name, 0, &mut MAX_ENTRIES.clone());
        listed.map(Some).map_err(|error| Fault::Read {
            what: path.to_owned(),
            cause: error.into(),
        })
    }
}

/// Whether a path may begin after `before`: not in the middle of a name or of another path.
fn starts_path(before: &str) -> bool {
    let inside = |c: char| c.is_alphanumeric() || "_-.~/".contains(c);
    before.ends_with("://") || !before.ends_with(inside)
}

/// What follows `path` in `text`, if that is where its name ends.
fn prefix<'a>(text: &'a str, path: &str) -> Option<&'a str> {
    let rest = text.strip_prefix(path)?;
    let goes_on = |c: char| c.is_alphanumeric() || "_-.~".contains(c);
    (!rest.starts_with(goes_on)).then_some(rest)
}

/// What is below an open folder; `left` bounds the entries.
fn tree(folder: &OwnedFd, name: &str, depth: u32, left: &mut usize) -> Result<Value, Errno> {
    let mut names = Vec::new();
    // Two more: the folder itself and the one above.
    for entry in Dir::read_from(folder)?.take(*left + 2) {
        let name = entry?.file_name().to_bytes().to_vec();
        if !matches!(&*name, b"." | b"..") {
            names.push(name);
        }
    }
    names.sort();
    let mut children = Vec::new();
    for name in names {
        *left = left.saturating_sub(1);
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let below = (depth < MAX_DEPTH && *left > 0)
            .then(|| openat(folder, &*name, flags, Mode::empty()).ok())
            .flatten();
        let name = String::from_utf8_lossy(&name);
        children.push(match below {
            Some(below) => tree(&below, &name, depth + 1, left)?,
            None => json!({ "type": "file", "name": name }),
        });
    }
    Ok(json!({ "type": "directory", "name": name, "children": children }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn confined() -> (tempfile::TempDir, Confined) {
        let folder = tempfile::tempdir().unwrap();
        let (home, tmp) = (folder.path().join("home"), folder.path().join("tmp"));
        std::fs::create_dir(&home).unwrap();
        std::fs::create_dir(&tmp).unwrap();
        std::fs::write(folder.path().join("secret"), "s").unwrap();
        let confined = Confined::new(home, tmp, None);
        (folder, confined)
    }

    #[test]
    fn the_guests_home_is_the_episodes() {
        let (folder, confined) = confined();
        for path in ["/home/user/a/b.txt", "~/a/b.txt", "a/b.txt"] {
            confined.write(path, path.as_bytes()).unwrap();
            assert_eq!(
                confined.read("~/a/b.txt", 99).unwrap().unwrap(),
                path.as_bytes()
            );
        }
        confined.write("/tmp/x", b"t").unwrap();
        assert!(folder.path().join("tmp/x").is_file());
        assert_eq!(confined.read("~/none", 9).unwrap(), None);
        assert_eq!(confined.read("~/a", 9).unwrap(), None);
        assert_eq!(confined.read("~/a/b.txt/c", 9).unwrap(), None);
        assert!(matches!(
            confined.read("~/a/b.txt", 3),
            Err(Fault::TooLarge { .. })
        ));
        // A pipe that nobody reads does not hold up.
        let pipe = folder.path().join("home/pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        assert_eq!(confined.read("~/pipe", 9).unwrap(), None);
        assert!(confined.write("~/pipe", b"x").is_err());
    }

    #[test]
    fn paths_in_texts_are_the_episodes() {
        // The folder of an episode may itself lie in one that is replaced.
        let confined = Confined::new("/tmp/e/home".into(), "/tmp/e/tmp".into(), None);
        for (text, real) in [
            ("cat /home/user/x", "cat /tmp/e/home/x"),
            ("~/a b", "/tmp/e/home/a b"),
            ("/tmp/x", "/tmp/e/tmp/x"),
            (
                "cp '/tmp/x' \"/home/user\"",
                "cp '/tmp/e/tmp/x' \"/tmp/e/home\"",
            ),
            (
                "cd /tmp; ls>/tmp/l&&a=/tmp",
                "cd /tmp/e/tmp; ls>/tmp/e/tmp/l&&a=/tmp/e/tmp",
            ),
            ("--x=file:///home/user/a", "--x=file:///tmp/e/home/a"),
            (
                "/home/user2 /tmpfile /var/tmp/x ./tmp/x",
                "/home/user2 /tmpfile /var/tmp/x ./tmp/x",
            ),
            ("é/tmp/x /tmp/é", "é/tmp/x /tmp/e/tmp/é"),
        ] {
            assert_eq!(confined.text(text), real, "{text}");
        }
    }

    #[test]
    fn a_tree_lists_links_and_does_not_follow_them() {
        let (folder, confined) = confined();
        let home = folder.path().join("home");
        confined.write("~/x/a/b", b"").unwrap();
        std::os::unix::fs::symlink("/", home.join("x/c")).unwrap();
        std::os::unix::fs::symlink(folder.path(), home.join("out")).unwrap();
        let listed = confined.tree("~/x", "x").unwrap().unwrap();
        let expected = json!({"type": "directory", "name": "x", "children": [
            {"type": "directory", "name": "a", "children": [{"type": "file", "name": "b"}]},
            {"type": "file", "name": "c"},
        ]});
        assert_eq!(listed, expected);
        for nothing in ["~/out", "~/x/c", "~/none", "~/x/a/b"] {
            assert_eq!(confined.tree(nothing, "x").unwrap(), None, "{nothing}");
        }
    }

    #[test]
    fn a_tree_is_bounded() {
        let (_folder, confined) = confined();
        confined
            .write(&format!("~/{}x", "d/".repeat(40)), b"")
            .unwrap();
        for n in 0..MAX_ENTRIES + 10 {
            confined.write(&format!("~/{n}"), b"").unwrap();
        }
        let listed = confined.tree("~", "home").unwrap().unwrap();
        let text = listed.to_string();
        assert!(text.matches("\"name\"").count() <= MAX_ENTRIES + 2);
        assert!(text.matches("directory").count() <= MAX_DEPTH as usize + 2);
    }

    #[test]
    fn nothing_else_of_this_machine_is_meant() {
        for path in [
            "/etc/passwd",
            "../secret",
            "~/../secret",
            "/home/user/../secret",
            "/home/user2/x",
            "/home/userx",
            "/tmp/../secret",
            "/tmpfile",
            "a/../../secret",
            "",
            "a\0b",
        ] {
            assert!(check(path).is_err(), "{path}");
        }
    }

    #[test]
    fn a_link_leads_nowhere_else() {
        let (folder, confined) = confined();
        let home = folder.path().join("home");
        std::os::unix::fs::symlink("../secret", home.join("link")).unwrap();
        std::os::unix::fs::symlink("..", home.join("up")).unwrap();
        std::os::unix::fs::symlink(folder.path(), home.join("absolute")).unwrap();
        std::fs::write(home.join("real"), "r").unwrap();
        std::os::unix::fs::symlink("real", home.join("inside")).unwrap();
        for path in ["~/link", "~/up/secret", "~/absolute/secret"] {
            assert_eq!(confined.read(path, 99).unwrap(), None, "{path}");
            assert!(confined.write(path, b"x").is_err(), "{path}");
        }
        assert!(confined.write("~/up/new", b"x").is_err());
        assert!(confined.write("~/up/new/x", b"x").is_err());
        assert!(!folder.path().join("new").exists());
        assert_eq!(confined.read("~/inside", 99).unwrap().unwrap(), b"r");
        assert_eq!(std::fs::read(folder.path().join("secret")).unwrap(), b"s");
    }

    proptest! {
        #[test]
        fn whatever_a_path_says_it_stays_inside(path in "(/home/user|~|/tmp|)(/|\\.\\.|\\.|[a-z]|~){0,12}") {
            let confined = Confined::new("/e/home".into(), "/e/tmp".into(), None);
            if let Ok(real) = confined.path(&path) {
                let inside = real.starts_with("/e/home") || real.starts_with("/e/tmp");
                prop_assert!(inside, "{path} -> {}", real.display());
                prop_assert!(!real.components().any(|part| part == Component::ParentDir));
            }
        }
    }
}
