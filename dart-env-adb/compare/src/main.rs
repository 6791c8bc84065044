//! This client, the command `adb` and the crate adb_client 3.2.3 (MIT), one after another in every
//! round, against the same real ADB server and simulated phone.
//!
//! ```text
//! cargo run --release --manifest-path dart-env-adb/compare/Cargo.toml -- [ROUNDS]
//! ```
//!
//! Prints medians and ninth deciles, how many times faster this client is, and whether the bars are
//! met: a shell command within 0.5 ms, a raw picture of 1080x2400 within 25 ms, both at least three
//! times as fast as the command and faster than adb_client. Ends with 1 if not.

mod phone;
#[path = "../../examples/common/still.rs"]
mod still;

use std::{
    io::{self, Write},
    net::{Ipv4Addr, SocketAddrV4},
    path::Path,
    process::{Command, ExitCode, Stdio},
    sync::mpsc,
    time::{Duration, Instant},
};

use adb_client::{ADBDeviceExt, server_device::ADBServerDevice};
use dart_core::{Device, Frame, Result};
use dart_env_adb::{
    AdbConfig, AdbDevice, OwnServer,
    client::{AdbTarget, WaitFor},
    wire::screencap,
};
use tokio::runtime::Runtime;

/// Who is compared.
struct Lab {
    runtime: Runtime,
    own: OwnServer,
    target: AdbTarget,
    device: AdbDevice,
    theirs: ADBServerDevice,
}

impl Lab {
    fn new() -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime can be made");
        let serial = phone::start()?;
        let (own, target, device) = runtime.block_on(async {
            let own = OwnServer::start(Path::new("adb")).await?;
            own.server().connect(&serial).await?;
            let target = own.server().target(serial.clone())?;
            let limit = Duration::from_secs(10);
            target.wait_for(WaitFor::Device, limit).await?;
            let config = AdbConfig {
                settle_ms: 0,
                ..AdbConfig::new(own.server().address(), serial.clone())
            };
            let device = AdbDevice::connect(config).await?;
            Ok::<_, dart_core::Error>((own, target, device))
        })?;
        let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, own.server().port());
        Ok(Self {
            runtime,
            own,
            target,
            device,
            theirs: ADBServerDevice::new(serial, Some(address)),
        })
    }

    /// What the command `adb` prints.
    fn command(&self, arguments: &[&str]) -> Vec<u8> {
        let port = self.own.server().port().to_string();
        let output = Command::new("adb")
            .args(["-P", &port, "-s", self.target.serial()])
            .args(arguments)
            .env("HOME", self.own.home())
            .stdin(Stdio::null())
            .output();
        output.expect("the command adb is installed").stdout
    }
}

/// Collects what is written and hands it over when it is dropped: `exec` of adb_client returns before
/// the output is complete.
struct Collector(Vec<u8>, mpsc::Sender<Vec<u8>>);

impl Write for Collector {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        let _ = self.1.send(std::mem::take(&mut self.0));
    }
}

type Run = (&'static str, fn(&mut Lab));

fn shell_ours(lab: &mut Lab) {
    let said = lab.runtime.block_on(lab.target.shell("echo hi"));
    assert_eq!(said.expect("a shell").stdout, b"hi\n");
}

fn shell_command(lab: &mut Lab) {
    assert_eq!(lab.command(&["shell", "echo", "hi"]), b"hi\n");
}

fn shell_theirs(lab: &mut Lab) {
    let mut said = Vec::new();
    let ended = lab.theirs.shell_command(&"echo hi", Some(&mut said), None);
    ended.expect("a shell");
    assert_eq!(said, b"hi\n");
}

fn seen(frame: &Frame) {
    assert_eq!(frame.size(), phone::SCREEN);
}

fn picture_ours(lab: &mut Lab) {
    let seen_now = lab.runtime.block_on(lab.device.screenshot());
    seen(&seen_now.expect("a picture").frame);
}

fn picture_command(lab: &mut Lab) {
    let bytes = lab.command(&["exec-out", "screencap"]);
    seen(&screencap::raw(&bytes).expect("a picture"));
}

fn picture_exec(lab: &mut Lab) {
    let (sender, bytes) = mpsc::channel();
    let collector = Box::new(Collector(Vec::new(), sender));
    let ended = lab.theirs.exec("screencap", &mut io::empty(), collector);
    ended.expect("an exec");
    let bytes = bytes.recv().expect("its output");
    seen(&screencap::raw(&bytes).expect("a picture"));
}

fn picture_framebuffer(lab: &mut Lab) {
    let image = lab.theirs.framebuffer_inner().expect("a framebuffer");
    assert_eq!(
        image.dimensions(),
        (phone::SCREEN.width, phone::SCREEN.height)
    );
}

const SHELLS: &[Run] = &[
    ("this client", shell_ours),
    ("command adb", shell_command),
    ("adb_client", shell_theirs),
];
const PICTURES: &[Run] = &[
    ("this client", picture_ours),
    ("command adb", picture_command),
    ("adb_client, exec", picture_exec),
    ("adb_client, framebuffer (RGBA)", picture_framebuffer),
];

/// Times every run once a round, after two that warm up; gives the medians.
fn measure(lab: &mut Lab, what: &str, runs: &[Run], rounds: usize) -> Vec<Duration> {
    let mut times = vec![Vec::new(); runs.len()];
    for round in 0..rounds + 2 {
        for ((_, run), times) in runs.iter().zip(&mut times) {
            let start = Instant::now();
            run(lab);
            if round >= 2 {
                times.push(start.elapsed());
            }
        }
    }
    let mut medians = Vec::new();
    for ((name, _), times) in runs.iter().zip(&mut times) {
        times.sort();
        let (median, high) = (times[rounds / 2], times[rounds * 9 / 10]);
        medians.push(median);
        let ratio = median.as_secs_f64() / medians[0].as_secs_f64();
        println!(
            "{what:<14} {name:<32} {:>8.3} ms   p90 {:>8.3} ms {ratio:>8.2} x",
            median.as_secs_f64() * 1e3,
            high.as_secs_f64() * 1e3,
        );
    }
    medians
}

/// Whether the bars are met; says which are.
fn judge(what: &str, medians: &[Duration], most: Duration) -> bool {
    let [ours, command, others @ ..] = medians else {
        return false;
    };
    let bars = [
        (format!("within {most:?}"), *ours <= most),
        ("3 x as fast as the command".into(), *command >= *ours * 3),
        (
            "faster than adb_client".into(),
            others.iter().all(|o| o > ours),
        ),
    ];
    for (bar, met) in &bars {
        println!("{what:<14} {bar}: {}", if *met { "met" } else { "MISSED" });
    }
    bars.iter().all(|(_, met)| *met)
}

fn main() -> Result<ExitCode> {
    let rounds = std::env::args().nth(1).and_then(|text| text.parse().ok());
    let rounds = rounds.unwrap_or(40).max(1);
    let mut lab = Lab::new()?;
    let shells = measure(&mut lab, "shell", SHELLS, rounds * 5);
    let pictures = measure(&mut lab, "raw picture", PICTURES, rounds);
    let met = [
        judge("shell", &shells, Duration::from_micros(500)),
        judge("raw picture", &pictures, Duration::from_millis(25)),
    ];
    lab.runtime.block_on(lab.own.stop())?;
    Ok(ExitCode::from(u8::from(met.contains(&false))))
}
