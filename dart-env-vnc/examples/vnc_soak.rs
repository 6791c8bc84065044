//! Steps own desktops for a long time and watches what the process and its X servers hold.
//!
//! ```text
//! cargo run --release -p dart-env-vnc --example vnc_soak -- [DESKTOPS] [MINUTES]
//! ```
//!
//! Each desktop is one connection from beginning to end. A step is a click, text or a turn of the
//! wheel, the screen at rest after it, and a screenshot that has to show that the page took it.
//! Every minute a line says what is held. The program fails if anything it counts is larger in the
//! second half of the time than in the first by more than [`Bound`] allows (the first tenth, in
//! which caches fill, does not count), or if anything is left open after the desktops have ended.

#![allow(clippy::print_stdout, reason = "a bench that prints its result")]

use std::{
    borrow::Cow,
    fs,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use dart_core::{Action, Device, Direction, Error, ErrorKind, Result, ScreenPx};
use dart_env_vnc::{
    Desktop, DesktopConfig, VncConfig, VncDevice, pages::PageServer, rfb::Password,
};
use tokio::task::JoinSet;

/// A page whose colour changes with each press, key and turn of the wheel; it shows the last keys.
const PAGE: &str = "<!doctype html><meta charset=utf-8>\
    <body style='margin:0;height:100vh;overflow:hidden'><pre id=t></pre>\
    <script>let n=0,s='';const t=document.getElementById('t');\
    const paint=()=>{document.body.style.background=`hsl(${n++*67%360} 90% 50%)`;t.textContent=s};\
    paint();addEventListener('mousedown',paint);addEventListener('wheel',paint);\
    addEventListener('keydown',e=>{s=(s+e.key).slice(-20);paint()})</script>";

/// Between two samples.
const PAUSE: Duration = Duration::from_secs(5);

/// Longest time in which a page has to show that it took a step.
const PATIENCE: Duration = Duration::from_secs(10);

fn failed(what: impl Into<Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::Internal, "vnc_soak", "soak", what)
}

/// What is held at one moment.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    own_kib: u64,
    servers_kib: u64,
    files: u64,
    threads: u64,
}

/// By how much a figure may grow from the first half to the second: a share in percent, and a
/// number beside it.
#[derive(Clone, Copy)]
struct Bound {
    what: &'static str,
    of: fn(&Sample) -> u64,
    percent: u64,
    more: u64,
}

const BOUNDS: [Bound; 4] = [
    Bound {
        what: "own memory, KiB",
        of: |sample| sample.own_kib,
        percent: 5,
        more: 1024,
    },
    Bound {
        what: "memory of the X servers, KiB",
        of: |sample| sample.servers_kib,
        percent: 5,
        more: 1024,
    },
    // A browser that asks for its page again, or looks for an icon, is a file for a moment.
    Bound {
        what: "open files",
        of: |sample| sample.files,
        percent: 0,
        more: 4,
    },
    // Threads for blocking work come and go.
    Bound {
        what: "threads",
        of: |sample| sample.threads,
        percent: 0,
        more: 4,
    },
];

/// A number of `/proc/PROCESS/status`.
fn status(process: &str, name: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.trim_start_matches(':').split_whitespace().next());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

impl Sample {
    fn take(servers: &[u32]) -> Self {
        let memory = |process: &str| status(process, "VmRSS");
        Self {
            own_kib: memory("self"),
            servers_kib: servers.iter().map(|id| memory(&id.to_string())).sum(),
            files: fs::read_dir("/proc/self/fd").map_or(0, Iterator::count) as u64,
            threads: status("self", "Threads"),
        }
    }
}

/// The X server among a desktop's processes.
fn server(desktop: &Desktop) -> Result<u32> {
    let name = |id: &u32| fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default();
    let mut ids = desktop.process_ids().into_iter();
    ids.find(|id| name(id).trim() == "Xtigervnc")
        .ok_or_else(|| failed("no X server among the processes of a desktop"))
}

async fn seen(device: &mut VncDevice) -> Result<Option<[u8; 3]>> {
    Ok(device.screenshot().await?.frame.pixel(150, 200))
}

