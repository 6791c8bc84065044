//! A desktop without a browser, for tasks that start programs themselves: an X server, a window
//! manager that can be operated with the mouse, and sessions.
//!
//! A session is one episode's part of the desktop: a home of its own and the programs started in
//! it. Ending it ends them and removes the home, also when this process dies (`supervise.sh`).

use std::{
    fs, io,
    net::SocketAddr,
    os::unix::fs::{PermissionsExt as _, chown},
    path::{Path, PathBuf},
    time::Duration,
};

pub(crate) use super::config::browser_program;
use super::{
    DesktopConfig,
    config::find,
    fault::Fault,
    place::{Base, private_directory},
    secrets::{self, Secret},
    supervisor::{Program, Supervised},
    xserver::{Server, start_server, start_window_manager},
};

/// Most programs that one session starts.
const MAX_PROGRAMS: usize = 64;

/// A window manager as people know it: a click focuses and raises, title bars drag, the buttons
/// work, Alt+F4 closes. No menu and no key starts a program.
const SETTINGS: &str = r#"<?xml version="1.0"?>
<openbox_config xmlns="http://openbox.org/3.4/rc">
<focus><focusNew>yes</focusNew><followMouse>no</followMouse></focus>
<placement><policy>Smart</policy><center>yes</center></placement>
<theme><titleLayout>LIMC</titleLayout></theme>
<desktops><number>1</number></desktops>
<keyboard><keybind key="A-F4"><action name="Close"/></keybind></keyboard>
<mouse>
<context name="Client">
<mousebind button="Left" action="Press"><action name="Focus"/><action name="Raise"/></mousebind>
<mousebind button="Middle" action="Press"><action name="Focus"/><action name="Raise"/></mousebind>
<mousebind button="Right" action="Press"><action name="Focus"/><action name="Raise"/></mousebind>
</context>
<context name="Titlebar">
<mousebind button="Left" action="Press"><action name="Focus"/><action name="Raise"/></mousebind>
<mousebind button="Left" action="Drag"><action name="Move"/></mousebind>
<mousebind button="Left" action="DoubleClick"><action name="ToggleMaximize"/></mousebind>
</context>
<context name="Close"><mousebind button="Left" action="Click"><action name="Close"/></mousebind></context>
<context name="Maximize"><mousebind button="Left" action="Click"><action name="ToggleMaximize"/></mousebind></context>
<context name="Iconify"><mousebind button="Left" action="Click"><action name="Iconify"/></mousebind></context>
</mouse>
</openbox_config>
"#;

/// Checks that `program` is installed.
pub(crate) fn require(program: &str, package: &'static str) -> Result<(), Fault> {
    find(Path::new(program), package)
}

/// A running desktop without programs. Dropping it ends it in the background;
/// [`stop`](Self::stop) waits.
#[derive(Debug)]
pub(crate) struct BareDesktop {
    base: Base,
    display: String,
    vnc: SocketAddr,
    password: Secret,
    stop_timeout: Duration,
    manager: Supervised,
    server: Supervised,
}

impl BareDesktop {
    /// Checks that what a desktop without a browser needs is installed.
    pub(crate) fn preflight(config: &DesktopConfig) -> Result<(), Fault> {
        config.check()?;
        for (program, package) in [
            ("setsid", "util-linux"),
            ("openbox", "openbox"),
            ("Xtigervnc", "tigervnc-standalone-server"),
        ] {
            find(Path::new(program), package)?;
        }
        Ok(())
    }

    /// Starts a desktop. Cancel safe: whatever was started ends with the future.
    pub(crate) async fn start(config: &DesktopConfig) -> Result<Self, Fault> {
        Self::preflight(config)?;
        let base = Base::create(config.directory.as_deref())?;
        let path = base.path.clone();
        let started = Self::start_in(config, base).await;
        if started.is_err() {
            // Gone already unless no program was started at all.
            let _gone = fs::remove_dir(&path);
        }
        started
    }

