//! [`DesktopDevice`]: a desktop with a browser, its own or one that is running already, seen and
//! operated through VNC. Only the top left part is the device's screen.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use async_trait::async_trait;
use dart_core::{
    Action, Device, DeviceSpec, Direction, Error, ErrorKind, Frame, Key, MouseButton, NamedKey,
    Observation, Result, ScreenPx, Size, UiElement,
};
use tokio::time::{Instant, sleep};

use super::attach::Taken;
use crate::{Desktop, DesktopConfig, VncConfig, VncDevice, rfb::Password};

const ORIGIN: &str = "dart-env-vnc";

/// How long the screen may take to show the driver's mark.
const MARK_TIMEOUT: Duration = Duration::from_secs(5);

/// After input that a page gives no sign of, the screen is taken for settled when it has not
/// changed for this long.
const QUIET: Duration = Duration::from_millis(40);
const LONGEST: Duration = Duration::from_millis(500);
/// The same after clicks that no driver has asked the page about: on a loaded machine a page was
/// seen to take more than 100 ms.
const CLICK_QUIET: Duration = Duration::from_millis(300);
const CLICK_LONGEST: Duration = Duration::from_secs(1);

/// A desktop as a device.
///
/// A driver that paints a mark beside the device's screen tells the device the mark's colour; the
/// next screenshot then waits for a frame that shows it. That costs no fixed pause and cannot be
/// early. Where no driver has painted a mark since a click, the screenshot waits until the screen
/// has settled.
#[derive(Debug)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "independent facts about a desktop"
)]
pub struct DesktopDevice {
    source: Source,
    spec: DeviceSpec,
    life: Life,
    /// The colour to wait for.
    mark: Option<[u8; 3]>,
    /// A click was made and no mark was painted since.
    unsettled: bool,
    /// A driver paints marks.
    driven: bool,
    /// What would release what the agent has pressed and not released.
    held: Vec<Action>,
    /// The wheel was turned since the pointer was last parked.
    wheeled: bool,
    /// Releases of mouse buttons and of keys that the page has not been asked about.
    releases: (u32, u32),
    /// Recoveries since the screen last showed what it should.
    recoveries: u32,
    /// The driver has not been told of the last recovery.
    recovered: bool,
    ui: Option<Arc<[UiElement]>>,
}

#[derive(Debug)]
enum Life {
    Up(Box<Running>),
    /// A restart failed or was interrupted.
    Lost,
    Closed,
}

/// Where the desktop comes from.
#[derive(Debug)]
enum Source {
    /// It is started, and ended with the device.
    Own(Box<DesktopConfig>),
    /// It is running, and goes on. Silent browsers are given up after `patience`.
    Attached { taken: Taken, patience: Duration },
}

#[derive(Debug)]
struct Running {
    /// The desktop, if it is ours.
    desktop: Option<Desktop>,
    /// Where the browser's DevTools listen.
    browser: SocketAddr,
    vnc: VncDevice,
}

impl Source {
    /// A desktop that shows more than `screen`.
    async fn open(&self, screen: Size) -> Result<Running> {
        match self {
            Self::Own(config) => Running::start(config).await,
            Self::Attached { taken, patience } => {
                let (vnc, browser) = taken.attach(screen, *patience).await?;
                Ok(Running {
                    desktop: None,
                    browser,
                    vnc,
                })
            }
        }
    }
}

impl Running {
    async fn start(config: &DesktopConfig) -> Result<Self> {
        let desktop = Desktop::start(config, "about:blank").await?;
        let vnc = VncConfig {
            // The driver's mark tells when the screen is up to date.
            settle_quiet_ms: 0,
            // It is on this machine and listens already.
            handshake_timeout_ms: 5_000,
            ..VncConfig::new(desktop.vnc_address().to_string())
        };
        let password = Some(Password::new(desktop.vnc_password()));
        let vnc = VncDevice::connect_with(vnc, password).await?;
        Ok(Self {
            browser: desktop.devtools_address(),
            desktop: Some(desktop),
            vnc,
        })
    }

    /// Whether the programs run, as far as that can be told.
    fn may_run(&self) -> bool {
        self.desktop.as_ref().is_none_or(Desktop::is_running)
    }

    /// The whole desktop's size.
    fn size(&self) -> Size {
        self.vnc.spec().screen
    }

    async fn stop(self) -> Result<()> {
        let Self {
            desktop, mut vnc, ..
        } = self;
        let closed = vnc.close().await;
        if let Some(desktop) = desktop {
            desktop.stop().await;
        }
        closed
    }
}

impl DesktopDevice {
    /// Starts a desktop; its top left `screen` pixels are the device's screen. Cancel safe:
    /// whatever was started ends with the future.
    pub async fn start(config: DesktopConfig, screen: Size) -> Result<Self> {
        Self::from(Source::Own(Box::new(config)), screen).await
    }

    /// The same on a running desktop, which goes on when the device is closed.
    pub(super) async fn attach(taken: Taken, screen: Size, patience: Duration) -> Result<Self> {
        Self::from(Source::Attached { taken, patience }, screen).await
    }

