//! How often the scripted experts of MiniWoB++ solve their tasks, in a table.
//!
//! ```text
//! cargo run --release -p dart-env-vnc --example miniwob_experts -- SEEDS DESKTOPS [TASK...]
//! ```
//!
//! Each expert plays `SEEDS` episodes (default 10), spread over `DESKTOPS` desktops (default 2). Pages
//! come from `DART_MINIWOB_PAGES` or target/miniwob/html. A registered expert that solves fewer than
//! nine in ten is marked, and makes the program fail.

#![allow(clippy::print_stdout, reason = "a program that prints")]

use std::{
    collections::VecDeque,
    process::ExitCode,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use dart_core::{
    Demonstrate, EnvironmentFactory, Error, ErrorKind, Result, Split, StepStatus, Task,
};
use dart_env_vnc::{
    MiniwobConfig, MiniwobFactory,
    miniwob::{TASKS, task_info},
};

/// Experts below this are not good enough to learn from.
const GOOD: f64 = 0.9;

/// What one expert has done.
#[derive(Debug, Default)]
struct Tally {
    task: String,
    episodes: u32,
    successes: u32,
    steps: u32,
    seconds: f64,
    /// Seeds that were not solved, and why.
    failures: Vec<(u64, String)>,
}

impl Tally {
    fn rate(&self) -> f64 {
        f64::from(self.successes) / f64::from(self.episodes.max(1))
    }

    fn print(&self) {
        let episodes = f64::from(self.episodes.max(1));
        let mark = if self.rate() < GOOD { "  <" } else { "" };
        println!(
            "{:<30}{:>9}{:>9.2}{:>8.1}{:>9.0}{mark}",
            self.task,
            self.episodes,
            self.rate(),
            f64::from(self.steps) / episodes,
            self.seconds * 1e3 / episodes,
        );
        for (seed, why) in self.failures.iter().take(3) {
            println!("    seed {seed}: {why}");
        }
    }
}

/// One episode: the steps, and why it failed, if it did.
async fn episode(
    env: &mut dyn Demonstrate,
    task: &Task,
    seed: u64,
) -> Result<(u32, Option<String>)> {
    let reset = env.reset(task, seed).await?;
    let mut steps = 0;
    let mut last = "nothing".to_owned();
    loop {
        let Some(action) = env.expert_action().await? else {
            let why = format!("no idea after {last} ({})", reset.instruction);
            return Ok((steps, Some(why)));
        };
        last = format!("{action:?}");
        let status = env.step(&action).await?.status;
        steps += 1;
        if status != StepStatus::Running {
            let solved = env.score().await?.is_success();
            let why = format!("{status:?} after {last} ({})", reset.instruction);
            return Ok((steps, (!solved).then_some(why)));
        }
    }
}

async fn play(
    factory: Arc<MiniwobFactory>,
    open: Arc<Mutex<VecDeque<Task>>>,
    seeds: u64,
) -> Result<Vec<Tally>> {
    let mut env = factory.create_demonstrator().await?;
    let mut tallies = Vec::new();
    loop {
        let next = open
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop_front();
        let Some(task) = next else { break };
        let mut tally = Tally {
            task: task.family.clone(),
            ..Tally::default()
        };
        let start = Instant::now();
        for seed in 0..seeds {
            tally.episodes += 1;
            match episode(env.as_mut(), &task, seed).await {
                Ok((steps, why)) => {
                    tally.steps += steps;
                    tally.successes += u32::from(why.is_none());
                    tally.failures.extend(why.map(|why| (seed, why)));
                }
                Err(error) => tally.failures.push((seed, error.to_string())),
            }
        }
        tally.seconds = start.elapsed().as_secs_f64();
        tally.print();
        tallies.push(tally);
    }
    env.close().await?;
    Ok(tallies)
}

fn tasks(named: &[String]) -> Vec<String> {
    if !named.is_empty() {
        return named.to_vec();
    }
    let experts = TASKS.iter().filter(|task| task.expert);
    experts.map(|task| task.name.to_owned()).collect()
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize, or: u64| {
        let given = arguments.get(index).and_then(|text| text.parse().ok());
        given.unwrap_or(or)
    };
    let (seeds, desktops) = (number(0, 10), number(1, 2));
    let mut config = MiniwobConfig {
        tasks: tasks(arguments.get(2..).unwrap_or_default()),
        ..MiniwobConfig::default()
    };
    if let Some(pages) = std::env::var_os("DART_MINIWOB_PAGES") {
        config.pages_dir = pages.into();
    }
    let open = Arc::new(Mutex::new(VecDeque::from(config.tasks(Split::Train)?)));
    let factory = Arc::new(MiniwobFactory::new(config)?);
    println!(
        "{:<30}{:>9}{:>9}{:>8}{:>9}",
        "task", "episodes", "success", "steps", "ms"
    );
    let playing: Vec<_> = (0..desktops)
        .map(|_| tokio::spawn(play(Arc::clone(&factory), Arc::clone(&open), seeds)))
        .collect();
    let mut tallies = Vec::new();
    for desktop in playing {
        tallies.extend(desktop.await.map_err(|cause| {
            let message = "a desktop's task failed";
            Error::new(ErrorKind::Internal, "example", "play", message).caused_by(cause)
        })??);
    }
    let good = tallies.iter().filter(|tally| tally.rate() >= GOOD).count();
    println!("{good} of {} experts solve at least {GOOD}", tallies.len());
    let registered = |tally: &&Tally| task_info(&tally.task).is_some_and(|info| info.expert);
    let bad = tallies
        .iter()
        .filter(registered)
        .any(|tally| tally.rate() < GOOD);
    Ok(ExitCode::from(u8::from(bad)))
}
