//! [`AppPhone`].

use std::sync::Arc;

use async_trait::async_trait;
use dart_core::{Action, Device, DeviceSpec, Observation, Result};

use super::{
    catalog::{APPS, LAUNCHER, Page, find},
    deeds::{self, Input},
    form::{Binding, Form},
    platform::Platform,
    screens,
};
use crate::{
    config::SimConfig,
    device::SimDevice,
    error::SimError,
    ui::{Command, Id, Kind, Ui, Widget},
};

/// A simulated phone with a home screen and apps. As [`SimDevice`], it never stalls; a wait passes no
/// time.
#[derive(Debug)]
pub struct AppPhone {
    device: SimDevice,
    platform: Arc<dyn Platform>,
    page: Page,
    /// What the page is made of; its picture is the device's.
    form: Form,
}

impl AppPhone {
    /// A phone that shows its home screen. Of `config`, the screen counts.
    ///
    /// # Errors
    /// [`Config`](dart_core::ErrorKind::Config) if the screen is too small or too large, or the
    /// device no phone.
    pub fn new(config: &SimConfig, platform: Arc<dyn Platform>) -> Result<Self> {
        if config.device != crate::SimDeviceKind::Phone {
            return Err(SimError::NoPhone.into());
        }
        let mut phone = Self {
            device: SimDevice::new(config)?,
            form: screens::build(&Page::Home, &*platform, config.logical_screen()),
            platform,
            page: Page::Home,
        };
        phone.device.load(phone.form.ui.clone())?;
        Ok(phone)
    }

    /// The packages of all apps, the home screen's among them.
    pub fn packages() -> Vec<String> {
        let apps = APPS.iter().map(|app| app.package);
        apps.chain([LAUNCHER]).map(str::to_owned).collect()
    }

    fn go(&mut self, page: Page) -> Result<(), SimError> {
        let package = package_of(&page);
        if package != package_of(&self.page) {
            self.platform.show(package);
        }
        self.page = page;
        self.form = screens::build(&self.page, &*self.platform, self.form.ui.size);
        self.device.load(self.form.ui.clone())
    }

