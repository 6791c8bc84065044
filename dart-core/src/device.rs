//! [`Device`]: a thing with a screen and input. What a new backend usually implements.

use async_trait::async_trait;

use crate::{Action, ActionSet, Error, ErrorKind, Observation, Result, Size};

const ORIGIN: &str = "device";

/// What a device is and can do.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceSpec {
    /// Name for logs, such as `vnc 127.0.0.1:5901`.
    pub name: String,
    /// The screen's size.
    pub screen: Size,
    /// The actions it performs. [`Done`](Action::Done), [`Fail`](Action::Fail) and
    /// [`Answer`](Action::Answer) concern the task, not the device, and are never passed to it.
    pub actions: ActionSet,
}

impl DeviceSpec {
    /// A device of this name, screen and actions.
    pub fn new(name: impl Into<String>, screen: Size, actions: ActionSet) -> Self {
        Self {
            name: name.into(),
            screen,
            actions,
        }
    }

    /// What [`Device::perform`] asks first.
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported) if the device does not perform such actions,
    /// [`InvalidAction`](ErrorKind::InvalidAction) if this one has a fault ([`Action::fault`]).
    pub fn check(&self, action: &Action) -> Result<()> {
        let kind = action.kind();
        if !self.actions.contains(kind) {
            let message = "this device does not take such an action";
            let error = Error::new(ErrorKind::Unsupported, ORIGIN, "perform", message);
            return Err(error.with("action", format!("{kind:?}")));
        }
        match action.fault(self.screen) {
            Some(fault) => Err(Error::new(
                ErrorKind::InvalidAction,
                ORIGIN,
                "perform",
                fault,
            )),
            None => Ok(()),
        }
    }
}

/// A thing with a screen and input.
///
/// # Contract
///
/// Each number is the name of a conformance check in `dart-testkit`.
///
/// 1. `screenshot` gives a frame of the size in `spec`.
/// 2. `perform` returns once the device has taken the input and the screen has had the chance to
///    react; the next `screenshot` shows what the action did.
/// 3. An action that is not in `spec().actions` is [`Unsupported`](crate::ErrorKind::Unsupported);
///    a faulty one ([`Action::fault`]) is [`InvalidAction`](crate::ErrorKind::InvalidAction). The
///    device stays usable.
/// 4. No call waits for ever: a stalled peer is [`Timeout`](crate::ErrorKind::Timeout).
/// 5. A cut connection is [`Disconnected`](crate::ErrorKind::Disconnected) or another retryable kind.
/// 6. `recover` restores a usable device after any error or dropped future, with no key and no
///    button held, or fails.
/// 7. `close` is idempotent; every other call after it is [`Misuse`](crate::ErrorKind::Misuse).
#[async_trait]
pub trait Device: Send {
    /// What this device is. The screen size may change when the device is resized or rotated.
    fn spec(&self) -> &DeviceSpec;

    /// What is on the screen now.
    async fn screenshot(&mut self) -> Result<Observation>;

    /// Performs one action.
    async fn perform(&mut self, action: &Action) -> Result<()>;

    /// Brings the device back to a usable state.
    async fn recover(&mut self) -> Result<()>;

    /// Releases everything. Idempotent.
    async fn close(&mut self) -> Result<()>;
}
