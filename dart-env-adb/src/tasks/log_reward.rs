//! Rewards that an app writes to the log, as AndroidEnv's tasks have them.

use dart_core::Reward;
use regex::Regex;
use serde::{Deserialize, Serialize};

use super::values::compile;
use crate::error::{Adb, AdbError};

/// Most patterns of a task.
const MAX_PATTERNS: usize = 100;

/// What lines of the log are worth. Patterns are those of the crate `regex` and have to fit from the
/// beginning of a message.
///
/// Deviation from AndroidEnv, whose rewards come step by step: an episode is worth the sum of its
/// rewards divided by `full`, at least 0 and at most 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogReward {
    /// Only lines with these tags count; empty (default): all.
    pub tags: Vec<String>,
    /// Its first group is the score so far, of which the last one counts.
    pub score: Option<String>,
    /// Their first groups are rewards.
    pub rewards: Vec<String>,
    /// Lines that are worth something.
    pub events: Vec<LogEvent>,
    /// Lines that end the episode.
    pub ends: Vec<String>,
    /// The sum that is worth 1. Default 1.
    pub full: f64,
}

/// A line that is worth something.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogEvent {
    /// Its pattern.
    pub line: String,
    /// What it is worth.
    pub reward: f64,
}

impl Default for LogReward {
    fn default() -> Self {
        Self {
            tags: Vec::new(),
            score: None,
            rewards: Vec::new(),
            events: Vec::new(),
            ends: Vec::new(),
            full: 1.0,
        }
    }
}

impl LogReward {
    pub(super) fn compile(&self) -> Adb<LogRules> {
        let patterns = self.rewards.len() + self.events.len() + self.ends.len();
        if patterns > MAX_PATTERNS || self.tags.len() > MAX_PATTERNS {
            let message = format!("a reward has at most {MAX_PATTERNS} tags and patterns");
            return Err(AdbError::Config(message));
        }
        let worth = self.events.iter().map(|event| event.reward);
        if !(self.full.is_finite() && self.full > 0.0) || worth.clone().any(|w| !w.is_finite()) {
            let message = "reward.full has to be more than 0, and every reward finite";
            return Err(AdbError::Config(message.into()));
        }
        let grouped = |pattern: &String| {
            let compiled = anchored(pattern)?;
            if compiled.captures_len() < 2 {
                let message = format!("the pattern {pattern:.200?} has no group for a number");
                return Err(AdbError::Config(message));
            }
            Ok(compiled)
        };
        let lines = self.events.iter().map(|event| anchored(&event.line));
        Ok(LogRules {
            score: self.score.as_ref().map(grouped).transpose()?,
            rewards: self.rewards.iter().map(grouped).collect::<Adb<_>>()?,
            events: lines
                .zip(worth)
                .map(|(line, w)| Ok((line?, w)))
                .collect::<Adb<_>>()?,
            ends: self.ends.iter().map(|p| anchored(p)).collect::<Adb<_>>()?,
            tags: self.tags.clone(),
            full: self.full,
        })
    }
}

fn anchored(pattern: &str) -> Adb<Regex> {
    compile(&format!("^(?:{pattern})"))
}

/// What has been read of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct LogSum {
    total: f64,
    /// Whether a line ended the episode.
    pub(super) ended: bool,
}

/// [`LogReward`] made ready.
#[derive(Clone, Debug)]
pub(super) struct LogRules {
    tags: Vec<String>,
    score: Option<Regex>,
    rewards: Vec<Regex>,
    events: Vec<(Regex, f64)>,
    ends: Vec<Regex>,
    full: f64,
}

impl LogRules {
    pub(super) const fn tags(&self) -> &Vec<String> {
        &self.tags
    }

    /// Reads lines of `logcat -v tag`, such as `I/Game: score 3`.
    pub(super) fn read(&self, log: &str) -> LogSum {
        let mut sum = LogSum::default();
        let mut score = 0.0;
        for line in log.lines() {
            let Some((head, message)) = line.split_once(": ") else {
                continue;
            };
            let tag = head.split_once('/').map_or(head, |(_, tag)| tag).trim();
            if !self.tags.is_empty() && !self.tags.iter().any(|known| known == tag) {
                continue;
            }
            if let Some(now) = self.score.as_ref().and_then(|p| number(p, message)) {
                sum.total += now - score;
                score = now;
            }
            let rewards = self.rewards.iter().filter_map(|p| number(p, message));
            sum.total += rewards.sum::<f64>();
            let events = self
                .events
                .iter()
                .filter(|(line, _)| line.is_match(message));
            sum.total += events.map(|(_, worth)| worth).sum::<f64>();
            sum.ended |= self.ends.iter().any(|line| line.is_match(message));
        }
        sum
    }

    /// What the episode is worth. A sum that is no number is worth nothing.
    pub(super) fn reward(&self, sum: LogSum) -> Reward {
        let share = (sum.total / self.full).clamp(0.0, 1.0);
        Reward::new(share).unwrap_or(Reward::FAILURE)
    }
}

/// The number in the first group.
fn number(pattern: &Regex, message: &str) -> Option<f64> {
    let found = pattern.captures(message)?.get(1)?;
    let number = found.as_str().trim().parse::<f64>().ok();
    number.filter(|number| number.is_finite())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn game() -> LogReward {
        LogReward {
            tags: vec!["Game".into()],
            score: Some(r"score=([-\d.]+)".into()),
            rewards: vec![r"bonus (\S+)".into()],
            events: vec![LogEvent {
                line: "crash".into(),
                reward: -1.0,
            }],
            ends: vec!["over$".into()],
            full: 10.0,
        }
    }

    #[test]
    fn scores_rewards_and_events_are_added_up() {
        let rules = game().compile().unwrap();
        let log = "I/Game: score=2\nI/Other: score=100\nD/Game : score=6\nI/Game: bonus 3.5\nI/Game: bonus much\nI/Game: crash!\nI/Game: no score=9\nrubbish\n";
        let sum = rules.read(log);
        assert!(!sum.ended);
        assert_eq!(rules.reward(sum).value(), 0.85);
        assert!(
            rules.read("W/Game: game over\n") == LogSum::default(),
            "not from the beginning"
        );
        assert!(rules.read("W/Game: over\n").ended);
        assert_eq!(rules.reward(rules.read("I/Game: crash")).value(), 0.0);
        assert_eq!(rules.reward(rules.read("I/Game: score=1000")).value(), 1.0);
    }

    #[test]
    fn mistakes_are_named() {
        type Fault = fn(&mut LogReward);
        let faults: [(Fault, &str); 5] = [
            (|r| r.full = 0.0, "full"),
            (|r| r.score = Some("x".into()), "group"),
            (|r| r.ends = vec!["(".into()], "pattern"),
            (|r| r.events[0].reward = f64::NAN, "finite"),
            (|r| r.ends = vec!["x".into(); 101], "at most"),
        ];
        for (break_it, named) in faults {
            let mut reward = game();
            break_it(&mut reward);
            let error = reward.compile().unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_log_has_a_reward(lines in proptest::collection::vec("I/Game: (score=|bonus |crash|over)?[-0-9e.]{0,8}|\\PC{0,20}", 0..8)) {
            let rules = game().compile().unwrap();
            let reward = rules.reward(rules.read(&lines.join("\n"))).value();
            prop_assert!((0.0..=1.0).contains(&reward));
        }
    }
}
