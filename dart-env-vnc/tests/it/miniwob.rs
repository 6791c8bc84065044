//! MiniWoB++ on real desktops: the experts' clicks earn the reward, wrong ones do not, a seed fixes
//! the pixels, and nothing that an agent does to the browser outlives the next reset.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use dart_core::{
    Action, Demonstrate, Device, DeviceEnvironment, Environment, EnvironmentFactory, ErrorKind,
    Key, Modifier, NamedKey, Result, Reward, ScreenPx, Size, Split, StepStatus, Task, UiRole,
};
use dart_env_vnc::{DesktopDevice, MiniwobConfig, MiniwobDriver, MiniwobFactory, cdp::Cdp};
use dart_testkit::suite::gate;

use crate::needs;

pub(crate) type Env = DeviceEnvironment<DesktopDevice, MiniwobDriver>;

pub(crate) fn config() -> MiniwobConfig {
    MiniwobConfig {
        pages_dir: needs::pages(),
        ..MiniwobConfig::default()
    }
}

/// Why the suite cannot run here, if so.
pub(crate) fn missing() -> Option<String> {
    let factory = MiniwobFactory::new(config()).map(drop);
    gate("miniwob", factory.map_err(|error| error.to_string()))
}

fn available() -> bool {
    missing().is_none_or(|why| needs::skip("miniwob", &why))
}

pub(crate) async fn make(config: &MiniwobConfig) -> Result<Env> {
    let driver = MiniwobDriver::start(Arc::new(config.clone()), true).await?;
    let device = DesktopDevice::start(config.desktop.clone(), config.screen).await?;
    Ok(DeviceEnvironment::new(device, driver, true, config.limits))
}

pub(crate) fn task(page: &str, split: Split) -> Task {
    let only = MiniwobConfig {
        tasks: vec![page.to_owned()],
        ..config()
    };
    only.tasks(split).unwrap().remove(0)
}

/// Lets the expert play one episode.
async fn demonstrate(env: &mut (impl Demonstrate + ?Sized), task: &Task, seed: u64) -> Reward {
    env.reset(task, seed).await.unwrap();
    loop {
        let action = env.expert_action().await.unwrap();
        let action = action.unwrap_or_else(|| panic!("{}: no expert for seed {seed}", task.id));
        if env.step(&action).await.unwrap().status != StepStatus::Running {
            return env.score().await.unwrap();
        }
    }
}

#[tokio::test]
async fn the_experts_solve_the_default_tasks_in_both_splits() {
    if !available() {
        return;
    }
    let config = config();
    let factory = MiniwobFactory::new(config.clone()).unwrap();
    let mut env = factory.create_demonstrator().await.unwrap();
    for split in [Split::Train, Split::Layouts] {
        for task in config.tasks(split).unwrap() {
            let start = Instant::now();
            for seed in 0..20 {
                let reward = demonstrate(env.as_mut(), &task, seed).await;
                assert!(reward.is_success(), "{} with seed {seed}", task.id);
            }
            println!("{}: 20 episodes in {:?}", task.id, start.elapsed());
        }
    }
    env.close().await.unwrap();
}

#[tokio::test]
async fn a_wrong_click_scores_nothing() {
    if !available() {
        return;
    }
    let mut env = make(&config()).await.unwrap();
    // The widget that is not asked for and the button TWO end the episode; a click beside does not.
    for page in ["click-test", "click-test-2", "focus-text", "click-dialog"] {
        env.reset(&task(page, Split::Train), 3).await.unwrap();
        // The instruction takes no click.
        let step = env
            .step(&Action::click(ScreenPx::new(80, 40)))
            .await
            .unwrap();
        assert_eq!(step.status, StepStatus::Running, "{page}");
        assert_eq!(env.score().await.unwrap(), Reward::FAILURE, "{page}");
    }
    let two = task("click-test-2", Split::Train);
    for seed in 0..5 {
        let reset = env.reset(&two, seed).await.unwrap();
        let ui = reset.observation.ui.unwrap();
        let button = ui.iter().find(|element| element.text == "TWO").unwrap();
        assert_eq!(button.role, UiRole::Button);
        let at = button.bounds.center();
        let Some(Action::Click { at: right, .. }) = env.expert_action().await.unwrap() else {
            panic!("no expert for seed {seed}");
        };
        // Where the buttons overlap, the lower one cannot be clicked in the middle.
        if (at.x - right.x).abs() > 40 || (at.y - right.y).abs() > 40 {
            let step = env.step(&Action::click(at)).await.unwrap();
            assert_eq!(step.status, StepStatus::Terminated, "seed {seed}");
        }
        assert_eq!(env.score().await.unwrap(), Reward::FAILURE, "seed {seed}");
    }
    env.close().await.unwrap();
}

#[tokio::test]
async fn a_seed_fixes_the_pixels_on_every_desktop_and_after_every_episode() {
    if !available() {
        return;
    }
    let config = config();
    let (mut one, mut two) = (make(&config).await.unwrap(), make(&config).await.unwrap());
    let mut distinct = std::collections::BTreeSet::new();
    let mut resets = 0;
    for task in config.tasks(Split::Train).unwrap() {
        for seed in 0..4 {
            let first = one.reset(&task, seed).await.unwrap();
            // Leaves a focused, pressed or hovered element, a selection and a held button behind.
            let action = one.expert_action().await.unwrap().unwrap();
            if one.step(&action).await.unwrap().status == StepStatus::Running {
                one.step(&Action::MouseDown {
                    button: dart_core::MouseButton::Left,
                })
                .await
                .unwrap();
            }
            one.reset(&task, seed + 100).await.unwrap();
            let again = one.reset(&task, seed).await.unwrap();
            let elsewhere = two.reset(&task, seed).await.unwrap();
            for other in [&again, &elsewhere] {
                assert_eq!(first.instruction, other.instruction);
                assert!(
                    first.observation.frame == other.observation.frame,
                    "{} seed {seed}",
                    task.id
                );
            }
            let held_out = Task {
                split: Split::Layouts,
                ..task.clone()
            };
            let held_out = one.reset(&held_out, seed).await.unwrap();
            distinct.insert(first.observation.frame.rgb().to_vec());
            distinct.insert(held_out.observation.frame.rgb().to_vec());
            resets += 2;
        }
    }
    // Different seeds differ, but for a widget list or a layout that happens to come twice.
    assert!(
        distinct.len() > resets * 3 / 4,
        "{} of {resets}",
        distinct.len()
    );
    one.close().await.unwrap();
    two.close().await.unwrap();
}

