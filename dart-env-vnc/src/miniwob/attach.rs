//! Desktops that are running already: a VNC server of the user's, and a Chromium on it whose DevTools
//! port is open. They are used and never ended; each serves one environment at a time.
//!
//! The first time, whatever a desktop lacks is taken for a mistake of the settings, so that a run
//! ends with one line instead of trying for ever. Once it was reached, what fails may be tried again.

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use dart_core::{Device, Error, ErrorKind, Result, Size};
use serde::{Deserialize, Deserializer, Serialize, de};
use tokio::time::{Instant, sleep};

use super::config::MARGIN;
use crate::{VncConfig, VncDevice, cdp::Cdp, rfb::Password};

const ORIGIN: &str = "dart-env-vnc";

/// How long an environment waits for the desktop of another that is just being closed.
const SEAT_TIMEOUT: Duration = Duration::from_secs(3);

/// Where a running desktop is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AttachConfig {
    /// Host and port at which the browser's DevTools listen on this machine: the pages are served on
    /// its loopback interface. Default `127.0.0.1:9222`, the port of Chromium's manual.
    pub devtools: String,
    /// The VNC server, which may listen elsewhere, as behind a forwarded port. `settle_quiet_ms` and
    /// `settle_max_ms` have no effect: the page tells when it is settled.
    pub vnc: VncConfig,
}

impl Default for AttachConfig {
    fn default() -> Self {
        Self {
            devtools: "127.0.0.1:9222".to_owned(),
            vnc: VncConfig::default(),
        }
    }
}

/// Reads one desktop (a table) or several (a list of tables). An untagged enum would do the same
/// and lose what is wrong with a table.
pub(super) fn one_or_several<'de, D>(input: D) -> Result<Vec<AttachConfig>, D::Error>
where
    D: Deserializer<'de>,
{
    struct Visitor;

    impl<'de> de::Visitor<'de> for Visitor {
        type Value = Vec<AttachConfig>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a desktop (a table with vnc and devtools) or a list of them")
        }

        fn visit_map<M: de::MapAccess<'de>>(self, map: M) -> Result<Self::Value, M::Error> {
            let one = AttachConfig::deserialize(de::value::MapAccessDeserializer::new(map))?;
            Ok(vec![one])
        }

        fn visit_seq<S: de::SeqAccess<'de>>(self, seq: S) -> Result<Self::Value, S::Error> {
            Vec::deserialize(de::value::SeqAccessDeserializer::new(seq))
        }
    }

    input.deserialize_any(Visitor)
}

fn refused(message: String) -> Error {
    Error::new(ErrorKind::Config, ORIGIN, "attach", message)
}

impl AttachConfig {
    /// Checks what can be checked without connecting.
    fn check(&self) -> Result<()> {
        self.browser()?;
        self.vnc.address().map_err(|error| locate(&error))?;
        self.password()?;
        Ok(())
    }

    fn password(&self) -> Result<Option<Password>> {
        self.vnc.password().map_err(|error| locate(&error))
    }

    /// The address of the DevTools.
    fn browser(&self) -> Result<SocketAddr> {
        let text = self.devtools.replace("localhost:", "127.0.0.1:");
        match text.parse::<SocketAddr>() {
            Ok(address) if address.ip().is_loopback() && address.port() > 0 => Ok(address),
            Ok(_) => Err(refused(format!(
                "environment.attach.devtools {} is not on this machine, whose loopback interface serves the pages: start the browser here and write 127.0.0.1:9222",
                self.devtools
            ))),
            Err(_) => Err(refused(format!(
                "environment.attach.devtools {:?} is not an address and a port: write it like 127.0.0.1:9222",
                self.devtools
            ))),
        }
    }

    async fn connect_vnc(&self) -> Result<VncDevice> {
        let vnc = VncConfig {
            // The driver's mark tells when the screen is up to date.
            settle_quiet_ms: 0,
            ..self.vnc.clone()
        };
        let connected = VncDevice::connect_with(vnc, self.password()?).await;
        connected.map_err(|error| locate(&error))
    }