    async fn start_in(config: &DesktopConfig, base: Base) -> Result<Self, Fault> {
        let Server {
            process,
            display,
            address,
            password,
        } = start_server(config, "Xtigervnc", &base).await?;
        Ok(Self {
            manager: start_window_manager(&base, &display, SETTINGS).await?,
            base,
            display,
            vnc: address,
            password,
            stop_timeout: Duration::from_millis(config.stop_timeout_ms),
            server: process,
        })
    }

    /// The X display, such as `:1`.
    pub(crate) fn display(&self) -> &str {
        &self.display
    }

    /// Where the VNC server listens.
    pub(crate) const fn vnc_address(&self) -> SocketAddr {
        self.vnc
    }

    /// The VNC password. Fresh for each desktop.
    pub(crate) fn vnc_password(&self) -> &str {
        self.password.text()
    }

    /// Whether its programs are running.
    pub(crate) fn is_running(&self) -> bool {
        self.manager.is_running() && self.server.is_running()
    }

    /// Begins a session. Cancel safe.
    pub(crate) async fn session(&self) -> Result<Session, Fault> {
        let label = secrets::token::<8>().map_err(Fault::Directory)?;
        // Short: programs put sockets into it, whose paths have at most 107 characters.
        let directory = self.base.path.join(format!("s-{}", &label[..6]));
        private_directory(&directory)?;
        let keeper = Program {
            name: "sleep",
            arguments: vec!["infinity".to_owned()],
            environment: Vec::new(),
            directory: directory.clone(),
            label: &label,
        };
        let keeper = Supervised::start(keeper).await?;
        let home = directory.join("home");
        private_directory(&home)?;
        private_directory(&directory.join("tmp"))?;
        Ok(Session {
            display: self.display.clone(),
            authority: self.base.path.join("server/authority"),
            stop_timeout: self.stop_timeout,
            label,
            home,
            wrapper: Vec::new(),
            started: 0,
            programs: Vec::new(),
            keeper: Some(keeper),
            directory,
        })
    }

    /// Ends the desktop and waits until nothing of it is left.
    pub(crate) async fn stop(mut self) {
        let deadline = self.stop_timeout;
        tokio::join!(self.manager.stop(deadline), self.server.stop(deadline));
    }
}

/// One episode's home and programs. Dropping it ends them in the background.
#[derive(Debug)]
pub(crate) struct Session {
    display: String,
    authority: PathBuf,
    stop_timeout: Duration,
    label: String,
    directory: PathBuf,
    home: PathBuf,
    /// What every program is started by, with its arguments; empty for nothing.
    wrapper: Vec<String>,
    started: usize,
    programs: Vec<Supervised>,
    /// `None` once the session has ended.
    keeper: Option<Supervised>,
}

impl Session {
    /// The home of its programs.
    pub(crate) fn home(&self) -> &Path {
        &self.home
    }

    /// Starts all further programs by `wrapper`, which ends by running its last arguments, and as
    /// `owner` if given: the home and what else they need becomes theirs.
    pub(crate) fn confine(
        &mut self,
        wrapper: Vec<String>,
        owner: Option<u32>,
    ) -> Result<(), Fault> {
        self.wrapper = wrapper;
        let Some(owner) = owner else { return Ok(()) };
        let authority = self.directory.join("authority");
        let set_up = || -> io::Result<()> {
            fs::copy(&self.authority, &authority)?;
            for own in [&authority, &self.home, &self.temporary()] {
                chown(own, Some(owner), Some(owner))?;
            }
            // To be passed through; who may look into them is unchanged.
            for passed in [Some(&*self.directory), self.directory.parent()] {
                let Some(passed) = passed else { continue };
                fs::set_permissions(passed, fs::Permissions::from_mode(0o711))?;
            }
            Ok(())
        };
        set_up().map_err(Fault::Directory)?;
        self.authority = authority;
        Ok(())
    }

    /// What programs of this session are started by.
    pub(crate) fn wrapper(&self) -> &[String] {
        &self.wrapper
    }

