//! [`MiniwobDriver`]: sets MiniWoB++ tasks up and judges them.
//!
//! Screenshots and actions go through VNC alone; the seed goes in and the reward comes out through
//! DevTools. A desktop stays on a page for as long as the task stays the same: loading a page costs
//! more than an episode.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use async_trait::async_trait;
use dart_core::{
    Action, Demonstrator, EpisodeEnd, Error, ErrorKind, Result, Reward, ScreenPx, Size, Split,
    Task, TaskDriver, UiElement,
};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::{
    config::{MiniwobConfig, TaskParams},
    device::DesktopDevice,
};
use crate::{cdp::Cdp, pages::PageServer};

const ORIGIN: &str = "dart-env-vnc";
const PAGE_SCRIPT: &str = include_str!("page.js");

/// Seeds of the held-out split have this bit, seeds of training do not.
const HELD_OUT: u64 = 1 << 63;

/// What a page says about its episode.
#[derive(Debug, Deserialize)]
struct PageState {
    #[serde(default)]
    instruction: String,
    done: bool,
    raw: f64,
    ups: u64,
    visible: bool,
    elements: Option<Vec<UiElement>>,
}

#[derive(Debug)]
struct Connection {
    browser: SocketAddr,
    cdp: Cdp,
    /// The page that is loaded and prepared.
    page: Option<String>,
}

/// Sets MiniWoB++ tasks up on a [`DesktopDevice`] and judges them.
#[derive(Debug)]
pub struct MiniwobDriver {
    config: Arc<MiniwobConfig>,
    pages: PageServer,
    /// Whether observations list the visible elements.
    list_elements: bool,
    connection: Option<Connection>,
    /// The running episode's task.
    task: String,
    /// Marks painted so far.
    marks: u32,
    /// Releases of a mouse button that the page has seen.
    seen_releases: u64,
}

impl MiniwobDriver {
    /// A driver with a page server of its own. `list_elements` says whether observations list the
    /// visible elements, which costs a walk over the page at each step.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if the pages are not there.
    pub async fn start(config: Arc<MiniwobConfig>, list_elements: bool) -> Result<Self> {
        let pages = PageServer::start(&config.pages_dir).await?;
        Ok(Self {
            config,
            pages,
            list_elements,
            connection: None,
            task: String::new(),
            marks: 0,
            seen_releases: 0,
        })
    }

    /// The next mark: its colour for the page and for the device. Colours repeat after 2^24.
    fn next_mark(&mut self) -> (String, [u8; 3]) {
        self.marks = self.marks.wrapping_add(1);
        // An odd factor visits every colour and makes neighbours differ much.
        let [_, red, green, blue] = self.marks.wrapping_mul(0x009e_3779).to_be_bytes();
        let css = format!("rgb({red},{green},{blue})");
        (css, [red, green, blue])
    }

    /// Evaluates a script; an error drops the connection, since its state is no longer known.
    async fn evaluate(&mut self, script: &str) -> Result<Value> {
        let Some(connection) = &mut self.connection else {
            let message = "no page: set a task up first";
            return Err(Error::new(
                ErrorKind::Disconnected,
                ORIGIN,
                "miniwob",
                message,
            ));
        };
        let result = connection.cdp.evaluate(script).await;
        if result.is_err() {
            self.connection = None;
        }
        result
    }

    async fn state(&mut self, script: &str) -> Result<PageState> {
        let value = self.evaluate(script).await?;
        serde_json::from_value(value).map_err(|cause| {
            let message = "the page does not answer as it should";
            Error::new(ErrorKind::Protocol, ORIGIN, "miniwob", message).caused_by(cause)
        })
    }

    async fn connect(&mut self, browser: SocketAddr) -> Result<()> {
        if self
            .connection
            .as_ref()
            .is_some_and(|c| c.browser == browser)
        {
            return Ok(());
        }
        let timeout = Duration::from_millis(self.config.command_timeout_ms);
        self.connection = Some(Connection {
            browser,
            cdp: Cdp::connect(browser, timeout).await?,
            page: None,
        });
        Ok(())
    }

    /// Makes sure that `page` is loaded; returns whether it had to be.
    async fn open(&mut self, page: &str) -> Result<bool> {
        let path = self.config.page_path(page)?;
        let url = self.pages.url(&path);
        let Size { width, height } = self.config.screen;
        let prepare = format!("({PAGE_SCRIPT})('{path}', {width}, {height})");
        let Some(connection) = &mut self.connection else {
            return Ok(false);
        };
        if connection.page.as_deref() == Some(page) {
            return Ok(false);
        }
        connection.page = None;
        connection.cdp.close_others().await?;
        connection.cdp.navigate(&url).await?;
        let deadline = Instant::now() + Duration::from_millis(self.config.command_timeout_ms);
        loop {
            match connection.cdp.evaluate(&prepare).await {
                Ok(Value::Bool(true)) => break,
                // Half loaded, or the old page going away under the script.
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Protocol => {}
                Err(error) => return Err(error),
            }
            if Instant::now() >= deadline {
                let message = "the page does not load";
                return Err(
                    Error::new(ErrorKind::Timeout, ORIGIN, "set up", message).with("page", page)
                );
            }
            sleep(Duration::from_millis(5)).await;
        }
        connection.page = Some(page.to_owned());
        Ok(true)
    }

