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
        let walked = runtime
            .block_on(walk(&config, &tasks, 2000))
            .expect("a walk");
        let rate = 2000.0 / walked.as_secs_f64();
        let _ = writeln!(std::io::stdout(), "{name}: {rate:.0} steps/s");
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
