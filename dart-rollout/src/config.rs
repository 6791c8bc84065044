//! Settings of the cluster and of the pool. All times are in milliseconds.

use std::time::Duration;

use dart_core::Result;
use serde::{Deserialize, Serialize};

use crate::{error::RolloutError, seeds};

/// Settings of a [`RolloutCluster`](crate::RolloutCluster).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RolloutConfig {
    /// Environments that run at once. Default 8: a small machine is full with it; the paper has 80.
    pub environments: usize,
    /// Longest decision, waiting for a free policy worker included. Default 120,000: a 500-token
    /// answer on a loaded server takes tens of seconds.
    pub decision_timeout_ms: u64,
    /// Longest reset, step or judgement. Default 120,000: more than any deadline inside an
    /// environment (90,000), so it only acts if that one fails to.
    pub call_timeout_ms: u64,
    /// Time after which an episode starts no further step and is scored as it stands. Default
    /// 1,800,000: 30 steps of a minute.
    pub episode_timeout_ms: u64,
    /// Longest making of an environment. Default 120,000: a browser or a guest has to boot.
    pub create_timeout_ms: u64,
    /// Longest closing of an environment; it is dropped afterwards. Default 5,000.
    pub close_timeout_ms: u64,
    /// Longest taking-in of a trajectory by the curator. Default 60,000: a disk may be busy.
    pub ingest_timeout_ms: u64,
    /// Errors in a row after which an environment is quarantined. Default 3, as in our
    /// reliability contract: one is chance, two are bad luck.
    pub max_consecutive_errors: u32,
    /// Pause before the first replacement of an environment; doubles with each error in a row.
    /// Default 500.
    pub backoff_initial_ms: u64,
    /// Longest such pause. Default 30,000.
    pub backoff_max_ms: u64,
    /// How long a quarantined slot stays empty before a fresh environment is tried. Default 120,000.
    pub quarantine_ms: u64,
    /// Longest shutdown. Default 8,000: an interrupted run is gone within 10 s.
    pub shutdown_timeout_ms: u64,
    /// Wait after which the watchdog reports who waits for what. Default 300,000.
    pub stall_timeout_ms: u64,
}

impl Default for RolloutConfig {
    fn default() -> Self {
        Self {
            environments: 8,
            decision_timeout_ms: 120_000,
            call_timeout_ms: 120_000,
            episode_timeout_ms: 1_800_000,
            create_timeout_ms: 120_000,
            close_timeout_ms: 5_000,
            ingest_timeout_ms: 60_000,
            max_consecutive_errors: 3,
            backoff_initial_ms: 500,
            backoff_max_ms: 30_000,
            quarantine_ms: 120_000,
            shutdown_timeout_ms: 8_000,
            stall_timeout_ms: 300_000,
        }
    }
}

impl RolloutConfig {
    /// Checks what no default repairs.
    ///
    /// # Errors
    /// [`Config`](dart_core::ErrorKind::Config), naming the key.
    pub fn validate(&self) -> Result<()> {
        let positive = [
            ("environments", self.environments as u64),
            ("decision_timeout_ms", self.decision_timeout_ms),
            ("call_timeout_ms", self.call_timeout_ms),
            ("episode_timeout_ms", self.episode_timeout_ms),
            ("create_timeout_ms", self.create_timeout_ms),
            ("close_timeout_ms", self.close_timeout_ms),
            ("ingest_timeout_ms", self.ingest_timeout_ms),
            (
                "max_consecutive_errors",
                u64::from(self.max_consecutive_errors),
            ),
            ("backoff_initial_ms", self.backoff_initial_ms),
            ("backoff_max_ms", self.backoff_max_ms),
            ("quarantine_ms", self.quarantine_ms),
            ("shutdown_timeout_ms", self.shutdown_timeout_ms),
            ("stall_timeout_ms", self.stall_timeout_ms),
        ];
        check_positive(&positive)
    }

    /// Pause after `errors` errors in a row, for the slot `worker`. Up to a quarter is added,
    /// another for each slot, so that slots that failed together do not come back together.
    pub(crate) fn backoff(&self, errors: u32, worker: usize) -> Duration {
        let doubled = self
            .backoff_initial_ms
            .saturating_mul(1 << errors.saturating_sub(1).min(20));
        let base = doubled.min(self.backoff_max_ms);
        let extra = seeds::derive(worker as u64, u64::from(errors)) % (base / 4 + 1);
        Duration::from_millis(base + extra)
    }
}

/// Settings of a [`PolicyPool`](crate::PolicyPool).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PoolConfig {
    /// Longest decision, waiting for a serving worker included. Default 120,000.
    pub act_timeout_ms: u64,
    /// How long a worker may take to finish its calls before it is loaded. Default 120,000: no
    /// shorter than a decision, so that a slow call alone never keeps a worker on old weights.
    pub drain_timeout_ms: u64,
    /// Longest load. Default 600,000: the paper reports about five minutes for its servers.
    pub load_timeout_ms: u64,
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self {
            act_timeout_ms: 120_000,
            drain_timeout_ms: 120_000,
            load_timeout_ms: 600_000,
        }
    }
}

impl PoolConfig {
    /// Checks what no default repairs.
    ///
    /// # Errors
    /// [`Config`](dart_core::ErrorKind::Config), naming the key.
    pub fn validate(&self) -> Result<()> {
        check_positive(&[
            ("act_timeout_ms", self.act_timeout_ms),
            ("drain_timeout_ms", self.drain_timeout_ms),
            ("load_timeout_ms", self.load_timeout_ms),
        ])
    }
}

/// A week of milliseconds: more is a mistake, and sums of times stay far from overflow.
const LARGEST: u64 = 604_800_000;

pub(crate) fn check_positive(settings: &[(&'static str, u64)]) -> Result<()> {
    match settings
        .iter()
        .find(|(_, value)| !(1..=LARGEST).contains(value))
    {
        None => Ok(()),
        Some(&(key, value)) => Err(RolloutError::Setting {
            key,
            value,
            rule: "it lies in 1 to 604,800,000",
        }
        .at("config")),
    }
}

#[cfg(test)]
mod tests {
    use dart_core::ErrorKind;

    use super::*;

    #[test]
    fn settings_out_of_bounds_are_named() {
        assert!(RolloutConfig::default().validate().is_ok());
        assert!(PoolConfig::default().validate().is_ok());
        let config = RolloutConfig {
            environments: 0,
            ..RolloutConfig::default()
        };
        let error = config.validate().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains("environments is 0"), "{error}");
        let config = PoolConfig {
            drain_timeout_ms: u64::MAX,
            ..PoolConfig::default()
        };
        let error = config.validate().unwrap_err();
        assert!(error.to_string().contains("drain_timeout_ms is"), "{error}");
    }

    #[test]
    fn pauses_double_up_to_a_bound() {
        let config = RolloutConfig::default();
        let mut last = Duration::ZERO;
        for errors in 1..7 {
            let pause = config.backoff(errors, 3);
            assert!(pause > last, "{errors}: {pause:?}");
            last = pause;
        }
        assert!(config.backoff(u32::MAX, 3) <= Duration::from_millis(37_500));
    }
}
