//! The suite of [`Policy`]: one check for each line of its contract.

use std::sync::Arc;

use async_trait::async_trait;
use dart_core::{
    Decision, Policy, PolicyInput, PolicyVersion, Result, Sampling, WeightsHandle, WeightsSource,
};
use futures::future::{join, join_all};

use crate::{
    interrupt::{MOMENTS, drop_after},
    suite::{Checked, Failure, Settings, Verdict, ensure, suite},
};

/// What the checks need to know about a policy.
#[async_trait]
pub trait PolicyHarness: Sync {
    /// How to run the checks.
    fn settings(&self) -> Settings {
        Settings::default()
    }

    /// Makes a fresh policy; every call gives the same weights.
    async fn make(&self) -> Result<Arc<dyn Policy>>;

    /// At least two inputs that lead to different decisions, one of them with history.
    fn inputs(&self) -> Vec<PolicyInput>;

    /// Weights of this version: different values for each version, and other ones than
    /// [`Self::make`] gives.
    fn weights(&self, version: PolicyVersion) -> Result<WeightsHandle>;

    /// Weights that have to be refused.
    fn broken_weights(&self) -> Result<Vec<(&'static str, WeightsHandle)>> {
        Ok(broken_weights(&self.weights(PolicyVersion(9))?))
    }

    /// How far log-probs of the same decision may differ between a call alone and one among
    /// others: batching changes the order of sums.
    fn tolerance(&self) -> f32 {
        1e-3
    }
}

/// Ways to damage weights: cut short, bytes changed under the same digest, another digest, not
/// there at all.
pub fn broken_weights(good: &WeightsHandle) -> Vec<(&'static str, WeightsHandle)> {
    let with = |source: WeightsSource| WeightsHandle {
        source,
        ..good.clone()
    };
    let mut broken = vec![
        ("no bytes", with(WeightsSource::Memory(Arc::from([])))),
        (
            "a missing directory",
            with(WeightsSource::Directory("/nonexistent/weights".into())),
        ),
        (
            "a wrong digest",
            WeightsHandle {
                digest: "0".repeat(64).into(),
                ..good.clone()
            },
        ),
    ];
    if let WeightsSource::Memory(bytes) = &good.source {
        let mut changed = bytes.to_vec();
        if let Some(last) = changed.last_mut() {
            *last ^= 1;
        }
        let half = bytes[..bytes.len() / 2].to_vec();
        broken.push(("half the bytes", with(WeightsSource::Memory(half.into()))));
        broken.push(("a flipped bit", with(WeightsSource::Memory(changed.into()))));
    }
    broken
}

suite! {
    $
    /// Makes one `#[test]` of each check of the policy suite, and `coverage`, in a module named
    /// `policy_conformance` or, with `mod name, harness`, otherwise.
    policy_conformance in policy for PolicyHarness:
    c01_decisions_are_valid,
    c02_a_decision_carries_the_version_of_its_weights,
    c03_temperature_zero_is_deterministic,
    c04_the_same_seed_draws_the_same_tokens,
    c05_concurrent_calls_get_their_own_answers,
    c06_load_changes_the_version_and_leaves_nothing_cached,
    c07_broken_weights_leave_the_old_ones_serving,
    c08_a_dropped_call_does_not_disturb_others,
}

/// Every input, greedy and drawn with a few seeds.
fn questions<H: PolicyHarness>(h: &H) -> Vec<PolicyInput> {
    let mut all = Vec::new();
    for input in h.inputs() {
        for (temperature, seed) in [(0.0, 0), (1.0, 1), (1.0, 2)] {
            let sampling = Sampling { temperature, seed };
            all.push(PolicyInput {
                sampling,
                ..input.clone()
            });
        }
    }
    all
}

/// Asks one after another.
async fn alone(policy: &dyn Policy, inputs: &[PolicyInput]) -> Result<Vec<Decision>, Failure> {
    let mut answers = Vec::new();
    for input in inputs {
        answers.push(policy.act(input.clone()).await?);
    }
    Ok(answers)
}

