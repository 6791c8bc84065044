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
    registry::{TaskInfo, UNKNOWN},
};
use crate::{
    cdp::Cdp,
    pages::{BuiltIn, PageServer},
};

const ORIGIN: &str = "dart-env-vnc";

const STAGE: &str = "/dart/stage.html";
const BUILT_IN: BuiltIn = &[
    (STAGE, include_str!("stage.html")),
    ("/dart/page.js", include_str!("page.js")),
    ("/dart/experts.js", include_str!("experts.js")),
];

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
    keys: u64,
    elements: Option<Vec<UiElement>>,
}

#[derive(Debug)]
struct Connection {
    browser: SocketAddr,
    cdp: Cdp,
    /// The stage is loaded.
    staged: bool,
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
    /// What is known of it.
    info: TaskInfo,
    /// Marks painted so far.
    marks: u32,
    /// Releases of mouse buttons and of keys that the page has seen.
    seen: (u64, u64),
    /// The agent has reloaded or left the page: the episode is over and failed.
    left: bool,
}

impl MiniwobDriver {
    /// A driver with a page server of its own. `list_elements` says whether observations list the
    /// visible elements, which costs a walk over the page at each step.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if the pages are not there.
    pub async fn start(config: Arc<MiniwobConfig>, list_elements: bool) -> Result<Self> {
        let pages = PageServer::start(&config.pages_dir, BUILT_IN).await?;
        Ok(Self {
            config,
            pages,
            list_elements,
            connection: None,
            task: String::new(),
            info: UNKNOWN,
            marks: 0,
            seen: (0, 0),
            left: false,
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
        let connection = connected(&mut self.connection)?;
        let result = connection.cdp.evaluate(script).await;
        if result.is_err() {
            self.connection = None;
        }
        result
    }

    /// The page's state; `None` if there is no page any more, which is the agent's doing: it has
    /// reloaded or left it.
    async fn state(&mut self, call: &str) -> Result<Option<PageState>> {
        let script = format!("window.stage ? stage.{call} : null");
        let value = self.evaluate(&script).await?;
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
            staged: false,
        });
        Ok(())
    }

    /// Makes sure that the stage is loaded and in front, alone.
    async fn open_stage(&mut self) -> Result<()> {
        let url = self.pages.url(STAGE);
        let deadline = Instant::now() + Duration::from_millis(self.config.command_timeout_ms);
        let connection = connected(&mut self.connection)?;
        if connection.staged {
            return Ok(());
        }
        connection.cdp.close_others().await?;
        connection.cdp.navigate(&url).await?;
        let loaded = format!("location.href === '{url}' && typeof stage === 'object'");
        loop {
            match connection.cdp.evaluate(&loaded).await {
                Ok(Value::Bool(true)) => break,
                // Half loaded, or the old page going away under the script.
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Protocol => {}
                Err(error) => return Err(error),
            }
            if Instant::now() >= deadline {
                let message = "the pages do not load";
                return Err(Error::new(ErrorKind::Timeout, ORIGIN, "set up", message));
            }
            sleep(Duration::from_millis(5)).await;
        }
        connection.staged = true;
        Ok(())
    }

    /// Begins an episode by the call `reset`; `None` if the stage is lost or not in front, as when
    /// the agent has reloaded it or opened another page.
    async fn begin(
        &mut self,
        device: &mut DesktopDevice,
        place: &Value,
        seed: u64,
        mode: &str,
    ) -> Result<Option<PageState>> {
        self.open_stage().await?;
        let ScreenPx { x, y } = device.parking()?;
        let (css, colour) = self.next_mark();
        let list = self.list_elements;
        // The seed is a string: a u64 does not fit a JavaScript number.
        let call = format!("reset({place}, '{seed}', '{mode}', '{x},{y}', '{css}', {list})");
        let mut state = self.state(&call).await?;
        if let Some(state) = &mut state {
            device.expect(colour, state.elements.take().map(Arc::from));
            self.seen = (state.ups, state.keys);
        }
        Ok(state)
    }

