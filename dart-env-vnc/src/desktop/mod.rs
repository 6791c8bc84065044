//! An own desktop: Xtigervnc, openbox and a headful Chromium on the loopback interface.
//!
//! The X server takes a free display, VNC and DevTools take free ports, all files live in one
//! temporary directory, and everything dies with the process that started it, however that ends
//! (see `supervisor.rs`).

pub(crate) mod bare;
mod browser;
pub(crate) mod fault;
pub mod qemu;
pub(crate) mod secrets;
mod supervisor;

use std::{
    fs::DirBuilder,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    time::Duration,
};

use dart_core::Result;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};

use fault::Fault;
use supervisor::{Program, Supervised};

/// An X server refuses a display smaller or larger than this, per side.
const SIDES: std::ops::RangeInclusive<u32> = 64..=8192;

/// Names under which Chromium is installed, most usual first.
const BROWSERS: [&str; 4] = [
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
];

/// Settings of an own desktop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DesktopConfig {
    /// Width of the screen, pixels, 64 to 8192. Default 176: a MiniWoB++ task is 160 wide, and the
    /// rest holds the pointer between episodes.
    pub width: u32,
    /// Height of the screen, pixels, 64 to 8192. Default 224: a task is 210 high.
    pub height: u32,
    /// The browser's program. Default: the first found of chromium, chromium-browser,
    /// google-chrome and google-chrome-stable.
    pub browser: Option<PathBuf>,
    /// Where the desktop's temporary directory is made. Default: the system's temporary directory.
    pub directory: Option<PathBuf>,
    /// Longest start of one program, milliseconds. Default 30,000: a cold start of Chromium on a
    /// busy machine takes several seconds.
    pub start_timeout_ms: u64,
    /// Longest orderly end of one program, milliseconds; then it is killed. Default 8,000;
    /// it takes about 300, and on a loaded machine the supervisor itself kills after 1,500.
    pub stop_timeout_ms: u64,
}

impl Default for DesktopConfig {
    fn default() -> Self {
        Self {
            width: 176,
            height: 224,
            browser: None,
            directory: None,
            start_timeout_ms: 30_000,
            stop_timeout_ms: 8_000,
        }
    }
}

impl DesktopConfig {
    fn start_timeout(&self) -> Duration {
        Duration::from_millis(self.start_timeout_ms)
    }

    fn check(&self) -> Result<(), Fault> {
        if SIDES.contains(&self.width) && SIDES.contains(&self.height) {
            return Ok(());
        }
        Err(Fault::Setting(format!(
            "desktop.width and desktop.height are 64 to 8192, not {}x{}",
            self.width, self.height
        )))
    }

    /// Checks the settings and that everything a desktop needs is installed.
    ///
    /// # Errors
    /// [`Config`](dart_core::ErrorKind::Config), naming the setting, or the program and its Debian
    /// package.
    pub fn preflight(&self) -> Result<()> {
        self.check()?;
        self.programs()?;
        Ok(())
    }

    fn programs(&self) -> Result<Programs, Fault> {
        for (program, package) in [("setsid", "util-linux"), ("openbox", "openbox")] {
            find(Path::new(program), package)?;
        }
        let server = find(Path::new("Xtigervnc"), "tigervnc-standalone-server")
            .map(|()| "Xtigervnc".to_owned())?;
        let browser = match &self.browser {
            Some(path) => {
                find(path, "chromium")?;
                path.display().to_string()
            }
            None => BROWSERS
                .iter()
                .find(|name| find(Path::new(name), "chromium").is_ok())
                .map(|name| (*name).to_owned())
                .ok_or_else(|| Fault::Missing {
                    program: "chromium".to_owned(),
                    package: "chromium",
                })?,
        };
        Ok(Programs { server, browser })
    }
}

struct Programs {
    server: String,
    browser: String,
}

/// Whether `program` can be run: a path, or a name on the search path.
fn find(program: &Path, package: &'static str) -> Result<(), Fault> {
    let search = std::env::var_os("PATH").unwrap_or_default();
    let found = if program.components().count() > 1 {
        program.is_file()
    } else {
        std::env::split_paths(&search).any(|dir| dir.join(program).is_file())
    };
    if found {
        return Ok(());
    }
    Err(Fault::Missing {
        program: program.display().to_string(),
        package,
    })
}