/// Asks all at once.
async fn together(policy: &dyn Policy, inputs: &[PolicyInput]) -> Result<Vec<Decision>, Failure> {
    let calls = inputs.iter().map(|input| policy.act(input.clone()));
    let answers = join_all(calls).await;
    Ok(answers.into_iter().collect::<Result<Vec<_>>>()?)
}

/// Whether two decisions are the same up to the rounding of their log-probs.
fn alike<H: PolicyHarness>(h: &H, a: &Decision, b: &Decision) -> bool {
    let near = |(x, y): (&f32, &f32)| (x - y).abs() <= h.tolerance();
    a.version == b.version
        && a.token_ids == b.token_ids
        && a.action == b.action
        && a.rollout_log_probs
            .iter()
            .zip(b.rollout_log_probs.iter())
            .all(near)
}

fn ensure_alike<H: PolicyHarness>(
    h: &H,
    got: &[Decision],
    expected: &[Decision],
    what: &str,
) -> Result<(), Failure> {
    for (index, (got, expected)) in got.iter().zip(expected).enumerate() {
        ensure(
            alike(h, got, expected),
            format!(
                "{what}: answer {index} is {:?} ({}), expected {:?} ({})",
                got.text, got.version, expected.text, expected.version
            ),
        )?;
    }
    Ok(())
}

/// Line 1. Every decision passes `Decision::validate`.
pub async fn c01_decisions_are_valid<H: PolicyHarness>(h: &H) -> Checked {
    let policy = h.make().await?;
    ensure(
        h.inputs().iter().any(|input| !input.history.is_empty()),
        "the harness gives no input with history",
    )?;
    for input in questions(h) {
        let decision = policy.act(input.clone()).await?;
        decision.validate()?;
        ensure(
            decision.temperature == input.sampling.temperature,
            format!("drawn at temperature {}", decision.temperature),
        )?;
        let current = input.history.len() as u32;
        let strange = decision
            .prompt
            .images
            .iter()
            .find(|span| span.image > current);
        ensure(
            strange.is_none(),
            format!("{strange:?} is no image of a prompt with {current} past steps"),
        )?;
    }
    Ok(Verdict::Passed)
}

/// Line 2. A decision carries the version of the weights that produced all of its tokens, also while
/// weights are being replaced.
pub async fn c02_a_decision_carries_the_version_of_its_weights<H: PolicyHarness>(h: &H) -> Checked {
    let inputs = questions(h);
    let policy = h.make().await?;
    let before = alone(policy.as_ref(), &inputs).await?;
    for decision in &before {
        ensure(
            decision.version == policy.version(),
            format!("version {} of {}", decision.version, policy.version()),
        )?;
    }
    let weights = h.weights(PolicyVersion(1))?;
    let reference = h.make().await?;
    reference.load(&weights).await?;
    let after = alone(reference.as_ref(), &inputs).await?;
    let (during, loaded) = join(together(policy.as_ref(), &inputs), policy.load(&weights)).await;
    loaded?;
    for (index, decision) in during?.iter().enumerate() {
        ensure(
            alike(h, decision, &before[index]) || alike(h, decision, &after[index]),
            format!(
                "answer {index}, given while weights were replaced, says version {} and is not \
                 what that version answers",
                decision.version
            ),
        )?;
    }
    Ok(Verdict::Passed)
}

/// Line 3. At temperature 0 the same input gives the same tokens.
pub async fn c03_temperature_zero_is_deterministic<H: PolicyHarness>(h: &H) -> Checked {
    let (policy, other) = (h.make().await?, h.make().await?);
    for mut input in h.inputs() {
        input.sampling = Sampling::GREEDY;
        let first = policy.act(input.clone()).await?;
        input.sampling.seed = 99;
        for (again, which) in [(&policy, "call"), (&other, "policy")] {
            let decision = again.act(input.clone()).await?;
            ensure(
                decision.token_ids == first.token_ids,
                format!(
                    "a second {which} says {:?}, not {:?}",
                    decision.text, first.text
                ),
            )?;
        }
    }
    Ok(Verdict::Passed)
}

