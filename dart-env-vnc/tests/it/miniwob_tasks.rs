//! All tasks of MiniWoB++ on a real desktop: each begins, pays nothing for nothing, leaves nothing to
//! the next episode; and the experts' ways of acting, one task for each.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::time::Instant;

use dart_core::{
    Action, Demonstrate, EnvironmentFactory, Frame, Key, Modifier, NamedKey, Reward, ScreenPx,
    Size, Split, StepStatus, Task,
};
use dart_env_vnc::{
    DesktopConfig, MiniwobConfig, MiniwobFactory,
    miniwob::{TASKS, TaskInfo},
};
use dart_testkit::suite::gate;

use crate::needs;

/// Set to a number of seeds: every expert plays them.
const ALL_EXPERTS: &str = "DART_TEST_MINIWOB_EXPERTS";

fn config<'a>(tasks: impl IntoIterator<Item = &'a str>) -> MiniwobConfig {
    MiniwobConfig {
        pages_dir: needs::pages(),
        tasks: tasks.into_iter().map(str::to_owned).collect(),
        ..MiniwobConfig::default()
    }
}

/// Room for the airlines' pages.
fn roomy<'a>(tasks: impl IntoIterator<Item = &'a str>) -> MiniwobConfig {
    MiniwobConfig {
        screen: Size::new(376, 668),
        desktop: DesktopConfig {
            width: 392,
            height: 684,
            ..DesktopConfig::default()
        },
        ..config(tasks)
    }
}

fn available() -> bool {
    let factory = MiniwobFactory::new(config(["click-test"])).map(drop);
    let missing = gate("miniwob", factory.map_err(|error| error.to_string()));
    missing.is_none_or(|why| needs::skip("miniwob", &why))
}

async fn start(config: MiniwobConfig) -> Box<dyn Demonstrate> {
    let factory = MiniwobFactory::new(config).unwrap();
    factory.create_demonstrator().await.unwrap()
}

fn task(info: &TaskInfo, split: Split) -> Task {
    config([info.name]).tasks(split).unwrap().remove(0)
}

fn named(name: &str, split: Split) -> Task {
    task(dart_env_vnc::miniwob::task_info(name).unwrap(), split)
}

/// Whether all pixels are alike.
fn is_blank(frame: &Frame) -> bool {
    let first = &frame.rgb()[..3];
    frame.rgb().chunks_exact(3).all(|pixel| pixel == first)
}

/// What is wrong with the beginning of a task, if anything.
async fn fault_of(env: &mut dyn Demonstrate, info: &TaskInfo) -> Result<(), String> {
    let task = task(info, Split::Train);
    let say = |what: &str, error: dart_core::Error| format!("{what}: {error}");
    let reset = env.reset(&task, 3).await.map_err(|e| say("reset", e))?;
    if reset.instruction.trim().is_empty() {
        return Err("no instruction".into());
    }
    if is_blank(&reset.observation.frame) {
        return Err("a frame of one colour".into());
    }
    // Nothing, and a click on the head of the page; that of an airline may have links.
    let head = !info.name.starts_with("flight.");
    let head = head.then(|| Action::click(ScreenPx::new(90, 2)));
    for action in [Action::Wait { millis: 1 }].into_iter().chain(head) {
        let step = env.step(&action).await.map_err(|e| say("step", e))?;
        if step.status != StepStatus::Running {
            return Err(format!("{action:?} ends the episode"));
        }
        let reward = env.score().await.map_err(|e| say("score", e))?;
        if reward != Reward::FAILURE {
            return Err(format!("{action:?} is worth {}", reward.value()));
        }
    }
    Ok(())
}

