//! Settings of MiniWoB++ environments, and their tasks.

use std::path::PathBuf;

use dart_core::{DeviceEnvironmentConfig, Error, ErrorKind, Result, Size, Split, Task, TaskId};
use serde::{Deserialize, Serialize};

use super::{
    attach::{self, AttachConfig},
    registry::{TaskInfo, UNKNOWN, nearest, task_info},
};
use crate::DesktopConfig;

/// Space beside and below the task that the driver needs for its mark and for the pointer.
pub(super) const MARGIN: u32 = 14;

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
    /// The tasks, by name: those of [`TASKS`](super::TASKS), and pages of the user's own in the
    /// folder `miniwob` of `pages_dir`. Default: click-test, click-test-2, click-widget, focus-text
    /// and click-dialog, which one right click solves.
    pub tasks: Vec<String>,
    /// The folder `html` of the PyPI package `miniwob`: it holds `core`, `common` and `miniwob`.
    /// Default `target/miniwob/html`, where `cargo xtask fetch-miniwob` puts it.
    pub pages_dir: PathBuf,
    /// Step limit of an episode. Default: each task's own, from 3 for those that one click solves,
    /// with room for two misses, to 40; 10 for the user's own pages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub horizon: Option<u32>,
    /// Size of the frames, pixels: the top left part of the desktop. Default 160x210, the task with
    /// its instruction; tasks under `flight.` need 375x667. The desktop is at least 14 pixels wider
    /// and higher.
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
            horizon: None,
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
    /// The tasks of `split`: one for each page, `miniwob.<page>` for training,
    /// `miniwob.<page>.layouts` held out, whose seeds are never used in training, and
    /// `miniwob.<page>.words` for the few pages that have a distribution of their own for tests.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if a name is not that of a page.
    pub fn tasks(&self, split: Split) -> Result<Vec<Task>> {
        let mut tasks = Vec::new();
        for page in &self.tasks {
            let info = info(page)?;
            let suffix = match split {
                Split::Train => "",
                Split::Layouts => ".layouts",
                Split::Words if !info.has_test_words => continue,
                Split::Words => ".words",
            };
            tasks.push(Task {
                id: TaskId::new(format!("miniwob.{page}{suffix}"))?,
                family: page.clone(),
                split,
                horizon: self.horizon.unwrap_or(info.horizon),
                params: serde_json::json!(TaskParams { page: page.clone() }),
            });
        }
        Ok(tasks)
    }

    /// Checks everything that can be checked without starting anything.
    pub(super) fn check(&self) -> Result<()> {
        if self.tasks.is_empty() {
            return Err(refused("environment.tasks is empty: name a page".into()));
        }
        if self.horizon == Some(0) {
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
            let (info, _) = self.page(page)?;
            let Size { width, height } = info.size;
            if self.screen.width < width || self.screen.height < height {
                return Err(refused(format!(
                    "environment.screen {} is too small for {page}: it needs {}",
                    self.screen, info.size
                )));
            }
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

    /// What is known of a page, and its path on the server, if there is such a page.
    pub(super) fn page(&self, page: &str) -> Result<(TaskInfo, String)> {
        let info = info(page)?;
        let path = if info.name.is_empty() {
            format!("/miniwob/{page}.html")
        } else {
            info.path()
        };
        if self.pages_dir.join(&path[1..]).is_file() {
            return Ok((info, path));
        }
        if !info.name.is_empty() {
            return Err(refused(format!(
                "the MiniWoB++ task {page} is not in {}: run `cargo xtask fetch-miniwob`",
                self.pages_dir.display()
            )));
        }
        let near = nearest(page);
        let hint = if near.is_empty() {
            "docs/miniwob.md lists them".to_owned()
        } else {
            format!("did you mean {}?", near.join(", "))
        };
        Err(refused(format!(
            "there is no MiniWoB++ task {page} in {}: {hint}",
            self.pages_dir.display()
        )))
    }
}

/// What is known of the task `page`; nothing, if it is a page of the user's own.
///
/// The names of such pages are letters, digits, `-` and `_`: they become part of a path and of a
/// script.
pub(super) fn info(page: &str) -> Result<TaskInfo> {
    if let Some(info) = task_info(page) {
        return Ok(*info);
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if (1..=64).contains(&page.len()) && page.chars().all(plain) {
        return Ok(UNKNOWN);
    }
    let shown: String = page.chars().take(64).collect();
    let near = nearest(&shown);
    let hint = near.first().map(|near| format!(": did you mean {near}?"));
    Err(refused(format!(
        "{shown:?} is not the name of a task{}",
        hint.unwrap_or_default()
    )))
}

#[cfg(test)]
mod tests {
    use super::{super::TASKS, *};

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
        assert_eq!(train[1].horizon, 3);
        let all = MiniwobConfig {
            tasks: TASKS.iter().map(|task| task.name.to_owned()).collect(),
            horizon: Some(7),
            ..MiniwobConfig::default()
        };
        assert_eq!(all.tasks(Split::Train).unwrap().len(), TASKS.len());
        let words = all.tasks(Split::Words).unwrap();
        let ids: Vec<_> = words.iter().map(|task| task.id.as_str()).collect();
        assert!(
            ids.contains(&"miniwob.click-test-transfer.words"),
            "{ids:?}"
        );
        assert!(words.len() < 10 && words.iter().all(|task| task.horizon == 7));
    }

    #[test]
    fn unknown_names_are_answered_with_the_nearest() {
        let folder = tempfile::tempdir().unwrap();
        for file in ["core/core.js", "miniwob/my-page.html"] {
            let file = folder.path().join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, "").unwrap();
        }
        let error = |name: &str| {
            let config = MiniwobConfig {
                tasks: vec![name.to_owned()],
                pages_dir: folder.path().to_owned(),
                ..MiniwobConfig::default()
            };
            let error = config.check().map_err(|error| error.to_string());
            error.err().unwrap_or_default()
        };
        let text = error("click-buton");
        assert!(text.contains("did you mean click-button"), "{text}");
        let text = error("click button");
        assert!(text.contains("did you mean click-button"), "{text}");
        let text = error("click-test");
        assert!(text.contains("cargo xtask fetch-miniwob"), "{text}");
        let text = error("flight.AA/../x");
        assert!(text.contains("is not the name of a task"), "{text}");
        // A page of the user's own.
        let text = error("my-page");
        assert!(!text.contains("my-page"), "{text}");
    }

    #[test]
    fn an_airline_needs_a_larger_screen() {
        let folder = tempfile::tempdir().unwrap();
        for file in ["core/core.js", "flight/AA/wrapper.html"] {
            let file = folder.path().join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, "").unwrap();
        }
        let config = MiniwobConfig {
            tasks: vec!["flight.AA".to_owned()],
            pages_dir: folder.path().to_owned(),
            ..MiniwobConfig::default()
        };
        let text = config.check().unwrap_err().to_string();
        assert!(text.contains("flight.AA: it needs 375x667"), "{text}");
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
        assert!(with(|c| c.horizon = Some(0)).contains("environment.horizon"));
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
