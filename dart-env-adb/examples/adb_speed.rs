//! How long calls take through a real ADB server, beside the command `adb` doing the same.
//!
//! ```text
//! cargo run --release -p dart-env-adb --example adb_speed --features simulator -- [ROUNDS]
//! ```
//!
//! The device is the simulated phone with a screen of 1080x2400, so what is measured is the way to a
//! device and back, not a device.

#![allow(clippy::print_stdout, reason = "a program that prints")]

#[path = "common/still.rs"]
mod still;

use std::{
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

use dart_core::{Action, Device, Result, ScreenPx, Size};
use dart_env_adb::{
    AdbConfig, AdbDevice, OwnServer,
    client::{AdbTarget, WaitFor},
    device::ScreenKind,
    simulator::{Options, Simulator},
    wire::screencap,
};
use still::Still;
use tokio::process::Command;

/// Median and ninth decile of `rounds` runs, after one that warms up.
async fn timed<F: Future<Output = Result<()>>>(
    what: &str,
    rounds: usize,
    mut run: impl FnMut() -> F,
) -> Result<Duration> {
    run().await?;
    let mut all = Vec::new();
    for _ in 0..rounds {
        let start = Instant::now();
        run().await?;
        all.push(start.elapsed());
    }
    all.sort();
    let (median, high) = (all[rounds / 2], all[rounds * 9 / 10]);
    println!(
        "{what:<44} {:>9.3} ms   p90 {:>9.3} ms",
        millis(median),
        millis(high)
    );
    Ok(median)
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Runs the command `adb` for the phone and gives what it prints.
async fn adb(own: &OwnServer, serial: &str, arguments: &[&str]) -> Result<Vec<u8>> {
    let mut command = Command::new("adb");
    command
        .args(["-P", &own.server().port().to_string(), "-s", serial])
        .args(arguments)
        .env("HOME", own.home())
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = command.output().await;
    Ok(output.expect("the command adb is installed").stdout)
}

async fn shells(own: &OwnServer, target: &AdbTarget, rounds: usize) -> Result<()> {
    let ours = timed("shell, this client", rounds * 10, || async {
        target.shell("echo hi").await.map(drop)
    });
    let ours = ours.await?;
    let serial = target.serial();
    let theirs = timed("shell, command adb", rounds, || async {
        let said = adb(own, serial, &["shell", "echo", "hi"]).await?;
        assert_eq!(said, b"hi\n");
        Ok(())
    });
    compare(ours, theirs.await?);
    Ok(())
}

fn compare(ours: Duration, theirs: Duration) {
    println!("{:<44} {:>9.1} x", "", millis(theirs) / millis(ours));
}

async fn pictures(own: &OwnServer, target: &AdbTarget, rounds: usize) -> Result<()> {
    let config = |screen| AdbConfig {
        screen,
        settle_ms: 0,
        ..AdbConfig::new(own.server().address(), target.serial())
    };
    let serial = target.serial();
    let shots = [
        (ScreenKind::Raw, "raw", &["exec-out", "screencap"][..]),
        (ScreenKind::Png, "png", &["exec-out", "screencap", "-p"]),
    ];
    for (kind, name, arguments) in shots {
        let mut device = AdbDevice::connect(config(kind)).await?;
        let device = tokio::sync::Mutex::new(&mut device);
        let what = format!("picture {name}, this client");
        let ours = timed(&what, rounds, || async {
            device.lock().await.screenshot().await.map(drop)
        });
        let ours = ours.await?;
        let what = format!("picture {name}, command adb");
        let theirs = timed(&what, rounds, || async {
            let bytes = adb(own, serial, arguments).await?;
            match kind {
                ScreenKind::Raw => screencap::raw(&bytes).map(drop),
                _ => screencap::png(&bytes).map(drop),
            }
        });
        compare(ours, theirs.await?);
    }
    let mut device = AdbDevice::connect(config(ScreenKind::Raw)).await?;
    let device = tokio::sync::Mutex::new(&mut device);
    let at = ScreenPx::new(500, 500);
    let tapped = timed("tap, this client", rounds * 10, || async {
        device.lock().await.perform(&Action::Tap { at }).await
    });
    tapped.await.map(drop)
}

#[tokio::main]
async fn main() -> Result<()> {
    let rounds = std::env::args()
        .nth(1)
        .and_then(|text| text.parse().ok())
        .unwrap_or(30);
    let own = OwnServer::start(Path::new("adb")).await?;
    let phone = Simulator::start(Still::new(Size::new(1080, 2400))?, Options::default()).await?;
    own.server().connect(&phone.serial()).await?;
    let target = own.server().target(phone.serial())?;
    target
        .wait_for(WaitFor::Device, Duration::from_secs(10))
        .await?;
    shells(&own, &target, rounds).await?;
    pictures(&own, &target, rounds).await?;
    own.stop().await
}
