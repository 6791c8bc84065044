//! The suite of [`Device`]: one check for each line of its contract.

use async_trait::async_trait;
use dart_core::{Action, ActionKind, ActionSet, Device, ErrorKind, Result, Size};

use crate::{
    actions,
    interrupt::{MOMENTS, drop_after},
    suite::{
        Breakable, Checked, Failure, Fault, Settings, Verdict, ensure, ensure_kind, suite, within,
    },
};

/// What the checks need to know about a device.
#[async_trait]
pub trait DeviceHarness: Sync {
    /// What is tested.
    type Device: Device + ?Sized;

    /// How to run the checks.
    fn settings(&self) -> Settings {
        Settings::default()
    }

    /// Makes a fresh device.
    async fn make(&self) -> Result<Box<Self::Device>>;

    /// An action with a visible effect on what is on the screen now. Asked several times.
    async fn visible_action(&self, device: &mut Self::Device) -> Result<Action>;

    /// An acceptable action of a kind.
    fn example(&self, kind: ActionKind, screen: Size) -> Action {
        actions::example(kind, screen)
    }

    /// How many keys and buttons the device holds down, if that can be found out.
    async fn held(&self, _device: &mut Self::Device) -> Result<Option<usize>> {
        Ok(None)
    }

    /// A device whose peer can be made to fail in this way, if there is a way.
    async fn breakable(&self, _fault: Fault) -> Result<Option<Breakable<Self::Device>>> {
        Ok(None)
    }
}

suite! {
    $
    /// Makes one `#[test]` of each check of the device suite, and `coverage`, in a module named
    /// `device_conformance` or, with `mod name, harness`, otherwise.
    device_conformance in device for DeviceHarness:
    c01_screenshots_have_the_declared_size,
    c02_the_next_screenshot_shows_what_an_action_did,
    c03_unsupported_and_faulty_actions_leave_it_usable,
    c04_a_stalled_peer_times_out,
    c05_a_cut_connection_is_retryable,
    c06_recover_restores_it_with_nothing_held,
    c07_close_is_idempotent_and_final,
}

/// The actions that are never passed to a device.
const TASK_ACTIONS: ActionSet =
    ActionSet::of(&[ActionKind::Answer, ActionKind::Done, ActionKind::Fail]);

/// A screenshot of the declared size.
async fn screenshot<H: DeviceHarness>(
    device: &mut H::Device,
    when: &str,
) -> Result<dart_core::Frame, Failure> {
    let observation = device.screenshot().await;
    let observation = observation.map_err(|e| Failure(format!("a screenshot {when}: {e}")))?;
    let (frame, declared) = (observation.frame.size(), device.spec().screen);
    ensure(
        frame == declared,
        format!("a screenshot {when} is {frame}, the declared screen {declared}"),
    )?;
    Ok(observation.frame)
}

/// Line 1. `screenshot` gives a frame of the size in `spec`.
pub async fn c01_screenshots_have_the_declared_size<H: DeviceHarness>(h: &H) -> Checked {
    let mut device = h.make().await?;
    screenshot::<H>(&mut device, "at first").await?;
    let spec = device.spec().clone();
    for kind in spec.actions.iter() {
        let action = h.example(kind, spec.screen);
        device
            .perform(&action)
            .await
            .map_err(|error| Failure(format!("{action:?} is declared, but: {error}")))?;
    }
    screenshot::<H>(&mut device, "after every action").await?;
    Ok(Verdict::Passed)
}

/// Line 2. `perform` returns once the screen has had the chance to react; the next `screenshot` shows
/// what the action did.
pub async fn c02_the_next_screenshot_shows_what_an_action_did<H: DeviceHarness>(h: &H) -> Checked {
    let mut device = h.make().await?;
    for round in 1..=3 {
        let before = screenshot::<H>(&mut device, "before an action").await?;
        let action = h.visible_action(&mut device).await?;
        device.perform(&action).await?;
        let after = screenshot::<H>(&mut device, "after an action").await?;
        ensure(
            before != after,
            format!("round {round}: the screenshot after {action:?} is the one before it"),
        )?;
    }
    Ok(Verdict::Passed)
}

/// Line 3. An action that is not in the spec is `Unsupported`, a faulty one `InvalidAction`; the device
/// stays usable.
pub async fn c03_unsupported_and_faulty_actions_leave_it_usable<H: DeviceHarness>(
    h: &H,
) -> Checked {
    let mut device = h.make().await?;
    let spec = device.spec().clone();
    let undeclared = ActionKind::ALL
        .iter()
        .filter(|kind| !spec.actions.contains(**kind) && !TASK_ACTIONS.contains(**kind));
    for &kind in undeclared {
        let performed = device.perform(&actions::example(kind, spec.screen)).await;
        let what = format!("an undeclared {kind:?}");
        ensure_kind(performed, ErrorKind::Unsupported, &what)?;
    }
    for action in actions::faulty(spec.actions, spec.screen) {
        let fault = action.fault(spec.screen).unwrap_or_default();
        let what = format!("an action with {fault}");
        ensure_kind(
            device.perform(&action).await,
            ErrorKind::InvalidAction,
            &what,
        )?;
    }
    let action = h.visible_action(&mut device).await?;
    device.perform(&action).await?;
    screenshot::<H>(&mut device, "after refused actions").await?;
    Ok(Verdict::Passed)
}

