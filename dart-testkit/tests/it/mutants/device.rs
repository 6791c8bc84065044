//! Devices that break one line each.

use async_trait::async_trait;
use dart_core::{
    Action, Device, DeviceSpec, Error, ErrorKind, Frame, Key, NamedKey, Observation, Result, Size,
};
use dart_testkit::{
    Breakable, Fault, Faulty, Settings,
    device::{self, DeviceHarness},
    fakes::{FakeDevice, HasFakeDevice},
};

use super::Expectations;
use crate::device::Wrapped;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    None,
    ShrinksWithKeyUp,
    ShowsThePreviousFrame,
    CallsUnsupportedInvalid,
    TakesClicksOutside,
    CallsStallDisconnected,
    HangsWhenStalled,
    CallsCutMisuse,
    KeepsKeysHeld,
    LosesInputWhenRecovered,
    WorksAfterClose,
    RefusesTheSecondClose,
}

struct Mutant {
    inner: Faulty<FakeDevice>,
    flaw: Flaw,
    shrunk: bool,
    previous: Option<Observation>,
    recovered: bool,
    closed: bool,
}

impl Mutant {
    fn new(inner: Faulty<FakeDevice>, flaw: Flaw) -> Self {
        Self {
            inner,
            flaw,
            shrunk: false,
            previous: None,
            recovered: false,
            closed: false,
        }
    }

    fn twisted(&self, error: Error) -> Error {
        let kind = match (self.flaw, error.kind()) {
            (Flaw::CallsUnsupportedInvalid, ErrorKind::Unsupported) => ErrorKind::InvalidAction,
            (Flaw::CallsStallDisconnected, ErrorKind::Timeout) => ErrorKind::Disconnected,
            (Flaw::CallsCutMisuse, ErrorKind::Disconnected) => ErrorKind::Misuse,
            _ => return error,
        };
        Error::new(kind, "mutant", "call", "as broken as intended")
    }
}

#[async_trait]
impl Device for Mutant {
    fn spec(&self) -> &DeviceSpec {
        self.inner.spec()
    }

    async fn screenshot(&mut self) -> Result<Observation> {
        let small = Size::new(1, 1);
        if self.closed && self.flaw == Flaw::WorksAfterClose || self.shrunk {
            return Ok(Observation::of(Frame::new(small, vec![0; 3])?));
        }
        let shot = self.inner.screenshot().await;
        let stalled = matches!(&shot, Err(error) if error.kind() == ErrorKind::Timeout);
        if stalled && self.flaw == Flaw::HangsWhenStalled {
            std::future::pending::<()>().await;
        }
        let shot = shot.map_err(|error| self.twisted(error))?;
        let previous = self.previous.replace(shot.clone());
        match previous {
            Some(old) if self.flaw == Flaw::ShowsThePreviousFrame && !self.recovered => Ok(old),
            _ => Ok(shot),
        }
    }

    async fn perform(&mut self, action: &Action) -> Result<()> {
        let screen = self.inner.spec().screen;
        if self.flaw == Flaw::TakesClicksOutside
            && matches!(action, Action::Click { .. })
            && action.fault(screen).is_some()
        {
            return Ok(());
        }
        if self.flaw == Flaw::LosesInputWhenRecovered && self.recovered {
            return Ok(());
        }
        self.shrunk |=
            self.flaw == Flaw::ShrinksWithKeyUp && matches!(action, Action::KeyUp { .. });
        let performed = self.inner.perform(action).await;
        performed.map_err(|error| self.twisted(error))
    }

    async fn recover(&mut self) -> Result<()> {
        self.inner.recover().await?;
        self.recovered = true;
        if self.flaw == Flaw::KeepsKeysHeld {
            let key = Key::Named(NamedKey::Ctrl);
            self.inner.perform(&Action::KeyDown { key }).await?;
        }
        Ok(())
    }

    async fn close(&mut self) -> Result<()> {
        if self.closed && self.flaw == Flaw::RefusesTheSecondClose {
            return Err(Error::new(ErrorKind::Misuse, "mutant", "close", "again?"));
        }
        self.closed = true;
        self.inner.close().await
    }
}

struct Harness(Flaw);

#[async_trait]
impl DeviceHarness for Harness {
    type Device = Mutant;

    fn settings(&self) -> Settings {
        Wrapped.settings()
    }

    async fn make(&self) -> Result<Box<Mutant>> {
        Ok(Box::new(Mutant::new(*Wrapped.make().await?, self.0)))
    }

    async fn visible_action(&self, device: &mut Mutant) -> Result<Action> {
        Ok(Action::click(device.inner.fake().target().center()))
    }

    async fn held(&self, device: &mut Mutant) -> Result<Option<usize>> {
        Ok(Some(device.inner.fake().held()))
    }

    async fn breakable(&self, fault: Fault) -> Result<Option<Breakable<Mutant>>> {
        let inner = Wrapped.breakable(fault).await?;
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
        (ShrinksWithKeyUp, "c01"),
        (ShowsThePreviousFrame, "c02"),
        (CallsUnsupportedInvalid, "c03"),
        (TakesClicksOutside, "c03"),
        (CallsStallDisconnected, "c04"),
        // Whoever hangs cannot be recovered either.
        (HangsWhenStalled, "c04 c06"),
        (CallsCutMisuse, "c05"),
        (KeepsKeysHeld, "c06"),
        (LosesInputWhenRecovered, "c06"),
        (WorksAfterClose, "c07"),
        (RefusesTheSecondClose, "c07"),
    ];
    let mut expectations = Expectations::default();
    for (flaw, expected) in table {
        let results = device::run_all(&Harness(flaw)).await;
        expectations.compare(&format!("{flaw:?}"), &results, expected);
    }
    expectations.assert_met();
}
