//! The policy suite on the fake policy.

use std::sync::Arc;

use async_trait::async_trait;
use dart_core::{Policy, PolicyInput, PolicyVersion, Result, Size, WeightsHandle};
use dart_testkit::{
    Clock, Settings,
    fakes::{FakePolicy, FakeWeights},
    policy::PolicyHarness,
    policy_conformance, records,
};

pub(crate) struct Grid;

#[async_trait]
impl PolicyHarness for Grid {
    fn settings(&self) -> Settings {
        Settings {
            clock: Clock::Paused,
            ..Settings::default()
        }
    }

    async fn make(&self) -> Result<Arc<dyn Policy>> {
        let weights = FakeWeights {
            gain: 2.0,
            ..FakeWeights::blank(4, 3)
        };
        Ok(Arc::new(FakePolicy::new(weights).with_latency_ms(1, 9)))
    }

    fn inputs(&self) -> Vec<PolicyInput> {
        records::policy_inputs(Size::new(32, 24), 3, &[1, 12])
    }

    fn weights(&self, version: PolicyVersion) -> Result<WeightsHandle> {
        let weights = FakeWeights {
            gain: 5.0 + version.0 as f64,
            ..FakeWeights::blank(4, 3)
        };
        weights.handle(version)
    }
}

policy_conformance!(Grid);
