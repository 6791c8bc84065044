//! Whole episodes: the expert solves everything, doing nothing solves nothing, guessing little.

use dart_core::{
    Action, Demonstrate, Environment, ErrorKind, Observation, Rect, ScreenPx, Size, Split,
    StepStatus, Task,
};
use dart_env_sim::{SimConfig, SimDeviceKind, SimEnvironment};
use rand::{Rng, SeedableRng, seq::IndexedRandom};
use rand_chacha::ChaCha8Rng;

use crate::support::{configs, demonstrate, environment};

const SEEDS: u64 = 200;
const LONGEST: u32 = 6;

#[tokio::test]
async fn the_expert_solves_every_family_in_every_split() {
    for config in configs() {
        let mut env = environment(&config);
        for split in Split::ALL {
            for task in config.tasks(split).unwrap() {
                let mut longest = 0;
                for seed in 0..SEEDS {
                    let steps = demonstrate(&mut env, &task, seed).await.unwrap();
                    let reward = env.score().await.unwrap();
                    assert!(reward.is_success(), "{} seed {seed}", task.id);
                    longest = longest.max(steps);
                }
                assert!(longest <= LONGEST, "{} took {longest} steps", task.id);
                let room = f64::from(task.horizon - 2) / f64::from(longest);
                assert!(
                    (1.5..=2.5).contains(&room),
                    "{} horizon {}, expert {longest}",
                    task.id,
                    task.horizon
                );
            }
        }
    }
}

#[tokio::test]
async fn an_untouched_task_scores_nothing() {
    for config in configs() {
        let mut env = environment(&config);
        for task in config.tasks(Split::Train).unwrap() {
            for seed in 0..20 {
                env.reset(&task, seed).await.unwrap();
                assert!(env.score().await.unwrap().value() < 1e-9, "{}", task.id);
                assert!(env.expert_action().await.unwrap().is_some());
                env.step(&Action::Done).await.unwrap();
                assert!(env.score().await.unwrap().value() < 1e-9, "{}", task.id);
            }
        }
    }
}

/// The expert also finds back after steps that were none of its own.
#[tokio::test]
async fn the_expert_recovers_from_harmless_mistakes() {
    for config in configs() {
        let mut env = environment(&config);
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let (mut solved, mut running) = (0, 0);
        for mut task in config.tasks(Split::Train).unwrap() {
            task.horizon = 30;
            for seed in 0..40 {
                env.reset(&task, seed).await.unwrap();
                let mut ended = false;
                for _ in 0..3 {
                    let action = anywhere(&mut rng, &config);
                    ended = ended || env.step(&action).await.unwrap().status != StepStatus::Running;
                    if ended {
                        break;
                    }
                }
                if ended {
                    continue;
                }
                running += 1;
                while let Some(action) = env.expert_action().await.unwrap() {
                    if env.step(&action).await.unwrap().status != StepStatus::Running {
                        break;
                    }
                }
                let success = env.score().await.unwrap().is_success();
                assert!(success, "{} seed {seed}", task.id);
                solved += 1;
            }
        }
        assert!(solved == running && solved > 50, "{solved} of {running}");
    }
}

/// Clicks, text and keys at random places.
fn anywhere(rng: &mut ChaCha8Rng, config: &SimConfig) -> Action {
    let Size { width, height } = config.screen;
    let x = rng.random_range(0..width as i32);
    let at = ScreenPx::new(x, rng.random_range(0..height as i32));
    match (rng.random_range(0..6), config.device) {
        (0, _) => Action::Type { text: "abc".into() },
        (1, SimDeviceKind::Phone) => Action::LongPress { at },
        (_, SimDeviceKind::Desktop) => Action::click(at),
        (_, SimDeviceKind::Phone) => Action::Tap { at },
    }
}

/// Clicks in the middle of texts: knows what can be clicked, but cannot read.
fn some_text(rng: &mut ChaCha8Rng, config: &SimConfig, seen: &Observation) -> Action {
    let elements = seen.ui.as_deref().unwrap_or_default();
    let bounds: Vec<Rect> = elements.iter().map(|element| element.bounds).collect();
    let screen = Rect::new(0, 0, config.screen.width, config.screen.height);
    let at = bounds.choose(rng).unwrap_or(&screen).center();
    match config.device {
        SimDeviceKind::Desktop => Action::click(at),
        SimDeviceKind::Phone => Action::Tap { at },
    }
}

async fn success_rate(
    env: &mut SimEnvironment,
    task: &Task,
    mut policy: impl FnMut(&Observation) -> Action,
) -> f64 {
    let episodes = 150;
    let mut solved = 0;
    for seed in 0..episodes {
        let mut seen = env.reset(task, seed).await.unwrap().observation;
        loop {
            let outcome = env.step(&policy(&seen)).await.unwrap();
            seen = outcome.observation;
            if outcome.status != StepStatus::Running {
                break;
            }
        }
        solved += u32::from(env.score().await.unwrap().is_success());
    }
    f64::from(solved) / episodes as f64
}

#[tokio::test]
async fn guessing_seldom_succeeds() {
    for config in configs() {
        let mut env = environment(&config);
        let mut rng = ChaCha8Rng::seed_from_u64(9);
        let (mut blind, mut illiterate) = (Vec::new(), Vec::new());
        for task in config.tasks(Split::Train).unwrap() {
            let random = success_rate(&mut env, &task, |_| anywhere(&mut rng, &config)).await;
            let clicker = |seen: &Observation| some_text(&mut rng, &config, seen);
            let guess = success_rate(&mut env, &task, clicker).await;
            println!(
                "{:16} random {random:.2}, clicking on texts {guess:.2}",
                task.family
            );
            assert!(random <= 0.35 && guess <= 0.55, "{}", task.family);
            blind.push(random);
            illiterate.push(guess);
        }
        let mean = |rates: &[f64]| rates.iter().sum::<f64>() / rates.len() as f64;
        println!(
            "mean random {:.2}, clicking on texts {:.2}",
            mean(&blind),
            mean(&illiterate)
        );
        assert!(mean(&blind) < 0.2 && mean(&illiterate) < 0.35);
    }
}

#[tokio::test]
async fn wrong_tasks_are_refused_and_the_environment_stays_usable() {
    let config = SimConfig::default();
    let mut env = environment(&config);
    let good = config.tasks(Split::Train).unwrap().remove(0);
    for family in ["juggle", "open-app", ""] {
        let task = Task {
            family: family.into(),
            ..good.clone()
        };
        let error = env.reset(&task, 0).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains("click-button"), "{error}");
    }
    env.reset(&good, 0).await.unwrap();
}