    async fn try_set_up(
        &mut self,
        device: &mut DesktopDevice,
        page: &str,
        split: Split,
        seed: u64,
    ) -> Result<Arc<str>> {
        if device.take_recovered() {
            self.connection = None;
        }
        let (info, path) = self.config.page(page)?;
        self.info = info;
        let Size { width, height } = self.config.screen;
        // Where the page is, and how it is to be shown.
        let place = serde_json::json!({
            "name": page, "path": path, "keep": info.keep, "width": width, "height": height,
        });
        let (seed, mode) = (page_seed(split, seed), mode(split));
        device.neutral().await?;
        let browser = device.browser()?;
        self.connect(browser).await?;
        for _attempt in 0..2 {
            let state = self.begin(device, &place, seed, mode).await?;
            if let Some(state) = state.filter(|state| !state.instruction.is_empty()) {
                return Ok(state.instruction.into());
            }
            // Begin anew with the browser as it is now.
            self.connection = None;
            self.connect(browser).await?;
        }
        let message = "the page does not stay in front";
        Err(Error::new(ErrorKind::Protocol, ORIGIN, "set up", message).with("page", page))
    }
}

fn connected(connection: &mut Option<Connection>) -> Result<&mut Connection> {
    let message = "no page: set a task up first";
    let lost = || Error::new(ErrorKind::Disconnected, ORIGIN, "miniwob", message);
    connection.as_mut().ok_or_else(lost)
}

/// The seed that a page is given.
const fn page_seed(split: Split, seed: u64) -> u64 {
    match split {
        Split::Train => seed & !HELD_OUT,
        Split::Layouts | Split::Words => seed | HELD_OUT,
    }
}

/// Which of a page's distributions the instances are drawn from; most pages have one.
const fn mode(split: Split) -> &'static str {
    match split {
        Split::Train | Split::Layouts => "train",
        Split::Words => "test",
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
        let setting_up = self.try_set_up(device, &params.page, task.split, seed);
        let result = setting_up.await;
        if result.is_err() {
            self.connection = None;
        }
        self.task = params.page;
        self.left = false;
        result
    }

    async fn ended(&mut self, device: &mut DesktopDevice) -> Result<bool> {
        let (buttons, keys) = device.take_releases();
        let (buttons, keys) = (
            self.seen.0 + u64::from(buttons),
            self.seen.1 + u64::from(keys),
        );
        let (css, colour) = self.next_mark();
        let (patience, list) = (self.config.settle_timeout_ms, self.list_elements);
        let call = format!("settle({buttons}, {keys}, {patience}, '{css}', {list})");
        let state = match self.state(&call).await {
            // The page went away under the script.
            Err(error) if error.kind() == ErrorKind::Protocol => {
                tracing::warn!(%error, task = self.task, "taken for a page that was left");
                None
            }
            other => other?,
        };
        let Some(state) = state else {
            self.left = true;
            return Ok(true);
        };
        self.seen = (state.ups, state.keys);
        device.expect(colour, state.elements.map(Arc::from));
        Ok(state.done)
    }

    async fn score(&mut self, _: &mut DesktopDevice, _: &EpisodeEnd) -> Result<Reward> {
        if self.left {
            return Ok(Reward::FAILURE);
        }
        let state = self.state("state()").await?;
        Ok(state
            .is_some_and(|state| state.done && self.info.passes(state.raw))
            .into())
    }

    async fn tear_down(&mut self, _: &mut DesktopDevice) -> Result<()> {
        self.connection = None;
        Ok(())
    }
}

#[async_trait]
impl Demonstrator<DesktopDevice> for MiniwobDriver {
    async fn expert_action(&mut self, _: &mut DesktopDevice) -> Result<Option<Action>> {
        let script = format!("window.stage?.expert('{}')", self.task);
        let action = self.evaluate(&script).await?;
        let action: Option<Action> = serde_json::from_value(action).map_err(|cause| {
            let message = "the expert says what is no action";
            let error = Error::new(ErrorKind::Protocol, ORIGIN, "expert", message);
            error.with("task", &self.task).caused_by(cause)
        })?;
        // What lies outside the screen cannot be done: there is no idea.
        Ok(action.filter(|action| action.fault(self.config.screen).is_none()))
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
