//! The pool is a policy like any other, with one worker and with three.

use std::sync::Arc;

use async_trait::async_trait;
use dart_core::{Policy, PolicyInput, PolicyVersion, Result, Size, WeightsHandle};
use dart_rollout::PolicyPool;
use dart_testkit::{
    fakes::{FakePolicy, FakeWeights},
    policy::PolicyHarness,
    policy_conformance, records,
    suite::{Clock, Settings},
};

struct Harness {
    workers: usize,
}

#[async_trait]
impl PolicyHarness for Harness {
    fn settings(&self) -> Settings {
        Settings {
            clock: Clock::Paused,
            ..Settings::default()
        }
    }

    async fn make(&self) -> Result<Arc<dyn Policy>> {
        let worker = || -> Arc<dyn Policy> {
            let weights = FakeWeights {
                gain: 2.0,
                ..FakeWeights::blank(4, 3)
            };
            Arc::new(FakePolicy::new(weights).with_latency_ms(1, 9))
        };
        let workers = (0..self.workers).map(|_| worker()).collect();
        Ok(Arc::new(PolicyPool::new(workers)))
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

policy_conformance!(mod one_worker, Harness { workers: 1 });
policy_conformance!(mod three_workers, Harness { workers: 3 });