    /// What the keys of the phone itself do; whether this was one of them.
    fn navigate(&mut self, action: &Action) -> Result<bool, SimError> {
        match action {
            Action::NavigateHome => self.go(Page::Home)?,
            // An open menu goes first.
            Action::NavigateBack if self.device.ui()?.popup.is_none() => {
                self.go(self.page.back())?;
            }
            Action::OpenApp { name } => match find(name) {
                Some(app) => self.go(app.page.clone())?,
                None => self.device.ui_mut()?.notice = Some("no app"),
            },
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Does what the user has told the app.
    fn react(&mut self) -> Result<(), SimError> {
        let ui = self.device.ui_mut()?;
        let commands = std::mem::take(&mut ui.commands);
        let text = |id: &Id| match ui.kind(*id) {
            Kind::Field(edit) => edit.text(),
            _ => String::new(),
        };
        let fields: Vec<String> = self.form.fields.iter().map(text).collect();
        let Form {
            bindings, deeds, ..
        } = &self.form;
        for (id, binding) in bindings {
            write_back(ui.kind(*id), binding, &*self.platform);
        }
        for command in commands {
            let on = matches!(command, Command::Switched(id)
                if matches!(ui.kind(id), Kind::Switch { on: true, .. }));
            let deed = deeds.iter().find(|(known, _)| *known == command);
            let Some((_, deed)) = deed else { continue };
            let fields = fields.clone();
            let next = deeds::perform(deed, &Input { fields, on }, &*self.platform);
            if let Some(page) = next {
                // What was told to the page before means nothing on the next.
                return self.go(page);
            }
        }
        self.refresh()
    }

    /// Shows what has changed below.
    fn refresh(&mut self) -> Result<(), SimError> {
        let fresh = screens::build(&self.page, &*self.platform, self.form.ui.size);
        let shown = self.device.ui()?;
        if shown.widgets.len() == fresh.ui.widgets.len() {
            let mut pairs = shown.widgets.iter().zip(&fresh.ui.widgets);
            if pairs.all(|(old, new)| same(old, new) && !old.gone) {
                self.form = fresh;
                return Ok(());
            }
        }
        let carried = carried(shown, fresh.ui.clone());
        self.form = fresh;
        self.device.load(carried)
    }
}

fn package_of(page: &Page) -> &'static str {
    page.app().map_or(LAUNCHER, |app| app.package)
}

/// Writes what a widget stands at into the system, if that is something else.
fn write_back(kind: &Kind, binding: &Binding, platform: &dyn Platform) {
    let value = match kind {
        Kind::Slider { value, .. } => value.to_string(),
        Kind::Checkbox { on, .. } => u8::from(*on).to_string(),
        _ => return,
    };
    match binding {
        Binding::Setting(space, key) => {
            if platform.setting(space, key).unwrap_or_else(|| "0".into()) != value {
                platform.put_setting(space, key, &value);
            }
        }
        Binding::Cell(table, row, column) => platform.edit_table(table, &mut |rows| {
            if let Some(cell) = rows.get_mut(*row).and_then(|row| row.get_mut(*column)) {
                cell.clone_from(&value);
            }
        }),
    }
}

/// Whether two widgets look alike, but for what a user has typed and scrolled.
fn same(old: &Widget, new: &Widget) -> bool {
    let alike = match (&old.kind, &new.kind) {
        (Kind::Field(_), Kind::Field(_)) => true,
        (Kind::Scroll { content: a, .. }, Kind::Scroll { content: b, .. })
        | (Kind::Slider { value: a, .. }, Kind::Slider { value: b, .. }) => a == b,
        (Kind::Switch { text: a, on: x }, Kind::Switch { text: b, on: y })
        | (Kind::Checkbox { text: a, on: x }, Kind::Checkbox { text: b, on: y }) => {
            a == b && x == y
        }
        (Kind::Button { text: a, .. }, Kind::Button { text: b, .. })
        | (Kind::Item { text: a, .. }, Kind::Item { text: b, .. }) => a == b,
        _ => false,
    };
    alike && old.rect == new.rect && old.parent == new.parent
}

/// `new` with the texts, the places and the keyboard of widgets that were there before.
fn carried(old: &Ui, mut new: Ui) -> Ui {
    for (before, after) in old.widgets.iter().zip(&mut new.widgets) {
        if before.rect != after.rect || before.parent != after.parent {
            continue;
        }
        match (&before.kind, &mut after.kind) {
            (Kind::Field(text), Kind::Field(edit)) => edit.clone_from(text),
            (
                Kind::Scroll { offset: from, .. },
                Kind::Scroll {
                    offset, content, ..
                },
            ) => *offset = (*from).min((*content - after.rect.height as i32).max(0)),
            _ => {}
        }
    }
    let is_field = |id: &Id| matches!(new.widgets.get(*id).map(|w| &w.kind), Some(Kind::Field(_)));
    new.focus = old.focus.filter(is_field);
    new.clipboard.clone_from(&old.clipboard);
    new
}

#[async_trait]
impl Device for AppPhone {
    fn spec(&self) -> &DeviceSpec {
        self.device.spec()
    }

    async fn screenshot(&mut self) -> Result<Observation> {
        self.refresh()?;
        self.device.screenshot().await
    }

    async fn perform(&mut self, action: &Action) -> Result<()> {
        self.device.ui()?;
        self.device.spec().check(action)?;
        // Whatever was changed from outside is what the user acts on, unless it is left.
        if !matches!(action, Action::NavigateHome) {
            self.refresh()?;
        }
        if self.navigate(action)? {
            return Ok(());
        }
        self.device.perform(action).await?;
        self.react()?;
        Ok(())
    }

    async fn recover(&mut self) -> Result<()> {
        self.device.recover().await
    }

    async fn close(&mut self) -> Result<()> {
        self.device.close().await
    }
}
