//! As whom the programs of an episode run, and within which limits.
//!
//! Every program and every command gets no new rights from what it runs (`no_new_privs`), writes no
//! core and no file of more than 1 GiB. Where this process is root, they run as a user of their own,
//! one for each desktop, that nothing else on this machine belongs to: they reach none of this
//! process's files, and whatever they start, wherever they leave something, can be told by its owner
//! and ends with the episode. Not confined: the network, memory, processor time, and what anybody
//! may read.

use std::{
    collections::BTreeSet,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use md5::{Digest as _, Md5};

use super::run::{Job, to_end};

/// The first of the users, and how many there are. Nobody's: systemd gives them to services that
/// need one for a while, after looking, as we do.
const FIRST: u32 = 62_000;
const COUNT: u32 = 3_000;

/// Between two users of the same display.
const STEP: u32 = 100;

/// Longest wait for what is done here.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where programs leave things beside their home.
const SHARED: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];

/// As whom programs run, and what starts them.
#[derive(Clone, Debug, Default)]
pub(super) struct User {
    /// A user of their own.
    owner: Option<u32>,
    /// Program and arguments, followed by what is to run.
    wrapper: Vec<String>,
}

impl User {
    /// The most that this machine allows for a desktop's programs, whose home is below `folder`.
    pub(super) async fn choose(display: &str, folder: &Path) -> Self {
        let mut known = Vec::new();
        if rustix::process::geteuid().is_root() && reachable(folder) {
            known.extend(free_user(display).map(Some));
        }
        known.push(None);
        for owner in known {
            let wrapper = wrapper(owner);
            if succeeds(&wrapper, &["true"]).await {
                return Self { owner, wrapper };
            }
        }
        tracing::warn!("setpriv and prlimit do not work here: programs run without limits");
        Self::default()
    }

    /// The user, if it is not that of this process.
    pub(super) const fn owner(&self) -> Option<u32> {
        self.owner
    }

    /// What starts programs.
    pub(super) fn wrapper(&self) -> Vec<String> {
        self.wrapper.clone()
    }

    /// Ends all that the user still runs.
    pub(super) async fn end(&self) {
        if self.owner.is_some() {
            // Everything that this user may send a signal to, which is what is its own.
            succeeds(&self.wrapper, &["sh", "-c", "kill -KILL -1"]).await;
        }
    }

    /// Removes what programs with this home left elsewhere.
    pub(super) fn sweep(&self, home: &Path) {
        if let Some(owner) = self.owner {
            for folder in SHARED {
                remove_of(owner, Path::new(folder));
            }
            return;
        }
        // Its owner has others, too, so this one is known by its name.
        let user = rustix::process::geteuid().as_raw();
        let _gone = std::fs::remove_file(office_socket(user, home));
    }
}

fn wrapper(owner: Option<u32>) -> Vec<String> {
    let mut words = ["prlimit", "--core=0:0", "--fsize=1073741824"]
        .map(str::to_owned)
        .to_vec();
    if owner.is_some() {
        // Of a user that has nothing else.
        words.push("--nproc=2048".into());
    }
    words.extend(["setpriv", "--no-new-privs"].map(str::to_owned));
    if let Some(owner) = owner {
        words.extend([format!("--reuid={owner}"), format!("--regid={owner}")]);
        words.extend(
            ["--clear-groups", "--inh-caps=-all", "--bounding-set=-all"].map(str::to_owned),
        );
    }
    words
}

async fn succeeds(wrapper: &[String], command: &[&str]) -> bool {
    let command = command.iter().map(|word| (*word).to_owned());
    let words: Vec<String> = wrapper.iter().cloned().chain(command).collect();
    let environment = [("PATH", std::env::var("PATH").unwrap_or_default())];
    let ran = to_end(Job {
        words: &words,
        environment: &environment,
        folder: Path::new("/"),
        input: Vec::new(),
        deadline: PATIENCE,
        limit: 1 << 16,
        talkative: true,
    });
    ran.await.is_ok_and(|output| output.code == 0)
}

/// Whether anybody may pass through all folders above `folder`'s own desktop to it.
fn reachable(folder: &Path) -> bool {
    // Home, session and desktop are opened when the user is known.
    let mut above = folder.ancestors().skip(3);
    let passes = |folder: &Path| folder.metadata().is_ok_and(|meta| meta.mode() & 0o001 != 0);
    above.all(passes)
}

