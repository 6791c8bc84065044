//! What a run has stored: looked at, taken out, brought in.
//!
//! # The export format
//!
//! `trajectories.jsonl` has one JSON object a line, `images/` the screenshots as 8-bit RGB PNG, each
//! named by the BLAKE3 of its raw RGB bytes (rows top to bottom, no padding) in hexadecimal:
//!
//! ```text
//! {"format": 1, "id": 32 hex digits, "group": …, "task": {"id", "family", "split", "horizon", "params"},
//!  "seed": …, "instruction": …, "outcome": {"kind": "scored", "reward": 0 to 1} or
//!  {"kind": "policy-fault"} or {"kind": "aborted"}, "stop": …, "error": null or text,
//!  "steps": [{"image": "images/NAME.png", "last_action_error": …, "ui": null or [elements],
//!             "decision": {"action", "text", "prompt": {"token_ids", "images": [{"image": step,
//!             "start", "len"}]}, "token_ids", "rollout_log_probs", "entropies", "log_prob_kind",
//!             "temperature", "version", "truncated"}, "decide_ms": …, "act_ms": …}]}
//! ```
//!
//! What is exported and imported again is the same, bit for bit. The form `safetensors` is for
//! Python: the numbers of all steps as flat arrays, see [`arrays`].

use dart_trainer::CheckpointDir;

pub mod arrays;
mod export;
mod format;
mod import;
mod inspect;
mod read;

use crate::run_dir::RunDir;

pub(crate) use self::{export::export, import::import, inspect::inspect, read::Exported};

/// What to do about a damaged run, in words: which commands help, and which weights are whole.
pub(crate) fn mending(run: &RunDir) -> String {
    let folder = run.path().display();
    let whole = CheckpointDir::look(run.checkpoints()).newest_valid();
    let weights = whole.ok().flatten().map_or_else(String::new, |found| {
        format!("; the weights in {} are whole", found.path.display())
    });
    format!(
        "put back a copy, or save what can be read (`export --run-dir {folder} --out DIR`), begin a \
         new run and `import` it there{weights}"
    )
}
