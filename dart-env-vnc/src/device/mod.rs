//! [`VncDevice`]: a desktop behind an RFB server, as a [`Device`].

mod extras;
mod typing;

use std::time::Duration;

use async_trait::async_trait;
use dart_core::{
    Action, ActionKind, ActionSet, Device, DeviceSpec, Error, ErrorKind, Frame, NamedKey,
    Observation, Result, Size,
};
use tokio::time::{Instant, sleep, timeout};

use crate::{
    config::VncConfig,
    rfb::{Connection, Dialect, InputState, Password, RfbError, Step, Target, keysym},
};

/// What a desktop takes, but for what concerns the task and never reaches a device.
fn actions() -> ActionSet {
    let task = [ActionKind::Answer, ActionKind::Done, ActionKind::Fail];
    let kinds = ActionSet::DESKTOP.iter();
    ActionSet::from(
        kinds
            .filter(|kind| !task.contains(kind))
            .collect::<Vec<_>>(),
    )
}

/// Time between attempts to reach a server that is starting again.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// How often the screen may get another size while one frame is taken.
const RESIZES_IN_A_ROW: usize = 8;

/// Longest farewell to a server that may be dead.
const FAREWELL: Duration = Duration::from_millis(200);

/// A desktop behind an RFB server.
///
/// Screenshots show the screen without the pointer, as of the last complete update; the pointer's
/// shape is kept apart ([`cursor`](Self::cursor)). After an action the server is synchronised
/// with and the screen is given time to settle ([`VncConfig::settle_quiet_ms`]).
///
/// # Cancel safety
/// A dropped `perform` may leave keys or buttons held; the next `perform`, `recover` or `close`
/// releases them, and so does dropping the device.
#[derive(Debug)]
pub struct VncDevice {
    config: VncConfig,
    target: Target,
    connection: Option<Connection>,
    spec: DeviceSpec,
    input: InputState,
    /// An action was begun and not completed.
    interrupted: bool,
    closed: bool,
}

impl VncDevice {
    /// Connects to the server and waits for the first frame.
    ///
    /// # Errors
    /// [`ErrorKind::Config`], [`Disconnected`](ErrorKind::Disconnected),
    /// [`Timeout`](ErrorKind::Timeout), [`Protocol`](ErrorKind::Protocol) or
    /// [`Unauthorized`](ErrorKind::Unauthorized); each message names the server and says what to do.
    pub async fn connect(config: VncConfig) -> Result<Self> {
        let password = config.password()?;
        Self::connect_with(config, password).await
    }

