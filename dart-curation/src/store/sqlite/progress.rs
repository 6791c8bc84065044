//! How far the journal has come, for those who do not ask the database.

use std::sync::atomic::{AtomicU64, Ordering};

/// The order of the trajectory stored last.
#[derive(Debug, Default)]
pub(super) struct Written(AtomicU64);

impl Written {
    pub(super) fn reach(&self, last: u64) {
        self.0.fetch_max(last, Ordering::SeqCst);
    }

    pub(super) fn last(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}
