//! The checksum of a trajectory's rows: BLAKE3 over all that they hold, in a fixed order.
//!
//! Images are not part of it: each is named by its own hash, which is. Each field is preceded by its
//! length, so that no two records give the same bytes.

use sqlx::{Row, sqlite::SqliteRow};

use super::record::TrajectoryRecord;
use crate::error::Result;

/// Marks a field that is NULL: no field is so long.
const NULL: u64 = u64::MAX;

/// Text and bytes of one step, in the order of the columns. One table for both directions.
const STEP_TEXTS: [&str; 5] = ["last_action_error", "ui", "action", "text", "log_prob_kind"];
const STEP_BYTES: [&str; 6] = [
    "frame",
    "prompt",
    "images",
    "tokens",
    "log_probs",
    "entropies",
];

/// Hashes fields.
#[derive(Default)]
pub(super) struct Digest(blake3::Hasher);

impl Digest {
    fn bytes(&mut self, field: Option<&[u8]>) {
        let length = field.map_or(NULL, |bytes| bytes.len() as u64);
        self.0.update(&length.to_le_bytes());
        self.0.update(field.unwrap_or_default());
    }

    fn text(&mut self, field: Option<&str>) {
        self.bytes(field.map(str::as_bytes));
    }

    fn integer(&mut self, field: i64) {
        self.0.update(&field.to_le_bytes());
    }

    fn real(&mut self, field: f64) {
        // SQLite does not keep the sign of a zero.
        self.0.update(&(field + 0.0).to_le_bytes());
    }

    /// Of a record that is about to be written.
    pub(super) fn of_record(record: &TrajectoryRecord) -> [u8; 32] {
        let body = &record.body;
        let mut digest = Self::default();
        digest.bytes(Some(&body.id.0.to_be_bytes()));
        digest.bytes(Some(&record.task_digest));
        digest.integer(body.group.0 as i64);
        digest.integer(body.seed as i64);
        digest.integer(body.steps.len() as i64);
        digest.text(Some(&body.instruction));
        digest.text(Some(record.outcome));
        digest.real(record.reward.unwrap_or(-1.0));
        digest.text(Some(&record.stop));
        digest.text(body.error.as_deref());
        for (row, step) in record.steps.iter().zip(&body.steps) {
            let size = step.observation.frame.size();
            let texts = [
                step.observation.last_action_error.as_deref(),
                row.ui.as_deref(),
                Some(&*row.action),
                Some(&*step.decision.text),
                Some(&*row.log_prob_kind),
            ];
            let bytes = [
                Some(&row.frame.hash[..]),
                Some(&row.prompt),
                Some(&row.images),
                Some(&row.tokens),
                Some(&row.log_probs),
                row.entropies.as_deref(),
            ];
            for text in texts {
                digest.text(text);
            }
            for bytes in bytes {
                digest.bytes(bytes);
            }
            digest.integer(i64::from(size.width));
            digest.integer(i64::from(size.height));
            digest.integer(step.decision.version.0 as i64);
            digest.integer(i64::from(step.decision.truncated));
            digest.real(f64::from(step.decision.temperature));
            digest.real(step.decide_ms);
            digest.real(step.act_ms);
        }
        *digest.0.finalize().as_bytes()
    }

    /// Of rows that were read.
    pub(super) fn of_rows(
        row: &SqliteRow,
        task_digest: &[u8],
        steps: &[SqliteRow],
    ) -> Result<[u8; 32]> {
        let mut digest = Self::default();
        digest.bytes(row.try_get("id")?);
        digest.bytes(Some(task_digest));
        for name in ["group_id", "seed", "steps"] {
            digest.integer(row.try_get(name)?);
        }
        digest.text(row.try_get("instruction")?);
        digest.text(row.try_get("outcome")?);
        digest.real(row.try_get::<Option<f64>, _>("reward")?.unwrap_or(-1.0));
        digest.text(row.try_get("stop")?);
        digest.text(row.try_get("error")?);
        for step in steps {
            for name in STEP_TEXTS {
                digest.text(step.try_get(name)?);
            }
            for name in STEP_BYTES {
                digest.bytes(step.try_get(name)?);
            }
            for name in ["width", "height", "version", "truncated"] {
                digest.integer(step.try_get(name)?);
            }
            for name in ["temperature", "decide_ms", "act_ms"] {
                digest.real(step.try_get(name)?);
            }
        }
        Ok(*digest.0.finalize().as_bytes())
    }
}