    async fn from(source: Source, screen: Size) -> Result<Self> {
        let running = source.open(screen).await?;
        let spec = DeviceSpec {
            name: "miniwob".to_owned(),
            screen,
            actions: running.vnc.spec().actions,
        };
        Ok(Self {
            source,
            spec,
            life: Life::Up(Box::new(running)),
            mark: None,
            unsettled: false,
            driven: false,
            held: Vec::new(),
            wheeled: false,
            releases: (0, 0),
            recoveries: 0,
            recovered: false,
            ui: None,
        })
    }

    fn misuse(operation: &'static str) -> Error {
        let message = "the device is closed";
        Error::new(ErrorKind::Misuse, ORIGIN, operation, message)
    }

    fn running(&mut self, operation: &'static str) -> Result<&mut Running> {
        match &mut self.life {
            Life::Up(running) => Ok(running),
            Life::Lost => {
                let message = "the desktop is gone: recover";
                Err(Error::new(
                    ErrorKind::Disconnected,
                    ORIGIN,
                    operation,
                    message,
                ))
            }
            Life::Closed => Err(Self::misuse(operation)),
        }
    }

    /// The device's own desktop.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if it is somebody else's; [`ErrorKind::Disconnected`],
    /// [`ErrorKind::Misuse`] if there is none now.
    pub fn desktop(&mut self) -> Result<&Desktop> {
        let message = "the desktop is not ours";
        let not_ours = || Error::new(ErrorKind::Unsupported, ORIGIN, "desktop", message);
        let running = self.running("desktop")?;
        running.desktop.as_ref().ok_or_else(not_ours)
    }

    /// Where the browser's DevTools listen, for task drivers.
    ///
    /// # Errors
    /// [`ErrorKind::Disconnected`], [`ErrorKind::Misuse`] if there is no desktop now.
    pub fn browser(&mut self) -> Result<SocketAddr> {
        Ok(self.running("browser")?.browser)
    }

    /// Where the pointer waits between episodes: beside the device's screen, at the top.
    pub(super) fn parking(&mut self) -> Result<ScreenPx> {
        let size = self.running("set up")?.size();
        Ok(ScreenPx::new(size.width as i32 - 4, 4))
    }

    /// Releases what the agent has left pressed and moves the pointer off the screen.
    pub(super) async fn neutral(&mut self) -> Result<()> {
        let at = self.parking()?;
        let mut actions = std::mem::take(&mut self.held);
        actions.push(Action::MoveTo { at });
        if std::mem::take(&mut self.wheeled) {
            // For half a second, Chromium sends all turns of the wheel near one place to what the
            // first one has scrolled, even after that is gone. One elsewhere ends this; upwards,
            // nothing moves.
            actions.push(Action::Scroll {
                at: Some(at),
                direction: Direction::Up,
                notches: 1,
            });
        }
        let vnc = &mut self.running("set up")?.vnc;
        for action in actions {
            vnc.perform(&action).await?;
        }
        // What an episode has copied, the next one must not find.
        vnc.clear_clipboard().await?;
        self.releases = (0, 0);
        Ok(())
    }

    /// Releases of mouse buttons, and of keys that are no modifiers, since this was last asked.
    pub(super) fn take_releases(&mut self) -> (u32, u32) {
        std::mem::take(&mut self.releases)
    }

    /// The next screenshot waits for a frame with this colour at the mark, and lists `ui`.
    pub(super) fn expect(&mut self, mark: [u8; 3], ui: Option<Arc<[UiElement]>>) {
        self.mark = Some(mark);
        self.driven = true;
        self.unsettled = false;
        self.ui = ui;
    }

    /// Whether the device was recovered since this was last asked: the browser may be in any state.
    pub(super) const fn take_recovered(&mut self) -> bool {
        std::mem::replace(&mut self.recovered, false)
    }

    /// The whole desktop's frame, once it shows the mark.
    async fn marked_frame(&mut self) -> Result<Frame> {
        let left = self.spec.screen.width + 8;
        let (mark, unsettled) = (self.mark, self.unsettled);
        let vnc = &mut self.running("screenshot")?.vnc;
        if unsettled {
            vnc.settle(CLICK_QUIET, CLICK_LONGEST).await?;
        }
        let deadline = Instant::now() + MARK_TIMEOUT;
        loop {
            let frame = vnc.screenshot().await?.frame;
            let top = frame.size().height.saturating_sub(8);
            if mark.is_none() || frame.pixel(left, top) == mark {
                self.unsettled = false;
                if mark.is_some() || !self.driven {
                    self.recoveries = 0;
                }
                return Ok(frame);
            }
            if Instant::now() >= deadline {
                let message = "the page does not show what it was told to";
                return Err(Error::new(
                    ErrorKind::Timeout,
                    ORIGIN,
                    "screenshot",
                    message,
                ));
            }
            sleep(Duration::from_millis(1)).await;
        }
    }

