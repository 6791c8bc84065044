//! [`AdbDevice`].

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use dart_core::{
    Action, ActionKind, ActionSet, Device, DeviceSpec, Error, Observation, Result, ScreenPx, Size,
    UiElement,
};

use super::{
    apps,
    config::{AdbConfig, UnicodeInput},
    display::{self, Display},
    gestures,
    screen::{self, ScreenSource},
    text::{self, Command, Helper},
    ui_tree::{self, UiNode},
};
use crate::{
    client::{AdbTarget, ShellOutput},
    error::AdbError,
    quote,
};

/// What a phone takes; the other three concern the task and never reach a device.
const ACTIONS: ActionSet = ActionSet::of(&[
    ActionKind::DoubleTap,
    ActionKind::KeyboardEnter,
    ActionKind::LongPress,
    ActionKind::NavigateBack,
    ActionKind::NavigateHome,
    ActionKind::OpenApp,
    ActionKind::Scroll,
    ActionKind::Swipe,
    ActionKind::Tap,
    ActionKind::Type,
    ActionKind::Wait,
]);

/// Where dumps of the user interface are put on the device.
const DUMP: &str = "/data/local/tmp/dart_window.xml";

/// An Android device behind an ADB server.
///
/// Every call is a connection of its own, so a dropped future leaves nothing behind but the command
/// that the device may still be running; `input` holds no key and no finger after it.
///
/// Points are those of the last picture. If the screen was turned since, a touch is refused once as
/// an invalid action; pictures of another size or orientation than the screen are allowed for.
#[derive(Debug)]
pub struct AdbDevice {
    pub(super) config: AdbConfig,
    pub(super) target: AdbTarget,
    source: Box<dyn ScreenSource>,
    spec: DeviceSpec,
    display: Option<Display>,
    pub(super) helper: Option<Helper>,
    /// The keyboard that was chosen before ours.
    pub(super) keyboard_before: Option<String>,
    /// What the device says it is, so that another at the same address is noticed.
    pub(super) identity: Option<String>,
    closed: bool,
}

impl AdbDevice {
    /// Connects to the device and takes a first picture.
    ///
    /// # Errors
    /// `Config`, `Disconnected` (no server, no such device, offline), `Unauthorized`, `Unsupported`
    /// (older than Android 7), `Timeout` or `Protocol` ([`ErrorKind`](dart_core::ErrorKind)).
    pub async fn connect(config: AdbConfig) -> Result<Self> {
        let source = screen::source(&config);
        Self::connect_with(config, source).await
    }

