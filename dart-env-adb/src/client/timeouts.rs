//! How long calls may take.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Deadlines of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Timeouts {
    /// Longest wait for the connection to the server, milliseconds. Default 2,000: the server is
    /// on this machine or nearby.
    pub connect_ms: u64,
    /// Longest call, milliseconds. Default 10,000: a busy phone was seen to take a second for a tap.
    pub call_ms: u64,
    /// Longest transfer of a file, milliseconds. Default 120,000.
    pub transfer_ms: u64,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect_ms: 2_000,
            call_ms: 10_000,
            transfer_ms: 120_000,
        }
    }
}

impl Timeouts {
    pub(crate) const fn connect(self) -> Duration {
        Duration::from_millis(self.connect_ms)
    }

    pub(crate) const fn call(self) -> Duration {
        Duration::from_millis(self.call_ms)
    }

    pub(crate) const fn transfer(self) -> Duration {
        Duration::from_millis(self.transfer_ms)
    }
}
