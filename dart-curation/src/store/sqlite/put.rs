//! Trajectories become rows.

use dart_core::TrajectoryId;
use sqlx::{QueryBuilder, Sqlite};

use super::{
    record::{StepRecord, TrajectoryRecord},
    writer::Tx,
};
use crate::error::{CurationError, Result};

/// Rows of one statement at most: a statement is prepared for each number of rows.
const ROWS: usize = 16;

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
    put_images(tx, &record.steps).await?;
    put_steps(tx, seq, record).await?;
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

/// Writes the images that are not stored yet, many in one statement.
async fn put_images(tx: &mut Tx<'_>, steps: &[StepRecord]) -> Result<()> {
    let images = steps.iter().map(|step| &step.frame);
    let new: Vec<_> = images
        .filter_map(|image| Some((image, image.packed.as_ref()?)))
        .collect();
    for part in new.chunks(ROWS) {
        let mut insert = QueryBuilder::<Sqlite>::new("INSERT INTO images (hash, packed) ");
        insert.push_values(part, |mut row, (image, packed)| {
            row.push_bind(&image.hash[..]).push_bind(*packed);
        });
        insert.push(" ON CONFLICT DO NOTHING");
        insert.build().execute(&mut **tx).await?;
    }
    Ok(())
}

/// Writes the steps, many in one statement: each statement costs more than its rows.
async fn put_steps(tx: &mut Tx<'_>, seq: i64, record: &TrajectoryRecord) -> Result<()> {
    let steps: Vec<_> = record
        .steps
        .iter()
        .zip(&record.body.steps)
        .enumerate()
        .collect();
    for part in steps.chunks(ROWS) {
        let mut insert = QueryBuilder::<Sqlite>::new(
            "INSERT INTO steps (trajectory, step, frame, width, height, last_action_error, ui,
                 action, text, prompt, images, tokens, log_probs, entropies, log_prob_kind,
                 temperature, version, truncated, decide_ms, act_ms) ",
        );
        insert.push_values(part, |mut columns, (index, (row, step))| {
            let size = step.observation.frame.size();
            columns
                .push_bind(seq)
                .push_bind(*index as i64)
                .push_bind(&row.frame.hash[..])
                .push_bind(size.width)
                .push_bind(size.height)
                .push_bind(step.observation.last_action_error.as_deref())
                .push_bind(row.ui.as_deref())
                .push_bind(&row.action)
                .push_bind(&step.decision.text)
                .push_bind(&row.prompt)
                .push_bind(&row.images)
                .push_bind(&row.tokens)
                .push_bind(&row.log_probs)
                .push_bind(row.entropies.as_deref())
                .push_bind(&row.log_prob_kind)
                .push_bind(f64::from(step.decision.temperature))
                .push_bind(step.decision.version.0 as i64)
                .push_bind(step.decision.truncated)
                .push_bind(step.decide_ms)
                .push_bind(step.act_ms);
        });
        insert.build().execute(&mut **tx).await?;
    }
    Ok(())
}
