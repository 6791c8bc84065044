//! Paths of task files to paths in an episode's home.
//!
//! A task file is downloaded data: it says `/home/user/...`, `~/...` or `/tmp/...`, and nothing else
//! of this machine may be meant. Files are opened beneath the home by the kernel (openat2(2),
//! `RESOLVE_BENEATH`), so that a symbolic link made meanwhile leads nowhere else.

use std::{
    fs::File,
    io::{self, Read, Write},
    path::{Component, Path, PathBuf},
};

use rustix::{
    fs::{Mode, OFlags, ResolveFlags, mkdirat, open, openat2},
    io::Errno,
};

use crate::osworld::error::Fault;

/// The home of OSWorld's user.
const GUEST_HOME: &str = "/home/user";

/// The home of an episode, and the folder that stands for `/tmp`.
#[derive(Clone, Debug)]
pub(crate) struct Confined {
    home: PathBuf,
    temporary: PathBuf,
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
    pub(crate) const fn new(home: PathBuf, temporary: PathBuf) -> Self {
        Self { home, temporary }
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

    /// `text` with the guest's home and `~/` at its beginning replaced.
    pub(crate) fn text(&self, text: &str) -> String {
        let home = self.home.display().to_string();
        let text = text.replace(GUEST_HOME, &home);
        match text.strip_prefix("~/") {
            Some(rest) => format!("{home}/{rest}"),
            None => text,
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
        file.write_all(content).map_err(cannot)
    }

    /// Makes the folders that `path` is in, one beneath the other.
    fn make_folders(&self, path: &str) -> Result<(), Fault> {
        let (base, rest) = self.split(path)?;
        let cannot = |error: Errno| Fault::Read {
            what: path.to_owned(),
            cause: error.into(),
        };
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut folder = open(base, flags, Mode::empty()).map_err(cannot)?;
        for part in rest.parent().into_iter().flat_map(Path::components) {
            // It may be there already; if it is a link that leads out, opening it fails.
            let _there = mkdirat(&folder, part.as_os_str(), Mode::RWXU);
            let next = openat2(
                &folder,
                part.as_os_str(),
                flags,
                Mode::empty(),
                ResolveFlags::BENEATH,
            );
            folder = next.map_err(cannot)?;
        }
        Ok(())
    }

    /// The folder that `path` names, for listing.
    pub(crate) fn folder(&self, path: &str) -> Result<Option<PathBuf>, Fault> {
        let opened = self.open(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        opened.is_some().then(|| self.path(path)).transpose()
    }
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
        let confined = Confined::new(home, tmp);
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
        let home = folder.path().join("home").display().to_string();
        assert_eq!(confined.text("cat /home/user/x"), format!("cat {home}/x"));
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
            let confined = Confined::new("/e/home".into(), "/e/tmp".into());
            if let Ok(real) = confined.path(&path) {
                let inside = real.starts_with("/e/home") || real.starts_with("/e/tmp");
                prop_assert!(inside, "{path} -> {}", real.display());
                prop_assert!(!real.components().any(|part| part == Component::ParentDir));
            }
        }
    }
}
