//! Steps per second of one environment on one core: action, reaction, drawing, list of texts, and
//! a reset whenever an episode ends. `cargo bench -p dart-env-sim`.

use std::{
    io::Write,
    time::{Duration, Instant},
};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use dart_core::{Action, Direction, Environment, ScreenPx, Size, Split, StepStatus, Task};
use dart_env_sim::{SimConfig, SimDeviceKind, SimFactory};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Mostly clicks, some typing and scrolling.
fn random_action(rng: &mut ChaCha8Rng, config: &SimConfig) -> Action {
    let Size { width, height } = config.screen;
    let x = rng.random_range(0..width as i32);
    let at = ScreenPx::new(x, rng.random_range(0..height as i32));
    match (rng.random_range(0..8), config.device) {
        (0, _) => Action::Type { text: "abc".into() },
        (1, _) => Action::Scroll {
            at: Some(at),
            direction: Direction::Down,
            notches: 3,
        },
        (_, SimDeviceKind::Desktop) => Action::click(at),
        (_, SimDeviceKind::Phone) => Action::Tap { at },
    }
}

/// Takes `steps` steps through all families in turn; returns how long it took.
async fn walk(config: &SimConfig, tasks: &[Task], steps: u64) -> dart_core::Result<Duration> {
    let mut environment = SimFactory::new(config.clone())?.environment()?;
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut running = false;
    let begin = Instant::now();
    for step in 0..steps {
        if !running {
            let task = &tasks[step as usize % tasks.len()];
            environment.reset(task, step).await?;
        }
        let outcome = environment.step(&random_action(&mut rng, config)).await?;
        running = outcome.status == StepStatus::Running;
    }
    Ok(begin.elapsed())
}

/// Steps of the walk whose rate is printed.
const SAMPLE: u64 = 3000;

/// Prints the rate of a walk by the clock and, where Linux tells it, by this thread's CPU time: on
/// a busy machine only the second is a property of the simulator.
fn report(name: &str, walk: impl FnOnce() -> Duration) {
    let before = cpu_time();
    let walked = walk();
    let used = before.and_then(|before| cpu_time()?.checked_sub(before));
    let rate = |time: Duration| SAMPLE as f64 / time.as_secs_f64();
    let by_cpu = used.map_or_else(|| "unknown".to_owned(), |used| format!("{:.0}", rate(used)));
    let wall = rate(walked);
    let _ = writeln!(
        std::io::stdout(),
        "{name}: {wall:.0} steps/s, {by_cpu} a CPU second"
    );
}

/// CPU time of this thread so far.
fn cpu_time() -> Option<Duration> {
    let line = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanos = line.split_whitespace().next()?.parse().ok()?;
    Some(Duration::from_nanos(nanos))
}

fn steps(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    let large = SimConfig {
        screen: Size::new(1280, 800),
        ..SimConfig::default()
    };
    let cases = [
        ("desktop 128x96", SimConfig::default()),
        ("phone 96x160", SimConfig::phone()),
        ("desktop 1280x800", large),
    ];
    let mut group = criterion.benchmark_group("steps");
    for (name, config) in cases {
        let tasks = config.tasks(Split::Train).expect("tasks");
        report(name, || {
            runtime
                .block_on(walk(&config, &tasks, SAMPLE))
                .expect("a walk")
        });
        group.throughput(Throughput::Elements(1));
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|steps| {
                runtime
                    .block_on(walk(&config, &tasks, steps))
                    .expect("a walk")
            });
        });
    }
    group.finish();
}

criterion_group!(benches, steps);
criterion_main!(benches);
