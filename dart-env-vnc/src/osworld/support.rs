//! What of a task is not supported, said before a run: an unsupported task is never scored.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use dart_core::Size;

use super::{
    config::{EvaluatorConfig, GuestConfig, HostExec, OsworldConfig},
    error::Fault,
    getter::{Getter, Source},
    local, metrics,
    placeholder::{self, Placeholders},
    pyautogui,
    step::{CommandText, GuestCommand, SetupStep},
    task::{Check, Evaluator, OsworldTask},
};

/// What a configuration offers to tasks.
#[derive(Clone, Debug)]
pub struct Capabilities {
    /// A desktop of this machine, with what is allowed there; otherwise OSWorld's server.
    local: Option<local::Policy>,
    /// The placeholders of a local desktop, whose size is known.
    placeholders: Option<Placeholders>,
    /// Whether `{CLIENT_PASSWORD}` is known.
    password: bool,
    /// Whether sites behind a proxy are reached.
    proxy: bool,
    /// The evaluator's metrics; empty for all; `None` without one.
    evaluator: Option<Vec<String>>,
    /// The evaluator is configured and not allowed.
    evaluator_denied: bool,
    /// Reference files that are there, as `<task id>/<name>`.
    references: BTreeSet<String>,
}

/// Whether a task can be set up and judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Support {
    /// It can.
    Supported,
    /// It cannot.
    Unsupported {
        /// Each thing that it needs and that is not there.
        reasons: Vec<String>,
    },
}

impl Support {
    /// What is missing; empty if nothing is.
    pub fn reasons(self) -> Vec<String> {
        match self {
            Self::Supported => Vec::new(),
            Self::Unsupported { reasons } => reasons,
        }
    }
}

/// The files in `folder`, as `<folder>/<name>`. At most 100,000.
fn references(folder: Option<&PathBuf>) -> Result<BTreeSet<String>, Fault> {
    let Some(folder) = folder else {
        return Ok(BTreeSet::new());
    };
    let list = |path: &Path| {
        std::fs::read_dir(path).map_err(|cause| Fault::Read {
            what: path.display().to_string(),
            cause,
        })
    };
    let mut found = BTreeSet::new();
    for task in list(folder)?
        .flatten()
        .filter(|entry| entry.path().is_dir())
    {
        let files = list(&task.path())?.flatten();
        for file in files.filter(|entry| entry.path().is_file()) {
            let (task, file) = (task.file_name(), file.file_name());
            found.insert(format!("{}/{}", task.display(), file.display()));
            if found.len() > 100_000 {
                let folder = folder.display();
                return Err(Fault::Setting(format!("{folder} holds too many files")));
            }
        }
    }
    Ok(found)
}

/// The last part of a path, under which a downloaded file is looked up.
pub(super) fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

impl Capabilities {
    /// What `config` offers.
    ///
    /// # Errors
    /// [`Config`](dart_core::ErrorKind::Config) if the folder of reference files cannot be read.
    pub fn of(config: &OsworldConfig, host_exec: HostExec) -> dart_core::Result<Self> {
        let (local, password, proxy) = match &config.guest {
            GuestConfig::Local(local) => (Some(local::Policy::new(local, host_exec)), false, false),
            GuestConfig::Servers { servers } => {
                let all = |has: fn(&super::config::ServerConfig) -> bool| servers.iter().all(has);
                (None, all(|s| s.password_env.is_some()), all(|s| s.proxy))
            }
        };
        let screen = match &config.guest {
            GuestConfig::Local(local) => Some(Size::new(local.width, local.height)),
            GuestConfig::Servers { .. } => None,
        };
        let evaluator = config.evaluator.as_ref();
        let allowed = host_exec == HostExec::Allowed;
        Ok(Self {
            local,
            placeholders: screen.map(|screen| Placeholders::new(screen, None)),
            password,
            proxy,
            evaluator: evaluator
                .filter(|_| allowed)
                .map(|EvaluatorConfig { metrics, .. }| metrics.clone()),
            evaluator_denied: evaluator.is_some() && !allowed,
            references: references(config.files_dir.as_ref())?,
        })
    }

    /// Whether `task` can be set up and judged.
    pub fn support(&self, task: &OsworldTask) -> Support {
        let mut reasons = BTreeSet::new();
        if task.proxy && !self.proxy {
            reasons.insert("it reaches web sites through a proxy".to_owned());
        }
        for step in &task.config {
            self.step(task, step, &mut reasons);
        }
        if let Evaluator::Checks {
            postconfig,
            checks,
            unknown,
            ..
        } = &task.evaluator
        {
            for step in postconfig {
                self.step(task, step, &mut reasons);
            }
            for check in checks {
                self.check(task, check, &mut reasons);
            }
            reasons.extend(unknown.iter().map(|key| format!("evaluator key {key}")));
        }
        if reasons.is_empty() {
            return Support::Supported;
        }
        Support::Unsupported {
            reasons: reasons.into_iter().collect(),
        }
    }

    fn has(&self, task: &OsworldTask, name: &str) -> bool {
        self.references.contains(&format!("{}/{name}", task.id))
    }