/// A running desktop. Dropping it ends it in the background; [`stop`](Self::stop) waits.
#[derive(Debug)]
pub struct Desktop {
    display: String,
    vnc: SocketAddr,
    devtools: SocketAddr,
    password: String,
    stop_timeout: Duration,
    browser: Supervised,
    window_manager: Supervised,
    server: Supervised,
}

impl Desktop {
    /// Starts a desktop that shows `url`. Cancel safe: whatever was started ends with the future.
    ///
    /// # Errors
    /// [`Config`](dart_core::ErrorKind::Config) if a program is missing or a setting is wrong;
    /// retryable kinds if a program does not come up, with the end of what it said.
    pub async fn start(config: &DesktopConfig, url: &str) -> Result<Self> {
        config.check()?;
        let programs = config.programs()?;
        let base = Base::create(config)?;
        let started = Self::start_in(config, &programs, &base, url).await;
        if started.is_err() {
            // Gone already unless no program was started at all.
            let _gone = std::fs::remove_dir(&base.path);
        }
        Ok(started?)
    }

    async fn start_in(
        config: &DesktopConfig,
        programs: &Programs,
        base: &Base,
        url: &str,
    ) -> Result<Self, Fault> {
        let x = start_server(config, programs, base).await?;
        let display = x.display.clone();
        let window_manager = start_window_manager(base, &display).await?;
        let arguments = browser::arguments(&base.path.join("browser"), url);
        let program = base.program("browser", &programs.browser, arguments, &display)?;
        let browser = Supervised::start(program).await?;
        let home = base.path.join("browser");
        let devtools = wait_for(config.start_timeout(), &browser, || {
            browser::devtools(&home)
        });
        let devtools = devtools
            .await
            .ok_or_else(|| browser.failed("did not open its DevTools"))?;
        tracing::debug!(screen = x.display, vnc = %x.address, %devtools, "desktop is up");
        Ok(Self {
            display,
            vnc: x.address,
            devtools,
            password: x.password,
            stop_timeout: Duration::from_millis(config.stop_timeout_ms),
            browser,
            window_manager,
            server: x.process,
        })
    }

    /// Where the VNC server listens.
    pub const fn vnc_address(&self) -> SocketAddr {
        self.vnc
    }

    /// The VNC password (VncAuth). Fresh for each desktop.
    pub fn vnc_password(&self) -> &str {
        &self.password
    }

    /// Where Chromium's DevTools listen.
    pub const fn devtools_address(&self) -> SocketAddr {
        self.devtools
    }

    /// The X display, such as `:1`.
    pub fn display(&self) -> &str {
        &self.display
    }

    /// Whether all its programs are running.
    pub fn is_running(&self) -> bool {
        self.parts().iter().all(|part| part.is_running())
    }

    /// The process ids of the three programs and their supervisors, for logs and tests.
    pub fn process_ids(&self) -> Vec<u32> {
        let ids = |part: &Supervised| [Some(part.id()), part.supervisor_id()];
        self.parts().into_iter().flat_map(ids).flatten().collect()
    }

    const fn parts(&self) -> [&Supervised; 3] {
        [&self.browser, &self.window_manager, &self.server]
    }

    /// Ends the desktop and waits until nothing of it is left.
    pub async fn stop(mut self) {
        let deadline = self.stop_timeout;
        tokio::join!(
            self.browser.stop(deadline),
            self.window_manager.stop(deadline),
            self.server.stop(deadline),
        );
    }
}

/// Polls `ready` until it gives something, the deadline passes or the program ends.
async fn wait_for<V>(
    deadline: Duration,
    program: &Supervised,
    mut ready: impl FnMut() -> Option<V>,
) -> Option<V> {
    let end = Instant::now() + deadline;
    loop {
        let running = program.is_running();
        if let Some(value) = ready() {
            return Some(value);
        }
        if !running || Instant::now() >= end {
            return None;
        }
        sleep(Duration::from_millis(10)).await;
    }
}

/// The directory that holds the directories of the programs.
#[derive(Debug)]
struct Base {
    path: PathBuf,
    label: String,
}

impl Base {
    fn create(config: &DesktopConfig) -> Result<Self, Fault> {
        let label = secrets::token::<8>().map_err(Fault::Directory)?;
        let parent = config.directory.clone();
        let parent = parent.unwrap_or_else(std::env::temp_dir);
        let path = parent.join(format!("dart-desktop-{label}"));
        private_directory(&path)?;
        Ok(Self { path, label })
    }

