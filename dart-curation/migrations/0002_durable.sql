-- Claims with a fence, checkpoints, quarantine, bodies that may be let go.

-- digest: BLAKE3 over what the row and its steps hold, NULL in rows of older versions.
-- revision: how often the same id was answered anew.
-- body: whether the steps are still here; the retention rule lets old ones go.
-- claim: the fence of whoever works on it now.
-- failures: attempts that ended badly.
-- imported: a demonstration, or brought in from another run; no rollout of this one.
ALTER TABLE trajectories ADD COLUMN digest BLOB CHECK (length(digest) = 32);
ALTER TABLE trajectories ADD COLUMN newest_version INTEGER;
ALTER TABLE trajectories ADD COLUMN revision INTEGER NOT NULL DEFAULT 0;
ALTER TABLE trajectories ADD COLUMN body INTEGER NOT NULL DEFAULT 1;
ALTER TABLE trajectories ADD COLUMN claim INTEGER;
ALTER TABLE trajectories ADD COLUMN failures INTEGER NOT NULL DEFAULT 0;
ALTER TABLE trajectories ADD COLUMN imported INTEGER NOT NULL DEFAULT 0;

UPDATE trajectories SET newest_version =
    (SELECT max(version) FROM steps WHERE trajectory = seq);

CREATE INDEX trajectories_claimed ON trajectories (claim) WHERE claim IS NOT NULL;
CREATE INDEX trajectories_with_body ON trajectories (seq) WHERE body = 1;
CREATE INDEX steps_of_frame ON steps (frame);

-- Who may acknowledge what. Fences only grow. until_ms counts from the start of the machine, whose
-- identity is boot: neither jumps when somebody sets the clock.
CREATE TABLE claims (
    fence    INTEGER PRIMARY KEY AUTOINCREMENT,
    owner    TEXT NOT NULL,
    boot     TEXT NOT NULL,
    until_ms INTEGER NOT NULL
) STRICT;

CREATE TABLE quarantine (
    trajectory INTEGER PRIMARY KEY REFERENCES trajectories (seq),
    reason     TEXT NOT NULL
) STRICT;

-- The checkpoint pointer: the row of the highest version. Written in one transaction with the uses
-- that the checkpoint contains. needed: ids, 16 bytes each, that its curator may still ask for;
-- watermark: the last trajectory stored before it.
CREATE TABLE checkpoints (
    version   INTEGER PRIMARY KEY,
    name      TEXT NOT NULL,
    watermark INTEGER NOT NULL,
    needed    BLOB NOT NULL
) STRICT;
