//! The checks, in the order of the contract.

use dart_core::{Action, ActionKind, Environment, ErrorKind, Reset, StepStatus, StopReason};

use super::EnvironmentHarness;
use crate::{
    actions,
    interrupt::{MOMENTS, drop_after},
    suite::{Breakable, Checked, Failure, Fault, Verdict, ensure, ensure_kind, within},
};

/// An environment with a running episode.
async fn started<H: EnvironmentHarness>(h: &H) -> Result<(Box<H::Env>, Reset), Failure> {
    let mut env = h.make().await?;
    let reset = restart(h, env.as_mut()).await?;
    Ok((env, reset))
}

async fn restart<H: EnvironmentHarness>(h: &H, env: &mut H::Env) -> Result<Reset, Failure> {
    Ok(env.reset(&h.task(), h.seed()).await?)
}

/// Takes a step that does nothing; the episode has to go on.
async fn goes_on<H: EnvironmentHarness>(
    h: &H,
    env: &mut H::Env,
    after: &str,
) -> Result<(), Failure> {
    let step = env.step(&h.idle()).await;
    match step {
        Ok(outcome) if outcome.status == StepStatus::Running => Ok(()),
        Ok(outcome) => Err(format!(
            "the episode goes on after {after}, and not {:?}",
            outcome.status
        )
        .into()),
        Err(error) => Err(format!("the episode goes on after {after}: {error}").into()),
    }
}

/// Line 1. `spec` is the same before, during and after episodes.
pub async fn c01_spec_is_stable<H: EnvironmentHarness>(h: &H) -> Checked {
    let mut env = h.make().await?;
    let first = env.spec().clone();
    let same = |env: &H::Env, when: &str| {
        ensure(
            *env.spec() == first,
            format!("spec changed {when}: {first:?} became {:?}", env.spec()),
        )
    };
    restart(h, env.as_mut()).await?;
    same(&env, "with reset")?;
    env.step(&h.idle()).await?;
    same(&env, "with step")?;
    env.step(&Action::Done).await?;
    same(&env, "with the end")?;
    env.score().await?;
    same(&env, "with score")?;
    restart(h, env.as_mut()).await?;
    same(&env, "with the second reset")?;
    Ok(Verdict::Passed)
}

/// Line 2. `reset` gives a frame of the declared size and a non-empty instruction.
pub async fn c02_reset_gives_a_frame_of_the_declared_size_and_an_instruction<
    H: EnvironmentHarness,
>(
    h: &H,
) -> Checked {
    let mut env = h.make().await?;
    for seed in [h.seed(), h.seed() + 1, u64::MAX] {
        let reset = env.reset(&h.task(), seed).await?;
        let (frame, declared) = (reset.observation.frame.size(), env.spec().screen);
        ensure(
            frame == declared,
            format!("the frame is {frame}, the declared screen {declared}"),
        )?;
        ensure(
            !reset.instruction.trim().is_empty(),
            "the instruction is empty",
        )?;
    }
    Ok(Verdict::Passed)
}

/// Line 3. `reset` may be called at any time: in the middle of an episode, after its end, after an error.
pub async fn c03_reset_is_possible_at_any_time<H: EnvironmentHarness>(h: &H) -> Checked {
    let (mut env, _) = started(h).await?;
    goes_on(h, env.as_mut(), "reset").await?;
    restart(h, env.as_mut()).await?;
    goes_on(h, env.as_mut(), "a reset in the middle").await?;
    env.step(&Action::Done).await?;
    restart(h, env.as_mut()).await?;
    goes_on(h, env.as_mut(), "a reset after the end").await?;
    env.step(&Action::Done).await?;
    let refused = env.step(&h.idle()).await;
    ensure(refused.is_err(), "a step after the end succeeded")?;
    restart(h, env.as_mut()).await?;
    goes_on(h, env.as_mut(), "a reset after an error").await?;
    for fault in [Fault::Stall, Fault::Cut] {
        reset_after_recovery(h, fault).await?;
    }
    Ok(Verdict::Passed)
}

/// The peer fails, comes back, and `reset` works again, if that can be tried here.
async fn reset_after_recovery<H: EnvironmentHarness>(h: &H, fault: Fault) -> Result<(), Failure> {
    let Some(Breakable {
        mut subject,
        break_it,
        heal: Some(heal),
    }) = h.breakable(fault).await?
    else {
        return Ok(());
    };
    restart(h, subject.as_mut()).await?;
    break_it();
    let failed = subject.step(&h.idle()).await;
    ensure(failed.is_err(), format!("a step after {fault:?} succeeded"))?;
    heal();
    restart(h, subject.as_mut()).await?;
    goes_on(h, subject.as_mut(), "recovery").await
}