    /// Checks that the browser answers and fills the screen: a place in the page has to be the same
    /// place on the screen.
    async fn check_browser(&self, screen: Size, patience: Duration) -> Result<()> {
        let browser = self.browser()?;
        let silent = |error: Error| {
            let (kind, why) = (error.kind(), words(&error));
            let message = format!(
                "no browser's DevTools answer at {browser} ({why}): start Chromium with --remote-debugging-port={}, or correct environment.attach.devtools",
                browser.port()
            );
            Error::new(kind, ORIGIN, "attach", message)
        };
        let mut cdp = Cdp::connect(browser, patience).await.map_err(silent)?;
        let place = format!(
            // A window is never narrower than 500 pixels, whatever the screen is.
            "[screenX, screenY, Math.min(innerWidth, {}), innerHeight, devicePixelRatio].join()",
            screen.width
        );
        let expected = format!("0,0,{},{},1", screen.width, screen.height);
        let deadline = Instant::now() + patience;
        // A browser that has just started still moves, and its first page goes away.
        loop {
            let seen = match cdp.evaluate(&place).await {
                Ok(seen) if seen == expected.as_str() => return Ok(()),
                Ok(seen) => seen,
                Err(error) if error.kind() == ErrorKind::Protocol => serde_json::Value::Null,
                Err(error) => return Err(silent(error)),
            };
            if Instant::now() >= deadline {
                let message = format!(
                    "the browser at {browser} does not fill the screen {screen} of {} (place, size and scale are {seen}): start it with --kiosk --force-device-scale-factor=1 under a window manager",
                    self.vnc.endpoint
                );
                return Err(Error::new(ErrorKind::Protocol, ORIGIN, "attach", message));
            }
            sleep(Duration::from_millis(50)).await;
        }
    }
}

/// What an error says, without where it was raised.
fn words(error: &Error) -> String {
    let (origin, operation, kind) = (error.origin(), error.operation(), error.kind());
    let text = error.to_string();
    let place = format!("{origin}: {operation}: {kind}: ");
    text.strip_prefix(&place).unwrap_or(&text).to_owned()
}

/// The VNC client names its settings as if they stood in `[environment]`.
fn locate(error: &Error) -> Error {
    let message = words(error).replace("environment.", "environment.attach.vnc.");
    Error::new(error.kind(), ORIGIN, "attach", message)
}

/// Checks all settings; names what is given twice.
pub(super) fn check(desktops: &[AttachConfig]) -> Result<()> {
    let (mut servers, mut browsers) = (BTreeSet::new(), BTreeSet::new());
    for desktop in desktops {
        desktop.check()?;
        let endpoint = &desktop.vnc.endpoint;
        if !servers.insert(endpoint) || !browsers.insert(desktop.browser()?) {
            return Err(refused(format!(
                "environment.attach names {endpoint} or its browser {} twice: each environment needs a desktop of its own",
                desktop.devtools
            )));
        }
    }
    Ok(())
}

#[derive(Clone, Copy, Debug, Default)]
struct Seat {
    taken: bool,
    /// It was attached to before: what fails now is no mistake in the settings.
    reached: bool,
}

/// The running desktops, and which are in use.
#[derive(Debug)]
pub(super) struct Seats {
    desktops: Vec<AttachConfig>,
    /// As many as desktops.
    seats: Mutex<Vec<Seat>>,
}

impl Seats {
    pub(super) fn new(desktops: Vec<AttachConfig>) -> Arc<Self> {
        let seats = Mutex::new(vec![Seat::default(); desktops.len()]);
        Arc::new(Self { desktops, seats })
    }

    fn with<V>(&self, change: impl FnOnce(&mut [Seat]) -> V) -> V {
        // Each change is one assignment: a panic elsewhere leaves nothing half done.
        change(&mut self.seats.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn try_take(self: &Arc<Self>) -> Option<Taken> {
        let index = self.with(|seats| {
            let index = seats.iter().position(|seat| !seat.taken)?;
            seats[index].taken = true;
            Some(index)
        })?;
        let seats = Arc::clone(self);
        Some(Taken { seats, index })
    }

    /// A desktop that no other environment uses.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if none gets free within some seconds.
    pub(super) async fn take(self: &Arc<Self>) -> Result<Taken> {
        let deadline = Instant::now() + SEAT_TIMEOUT;
        loop {
            if let Some(taken) = self.try_take() {
                return Ok(taken);
            }
            if Instant::now() >= deadline {
                return Err(refused(format!(
                    "all desktops that environment.attach names ({}) are in use: name one for each environment, or lower rollout.environments, warm_start.environments and evaluation.environments",
                    self.desktops.len()
                )));
            }
            sleep(Duration::from_millis(20)).await;
        }
    }
}

/// A desktop in use; dropping it frees the desktop for another environment.
#[derive(Debug)]
pub(super) struct Taken {
    seats: Arc<Seats>,
    index: usize,
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.seats.with(|seats| seats[self.index].taken = false);
    }
}

impl Taken {
    /// Connects to the desktop, which has to be larger than `screen`.
    pub(super) async fn attach(
        &self,
        screen: Size,
        patience: Duration,
    ) -> Result<(VncDevice, SocketAddr)> {
        let attached = self.try_attach(screen, patience).await;
        let reached = self.seats.with(|seats| {
            seats[self.index].reached |= attached.is_ok();
            seats[self.index].reached
        });
        attached.map_err(|error| {
            if error.is_retryable() && !reached {
                refused(words(&error))
            } else {
                error
            }
        })
    }