    /// Begins an episode; `None` if the page has lost what it was prepared with or is not in front,
    /// as when the agent has reloaded it or opened another.
    async fn begin(
        &mut self,
        device: &mut DesktopDevice,
        page: &str,
        seed: u64,
    ) -> Result<Option<PageState>> {
        let fresh = self.open(page).await?;
        let parking = device.parking();
        // A fresh page was loaded after the pointer had moved, so it will see no move.
        let parked = if fresh {
            "null".to_owned()
        } else {
            format!("'{},{}'", parking.x, parking.y)
        };
        let (css, colour) = self.next_mark();
        let list = self.list_elements;
        // The seed is a string: a u64 does not fit a JavaScript number.
        let script = format!(
            "window.dart ? dart.reset('{seed}', {parked}, '{css}', {list}) : {{ visible: false, done: true, raw: 0, ups: 0, elements: null }}"
        );
        let mut state = self.state(&script).await?;
        if !state.visible || state.instruction.is_empty() {
            return Ok(None);
        }
        device.expect(colour, state.elements.take().map(Arc::from));
        self.seen_releases = state.ups;
        Ok(Some(state))
    }

    async fn try_set_up(
        &mut self,
        device: &mut DesktopDevice,
        page: &str,
        seed: u64,
    ) -> Result<Arc<str>> {
        if device.take_recovered() {
            self.connection = None;
        }
        device.neutral().await?;
        let browser = device.desktop()?.devtools_address();
        self.connect(browser).await?;
        for _attempt in 0..2 {
            if let Some(state) = self.begin(device, page, seed).await? {
                return Ok(state.instruction.into());
            }
            if let Some(connection) = &mut self.connection {
                connection.page = None;
            }
        }
        let message = "the page gives no instruction";
        Err(Error::new(ErrorKind::Protocol, ORIGIN, "set up", message).with("page", page))
    }
}

/// The seed that a page is given.
const fn page_seed(split: Split, seed: u64) -> u64 {
    match split {
        Split::Train => seed & !HELD_OUT,
        Split::Layouts | Split::Words => seed | HELD_OUT,
    }
}

#[async_trait]
impl TaskDriver<DesktopDevice> for MiniwobDriver {
    async fn set_up(
        &mut self,
        device: &mut DesktopDevice,
        task: &Task,
        seed: u64,
    ) -> Result<Arc<str>> {
        let params = TaskParams::deserialize(&task.params).map_err(|cause| {
            let message = "params of a MiniWoB++ task name its page";
            let error = Error::new(ErrorKind::Config, ORIGIN, "set up", message);
            error.with("task", &task.id).caused_by(cause)
        })?;
        let seed = page_seed(task.split, seed);
        let result = self.try_set_up(device, &params.page, seed).await;
        if result.is_err() {
            self.connection = None;
        }
        self.task = params.page;
        result
    }

    async fn ended(&mut self, device: &mut DesktopDevice) -> Result<bool> {
        let expected = self.seen_releases + u64::from(device.take_releases());
        let (css, colour) = self.next_mark();
        let (patience, list) = (self.config.settle_timeout_ms, self.list_elements);
        let script = format!("dart.settle({expected}, {patience}, '{css}', {list})");
        let state = self.state(&script).await?;
        self.seen_releases = state.ups;
        device.expect(colour, state.elements.map(Arc::from));
        Ok(state.done)
    }

    async fn score(&mut self, _: &mut DesktopDevice, _: &EpisodeEnd) -> Result<Reward> {
        let state = self.state("dart.state()").await?;
        Ok((state.done && state.raw > 0.0).into())
    }

    async fn tear_down(&mut self, _: &mut DesktopDevice) -> Result<()> {
        self.connection = None;
        Ok(())
    }
}

#[async_trait]
impl Demonstrator<DesktopDevice> for MiniwobDriver {
    async fn expert_action(&mut self, _: &mut DesktopDevice) -> Result<Option<Action>> {
        let script = format!("dart.expert('{}')", self.task);
        let at: Option<(i32, i32)> = serde_json::from_value(self.evaluate(&script).await?).ok();
        let at = at.map(|(x, y)| ScreenPx::new(x, y));
        Ok(at
            .filter(|at| self.config.screen.contains(*at))
            .map(Action::click))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn training_and_held_out_seeds_are_disjoint() {
        for seed in [0, 7, u64::MAX, HELD_OUT] {
            assert_eq!(page_seed(Split::Train, seed) & HELD_OUT, 0);
            assert_eq!(page_seed(Split::Layouts, seed) & HELD_OUT, HELD_OUT);
        }
    }

    #[tokio::test]
    async fn neighbouring_marks_differ() {
        let folder = tempfile::tempdir().unwrap();
        let config = MiniwobConfig {
            pages_dir: folder.path().to_owned(),
            ..MiniwobConfig::default()
        };
        let mut driver = MiniwobDriver::start(Arc::new(config), false).await.unwrap();
        let (css, first) = driver.next_mark();
        assert_eq!(css, format!("rgb({},{},{})", first[0], first[1], first[2]));
        let seen: std::collections::BTreeSet<_> =
            (0..10_000).map(|_| driver.next_mark().1).collect();
        assert_eq!(seen.len(), 10_000);
    }
}