    /// Like [`connect`](Self::connect), with another source of pictures.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub async fn connect_with(config: AdbConfig, source: Box<dyn ScreenSource>) -> Result<Self> {
        let target = config.target()?;
        let name = format!("adb {}", config.serial);
        let mut device = Self {
            config,
            target,
            source,
            spec: DeviceSpec::new(name, Size::new(1, 1), ACTIONS),
            display: None,
            helper: None,
            keyboard_before: None,
            identity: None,
            closed: false,
        };
        device.reach().await?;
        if let Err(error) = device.take_over().await {
            // The keyboard may have been changed already. What went wrong first is what counts.
            let _ = device.close().await;
            return Err(error);
        }
        Ok(device)
    }

    /// The device's client, for task drivers.
    pub const fn target(&self) -> &AdbTarget {
        &self.target
    }

    /// Learns what has to be known of a device that can be reached.
    pub(super) async fn take_over(&mut self) -> Result<()> {
        self.choose_keyboard().await?;
        self.display = self.held().await?;
        self.picture().await.map(drop)
    }

    async fn picture(&mut self) -> Result<dart_core::Frame> {
        let frame = self.source.frame(&self.target).await?;
        let Size { width, height } = self.spec.screen;
        if width != height && frame.size() == Size::new(height, width) {
            // Turned, and seen: points are now those of this picture.
            self.display = None;
        }
        self.spec.screen = frame.size();
        Ok(frame)
    }

    /// Runs a command that has to succeed.
    pub(super) async fn run(&self, line: &str) -> Result<ShellOutput> {
        let output = self.target.shell(line).await?;
        if output.code == 0 {
            return Ok(output);
        }
        Err(self.failed(line, &output))
    }

    fn failed(&self, line: &str, output: &ShellOutput) -> Error {
        let error = AdbError::Command {
            command: line.chars().take(120).collect(),
            code: output.code,
            said: output.said(),
        };
        error.at("perform").with("device", &self.config.serial)
    }

    async fn run_all(&self, commands: &[Command]) -> Result<()> {
        for Command { line, expected } in commands {
            let output = self.run(line).await?;
            let worked = expected.is_none_or(|expected| output.text().contains(expected));
            if !worked {
                return Err(self.failed(line, &output));
            }
        }
        Ok(())
    }

    /// Finds the app that types any text and makes it the keyboard.
    async fn choose_keyboard(&mut self) -> Result<()> {
        let wanted = self.config.unicode;
        if wanted == UnicodeInput::Refuse {
            return Ok(());
        }
        let installed = self.packages().await?;
        let has = |package: &str| installed.iter().any(|known| known == package);
        let keyboard = has(text::KEYBOARD_PACKAGE) && wanted != UnicodeInput::Clipboard;
        let clipboard = has(text::CLIPBOARD_PACKAGE) && wanted != UnicodeInput::Keyboard;
        self.helper = match (keyboard, clipboard) {
            (true, _) => Some(Helper::Keyboard),
            (false, true) => Some(Helper::Clipboard),
            (false, false) => None,
        };
        if !keyboard {
            return Ok(());
        }
        let before = self.run("settings get secure default_input_method").await?;
        let before = before.text().trim().to_owned();
        if before != text::KEYBOARD {
            let (enable, set) = ("ime enable", "ime set");
            self.run(&format!("{enable} {}", text::KEYBOARD)).await?;
            self.run(&format!("{set} {}", text::KEYBOARD)).await?;
            self.keyboard_before = Some(before);
        }
        Ok(())
    }

    async fn packages(&self) -> Result<Vec<String>> {
        let output = self.run("pm list packages").await?;
        Ok(apps::packages(&output.text()))
    }

    /// How the screen is held, if that is to be asked and can be told.
    async fn held(&self) -> Result<Option<Display>> {
        if !self.config.check_rotation {
            return Ok(None);
        }
        let output = self.target.shell(display::COMMAND).await?;
        Ok(Display::parse(&output.text()))
    }

    /// Makes sure that the points of `action` mean what its author saw.
    async fn follow_rotation(&mut self, action: &Action) -> Result<()> {
        if action.points().next().is_none() && action.kind() != ActionKind::Scroll {
            return Ok(());
        }
        let now = self.held().await?;
        let before = std::mem::replace(&mut self.display, now);
        let Some((before, now)) = before.zip(now).filter(|(before, now)| before != now) else {
            return Ok(());
        };
        if before.size != now.size {
            let Size { width, height } = self.spec.screen;
            self.spec.screen = Size::new(height, width);
        }
        let message = "the screen was turned since the last picture: look again";
        Err(AdbError::InvalidAction(message.into()).at("perform"))
    }

    /// Where to touch for a point of the last picture.
    fn locate(&self, at: ScreenPx) -> ScreenPx {
        let display = self.display.as_ref();
        display.map_or(at, |display| display.locate(at, self.spec.screen))
    }

    async fn commands(&self, action: &Action) -> Result<Vec<Command>> {
        let at = |point: &ScreenPx| self.locate(*point);
        let line = match action {
            Action::DoubleTap { at: point } => gestures::double_tap(at(point)),
            Action::KeyboardEnter => gestures::key(gestures::ENTER),
            Action::LongPress { at: point } => gestures::long_press(at(point)),
            Action::NavigateBack => gestures::key(gestures::BACK),
            Action::NavigateHome => gestures::key(gestures::HOME),
            Action::OpenApp { name } => return Ok(vec![self.launch(name).await?]),
            Action::Scroll {
                at: point,
                direction,
                notches,
            } => {
                let screen = self
                    .display
                    .map_or(self.spec.screen, |display| display.size);
                let point = point.as_ref().map(at);
                let lines = gestures::scroll(point, *direction, *notches, screen);
                return Ok(lines.into_iter().map(Command::plain).collect());
            }
            Action::Swipe { from, to } => gestures::swipe(at(from), at(to)),
            Action::Tap { at: point } => gestures::tap(at(point)),
            Action::Type { text } => {
                let plan = text::plan(text, self.helper);
                return plan.map_err(|error| error.at("perform"));
            }
            // Waiting needs no command; the rest never passes the check.
            _ => return Ok(Vec::new()),
        };
        Ok(vec![Command::plain(line)])
    }

    async fn launch(&self, name: &str) -> Result<Command> {
        let installed = self.packages().await?;
        let Some(app) = apps::resolve(name, &self.config.apps, &installed) else {
            let name: String = name.chars().take(64).collect();
            let message = format!("there is no app {name:?} on this device");
            return Err(AdbError::InvalidAction(message).at("perform"));
        };
        Ok(if app.contains('/') {
            Command::plain(quote::join(&["am", "start", "-W", "-n", &app]))
        } else {
            let category = "android.intent.category.LAUNCHER";
            let line = quote::join(&["monkey", "-p", &app, "-c", category, "1"]);
            // Some versions end with code 0 when there is nothing to start.
            let expected = Some("Events injected");
            Command { line, expected }
        })
    }

    /// The elements of the user interface, as `uiautomator` sees them.
    ///
    /// # Errors
    /// [`Protocol`](dart_core::ErrorKind::Protocol) if the device cannot dump them (it says so with exit code
    /// 0) or the dump has no element, and as [`screenshot`](Device::screenshot).
    pub async fn ui_tree(&self) -> Result<Vec<UiNode>> {
        self.check_open("ui tree")?;
        let mut said = String::new();
        for option in ["", "--compressed "] {
            // Removed first: an earlier dump would pass for this one. One line: one connection.
            let line = format!("rm -f {DUMP}; uiautomator dump {option}{DUMP} && cat {DUMP}");
            let output = self.target.shell(&line).await?;
            if output.code == 0
                && let Some(xml) = ui_tree::after_words(&output.stdout, &output.stderr)
            {
                return ui_tree::parse_dump(xml);
            }
            said = output.said();
        }
        let error = AdbError::malformed("the user interface cannot be dumped", said);
        Err(error.at("ui tree").with("device", &self.config.serial))
    }

    pub(super) fn check_open(&self, operation: &'static str) -> Result<()> {
        if self.closed {
            return Err(AdbError::DeviceClosed.at(operation));
        }
        Ok(())
    }

    async fn settle(&self) {
        if self.config.settle_ms == 0 {
            // The shortest sleep is a whole millisecond.
            return;
        }
        tokio::time::sleep(Duration::from_millis(self.config.settle_ms)).await;
    }
}

