//! A virtual machine under QEMU as a desktop: its screen over VNC, its snapshots over QMP.
//!
//! Both listen for this user only: VNC on the loopback interface behind a password, the monitor on
//! a socket in a private directory. The machine dies with the process that started it.
//! Loading a snapshot is a reset: afterwards the VNC server may stall, so
//! [`VncDevice::recover`](dart_core::Device::recover) has to follow.

mod monitor;
mod qcow2;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use dart_core::Result;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use self::monitor::Monitor;
use super::{
    config::find,
    fault::Fault,
    place::{Base, private_directory},
    secrets::{Secret, write_private},
    supervisor::Supervised,
    wait_for,
};
use crate::config::check_deadline;

/// What runs the guest's instructions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Accelerator {
    /// QEMU's own translation: slow, and works everywhere.
    #[default]
    Tcg,
    /// KVM. Never chosen on its own: that /dev/kvm exists does not mean that a guest boots.
    Kvm,
}

/// Settings of a virtual machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QemuConfig {
    /// The program. Default `qemu-system-x86_64`.
    pub program: PathBuf,
    /// The disk, a qcow2 image. It is written to, and snapshots are kept in it. Default none: a
    /// machine without a disk, whose snapshots last as long as it does.
    pub disk: Option<PathBuf>,
    /// The snapshot that the machine starts from and that a reset loads. Default none: it boots,
    /// and [`Qemu::save`] makes one.
    pub snapshot: Option<String>,
    /// Memory, MiB. Default 2,048.
    pub memory_mib: u32,
    /// What runs the guest. Default `tcg`.
    pub accelerator: Accelerator,
    /// More arguments, after ours; such as a network (`-nic`), without which there is none.
    pub arguments: Vec<String>,
    /// Where the private directory is made. Default: the system's temporary directory.
    pub directory: Option<PathBuf>,
    /// Longest start until the monitor answers, milliseconds. Default 30,000.
    pub start_timeout_ms: u64,
    /// Longest saving or loading of a snapshot, milliseconds. Default 120,000: gigabytes of memory
    /// are copied.
    pub snapshot_timeout_ms: u64,
    /// Longest end, milliseconds; then it is killed. Default 8,000.
    pub stop_timeout_ms: u64,
}

impl Default for QemuConfig {
    fn default() -> Self {
        Self {
            program: "qemu-system-x86_64".into(),
            disk: None,
            snapshot: None,
            memory_mib: 2_048,
            accelerator: Accelerator::Tcg,
            arguments: Vec::new(),
            directory: None,
            start_timeout_ms: 30_000,
            snapshot_timeout_ms: 120_000,
            stop_timeout_ms: 8_000,
        }
    }
}

/// Size of the disk that holds the snapshots of a machine without one. It grows as it is filled.
const STATE_DISK_BYTES: u64 = 1 << 30;

/// The monitor does not take apart what a name holds, so only harmless ones are let through.
fn check_name(name: &str) -> Result<(), Fault> {
    let harmless = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    // What begins with a dash is an option.
    let named = (1..=128).contains(&name.len()) && !name.starts_with('-');
    if named && name.chars().all(harmless) {
        return Ok(());
    }
    Err(Fault::Setting(format!(
        "the snapshot {name:?} needs a name of letters, digits, dots, dashes and underscores"
    )))
}

impl QemuConfig {
    /// Checks the settings and that QEMU is installed.
    ///
    /// # Errors
    /// [`Config`](dart_core::ErrorKind::Config), naming the setting or the Debian package.
    pub fn preflight(&self) -> Result<()> {
        Ok(self.check()?)
    }

    fn check(&self) -> Result<(), Fault> {
        find(&self.program, "qemu-system-x86")?;
        find(Path::new("setsid"), "util-linux")?;
        if let Some(name) = &self.snapshot {
            check_name(name)?;
        }
        for (name, millis) in [
            ("qemu.start_timeout_ms", self.start_timeout_ms),
            ("qemu.snapshot_timeout_ms", self.snapshot_timeout_ms),
            ("qemu.stop_timeout_ms", self.stop_timeout_ms),
        ] {
            check_deadline(name, millis, 1).map_err(Fault::Setting)?;
        }
        match &self.disk {
            Some(disk) if !disk.is_file() => Err(Fault::Setting(format!(
                "qemu.disk {} does not exist",
                disk.display()
            ))),
            _ => Ok(()),
        }
    }

