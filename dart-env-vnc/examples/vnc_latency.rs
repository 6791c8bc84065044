//! Measures an own desktop over loopback: the time from a click to the changed pixel, and many
//! actions on one connection.
//!
//! ```text
//! cargo run --release -p dart-env-vnc --example vnc_latency -- [CLICKS] [ACTIONS]
//! ```

#![allow(clippy::print_stdout, reason = "a bench that prints its result")]

use std::time::{Duration, Instant};

use dart_core::{Action, Device, Error, ErrorKind, Frame, Result, ScreenPx};
use dart_env_vnc::{
    Desktop, DesktopConfig, VncConfig, VncDevice, pages::PageServer, rfb::Password,
};

/// A page whose colour changes with each press.
const PAGE: &str = "<!doctype html><meta charset=utf-8><body style='margin:0;height:100vh'>\
    <script>let n=0;const paint=()=>document.body.style.background=`hsl(${n++*67%360} 90% 50%)`;\
    paint();addEventListener('mousedown',paint)</script>";

const AT: ScreenPx = ScreenPx::new(80, 100);

fn failed(what: &'static str) -> Error {
    Error::new(ErrorKind::Internal, "vnc_latency", "measure", what)
}

fn pixel(frame: &Frame) -> Option<[u8; 3]> {
    frame.pixel(10, 10)
}

/// Memory in use and open files of this process: kB, number.
fn usage() -> (u64, usize) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let resident = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok());
    let files = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    (resident.unwrap_or(0), files)
}

async fn one_click(device: &mut VncDevice) -> Result<Duration> {
    let before = pixel(&device.screenshot().await?.frame);
    let begun = Instant::now();
    device.perform(&Action::click(AT)).await?;
    while pixel(&device.screenshot().await?.frame) == before {
        if begun.elapsed() > Duration::from_secs(2) {
            return Err(failed("the page does not react"));
        }
    }
    Ok(begun.elapsed())
}

async fn clicks(device: &mut VncDevice, count: usize) -> Result<()> {
    let mut times = Vec::new();
    for _ in 0..count {
        times.push(one_click(device).await?);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    times.sort_unstable();
    let at = |part: usize| times[(times.len() - 1) * part / 100].as_secs_f64() * 1e3;
    println!(
        "click to changed pixel, {count} clicks: p50 {:.1} ms, p90 {:.1} ms, max {:.1} ms",
        at(50),
        at(90),
        at(100)
    );
    Ok(())
}

async fn actions(device: &mut VncDevice, count: usize) -> Result<()> {
    let (memory, files) = usage();
    let begun = Instant::now();
    for step in 0..count {
        let at = ScreenPx::new((step % 150) as i32, (step % 200) as i32);
        let action = match step % 4 {
            0 => Action::click(at),
            1 => Action::Press {
                key: "a".parse().map_err(|_| failed("no such key"))?,
            },
            _ => Action::MoveTo { at },
        };
        device.perform(&action).await?;
    }
    let taken = begun.elapsed();
    let (memory_after, files_after) = usage();
    println!(
        "{count} actions on one connection: {:.0} a second; memory {memory} -> {memory_after} kB, files {files} -> {files_after}",
        count as f64 / taken.as_secs_f64()
    );
    Ok(())
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |or: usize| {
        arguments
            .next()
            .and_then(|text| text.parse().ok())
            .unwrap_or(or)
    };
    let (click_count, action_count) = (number(200), number(100_000));
    let folder = std::env::temp_dir().join(format!("dart-vnc-latency-{}", std::process::id()));
    let io = |error: std::io::Error| failed("cannot write the page").caused_by(error);
    std::fs::create_dir(&folder).map_err(io)?;
    std::fs::write(folder.join("page.html"), PAGE).map_err(io)?;
    let pages = PageServer::start(&folder, &[]).await?;
    let desktop = Desktop::start(&DesktopConfig::default(), &pages.url("/page.html")).await?;
    let config = VncConfig {
        settle_quiet_ms: 0,
        settle_max_ms: 0,
        ..VncConfig::new(desktop.vnc_address().to_string())
    };
    let password = Some(Password::new(desktop.vnc_password()));
    let mut device = VncDevice::connect_with(config, password).await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let measured = async {
        clicks(&mut device, click_count).await?;
        actions(&mut device, action_count).await
    };
    let measured = measured.await;
    device.close().await?;
    desktop.stop().await;
    std::fs::remove_dir_all(&folder).map_err(io)?;
    measured
}
