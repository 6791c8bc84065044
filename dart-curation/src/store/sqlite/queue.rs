//! Who works on what: claims with fences, failures, checkpoints.

use std::{collections::BTreeSet, time::Duration};

use dart_core::{PolicyVersion, TrajectoryId, fault};
use sqlx::Row;

use super::{
    super::{Claim, Fence, MAX_FAILURES, Quarantined, Seal, Use, protocol::lease_over},
    boot::Moment,
    writer::Tx,
};
use crate::error::{CurationError, Result};

/// Ids as the JSON list that `json_each` takes.
fn list(ids: &[TrajectoryId]) -> String {
    let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
    serde_json::Value::from(ids).to_string()
}

/// A wish to claim.
#[derive(Debug)]
pub(super) struct Wish {
    pub(super) ids: Vec<TrajectoryId>,
    pub(super) owner: String,
    pub(super) lease: Duration,
}

/// Claims all or none. The inner error is of this wish alone, which has then written nothing but
/// that leases had run out.
pub(super) async fn claim(tx: &mut Tx<'_>, wish: &Wish, now: &Moment) -> Result<Result<Claim>> {
    let ids = list(&wish.ids);
    if let Some(refusal) = refusal(tx, wish, &ids, now).await? {
        return Ok(Err(refusal));
    }
    if let Some(refusal) = end_leases(tx, wish, &ids, now).await? {
        return Ok(Err(refusal));
    }
    let until = now.millis.saturating_add(wish.lease.as_millis() as i64);
    let inserted = sqlx::query("INSERT INTO claims (owner, boot, until_ms) VALUES (?1, ?2, ?3)")
        .bind(&wish.owner)
        .bind(&now.boot)
        .bind(until)
        .execute(&mut **tx)
        .await?;
    let fence = inserted.last_insert_rowid();
    sqlx::query(
        "UPDATE trajectories SET claim = ?1
         WHERE id IN (SELECT unhex(value) FROM json_each(?2))",
    )
    .bind(fence)
    .bind(ids)
    .execute(&mut **tx)
    .await?;
    Ok(Ok(Claim {
        fence: Fence(fence as u64),
        trajectories: wish.ids.clone(),
    }))
}

/// Why the wish cannot be granted, naming the first trajectory that is not free.
async fn refusal(
    tx: &mut Tx<'_>,
    wish: &Wish,
    ids: &str,
    now: &Moment,
) -> Result<Option<CurationError>> {
    let taken = sqlx::query(
        "SELECT value, seq, batch, reason, owner FROM json_each(?1)
         LEFT JOIN trajectories ON trajectories.id = unhex(value)
         LEFT JOIN used ON used.trajectory = seq
         LEFT JOIN quarantine ON quarantine.trajectory = seq
         LEFT JOIN claims ON fence = claim AND owner <> ?2 AND boot = ?3 AND until_ms > ?4
         WHERE seq IS NULL OR batch IS NOT NULL OR reason IS NOT NULL OR owner IS NOT NULL
         LIMIT 1",
    )
    .bind(ids)
    .bind(&wish.owner)
    .bind(&now.boot)
    .bind(now.millis)
    .fetch_optional(&mut **tx)
    .await?;
    let Some(row) = taken else {
        return Ok(None);
    };
    let id: String = row.try_get("value")?;
    let id = wish.ids.iter().find(|wished| wished.to_string() == id);
    let batch: Option<i64> = row.try_get("batch")?;
    let reason: Option<String> = row.try_get("reason")?;
    let owner: Option<String> = row.try_get("owner")?;
    let why = match (batch, reason, owner) {
        (Some(batch), ..) => format!("batch {batch} used it"),
        (_, Some(reason), _) => format!("it is in quarantine: {reason}"),
        (.., Some(owner)) => format!("{owner} works on it"),
        _ => "it is not stored".to_owned(),
    };
    let id = id.copied().unwrap_or(TrajectoryId(0));
    Ok(Some(CurationError::Unavailable(id, why)))
}

