//! Settings of MiniWoB++ environments, and their tasks.

use std::path::{Path, PathBuf};

use dart_core::{DeviceEnvironmentConfig, Error, ErrorKind, Result, Size, Split, Task, TaskId};
use serde::{Deserialize, Serialize};

use super::attach::{self, AttachConfig};
use crate::DesktopConfig;

/// Space beside and below the task that the driver needs for its mark and for the pointer.
pub(super) const MARGIN: u32 = 14;

/// Tasks that have a scripted expert.
pub const EXPERT_TASKS: [&str; 8] = [
    "click-button",
    "click-dialog",
    "click-option",
    "click-tab",
    "click-test",
    "click-test-2",
    "click-widget",
    "focus-text",
];

/// The tasks of the default: each is solved by one right click.
const DEFAULT_TASKS: [&str; 5] = [
    "click-test",
    "click-test-2",
    "click-widget",
    "focus-text",
    "click-dialog",
];

/// Settings of MiniWoB++ environments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MiniwobConfig {
    /// The tasks, by the names of their pages. Default: click-test, click-test-2, click-widget,
    /// focus-text and click-dialog, which one right click solves.
    pub tasks: Vec<String>,
    /// The folder `html` of the PyPI package `miniwob`: it holds `core`, `common` and `miniwob`.
    /// Default `target/miniwob/html`, where `cargo xtask fetch-miniwob` puts it.
    pub pages_dir: PathBuf,
    /// Step limit of an episode. Default 3: room for two misses.
    pub horizon: u32,
    /// Size of the frames, pixels: the top left part of the desktop. Default 160x210, the task with
    /// its instruction. The desktop is at least 14 pixels wider and higher.
    pub screen: Size,
    /// How long a page is given to notice a click, milliseconds. Default 150; it takes about 5.
    /// Longer is only waited where a click does not reach the page.
    pub settle_timeout_ms: u64,
    /// Longest answer of the browser, milliseconds. Default 10,000.
    pub command_timeout_ms: u64,
    /// Desktops that are running already, one for each environment: a table or a list of tables.
    /// Default none: each environment starts a desktop of its own.
    #[serde(
        deserialize_with = "attach::one_or_several",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub attach: Vec<AttachConfig>,
    /// The own desktop of each environment. Unused with `attach`.
    pub desktop: DesktopConfig,
    /// Deadlines of the episode layer.
    pub limits: DeviceEnvironmentConfig,
}

impl Default for MiniwobConfig {
    fn default() -> Self {
        Self {
            tasks: DEFAULT_TASKS.map(str::to_owned).to_vec(),
            pages_dir: "target/miniwob/html".into(),
            horizon: 3,
            screen: Size::new(160, 210),
            settle_timeout_ms: 150,
            command_timeout_ms: 10_000,
            attach: Vec::new(),
            desktop: DesktopConfig::default(),
            limits: DeviceEnvironmentConfig::default(),
        }
    }
}

/// What a task needs to be set up.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TaskParams {
    /// The name of the page.
    pub(super) page: String,
}

fn refused(message: String) -> Error {
    Error::new(ErrorKind::Config, "dart-env-vnc", "miniwob", message)
}

impl MiniwobConfig {
    /// The tasks of `split`: one for each page, `miniwob.<page>` for training and
    /// `miniwob.<page>.layouts` held out, whose seeds are never used in training. The pages have
    /// no held-out words, so that split is empty.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if a name is not that of a page.
    pub fn tasks(&self, split: Split) -> Result<Vec<Task>> {
        let suffix = match split {
            Split::Train => "",
            Split::Layouts => ".layouts",
            Split::Words => return Ok(Vec::new()),
        };
        let task = |page: &String| {
            check_name(page)?;
            Ok(Task {
                id: TaskId::new(format!("miniwob.{page}{suffix}"))?,
                family: page.clone(),
                split,
                horizon: self.horizon,
                params: serde_json::json!(TaskParams { page: page.clone() }),
            })
        };
        self.tasks.iter().map(task).collect()
    }

    /// Checks everything that can be checked without starting anything.
    pub(super) fn check(&self) -> Result<()> {
        if self.tasks.is_empty() {
            return Err(refused("environment.tasks is empty: name a page".into()));
        }
        if self.horizon == 0 {
            return Err(refused("environment.horizon is at least 1".into()));
        }
        self.check_screen()?;
        if !self.pages_dir.join("core/core.js").is_file() {
            return Err(refused(format!(
                "no MiniWoB++ pages in {}: run `cargo xtask fetch-miniwob`, or set environment.pages_dir",
                self.pages_dir.display()
            )));
        }
        for page in &self.tasks {
            self.page_path(page)?;
        }
        if self.attach.is_empty() {
            self.desktop.preflight()
        } else {
            attach::check(&self.attach)
        }
    }

    /// Checks the sizes. How large a running desktop is turns out when it is attached to.
    fn check_screen(&self) -> Result<()> {
        let attached = !self.attach.is_empty();
        let desktop = Size::new(self.desktop.width, self.desktop.height);
        let fits =
            |part: u32, whole: u32| part > 0 && (attached || part.saturating_add(MARGIN) <= whole);
        if fits(self.screen.width, desktop.width) && fits(self.screen.height, desktop.height) {
            return Ok(());
        }
        Err(refused(format!(
            "environment.screen {} needs a desktop that is {MARGIN} pixels wider and higher; it is {desktop}",
            self.screen
        )))
    }

    /// The path of a page on the server, if there is such a page.
    pub(super) fn page_path(&self, page: &str) -> Result<String> {
        check_name(page)?;
        let path = format!("miniwob/{page}.html");
        if self.pages_dir.join(Path::new(&path)).is_file() {
            return Ok(format!("/{path}"));
        }
        Err(refused(format!(
            "there is no MiniWoB++ task {page} in {}",
            self.pages_dir.display()
        )))
    }
}

/// Names are letters, digits and `-`: they become part of a path and of a script.
fn check_name(page: &str) -> Result<()> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
    if (1..=64).contains(&page.len()) && page.chars().all(plain) {
        return Ok(());
    }
    let shown: String = page.chars().take(64).collect();
    Err(refused(format!("{shown:?} is not the name of a task")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_splits_differ_in_id_and_share_the_family() {
        let config = MiniwobConfig::default();
        let train = config.tasks(Split::Train).unwrap();
        let held_out = config.tasks(Split::Layouts).unwrap();
        assert_eq!(train.len(), 5);
        assert_eq!(train[1].id.as_str(), "miniwob.click-test-2");
        assert_eq!(held_out[1].id.as_str(), "miniwob.click-test-2.layouts");
        assert_eq!(train[1].family, held_out[1].family);
        assert!(config.tasks(Split::Words).unwrap().is_empty());
    }

    #[test]
    fn mistakes_are_named() {
        let with = |change: fn(&mut MiniwobConfig)| {
            let mut config = MiniwobConfig::default();
            change(&mut config);
            let error = config.check().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config);
            error.to_string()
        };
        assert!(with(|c| c.tasks.clear()).contains("environment.tasks"));
        assert!(with(|c| c.horizon = 0).contains("environment.horizon"));
        assert!(with(|c| c.screen.width = 170).contains("170x210"));
        let missing = with(|c| c.pages_dir = "/nonexistent".into());
        assert!(missing.contains("cargo xtask fetch-miniwob"), "{missing}");
        let odd = MiniwobConfig {
            tasks: vec!["../x".into()],
            ..MiniwobConfig::default()
        };
        let error = odd.tasks(Split::Train).unwrap_err();
        assert!(error.to_string().contains("../x"));
    }
}
