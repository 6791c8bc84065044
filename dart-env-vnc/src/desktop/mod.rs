//! An own desktop: Xtigervnc, openbox and a headful Chromium on the loopback interface.
//!
//! The X server takes a free display, VNC and DevTools take free ports, all files live in one
//! temporary directory, and everything dies with the process that started it, however that ends
//! (see `supervisor.rs`).

pub(crate) mod bare;
mod browser;
mod config;
pub(crate) mod fault;
mod place;
pub mod qemu;
pub(crate) mod secrets;
mod supervisor;
mod xserver;

use std::{net::SocketAddr, time::Duration};

use dart_core::Result;
use tokio::time::{Instant, sleep};

pub use self::config::DesktopConfig;
use self::{
    config::Programs,
    fault::Fault,
    place::Base,
    secrets::Secret,
    supervisor::Supervised,
    xserver::{start_server, start_window_manager},
};

/// A window manager that reacts to no key and no button, so that an agent cannot operate it.
const MANAGER_SETTINGS: &str = concat!(
    r#"<?xml version="1.0"?><openbox_config xmlns="http://openbox.org/3.4/rc">"#,
    "<keyboard/><mouse/></openbox_config>\n"
);

/// A running desktop. Dropping it ends it in the background; [`stop`](Self::stop) waits.
#[derive(Debug)]
pub struct Desktop {
    display: String,
    vnc: SocketAddr,
    devtools: SocketAddr,
    password: Secret,
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
        let base = Base::create(config.directory.as_deref())?;
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
        let x = start_server(config, &programs.server, base).await?;
        let display = x.display.clone();
        let window_manager = start_window_manager(base, &display, MANAGER_SETTINGS).await?;
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
        self.password.text()
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
