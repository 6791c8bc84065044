//! What the killed processes had said in `events.jsonl`, life after life.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use serde_json::Value;

/// What the process had said.
#[derive(Debug, Default)]
pub(super) struct Witness {
    pub(super) acknowledged: BTreeSet<String>,
    /// Of the present lineage: version, batch, trajectories.
    pub(super) lineage: Vec<(u64, u64, Vec<String>)>,
    pub(super) taken_in: u64,
}

impl Witness {
    pub(super) fn read(run: &Path) -> Self {
        let text = fs::read(run.join("events.jsonl")).unwrap_or_default();
        let mut witness = Self::default();
        let mut handed_out = BTreeMap::new();
        for line in text.split(|byte| *byte == b'\n') {
            // The last line of a life may be cut.
            if let Ok(event) = serde_json::from_slice::<Value>(line) {
                witness.note(&event, &mut handed_out);
            }
        }
        witness
    }

    fn note(&mut self, event: &Value, handed_out: &mut BTreeMap<u64, Vec<String>>) {
        let number = |name: &str| event[name].as_u64().unwrap_or(u64::MAX);
        match event["event"].as_str() {
            Some("ingest") if event["outcome"]["kind"] != "aborted" => {
                let id = event["trajectory"].as_str().unwrap_or_default();
                self.acknowledged.insert(id.to_owned());
            }
            Some("batch") => {
                let rollouts = event["rollouts"].as_array().into_iter().flatten();
                let ids = rollouts.filter_map(|id| Some(id.as_str()?.to_owned()));
                handed_out.insert(number("batch"), ids.collect());
            }
            Some("commit") => {
                let batch = number("batch");
                let ids = handed_out.get(&batch).cloned().unwrap_or_default();
                self.lineage.push((number("version"), batch, ids));
            }
            Some("resumed") => {
                let version = number("version");
                self.lineage.retain(|(at, ..)| *at <= version);
                self.taken_in += event["taken_in"].as_u64().unwrap_or(0);
            }
            _ => {}
        }
    }

    pub(super) fn last_version(&self) -> u64 {
        self.lineage.len() as u64
    }

    pub(super) fn trained_twice(&self) -> u64 {
        let mut seen = BTreeMap::new();
        let mut twice = 0;
        for (version, batch, ids) in &self.lineage {
            for id in ids {
                if let Some(before) = seen.insert(id, version) {
                    println!(
                        "trained twice: {id}, at version {before} and {version} (batch {batch})"
                    );
                    twice += 1;
                }
            }
        }
        twice
    }

    /// Where the store and the log differ about what is used up to the pointer.
    pub(super) fn mismatches(&self, stored: &BTreeMap<String, Option<u64>>, pointer: u64) -> u64 {
        let committed = self
            .lineage
            .iter()
            .filter(|(version, ..)| *version <= pointer);
        let said: BTreeMap<&String, u64> = committed
            .flat_map(|(_, batch, ids)| ids.iter().map(move |id| (id, *batch)))
            .collect();
        let found: BTreeMap<&String, u64> = stored
            .iter()
            .filter_map(|(id, batch)| Some((id, (*batch)?)))
            .collect();
        let differing = said
            .iter()
            .filter(|(id, batch)| found.get(*id) != Some(*batch));
        let unsaid = found.keys().filter(|id| !said.contains_key(*id));
        let count = differing.count() + unsaid.count();
        if count > 0 {
            println!("{count} trajectories are used in the store or in the log alone");
        }
        count as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn witness(events: &[&str]) -> Witness {
        let mut witness = Witness::default();
        let mut handed_out = BTreeMap::new();
        for event in events {
            let event = serde_json::from_str(event).expect("JSON");
            witness.note(&event, &mut handed_out);
        }
        witness
    }

    const BATCH: &str = r#"{"event":"batch","batch":0,"rollouts":["a","b"]}"#;
    const COMMIT: &str = r#"{"event":"commit","batch":0,"version":1}"#;
    const AGAIN: &str = r#"{"event":"batch","batch":1,"rollouts":["b"]}"#;
    const COMMIT_AGAIN: &str = r#"{"event":"commit","batch":1,"version":2}"#;
    const RESUMED: &str = r#"{"event":"resumed","version":0,"taken_in":1,"left":0}"#;

    #[test]
    fn what_is_trained_twice_in_one_lineage_is_seen() {
        let twice = witness(&[BATCH, COMMIT, AGAIN, COMMIT_AGAIN]);
        assert_eq!(twice.trained_twice(), 1);
        // The first use is of a lineage that was left.
        let left = witness(&[BATCH, COMMIT, RESUMED, AGAIN, COMMIT_AGAIN]);
        assert_eq!(left.trained_twice(), 0);
    }

    #[test]
    fn store_and_log_are_compared() {
        let said = witness(&[BATCH, COMMIT]);
        let stored = |a, b| BTreeMap::from([("a".to_owned(), a), ("b".to_owned(), b)]);
        assert_eq!(said.mismatches(&stored(Some(0), Some(0)), 1), 0);
        assert_eq!(said.mismatches(&stored(Some(0), None), 1), 1);
        assert_eq!(
            said.mismatches(&stored(Some(0), None), 0),
            1,
            "before the checkpoint"
        );
    }
}