    fn check_action(&self, action: &Action) -> Result<()> {
        if matches!(self.life, Life::Closed) {
            return Err(Self::misuse("perform"));
        }
        if !self.spec.actions.contains(action.kind()) {
            let message = format!("a desktop does not take {:?}", action.kind());
            return Err(Error::new(
                ErrorKind::Unsupported,
                ORIGIN,
                "perform",
                message,
            ));
        }
        match action.fault(self.spec.screen) {
            Some(fault) => Err(Error::new(
                ErrorKind::InvalidAction,
                ORIGIN,
                "perform",
                fault,
            )),
            None => Ok(()),
        }
    }

    /// Keeps what would release what `action` presses.
    fn note_held(&mut self, action: &Action) {
        let release = match action {
            Action::MouseDown { button } => Action::MouseUp { button: *button },
            Action::KeyDown { key } => Action::KeyUp { key: *key },
            // Pressed and released by itself, or the release itself.
            other => {
                let released = match other {
                    Action::Click { button, .. } => Action::MouseUp { button: *button },
                    Action::DragTo { .. } => Action::MouseUp {
                        button: MouseButton::Left,
                    },
                    other => other.clone(),
                };
                self.held.retain(|held| *held != released);
                return;
            }
        };
        if !self.held.contains(&release) {
            self.held.insert(0, release);
        }
    }
}

/// How often a mouse button is released by `action`.
const fn releases_of(action: &Action) -> u32 {
    match action {
        Action::Click { count, .. } => *count as u32,
        Action::DragTo { .. } | Action::MouseUp { .. } => 1,
        _ => 0,
    }
}

/// How often a key that is no modifier is released by `action`.
fn key_releases_of(action: &Action) -> u32 {
    const MODIFIERS: [NamedKey; 4] = [
        NamedKey::Alt,
        NamedKey::Ctrl,
        NamedKey::Shift,
        NamedKey::Super,
    ];
    let plain = |key: &Key| !MODIFIERS.iter().any(|name| *key == Key::Named(*name));
    match action {
        Action::Press { key } | Action::KeyUp { key } => u32::from(plain(key)),
        Action::Hotkey { keys } => keys.iter().filter(|key| plain(key)).count() as u32,
        Action::Type { text } => text.chars().count() as u32,
        _ => 0,
    }
}

/// The top left part of `frame`.
fn top_left(frame: &Frame, size: Size) -> Result<Frame> {
    let row = frame.size().width as usize * 3;
    let rows = frame.rgb().chunks_exact(row).take(size.height as usize);
    let rgb: Vec<u8> = rows
        .flat_map(|pixels| pixels.iter().take(size.width as usize * 3))
        .copied()
        .collect();
    Frame::new(size, rgb)
}

#[async_trait]
impl Device for DesktopDevice {
    fn spec(&self) -> &DeviceSpec {
        &self.spec
    }

    async fn screenshot(&mut self) -> Result<Observation> {
        let frame = self.marked_frame().await?;
        let mut observation = Observation::of(top_left(&frame, self.spec.screen)?);
        observation.ui.clone_from(&self.ui);
        Ok(observation)
    }

    async fn perform(&mut self, action: &Action) -> Result<()> {
        self.check_action(action)?;
        self.mark = None;
        self.note_held(action);
        self.wheeled |= matches!(action, Action::Scroll { .. });
        let vnc = &mut self.running("perform")?.vnc;
        vnc.perform(action).await?;
        let releases = releases_of(action);
        // A driver asks the page whether it has noticed clicks and keys; it cannot ask for other
        // input, or for keys that something else than the page takes.
        if releases == 0 {
            vnc.settle(QUIET, LONGEST).await?;
        }
        self.unsettled |= releases > 0;
        self.releases.0 += releases;
        self.releases.1 += key_releases_of(action);
        Ok(())
    }

    async fn recover(&mut self) -> Result<()> {
        if matches!(self.life, Life::Closed) {
            return Err(Self::misuse("recover"));
        }
        self.mark = None;
        self.unsettled = false;
        self.ui = None;
        self.recovered = true;
        self.recoveries += 1;
        // Once, a new connection may be enough; if the screen has not come right since, it was not.
        if self.recoveries == 1
            && let Life::Up(running) = &mut self.life
            && running.may_run()
            && running.vnc.recover().await.is_ok()
        {
            return Ok(());
        }
        if matches!(self.source, Source::Own(_)) {
            self.held.clear();
        }
        if let Life::Up(running) = std::mem::replace(&mut self.life, Life::Lost) {
            // A server that has to be replaced may well not take its leave.
            let _cut = running.stop().await;
        }
        let running = self.source.open(self.spec.screen).await?;
        self.life = Life::Up(Box::new(running));
        Ok(())
    }

    async fn close(&mut self) -> Result<()> {
        match std::mem::replace(&mut self.life, Life::Closed) {
            Life::Up(running) => running.stop().await,
            Life::Lost | Life::Closed => Ok(()),
        }
    }
}
