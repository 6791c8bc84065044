//! A real ADB server of the test's own, and simulated phones that it is connected to.

use std::{path::PathBuf, process::Stdio, time::Duration};

use dart_env_adb::{
    AdbConfig, AdbDevice, OwnServer,
    client::{AdbTarget, Timeouts, WaitFor},
    simulator::{Options, Simulator},
};
use tokio::{process::Command, time::timeout};

use crate::pad::{Pad, SCREEN};

/// Deadlines of tests that let a call run into one.
pub(crate) const SHORT: Timeouts = Timeouts {
    connect_ms: 2_000,
    call_ms: 700,
    transfer_ms: 60_000,
};

fn find_adb() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let mut all = std::env::split_paths(&path).map(|folder| folder.join("adb"));
    all.find(|program| program.is_file())
}

/// Why the suites on a real server are skipped, if they are; where `DART_TEST_REQUIRE` names `adb`,
/// that is a failure.
pub(crate) fn skipped() -> Option<String> {
    let found = find_adb()
        .map(drop)
        .ok_or("adb is not installed".to_owned());
    dart_testkit::suite::gate("adb", found)
}

/// Runs `test` unless there is no `adb`.
#[allow(clippy::print_stdout, reason = "a skip has to be seen")]
pub(crate) fn with_adb<F: Future<Output = ()>>(name: &str, test: impl FnOnce() -> F) {
    if let Some(why) = skipped() {
        println!("skipped: {name}: {why}");
        return;
    }
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        timeout(Duration::from_mins(2), test()).await.unwrap();
    });
}

/// A server and one phone.
pub(crate) struct Lab {
    pub(crate) own: OwnServer,
    pub(crate) phone: Simulator<Pad>,
}

/// What the command `adb` has printed.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl Said {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }
}

impl Lab {
    /// A server, and a phone that it is not connected to.
    pub(crate) async fn apart(options: Options) -> Self {
        Self {
            own: OwnServer::start(&find_adb().unwrap()).await.unwrap(),
            phone: Simulator::start(Pad::new(SCREEN), options).await.unwrap(),
        }
    }

    /// A server and a phone that it is connected to.
    pub(crate) async fn new(options: Options) -> Self {
        let lab = Self::apart(options).await;
        lab.own.server().connect(&lab.phone.serial()).await.unwrap();
        let wait = lab
            .target()
            .wait_for(WaitFor::Device, Duration::from_secs(10))
            .await;
        wait.unwrap();
        lab
    }

    pub(crate) fn target(&self) -> AdbTarget {
        self.own.server().target(self.phone.serial()).unwrap()
    }

    pub(crate) fn impatient(&self) -> AdbTarget {
        let server = self.own.with_timeouts(SHORT);
        server.target(self.phone.serial()).unwrap()
    }

    pub(crate) fn config(&self) -> AdbConfig {
        AdbConfig {
            settle_ms: 0,
            recover_ms: 8_000,
            timeouts: SHORT,
            ..AdbConfig::new(self.own.server().address(), self.phone.serial())
        }
    }

    pub(crate) async fn device(&self) -> AdbDevice {
        AdbDevice::connect(self.config()).await.unwrap()
    }

    /// Runs the command `adb` on this server.
    pub(crate) async fn adb(&self, arguments: &[&str]) -> Said {
        let port = self.own.server().port().to_string();
        let mut command = Command::new(find_adb().unwrap());
        command.args(["-P", &port]).args(arguments);
        command
            .env("HOME", self.own.home())
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let output = timeout(Duration::from_mins(1), command.output())
            .await
            .unwrap()
            .unwrap();
        Said {
            code: output.status.code().unwrap(),
            stdout: output.stdout,
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Runs the command `adb` for the phone.
    pub(crate) async fn adb_phone(&self, arguments: &[&str]) -> Said {
        let serial = self.phone.serial();
        self.adb(&[&["-s", &serial], arguments].concat()).await
    }

    pub(crate) async fn typed(&self) -> String {
        self.phone.device().lock().await.typed()
    }
}

impl Lab {
    /// A device whose first picture was whole.
    pub(crate) async fn device_unseen(&self) -> AdbDevice {
        let damaged = std::mem::take(&mut self.phone.faults().crlf);
        let device = self.device().await;
        self.phone.faults().crlf = damaged;
        device
    }
}
