//! What goes wrong inside this crate, and the one conversion to [`dart_core::Error`].

use std::path::{Path, PathBuf};

use dart_core::{BatchId, Error, ErrorKind, TaskId, TrajectoryId};
use sqlx::migrate::MigrateError;

/// Result inside the crate.
pub(crate) type Result<T, E = CurationError> = std::result::Result<T, E>;

/// What goes wrong inside this crate.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CurationError {
    #[error("{key}: {rule}")]
    BadSetting {
        key: &'static str,
        rule: &'static str,
    },
    #[error("no tasks to train on: the task list is empty")]
    NoTasks,
    #[error("task {0} is listed twice")]
    DuplicateTask(TaskId),
    #[error("task {0} is held out ({1}); only tasks of the training split may be trained on")]
    HeldOutTask(TaskId, &'static str),
    #[error("the snapshot names task {0}, which this run does not have")]
    UnknownTask(TaskId),
    #[error("a snapshot can only be restored before the first request")]
    RestoreTooLate,
    #[error("the snapshot cannot be read")]
    Snapshot(#[source] serde_json::Error),
    #[error("the snapshot has format {found}; this version reads format {expected}")]
    SnapshotFormat { found: u32, expected: u32 },
    #[error("batch {0} was never handed out")]
    UnknownBatch(BatchId),
    #[error("batch {batch} moves the policy version back from {from} to {to}")]
    VersionBack { batch: BatchId, from: u64, to: u64 },
    #[error("trajectory {0} differs from its request in group, task or seed")]
    ForeignTrajectory(TrajectoryId),
    #[error("trajectory {0} enters the experience pool only as a success with at least one step")]
    NotForPool(TrajectoryId),
    #[error(
        "trajectory {trajectory}, step {step}: the prompt refers to image {image}, which the trajectory does not have"
    )]
    NoSuchImage {
        trajectory: TrajectoryId,
        step: usize,
        image: u32,
    },
    #[error("trajectory {0} has no reward")]
    NoReward(TrajectoryId),
    #[error("trajectory {trajectory}: {what} is larger than the store accepts")]
    TooLarge {
        trajectory: TrajectoryId,
        what: &'static str,
    },
    #[error("trajectory {0} was already trained on in batch {1}")]
    UsedTwice(TrajectoryId, u64),
    #[error("trajectory {0} is claimed or used; another answer under the same id is refused")]
    Answered(TrajectoryId),
    #[error("trajectory {0} cannot be claimed: {1}")]
    Unavailable(TrajectoryId, String),
    #[error("the claim {1} on the trajectories of batch {0} is not held any more")]
    StaleClaim(BatchId, u64),
    #[error(
        "the disk that holds {} is full, or the store has reached its limit; free space, or raise store.max_megabytes", dir.display()
    )]
    Full { dir: PathBuf },
    #[error("{} holds no trajectories yet: there is no store", dir.display())]
    NoStore { dir: PathBuf },
    #[error("{} is gone or empty, and with it what was stored", path.display())]
    Destroyed { path: PathBuf },
    #[error("{} is damaged ({what})", path.display())]
    DamagedFile { path: PathBuf, what: String },
    #[error(
        "the trajectory store in {} was written by a newer version of this program (schema {found}, this one knows {known})", dir.display()
    )]
    NewerSchema {
        dir: PathBuf,
        found: i64,
        known: i64,
    },
    #[error("trajectory {0}: the stored rows are not what was written (checksum differs)")]
    Damaged(TrajectoryId),
    #[error("{} is in use by the process {pid}; end it or choose another folder", dir.display())]
    Locked { dir: PathBuf, pid: String },
    #[error("{operation} {}", path.display())]
    Io {
        operation: &'static str,
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("its order leads in circles")]
    Circular,
    #[error("{} does not hold the image that its name says", path.display())]
    Corrupt { path: PathBuf },
    #[error("trajectory {trajectory}: the stored {what} cannot be read back")]
    Malformed {
        trajectory: TrajectoryId,
        what: &'static str,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error("the database refused: {}", brief(.0))]
    Database(#[from] sqlx::Error),
    #[error("the database schema could not be brought up to date: {}", short(&.0.to_string()))]
    Migration(#[from] MigrateError),
    #[error("an earlier write failed: {0}")]
    Write(std::sync::Arc<Self>),
    #[error("the writer has ended")]
    WriterGone,
}

impl CurationError {
    /// Whether a disk without room is the cause: it may have some later.
    pub(crate) fn is_full(&self) -> bool {
        // SQLITE_FULL, and SQLITE_IOERR_SHMSIZE: the index of the journal could not grow.
        let full_code = |code: &str| matches!(code, "13" | "4874");
        match self {
            Self::Io { source, .. } => matches!(
                source.kind(),
                std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded
            ),
            Self::Database(sqlx::Error::Database(error))
            | Self::Migration(
                MigrateError::Execute(sqlx::Error::Database(error))
                | MigrateError::ExecuteMigration(sqlx::Error::Database(error), _),
            ) => error.code().is_some_and(|code| full_code(&code)),
            Self::Write(cause) => cause.is_full(),
            _ => false,
        }
    }

    fn kind(&self) -> ErrorKind {
        match self {
            Self::BadSetting { .. }
            | Self::NoTasks
            | Self::DuplicateTask(_)
            | Self::HeldOutTask(..)
            | Self::UnknownTask(_)
            | Self::Snapshot(_)
            | Self::SnapshotFormat { .. }
            | Self::NoStore { .. }
            | Self::NewerSchema { .. }
            | Self::Locked { .. } => ErrorKind::Config,
            Self::RestoreTooLate
            | Self::UnknownBatch(_)
            | Self::VersionBack { .. }
            | Self::ForeignTrajectory(_)
            | Self::Answered(_)
            | Self::NotForPool(_) => ErrorKind::Misuse,
            Self::Unavailable(..) | Self::StaleClaim(..) => ErrorKind::Stale,
            Self::NoSuchImage { .. } | Self::NoReward(_) | Self::UsedTwice(..) => {
                ErrorKind::Internal
            }
            Self::TooLarge { .. } | Self::Full { .. } => ErrorKind::Exhausted,
            _ if self.is_full() => ErrorKind::Exhausted,
            Self::Io { .. }
            | Self::Circular
            | Self::Corrupt { .. }
            | Self::Damaged(_)
            | Self::Destroyed { .. }
            | Self::DamagedFile { .. }
            | Self::Malformed { .. }
            | Self::Database(_)
            | Self::Migration(_)
            | Self::WriterGone => ErrorKind::Storage,
            Self::Write(cause) => cause.kind(),
        }
    }

    /// The error at the trait boundary.
    pub(crate) fn during(self, operation: &'static str) -> Error {
        let message = self.to_string();
        let error = Error::new(self.kind(), "dart-curation", operation, message);
        match (&self, std::error::Error::source(&self)) {
            // Their message has said it.
            (Self::Database(_) | Self::Migration(_), _) | (_, None) => error,
            (_, Some(cause)) => {
                let cause = cause.to_string();
                error.with("cause", cause).caused_by(self)
            }
        }
    }

    /// Names the file where SQLite says that it is not what SQLite wrote.
    pub(crate) fn of_file(self, path: &Path) -> Self {
        let what = match &self {
            Self::Database(error)
            | Self::Migration(
                MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _),
            ) => damage(error),
            _ => None,
        };
        match what {
            Some(what) => Self::DamagedFile {
                path: path.to_owned(),
                what,
            },
            None => self,
        }
    }
}

/// Characters of what SQLite says that are passed on: it may quote the whole schema.
const LONGEST: usize = 160;

/// One short line.
pub(crate) fn short(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

fn brief(error: &sqlx::Error) -> String {
    match error {
        sqlx::Error::Database(error) => short(error.message()),
        error => short(&error.to_string()),
    }
}

/// What SQLite says of a damaged file: SQLITE_CORRUPT, SQLITE_NOTADB, SQLITE_IOERR_SHORT_READ.
fn damage(error: &sqlx::Error) -> Option<String> {
    let sqlx::Error::Database(error) = error else {
        return None;
    };
    let code: i32 = error.code()?.parse().ok()?;
    let damaged = matches!(code & 0xff, 11 | 26) || code == 522;
    damaged.then(|| short(error.message()))
}
