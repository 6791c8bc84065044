//! Settings of an own desktop, and whether what it needs is installed.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use dart_core::Result;
use serde::{Deserialize, Serialize};

use super::fault::Fault;
use crate::config::check_deadline;

/// An X server refuses a display smaller or larger than this, per side.
const SIDES: std::ops::RangeInclusive<u32> = 64..=8192;

/// Names under which Chromium is installed, most usual first.
const BROWSERS: [&str; 4] = [
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
];

/// Settings of an own desktop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DesktopConfig {
    /// Width of the screen, pixels, 64 to 8192. Default 176: a MiniWoB++ task is 160 wide, and the
    /// rest holds the pointer between episodes.
    pub width: u32,
    /// Height of the screen, pixels, 64 to 8192. Default 224: a task is 210 high.
    pub height: u32,
    /// The browser's program. Default: the first found of chromium, chromium-browser,
    /// google-chrome and google-chrome-stable.
    pub browser: Option<PathBuf>,
    /// Where the desktop's temporary directory is made. Default: the system's temporary directory.
    pub directory: Option<PathBuf>,
    /// Longest start of one program, milliseconds. Default 30,000: a cold start of Chromium on a
    /// busy machine takes several seconds.
    pub start_timeout_ms: u64,
    /// Longest orderly end of one program, milliseconds; then it is killed. Default 8,000;
    /// it takes about 300, and on a loaded machine the supervisor itself kills after 1,500.
    pub stop_timeout_ms: u64,
}

impl Default for DesktopConfig {
    fn default() -> Self {
        Self {
            width: 176,
            height: 224,
            browser: None,
            directory: None,
            start_timeout_ms: 30_000,
            stop_timeout_ms: 8_000,
        }
    }
}

impl DesktopConfig {
    pub(super) const fn start_timeout(&self) -> Duration {
        Duration::from_millis(self.start_timeout_ms)
    }

    pub(super) fn check(&self) -> Result<(), Fault> {
        if !SIDES.contains(&self.width) || !SIDES.contains(&self.height) {
            return Err(Fault::Setting(format!(
                "desktop.width and desktop.height are 64 to 8192, not {}x{}",
                self.width, self.height
            )));
        }
        for (name, millis) in [
            ("desktop.start_timeout_ms", self.start_timeout_ms),
            ("desktop.stop_timeout_ms", self.stop_timeout_ms),
        ] {
            check_deadline(name, millis, 1).map_err(Fault::Setting)?;
        }
        Ok(())
    }

    /// Checks the settings and that everything a desktop needs is installed.
    ///
    /// # Errors
    /// [`Config`](dart_core::ErrorKind::Config), naming the setting, or the program and its Debian
    /// package.
    pub fn preflight(&self) -> Result<()> {
        self.check()?;
        self.programs()?;
        Ok(())
    }

    pub(super) fn programs(&self) -> Result<Programs, Fault> {
        for (program, package) in [("setsid", "util-linux"), ("openbox", "openbox")] {
            find(Path::new(program), package)?;
        }
        let server = find(Path::new("Xtigervnc"), "tigervnc-standalone-server")
            .map(|()| "Xtigervnc".to_owned())?;
        let browser = match &self.browser {
            Some(path) => {
                find(path, "chromium")?;
                path.display().to_string()
            }
            None => browser_program()?,
        };
        Ok(Programs { server, browser })
    }
}

/// The programs of a desktop, as they are called here.
pub(super) struct Programs {
    pub(super) server: String,
    pub(super) browser: String,
}

/// Whether `program` can be run: a path, or a name on the search path.
pub(super) fn find(program: &Path, package: &'static str) -> Result<(), Fault> {
    let search = std::env::var_os("PATH").unwrap_or_default();
    let found = if program.components().count() > 1 {
        program.is_file()
    } else {
        std::env::split_paths(&search).any(|dir| dir.join(program).is_file())
    };
    if found {
        return Ok(());
    }
    Err(Fault::Missing {
        program: program.display().to_string(),
        package,
    })
}

/// The browser's program: the first that is installed.
pub(crate) fn browser_program() -> Result<String, Fault> {
    let installed = |name: &&&str| find(Path::new(name), "chromium").is_ok();
    let missing = || Fault::Missing {
        program: "chromium".to_owned(),
        package: "chromium",
    };
    let found = BROWSERS.iter().find(installed);
    found.map(|name| (*name).to_owned()).ok_or_else(missing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dart_core::ErrorKind;

    #[test]
    fn a_missing_program_is_named_with_its_package() {
        let config = DesktopConfig {
            browser: Some("/nonexistent/browser".into()),
            ..DesktopConfig::default()
        };
        let error = find(config.browser.as_deref().unwrap(), "chromium").unwrap_err();
        let error = dart_core::Error::from(error);
        assert_eq!(error.kind(), ErrorKind::Config);
        let text = error.to_string();
        assert!(
            text.contains("/nonexistent/browser is not installed"),
            "{text}"
        );
        assert!(text.contains("apt-get install chromium"), "{text}");
    }

    #[test]
    fn a_senseless_size_is_refused() {
        let config = DesktopConfig {
            width: 10,
            ..DesktopConfig::default()
        };
        let error = config.preflight().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains("10x224"));
    }

    #[test]
    fn an_endless_deadline_is_refused() {
        let config = DesktopConfig {
            start_timeout_ms: u64::MAX,
            ..DesktopConfig::default()
        };
        let error = config.preflight().unwrap_err();
        assert!(error.to_string().contains("desktop.start_timeout_ms"));
    }

    #[test]
    fn unknown_settings_are_refused() {
        let error = serde_json::from_str::<DesktopConfig>(r#"{"widht":3}"#).unwrap_err();
        assert!(error.to_string().contains("widht"));
    }
}
