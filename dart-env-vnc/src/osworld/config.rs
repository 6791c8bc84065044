//! Settings of OSWorld environments, and their tasks.

use std::path::PathBuf;

use dart_core::{DeviceEnvironmentConfig, Result, Split, Task, TaskId};
use serde::{Deserialize, Serialize};

use super::{error::Fault, local, support::Capabilities, task::TaskFile};
use crate::{DesktopConfig, VncConfig};

/// Settings of OSWorld environments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OsworldConfig {
    /// The folder of task files, read with its subfolders. Default `osworld/tasks`.
    pub tasks_dir: PathBuf,
    /// The tasks to use, by id. Default empty: all.
    pub tasks: Vec<String>,
    /// Tasks, by id, that are kept for evaluation and never trained on. Default none.
    pub held_out: Vec<String>,
    /// Leave tasks out that this configuration does not support, with a warning, instead of
    /// refusing to start. Default false.
    pub skip_unsupported: bool,
    /// Step limit of an episode. Default 30, as in arXiv 2509.23866 §4.
    pub horizon: u32,
    /// Reference files and files that tasks download: `<task id>/<file name>`. Default none.
    pub files_dir: Option<PathBuf>,
    /// Where tasks run. Default `local`.
    pub guest: GuestConfig,
    /// The program that judges what this project does not. Default none.
    pub evaluator: Option<EvaluatorConfig>,
    /// Deadlines of the episode layer. Default 300,000 ms for a reset, 90,000 for a step, 300,000
    /// for a judgement: a task's own pauses and programs are in them.
    pub limits: DeviceEnvironmentConfig,
}

impl Default for OsworldConfig {
    fn default() -> Self {
        Self {
            tasks_dir: "osworld/tasks".into(),
            tasks: Vec::new(),
            held_out: Vec::new(),
            skip_unsupported: false,
            horizon: 30,
            files_dir: None,
            guest: GuestConfig::default(),
            evaluator: None,
            limits: DeviceEnvironmentConfig {
                reset_timeout_ms: 300_000,
                step_timeout_ms: 90_000,
                score_timeout_ms: 300_000,
                close_timeout_ms: 20_000,
            },
        }
    }
}

/// Where tasks run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum GuestConfig {
    /// A desktop of this machine, an own one for each environment.
    Local(LocalConfig),
    /// Virtual machines with OSWorld's server, one for each environment.
    Servers {
        /// The machines.
        servers: Vec<ServerConfig>,
    },
}

impl Default for GuestConfig {
    fn default() -> Self {
        Self::Local(LocalConfig::default())
    }
}

/// A desktop of this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LocalConfig {
    /// Width of the screen, pixels. Default 1280.
    pub width: u32,
    /// Height of the screen, pixels. Default 720.
    pub height: u32,
    /// Programs that tasks may start without `--allow-host-exec`, with file names and addresses as
    /// arguments only. Default: the applications that OSWorld's tasks are about.
    pub programs: Vec<String>,
    /// Whether the browser may reach other machines. Default false: only pages of this machine.
    pub network: bool,
    /// Longest run of one command, milliseconds. Default 120,000, as in OSWorld's server.
    pub command_timeout_ms: u64,
    /// Longest wait for a window that should appear, milliseconds. Default 30,000: a cold start of
    /// an office program on a busy machine takes many seconds.
    pub window_timeout_ms: u64,
    /// Largest file or output that is read, bytes. Default 64 MiB.
    pub max_answer_bytes: usize,
    /// Where the desktop's temporary directory is made. Default: the system's.
    pub directory: Option<PathBuf>,
}

/// What `LocalConfig::programs` holds by default.
const PROGRAMS: [&str; 16] = [
    "chromium",
    "code",
    "galculator",
    "gedit",
    "gimp",
    "google-chrome",
    "l3afpad",
    "libreoffice",
    "localc",
    "loimpress",
    "lowriter",
    "mousepad",
    "nautilus",
    "soffice",
    "thunderbird",
    "vlc",
];

impl Default for LocalConfig {
    fn default() -> Self {
        Self {
            width: 1280,
            height: 720,
            programs: PROGRAMS.map(str::to_owned).to_vec(),
            network: false,
            command_timeout_ms: 120_000,
            window_timeout_ms: 30_000,
            max_answer_bytes: 64 << 20,
            directory: None,
        }
    }
}

impl LocalConfig {
    pub(super) fn desktop(&self) -> DesktopConfig {
        DesktopConfig {
            width: self.width,
            height: self.height,
            directory: self.directory.clone(),
            ..DesktopConfig::default()
        }
    }
}

