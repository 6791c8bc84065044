//! The grid as data: rows and what each sets, over `configs/ablation.toml`.

use anyhow::{Result, bail};

/// One row: a name and the settings that make it differ from the base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) settings: &'static [&'static str],
}

const ROLLOUTS: &str = "curation.rollout_number.enabled=true";
const LENGTH: &str = "curation.trajectory_length.enabled=true";
const ENTROPY: &str = "trainer.entropy_drop=0.2";
const TRUNCATED: &str = "trainer.importance={ kind = \"truncated\", cap = 1.0 }";
const QUANTISED: &str = "policy.worker.logit_step=4.0";

/// Each piece alone over the baseline, all of them, and a sampler whose logits are rounded.
pub(super) const ROWS: &[Row] = &[
    Row {
        name: "baseline",
        settings: &[],
    },
    Row {
        name: "rollout-number",
        settings: &[ROLLOUTS],
    },
    Row {
        name: "trajectory-length",
        settings: &[LENGTH],
    },
    Row {
        name: "high-entropy",
        settings: &[ENTROPY],
    },
    Row {
        name: "truncated-is",
        settings: &[TRUNCATED],
    },
    Row {
        name: "all",
        settings: &[ROLLOUTS, LENGTH, ENTROPY, TRUNCATED],
    },
    Row {
        name: "quantised",
        settings: &[QUANTISED],
    },
    Row {
        name: "quantised-truncated-is",
        settings: &[QUANTISED, TRUNCATED],
    },
];

/// The rows of a list of names, in the grid's order; all without a list.
pub(super) fn rows(names: Option<&str>) -> Result<Vec<Row>> {
    let Some(names) = names else {
        return Ok(ROWS.to_vec());
    };
    let names: Vec<&str> = names.split(',').map(str::trim).collect();
    if let Some(unknown) = names
        .iter()
        .find(|name| ROWS.iter().all(|row| row.name != **name))
    {
        let known: Vec<&str> = ROWS.iter().map(|row| row.name).collect();
        bail!("no row `{unknown}`: {}", known.join(", "));
    }
    let chosen = ROWS.iter().filter(|row| names.contains(&row.name));
    Ok(chosen.copied().collect())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn rows_are_chosen_by_name() {
        let names = |list| -> Vec<&str> {
            let rows = rows(list).expect("known rows");
            rows.iter().map(|row| row.name).collect()
        };
        assert_eq!(names(None).len(), ROWS.len());
        assert_eq!(names(Some("all, baseline")), ["baseline", "all"]);
        let error = rows(Some("all,nothing")).expect_err("an unknown row");
        assert!(error.to_string().contains("`nothing`"), "{error}");
    }

    #[test]
    fn rows_differ_and_all_has_every_piece() {
        let names: BTreeSet<&str> = ROWS.iter().map(|row| row.name).collect();
        let settings: BTreeSet<&[&str]> = ROWS.iter().map(|row| row.settings).collect();
        assert_eq!((names.len(), settings.len()), (ROWS.len(), ROWS.len()));
        let set = |name| {
            let row = ROWS.iter().find(|row| row.name == name).expect("a row");
            row.settings.iter().copied().collect::<BTreeSet<_>>()
        };
        let pieces = [
            "rollout-number",
            "trajectory-length",
            "high-entropy",
            "truncated-is",
        ];
        let union: BTreeSet<&str> = pieces.into_iter().flat_map(set).collect();
        assert_eq!(set("all"), union);
        assert!(set("baseline").is_empty());
    }
}