    /// Like [`connect`](Self::connect), with a password from elsewhere.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub async fn connect_with(config: VncConfig, password: Option<Password>) -> Result<Self> {
        let spec = DeviceSpec {
            name: format!("vnc {}", config.endpoint),
            screen: Size::new(0, 0),
            actions: actions(),
        };
        let mut device = Self {
            target: config.target(password)?,
            config,
            connection: None,
            spec,
            input: InputState::default(),
            interrupted: false,
            closed: false,
        };
        let connection = Connection::open(&device.target).await;
        device.connection = Some(device.explain("connect", connection)?);
        device.take_over("connect").await?;
        Ok(device)
    }

    /// Puts a new connection into a known state.
    async fn take_over(&mut self, operation: &'static str) -> Result<()> {
        self.refresh_spec();
        self.input.reconnected();
        let steps = self.input.take_over(self.spec.screen);
        let done = self.act(steps).await;
        self.explain(operation, done)?;
        if self.abilities().locks.is_some_and(|locks| locks.caps) {
            // Letters would come out as capitals.
            let tap = [true, false].map(|down| Step::Key {
                keysym: keysym::of_named(NamedKey::CapsLock),
                down,
            });
            let done = self.act(tap.to_vec()).await;
            self.explain(operation, done)?;
        }
        self.refresh_spec();
        Ok(())
    }

    /// Waits until the screen has not changed for `quiet`, but at most `longest`. For task drivers
    /// that changed the screen by other means than an action.
    ///
    /// # Errors
    /// If the connection is lost.
    pub async fn settle(&self, quiet: Duration, longest: Duration) -> Result<()> {
        let settled = async {
            let connection = self.connection()?;
            connection.sync().await?;
            connection.settle(quiet, longest).await
        };
        self.explain("settle", settled.await)
    }

    /// In which of its ways the server is told of input.
    fn dialect(&self) -> Dialect {
        Dialect::new(self.config.keyboard, &self.abilities())
    }

    fn connection(&self) -> Result<&Connection, RfbError> {
        self.connection.as_ref().ok_or(RfbError::Closed)
    }

    fn explain<T>(&self, operation: &'static str, result: Result<T, RfbError>) -> Result<T> {
        result.map_err(|error| error.into_core(operation, &self.config.endpoint))
    }

    fn refresh_spec(&mut self) {
        if let Some(connection) = &self.connection {
            self.spec.screen = connection.size();
        }
    }

    fn check_open(&self, operation: &'static str) -> Result<()> {
        if self.closed {
            let message = "the device is closed";
            return Err(Error::new(
                ErrorKind::Misuse,
                "dart-env-vnc",
                operation,
                message,
            ));
        }
        Ok(())
    }

    fn check_action(&self, action: &Action) -> Result<()> {
        if !self.spec.actions.contains(action.kind()) {
            let message = format!("a VNC desktop does not take {:?}", action.kind());
            return Err(Error::new(
                ErrorKind::Unsupported,
                "dart-env-vnc",
                "perform",
                message,
            ));
        }
        self.check_keys(action)?;
        match action.fault(self.spec.screen) {
            Some(fault) => Err(Error::new(
                ErrorKind::InvalidAction,
                "dart-env-vnc",
                "perform",
                fault,
            )),
            None => Ok(()),
        }
    }

    /// Sends steps. What they press counts as held from before it is sent, what they release until
    /// after, so that a dropped future loses nothing.
    async fn run(&mut self, steps: Vec<Step>) -> Result<(), RfbError> {
        let dialect = self.dialect();
        let mut after = self.input.clone();
        let mut bytes = Vec::new();
        for step in steps {
            after.apply(step, dialect, &mut bytes);
            self.input.expect(step);
            if matches!(step, Step::Pause(_) | Step::Sync) {
                self.connection()?.send(std::mem::take(&mut bytes)).await?;
                self.input = after.clone();
            }
            match step {
                Step::Pause(pause) => sleep(pause).await,
                Step::Sync => self.connection()?.acknowledged().await?,
                Step::Key { .. } | Step::Pointer { .. } => {}
            }
        }
        self.connection()?.send(bytes).await?;
        self.input = after;
        Ok(())
    }

    async fn act(&mut self, steps: Vec<Step>) -> Result<(), RfbError> {
        self.run(steps).await?;
        let quiet = Duration::from_millis(self.config.settle_quiet_ms);
        let longest = Duration::from_millis(self.config.settle_max_ms);
        let connection = self.connection()?;
        connection.acknowledged().await?;
        connection.settle(quiet, longest).await
    }

    /// After a resize the pointer has to be placed again.
    async fn follow_resize(&mut self) -> Result<(), RfbError> {
        let screen = self.connection()?.size();
        if screen == self.spec.screen {
            return Ok(());
        }
        tracing::debug!(%screen, "the desktop was resized");
        self.spec.screen = screen;
        self.act(self.input.place_pointer(screen)).await
    }

    async fn fresh_frame(&mut self) -> Result<Frame, RfbError> {
        self.connection()?.sync().await?;
        self.current_frame().await
    }

    /// The last frame, with the pointer placed again if the screen has another size. Where it gets
    /// another one meanwhile, its pixels are waited for: a black frame is never shown.
    async fn current_frame(&mut self) -> Result<Frame, RfbError> {
        for _ in 0..RESIZES_IN_A_ROW {
            self.follow_resize().await?;
            let connection = self.connection()?;
            match connection.frame() {
                Some(frame) if frame.size() == self.spec.screen => return Ok(frame),
                _ => connection.sync().await?,
            }
        }
        let what = "the screen does not keep its size";
        Err(RfbError::Malformed { what })
    }

    /// Reconnects; a server that does not listen yet is given until the deadline.
    async fn reopen(&self) -> Result<Connection> {
        let deadline = Instant::now() + self.config.deadlines().connect;
        loop {
            let opened = Connection::open(&self.target).await;
            let starting = matches!(&opened, Err(RfbError::Connect { .. } | RfbError::Closed));
            if !starting || Instant::now() + RETRY_PAUSE >= deadline {
                return self.explain("recover", opened);
            }
            sleep(RETRY_PAUSE).await;
        }
    }

    /// Sends the release of what is held, without waiting.
    fn release_now(&self) {
        let mut bytes = Vec::new();
        let mut after = self.input.clone();
        for step in self.input.release(self.spec.screen) {
            after.apply(step, self.dialect(), &mut bytes);
        }
        if let (Some(connection), false) = (&self.connection, bytes.is_empty()) {
            connection.try_send(bytes);
        }
    }
}

#[async_trait]
impl Device for VncDevice {
    fn spec(&self) -> &DeviceSpec {
        &self.spec
    }

    async fn screenshot(&mut self) -> Result<Observation> {
        self.check_open("screenshot")?;
        let frame = self.fresh_frame().await;
        let frame = self.explain("screenshot", frame)?;
        self.spec.screen = frame.size();
        Ok(Observation::of(frame))
    }

    async fn perform(&mut self, action: &Action) -> Result<()> {
        self.check_open("perform")?;
        let followed = self.follow_resize().await;
        self.explain("perform", followed)?;
        self.check_action(action)?;
        let pasted = self.offer_untypable(action).await?;
        let action = pasted.as_ref().map_or(action, |pasted| &pasted.keys);
        let screen = self.spec.screen;
        let steps = if self.interrupted {
            let mut steps = self.input.release(screen);
            steps.extend(self.input.released().plan(action, screen)?);
            steps
        } else {
            self.input.plan(action, screen)?
        };
        self.interrupted = true;
        let done = self.act(steps).await;
        self.explain("perform", done)?;
        self.interrupted = false;
        match pasted {
            Some(pasted) => self.wait_pasted(&pasted).await,
            None => Ok(()),
        }
    }

    async fn recover(&mut self) -> Result<()> {
        self.check_open("recover")?;
        // The old connection may still be good, and a server that keeps keys down when it is cut.
        self.release_now();
        self.connection = None;
        self.connection = Some(self.reopen().await?);
        self.take_over("recover").await?;
        self.interrupted = false;
        Ok(())
    }

    async fn close(&mut self) -> Result<()> {
        self.closed = true;
        let idle = self.input.is_idle();
        self.release_now();
        if let (Some(connection), false) = (&self.connection, idle) {
            // Best effort: the writer sends what is queued before it closes the socket anyway.
            let _ = timeout(FAREWELL, connection.acknowledged()).await;
        }
        self.connection = None;
        self.input = self.input.released();
        Ok(())
    }
}

impl Drop for VncDevice {
    fn drop(&mut self) {
        self.release_now();
    }
}
