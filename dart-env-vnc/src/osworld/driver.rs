//! [`OsworldDriver`]: sets OSWorld's tasks up and judges them.

use std::{path::Path, sync::Arc, time::Duration};

use async_trait::async_trait;
use dart_core::{Device, EpisodeEnd, Error, ErrorKind, Result, Reward, Size, Task, TaskDriver};
use tokio::time::{Instant, sleep};

use super::{
    config::{GuestConfig, HostExec, OsworldConfig, ServerConfig},
    device::{OsworldDevice, Seat},
    episode::{Episode, Scene},
    error::{Fault, bounded},
    external::Place,
    local::{
        LocalGuest, Policy,
        run::{Job, to_end},
    },
    placeholder::Placeholders,
    server::ServerGuest,
    support::{Capabilities, Support},
    task::OsworldTask,
};

/// After the last step the screen is given time to show what was started.
const QUIET: Duration = Duration::from_millis(300);
const LONGEST: Duration = Duration::from_secs(5);

/// Time between two questions to a machine that is starting.
const POLL: Duration = Duration::from_millis(500);

/// Sets OSWorld's tasks up on an [`OsworldDevice`] and judges them.
#[derive(Debug)]
pub struct OsworldDriver {
    config: Arc<OsworldConfig>,
    host_exec: HostExec,
    capabilities: Capabilities,
    episode: Option<Episode>,
    /// The judgement of an episode that has ended: its last steps are not taken twice.
    judged: Option<Reward>,
}

impl OsworldDriver {
    /// A driver for the tasks of `config`.
    ///
    /// # Errors
    /// [`Config`](ErrorKind::Config) if the folder of reference files cannot be read.
    pub fn new(config: Arc<OsworldConfig>, host_exec: HostExec) -> Result<Self> {
        Ok(Self {
            capabilities: Capabilities::of(&config, host_exec)?,
            config,
            host_exec,
            episode: None,
            judged: None,
        })
    }

    async fn begin(&mut self, device: &mut OsworldDevice, task: OsworldTask) -> Result<()> {
        let put_back = match device.seat().server().cloned() {
            Some(server) => self.put_back(&server).await?,
            None => false,
        };
        device.fresh(put_back).await?;
        let screen = device.spec().screen;
        let scene = match device.seat() {
            Seat::Local(local) => {
                let policy = Policy::new(local, self.host_exec);
                let guest = LocalGuest::begin(local, policy, device.desktop()?).await?;
                self.scene(Box::new(guest), Place::Local, screen, None)
            }
            Seat::Server(taken) => {
                let server = taken.config();
                let guest = ServerGuest::new(server)?;
                let password = server.password()?;
                let place = Place::Server(server.address.clone());
                self.scene(Box::new(guest), place, screen, password)
            }
        };
        // Kept before its first step: tear-down ends what a failed set-up has started.
        let episode = self.episode.insert(Episode::new(task, scene));
        episode.set_up(device).await?;
        device.settle(QUIET, LONGEST).await
    }

    fn scene(
        &self,
        guest: Box<dyn super::Guest>,
        place: Place,
        screen: Size,
        password: Option<String>,
    ) -> Scene {
        Scene {
            guest,
            place,
            placeholders: Placeholders::new(screen, password),
            files_dir: self.config.files_dir.clone(),
        }
    }

    /// Puts a virtual machine back, if there is a command for it, and waits until it answers.
    async fn put_back(&self, server: &ServerConfig) -> Result<bool> {
        if server.reset.is_empty() {
            return Ok(false);
        }
        if self.host_exec == HostExec::Denied {
            let message = "guest.servers: reset needs --allow-host-exec".to_owned();
            return Err(Fault::Setting(message).into());
        }
        let boot = Duration::from_millis(server.boot_timeout_ms);
        let path = std::env::var("PATH").unwrap_or_default();
        let home = std::env::var("HOME").unwrap_or_default();
        let job = Job {
            words: &server.reset,
            environment: &[("PATH", path), ("HOME", home)],
            folder: Path::new("."),
            input: Vec::new(),
            deadline: boot,
            limit: 1 << 20,
            talkative: true,
        };
        let output = to_end(job).await?;
        if output.code != 0 {
            return Err(Fault::Step {
                what: server.reset.join(" "),
                code: output.code,
                said: bounded(&output.stderr),
            }
            .into());
        }
        let guest = ServerGuest::new(server)?;
        let end = Instant::now() + boot;
        loop {
            match guest.ping().await {
                Ok(()) => return Ok(true),
                Err(error) if Instant::now() >= end => return Err(error),
                Err(_) => sleep(POLL).await,
            }
        }
    }
}

