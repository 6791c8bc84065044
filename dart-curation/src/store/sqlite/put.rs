//! Trajectories become rows.

use dart_core::TrajectoryId;

use super::{
    record::{StepRecord, TrajectoryRecord},
    writer::Tx,
};
use crate::error::{CurationError, Result};

/// Writes one trajectory. The inner error is of this one alone, which has then written nothing.
pub(super) async fn put(
    tx: &mut Tx<'_>,
    record: &TrajectoryRecord,
    imported: bool,
) -> Result<Result<()>> {
    let Some((seq, revision)) = put_row(tx, record, imported).await? else {
        return answered(tx, record).await;
    };
    if revision > 0 {
        for statement in [
            "DELETE FROM steps WHERE trajectory = ?1",
            "DELETE FROM quarantine WHERE trajectory = ?1",
        ] {
            sqlx::query(statement).bind(seq).execute(&mut **tx).await?;
        }
    }
    for (index, step) in record.steps.iter().enumerate() {
        put_step(tx, seq, index, record, step).await?;
    }
    Ok(Ok(()))
}

/// The row's number and how often it was there before; `None` if the row that is there must stay.
async fn put_row(
    tx: &mut Tx<'_>,
    record: &TrajectoryRecord,
    imported: bool,
) -> Result<Option<(i64, i64)>> {
    let body = &record.body;
    let task = task_row(tx, record).await?;
    let versions = body.steps.iter().map(|step| step.decision.version.0 as i64);
    let row = sqlx::query_as(
        "INSERT INTO trajectories (id, group_id, task, task_id, seed, instruction, outcome, reward,
             stop, error, steps, oldest_version, newest_version, digest, imported)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)
         ON CONFLICT (id) DO UPDATE SET group_id = ?2, task = ?3, task_id = ?4, seed = ?5,
             instruction = ?6, outcome = ?7, reward = ?8, stop = ?9, error = ?10, steps = ?11,
             oldest_version = ?12, newest_version = ?13, digest = ?14, imported = imported & ?15, body = 1, failures = 0,
             revision = revision + 1
         WHERE claim IS NULL AND NOT EXISTS (SELECT 1 FROM used WHERE trajectory = seq)
         RETURNING seq, revision",
    )
    .bind(body.id.0.to_be_bytes().to_vec())
    .bind(body.group.0 as i64)
    .bind(task)
    .bind(body.task.id.as_str())
    .bind(body.seed as i64)
    .bind(&*body.instruction)
    .bind(record.outcome)
    .bind(record.reward)
    .bind(&record.stop)
    .bind(body.error.as_deref())
    .bind(body.steps.len() as i64)
    .bind(versions.clone().min())
    .bind(versions.max())
    .bind(&record.digest[..])
    .bind(imported)
    .fetch_optional(&mut **tx)
    .await?;
    Ok(row)
}

/// What is claimed or used stays: fine if it is the same, an error otherwise.
async fn answered(tx: &mut Tx<'_>, record: &TrajectoryRecord) -> Result<Result<()>> {
    let id: TrajectoryId = record.body.id;
    let (digest,): (Option<Vec<u8>>,) =
        sqlx::query_as("SELECT digest FROM trajectories WHERE id = ?1")
            .bind(id.0.to_be_bytes().to_vec())
            .fetch_one(&mut **tx)
            .await?;
    let same = digest.is_some_and(|digest| digest[..] == record.digest[..]);
    Ok(same.then_some(()).ok_or(CurationError::Answered(id)))
}

async fn task_row(tx: &mut Tx<'_>, record: &TrajectoryRecord) -> Result<i64> {
    let known: Option<(i64,)> = sqlx::query_as("SELECT seq FROM tasks WHERE digest = ?1")
        .bind(&record.task_digest[..])
        .fetch_optional(&mut **tx)
        .await?;
    if let Some((seq,)) = known {
        return Ok(seq);
    }
    let inserted = sqlx::query("INSERT INTO tasks (digest, json) VALUES (?1, ?2)")
        .bind(&record.task_digest[..])
        .bind(&record.task_json)
        .execute(&mut **tx)
        .await?;
    Ok(inserted.last_insert_rowid())
}

async fn put_step(
    tx: &mut Tx<'_>,
    seq: i64,
    index: usize,
    record: &TrajectoryRecord,
    row: &StepRecord,
) -> Result<()> {
    if let Some(packed) = &row.frame.packed {
        sqlx::query("INSERT INTO images (hash, packed) VALUES (?1, ?2) ON CONFLICT DO NOTHING")
            .bind(&row.frame.hash[..])
            .bind(packed)
            .execute(&mut **tx)
            .await?;
    }
    let step = &record.body.steps[index];
    let size = step.observation.frame.size();
    sqlx::query(
        "INSERT INTO steps (trajectory, step, frame, width, height, last_action_error, ui, action,
             text, prompt, images, tokens, log_probs, entropies, log_prob_kind, temperature, version,
             truncated, decide_ms, act_ms)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18,
             ?19, ?20)",
    )
    .bind(seq)
    .bind(index as i64)
    .bind(&row.frame.hash[..])
    .bind(size.width)
    .bind(size.height)
    .bind(step.observation.last_action_error.as_deref())
    .bind(row.ui.as_deref())
    .bind(&row.action)
    .bind(&step.decision.text)
    .bind(&row.prompt)
    .bind(&row.images)
    .bind(&row.tokens)
    .bind(&row.log_probs)
    .bind(row.entropies.as_deref())
    .bind(&row.log_prob_kind)
    .bind(f64::from(step.decision.temperature))
    .bind(step.decision.version.0 as i64)
    .bind(step.decision.truncated)
    .bind(step.decide_ms)
    .bind(step.act_ms)
    .execute(&mut **tx)
    .await?;
    Ok(())
}