/// Line 4. With the same input, seed and weights the same tokens are drawn.
pub async fn c04_the_same_seed_draws_the_same_tokens<H: PolicyHarness>(h: &H) -> Checked {
    let inputs = questions(h);
    let policy = h.make().await?;
    let first = alone(policy.as_ref(), &inputs).await?;
    // In another order, so that a generator shared by all calls is found out.
    let backwards: Vec<_> = inputs.iter().rev().cloned().collect();
    let mut second = alone(policy.as_ref(), &backwards).await?;
    second.reverse();
    ensure_alike(h, &second, &first, "asked again")?;
    let other = alone(h.make().await?.as_ref(), &inputs).await?;
    ensure_alike(h, &other, &first, "another policy with the same weights")?;
    Ok(Verdict::Passed)
}

/// Line 5. Calls run concurrently, and each gets its own answer.
pub async fn c05_concurrent_calls_get_their_own_answers<H: PolicyHarness>(h: &H) -> Checked {
    let mut inputs = questions(h);
    inputs.extend(inputs.clone());
    let policy = h.make().await?;
    let expected = alone(policy.as_ref(), &inputs).await?;
    ensure(
        expected
            .iter()
            .any(|d| d.token_ids != expected[0].token_ids),
        "all inputs of the harness get the same answer: mixed-up answers would go unnoticed",
    )?;
    let got = together(policy.as_ref(), &inputs).await?;
    ensure_alike(h, &got, &expected, "asked together")?;
    Ok(Verdict::Passed)
}

/// Line 6. `load` makes `version` the handle's version; later decisions carry it, and nothing cached
/// from older weights is used for them.
pub async fn c06_load_changes_the_version_and_leaves_nothing_cached<H: PolicyHarness>(
    h: &H,
) -> Checked {
    let inputs = questions(h);
    let used = h.make().await?;
    for version in [PolicyVersion(1), PolicyVersion(5)] {
        let old = alone(used.as_ref(), &inputs).await?;
        let weights = h.weights(version)?;
        used.load(&weights).await?;
        let now = used.version();
        ensure(
            now == version,
            format!("version {now} after loading {version}"),
        )?;
        let fresh = h.make().await?;
        fresh.load(&weights).await?;
        let expected = alone(fresh.as_ref(), &inputs).await?;
        let got = alone(used.as_ref(), &inputs).await?;
        ensure_alike(h, &got, &expected, "a policy that was used before the load")?;
        let unchanged = |(a, b): (&Decision, &Decision)| a.rollout_log_probs == b.rollout_log_probs;
        ensure(
            !old.iter().zip(&got).all(unchanged),
            "other weights give exactly the same log-probs",
        )?;
    }
    Ok(Verdict::Passed)
}

/// Line 7. A `load` of broken weights fails and leaves the old ones serving.
pub async fn c07_broken_weights_leave_the_old_ones_serving<H: PolicyHarness>(h: &H) -> Checked {
    let inputs = questions(h);
    let policy = h.make().await?;
    policy.load(&h.weights(PolicyVersion(2))?).await?;
    let before = alone(policy.as_ref(), &inputs).await?;
    for (damage, weights) in h.broken_weights()? {
        let loaded = policy.load(&weights).await;
        ensure(
            loaded.is_err(),
            format!("weights with {damage} were loaded"),
        )?;
        let version = policy.version();
        ensure(
            version == PolicyVersion(2),
            format!("version {version} after refusing {damage}"),
        )?;
        let after = alone(policy.as_ref(), &inputs).await?;
        ensure_alike(h, &after, &before, &format!("after refusing {damage}"))?;
    }
    Ok(Verdict::Passed)
}

/// Line 8. Dropping an `act` future does not disturb other calls.
pub async fn c08_a_dropped_call_does_not_disturb_others<H: PolicyHarness>(h: &H) -> Checked {
    let inputs = questions(h);
    let policy = h.make().await?;
    let expected = alone(policy.as_ref(), &inputs).await?;
    for moment in MOMENTS {
        let dropped = inputs
            .iter()
            .map(|input| drop_after(moment, policy.act(input.clone())));
        let (_, got) = join(join_all(dropped), together(policy.as_ref(), &inputs)).await;
        ensure_alike(h, &got?, &expected, "asked beside dropped calls")?;
    }
    let after = alone(policy.as_ref(), &inputs).await?;
    ensure_alike(h, &after, &expected, "asked after dropped calls")?;
    Ok(Verdict::Passed)
}