    /// The folder for temporary files, `/tmp` of task files.
    pub(crate) fn temporary(&self) -> PathBuf {
        self.directory.join("tmp")
    }

    /// The whole environment of its programs; nothing of this process's own goes there.
    pub(crate) fn environment(&self) -> Vec<(&'static str, String)> {
        let home = |folder: &str| self.home.join(folder).display().to_string();
        let path = std::env::var("PATH").unwrap_or_else(|_| "/usr/bin:/bin".to_owned());
        vec![
            ("PATH", path),
            ("DART_DESKTOP", self.label.clone()),
            ("DISPLAY", self.display.clone()),
            ("XAUTHORITY", self.authority.display().to_string()),
            ("HOME", self.home.display().to_string()),
            ("USER", "user".to_owned()),
            ("TMPDIR", self.temporary().display().to_string()),
            ("XDG_CONFIG_HOME", home(".config")),
            ("XDG_CACHE_HOME", home(".cache")),
            ("XDG_DATA_HOME", home(".local/share")),
            ("XDG_RUNTIME_DIR", self.temporary().display().to_string()),
            // No message bus: a program would look for one, and might find the user's.
            ("DBUS_SESSION_BUS_ADDRESS", "disabled:".to_owned()),
            ("GSETTINGS_BACKEND", "memory".to_owned()),
            ("NO_AT_BRIDGE", "1".to_owned()),
            ("LANG", "C.UTF-8".to_owned()),
            ("TZ", "UTC".to_owned()),
        ]
    }

    /// Starts a program that runs until the session ends. It need not stay.
    pub(crate) async fn launch(&mut self, words: &[String]) -> Result<(), Fault> {
        if self.started >= MAX_PROGRAMS {
            let message = format!("one episode starts more than {MAX_PROGRAMS} programs");
            return Err(Fault::Setting(message));
        }
        let (program, _) = words
            .split_first()
            .ok_or_else(|| Fault::Setting("nothing to start".to_owned()))?;
        find(Path::new(program), "the package that has it")?;
        self.started += 1;
        let directory = self.directory.join(format!("program-{}", self.started));
        private_directory(&directory)?;
        let environment = self.environment();
        let clean = environment
            .iter()
            .map(|(name, value)| format!("{name}={value}"));
        let wrapper = self.wrapper.iter().map(String::as_str);
        // GNU env: an empty environment but for what is named, in the session's home.
        let mut first = wrapper.chain(["env", "-i", "-C"]);
        let name = first.next().unwrap_or("env");
        let arguments = first
            .map(str::to_owned)
            .chain([self.home.display().to_string()])
            .chain(clean)
            .chain(words.iter().cloned());
        let program = Program {
            name,
            arguments: arguments.collect(),
            environment: Vec::new(),
            directory,
            label: &self.label,
        };
        self.programs.push(Supervised::start(program).await?);
        Ok(())
    }

    /// What the program that was started last said, if it has ended already.
    pub(crate) fn ended(&self) -> Option<Fault> {
        let last = self.programs.last()?;
        (!last.is_running()).then(|| last.failed("has ended at once"))
    }

    /// Ends the programs and removes the home. Idempotent.
    pub(crate) async fn close(&mut self) {
        let Some(mut keeper) = self.keeper.take() else {
            return;
        };
        let deadline = self.stop_timeout;
        let mut programs = std::mem::take(&mut self.programs);
        let all = programs.iter_mut().map(|program| program.stop(deadline));
        futures::future::join_all(all).await;
        keeper.stop(deadline).await;
        // A program that was being killed may have written once more.
        let _gone = fs::remove_dir_all(&self.directory);
    }
}

/// A fresh folder that only this user can enter, in the system's temporary directory.
pub(crate) fn private_folder(name: &str) -> Result<PathBuf, Fault> {
    let label = secrets::token::<8>().map_err(Fault::Directory)?;
    let path = std::env::temp_dir().join(format!("{name}-{label}"));
    private_directory(&path)?;
    Ok(path)
}