#[tokio::test]
async fn every_task_begins_and_pays_nothing_for_nothing() {
    if !available() {
        return;
    }
    let start_time = Instant::now();
    let mut env = start(roomy(TASKS.iter().map(|task| task.name))).await;
    let mut faults = Vec::new();
    for info in TASKS {
        if let Err(fault) = fault_of(env.as_mut(), info).await {
            faults.push(format!("{}: {fault}", info.name));
        }
    }
    env.close().await.unwrap();
    println!("{} tasks in {:?}", TASKS.len(), start_time.elapsed());
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Lets the expert play one episode; why it failed, if it did.
async fn play(env: &mut dyn Demonstrate, task: &Task, seed: u64) -> Result<u32, String> {
    let reset = env.reset(task, seed).await.map_err(|e| e.to_string())?;
    let mut steps = 0;
    loop {
        let action = env.expert_action().await.map_err(|e| e.to_string())?;
        let Some(action) = action else {
            return Err(format!("no idea at step {steps}: {}", reset.instruction));
        };
        let step = env.step(&action).await.map_err(|e| e.to_string())?;
        steps += 1;
        if step.status != StepStatus::Running {
            let reward = env.score().await.map_err(|e| e.to_string())?;
            let why = format!("{:?} after {action:?}: {}", step.status, reset.instruction);
            return reward.is_success().then_some(steps).ok_or(why);
        }
    }
}

/// One task for each way of acting: boxes, lists of the browser, dates, fields, the clipboard, the
/// wheel, sliders by drag and keys, three clicks, menus by hovering, pages of a book, a drag.
const SAMPLE: [&str; 12] = [
    "choose-date-easy",
    "choose-list",
    "click-checkboxes-large",
    "click-menu",
    "drag-box",
    "email-inbox-forward-nl",
    "enter-date",
    "form-sequence",
    "guess-number",
    "order-food",
    "scroll-text",
    "use-slider",
];

#[tokio::test]
async fn experts_of_every_kind_solve_their_tasks() {
    if !available() {
        return;
    }
    let mut env = start(config(SAMPLE)).await;
    let mut solved = 0;
    let mut failures = Vec::new();
    for name in SAMPLE {
        for seed in 0..2 {
            match play(env.as_mut(), &named(name, Split::Train), seed).await {
                Ok(_) => solved += 1,
                Err(why) => failures.push(format!("{name} with seed {seed}: {why}")),
            }
        }
    }
    env.close().await.unwrap();
    // Nine in ten is what an expert has to do.
    assert!(solved >= 22, "{}", failures.join("\n"));
}

#[tokio::test]
async fn every_expert_solves_nine_in_ten() {
    if !available() {
        return;
    }
    let seeds = std::env::var(ALL_EXPERTS)
        .ok()
        .and_then(|text| text.parse().ok());
    let Some(seeds) = seeds else {
        let why = format!("{ALL_EXPERTS}=10 lets every expert play 10 episodes, some minutes");
        println!("skipped: miniwob-experts: {why}");
        return;
    };
    let experts: Vec<&TaskInfo> = TASKS.iter().filter(|task| task.expert).collect();
    let mut env = start(config(experts.iter().map(|task| task.name))).await;
    let mut weak = Vec::new();
    println!("{:<30} {:>8} {:>6}", "task", "success", "steps");
    for info in experts {
        let (mut solved, mut steps) = (0_u64, 0);
        for seed in 0..seeds {
            match play(env.as_mut(), &task(info, Split::Train), seed).await {
                Ok(taken) => {
                    solved += 1;
                    steps += taken;
                }
                Err(why) => println!("    {} with seed {seed}: {why}", info.name),
            }
        }
        let rate = solved as f64 / seeds as f64;
        let steps = f64::from(steps) / solved.max(1) as f64;
        println!("{:<30} {rate:>8.2} {steps:>6.1}", info.name);
        if rate < 0.9 {
            weak.push(info.name);
        }
    }
    env.close().await.unwrap();
    assert!(weak.is_empty(), "{weak:?} solve fewer than nine in ten");
}

/// Pages that leave something behind when they are used again: handlers, timers, values, scrolled
/// boxes, opened menus.
const UNTIDY: [&str; 6] = [
    "click-menu-2",
    "click-pie-nodelay",
    "form-sequence",
    "search-engine",
    "social-media",
    "use-colorwheel",
];

#[tokio::test]
async fn an_episode_leaves_nothing_to_the_next() {
    if !available() {
        return;
    }
    let mut env = start(config(UNTIDY)).await;
    let disturb = [
        Action::click(ScreenPx::new(30, 80)),
        Action::click(ScreenPx::new(80, 65)),
        Action::Type { text: "x".into() },
    ];
    for name in UNTIDY {
        let task = named(name, Split::Train);
        let first = env.reset(&task, 1).await.unwrap();
        for action in &disturb {
            if env.step(action).await.unwrap().status != StepStatus::Running {
                break;
            }
        }
        env.reset(&task, 2).await.unwrap();
        let again = env.reset(&task, 1).await.unwrap();
        assert_eq!(first.instruction, again.instruction, "{name}");
        // The pie opens by itself a little; its words are what matters.
        if name != "click-pie-nodelay" {
            let same = first.observation.frame == again.observation.frame;
            assert!(same, "{name} looks different");
        }
        assert_eq!(env.score().await.unwrap(), Reward::FAILURE, "{name}");
    }
    env.close().await.unwrap();
}

/// Plays the seeds 0 to 3 of each task.
async fn all_are_solved(names: &[&str]) {
    let mut env = start(config(names.iter().copied())).await;
    for name in names {
        for seed in 0..4 {
            let played = play(env.as_mut(), &named(name, Split::Train), seed).await;
            played.unwrap_or_else(|why| panic!("{name} with seed {seed}: {why}"));
        }
    }
    env.close().await.unwrap();
}

/// The browser goes on sending the wheel to what it has scrolled before, even to a page that is gone.
#[tokio::test]
async fn the_wheel_turns_the_new_episodes_page() {
    if available() {
        all_are_solved(&["scroll-text-2"]).await;
    }
}

/// Proposals of what was typed before and the question of the password keeper would cover the page.
#[tokio::test]
async fn the_browser_does_not_remember_what_was_typed() {
    if available() {
        all_are_solved(&["enter-text", "login-user"]).await;
    }
}

#[tokio::test]
async fn keys_reach_a_page_that_was_loaded_anew_without_a_click() {
    if !available() {
        return;
    }
    let mut env = start(config(["enter-text"])).await;
    let tab = Action::Press {
        key: Key::Named(NamedKey::Tab),
    };
    for seed in 0..3 {
        let task = named("enter-text", Split::Train);
        env.reset(&task, seed).await.unwrap();
        env.step(&tab).await.unwrap();
        // The field is chosen, so that the expert types at once.
        let next = env.expert_action().await.unwrap();
        assert!(matches!(next, Some(Action::Type { .. })), "{next:?}");
    }
    env.close().await.unwrap();
}

#[tokio::test]
async fn words_that_are_held_out_come_in_their_split_alone() {
    if !available() {
        return;
    }
    let name = "click-test-transfer";
    let mut env = start(config([name])).await;
    for (split, button) in [
        (Split::Train, "ONE"),
        (Split::Words, "TWO"),
        (Split::Layouts, "ONE"),
    ] {
        let task = named(name, split);
        let reset = env.reset(&task, 4).await.unwrap();
        assert_eq!(&*reset.instruction, format!("Click button {button}."));
        play(env.as_mut(), &task, 4).await.unwrap();
    }
    env.close().await.unwrap();
}

#[tokio::test]
async fn the_browsers_tools_end_the_episode_and_are_gone_in_the_next() {
    if !available() {
        return;
    }
    let mut env = start(config(["click-test"])).await;
    let task = Task {
        horizon: 9,
        ..named("click-test", Split::Train)
    };
    let first = env.reset(&task, 5).await.unwrap();
    let keys = [
        Modifier::Ctrl.key(),
        Key::Named(NamedKey::Shift),
        Key::Char('j'),
    ];
    let open = Action::Hotkey {
        keys: keys.to_vec(),
    };
    let mut stepped = env.step(&open).await;
    // It takes a while until they are there. Docked, they end the episode; in a window of their own,
    // they cover the page, and the step says that it is not to be seen.
    for _ in 0..20 {
        let running = matches!(&stepped, Ok(step) if step.status == StepStatus::Running);
        if !running {
            break;
        }
        assert_eq!(env.score().await.unwrap(), Reward::FAILURE);
        stepped = env.step(&Action::Wait { millis: 200 }).await;
    }
    match stepped {
        Ok(step) => {
            assert_ne!(step.status, StepStatus::Running);
            assert_eq!(env.score().await.unwrap(), Reward::FAILURE);
        }
        Err(error) => assert!(error.is_retryable(), "{error}"),
    }
    // A new connection may not be enough: then the second try has a new browser.
    let again = match env.reset(&task, 5).await {
        Ok(again) => again,
        Err(error) => {
            assert!(error.is_retryable(), "{error}");
            env.reset(&task, 5).await.unwrap()
        }
    };
    assert!(again.observation.frame == first.observation.frame);
    env.close().await.unwrap();
}
