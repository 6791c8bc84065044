-- Trajectories and their steps. Images are named by the BLAKE3 of their raw RGB bytes and packed by
-- zstd; small ones are rows, large ones files: blobs/<2 digits>/<62 digits>. Unsigned 64-bit numbers
-- are kept as the signed ones with the same bits. Token ids, log-probs and entropies are arrays of
-- little-endian 32-bit numbers.

CREATE TABLE tasks (
    seq    INTEGER PRIMARY KEY,
    digest BLOB NOT NULL UNIQUE CHECK (length(digest) = 32),
    json   TEXT NOT NULL
) STRICT;

CREATE TABLE trajectories (
    seq            INTEGER PRIMARY KEY AUTOINCREMENT,
    id             BLOB NOT NULL UNIQUE CHECK (length(id) = 16),
    group_id       INTEGER NOT NULL,
    task           INTEGER NOT NULL REFERENCES tasks (seq),
    task_id        TEXT NOT NULL,
    seed           INTEGER NOT NULL,
    instruction    TEXT NOT NULL,
    outcome        TEXT NOT NULL CHECK (outcome IN ('scored', 'policy-fault', 'aborted')),
    reward         REAL CHECK ((outcome = 'scored') = (reward IS NOT NULL)),
    stop           TEXT NOT NULL,
    error          TEXT,
    steps          INTEGER NOT NULL,
    oldest_version INTEGER
) STRICT;

CREATE INDEX trajectories_of_task ON trajectories (task_id, seq);

CREATE TABLE images (
    hash   BLOB NOT NULL UNIQUE CHECK (length(hash) = 32),
    packed BLOB NOT NULL
) STRICT;

CREATE TABLE steps (
    trajectory        INTEGER NOT NULL REFERENCES trajectories (seq) ON DELETE CASCADE,
    step              INTEGER NOT NULL,
    frame             BLOB NOT NULL CHECK (length(frame) = 32),
    width             INTEGER NOT NULL,
    height            INTEGER NOT NULL,
    last_action_error TEXT,
    ui                TEXT,
    action            TEXT NOT NULL,
    text              TEXT NOT NULL,
    prompt            BLOB NOT NULL,
    images            BLOB NOT NULL,
    tokens            BLOB NOT NULL,
    log_probs         BLOB NOT NULL,
    entropies         BLOB,
    log_prob_kind     TEXT NOT NULL,
    temperature       REAL NOT NULL,
    version           INTEGER NOT NULL,
    truncated         INTEGER NOT NULL,
    decide_ms         REAL NOT NULL,
    act_ms            REAL NOT NULL,
    PRIMARY KEY (trajectory, step)
) STRICT;

-- What was trained on, written together with the pointer to the checkpoint that contains it.
CREATE TABLE commits (
    batch      INTEGER PRIMARY KEY,
    version    INTEGER NOT NULL,
    checkpoint TEXT
) STRICT;

CREATE TABLE used (
    trajectory INTEGER PRIMARY KEY REFERENCES trajectories (seq),
    batch      INTEGER NOT NULL REFERENCES commits (batch),
    version    INTEGER NOT NULL
) STRICT;

CREATE INDEX used_version ON used (version);