/// Line 4. `step` before `reset` is `Misuse`.
pub async fn c04_step_before_reset_is_misuse<H: EnvironmentHarness>(h: &H) -> Checked {
    let mut env = h.make().await?;
    let step = env.step(&h.idle()).await;
    ensure_kind(step, ErrorKind::Misuse, "a step before reset")?;
    restart(h, env.as_mut()).await?;
    goes_on(h, env.as_mut(), "reset").await?;
    Ok(Verdict::Passed)
}

/// Line 5. Every declared action is accepted.
pub async fn c05_declared_actions_are_accepted<H: EnvironmentHarness>(h: &H) -> Checked {
    let (mut env, _) = started(h).await?;
    let spec = env.spec().clone();
    for kind in spec.actions.iter() {
        let action = h.example(kind, spec.screen);
        let outcome = env
            .step(&action)
            .await
            .map_err(|error| Failure(format!("{action:?} is declared, but: {error}")))?;
        ensure(
            outcome.observation.frame.size() == spec.screen,
            format!("{action:?} changed the size of the frame"),
        )?;
        if outcome.status != StepStatus::Running {
            restart(h, env.as_mut()).await?;
        }
    }
    Ok(Verdict::Passed)
}

/// Line 6. An undeclared action is `Unsupported`, and the episode goes on.
pub async fn c06_undeclared_actions_are_unsupported<H: EnvironmentHarness>(h: &H) -> Checked {
    let (mut env, _) = started(h).await?;
    let spec = env.spec().clone();
    let mut undeclared = ActionKind::ALL
        .iter()
        .filter(|kind| !spec.actions.contains(**kind))
        .peekable();
    if undeclared.peek().is_none() {
        return Ok(Verdict::not_applicable("every action is declared"));
    }
    for &kind in undeclared {
        let step = env.step(&actions::example(kind, spec.screen)).await;
        ensure_kind(
            step,
            ErrorKind::Unsupported,
            &format!("an undeclared {kind:?}"),
        )?;
    }
    goes_on(h, env.as_mut(), "undeclared actions").await?;
    Ok(Verdict::Passed)
}

/// Line 7. An action with a fault is `InvalidAction`, and the episode goes on.
pub async fn c07_faulty_actions_are_invalid<H: EnvironmentHarness>(h: &H) -> Checked {
    let (mut env, _) = started(h).await?;
    let spec = env.spec().clone();
    let faulty = actions::faulty(spec.actions, spec.screen);
    if faulty.is_empty() {
        return Ok(Verdict::not_applicable("no declared action has arguments"));
    }
    for action in faulty {
        let fault = action.fault(spec.screen).unwrap_or_default();
        let step = env.step(&action).await;
        ensure_kind(
            step,
            ErrorKind::InvalidAction,
            &format!("a step with {fault}"),
        )?;
    }
    goes_on(h, env.as_mut(), "invalid actions").await?;
    Ok(Verdict::Passed)
}

/// Line 8. An action that has a visible effect changes the next frame.
pub async fn c08_a_visible_action_changes_the_frame<H: EnvironmentHarness>(h: &H) -> Checked {
    let (mut env, reset) = started(h).await?;
    let action = h.visible_action(env.as_mut()).await?;
    let outcome = env.step(&action).await?;
    ensure(
        outcome.observation.frame != reset.observation.frame,
        format!("the frame after {action:?} is the one before it"),
    )?;
    Ok(Verdict::Passed)
}

/// Line 9. `step` after the end is `Misuse`.
pub async fn c09_step_after_the_end_is_misuse<H: EnvironmentHarness>(h: &H) -> Checked {
    let (mut env, _) = started(h).await?;
    env.step(&Action::Done).await?;
    for action in [h.idle(), Action::Done] {
        let step = env.step(&action).await;
        ensure_kind(step, ErrorKind::Misuse, "a step after the agent's end")?;
    }
    let mut task = h.task();
    task.horizon = 1;
    env.reset(&task, h.seed()).await?;
    env.step(&h.idle()).await?;
    let step = env.step(&h.idle()).await;
    ensure_kind(step, ErrorKind::Misuse, "a step after truncation")?;
    Ok(Verdict::Passed)
}