/// A virtual machine with OSWorld's server. Whoever reaches its port has a shell in it: the address
/// has to be on loopback, or on a network that only this machine is on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServerConfig {
    /// `host:port` of the server. Default `127.0.0.1:5000`.
    pub address: String,
    /// The same machine's screen.
    pub vnc: VncConfig,
    /// Port of its browser's DevTools, on the same host. Default 9222.
    pub devtools_port: u16,
    /// Home of its user. Default `/home/user`.
    pub home: String,
    /// Name of the environment variable that holds the password of its user, for
    /// `{CLIENT_PASSWORD}` in tasks. Default none: such tasks are unsupported.
    pub password_env: Option<String>,
    /// Command of this machine that puts the virtual machine back, run before each episode; its
    /// arguments are not interpreted. Needs `--allow-host-exec`. Default none: nothing is put back.
    pub reset: Vec<String>,
    /// Longest wait for a machine that was put back, milliseconds. Default 180,000.
    pub boot_timeout_ms: u64,
    /// Longest exchange, milliseconds. Default 130,000: the server gives a command 120,000.
    pub command_timeout_ms: u64,
    /// Largest answer, bytes. Default 64 MiB.
    pub max_answer_bytes: usize,
    /// Whether web sites that upstream reaches through a proxy are reached. Default false.
    pub proxy: bool,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            address: "127.0.0.1:5000".into(),
            vnc: VncConfig::default(),
            devtools_port: 9222,
            home: "/home/user".into(),
            password_env: None,
            reset: Vec::new(),
            boot_timeout_ms: 180_000,
            command_timeout_ms: 130_000,
            max_answer_bytes: 64 << 20,
            proxy: false,
        }
    }
}

impl ServerConfig {
    pub(super) fn host_and_port(&self) -> Result<(&str, u16), Fault> {
        let parts = self.address.rsplit_once(':');
        let parts = parts.and_then(|(host, port)| Some((host, port.parse::<u16>().ok()?)));
        match parts {
            Some((host, port)) if !host.is_empty() && port > 0 => Ok((host, port)),
            _ => Err(Fault::Setting(format!(
                "environment.guest.servers: address {:?} is not host:port: write it like 127.0.0.1:5000",
                self.address
            ))),
        }
    }

    /// The password of the guest's user, if one is configured.
    pub(super) fn password(&self) -> Result<Option<String>, Fault> {
        let Some(name) = &self.password_env else {
            return Ok(None);
        };
        match std::env::var(name) {
            Ok(text) if !text.is_empty() => Ok(Some(text)),
            _ => Err(Fault::Setting(format!(
                "environment.guest.servers: password_env names {name}, which is not set"
            ))),
        }
    }
}

/// A program that judges: JSON on its standard input, a score on its standard output
/// (`docs/osworld.md`). Runs on this machine, so it needs `--allow-host-exec`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EvaluatorConfig {
    /// Program and arguments; no shell interprets them.
    pub command: Vec<String>,
    /// The metrics it knows. Default empty: it is asked for every metric that is not native.
    #[serde(default)]
    pub metrics: Vec<String>,
    /// Longest judgement, milliseconds. Default 120,000.
    #[serde(default = "evaluator_timeout")]
    pub timeout_ms: u64,
}

const fn evaluator_timeout() -> u64 {
    120_000
}

/// Whether programs that a task or the config names may run on this machine. Says the command line
/// alone (`--allow-host-exec`), never a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostExec {
    /// They may.
    Allowed,
    /// They may not.
    #[default]
    Denied,
}

/// Most tasks that are named where none is supported.
const MOST_NAMED: usize = 10;

/// Steps and sources of a task that are not supported, as one line.
fn complaint(file: &TaskFile, reasons: &[String]) -> String {
    format!("{} ({}): {}", file.task.id, file.domain, reasons.join("; "))
}

impl OsworldConfig {
    /// The chosen task files, with what is not supported of each.
    ///
    /// # Errors
    /// [`Config`](dart_core::ErrorKind::Config) if a file does not parse or a chosen task is not there.
    pub fn files(&self, host_exec: HostExec) -> Result<Vec<(TaskFile, Vec<String>)>> {
        let all = TaskFile::read_all(&self.tasks_dir)?;
        let known = |id: &&String| all.iter().any(|file| file.task.id.as_str() == id.as_str());
        let mut wanted = self.tasks.iter().chain(&self.held_out);
        if let Some(missing) = wanted.find(|id| !known(id)) {
            let folder = self.tasks_dir.display();
            return Err(Fault::Setting(format!("there is no task {missing} in {folder}")).into());
        }
        let capabilities = Capabilities::of(self, host_exec)?;
        let chosen = all.into_iter().filter(|file| {
            let id = file.task.id.as_str();
            let listed = |list: &[String]| list.iter().any(|name| name == id);
            self.tasks.is_empty() || listed(&self.tasks) || listed(&self.held_out)
        });
        Ok(chosen
            .map(|file| {
                let mut reasons = capabilities.support(&file.task).reasons();
                if matches!(self.guest, GuestConfig::Local(_)) {
                    reasons.extend(local::absent(&file.task));
                }
                (file, reasons)
            })
            .collect())
    }