/// Line 4. No call waits for ever: a stalled peer is `Timeout`.
pub async fn c04_a_stalled_peer_times_out<H: DeviceHarness>(h: &H) -> Checked {
    let Some(breakable) = h.breakable(Fault::Stall).await? else {
        return Ok(Verdict::not_applicable("no peer that could stall"));
    };
    let mut device = breakable.subject;
    let action = h.visible_action(&mut device).await?;
    (breakable.break_it)();
    let deadline = h.settings().deadline;
    // Input may vanish in a buffer; it is the answer that fails to come.
    let what = "perform on a stalled peer";
    if let Err(error) = within(deadline, what, device.perform(&action)).await? {
        ensure_kind(Err::<(), _>(error), ErrorKind::Timeout, what)?;
    }
    let what = "a screenshot of a stalled peer";
    let screenshot = within(deadline, what, device.screenshot()).await?;
    ensure_kind(screenshot, ErrorKind::Timeout, what)?;
    let _ = within(deadline, "recover on a stalled peer", device.recover()).await?;
    let _ = within(deadline, "close on a stalled peer", device.close()).await?;
    Ok(Verdict::Passed)
}

/// Line 5. A cut connection is `Disconnected` or another retryable kind.
pub async fn c05_a_cut_connection_is_retryable<H: DeviceHarness>(h: &H) -> Checked {
    let Some(breakable) = h.breakable(Fault::Cut).await? else {
        return Ok(Verdict::not_applicable("no connection that could be cut"));
    };
    let mut device = breakable.subject;
    let action = h.visible_action(&mut device).await?;
    (breakable.break_it)();
    let deadline = h.settings().deadline;
    let retryable = |error: &dart_core::Error| {
        ensure(
            error.is_retryable(),
            format!("a cut connection is retryable, and not: {error}"),
        )
    };
    if let Err(error) = within(deadline, "perform when cut", device.perform(&action)).await? {
        retryable(&error)?;
    }
    match within(deadline, "a screenshot when cut", device.screenshot()).await? {
        Ok(_) => return Err("a screenshot over a cut connection succeeded".into()),
        Err(error) => retryable(&error)?,
    }
    Ok(Verdict::Passed)
}

/// Line 6. `recover` restores a usable device after any error or dropped future, with no key and no
/// button held, or fails.
pub async fn c06_recover_restores_it_with_nothing_held<H: DeviceHarness>(h: &H) -> Checked {
    let mut device = h.make().await?;
    let spec = device.spec().clone();
    for moment in MOMENTS {
        for kind in [ActionKind::KeyDown, ActionKind::MouseDown] {
            if spec.actions.contains(kind) {
                device.perform(&h.example(kind, spec.screen)).await?;
            }
        }
        recovered(h, &mut device, "held input").await?;
        let action = h.visible_action(&mut device).await?;
        let _ = drop_after(moment, device.perform(&action)).await;
        recovered(h, &mut device, "a dropped perform").await?;
        let _ = drop_after(moment, device.screenshot()).await;
        recovered(h, &mut device, "a dropped screenshot").await?;
        let _ = drop_after(moment, device.recover()).await;
        recovered(h, &mut device, "a dropped recover").await?;
    }
    for fault in [Fault::Stall, Fault::Cut] {
        recovered_from(h, fault).await?;
    }
    Ok(Verdict::Passed)
}

async fn recovered<H: DeviceHarness>(
    h: &H,
    device: &mut H::Device,
    after: &str,
) -> Result<(), Failure> {
    let recovery = device.recover().await;
    recovery.map_err(|error| Failure(format!("recover after {after}: {error}")))?;
    if let Some(held) = h.held(device).await? {
        ensure(
            held == 0,
            format!("{held} keys and buttons are held when recovered from {after}"),
        )?;
    }
    let before = screenshot::<H>(device, &format!("when recovered from {after}")).await?;
    let action = h.visible_action(device).await?;
    device.perform(&action).await?;
    let shown = screenshot::<H>(device, "after an action").await?;
    ensure(
        before != shown,
        format!("no effect of an action when recovered from {after}"),
    )
}

/// The peer fails, comes back, and `recover` works, if that can be tried here.
async fn recovered_from<H: DeviceHarness>(h: &H, fault: Fault) -> Result<(), Failure> {
    let Some(Breakable {
        mut subject,
        break_it,
        heal: Some(heal),
    }) = h.breakable(fault).await?
    else {
        return Ok(());
    };
    break_it();
    let failed = subject.screenshot().await;
    ensure(
        failed.is_err(),
        format!("a screenshot after {fault:?} succeeded"),
    )?;
    heal();
    recovered(h, subject.as_mut(), &format!("{fault:?}")).await
}

/// Line 7. `close` is idempotent; every other call after it is `Misuse`.
pub async fn c07_close_is_idempotent_and_final<H: DeviceHarness>(h: &H) -> Checked {
    let mut device = h.make().await?;
    let action = h.visible_action(&mut device).await?;
    device.close().await?;
    device.close().await?;
    let kind = ErrorKind::Misuse;
    ensure_kind(device.screenshot().await, kind, "a screenshot after close")?;
    ensure_kind(device.perform(&action).await, kind, "perform after close")?;
    ensure_kind(device.recover().await, kind, "recover after close")?;
    device.close().await?;
    Ok(Verdict::Passed)
}