#[tokio::test]
async fn nothing_of_the_reward_is_in_the_document() {
    if !available() {
        return;
    }
    let mut env = make(&config()).await.unwrap();
    let task = task("click-test", Split::Train);
    let reward = demonstrate(&mut env, &task, 1).await;
    assert!(reward.is_success());
    let browser = env.device_mut().desktop().unwrap().devtools_address();
    let mut cdp = Cdp::connect(browser, Duration::from_secs(10))
        .await
        .unwrap();
    let page = "document.querySelector('iframe.shown').contentDocument";
    let script = format!(
        "{page}.querySelectorAll(\
        '#reward-display, #click-canvas, #sync-task-cover, #reward-last, #timer-countdown').length"
    );
    assert_eq!(cdp.evaluate(&script).await.unwrap(), 0);
    let text = cdp.evaluate(&format!("{page}.body.innerText")).await;
    let text = text.unwrap();
    let text = text.as_str().unwrap();
    assert!(
        text.contains("Click the button.") && !text.contains("reward"),
        "{text}"
    );
    env.close().await.unwrap();
}

#[tokio::test]
async fn what_an_agent_does_to_the_browser_ends_with_the_episode() {
    if !available() {
        return;
    }
    let mut env = make(&config()).await.unwrap();
    let task = Task {
        horizon: 9,
        ..task("click-test", Split::Train)
    };
    let first = env.reset(&task, 5).await.unwrap();
    let hotkey = |keys: &[Key]| Action::Hotkey {
        keys: keys.to_vec(),
    };
    let (ctrl, alt) = (Modifier::Ctrl.key(), Modifier::Alt.key());
    let disturbances = [
        // A reload, an enlarged page, a new tab, no window at all, no browser at all.
        Action::Press {
            key: Key::Named(NamedKey::F5),
        },
        hotkey(&[ctrl, Key::Char('t')]),
        hotkey(&[ctrl, Key::Char('w')]),
        hotkey(&[alt, Key::Named(NamedKey::F4)]),
        hotkey(&[ctrl, Key::Named(NamedKey::Shift), Key::Char('q')]),
    ];
    for action in disturbances {
        // The page may be gone; that the step says so is right, too.
        if let Err(error) = env.step(&action).await {
            assert!(error.is_retryable(), "{action:?}: {error}");
        }
        // The first try may find out that the browser is gone, the second must not.
        let again = match env.reset(&task, 5).await {
            Ok(reset) => reset,
            Err(error) => {
                assert!(error.is_retryable(), "{action:?}: {error}");
                env.reset(&task, 5)
                    .await
                    .unwrap_or_else(|e| panic!("{action:?}: {e}"))
            }
        };
        assert!(
            again.observation.frame == first.observation.frame,
            "{action:?}"
        );
    }
    env.close().await.unwrap();
}

#[tokio::test]
async fn a_page_that_is_left_ends_the_episode_as_a_failure() {
    if !available() {
        return;
    }
    let mut env = make(&config()).await.unwrap();
    let task = task("click-test", Split::Train);
    let first = env.reset(&task, 5).await.unwrap();
    let browser = env.device_mut().desktop().unwrap().devtools_address();
    let mut cdp = Cdp::connect(browser, Duration::from_secs(10))
        .await
        .unwrap();
    // As a link in the page would.
    let leave = "new Promise(done => { const frame = document.querySelector('iframe.shown'); \
        frame.onload = done; frame.contentWindow.location = '/core/core.css'; })";
    cdp.evaluate(leave).await.unwrap();
    let step = env.step(&Action::Wait { millis: 1 }).await.unwrap();
    assert_eq!(step.status, StepStatus::Terminated);
    assert_eq!(env.score().await.unwrap(), Reward::FAILURE);
    let again = env.reset(&task, 5).await.unwrap();
    assert!(again.observation.frame == first.observation.frame);
    assert!(demonstrate(&mut env, &task, 6).await.is_success());
    env.close().await.unwrap();
}

#[test]
fn missing_pages_are_named_with_the_command_that_fetches_them() {
    let config = MiniwobConfig {
        pages_dir: "/nonexistent/html".into(),
        ..MiniwobConfig::default()
    };
    let error = MiniwobFactory::new(config).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    let text = error.to_string();
    assert!(
        text.contains("/nonexistent/html") && text.contains("cargo xtask fetch-miniwob"),
        "{text}"
    );
}

#[tokio::test]
async fn a_closed_device_refuses_and_leaves_nothing_running() {
    if !available() {
        return;
    }
    let mut device = DesktopDevice::start(config().desktop, Size::new(160, 210))
        .await
        .unwrap();
    let ids = device.desktop().unwrap().process_ids();
    device.close().await.unwrap();
    device.close().await.unwrap();
    let error = device.screenshot().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Misuse);
    assert!(
        ids.iter().all(|pid| !crate::desktop::is_alive(*pid)),
        "{ids:?}"
    );
}
