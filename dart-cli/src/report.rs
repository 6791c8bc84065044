//! What a run ends with: `summary.json` and a table of held-out success per task family.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
};

use serde::{Deserialize, Serialize};

/// Success on held-out tasks of one split.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Success {
    /// Mean over families.
    pub overall: f64,
    /// Episodes in all.
    pub episodes: u64,
    /// Success rate of each family.
    pub families: BTreeMap<String, f64>,
}

/// Results of one evaluation: split → success.
pub type Splits = BTreeMap<String, Success>;

/// When a policy was evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Before any learning.
    Untrained,
    /// After the warm start.
    WarmStart,
    /// At the end.
    Final,
}

impl Stage {
    /// Its name: in `summary.json`, in the log and in the table.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Untrained => "untrained",
            Self::WarmStart => "warm_start",
            Self::Final => "final",
        }
    }
}

/// Held-out success while training goes on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CurvePoint {
    /// Steps of training's environments until then.
    pub environment_steps: u64,
    /// Learner steps of reinforcement learning until then.
    pub learner_steps: u64,
    /// Held-out success.
    pub held_out: Splits,
}

/// The result of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Name of the experiment.
    pub name: String,
    /// Its seed.
    pub seed: u64,
    /// Whether the run reached its end rather than being interrupted.
    pub completed: bool,
    /// Seconds of warm start and reinforcement learning together, evaluations included.
    pub train_seconds: f64,
    /// Seconds of the warm start.
    pub warm_start_seconds: f64,
    /// Learner steps of the warm start.
    pub warm_start_steps: u64,
    /// Learner steps of reinforcement learning.
    pub learner_steps: u64,
    /// Trajectories taken in, demonstrations not counted.
    pub trajectories: u64,
    /// Steps of training's environments, those of demonstrations and evaluations not counted.
    #[serde(default)]
    pub environment_steps: u64,
    /// Held-out success while training went on, if `evaluation.every_environment_steps` is set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub curve: Vec<CurvePoint>,
    /// Held-out success at each stage.
    pub held_out: BTreeMap<Stage, Splits>,
}

impl Summary {
    /// The table that a person reads at the end: one line a family, one column a stage and split.
    pub fn table(&self) -> String {
        let splits: BTreeSet<&String> = self.held_out.values().flat_map(Splits::keys).collect();
        let mut table = String::new();
        for split in splits {
            self.write_split(&mut table, split);
        }
        table
    }

    fn write_split(&self, table: &mut String, split: &str) {
        let stages: Vec<_> = self
            .held_out
            .iter()
            .filter_map(|(stage, s)| Some((*stage, s.get(split)?)))
            .collect();
        let families: BTreeSet<&String> =
            stages.iter().flat_map(|(_, s)| s.families.keys()).collect();
        let _ = write!(table, "\nheld-out success, {split:<10}");
        for (stage, _) in &stages {
            let _ = write!(table, "{:>12}", stage.name());
        }
        table.push('\n');
        for family in families {
            let _ = write!(table, "  {family:<26}");
            for (_, success) in &stages {
                match success.families.get(family) {
                    Some(rate) => drop(write!(table, "{rate:>12.3}")),
                    None => drop(write!(table, "{:>12}", "-")),
                }
            }
            table.push('\n');
        }
        let _ = write!(table, "  {:<26}", "mean of families");
        for (_, success) in &stages {
            let _ = write!(table, "{:>12.3}", success.overall);
        }
        table.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary() -> Summary {
        let success = |rate: f64| Success {
            overall: rate,
            episodes: 40,
            families: BTreeMap::from([("click-button".to_owned(), rate)]),
        };
        let splits = |rate| BTreeMap::from([("layouts".to_owned(), success(rate))]);
        Summary {
            name: "sim".into(),
            held_out: BTreeMap::from([
                (Stage::Untrained, splits(0.05)),
                (Stage::Final, splits(0.9)),
            ]),
            ..Summary::default()
        }
    }

    #[test]
    fn the_summary_round_trips_and_names_the_stages() {
        let json = serde_json::to_string(&summary()).unwrap();
        assert!(
            json.contains("\"untrained\":{\"layouts\":{\"overall\":0.05"),
            "{json}"
        );
        assert_eq!(serde_json::from_str::<Summary>(&json).unwrap(), summary());
    }

    #[test]
    fn a_stage_has_one_name() {
        for stage in [Stage::Untrained, Stage::WarmStart, Stage::Final] {
            let json = serde_json::to_value(stage).unwrap();
            assert_eq!(json, stage.name());
        }
    }

    #[test]
    fn the_table_has_a_line_for_each_family() {
        let table = summary().table();
        assert!(table.contains("click-button"), "{table}");
        assert!(table.contains("0.050"), "{table}");
        assert!(
            table
                .lines()
                .any(|line| line.trim_start().starts_with("mean of families"))
        );
    }
}