    /// The command line of a machine whose files are in `directory`.
    fn command_line(&self, directory: &Path) -> Vec<String> {
        let file = |name: &str| directory.join(name).display().to_string();
        let disk = self.disk.as_ref().map(|path| path.display().to_string());
        // A comma ends an option; doubled, it is a part of it.
        let option = |path: String| path.replace(',', ",,");
        let accelerator = match self.accelerator {
            Accelerator::Tcg => "tcg",
            Accelerator::Kvm => "kvm",
        };
        let disk = option(disk.unwrap_or_else(|| file("state.qcow2")));
        let mut line = vec![
            "-accel".to_owned(),
            accelerator.to_owned(),
            "-m".to_owned(),
            self.memory_mib.to_string(),
            "-drive".to_owned(),
            format!("if=ide,format=qcow2,file={disk}"),
            "-object".to_owned(),
            format!("secret,id=vnc,file={}", option(file("password"))),
            "-vnc".to_owned(),
            "127.0.0.1:0,to=999,password-secret=vnc".to_owned(),
            "-qmp".to_owned(),
            format!("unix:{},server=on,wait=off", option(file("monitor"))),
        ];
        // A tablet tells the guest where the pointer is, not how far it moved.
        let fixed = "-display none -vga std -usb -device usb-tablet -no-user-config";
        line.extend(fixed.split(' ').map(str::to_owned));
        let network = |word: &String| word == "-nic" || word == "-netdev";
        if !self.arguments.iter().any(network) {
            line.extend(["-nic", "none"].map(str::to_owned));
        }
        line.extend(self.arguments.iter().cloned());
        line
    }
}

/// A running virtual machine. Dropping it ends it in the background; [`stop`](Self::stop) waits.
#[derive(Debug)]
pub struct Qemu {
    config: QemuConfig,
    process: Supervised,
    monitor: Monitor,
    vnc: SocketAddr,
    password: Secret,
}

impl Qemu {
    /// Starts a machine, from its snapshot if it has one. Cancel safe: whatever was started ends
    /// with the future.
    ///
    /// # Errors
    /// [`Config`](dart_core::ErrorKind::Config) if QEMU is missing or a setting is wrong; retryable
    /// kinds if it does not come up, with the end of what it said.
    pub async fn start(config: QemuConfig) -> Result<Self> {
        config.check()?;
        let base = Base::create(config.directory.as_deref())?;
        let started = Self::start_in(config, &base).await;
        if started.is_err() {
            // Gone already unless the program was not started at all.
            let _gone = std::fs::remove_dir(&base.path);
        }
        let mut machine = started?;
        machine.reset().await?;
        Ok(machine)
    }

    async fn start_in(config: QemuConfig, base: &Base) -> Result<Self, Fault> {
        let directory = base.path.join("machine");
        private_directory(&directory)?;
        // VncAuth takes eight characters.
        let password = Secret::fresh::<4>().map_err(Fault::Directory)?;
        let file = directory.join("password");
        write_private(&file, password.text().as_bytes()).map_err(Fault::Directory)?;
        if config.disk.is_none() {
            let disk = qcow2::empty(STATE_DISK_BYTES);
            std::fs::write(directory.join("state.qcow2"), disk).map_err(Fault::Directory)?;
        }
        let limit = Duration::from_millis(config.start_timeout_ms);
        let name = config.program.display().to_string();
        let program = base.program("machine", &name, config.command_line(&directory), "")?;
        let process = Supervised::start(program).await?;
        let socket = directory.join("monitor");
        let there = wait_for(limit, &process, || socket.exists().then_some(())).await;
        there.ok_or_else(|| process.failed("did not open its monitor"))?;
        let mut monitor = match Monitor::connect(&socket, limit).await {
            Ok(monitor) => monitor,
            Err(fault) => return Err(cause(fault, &process).await),
        };
        let told = monitor.run("query-vnc", &json!({}), limit).await?;
        let vnc = vnc_address(&told)
            .ok_or_else(|| Fault::Monitor("it does not say where VNC listens".to_owned()))?;
        tracing::debug!(%vnc, "virtual machine is up");
        Ok(Self {
            config,
            process,
            monitor,
            vnc,
            password,
        })
    }