    async fn try_attach(
        &self,
        screen: Size,
        patience: Duration,
    ) -> Result<(VncDevice, SocketAddr)> {
        let config = &self.seats.desktops[self.index];
        let vnc = config.connect_vnc().await?;
        let size = vnc.spec().screen;
        let fits = |part: u32, whole: u32| part.saturating_add(MARGIN) <= whole;
        if !fits(screen.width, size.width) || !fits(screen.height, size.height) {
            return Err(refused(format!(
                "the screen {size} of {} is too small: environment.screen {screen} needs one that is {MARGIN} pixels wider and higher",
                config.vnc.endpoint
            )));
        }
        config.check_browser(size, patience).await?;
        Ok((vnc, config.browser()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MiniwobConfig;

    #[test]
    fn one_desktop_is_a_table_and_several_are_a_list() {
        let read = |attach: &str| {
            serde_json::from_str::<MiniwobConfig>(&format!("{{\"attach\":{attach}}}"))
                .map(|config| config.attach)
        };
        let one = read(r#"{"vnc":{"endpoint":"127.0.0.1:5902"}}"#).unwrap();
        assert_eq!(one.len(), 1);
        assert_eq!(one[0].vnc.endpoint, "127.0.0.1:5902");
        assert_eq!(one[0].devtools, "127.0.0.1:9222");
        let two = read(r#"[{"devtools":"127.0.0.1:1"},{"devtools":"127.0.0.1:2"}]"#).unwrap();
        assert_eq!(two[1].devtools, "127.0.0.1:2");
        assert!(read("[]").unwrap().is_empty());
        let error = read(r#"{"vcn":{}}"#).unwrap_err().to_string();
        assert!(
            error.contains("`vcn`") && error.contains("`vnc`"),
            "{error}"
        );
        assert!(read("5").unwrap_err().to_string().contains("a desktop"));
        // What is written is read again.
        let config = MiniwobConfig {
            attach: two,
            ..MiniwobConfig::default()
        };
        let text = serde_json::to_string(&config).unwrap();
        assert_eq!(
            serde_json::from_str::<MiniwobConfig>(&text).unwrap(),
            config
        );
    }

    #[test]
    fn mistakes_are_named() {
        let with = |change: fn(&mut AttachConfig)| {
            let mut desktop = AttachConfig::default();
            change(&mut desktop);
            let error = check(&[desktop]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config);
            error.to_string()
        };
        let text = with(|desktop| desktop.vnc.endpoint = "here".into());
        assert!(
            text.contains("environment.attach.vnc.endpoint \"here\""),
            "{text}"
        );
        let text = with(|desktop| desktop.devtools = "9222".into());
        assert!(
            text.contains("environment.attach.devtools \"9222\""),
            "{text}"
        );
        let text = with(|desktop| desktop.devtools = "10.0.0.1:9222".into());
        assert!(
            text.contains("10.0.0.1:9222 is not on this machine"),
            "{text}"
        );
        let text = with(|desktop| desktop.vnc.password_env = Some("DART_NO_SUCH".into()));
        assert!(
            text.contains("environment.attach.vnc.password_env names DART_NO_SUCH"),
            "{text}"
        );
        let twice = vec![AttachConfig::default(); 2];
        let text = check(&twice).unwrap_err().to_string();
        assert!(
            text.contains("127.0.0.1:5901") && text.contains("twice"),
            "{text}"
        );
        let local = AttachConfig {
            devtools: "localhost:9222".into(),
            ..AttachConfig::default()
        };
        check(&[local]).unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_desktop_serves_one_environment_at_a_time() {
        let seats = Seats::new(vec![AttachConfig::default()]);
        let first = seats.take().await.unwrap();
        let error = seats.take().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(
            error.to_string().contains("rollout.environments"),
            "{error}"
        );
        // One that is being closed is waited for.
        let closing = async move {
            sleep(SEAT_TIMEOUT / 2).await;
            drop(first);
        };
        let (second, ()) = tokio::join!(seats.take(), closing);
        assert_eq!(second.unwrap().index, 0);
    }

    #[tokio::test]
    async fn a_desktop_that_was_reached_may_come_back() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let vnc = VncConfig::new(free.local_addr().unwrap().to_string());
        drop(free);
        let seats = Seats::new(vec![AttachConfig {
            vnc,
            ..AttachConfig::default()
        }]);
        let taken = seats.take().await.unwrap();
        for (reached, kind) in [(false, ErrorKind::Config), (true, ErrorKind::Disconnected)] {
            seats.with(|seats| seats[0].reached = reached);
            let attached = taken.attach(Size::new(160, 210), Duration::from_secs(1));
            let error = attached.await.unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
            assert!(
                error.to_string().contains("(connection refused)"),
                "{error}"
            );
        }
    }
}
