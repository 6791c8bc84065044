//! [`Faulty`]: a device that fails when told to.

use std::{
    collections::BTreeMap,
    future::pending,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use dart_core::{Action, Device, DeviceSpec, Error, ErrorKind, Observation, Result};

use crate::suite::Fault;

/// What goes wrong in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mishap {
    /// The connection is cut before the call reaches the device; it stays cut until healed.
    Cut,
    /// The call never returns: a device that breaks its contract, for the layers above.
    Hang,
    /// The call panics.
    Panic,
    /// The call takes this much longer, and succeeds.
    Slow(Duration),
    /// The peer does not answer; the device's own deadline passes. Lasts until healed.
    Stall,
}

#[derive(Debug, Default)]
struct State {
    calls: usize,
    plan: BTreeMap<usize, Mishap>,
    lasting: Option<Fault>,
    needs_recovery: bool,
}

/// Makes the device fail, from outside.
#[derive(Clone, Debug, Default)]
pub struct FaultSwitch(Arc<Mutex<State>>);

impl FaultSwitch {
    fn state(&self) -> MutexGuard<'_, State> {
        // A planned panic never happens while the lock is held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on the peer fails like this.
    pub fn start(&self, fault: Fault) {
        let mut state = self.state();
        state.lasting = Some(fault);
        state.needs_recovery = true;
    }

    /// The peer is there again; the device needs a `recover` to notice.
    pub fn heal(&self) {
        self.state().lasting = None;
    }

    /// At the `call`-th call from the start (the first is 1), this happens.
    pub fn at_call(&self, call: usize, mishap: Mishap) {
        self.state().plan.insert(call, mishap);
    }

    /// How many calls there were (`close` not counted).
    pub fn calls(&self) -> usize {
        self.state().calls
    }
}

/// A device that works like the one inside until its [`FaultSwitch`] says otherwise.
#[derive(Debug)]
pub struct Faulty<D> {
    inner: D,
    switch: FaultSwitch,
    deadline: Duration,
}

impl<D: Device> Faulty<D> {
    /// Wraps `inner`; a stalled call gives up after `deadline`.
    pub fn new(inner: D, deadline: Duration) -> (Self, FaultSwitch) {
        let switch = FaultSwitch::default();
        let device = Self {
            inner,
            switch: switch.clone(),
            deadline,
        };
        (device, switch)
    }

    /// The device inside.
    pub const fn inner_mut(&mut self) -> &mut D {
        &mut self.inner
    }

    fn broken(kind: ErrorKind, operation: &'static str) -> Error {
        let message = match kind {
            ErrorKind::Timeout => "the peer does not answer",
            _ => "the connection is cut",
        };
        Error::new(kind, "faulty", operation, message)
    }

    /// Counts the call and fails it if that is its lot.
    async fn suffer(&mut self, operation: &'static str) -> Result<()> {
        let mishap = {
            let mut state = self.switch.state();
            state.calls += 1;
            let call = state.calls;
            state.plan.remove(&call)
        };
        match mishap {
            Some(Mishap::Cut) => self.switch.start(Fault::Cut),
            Some(Mishap::Stall) => self.switch.start(Fault::Stall),
            Some(Mishap::Hang) => pending().await,
            Some(Mishap::Panic) => panic!("a planned panic in {operation}"),
            Some(Mishap::Slow(time)) => tokio::time::sleep(time).await,
            None => {}
        }
        let lasting = self.switch.state().lasting;
        match lasting {
            Some(Fault::Stall) => {
                tokio::time::sleep(self.deadline).await;
                Err(Self::broken(ErrorKind::Timeout, operation))
            }
            Some(Fault::Cut) => Err(Self::broken(ErrorKind::Disconnected, operation)),
            None => Ok(()),
        }
    }

    fn check_recovered(&self, operation: &'static str) -> Result<()> {
        if self.switch.state().needs_recovery {
            return Err(Self::broken(ErrorKind::Disconnected, operation));
        }
        Ok(())
    }
}

#[async_trait]
impl<D: Device> Device for Faulty<D> {
    fn spec(&self) -> &DeviceSpec {
        self.inner.spec()
    }

    async fn screenshot(&mut self) -> Result<Observation> {
        self.suffer("screenshot").await?;
        self.check_recovered("screenshot")?;
        self.inner.screenshot().await
    }

    async fn perform(&mut self, action: &Action) -> Result<()> {
        self.suffer("perform").await?;
        self.check_recovered("perform")?;
        self.inner.perform(action).await
    }

    async fn recover(&mut self) -> Result<()> {
        self.suffer("recover").await?;
        self.inner.recover().await?;
        self.switch.state().needs_recovery = false;
        Ok(())
    }

    async fn close(&mut self) -> Result<()> {
        self.inner.close().await
    }
}
