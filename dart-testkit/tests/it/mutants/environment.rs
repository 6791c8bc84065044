//! Environments that break one line each.

use async_trait::async_trait;
use dart_core::{
    Action, ActionKind, Demonstrate, EnvSpec, Environment, Error, ErrorKind, Frame, Observation,
    Reset, Result, Reward, StepOutcome, StepStatus, StopReason, Task,
};
use dart_testkit::{
    Breakable, Fault, Settings,
    environment::{self, EnvironmentHarness},
};

use super::Expectations;
use crate::environment::{Layer, LayeredEnv};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    None,
    RenamesItself,
    SaysNothing,
    CropsTheFirstFrame,
    StaysBrokenAfterAFault,
    ForgetsMisuseBeforeReset,
    RefusesKeyUp,
    CallsUndeclaredInvalid,
    EndsWhenUndeclared,
    CallsInvalidUnsupported,
    TakesClicksOutside,
    ShowsThePreviousFrame,
    CallsMisuseCancelled,
    StepsOnceTooOften,
    CallsTruncationAnEnd,
    IgnoresFail,
    RefusesToScoreWhenTruncated,
    ScoresOnceOnly,
    ScoresAlwaysZero,
    ScoresAlwaysOne,
    CallsTimeoutInternal,
    CallsCutMisuse,
    BreaksWhenDropped,
    NeverRecoversWhenDropped,
    RefusesTheSecondClose,
    WorksAfterClose,
    DrawsNoise,
}

#[allow(
    clippy::struct_excessive_bools,
    reason = "each is one thing that a flaw looks at"
)]
struct Mutant {
    inner: LayeredEnv,
    flaw: Flaw,
    spec: EnvSpec,
    last: Option<Frame>,
    reset_once: bool,
    ended: bool,
    truncated: bool,
    broken: bool,
    in_call: bool,
    closed: bool,
    scores: u32,
}

impl Mutant {
    fn new(inner: LayeredEnv, flaw: Flaw) -> Self {
        Self {
            spec: inner.spec().clone(),
            inner,
            flaw,
            last: None,
            reset_once: false,
            ended: false,
            truncated: false,
            broken: false,
            in_call: false,
            closed: false,
            scores: 0,
        }
    }

    fn error(kind: ErrorKind) -> Error {
        Error::new(kind, "mutant", "call", "as broken as intended")
    }

    fn enter(&mut self) -> Result<()> {
        if self.in_call && self.flaw == Flaw::NeverRecoversWhenDropped {
            return Err(Self::error(ErrorKind::Cancelled));
        }
        if std::mem::replace(&mut self.in_call, true) && self.flaw == Flaw::BreaksWhenDropped {
            self.in_call = false;
            return Err(Self::error(ErrorKind::Internal));
        }
        Ok(())
    }

    fn twisted(&mut self, action: &Action, error: Error) -> Error {
        let kind = match (self.flaw, error.kind()) {
            (Flaw::ForgetsMisuseBeforeReset, ErrorKind::Misuse) if !self.reset_once => {
                ErrorKind::Internal
            }
            (Flaw::CallsUndeclaredInvalid, ErrorKind::Unsupported) => ErrorKind::InvalidAction,
            (Flaw::CallsInvalidUnsupported, ErrorKind::InvalidAction) => ErrorKind::Unsupported,
            (Flaw::CallsMisuseCancelled, ErrorKind::Misuse) if self.ended => ErrorKind::Cancelled,
            (Flaw::CallsTimeoutInternal, ErrorKind::Timeout) => ErrorKind::Internal,
            (Flaw::CallsCutMisuse, ErrorKind::Disconnected) => ErrorKind::Misuse,
            _ => return error,
        };
        Self::error(kind).with("action", format!("{action:?}"))
    }

    fn twist_status(&mut self, status: StepStatus) -> StepStatus {
        self.ended = status != StepStatus::Running;
        self.truncated = matches!(status, StepStatus::Truncated(_));
        match (self.flaw, status) {
            (Flaw::CallsTruncationAnEnd, StepStatus::Truncated(StopReason::StepLimit)) => {
                StepStatus::Terminated
            }
            _ => status,
        }
    }

    /// What the inner environment is given in place of the action.
    fn bent(&self, action: &Action) -> Result<Action> {
        match (self.flaw, action) {
            (Flaw::RefusesKeyUp, Action::KeyUp { .. }) => {
                Err(Self::error(ErrorKind::InvalidAction))
            }
            (Flaw::IgnoresFail, Action::Fail) => Ok(Action::Wait { millis: 1 }),
            (Flaw::TakesClicksOutside, Action::Click { .. })
                if action.fault(self.spec.screen).is_some() =>
            {
                Ok(Action::Wait { millis: 1 })
            }
            _ => Ok(action.clone()),
        }
    }
}

fn noisy(frame: &Frame) -> Result<Frame> {
    static SERIAL: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(0);
    let mut rgb = frame.rgb().to_vec();
    rgb[0] = SERIAL.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    Frame::new(frame.size(), rgb)
}