/// Counts a lease that has run out as a failure of what is claimed anew. Why the wish cannot be
/// granted, if that was the last one for some of it.
async fn end_leases(
    tx: &mut Tx<'_>,
    wish: &Wish,
    ids: &str,
    now: &Moment,
) -> Result<Option<CurationError>> {
    let over: Vec<(Vec<u8>, String)> = sqlx::query_as(
        "SELECT trajectories.id, owner FROM json_each(?1)
         JOIN trajectories ON trajectories.id = unhex(value)
         JOIN claims ON fence = claim AND boot = ?2 AND until_ms <= ?3",
    )
    .bind(ids)
    .bind(&now.boot)
    .bind(now.millis)
    .fetch_all(&mut **tx)
    .await?;
    let mut refusal = None;
    for (id, owner) in over {
        let wished = wish
            .ids
            .iter()
            .find(|wished| wished.0.to_be_bytes()[..] == id[..]);
        let Some(id) = wished else { continue };
        // Each lease counts once.
        sqlx::query("UPDATE trajectories SET claim = NULL WHERE id = ?1")
            .bind(id.0.to_be_bytes().to_vec())
            .execute(&mut **tx)
            .await?;
        let reason = lease_over(&owner);
        if fail(tx, *id, &reason).await? == Quarantined::Yes && refusal.is_none() {
            let why = format!("it is in quarantine: {reason}");
            refusal = Some(CurationError::Unavailable(*id, why));
        }
    }
    Ok(refusal)
}

/// Ends a claim without a use.
pub(super) async fn give_back(tx: &mut Tx<'_>, fence: Fence) -> Result<()> {
    for statement in [
        "UPDATE trajectories SET claim = NULL WHERE claim = ?1",
        "DELETE FROM claims WHERE fence = ?1",
    ] {
        sqlx::query(statement)
            .bind(fence.0 as i64)
            .execute(&mut **tx)
            .await?;
    }
    Ok(())
}

/// Counts a failure, and quarantines at the last one.
pub(super) async fn fail(tx: &mut Tx<'_>, id: TrajectoryId, reason: &str) -> Result<Quarantined> {
    let row: Option<(i64, i64)> = sqlx::query_as(
        "UPDATE trajectories SET failures = failures + 1 WHERE id = ?1 RETURNING seq, failures",
    )
    .bind(id.0.to_be_bytes().to_vec())
    .fetch_optional(&mut **tx)
    .await?;
    let Some((seq, failures)) = row else {
        return Ok(Quarantined::Yes);
    };
    if failures < i64::from(MAX_FAILURES) {
        return Ok(Quarantined::NotYet(failures as u32));
    }
    sqlx::query(
        "INSERT INTO quarantine (trajectory, reason) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
    )
    .bind(seq)
    .bind(reason)
    .execute(&mut **tx)
    .await?;
    sqlx::query("UPDATE trajectories SET claim = NULL WHERE seq = ?1")
        .bind(seq)
        .execute(&mut **tx)
        .await?;
    Ok(Quarantined::Yes)
}

/// Writes the uses and the checkpoint pointer. The inner error is of this seal alone, which has
/// then written nothing.
pub(super) async fn seal(tx: &mut Tx<'_>, seal: &Seal) -> Result<Result<()>> {
    let mut new = Vec::new();
    for used in &seal.uses {
        match check_use(tx, used).await? {
            Ok(true) => new.push(used),
            Ok(false) => {}
            Err(error) => return Ok(Err(error)),
        }
    }
    for used in new {
        write_use(tx, used, &seal.checkpoint.name).await?;
    }
    fault::point("seal.uses-written");
    let needed: Vec<u8> = seal
        .needed
        .iter()
        .flat_map(|id| id.0.to_be_bytes())
        .collect();
    sqlx::query(
        "INSERT OR REPLACE INTO checkpoints (version, name, watermark, needed)
         VALUES (?1, ?2, ?3, ?4)",
    )
    .bind(seal.checkpoint.version.0 as i64)
    .bind(&seal.checkpoint.name)
    .bind(seal.watermark as i64)
    .bind(needed)
    .execute(&mut **tx)
    .await?;
    sqlx::query("DELETE FROM checkpoints WHERE version < ?1")
        .bind(seal.oldest_kept.0 as i64)
        .execute(&mut **tx)
        .await?;
    Ok(Ok(()))
}

