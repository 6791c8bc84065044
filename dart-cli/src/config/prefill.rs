//! What the experience pool is filled with beforehand.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Successes collected beforehand, for the experience pool (arXiv 2509.23866 §3.3). They are read
/// once, when reinforcement learning begins.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PrefillConfig {
    /// Folders that `export` wrote, of runs with the same model and tasks. Default none.
    pub folders: Vec<PathBuf>,
    /// Where a hint begins in an instruction: it and all after it is taken out before storing, and
    /// the trajectory is scored anew by the policy of now. Default none: instructions stay.
    pub hint_marker: Option<String>,
}
