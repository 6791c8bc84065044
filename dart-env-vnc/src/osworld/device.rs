//! [`OsworldDevice`]: the desktop that a task is about, seen and operated through VNC: an own one
//! on this machine, or that of a virtual machine.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use dart_core::{Action, Device, DeviceSpec, Error, ErrorKind, Key, NamedKey, Observation, Result};

use super::{
    config::{LocalConfig, ServerConfig},
    seats::Taken,
};
use crate::{VncConfig, VncDevice, desktop::bare::BareDesktop, rfb::Password};

/// A native program gives no sign that it has reacted; it was seen to take about 50 ms.
const QUIET_MS: u64 = 60;
const LONGEST_MS: u64 = 700;

/// Where the desktop is.
#[derive(Debug)]
pub(super) enum Seat {
    /// On this machine, started and ended with the device.
    Local(Arc<LocalConfig>),
    /// In a virtual machine, which goes on.
    Server(Box<Taken>),
}

impl Seat {
    /// The virtual machine, if it is one.
    pub(super) fn server(&self) -> Option<&ServerConfig> {
        match self {
            Self::Local(_) => None,
            Self::Server(taken) => Some(taken.config()),
        }
    }
}

/// A desktop as a device.
#[derive(Debug)]
pub struct OsworldDevice {
    seat: Seat,
    spec: DeviceSpec,
    /// The desktop, if it is ours.
    desktop: Option<BareDesktop>,
    /// `None` while a restart has failed, and when closed.
    vnc: Option<VncDevice>,
    /// Whether an episode has begun on it.
    used: bool,
    closed: bool,
}

fn error(kind: ErrorKind, operation: &'static str, message: &'static str) -> Error {
    Error::new(kind, "dart-env-vnc", operation, message)
}

/// Starts the desktop if it is ours, and connects.
async fn open(seat: &Seat) -> Result<(Option<BareDesktop>, VncDevice)> {
    match seat {
        Seat::Local(config) => {
            let desktop = BareDesktop::start(&config.desktop()).await?;
            let password = Some(Password::new(desktop.vnc_password()));
            let vnc = VncConfig {
                settle_quiet_ms: QUIET_MS,
                settle_max_ms: LONGEST_MS,
                // It is on this machine and listens already.
                handshake_timeout_ms: 5_000,
                ..VncConfig::new(desktop.vnc_address().to_string())
            };
            let vnc = VncDevice::connect_with(vnc, password).await?;
            Ok((Some(desktop), vnc))
        }
        Seat::Server(taken) => Ok((None, VncDevice::connect(taken.config().vnc.clone()).await?)),
    }
}

impl OsworldDevice {
    /// Starts or attaches to the desktop. Cancel safe: whatever was started ends with the future.
    pub(super) async fn start(seat: Seat) -> Result<Self> {
        let (desktop, vnc) = open(&seat).await?;
        let spec = DeviceSpec {
            name: "osworld".to_owned(),
            ..vnc.spec().clone()
        };
        Ok(Self {
            seat,
            spec,
            desktop,
            vnc: Some(vnc),
            used: false,
            closed: false,
        })
    }

    /// Where the desktop is.
    pub(super) const fn seat(&self) -> &Seat {
        &self.seat
    }

    /// The desktop of this machine.
    ///
    /// # Errors
    /// [`Disconnected`](ErrorKind::Disconnected) if it is gone.
    pub(super) fn desktop(&self) -> Result<&BareDesktop> {
        let gone = || {
            error(
                ErrorKind::Disconnected,
                "set up",
                "the desktop is gone: recover",
            )
        };
        self.desktop
            .as_ref()
            .filter(|desktop| desktop.is_running())
            .ok_or_else(gone)
    }

    fn vnc(&mut self, operation: &'static str) -> Result<&mut VncDevice> {
        if self.closed {
            return Err(error(ErrorKind::Misuse, operation, "the device is closed"));
        }
        let gone = || {
            error(
                ErrorKind::Disconnected,
                operation,
                "the desktop is gone: recover",
            )
        };
        self.vnc.as_mut().ok_or_else(gone)
    }

    /// A desktop on which no episode has left anything. One of this machine is another one: no
    /// clipboard, no selection, no property of the screen and no state of the keyboard goes from one
    /// episode to the next. That of a virtual machine is as its machine is, with no key and no button
    /// held and no lock on; after the machine was `put_back` it is connected to anew.
    ///
    /// Cancel safe: what is gone by then comes back with [`recover`](Device::recover).
    pub(super) async fn fresh(&mut self, put_back: bool) -> Result<()> {
        if self.closed {
            return Err(error(ErrorKind::Misuse, "set up", "the device is closed"));
        }
        let first = !std::mem::replace(&mut self.used, true);
        match (&self.seat, first) {
            (Seat::Local(_), true) => {}
            (Seat::Local(_), false) => self.replace().await?,
            (Seat::Server(_), _) => {
                if put_back || self.let_go().await.is_err() {
                    self.vnc("set up")?.recover().await?;
                }
            }
        }
        self.refresh();
        Ok(())
    }

    /// Lets go of everything on the same connection.
    async fn let_go(&mut self) -> Result<()> {
        let vnc = self.vnc("set up")?;
        vnc.release().await?;
        if vnc.abilities().locks.is_some_and(|locks| locks.caps) {
            let key = Key::Named(NamedKey::CapsLock);
            vnc.perform(&Action::Press { key }).await?;
        }
        Ok(())
    }

    /// Starts another desktop while the one that was ends.
    async fn replace(&mut self) -> Result<()> {
        self.vnc = None;
        let old = self.desktop.take();
        let stop = async {
            if let Some(old) = old {
                old.stop().await;
            }
        };
        let (opened, ()) = tokio::join!(open(&self.seat), stop);
        let (desktop, vnc) = opened?;
        self.desktop = desktop;
        self.vnc = Some(vnc);
        Ok(())
    }

    /// Waits until the screen has not changed for a while.
    pub(super) async fn settle(&mut self, quiet: Duration, longest: Duration) -> Result<()> {
        self.vnc("set up")?.settle(quiet, longest).await
    }

    fn refresh(&mut self) {
        if let Some(vnc) = &self.vnc {
            self.spec.screen = vnc.spec().screen;
        }
    }
}

#[async_trait]
impl Device for OsworldDevice {
    fn spec(&self) -> &DeviceSpec {
        &self.spec
    }

    async fn screenshot(&mut self) -> Result<Observation> {
        let observation = self.vnc("screenshot")?.screenshot().await;
        self.refresh();
        observation
    }

    async fn perform(&mut self, action: &Action) -> Result<()> {
        let done = self.vnc("perform")?.perform(action).await;
        self.refresh();
        done
    }

    async fn recover(&mut self) -> Result<()> {
        if self.closed {
            return Err(error(ErrorKind::Misuse, "recover", "the device is closed"));
        }
        let runs = self.desktop.as_ref().is_none_or(BareDesktop::is_running);
        if let (true, Some(vnc)) = (runs, &mut self.vnc)
            && vnc.recover().await.is_ok()
        {
            self.refresh();
            return Ok(());
        }
        self.replace().await?;
        self.refresh();
        Ok(())
    }

    async fn close(&mut self) -> Result<()> {
        self.closed = true;
        let closed = match self.vnc.take() {
            Some(mut vnc) => vnc.close().await,
            None => Ok(()),
        };
        if let Some(desktop) = self.desktop.take() {
            desktop.stop().await;
        }
        closed
    }
}
