//! From AndroidEnv's messages to tasks.

use std::collections::BTreeMap;

use dart_core::{Split, TaskId};

use super::{
    super::{
        format::{AndroidTask, Condition, Step},
        log_reward::{LogEvent, LogReward},
    },
    message::{Field, Message},
    requests,
    tokens::mistake,
};
use crate::error::{Adb, AdbError};

/// Longest episode of a task that does not say, steps.
const HORIZON: u32 = 100;
/// AndroidEnv tries a step so often at least.
const ATTEMPTS: f64 = 3.0;

/// The task that a message describes.
pub(super) fn task(message: &Message) -> Adb<AndroidTask> {
    let id = message.text("id")?;
    let id = TaskId::new(id).map_err(|error| AdbError::Config(error.to_string()))?;
    let (name, described) = (message.text("name")?, message.text("description")?);
    let told = [described, name]
        .into_iter()
        .find(|text| !text.trim().is_empty());
    let told = told.ok_or_else(|| AdbError::Config(format!("task {id}: needs a description")))?;
    let mut setup = Vec::new();
    for field in message.all("setup_steps").chain(message.all("reset_steps")) {
        setup.extend(step(field)?);
    }
    // Aids for agents that see more than the screen, and what older files say of the app.
    message.pass_over(&["extras_spec", "package_name", "full_activity_name"]);
    let screen = message.get("expected_app_screen");
    let steps = message.number("max_episode_steps")?;
    let task = AndroidTask {
        id,
        family: "android_env".into(),
        split: Split::Train,
        horizon: if steps >= 1.0 {
            steps.min(1e6) as u32
        } else {
            HORIZON
        },
        instruction: literal(&told),
        parameters: BTreeMap::new(),
        setup,
        success: Vec::new(),
        reward: Some(reward(message)?),
        ends_when_solved: false,
        activity: screen.map(activity).transpose()?,
        max_seconds: seconds(message)?,
        tear_down: Vec::new(),
        expert: Vec::new(),
    };
    if let Some((name, line)) = message.unseen().first() {
        return Err(mistake(*line, format!("{name} is not supported")));
    }
    task.check()?;
    Ok(task)
}

/// A text without parameters.
pub(super) fn literal(text: &str) -> String {
    text.replace('{', "{{")
}

/// `max_episode_sec`, which older files call `max_duration_sec`.
fn seconds(message: &Message) -> Adb<Option<u64>> {
    for name in ["max_episode_sec", "max_duration_sec"] {
        let seconds = message.number(name)?;
        if seconds > 0.0 {
            return Ok(Some(seconds.ceil().min(1e9) as u64));
        }
    }
    Ok(None)
}

fn reward(message: &Message) -> Adb<LogReward> {
    let mut reward = LogReward {
        tags: message
            .texts("log_tag")?
            .iter()
            .map(|tag| tag_of(tag))
            .collect(),
        ..LogReward::default()
    };
    if let Some(config) = message.get("log_parsing_config") {
        let config = config.message()?;
        let filters = config.texts("filters")?;
        // Silence for all others is what naming tags means anyway.
        let named = filters.iter().filter(|filter| filter.as_str() != "*:S");
        reward.tags.extend(named.map(|tag| tag_of(tag)));
        if let Some(patterns) = config.get("log_regexps") {
            let patterns = patterns.message()?;
            patterns.pass_over(&["extra", "json_extra"]);
            reward.score = Some(patterns.text("score")?).filter(|score| !score.is_empty());
            reward.rewards = patterns.texts("reward")?;
            reward.ends = patterns.texts("episode_end")?;
            for event in patterns.all("reward_event") {
                let event = event.message()?;
                reward.events.push(LogEvent {
                    line: event.text("event")?,
                    reward: event.number("reward")?,
                });
            }
        }
    }
    if reward.tags.iter().any(|tag| tag == "*") {
        let message = "log_parsing_config.filters: * is not supported: name the tags";
        return Err(AdbError::Config(message.into()));
    }
    // An empty pattern fits nothing there, where it would fit everything here.
    reward.rewards.retain(|pattern| !pattern.is_empty());
    reward.ends.retain(|pattern| !pattern.is_empty());
    reward.events.retain(|event| !event.line.is_empty());
    if reward.score.is_none() && reward.rewards.is_empty() && reward.events.is_empty() {
        let message = "log_parsing_config.log_regexps has no score, reward or reward_event: nothing would be worth anything";
        return Err(AdbError::Config(message.into()));
    }
    Ok(reward)
}