/// The `number`-th step, until the page shows that it took it.
async fn step(device: &mut VncDevice, number: u64) -> Result<()> {
    let at = ScreenPx::new((number * 7 % 140) as i32, (number * 11 % 180) as i32);
    let action = match number % 3 {
        0 => Action::click(at),
        1 => Action::Type {
            text: format!("{number} "),
        },
        _ => Action::Scroll {
            at: Some(at),
            direction: Direction::Down,
            notches: 1,
        },
    };
    let before = seen(device).await?;
    device.perform(&action).await?;
    let begun = Instant::now();
    while seen(device).await? == before {
        if begun.elapsed() > PATIENCE {
            return Err(failed("a page does not react").with("step", number));
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(())
}

async fn play(desktop: Desktop, until: Instant, steps: Arc<AtomicU64>) -> Result<()> {
    let config = VncConfig::new(desktop.vnc_address().to_string());
    let password = Some(Password::new(desktop.vnc_password()));
    let mut device = VncDevice::connect_with(config, password).await?;
    // The page may not be there yet.
    let begun = Instant::now();
    while seen(&mut device)
        .await?
        .is_none_or(|pixel| pixel.iter().max() == pixel.iter().min())
    {
        if begun.elapsed() > PATIENCE * 3 {
            return Err(failed("a page does not appear"));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for number in 0.. {
        if Instant::now() >= until {
            break;
        }
        step(&mut device, number).await?;
        steps.fetch_add(1, Ordering::Relaxed);
    }
    device.close().await?;
    desktop.stop().await;
    Ok(())
}

/// Samples until the time is over or a desktop has failed; prints one a minute.
async fn watch(
    servers: &[u32],
    (begun, until): (Instant, Instant),
    steps: &AtomicU64,
    playing: &mut JoinSet<Result<()>>,
) -> Result<Vec<(Instant, Sample)>> {
    let mut samples = Vec::new();
    let mut minutes = 0;
    while Instant::now() + PAUSE < until {
        tokio::select! {
            ended = playing.join_next() => {
                let ended = ended.ok_or_else(|| failed("no desktop"))?;
                ended.map_err(|cause| failed("a desktop's task failed").caused_by(cause))??;
                return Err(failed("a desktop ended before its time"));
            }
            () = tokio::time::sleep(PAUSE) => {}
        }
        let sample = Sample::take(servers);
        samples.push((Instant::now(), sample));
        if begun.elapsed().as_secs() / 60 > minutes || minutes == 0 && samples.len() == 1 {
            minutes = begun.elapsed().as_secs() / 60;
            let done = steps.load(Ordering::Relaxed);
            let Sample {
                own_kib,
                servers_kib,
                files,
                threads,
            } = sample;
            println!(
                "{:>5} s: own {own_kib} KiB, X servers {servers_kib} KiB, {files} files, {threads} threads, {done} steps",
                begun.elapsed().as_secs()
            );
        }
    }
    Ok(samples)
}

/// The largest in the second half against the largest in the first.
fn judge(samples: &[(Instant, Sample)], (begun, until): (Instant, Instant)) -> Result<()> {
    let whole = until - begun;
    let (warm, half) = (begun + whole / 10, begun + whole / 2);
    let most = |of: fn(&Sample) -> u64, from: Instant, to: Instant| {
        let within = samples.iter().filter(|(at, _)| (from..to).contains(at));
        within.map(|(_, sample)| of(sample)).max()
    };
    let mut grown = Vec::new();
    for Bound {
        what,
        of,
        percent,
        more,
    } in BOUNDS
    {
        let (Some(first), Some(second)) = (most(of, warm, half), most(of, half, until)) else {
            return Err(failed("too short a time to judge"));
        };
        let allowed = first + first * percent / 100 + more;
        println!(
            "{what}: at most {first} in the first half, {second} in the second, {allowed} allowed"
        );
        if second > allowed {
            grown.push(what);
        }
    }
    if grown.is_empty() {
        return Ok(());
    }
    Err(failed(format!("it grows: {}", grown.join("; "))))
}

/// Starts the desktops one after the other, as a machine with few cores can.
async fn start(count: u64, url: &str) -> Result<Vec<Desktop>> {
    let mut desktops = Vec::new();
    for _ in 0..count {
        desktops.push(Desktop::start(&DesktopConfig::default(), url).await?);
    }
    Ok(desktops)
}

async fn soak(count: u64, minutes: u64, url: &str) -> Result<()> {
    let desktops = start(count, url).await?;
    let servers = desktops.iter().map(server).collect::<Result<Vec<_>>>()?;
    let begun = Instant::now();
    let times = (begun, begun + Duration::from_secs(minutes * 60));
    let steps = Arc::new(AtomicU64::new(0));
    let mut playing = JoinSet::new();
    for desktop in desktops {
        playing.spawn(play(desktop, times.1, steps.clone()));
    }
    let samples = watch(&servers, times, &steps, &mut playing).await?;
    while let Some(ended) = playing.join_next().await {
        ended.map_err(|cause| failed("a desktop's task failed").caused_by(cause))??;
    }
    let done = steps.load(Ordering::Relaxed);
    let rate = done as f64 / (minutes * 60) as f64;
    println!("{count} desktops, {minutes} minutes: {done} steps, {rate:.1} a second");
    judge(&samples, times)
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<()> {
    let mut numbers = std::env::args()
        .skip(1)
        .filter_map(|text| text.parse().ok());
    let (desktops, minutes) = (numbers.next().unwrap_or(8), numbers.next().unwrap_or(30));
    let folder: PathBuf =
        std::env::temp_dir().join(format!("dart-vnc-soak-{}", std::process::id()));
    let io = |error: std::io::Error| failed("cannot write the page").caused_by(error);
    fs::create_dir(&folder).map_err(io)?;
    fs::write(folder.join("page.html"), PAGE).map_err(io)?;
    let pages = PageServer::start(&folder, &[]).await?;
    let before = Sample::take(&[]);
    let done = soak(desktops, minutes, &pages.url("/page.html")).await;
    let after = Sample::take(&[]);
    fs::remove_dir_all(&folder).map_err(io)?;
    done?;
    println!("open files before {}, after {}", before.files, after.files);
    // The runtime's handle for signals of children stays.
    if after.files > before.files + 4 {
        return Err(failed("files are left open"));
    }
    Ok(())
}