    /// The tasks of `split`: [`Split::Layouts`] has those of [`held_out`](Self::held_out), and
    /// [`Split::Words`] has none. What is not supported is left out with a warning or refused.
    ///
    /// # Errors
    /// [`Config`](dart_core::ErrorKind::Config) as for [`files`](Self::files), and if a task is not
    /// supported, naming each with the reasons, or with `skip_unsupported` if none to train on is.
    pub fn tasks(&self, split: Split, host_exec: HostExec) -> Result<Vec<Task>> {
        let mut tasks = Vec::new();
        let mut refused = Vec::new();
        for (file, reasons) in self.files(host_exec)? {
            let held_out = self.held_out.iter().any(|id| id == file.task.id.as_str());
            let own = if held_out {
                Split::Layouts
            } else {
                Split::Train
            };
            if own != split {
                continue;
            }
            if !reasons.is_empty() {
                refused.push(complaint(&file, &reasons));
                continue;
            }
            tasks.push(Task {
                id: TaskId::new(format!("osworld.{}", file.task.id))?,
                family: file.domain,
                split,
                horizon: self.horizon,
                params: file.value,
            });
        }
        if refused.is_empty() {
            return Ok(tasks);
        }
        if split == Split::Train && tasks.is_empty() && self.skip_unsupported {
            refused.truncate(MOST_NAMED);
            let head = "no task is supported (cargo xtask setup installs what a desktop needs)";
            refused.insert(0, head.into());
            return Err(Fault::Setting(refused.join("\n  ")).into());
        }
        if !self.skip_unsupported {
            refused.insert(
                0,
                "tasks that are not supported (environment.skip_unsupported = true leaves them out)"
                    .into(),
            );
            return Err(Fault::Setting(refused.join("\n  ")).into());
        }
        for line in refused {
            tracing::warn!(task = line, "left out: not supported");
        }
        Ok(tasks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn config(value: serde_json::Value) -> Result<OsworldConfig, serde_json::Error> {
        serde_json::from_value(value)
    }

    #[test]
    fn settings_come_back_and_unknown_ones_are_refused() {
        let servers = json!({"guest": {"kind": "servers", "servers": [{"address": "a:1"}]}});
        for good in [
            json!({}),
            json!({"guest": {"kind": "local", "width": 800}}),
            servers,
        ] {
            let read = config(good).unwrap();
            assert_eq!(config(json!(read)).unwrap(), read);
        }
        for bad in [
            json!({"guest": {"kind": "local", "widht": 800}}),
            json!({"guest": {"kind": "servers", "servers": [], "server": 1}}),
            json!({"guest": {"kind": "servers", "servers": [{"adress": "a:1"}]}}),
            json!({"evaluator": {"command": ["a"], "shell": true}}),
            // Only the command line allows programs of this machine.
            json!({"allow_host_exec": true}),
        ] {
            assert!(config(bad.clone()).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_task_that_is_not_there_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let config = OsworldConfig {
            tasks_dir: folder.path().to_owned(),
            tasks: vec!["none".into()],
            ..OsworldConfig::default()
        };
        let error = config.tasks(Split::Train, HostExec::Denied).unwrap_err();
        assert_eq!(error.kind(), dart_core::ErrorKind::Config);
        assert!(error.to_string().contains("no task none"), "{error}");
    }

    /// With nothing left there is no run, and it is said why.
    #[test]
    fn tasks_that_are_all_left_out_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let launch = json!({"type": "launch", "parameters": {"command": "no-such-program"}});
        let task = json!({
            "id": "a", "instruction": "b", "config": [launch], "evaluator": {"func": "infeasible"}
        });
        std::fs::write(folder.path().join("a.json"), task.to_string()).unwrap();
        let config = OsworldConfig {
            tasks_dir: folder.path().to_owned(),
            skip_unsupported: true,
            ..OsworldConfig::default()
        };
        let error = config.tasks(Split::Train, HostExec::Allowed).unwrap_err();
        let said = error.to_string();
        assert!(said.contains("cargo xtask setup"), "{said}");
        assert!(said.contains("no-such-program is not installed"), "{said}");
        let held_out = config.tasks(Split::Layouts, HostExec::Allowed);
        assert!(held_out.unwrap().is_empty());
    }

    #[test]
    fn a_password_that_is_not_set_is_named() {
        let config = ServerConfig {
            password_env: Some("DART_TEST_NO_SUCH_VARIABLE".into()),
            ..ServerConfig::default()
        };
        let error = dart_core::Error::from(config.password().unwrap_err());
        assert!(error.to_string().contains("DART_TEST_NO_SUCH_VARIABLE"));
    }
}