    /// Where its VNC server listens.
    pub const fn vnc_address(&self) -> SocketAddr {
        self.vnc
    }

    /// The VNC password (VncAuth). Fresh for each machine.
    pub fn vnc_password(&self) -> &str {
        self.password.text()
    }

    /// Whether it is running.
    pub fn is_running(&self) -> bool {
        self.process.is_running()
    }

    fn limit(&self) -> Duration {
        Duration::from_millis(self.config.snapshot_timeout_ms)
    }

    /// Keeps the machine as it is now under `name`, and makes that what a reset loads.
    ///
    /// # Errors
    /// If the name is not harmless, or QEMU refuses, with its words.
    pub async fn save(&mut self, name: &str) -> Result<()> {
        check_name(name)?;
        let limit = self.limit();
        self.monitor.human(&format!("savevm {name}"), limit).await?;
        self.config.snapshot = Some(name.to_owned());
        Ok(())
    }

    /// Makes the machine what it was when the snapshot was taken; without one, nothing happens.
    /// The connections to its screen have to be made anew.
    ///
    /// # Errors
    /// If QEMU refuses, with its words.
    pub async fn reset(&mut self) -> Result<()> {
        let Some(name) = &self.config.snapshot else {
            return Ok(());
        };
        check_name(name)?;
        let line = format!("loadvm {name}");
        let limit = self.limit();
        self.monitor.human(&line, limit).await?;
        // A snapshot of a machine that was paused stays paused.
        self.monitor.run("cont", &json!({}), limit).await?;
        Ok(())
    }

    /// Ends the machine and waits until nothing of it is left.
    pub async fn stop(mut self) {
        let limit = Duration::from_millis(self.config.stop_timeout_ms);
        self.process.stop(limit).await;
    }
}

/// How long a program that is about to end is given to do so.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// Why the monitor fails: QEMU opens it before it finds fault with later arguments, and its own
/// words say more.
async fn cause(fault: Fault, process: &Supervised) -> Fault {
    let _ended = wait_for(LAST_WORDS, process, || None::<()>).await;
    if process.is_running() {
        return fault;
    }
    process.failed("ended at its start")
}

/// Host and port from the answer to `query-vnc`.
fn vnc_address(told: &Value) -> Option<SocketAddr> {
    let host = told.get("host")?.as_str()?;
    let port: u16 = told.get("service")?.as_str()?.parse().ok()?;
    Some((host.parse::<std::net::IpAddr>().ok()?, port).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_could_be_commands_are_refused() {
        for bad in ["", "a b", "a\nquit", "ä", "-a", &"x".repeat(129)] {
            assert!(check_name(bad).is_err(), "{bad:?}");
        }
        assert!(check_name("clean-2.1_x").is_ok());
    }

    #[test]
    fn paths_cannot_add_options() {
        let config = QemuConfig {
            disk: Some("/a,readonly=on".into()),
            ..QemuConfig::default()
        };
        let line = config.command_line(Path::new("/t,x"));
        assert!(line.contains(&"if=ide,format=qcow2,file=/a,,readonly=on".to_owned()));
        assert!(line.contains(&"unix:/t,,x/monitor,server=on,wait=off".to_owned()));
        assert!(line.ends_with(&["-nic".to_owned(), "none".to_owned()]));
    }

    #[test]
    fn the_port_is_the_one_that_qemu_took() {
        let told = json!({"host": "127.0.0.1", "service": "5903", "enabled": true});
        assert_eq!(vnc_address(&told), Some(([127, 0, 0, 1], 5903).into()));
        assert_eq!(vnc_address(&json!({"enabled": false})), None);
    }
}