#[async_trait]
impl Device for AdbDevice {
    fn spec(&self) -> &DeviceSpec {
        &self.spec
    }

    async fn screenshot(&mut self) -> Result<Observation> {
        self.check_open("screenshot")?;
        let mut observation = Observation::of(self.picture().await?);
        if self.config.observe_ui {
            let nodes = self.ui_tree().await?;
            let elements = nodes.iter().filter_map(UiNode::element);
            observation.ui = Some(elements.collect::<Arc<[UiElement]>>());
        }
        Ok(observation)
    }

    async fn perform(&mut self, action: &Action) -> Result<()> {
        self.check_open("perform")?;
        self.spec.check(action)?;
        if let Action::Wait { millis } = action {
            tokio::time::sleep(Duration::from_millis(u64::from(*millis))).await;
            return Ok(());
        }
        self.follow_rotation(action).await?;
        let commands = self.commands(action).await?;
        self.run_all(&commands).await?;
        self.settle().await;
        Ok(())
    }

    async fn recover(&mut self) -> Result<()> {
        self.check_open("recover")?;
        self.reach().await?;
        self.take_over().await
    }

    async fn close(&mut self) -> Result<()> {
        let first = !std::mem::replace(&mut self.closed, true);
        if let (true, Some(keyboard)) = (first, self.keyboard_before.take()) {
            // Best effort: a device that is gone keeps its keyboard.
            let line = format!("ime set {}", quote::quote(&keyboard));
            let limit = Duration::from_millis(self.config.timeouts.call_ms.min(2_000));
            let _ = self.target.shell_within(&line, limit).await;
        }
        Ok(())
    }
}
