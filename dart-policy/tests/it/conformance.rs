//! The contract of `Policy`, for both ways of serving.

use std::sync::Arc;

use async_trait::async_trait;
use dart_core::{Policy, PolicyInput, PolicyVersion, Result, Sampling, WeightsHandle};
use dart_policy::{PolicyConfig, VlmModel, VlmPolicy};
use dart_testkit::policy::PolicyHarness;

use crate::common::{input, model, tiny};

struct Harness {
    inline: bool,
}

#[async_trait]
impl PolicyHarness for Harness {
    async fn make(&self) -> Result<Arc<dyn Policy>> {
        let config = PolicyConfig::default();
        Ok(if self.inline {
            Arc::new(VlmPolicy::inline(&model(), &config)?)
        } else {
            Arc::new(VlmPolicy::spawn(&model(), &config)?)
        })
    }

    fn inputs(&self) -> Vec<PolicyInput> {
        let sampling = Sampling {
            temperature: 1.0,
            seed: 1,
        };
        (0..4)
            .map(|salt| {
                let past: &[&[u32]] = if salt == 2 { &[&[7, 2]] } else { &[] };
                input(salt, past, sampling)
            })
            .collect()
    }

    fn weights(&self, version: PolicyVersion) -> Result<WeightsHandle> {
        VlmModel::new(&tiny(), 1000 + version.0)?.weights(version)
    }
}

dart_testkit::policy_conformance!(mod worker, Harness { inline: false });
dart_testkit::policy_conformance!(mod inline, Harness { inline: true });