/// Line 10. An episode is truncated at the task's horizon, with `StopReason::StepLimit`.
pub async fn c10_the_horizon_truncates<H: EnvironmentHarness>(h: &H) -> Checked {
    let mut env = h.make().await?;
    for horizon in [1, 3] {
        let mut task = h.task();
        task.horizon = horizon;
        env.reset(&task, h.seed()).await?;
        for step in 1..horizon {
            goes_on(h, env.as_mut(), &format!("step {step} of {horizon}")).await?;
        }
        let status = env.step(&h.idle()).await?.status;
        let limit = StepStatus::Truncated(StopReason::StepLimit);
        ensure(
            status == limit,
            format!("step {horizon} of {horizon} gave {status:?}, not {limit:?}"),
        )?;
    }
    Ok(Verdict::Passed)
}

/// Line 11. `Done` and `Fail` terminate the episode.
pub async fn c11_done_and_fail_terminate<H: EnvironmentHarness>(h: &H) -> Checked {
    let mut env = h.make().await?;
    for last in [Action::Done, Action::Fail] {
        // At the horizon too, the agent's own end counts as an end.
        for horizon in [1, h.task().horizon.max(2)] {
            let mut task = h.task();
            task.horizon = horizon;
            env.reset(&task, h.seed()).await?;
            let status = env.step(&last).await?.status;
            ensure(
                status == StepStatus::Terminated,
                format!("{last:?} gave {status:?} with a horizon of {horizon}"),
            )?;
        }
    }
    Ok(Verdict::Passed)
}

/// Line 12. `score` may be called once the episode has ended, by the task or by a limit, and any number
/// of times; before that it judges the present state.
pub async fn c12_score_may_be_repeated<H: EnvironmentHarness>(h: &H) -> Checked {
    let (mut env, _) = started(h).await?;
    score_twice::<H>(env.as_mut(), "in the middle").await?;
    goes_on(h, env.as_mut(), "score").await?;
    env.step(&Action::Done).await?;
    score_twice::<H>(env.as_mut(), "after the end").await?;
    let mut task = h.task();
    task.horizon = 1;
    env.reset(&task, h.seed()).await?;
    env.step(&h.idle()).await?;
    score_twice::<H>(env.as_mut(), "after truncation").await?;
    Ok(Verdict::Passed)
}

async fn score_twice<H: EnvironmentHarness>(env: &mut H::Env, when: &str) -> Result<(), Failure> {
    let mut rewards = Vec::new();
    for _ in 0..2 {
        let reward = env.score().await;
        let reward = reward.map_err(|error| Failure(format!("score {when}: {error}")))?;
        rewards.push(reward.value());
    }
    ensure(
        rewards[0].to_bits() == rewards[1].to_bits(),
        format!(
            "score {when} gave first {}, then {}",
            rewards[0], rewards[1]
        ),
    )
}

/// Line 13. A solved task scores 1, an untouched one less.
pub async fn c13_a_solved_task_scores_one<H: EnvironmentHarness>(h: &H) -> Checked {
    let (mut env, _) = started(h).await?;
    let untouched = env.score().await?;
    ensure(!untouched.is_success(), "an untouched task scores 1")?;
    h.solve(env.as_mut()).await?;
    let solved = env.score().await?.value();
    ensure(solved >= 1.0, format!("the solved task scores {solved}"))?;
    restart(h, env.as_mut()).await?;
    env.step(&Action::Done).await?;
    let given_up = env.score().await?;
    ensure(
        !given_up.is_success(),
        "an untouched task scores 1 after the end of an episode that solved nothing",
    )?;
    Ok(Verdict::Passed)
}

/// Line 14. A stalled peer is `Timeout` within the implementation's deadline.
pub async fn c14_a_stalled_peer_times_out<H: EnvironmentHarness>(h: &H) -> Checked {
    let Some(breakable) = h.breakable(Fault::Stall).await? else {
        return Ok(Verdict::not_applicable("no peer that could stall"));
    };
    let mut env = breakable.subject;
    restart(h, env.as_mut()).await?;
    (breakable.break_it)();
    let deadline = h.settings().deadline;
    let step = within(deadline, "a step on a stalled peer", env.step(&h.idle())).await?;
    ensure_kind(step, ErrorKind::Timeout, "a step on a stalled peer")?;
    let _ = within(deadline, "close on a stalled peer", env.close()).await?;
    Ok(Verdict::Passed)
}

