//! [`SimDevice`]: a simulated screen that can be operated.

use std::sync::Arc;

use async_trait::async_trait;
use dart_core::{
    Action, ActionSet, Device, DeviceSpec, Frame, MouseButton, Observation, Rect, Result, ScreenPx,
    Size, UiElement,
};

use crate::{
    canvas::Canvas,
    config::{SimConfig, SimDeviceKind},
    error::SimError,
    ui::{Kind, TextEdit, Ui},
};

/// A simulated desktop or phone. Every call returns at once; none can stall.
///
/// Deviations from a real device: a wait passes no time, going home dismisses what going back
/// dismisses (there is one app), and the pointer is not drawn.
#[derive(Debug)]
pub struct SimDevice {
    spec: DeviceSpec,
    scale: u32,
    ui: Ui,
    canvas: Canvas,
    /// The last observation, as long as nothing happened since.
    shown: Option<Observation>,
    closed: bool,
}

impl SimDevice {
    /// A device that shows a welcome screen: a field, a checkbox, a button and a list.
    ///
    /// # Errors
    /// [`Config`](dart_core::ErrorKind::Config) if a value of `config` is out of range.
    pub fn new(config: &SimConfig) -> Result<Self> {
        config.validate()?;
        let touch = config.device == SimDeviceKind::Phone;
        let logical = config.logical_screen();
        Ok(Self {
            spec: DeviceSpec {
                name: config.device.name().to_owned(),
                screen: config.screen,
                actions: if touch {
                    ActionSet::PHONE
                } else {
                    ActionSet::DESKTOP
                },
            },
            scale: config.scale(),
            ui: welcome(logical, touch),
            canvas: Canvas::new(logical),
            shown: None,
            closed: false,
        })
    }

    /// How many keys and mouse buttons are held down; for tests and tools.
    pub fn held(&self) -> usize {
        self.ui.held()
    }

    /// Shows another screen.
    pub(crate) fn load(&mut self, ui: Ui) -> Result<(), SimError> {
        self.check_open()?;
        self.ui = ui;
        self.shown = None;
        Ok(())
    }

    /// What is on the screen.
    pub(crate) fn ui(&self) -> Result<&Ui, SimError> {
        self.check_open()?;
        Ok(&self.ui)
    }

    /// What is on the screen, to be changed.
    pub(crate) fn ui_mut(&mut self) -> Result<&mut Ui, SimError> {
        self.check_open()?;
        self.shown = None;
        Ok(&mut self.ui)
    }

    /// `action` with its points moved from logical pixels to the middle of their screen pixels.
    pub(crate) fn enlarge(&self, action: Action) -> Action {
        let (scale, Size { width, height }) = (self.scale as i32, self.spec.screen);
        map_points(action, |at| {
            let enlarge = |v: i32, side: u32| (v * scale + scale / 2).min(side as i32 - 1);
            ScreenPx::new(enlarge(at.x, width), enlarge(at.y, height))
        })
    }

    fn check_open(&self) -> Result<(), SimError> {
        if self.closed {
            Err(SimError::Closed)
        } else {
            Ok(())
        }
    }

    fn draw(&mut self) -> Result<Observation> {
        let mut elements = self.ui.paint(&mut self.canvas);
        let frame: Arc<[u8]> = if self.scale == 1 {
            self.canvas.rgb().into()
        } else {
            self.canvas.enlarged(self.spec.screen, self.scale).into()
        };
        for element in &mut elements {
            element.bounds = enlarged(element.bounds, self.scale);
        }
        let mut observation = Observation::of(Frame::new(self.spec.screen, frame)?);
        observation.ui = Some(Arc::<[UiElement]>::from(elements));
        Ok(observation)
    }

