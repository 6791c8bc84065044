//! What the runs came to, as a table and as comma-separated values.

use std::fmt::Write as _;

use anyhow::{Context, Result};
use serde_json::Value;

/// A point of a learning curve: environment steps, and held-out success on the mean of families.
pub(super) type Point = (u64, f64);

/// One run.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Outcome {
    pub(super) row: String,
    pub(super) seed: u64,
    /// From the warm start, at 0 steps, on.
    pub(super) curve: Vec<Point>,
    pub(super) learner_steps: u64,
    pub(super) trajectories: u64,
}

impl Outcome {
    /// From `summary.json` of a run.
    pub(super) fn of(row: &str, seed: u64, summary: &Value) -> Result<Self> {
        let overall = |splits: &Value| {
            let value = splits["layouts"]["overall"].as_f64();
            value.context("summary.json has held-out success on layouts")
        };
        let count = |key: &str| {
            let value = summary[key].as_u64();
            value.with_context(|| format!("summary.json has {key}"))
        };
        let mut curve = vec![(0, overall(&summary["held_out"]["warm_start"])?)];
        for point in summary["curve"].as_array().into_iter().flatten() {
            let steps = point["environment_steps"].as_u64();
            let steps = steps.context("a point of the curve has environment_steps")?;
            curve.push((steps, overall(&point["held_out"])?));
        }
        Ok(Self {
            row: row.to_owned(),
            seed,
            curve,
            learner_steps: count("learner_steps")?,
            trajectories: count("trajectories")?,
        })
    }

    /// Success when `budget` steps had been taken: at the first evaluation from then on, or the
    /// last one.
    fn at(&self, budget: u64) -> f64 {
        let reached = self.curve.iter().find(|(steps, _)| *steps >= budget);
        reached
            .or(self.curve.last())
            .map_or(f64::NAN, |(_, success)| *success)
    }

    /// Mean over the budgets: less noisy than the last point.
    fn mean(&self, budgets: &[u64]) -> f64 {
        let sum: f64 = budgets.iter().map(|budget| self.at(*budget)).sum();
        sum / budgets.len().max(1) as f64
    }
}

/// Mean and range over seeds, in per cent.
fn cell(values: &[f64]) -> String {
    if values.is_empty() {
        return "–".into();
    }
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let [mean, low, high] = [mean, low, high].map(|share| share * 100.0);
    format!("{mean:.1} ({low:.0}–{high:.0})")
}

/// Held-out success against environment steps, a Markdown table; `budgets` without 0.
pub(super) fn table(rows: &[&str], outcomes: &[Outcome], budgets: &[u64]) -> String {
    let mut table = String::from("| row | 0 |");
    for budget in budgets {
        let _ = write!(table, " {budget} |");
    }
    table.push_str(" mean of the curve | learner steps | trajectories |\n|---|---|");
    table.push_str(&"---|".repeat(budgets.len() + 3));
    table.push('\n');
    for row in rows {
        let runs: Vec<&Outcome> = outcomes.iter().filter(|run| run.row == *row).collect();
        let of = |value: &dyn Fn(&Outcome) -> f64| -> Vec<f64> {
            runs.iter().map(|run| value(run)).collect()
        };
        let _ = write!(table, "| {row} | {} |", cell(&of(&|run| run.at(0))));
        for budget in budgets {
            let _ = write!(table, " {} |", cell(&of(&|run| run.at(*budget))));
        }
        let mean_count = |value: &dyn Fn(&Outcome) -> u64| {
            runs.iter().map(|run| value(run)).sum::<u64>() / runs.len().max(1) as u64
        };
        let _ = writeln!(
            table,
            " {} | {} | {} |",
            cell(&of(&|run| run.mean(budgets))),
            mean_count(&|run| run.learner_steps),
            mean_count(&|run| run.trajectories),
        );
    }
    table
}

/// One line for each point of each curve.
pub(super) fn csv(outcomes: &[Outcome]) -> String {
    let mut text = String::from("row,seed,environment_steps,success\n");
    for run in outcomes {
        for (steps, success) in &run.curve {
            let _ = writeln!(text, "{},{},{steps},{success:.4}", run.row, run.seed);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn summary(last: f64) -> Value {
        let success = |overall: f64| json!({"layouts": {"overall": overall}});
        json!({
            "learner_steps": 7,
            "trajectories": 90,
            "held_out": {"warm_start": success(0.5)},
            "curve": [
                {"environment_steps": 105, "held_out": success(0.6)},
                {"environment_steps": 203, "held_out": success(last)},
            ],
        })
    }

    #[test]
    fn curves_become_a_table() {
        let run = |seed, last| Outcome::of("all", seed, &summary(last)).expect("a summary");
        let outcomes = [run(0, 0.7), run(1, 0.9)];
        assert_eq!(outcomes[0].curve, [(0, 0.5), (105, 0.6), (203, 0.7)]);
        let text = table(&["all", "none"], &outcomes, &[100, 200]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0],
            "| row | 0 | 100 | 200 | mean of the curve | learner steps | trajectories |"
        );
        assert_eq!(lines[1].matches("---").count(), 7);
        assert_eq!(
            lines[2],
            "| all | 50.0 (50–50) | 60.0 (60–60) | 80.0 (70–90) | 70.0 (65–75) | 7 | 90 |"
        );
        assert_eq!(lines[3], "| none | – | – | – | – | 0 | 0 |");
        let lines = csv(&outcomes);
        assert!(lines.contains("all,1,203,0.9000\n"), "{lines}");
    }

    #[test]
    fn a_summary_that_lacks_something_is_an_error() {
        let mut broken = summary(0.7);
        broken["held_out"] = json!({});
        assert!(Outcome::of("all", 0, &broken).is_err());
    }
}