#[async_trait]
impl Environment for Mutant {
    fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    async fn reset(&mut self, task: &Task, seed: u64) -> Result<Reset> {
        let stuck = match self.flaw {
            Flaw::StaysBrokenAfterAFault => self.broken,
            Flaw::NeverRecoversWhenDropped => self.in_call,
            _ => false,
        };
        if stuck {
            return Err(Self::error(ErrorKind::Cancelled));
        }
        self.in_call = false;
        let mut task = task.clone();
        task.horizon += u32::from(self.flaw == Flaw::StepsOnceTooOften && task.horizon == 3);
        let mut reset = self.inner.reset(&task, seed).await?;
        (self.reset_once, self.ended, self.truncated) = (true, false, false);
        self.scores = 0;
        match self.flaw {
            Flaw::SaysNothing => reset.instruction = " ".into(),
            Flaw::CropsTheFirstFrame => {
                let small = dart_core::Size::new(1, 1);
                reset.observation = Observation::of(Frame::new(small, vec![0; 3])?);
            }
            Flaw::DrawsNoise => {
                reset.observation = Observation::of(noisy(&reset.observation.frame)?);
            }
            _ => {}
        }
        self.last = Some(reset.observation.frame.clone());
        Ok(reset)
    }

    async fn step(&mut self, action: &Action) -> Result<StepOutcome> {
        self.enter()?;
        if self.flaw == Flaw::WorksAfterClose && self.closed {
            return Err(Self::error(ErrorKind::Disconnected));
        }
        let bent = self.bent(action)?;
        let stepped = self.inner.step(&bent).await;
        self.in_call = false;
        match stepped {
            Ok(mut outcome) => {
                if self.flaw == Flaw::RenamesItself {
                    self.spec.name = "renamed".into();
                }
                outcome.status = self.twist_status(outcome.status);
                let now = self.last.replace(outcome.observation.frame.clone());
                if let (Flaw::ShowsThePreviousFrame, Some(frame)) = (self.flaw, now) {
                    outcome.observation.frame = frame;
                }
                Ok(outcome)
            }
            Err(error) => {
                self.broken |= error.is_retryable();
                if self.flaw == Flaw::EndsWhenUndeclared
                    && error.kind() == ErrorKind::Unsupported
                    && action.kind() == ActionKind::Tap
                {
                    self.inner.step(&Action::Done).await?;
                }
                Err(self.twisted(action, error))
            }
        }
    }

    async fn score(&mut self) -> Result<Reward> {
        self.enter()?;
        let reward = self.inner.score().await;
        self.in_call = false;
        let reward = reward?;
        self.scores += 1;
        match self.flaw {
            Flaw::RefusesToScoreWhenTruncated if self.truncated => {
                Err(Self::error(ErrorKind::Misuse))
            }
            Flaw::ScoresOnceOnly if self.scores > 1 && self.ended => {
                Err(Self::error(ErrorKind::Misuse))
            }
            Flaw::ScoresAlwaysZero => Ok(Reward::FAILURE),
            Flaw::ScoresAlwaysOne => Ok(Reward::SUCCESS),
            _ => Ok(reward),
        }
    }

    async fn close(&mut self) -> Result<()> {
        if self.closed && self.flaw == Flaw::RefusesTheSecondClose {
            return Err(Self::error(ErrorKind::Misuse));
        }
        self.closed = true;
        self.inner.close().await
    }
}

#[async_trait]
impl Demonstrate for Mutant {
    async fn expert_action(&mut self) -> Result<Option<Action>> {
        self.inner.expert_action().await
    }
}

struct Harness(Flaw);

#[async_trait]
impl EnvironmentHarness for Harness {
    type Env = Mutant;

    fn settings(&self) -> Settings {
        Layer.settings()
    }

    async fn make(&self) -> Result<Box<Mutant>> {
        Ok(Box::new(Mutant::new(*Layer.make().await?, self.0)))
    }

    fn task(&self) -> Task {
        Layer.task()
    }

    async fn solve(&self, env: &mut Mutant) -> Result<()> {
        environment::solve_with_expert(env).await
    }

    async fn visible_action(&self, env: &mut Mutant) -> Result<Action> {
        environment::first_expert_action(env).await
    }

    async fn breakable(&self, fault: Fault) -> Result<Option<Breakable<Mutant>>> {
        let inner = Layer.breakable(fault).await?;
        Ok(inner.map(|inner| Breakable {
            subject: Box::new(Mutant::new(*inner.subject, self.0)),
            break_it: inner.break_it,
            heal: inner.heal,
        }))
    }
}

#[tokio::test(start_paused = true)]
async fn each_flaw_is_found_by_its_line() {
    use Flaw::*;
    let table = [
        (None, ""),
        (RenamesItself, "c01"),
        (SaysNothing, "c02"),
        (CropsTheFirstFrame, "c02"),
        (StaysBrokenAfterAFault, "c03"),
        (ForgetsMisuseBeforeReset, "c04"),
        (RefusesKeyUp, "c05"),
        (CallsUndeclaredInvalid, "c06"),
        (EndsWhenUndeclared, "c06"),
        (CallsInvalidUnsupported, "c07"),
        (TakesClicksOutside, "c07"),
        (ShowsThePreviousFrame, "c08"),
        (CallsMisuseCancelled, "c09"),
        (StepsOnceTooOften, "c10"),
        (CallsTruncationAnEnd, "c10"),
        (IgnoresFail, "c11"),
        (RefusesToScoreWhenTruncated, "c12"),
        (ScoresOnceOnly, "c12"),
        (ScoresAlwaysZero, "c13"),
        (ScoresAlwaysOne, "c13"),
        (CallsTimeoutInternal, "c14"),
        (CallsCutMisuse, "c15"),
        (BreaksWhenDropped, "c16"),
        (NeverRecoversWhenDropped, "c16"),
        (RefusesTheSecondClose, "c17"),
        (WorksAfterClose, "c17"),
        (DrawsNoise, "c18"),
    ];
    let mut expectations = Expectations::default();
    for (flaw, expected) in table {
        let results = environment::run_all(&Harness(flaw)).await;
        expectations.compare(&format!("{flaw:?}"), &results, expected);
    }
    expectations.assert_met();
}