    fn apply(&mut self, action: Action) {
        let ui = &mut self.ui;
        match action {
            Action::Click {
                at,
                button,
                count,
                modifiers,
            } => ui.click(at, button, count, modifiers),
            Action::DragTo { from, to } => ui.drag(from, to),
            Action::Hotkey { keys } => ui.hotkey(&keys),
            Action::KeyDown { key } => ui.key_down(key),
            Action::KeyUp { key } => ui.key_up(key),
            Action::MouseDown { button } => ui.mouse_down(button),
            Action::MouseUp { button } => ui.mouse_up(button),
            Action::MoveTo { at } => ui.move_to(at),
            Action::Press { key } => ui.hotkey(&[key]),
            Action::Scroll {
                at,
                direction,
                notches,
            } => ui.scroll(at, direction, notches),
            Action::Type { text } => ui.type_text(&text),
            other => self.apply_touch(other),
        }
    }

    fn apply_touch(&mut self, action: Action) {
        let ui = &mut self.ui;
        let none = dart_core::Modifiers::NONE;
        match action {
            Action::DoubleTap { at } => ui.click(at, MouseButton::Left, 2, none),
            Action::KeyboardEnter => ui.type_text("\n"),
            Action::LongPress { at } => ui.long_press(at),
            Action::NavigateBack | Action::NavigateHome => ui.dismiss(),
            Action::OpenApp { name } => ui.open_app(&name),
            Action::Swipe { from, to } => ui.swipe(from, to),
            Action::Tap { at } => ui.click(at, MouseButton::Left, 1, none),
            // A wait passes no time; the rest concerns the task.
            _ => {}
        }
    }
}

#[async_trait]
impl Device for SimDevice {
    fn spec(&self) -> &DeviceSpec {
        &self.spec
    }

    async fn screenshot(&mut self) -> Result<Observation> {
        self.check_open()?;
        if let Some(shown) = &self.shown {
            return Ok(shown.clone());
        }
        let drawn = self.draw()?;
        self.shown = Some(drawn.clone());
        Ok(drawn)
    }

    async fn perform(&mut self, action: &Action) -> Result<()> {
        self.check_open()?;
        self.spec.check(action)?;
        let scale = self.scale as i32;
        self.apply(map_points(action.clone(), |at| {
            ScreenPx::new(at.x / scale, at.y / scale)
        }));
        self.shown = None;
        Ok(())
    }

    async fn recover(&mut self) -> Result<()> {
        self.check_open()?;
        self.ui.release_all();
        self.shown = None;
        Ok(())
    }

    async fn close(&mut self) -> Result<()> {
        self.closed = true;
        self.shown = None;
        Ok(())
    }
}

/// What is on the screen before a task is set up.
fn welcome(size: Size, touch: bool) -> Ui {
    let mut ui = Ui::new(size, touch);
    ui.add(Rect::new(8, 4, 56, 16), Kind::Field(TextEdit::default()));
    let text = "hello".to_owned();
    ui.add(Rect::new(8, 28, 56, 16), Kind::Checkbox { text, on: false });
    let text = "Welcome".to_owned();
    let primary = true;
    ui.add(Rect::new(8, 52, 56, 16), Kind::Button { text, primary });
    ui
}

fn enlarged(rect: Rect, scale: u32) -> Rect {
    let by = scale as i32;
    Rect::new(
        rect.x * by,
        rect.y * by,
        rect.width * scale,
        rect.height * scale,
    )
}

/// `action` with `map` applied to every point.
fn map_points(mut action: Action, map: impl Fn(ScreenPx) -> ScreenPx) -> Action {
    match &mut action {
        Action::Click { at, .. }
        | Action::DoubleTap { at }
        | Action::LongPress { at }
        | Action::MoveTo { at }
        | Action::Tap { at } => *at = map(*at),
        Action::DragTo { from, to } => {
            *from = from.map(&map);
            *to = map(*to);
        }
        Action::Scroll { at, .. } => *at = at.map(&map),
        Action::Swipe { from, to } => {
            *from = map(*from);
            *to = map(*to);
        }
        _ => {}
    }
    action
}
