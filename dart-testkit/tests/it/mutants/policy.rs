//! Policies that break one line each.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use async_trait::async_trait;
use dart_core::{
    Decision, Error, ErrorKind, Policy, PolicyInput, PolicyVersion, Result, WeightsHandle,
};
use dart_testkit::{
    Settings,
    policy::{self, PolicyHarness},
};

use super::{Expectations, lock};
use crate::policy::Grid;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    None,
    ReportsPositiveLogProbs,
    ShowsTheFuture,
    OverstatesItsVersion,
    MixesVersions,
    DrawsWhenGreedy,
    SharesOneGenerator,
    AnswersTheNeighbour,
    KeepsACacheAcrossLoads,
    ForgetsToChangeItsVersion,
    LoadsAnything,
    CountsFailedLoads,
    LeaksDroppedCalls,
}

struct Mutant {
    inner: Arc<dyn Policy>,
    flaw: Flaw,
    calls: AtomicU64,
    in_flight: Mutex<BTreeMap<u64, PolicyInput>>,
    cache: Mutex<Vec<(String, Decision)>>,
    version: Mutex<Option<PolicyVersion>>,
}

impl Mutant {
    fn error() -> Error {
        Error::new(
            ErrorKind::Internal,
            "mutant",
            "call",
            "as broken as intended",
        )
    }

    /// The input that is answered in place of the given one.
    fn bent(&self, mut input: PolicyInput, call: u64) -> PolicyInput {
        match self.flaw {
            Flaw::DrawsWhenGreedy if input.sampling.temperature == 0.0 => {
                input.sampling.temperature = 1.0;
            }
            Flaw::SharesOneGenerator => input.sampling.seed ^= call << 8,
            Flaw::AnswersTheNeighbour => {
                let in_flight = lock(&self.in_flight);
                if let Some((_, first)) = in_flight.first_key_value() {
                    input = first.clone();
                }
            }
            _ => {}
        }
        input
    }

    fn twist(&self, decision: &mut Decision, input: &PolicyInput, before: PolicyVersion) {
        decision.temperature = input.sampling.temperature;
        match self.flaw {
            Flaw::ReportsPositiveLogProbs => {
                let negated = decision.rollout_log_probs.iter().map(|lp| -lp);
                decision.rollout_log_probs = negated.collect();
            }
            Flaw::ShowsTheFuture => decision.prompt.images[0].image = 99,
            Flaw::OverstatesItsVersion => decision.version = decision.version.next(),
            Flaw::MixesVersions => decision.version = before,
            _ => {}
        }
    }

    async fn decide(&self, input: PolicyInput, call: u64) -> Result<Decision> {
        let before = self.inner.version();
        if self.flaw == Flaw::MixesVersions {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        let mut decision = self.inner.act(self.bent(input.clone(), call)).await?;
        self.twist(&mut decision, &input, before);
        Ok(decision)
    }

    async fn cached(&self, input: PolicyInput, call: u64) -> Result<Decision> {
        let key = format!("{:?} {:?}", input.sampling, input.observation.frame.rgb());
        let mut hit = {
            let cache = lock(&self.cache);
            let found = cache.iter().find(|(known, _)| *known == key);
            found.map(|(_, decision)| decision.clone())
        };
        if let Some(decision) = &mut hit {
            decision.version = self.inner.version();
        }
        let decision = match hit {
            Some(decision) => decision,
            None => self.decide(input, call).await?,
        };
        lock(&self.cache).push((key, decision.clone()));
        Ok(decision)
    }
}

#[async_trait]
impl Policy for Mutant {
    async fn act(&self, input: PolicyInput) -> Result<Decision> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        let left_behind = lock(&self.in_flight).len() > 40;
        if self.flaw == Flaw::LeaksDroppedCalls && left_behind {
            return Err(Self::error());
        }
        lock(&self.in_flight).insert(call, input.clone());
        let decision = match self.flaw {
            Flaw::KeepsACacheAcrossLoads => self.cached(input, call).await,
            _ => self.decide(input, call).await,
        };
        lock(&self.in_flight).remove(&call);
        decision
    }

    fn version(&self) -> PolicyVersion {
        let own = *lock(&self.version);
        own.unwrap_or_else(|| self.inner.version())
    }

    async fn load(&self, weights: &WeightsHandle) -> Result<()> {
        let before = self.inner.version();
        let loaded = self.inner.load(weights).await;
        match self.flaw {
            Flaw::ForgetsToChangeItsVersion => {
                *lock(&self.version) = Some(before);
                loaded
            }
            Flaw::LoadsAnything => Ok(()),
            Flaw::CountsFailedLoads => {
                *lock(&self.version) = Some(weights.version);
                loaded
            }
            _ => loaded,
        }
    }
}

struct Harness(Flaw);

#[async_trait]
impl PolicyHarness for Harness {
    fn settings(&self) -> Settings {
        Grid.settings()
    }

    async fn make(&self) -> Result<Arc<dyn Policy>> {
        Ok(Arc::new(Mutant {
            inner: Grid.make().await?,
            flaw: self.0,
            calls: AtomicU64::new(0),
            in_flight: Mutex::default(),
            cache: Mutex::default(),
            version: Mutex::default(),
        }))
    }

    fn inputs(&self) -> Vec<PolicyInput> {
        Grid.inputs()
    }

    fn weights(&self, version: PolicyVersion) -> Result<WeightsHandle> {
        Grid.weights(version)
    }
}

#[tokio::test(start_paused = true)]
async fn each_flaw_is_found_by_its_line() {
    use Flaw::*;
    let table = [
        (None, ""),
        (ReportsPositiveLogProbs, "c01"),
        (ShowsTheFuture, "c01"),
        (OverstatesItsVersion, "c02"),
        (MixesVersions, "c02"),
        (DrawsWhenGreedy, "c03"),
        // Draws that depend on other calls show wherever answers are compared.
        (SharesOneGenerator, "c02 c04 c05 c06 c08"),
        (AnswersTheNeighbour, "c02 c05 c08"),
        (KeepsACacheAcrossLoads, "c06"),
        (ForgetsToChangeItsVersion, "c06"),
        (LoadsAnything, "c07"),
        (CountsFailedLoads, "c07"),
        (LeaksDroppedCalls, "c08"),
    ];
    let mut expectations = Expectations::default();
    for (flaw, expected) in table {
        let results = policy::run_all(&Harness(flaw)).await;
        expectations.compare(&format!("{flaw:?}"), &results, expected);
    }
    expectations.assert_met();
}
