//! Reading everything, also in a damaged database: one bad page hides no more than is on it.

use std::collections::{BTreeMap, BTreeSet};

use dart_core::TrajectoryId;
use serde::Serialize;
use sqlx::{Row, sqlite::SqliteRow};

use super::reader::Reader;
use crate::error::{CurationError, Result, short};

/// Findings of one kind that are listed; the rest is counted.
const LISTED: usize = 100;

/// What reading everything found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Audit {
    /// Trajectories that were read and compared with their checksums.
    pub checked: u64,
    /// What is wrong, one line each.
    pub problems: Vec<String>,
}

/// What names trajectories.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Oldest first.
    pub(super) ids: Vec<TrajectoryId>,
    /// Why there may be more.
    problems: Vec<String>,
}

/// Rows that are read at once, where none of them is damaged.
const CHUNK: i64 = 512;

/// The same rows by four ways: from both ends of the table and of the index, which lie on other
/// pages. Each goes on from the row before, and ends where a page cannot be read.
const WAYS: [&str; 4] = [
    "SELECT seq, id FROM trajectories NOT INDEXED
     WHERE seq > coalesce(?1, -1) ORDER BY seq LIMIT ?3",
    "SELECT seq, id FROM trajectories NOT INDEXED
     WHERE seq < coalesce(?1, 9223372036854775807) ORDER BY seq DESC LIMIT ?3",
    "SELECT seq, id FROM trajectories INDEXED BY sqlite_autoindex_trajectories_1
     WHERE id > coalesce(?2, x'') ORDER BY id LIMIT ?3",
    "SELECT seq, id FROM trajectories INDEXED BY sqlite_autoindex_trajectories_1
     WHERE id < coalesce(?2, x'ffffffffffffffffffffffffffffffffff') ORDER BY id DESC LIMIT ?3",
];

/// Every trajectory that any page names.
pub(super) async fn find(reader: &Reader) -> Found {
    let mut rows = BTreeMap::new();
    let mut found = Found::default();
    for (index, way) in WAYS.into_iter().enumerate() {
        match follow(reader, way, &mut rows).await {
            // The table came to its end: the index can only repeat it.
            Ok(()) if index < 2 => break,
            Ok(()) => {}
            Err(error) => note(&mut found.problems, "the list of trajectories", &error),
        }
    }
    found.ids = rows.into_values().collect();
    found
}

/// Follows one way to its end, or to the first row that cannot be read.
async fn follow(
    reader: &Reader,
    way: &'static str,
    rows: &mut BTreeMap<i64, TrajectoryId>,
) -> Result<()> {
    let mut connection = reader.connection.lock().await;
    let mut last: Option<(i64, Vec<u8>)> = None;
    let mut chunk = CHUNK;
    let mut seen = BTreeSet::new();
    loop {
        let read: sqlx::Result<Vec<(i64, Vec<u8>)>> = sqlx::query_as(way)
            .bind(last.as_ref().map(|(seq, _)| *seq))
            .bind(last.as_ref().map(|(_, id)| id.clone()))
            .bind(chunk)
            .fetch_all(&mut *connection)
            .await;
        let read = match read {
            Ok(read) => read,
            // As far as it goes, one by one.
            Err(_) if chunk > 1 => {
                chunk = 1;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let before = seen.len();
        seen.extend(read.iter().map(|(seq, _)| *seq));
        if seen.len() == before {
            // A damaged index may lead in circles: that is no end.
            let is_end = read.is_empty();
            return is_end.then_some(()).ok_or(CurationError::Circular);
        }
        for (seq, id) in &read {
            if let Ok(id) = id[..].try_into() {
                rows.insert(*seq, TrajectoryId(u128::from_be_bytes(id)));
            }
        }
        last = read.into_iter().last();
    }
}

/// Reads everything and compares it with its checksums.
pub(super) async fn audit(reader: &Reader) -> Audit {
    let mut audit = Audit::default();
    structure(reader, &mut audit.problems).await;
    references(reader, &mut audit.problems).await;
    let found = find(reader).await;
    audit.problems.extend(found.problems);
    for id in found.ids {
        match reader.check(id).await {
            Ok(true) => audit.checked += 1,
            Ok(false) => {}
            Err(error) => {
                audit.checked += 1;
                note(&mut audit.problems, &id.to_string(), &error);
            }
        }
    }
    audit
}

async fn structure(reader: &Reader, problems: &mut Vec<String>) {
    let mut connection = reader.connection.lock().await;
    let rows = sqlx::query("PRAGMA integrity_check(100)").fetch_all(&mut *connection);
    match rows.await {
        Ok(rows) => {
            // It may quote bytes that are no text.
            let said = rows.iter().map(|row| match row.try_get_unchecked(0) {
                Ok(said) => String::from_utf8_lossy(said).into_owned(),
                Err(error) => error.to_string(),
            });
            let bad = said.filter(|said| said != "ok");
            problems.extend(bad.map(|said| format!("the database: {}", short(&said))));
        }
        Err(error) => note(problems, "the database", &error.into()),
    }
}

async fn references(reader: &Reader, problems: &mut Vec<String>) {
    let mut connection = reader.connection.lock().await;
    let rows = sqlx::query("PRAGMA foreign_key_check").fetch_all(&mut *connection);
    match rows.await {
        Ok(rows) => {
            problems.extend(rows.iter().take(LISTED).map(dangling));
            if let Some(more) = rows.len().checked_sub(LISTED).filter(|more| *more > 0) {
                problems.push(format!("{more} more rows refer to rows that are gone"));
            }
        }
        Err(error) => note(problems, "references between tables", &error.into()),
    }
}

fn dangling(row: &SqliteRow) -> String {
    let text = |column: usize| {
        let name = row.try_get::<String, _>(column);
        name.unwrap_or_else(|_| "a table without a name".to_owned())
    };
    // A table without row numbers gives none.
    let number = row.try_get::<i64, _>(1);
    let number = number.map_or_else(|_| "a row".to_owned(), |number| format!("row {number}"));
    format!(
        "{}, {number}: refers to a row of {} that is gone",
        text(0),
        text(2)
    )
}

/// Adds a line, unless it is there already.
fn note(problems: &mut Vec<String>, what: &str, error: &CurationError) {
    let line = match std::error::Error::source(error) {
        Some(cause) if !matches!(error, CurationError::Database(_)) => {
            format!("{what}: {error} ({})", short(&cause.to_string()))
        }
        _ => format!("{what}: {error}"),
    };
    if !problems.contains(&line) {
        problems.push(line);
    }
}