/// A user that runs nothing, has no name and owns nothing where [`User::sweep`] removes what is its
/// own; two desktops have two displays, and so two users.
fn free_user(display: &str) -> Option<u32> {
    let number = display.trim_start_matches(':').parse::<u32>().ok()?;
    let mut busy = owners("/proc");
    busy.extend(SHARED.into_iter().flat_map(owners));
    let named = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    busy.extend(
        named
            .lines()
            .filter_map(|line| line.split(':').nth(2)?.parse::<u32>().ok()),
    );
    // What the last desktop of this number ran may still be ending.
    let mut users = (0..COUNT / STEP).map(|round| FIRST + (number + round * STEP) % COUNT);
    users.find(|user| !busy.contains(user))
}

/// Whose the entries of a folder are.
fn owners(folder: &str) -> BTreeSet<u32> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let owner = |entry: std::fs::DirEntry| Some(entry.metadata().ok()?.uid());
    entries.filter_map(|entry| owner(entry.ok()?)).collect()
}

/// Removes what is `owner`'s in `folder`.
fn remove_of(owner: u32, folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let Ok(meta) = path.symlink_metadata() else {
            continue;
        };
        if meta.uid() == owner {
            let gone = if meta.is_dir() {
                std::fs::remove_dir_all(&path)
            } else {
                std::fs::remove_file(&path)
            };
            if let Err(error) = gone {
                tracing::debug!(path = %path.display(), %error, "cannot be removed");
            }
        }
    }
}

/// The socket by which LibreOffice finds itself. It is in `/tmp` whatever `TMPDIR` says, and named
/// after its profile (LibreOffice 7.4, `desktop/source/app/officeipcthread.cxx`).
fn office_socket(user: u32, home: &Path) -> PathBuf {
    use std::fmt::Write as _;
    let profile = format!("file://{}/.config/libreoffice/4", home.display());
    let units: Vec<u8> = profile.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let mut name = format!("/tmp/OSL_PIPE_{user}_SingleOfficeIPC_");
    // Without leading zeros.
    for byte in Md5::digest(&units) {
        let _infallible = write!(name, "{byte:x}");
    }
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As it was seen on a machine.
    #[test]
    fn the_office_names_its_socket_after_its_profile() {
        let socket = office_socket(0, Path::new("/tmp/osw-exp/h"));
        let name = "/tmp/OSL_PIPE_0_SingleOfficeIPC_5ac4bd8852a03b9b841057a529459e52";
        assert_eq!(socket, Path::new(name));
    }

    #[test]
    fn two_desktops_have_two_users() {
        let users = [":1", ":2"].map(free_user);
        assert_eq!(users, [Some(FIRST + 1), Some(FIRST + 2)]);
        assert_eq!(free_user("x"), None);
    }

    /// What the sweep would take for its own.
    #[test]
    fn who_owns_something_is_not_taken() {
        let path = PathBuf::from(format!("/tmp/dart-user-owned-{}", std::process::id()));
        std::fs::write(&path, "somebody's").unwrap();
        let Some(free) = free_user(":2500") else {
            panic!("nobody is free");
        };
        // Only root can give a file away.
        if std::os::unix::fs::chown(&path, Some(free), None).is_ok() {
            assert_ne!(free_user(":2500"), Some(free));
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!(free_user(":2500"), Some(free));
    }

    #[tokio::test]
    async fn limits_hold() {
        let user = User::choose(":2999", Path::new("/tmp/a/b/c")).await;
        let asks = "[ \"$(ulimit -c)\" = 0 ] && grep -q 'NoNewPrivs:.1' /proc/self/status";
        assert!(succeeds(&user.wrapper, &["sh", "-c", asks]).await);
        let Some(owner) = user.owner() else { return };
        let is_it = format!("[ \"$(id -u)-$(id -g)-$(id -G)\" = {owner}-{owner}-{owner} ]");
        assert!(succeeds(&user.wrapper, &["sh", "-c", &is_it]).await);
        // What left its group and its session, and left something behind.
        let left = format!("/tmp/dart-user-test-{}", std::process::id());
        let away = format!("umask 0; touch {left}; env -i setsid sleep 300 >&- 2>&- & sleep 0.2");
        assert!(succeeds(&user.wrapper, &["sh", "-c", &away]).await);
        assert_ne!(free_user(":2999"), Some(owner), "it is gone by itself");
        user.end().await;
        user.sweep(Path::new("/tmp/a/b/c"));
        assert!(!Path::new(&left).exists());
        let end = std::time::Instant::now() + PATIENCE;
        while free_user(":2999") != Some(owner) {
            assert!(std::time::Instant::now() < end, "it is still running");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}