    fn step(&self, task: &OsworldTask, step: &SetupStep, reasons: &mut BTreeSet<String>) {
        let reason = match step {
            SetupStep::Download(files) => self.download(task, files),
            SetupStep::Launch(command) => self.command(command, true),
            SetupStep::Execute { command, .. } => self.command(command, false),
            SetupStep::ChromeOpenTabs(urls) => self.pages(urls),
            SetupStep::Open { path } => self
                .local
                .as_ref()
                .and_then(|_| local::Policy::opens(path).err()),
            SetupStep::Sleep(_)
            | SetupStep::ActivateWindow(_)
            | SetupStep::CloseWindow(_)
            | SetupStep::ChromeCloseTabs(_) => None,
            SetupStep::Login { platform } => Some(format!("a login to {platform}")),
            SetupStep::UpdateBrowseHistory(_)
            | SetupStep::GoogleDrive
            | SetupStep::Other { .. } => Some(format!("step {}", step.kind())),
        };
        reasons.extend(reason);
    }

    fn download(&self, task: &OsworldTask, files: &[super::step::Download]) -> Option<String> {
        self.local.as_ref()?;
        let bad = files
            .iter()
            .find_map(|file| local::Policy::path(&file.path).err());
        let missing = || {
            let absent = |name: &&str| !self.has(task, name);
            let name = files
                .iter()
                .map(|file| file_name(&file.path))
                .find(absent)?;
            Some(format!("download of {name}: not in files_dir/{}", task.id))
        };
        bad.or_else(missing)
    }

    fn pages(&self, urls: &[String]) -> Option<String> {
        let policy = self.local.as_ref()?;
        urls.iter().find_map(|url| policy.page(url).err())
    }

    fn command(&self, command: &GuestCommand, launch: bool) -> Option<String> {
        if let Some(name) = self.unknown_placeholder(command) {
            return Some(format!("{{{name}}} in a command"));
        }
        if let Err(why) = command.words() {
            return Some(why.to_owned());
        }
        let policy = self.local.as_ref()?;
        let filled = self.placeholders.as_ref().map(|known| known.fill(command));
        // Input that the desktop gets through VNC instead: nothing runs on this machine.
        if !launch && filled.as_ref().and_then(pyautogui::read).is_some() {
            return None;
        }
        if launch {
            policy.launches(command).err()
        } else {
            policy.executes(command).err()
        }
    }

    /// A placeholder that stays in the text.
    fn unknown_placeholder(&self, command: &GuestCommand) -> Option<&'static str> {
        let holds = |name: &str| match &command.command {
            CommandText::Line(line) => placeholder::holds(line, name),
            CommandText::Words(words) => words.iter().any(|word| placeholder::holds(word, name)),
        };
        (!self.password && holds(placeholder::PASSWORD)).then_some(placeholder::PASSWORD)
    }

    fn check(&self, task: &OsworldTask, check: &Check, reasons: &mut BTreeSet<String>) {
        let external = self.evaluates(&check.func);
        let odd = metrics::unknown_option(&check.func, &check.options).filter(|_| !external);
        let native = metrics::judges(&check.func, &check.options) || odd.is_some();
        reasons.extend(odd);
        if !native && !external {
            let denied = if self.evaluator_denied {
                " (the evaluator needs --allow-host-exec)"
            } else {
                ""
            };
            reasons.insert(format!("metric {}{denied}", check.func));
        }
        if native && check.result.is_none() {
            reasons.insert(format!("metric {} without a result", check.func));
        }
        if native && check.expected.is_none() {
            reasons.insert(format!("metric {} without anything expected", check.func));
        }
        if let (
            true,
            Some(Source {
                getter: Getter::Rule(rules),
                ..
            }),
        ) = (native, &check.expected)
        {
            reasons.extend(metrics::complaint(&check.func, rules, &check.options));
        }
        for source in check.result.iter().chain(&check.expected) {
            reasons.extend(self.source(task, source, external));
        }
    }

    /// Whether the external evaluator is there for `metric`.
    pub(super) fn evaluates(&self, metric: &str) -> bool {
        let knows = |names: &Vec<String>| names.is_empty() || names.iter().any(|n| n == metric);
        self.evaluator.as_ref().is_some_and(knows)
    }

    fn source(&self, task: &OsworldTask, source: &Source, external: bool) -> Option<String> {
        let local = self.local.as_ref();
        let absent = |names: &[super::getter::FileRef]| {
            let name = names
                .iter()
                .map(|file| &file.dest)
                .find(|name| !self.has(task, name))?;
            Some(format!(
                "reference file {name}: not in files_dir/{}",
                task.id
            ))
        };
        match &source.getter {
            Getter::CloudFile(files) => absent(files),
            Getter::VmCommandLine(command) | Getter::VmCommandError(command) => {
                self.command(command, false)
            }
            Getter::VmFile(files) => files
                .iter()
                .find_map(|file| local.and_then(|_| local::Policy::path(&file.path).err())),
            Getter::ListDirectory { path } => local.and_then(|_| local::Policy::path(path).err()),
            Getter::VmTerminalOutput | Getter::AccessibilityTree => {
                local.map(|_| format!("getter {} on a local desktop", source.getter.kind()))
            }
            Getter::Other { kind } if !external => Some(format!("getter {kind}")),
            Getter::Rule(_)
            | Getter::CacheFile { .. }
            | Getter::GimpConfigFile(_)
            | Getter::VlcConfig(_)
            | Getter::OpenTabsInfo
            | Getter::Bookmarks
            | Getter::Other { .. } => None,
        }
    }
}