/// What is wrong with the task before anything is started.
fn refused(task: &Task, reasons: &[String]) -> Error {
    let message = format!("not supported: {}", reasons.join("; "));
    Error::new(ErrorKind::Unsupported, "dart-env-vnc", "osworld", message).with("task", &task.id)
}

#[async_trait]
impl TaskDriver<OsworldDevice> for OsworldDriver {
    async fn set_up(
        &mut self,
        device: &mut OsworldDevice,
        task: &Task,
        _seed: u64,
    ) -> Result<Arc<str>> {
        self.tear_down(device).await?;
        let read = OsworldTask::from_value(task.id.as_str(), task.params.clone())?;
        if let Support::Unsupported { reasons } = self.capabilities.support(&read) {
            return Err(refused(task, &reasons));
        }
        let instruction = read.instruction.as_str().into();
        self.begin(device, read).await?;
        Ok(instruction)
    }

    async fn ended(&mut self, _: &mut OsworldDevice) -> Result<bool> {
        // OSWorld's tasks end when the agent says so.
        Ok(false)
    }

    async fn score(&mut self, device: &mut OsworldDevice, end: &EpisodeEnd) -> Result<Reward> {
        if let Some(reward) = self.judged {
            return Ok(reward);
        }
        let message = "no task: set one up first";
        let missing = || Error::new(ErrorKind::Misuse, "dart-env-vnc", "score", message);
        let episode = self.episode.as_mut().ok_or_else(missing)?;
        let evaluator = self.config.evaluator.as_ref();
        let evaluator = evaluator.filter(|_| self.host_exec == HostExec::Allowed);
        let reward = episode.judge(device, end, evaluator).await?;
        if end.stop.is_some() {
            self.judged = Some(reward);
        }
        Ok(reward)
    }

    async fn tear_down(&mut self, _: &mut OsworldDevice) -> Result<()> {
        self.judged = None;
        match self.episode.take() {
            Some(mut episode) => episode.close().await,
            None => Ok(()),
        }
    }
}

/// Checks what can be checked without starting anything.
pub(super) fn check(config: &OsworldConfig, host_exec: HostExec) -> Result<()> {
    if config.horizon == 0 {
        return Err(Fault::Setting("environment.horizon is at least 1".into()).into());
    }
    if let Some(evaluator) = &config.evaluator {
        if evaluator.command.first().is_none_or(String::is_empty) {
            return Err(Fault::Setting("environment.evaluator.command is empty".into()).into());
        }
        if host_exec == HostExec::Denied {
            tracing::warn!("environment.evaluator is not used: it needs --allow-host-exec");
        }
    }
    match &config.guest {
        GuestConfig::Local(local) => {
            crate::desktop::bare::BareDesktop::preflight(&local.desktop()).map_err(Fault::from)?;
            crate::desktop::bare::require("wmctrl", "wmctrl").map_err(Fault::from)?;
        }
        GuestConfig::Servers { servers } if servers.is_empty() => {
            return Err(Fault::Setting("environment.guest.servers is empty".into()).into());
        }
        GuestConfig::Servers { servers } => {
            for server in servers {
                server.host_and_port()?;
                server.password()?;
                if !server.reset.is_empty() && host_exec == HostExec::Denied {
                    let message = "environment.guest.servers: reset needs --allow-host-exec";
                    return Err(Fault::Setting(message.into()).into());
                }
            }
        }
    }
    Ok(())
}