/// The tag of a filter such as `Game:V`.
fn tag_of(filter: &str) -> String {
    filter.split(':').next().unwrap_or(filter).to_owned()
}

/// The activity of an `AppScreen`.
fn activity(field: &Field) -> Adb<String> {
    let screen = field.message()?;
    let activity = screen.text("activity")?;
    if let Some(path) = screen.get("view_hierarchy_path") {
        let why = format!("{}.view_hierarchy_path is not supported", field.name);
        return Err(mistake(path.line, why));
    }
    if activity.is_empty() {
        return Err(mistake(
            field.line,
            format!("{}.activity is missing", field.name),
        ));
    }
    Ok(literal(&activity))
}

/// The steps that a `SetupStep` stands for.
fn step(field: &Field) -> Adb<Vec<Step>> {
    let message = field.message()?;
    let until = message
        .get("success_condition")
        .map(condition)
        .transpose()?;
    // Older files say `adb_call`.
    let request = message
        .get("adb_request")
        .or_else(|| message.get("adb_call"));
    let mut steps = match (request, message.get("sleep")) {
        (Some(request), None) => requests::steps(request, until.is_some())?,
        (None, Some(sleep)) => {
            let seconds = sleep.message()?.number("time_sec")?;
            vec![Step::SleepMs(millis(seconds, sleep)?)]
        }
        (None, None) if until.is_some() => Vec::new(),
        _ => {
            let why = format!(
                "{} needs one of adb_request, sleep and success_condition",
                field.name
            );
            return Err(mistake(field.line, why));
        }
    };
    if let Some((condition, timeout_ms, attempts)) = until {
        let last = steps.pop();
        steps.push(match last {
            Some(step) => Step::Attempt {
                step: Box::new(step),
                until: condition,
                timeout_ms,
                attempts,
            },
            None => Step::WaitFor {
                condition,
                timeout_ms,
            },
        });
    }
    Ok(steps)
}

fn millis(seconds: f64, field: &Field) -> Adb<u64> {
    if (0.0..=60.0).contains(&seconds) {
        return Ok((seconds * 1000.0) as u64);
    }
    Err(mistake(
        field.line,
        format!("{} takes 0 to 60 seconds", field.name),
    ))
}

/// What a `SuccessCondition` waits for, how long, and how often its step is tried.
fn condition(field: &Field) -> Adb<(Condition, u64, u32)> {
    let message = field.message()?;
    let attempts = message.number("num_retries")?.clamp(ATTEMPTS, 20.0) as u32;
    let (condition, check) = match (
        message.get("wait_for_app_screen"),
        message.get("check_install"),
    ) {
        (Some(check), None) => {
            let screen = check.message()?.get("app_screen");
            let missing = || mistake(check.line, "wait_for_app_screen.app_screen is missing");
            let screen = screen.ok_or_else(missing)?;
            (Condition::Activity(activity(screen)?), check)
        }
        (None, Some(check)) => {
            let package = check.message()?.text("package_name")?;
            (Condition::Package(literal(&package)), check)
        }
        _ => {
            let why = "success_condition needs one of wait_for_app_screen and check_install";
            return Err(mistake(field.line, why));
        }
    };
    let seconds = check.message()?.number("timeout_sec")?;
    Ok((condition, millis(seconds, check)?, attempts))
}