/// Whether the use is new (`false`: it was written before), or may not be written.
async fn check_use(tx: &mut Tx<'_>, used: &Use) -> Result<Result<bool>> {
    let held: Vec<(Vec<u8>,)> = sqlx::query_as("SELECT id FROM trajectories WHERE claim = ?1")
        .bind(used.claim.fence.0 as i64)
        .fetch_all(&mut **tx)
        .await?;
    let held: BTreeSet<Vec<u8>> = held.into_iter().map(|(id,)| id).collect();
    let claimed = &used.claim.trajectories;
    let holds = |id: &TrajectoryId| held.contains(&id.0.to_be_bytes()[..]);
    if held.len() == claimed.len() && claimed.iter().all(holds) {
        return Ok(Ok(true));
    }
    let taken: Option<(String, i64)> = sqlx::query_as(
        "SELECT value, batch FROM json_each(?1) JOIN trajectories ON trajectories.id = unhex(value)
         JOIN used ON used.trajectory = seq WHERE batch <> ?2 LIMIT 1",
    )
    .bind(list(claimed))
    .bind(used.batch.0 as i64)
    .fetch_optional(&mut **tx)
    .await?;
    if let Some((id, batch)) = taken {
        let id = claimed.iter().find(|claimed| claimed.to_string() == id);
        let id = id.copied().unwrap_or(TrajectoryId(0));
        return Ok(Err(CurationError::UsedTwice(id, batch as u64)));
    }
    let (written,): (i64,) = sqlx::query_as("SELECT count(*) FROM used WHERE batch = ?1")
        .bind(used.batch.0 as i64)
        .fetch_one(&mut **tx)
        .await?;
    if written as usize == claimed.len() {
        return Ok(Ok(false));
    }
    let stale = CurationError::StaleClaim(used.batch, used.claim.fence.0);
    Ok(Err(stale))
}

async fn write_use(tx: &mut Tx<'_>, used: &Use, checkpoint: &str) -> Result<()> {
    let (batch, version) = (used.batch.0 as i64, used.version.0 as i64);
    sqlx::query(
        "INSERT INTO commits (batch, version, checkpoint) VALUES (?1, ?2, ?3)
         ON CONFLICT (batch) DO UPDATE SET version = ?2, checkpoint = ?3",
    )
    .bind(batch)
    .bind(version)
    .bind(checkpoint)
    .execute(&mut **tx)
    .await?;
    sqlx::query(
        "INSERT INTO used (trajectory, batch, version)
         SELECT seq, ?2, ?3 FROM trajectories WHERE claim = ?1",
    )
    .bind(used.claim.fence.0 as i64)
    .bind(batch)
    .bind(version)
    .execute(&mut **tx)
    .await?;
    give_back(tx, used.claim.fence).await
}

/// Forgets what came after `version`, claims included, and gives the checkpoint's watermark.
pub(super) async fn rewind(tx: &mut Tx<'_>, version: PolicyVersion) -> Result<Option<u64>> {
    let version = version.0 as i64;
    for statement in [
        "DELETE FROM used WHERE version > ?1",
        "DELETE FROM commits WHERE version > ?1",
        "DELETE FROM checkpoints WHERE version > ?1",
    ] {
        sqlx::query(statement)
            .bind(version)
            .execute(&mut **tx)
            .await?;
    }
    void_claims(tx).await?;
    let row: Option<(i64,)> =
        sqlx::query_as("SELECT watermark FROM checkpoints WHERE version = ?1")
            .bind(version)
            .fetch_optional(&mut **tx)
            .await?;
    Ok(row.map(|(watermark,)| watermark as u64))
}

/// Nobody works on anything any more.
pub(super) async fn void_claims(connection: &mut sqlx::SqliteConnection) -> Result<()> {
    for statement in [
        "UPDATE trajectories SET claim = NULL WHERE claim IS NOT NULL",
        "DELETE FROM claims",
    ] {
        sqlx::query(statement).execute(&mut *connection).await?;
    }
    Ok(())
}