/// Line 15. A cut connection is retryable (`Disconnected`).
pub async fn c15_a_cut_connection_is_retryable<H: EnvironmentHarness>(h: &H) -> Checked {
    let Some(breakable) = h.breakable(Fault::Cut).await? else {
        return Ok(Verdict::not_applicable("no connection that could be cut"));
    };
    let mut env = breakable.subject;
    restart(h, env.as_mut()).await?;
    (breakable.break_it)();
    let deadline = h.settings().deadline;
    match within(deadline, "a step on a cut connection", env.step(&h.idle())).await? {
        Ok(_) => Err("a step on a cut connection succeeded".into()),
        Err(error) if error.is_retryable() => Ok(Verdict::Passed),
        Err(error) => Err(format!("a cut connection is retryable, and not: {error}").into()),
    }
}

/// Line 16. After a dropped future the environment is usable or says so (`Cancelled`) until the next
/// `reset`, which makes it usable.
pub async fn c16_a_dropped_future_leaves_it_usable_or_says_so<H: EnvironmentHarness>(
    h: &H,
) -> Checked {
    let (mut env, _) = started(h).await?;
    for moment in MOMENTS {
        let _ = drop_after(moment, env.step(&h.idle())).await;
        usable_or_cancelled(h, env.as_mut(), "step").await?;
        let _ = drop_after(moment, env.score()).await;
        usable_or_cancelled(h, env.as_mut(), "score").await?;
        let _ = drop_after(moment, env.reset(&h.task(), h.seed())).await;
        usable_or_cancelled(h, env.as_mut(), "reset").await?;
    }
    Ok(Verdict::Passed)
}

/// A step succeeds or says that a call was interrupted; after a reset everything works.
async fn usable_or_cancelled<H: EnvironmentHarness>(
    h: &H,
    env: &mut H::Env,
    dropped: &str,
) -> Result<(), Failure> {
    if let Err(error) = env.step(&h.idle()).await {
        ensure(
            error.kind() == ErrorKind::Cancelled,
            format!("a step after a dropped {dropped} works or is Cancelled: {error}"),
        )?;
        ensure_kind(
            env.score().await,
            ErrorKind::Cancelled,
            &format!("score after a dropped {dropped} that made step Cancelled"),
        )?;
    }
    restart(h, env).await?;
    goes_on(h, env, &format!("a dropped {dropped} and a reset")).await
}

/// Line 17. `close` may be called twice; every other call after it is `Misuse`.
pub async fn c17_close_is_idempotent_and_final<H: EnvironmentHarness>(h: &H) -> Checked {
    let mut unused = h.make().await?;
    unused.close().await?;
    unused.close().await?;
    let (mut env, _) = started(h).await?;
    env.close().await?;
    env.close().await?;
    let kind = ErrorKind::Misuse;
    ensure_kind(env.step(&h.idle()).await, kind, "a step after close")?;
    ensure_kind(env.score().await, kind, "score after close")?;
    let reset = env.reset(&h.task(), h.seed()).await;
    ensure_kind(reset, kind, "reset after close")?;
    env.close().await?;
    let (mut env, _) = started(h).await?;
    let _ = drop_after(MOMENTS[0], env.close()).await;
    ensure_kind(env.score().await, kind, "score after a dropped close")?;
    env.close().await?;
    Ok(Verdict::Passed)
}

/// Line 18. If declared deterministic, the same task and seed give the same first frame.
pub async fn c18_the_same_seed_gives_the_same_first_frame<H: EnvironmentHarness>(h: &H) -> Checked {
    let (mut env, first) = started(h).await?;
    if !env.spec().deterministic {
        return Ok(Verdict::not_applicable("not declared deterministic"));
    }
    let action = h.visible_action(env.as_mut()).await?;
    env.step(&action).await?;
    env.reset(&h.task(), h.seed() + 1).await?;
    let again = restart(h, env.as_mut()).await?;
    let (_env, elsewhere) = started(h).await?;
    for (other, which) in [(again, "second reset"), (elsewhere, "second environment")] {
        ensure(
            other.observation.frame == first.observation.frame,
            format!("the first frame of the {which} differs"),
        )?;
        ensure(
            other.instruction == first.instruction,
            format!("the instruction of the {which} differs"),
        )?;
    }
    Ok(Verdict::Passed)
}
