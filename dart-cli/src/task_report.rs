//! What `eval` found, task by task: a table for people and `tasks.json` for programs.

use std::{
    collections::BTreeMap,
    fmt::{self, Display, Write as _},
};

use dart_core::{Outcome, StopReason};
use dart_rollout::{EpisodeResult, Evaluation};
use serde::Serialize;

/// Numbers of one task, or of all together.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct TaskScore {
    /// The task's family; empty for all together.
    #[serde(skip_serializing_if = "String::is_empty")]
    family: String,
    /// Episodes that were judged.
    episodes: u64,
    /// Those of them in which the task was done.
    successes: u64,
    /// Their share; null if no episode was judged.
    success: Option<f64>,
    /// Mean reward of the judged episodes.
    mean_reward: Option<f64>,
    /// Mean number of steps of the judged episodes.
    mean_steps: Option<f64>,
    /// Episodes that were no success, by kind: `ended` by task or agent, a limit, broken rules. The
    /// `aborted` ones are in no number above.
    failures: BTreeMap<&'static str, u64>,
}

/// What one split's evaluation found.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct SplitReport {
    /// Every task, by its id.
    tasks: BTreeMap<String, TaskScore>,
    /// All episodes together.
    total: TaskScore,
    /// Every episode, task by task and seed by seed.
    episodes: Vec<EpisodeResult>,
}

/// What an evaluation found: split → report.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct TaskReport {
    /// The splits that were evaluated and have tasks.
    splits: BTreeMap<String, SplitReport>,
}

/// Why an episode is no success, if it is none.
fn failure(episode: &EpisodeResult) -> Option<&'static str> {
    if episode.outcome.is_success() {
        return None;
    }
    Some(match (episode.outcome, episode.stop) {
        (Outcome::Aborted, _) => "aborted",
        (_, StopReason::Completed) => "ended",
        (_, StopReason::StepLimit) => "step limit",
        (_, StopReason::TimeLimit) => "time limit",
        (_, StopReason::TokenLimit) => "token limit",
        (_, StopReason::ParseError) => "no action",
        (_, StopReason::EnvironmentError) => "environment",
        (_, StopReason::Cancelled) => "cancelled",
    })
}

impl TaskScore {
    fn of<'a>(family: &str, episodes: impl IntoIterator<Item = &'a EpisodeResult>) -> Self {
        let mut score = Self {
            family: family.to_owned(),
            ..Self::default()
        };
        let (mut reward, mut steps) = (0.0, 0.0);
        for episode in episodes {
            if let Some(kind) = failure(episode) {
                *score.failures.entry(kind).or_default() += 1;
            }
            let Some(judged) = episode.outcome.reward() else {
                continue;
            };
            score.episodes += 1;
            score.successes += u64::from(judged.is_success());
            reward += judged.value();
            steps += episode.steps as f64;
        }
        let mean = |sum: f64| (score.episodes > 0).then(|| sum / score.episodes as f64);
        score.success = mean(score.successes as f64);
        score.mean_reward = mean(reward);
        score.mean_steps = mean(steps);
        score
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
        let number = |value: Option<f64>, digits: usize| {
            value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
        };
        write!(
            f,
            "  {name:<46} {:>8} {:>8} {:>8} {:>7}  ",
            self.episodes,
            number(self.success, 3),
            number(self.mean_reward, 3),
            number(self.mean_steps, 1),
        )?;
        let mut failures = String::new();
        for (kind, count) in &self.failures {
            let comma = if failures.is_empty() { "" } else { ", " };
            write!(failures, "{comma}{count} {kind}")?;
        }
        writeln!(f, "{}", if failures.is_empty() { "-" } else { &failures })
    }
}

impl TaskReport {
    /// Adds what was found on the tasks of `split`.
    pub(crate) fn add(&mut self, split: &str, found: Evaluation) {
        let mut by_task: BTreeMap<&str, Vec<&EpisodeResult>> = BTreeMap::new();
        for episode in &found.episodes {
            let episodes = by_task.entry(episode.task.as_str()).or_default();
            episodes.push(episode);
        }
        let tasks = by_task.into_iter().map(|(task, episodes)| {
            let family = &episodes[0].family;
            let score = TaskScore::of(family, episodes.iter().copied());
            (task.to_owned(), score)
        });
        let report = SplitReport {
            tasks: tasks.collect(),
            total: TaskScore::of("", &found.episodes),
            episodes: found.episodes,
        };
        self.splits.insert(split.to_owned(), report);
    }
}

/// The table: a line for each task, sorted by its id, and one for all.
impl Display for TaskReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (split, report) in &self.splits {
            let title = format!("tasks of {split}");
            writeln!(
                f,
                "\n{title:<48} {:>8} {:>8} {:>8} {:>7}  failures",
                "episodes", "success", "reward", "steps"
            )?;
            for (task, score) in &report.tasks {
                score.write(f, task)?;
            }
            let all = format!("all {} tasks", report.tasks.len());
            report.total.write(f, &all)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use dart_core::{Reward, TaskId};

    use super::*;

    fn episode(task: &str, outcome: Outcome, stop: StopReason, steps: usize) -> EpisodeResult {
        EpisodeResult {
            task: TaskId::new(task).unwrap(),
            family: "clicks".into(),
            seed: 0,
            outcome,
            stop,
            steps,
            attempts: 1,
            error: None,
        }
    }

    fn report() -> TaskReport {
        let scored = |reward| Outcome::Scored {
            reward: Reward::new(reward).unwrap(),
        };
        let found = Evaluation {
            episodes: vec![
                episode("b.two", scored(0.0), StopReason::StepLimit, 8),
                episode("a.one", scored(1.0), StopReason::Completed, 2),
                episode("a.one", scored(0.5), StopReason::Completed, 3),
                episode("a.one", Outcome::PolicyFault, StopReason::ParseError, 1),
                episode("a.one", Outcome::Aborted, StopReason::EnvironmentError, 9),
                episode("c.three", Outcome::Aborted, StopReason::EnvironmentError, 0),
            ],
            ..Evaluation::default()
        };
        let mut report = TaskReport::default();
        report.add("layouts", found);
        report
    }

    #[test]
    fn a_task_has_its_line_in_order_and_all_have_one() {
        let table = report().to_string();
        let lines: Vec<Vec<&str>> = table
            .lines()
            .skip(2)
            .map(|line| line.split_whitespace().collect())
            .collect();
        let line = |text: &'static str| text.split_whitespace().collect::<Vec<_>>();
        assert_eq!(
            lines,
            [
                line("a.one 3 0.333 0.500 2.0 1 aborted, 1 ended, 1 no action"),
                line("b.two 1 0.000 0.000 8.0 1 step limit"),
                line("c.three 0 - - - 1 aborted"),
                line("all 3 tasks 4 0.250 0.375 3.5 2 aborted, 1 ended, 1 no action, 1 step limit"),
            ],
            "{table}"
        );
    }

    #[test]
    fn programs_read_the_same_numbers() {
        let json = serde_json::to_value(report()).unwrap();
        let split = &json["splits"]["layouts"];
        assert_eq!(split["tasks"]["a.one"]["successes"], 1);
        assert_eq!(split["tasks"]["a.one"]["family"], "clicks");
        assert_eq!(split["tasks"]["a.one"]["failures"]["aborted"], 1);
        assert!(split["tasks"]["c.three"]["success"].is_null());
        assert_eq!(split["total"]["episodes"], 4);
        assert_eq!(split["total"]["mean_steps"], 3.5);
        assert_eq!(split["episodes"].as_array().unwrap().len(), 6);
    }
}