    /// A program with a fresh home called `name`.
    fn program<'a>(
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

fn private_directory(path: &Path) -> Result<(), Fault> {
    let mut builder = DirBuilder::new();
    builder.mode(0o700).create(path).map_err(Fault::Directory)
}

struct Server {
    process: Supervised,
    display: String,
    address: SocketAddr,
    password: String,
}

/// Starts the X server, which is the VNC server too.
async fn start_server(
    config: &DesktopConfig,
    programs: &Programs,
    base: &Base,
) -> Result<Server, Fault> {
    let directory = base.path.join("server");
    private_directory(&directory)?;
    let password = secrets::token::<4>().map_err(Fault::Directory)?;
    secrets::write_cookie(&directory.join("authority")).map_err(Fault::Directory)?;
    secrets::write_password(&directory.join("password"), &password).map_err(Fault::Directory)?;
    // Free now; should another program take it first, the server ends and the caller tries again.
    let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map_err(Fault::Port)?;
    let arguments = server_arguments(config, address.port(), &directory);
    let program = base.program("server", &programs.server, arguments, "")?;
    let process = Supervised::start(program).await?;
    let number = wait_for(config.start_timeout(), &process, || {
        let text = std::fs::read_to_string(directory.join("stdout")).ok()?;
        text.strip_suffix('\n')?.trim().parse::<u32>().ok()
    });
    let number = number
        .await
        .ok_or_else(|| process.failed("did not open a display"))?;
    Ok(Server {
        process,
        display: format!(":{number}"),
        address,
        password,
    })
}

fn server_arguments(config: &DesktopConfig, port: u16, directory: &Path) -> Vec<String> {
    let file = |name: &str| directory.join(name).display().to_string();
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    [
        // A free display, its number written to standard output.
        words("-displayfd 1 -depth 24 -geometry"),
        vec![format!("{}x{}", config.width, config.height)],
        // Only this machine, only with the password; X clients come through the abstract socket, which
        // leaves no file behind even if the server is killed. Ports that are probed count as failed
        // handshakes, so the blacklist would lock the owner out.
        words("-nolisten tcp -nolisten unix -localhost -SecurityTypes VncAuth -UseBlacklist=0 -rfbauth"),
        vec![file("password"), "-auth".to_owned(), file("authority")],
        words("-AlwaysShared -AcceptSetDesktopSize=0 -FrameRate=240 -desktop dart -rfbport"),
        vec![port.to_string()],
    ]
    .concat()
}

/// A window manager, without which a browser is never full screen; it reacts to no key and no
/// button, so that an agent cannot operate it.
async fn start_window_manager(base: &Base, display: &str) -> Result<Supervised, Fault> {
    const SETTINGS: &str = concat!(
        r#"<?xml version="1.0"?><openbox_config xmlns="http://openbox.org/3.4/rc">"#,
        "<keyboard/><mouse/></openbox_config>\n"
    );
    let file = base.path.join("manager/rc.xml");
    let arguments = ["--sm-disable", "--config-file"].map(str::to_owned);
    let arguments = arguments
        .into_iter()
        .chain([file.display().to_string()])
        .collect();
    let program = base.program("manager", "openbox", arguments, display)?;
    std::fs::write(&file, SETTINGS).map_err(Fault::Directory)?;
    Supervised::start(program).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use dart_core::ErrorKind;

    #[test]
    fn a_missing_program_is_named_with_its_package() {
        let config = DesktopConfig {
            browser: Some("/nonexistent/browser".into()),
            ..DesktopConfig::default()
        };
        let error = find(config.browser.as_deref().unwrap(), "chromium").unwrap_err();
        let error = dart_core::Error::from(error);
        assert_eq!(error.kind(), ErrorKind::Config);
        let text = error.to_string();
        assert!(
            text.contains("/nonexistent/browser is not installed"),
            "{text}"
        );
        assert!(text.contains("apt-get install chromium"), "{text}");
    }

    #[test]
    fn a_senseless_size_is_refused() {
        let config = DesktopConfig {
            width: 10,
            ..DesktopConfig::default()
        };
        let error = config.preflight().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains("10x224"));
    }

    #[test]
    fn unknown_settings_are_refused() {
        let error = serde_json::from_str::<DesktopConfig>(r#"{"widht":3}"#).unwrap_err();
        assert!(error.to_string().contains("widht"));
    }
}
