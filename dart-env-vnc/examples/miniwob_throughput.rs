//! How many MiniWoB++ episodes with random clicks one machine plays per second.
//!
//! ```text
//! cargo run --release -p dart-env-vnc --example miniwob_throughput -- DESKTOPS SECONDS [SWITCH_AFTER]
//! ```
//!
//! Each desktop plays the default tasks in turn, changing after `SWITCH_AFTER` episodes (default
//! 16). Pages come from `DART_MINIWOB_PAGES` or target/miniwob/html.

#![allow(clippy::print_stdout, reason = "a program that prints")]

use std::time::{Duration, Instant};

use dart_core::{
    Action, Environment, EnvironmentFactory, Result, ScreenPx, Split, StepStatus, Task,
};
use dart_env_vnc::{MiniwobConfig, MiniwobFactory};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// What one desktop has done.
#[derive(Default)]
struct Tally {
    episodes: u32,
    steps: u32,
    successes: u32,
    resetting: Duration,
    stepping: Duration,
}

async fn play(
    mut env: Box<dyn Environment>,
    tasks: Vec<Task>,
    (switch_after, number, until): (u32, u64, Instant),
) -> Result<Tally> {
    let mut random = ChaCha8Rng::seed_from_u64(number);
    let mut tally = Tally::default();
    while Instant::now() < until {
        let task = &tasks[(tally.episodes / switch_after) as usize % tasks.len()];
        let start = Instant::now();
        env.reset(task, random.random()).await?;
        tally.resetting += start.elapsed();
        let mut status = StepStatus::Running;
        while status == StepStatus::Running {
            let at = ScreenPx::new(random.random_range(0..160), random.random_range(50..210));
            let start = Instant::now();
            status = env.step(&Action::click(at)).await?.status;
            tally.stepping += start.elapsed();
            tally.steps += 1;
        }
        tally.successes += u32::from(env.score().await?.is_success());
        tally.episodes += 1;
    }
    env.close().await?;
    Ok(tally)
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<()> {
    let mut numbers = std::env::args()
        .skip(1)
        .filter_map(|text| text.parse().ok());
    let (desktops, seconds) = (numbers.next().unwrap_or(2), numbers.next().unwrap_or(20));
    let switch_after = numbers.next().unwrap_or(16).max(1);
    let mut config = MiniwobConfig::default();
    if let Some(pages) = std::env::var_os("DART_MINIWOB_PAGES") {
        config.pages_dir = pages.into();
    }
    let tasks = config.tasks(Split::Train)?;
    let factory = MiniwobFactory::new(config)?;
    let started = Instant::now();
    let made = futures::future::join_all((0..desktops).map(|_| factory.create())).await;
    println!("{desktops} desktops up in {:?}", started.elapsed());
    let until = Instant::now() + Duration::from_secs(seconds.into());
    let mut playing = Vec::new();
    for (number, env) in made.into_iter().enumerate() {
        let plan = (switch_after, number as u64, until);
        playing.push(tokio::spawn(play(env?, tasks.clone(), plan)));
    }
    let mut sum = Tally::default();
    for desktop in playing {
        let tally = desktop.await.map_err(|cause| {
            let message = "a desktop's task failed";
            dart_core::Error::new(dart_core::ErrorKind::Internal, "example", "play", message)
                .caused_by(cause)
        })??;
        sum.episodes += tally.episodes;
        sum.steps += tally.steps;
        sum.successes += tally.successes;
        sum.resetting += tally.resetting;
        sum.stepping += tally.stepping;
    }
    println!(
        "{:.1} episodes/s, {:.1} steps/s, success {:.2}; reset {:.1} ms, step {:.1} ms",
        f64::from(sum.episodes) / f64::from(seconds),
        f64::from(sum.steps) / f64::from(seconds),
        f64::from(sum.successes) / f64::from(sum.episodes.max(1)),
        sum.resetting.as_secs_f64() * 1e3 / f64::from(sum.episodes.max(1)),
        sum.stepping.as_secs_f64() * 1e3 / f64::from(sum.steps.max(1)),
    );
    Ok(())
}
