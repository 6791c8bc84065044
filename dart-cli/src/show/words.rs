//! Outcomes, ends and actions in words, for people.

use std::fmt::Write;

use dart_core::{Action, Outcome, StopReason};
use serde_json::Value;

/// What an episode was worth.
pub(crate) fn outcome(outcome: Outcome) -> String {
    match outcome {
        Outcome::Scored { reward } if reward.is_success() => "success".into(),
        Outcome::Scored { reward } if reward.value() > 0.0 => {
            format!("reward {:.3}", reward.value())
        }
        Outcome::Scored { .. } => "failure".into(),
        Outcome::PolicyFault => "failure, by breaking the rules".into(),
        Outcome::Aborted => "aborted".into(),
    }
}

/// Why it ended.
pub(super) const fn stop(stop: StopReason) -> &'static str {
    match stop {
        StopReason::Cancelled => "the run was told to stop",
        StopReason::Completed => "task or agent",
        StopReason::EnvironmentError => "the environment failed",
        StopReason::ParseError => "the output was not an action",
        StopReason::StepLimit => "the step limit",
        StopReason::TimeLimit => "the time limit",
        StopReason::TokenLimit => "the token limit",
    }
}

/// The action as it is written in files, without their punctuation: `click at 3, 4`.
pub(super) fn action(action: &Action) -> String {
    let Ok(Value::Object(mut fields)) = serde_json::to_value(action) else {
        return "an action".to_owned();
    };
    let name = fields.remove("action");
    let mut words = text(&name.unwrap_or_default());
    for (name, value) in fields {
        let usual = matches!((&*name, &value), ("count", Value::Number(count)) if count.as_u64() == Some(1))
            || value.as_str() == Some("left") && name == "button"
            || value.is_null()
            || value.as_array().is_some_and(Vec::is_empty);
        if !usual {
            let _ = write!(words, ", {name} {}", text(&value));
        }
    }
    words.replacen(", ", " ", 1)
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) if text.chars().all(|c| c.is_alphanumeric() || c == '_') => {
            text.clone()
        }
        Value::Object(point) if point.contains_key("x") => {
            format!("({}, {})", point["x"], point["y"])
        }
        Value::Array(all) => all.iter().map(text).collect::<Vec<_>>().join("+"),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use dart_core::{Reward, ScreenPx};

    use super::*;

    #[test]
    fn nothing_reads_like_source_code() {
        let scored = |reward| Outcome::Scored {
            reward: Reward::new(reward).unwrap(),
        };
        assert_eq!(outcome(scored(1.0)), "success");
        assert_eq!(outcome(scored(0.5)), "reward 0.500");
        assert_eq!(outcome(scored(0.0)), "failure");
        assert_eq!(
            action(&Action::click(ScreenPx::new(3, 4))),
            "click at (3, 4)"
        );
        let typed = Action::Type { text: "a b".into() };
        assert_eq!(action(&typed), "type text \"a b\"");
        assert_eq!(action(&Action::Done), "done");
        let drag = Action::DragTo {
            from: Some(ScreenPx::new(1, 2)),
            to: ScreenPx::new(3, 4),
        };
        assert_eq!(action(&drag), "drag_to from (1, 2), to (3, 4)");
    }
}
