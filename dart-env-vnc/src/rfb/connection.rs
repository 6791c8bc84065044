//! The tokio driver: one reader task that owns the core, one writer task, and a screen that
//! changes only at update boundaries.
//!
//! Input never waits for the server to say something, and a slow writer never stops the reader:
//! the two share a bounded outbox and nothing else.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use dart_core::{Frame, Size};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::{mpsc, watch},
    task::AbortHandle,
    time::{Instant, sleep_until, timeout, timeout_at},
};

use super::{
    core::Core,
    dial::{Deadlines, Dialled, Sink, Source, Target, dial, timed_out},
    encoding::cursor::CursorImage,
    error::RfbError,
    framebuffer::Area,
    message::update_request,
    session::Event,
    shared::{Shared, Status},
};

/// Bytes to make room for before each read.
const READ_CHUNK: usize = 256 << 10;

/// How long a probe waits before it asks in another way, at most.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);

async fn read_loop(mut source: Source, mut core: Core, shared: &Shared) -> Result<(), RfbError> {
    loop {
        while let Some(event) = core.next_event()? {
            shared.handle(event, &mut core);
            // A burst of small updates must not keep other tasks from running.
            tokio::task::consume_budget().await;
        }
        let output = core.take_output();
        if !output.is_empty() {
            shared.post(&output)?;
        }
        core.input().reserve(READ_CHUNK);
        match source.read_buf(core.input()).await {
            Ok(0) => return Err(RfbError::Closed),
            Ok(_) => {}
            Err(error) => return Err(RfbError::io(&error)),
        }
    }
}

async fn write_loop(
    mut sink: Sink,
    mut inputs: mpsc::Receiver<Vec<u8>>,
    shared: &Shared,
    limit: Duration,
) -> Result<(), RfbError> {
    loop {
        let bytes = tokio::select! {
            biased;
            requests = shared.next_requests() => requests,
            input = inputs.recv() => match input {
                Some(bytes) => bytes,
                None => break,
            },
        };
        let write = async {
            sink.write_all(&bytes).await?;
            sink.flush().await
        };
        match timeout(limit, write).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(RfbError::io(&error)),
            Err(_) => return Err(timed_out("progress in sending", limit)),
        }
    }
    // The owner is gone; whether the server notices is its own affair.
    let _ = timeout(limit, sink.shutdown()).await;
    Ok(())
}

/// The pixel of the `number`-th probe: multiples of two irrational fractions of the sides keep
/// consecutive ones far apart.
fn probe_pixel(number: u32, size: Size) -> (u16, u16) {
    let along = |side: u32, fraction: f64| {
        let place = (f64::from(number) * fraction).fract() * f64::from(side);
        place.min(f64::from(side.saturating_sub(1))) as u16
    };
    (along(size.width, 0.754_877), along(size.height, 0.569_840))
}

/// A live connection. Dropping it sends what was queued, closes the socket and ends both tasks.
#[derive(Debug)]
pub(crate) struct Connection {
    inputs: mpsc::Sender<Vec<u8>>,
    shared: Arc<Shared>,
    status: watch::Receiver<Status>,
    deadlines: Deadlines,
    probes: AtomicU32,
}

impl Connection {
    /// Connects, shakes hands and waits for the first frame.
    pub(crate) async fn open(target: &Target) -> Result<Self, RfbError> {
        let Dialled {
            source,
            sink,
            mut core,
            init,
        } = dial(target).await?;
        let shared = Arc::new(Shared::new());
        shared.handle(Event::Connected(init), &mut core);
        let (inputs, queue) = mpsc::channel(16);
        let deadlines = target.deadlines;
        let reader = Self::spawn_reader(source, core, shared.clone());
        Self::spawn_writer(sink, queue, shared.clone(), (deadlines.update, reader));
        let status = shared.status.subscribe();
        let connection = Self {
            inputs,
            shared,
            status,
            deadlines,
            probes: AtomicU32::new(0),
        };
        connection.first_frame().await?;
        Ok(connection)
    }

    fn spawn_reader(source: Source, core: Core, shared: Arc<Shared>) -> AbortHandle {
        let reader = tokio::spawn(async move {
            if let Err(error) = read_loop(source, core, &shared).await {
                shared.fail(error);
            }
        });
        reader.abort_handle()
    }

    fn spawn_writer(
        sink: Sink,
        queue: mpsc::Receiver<Vec<u8>>,
        shared: Arc<Shared>,
        (limit, reader): (Duration, AbortHandle),
    ) {
        tokio::spawn(async move {
            if let Err(error) = write_loop(sink, queue, &shared, limit).await {
                shared.fail(error);
            }
            reader.abort();
        });
    }

    /// Waits until `ready`; `false` if the deadline passed first.
    async fn wait(
        &self,
        deadline: Instant,
        ready: impl Fn(&Status) -> bool,
    ) -> Result<bool, RfbError> {
        let mut status = self.status.clone();
        let seen = status.wait_for(|status| status.failure.is_some() || ready(status));
        match timeout_at(deadline, seen).await {
            Ok(Ok(status)) => status.failure.clone().map_or(Ok(true), Err),
            Ok(Err(_)) => Err(RfbError::Closed),
            Err(_) => Ok(false),
        }
    }

    /// Fails if the connection has failed.
    pub(crate) fn check(&self) -> Result<(), RfbError> {
        self.status.borrow().failure.clone().map_or(Ok(()), Err)
    }

    /// Queues input messages.
    pub(crate) async fn send(&self, bytes: Vec<u8>) -> Result<(), RfbError> {
        self.check()?;
        if bytes.is_empty() {
            return Ok(());
        }
        match timeout(self.deadlines.update, self.inputs.send(bytes)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => self.check().and(Err(RfbError::Closed)),
            Err(_) => Err(timed_out("progress in sending", self.deadlines.update)),
        }
    }

    /// Queues input messages if there is room; for clean-up that cannot wait.
    pub(crate) fn try_send(&self, bytes: Vec<u8>) {
        // A full or closed queue means a dead server, which holds no keys.
        let _ = self.inputs.try_send(bytes);
    }

    /// Waits until the screen has pixels.
    async fn first_frame(&self) -> Result<(), RfbError> {
        // The first request was made with the handshake; it is repeated if nothing comes of it.
        let soon = Instant::now() + self.interval();
        if self.wait(soon, |status| status.painted).await? {
            return Ok(());
        }
        self.ask(None).await
    }

    /// Waits until the server has taken all input sent so far and the screen has pixels.
    ///
    /// Asking for one pixel unconditionally makes every server answer at once, also when nothing
    /// changes. Each time it is another pixel, far from the last one, so that a late answer to an
    /// earlier question is not taken for this one. A server that does not answer is asked for
    /// everything after a while.
    pub(crate) async fn sync(&self) -> Result<(), RfbError> {
        self.first_frame().await?;
        self.ask(Some(self.probes.fetch_add(1, Ordering::Relaxed)))
            .await
    }

    fn interval(&self) -> Duration {
        PROBE_INTERVAL.min(self.deadlines.update / 4)
    }

    /// Asks for the pixel of this probe, or for everything, until it is painted.
    async fn ask(&self, probe: Option<u32>) -> Result<(), RfbError> {
        let limit = self.deadlines.update;
        let deadline = Instant::now() + limit;
        let mut everything = probe.is_none();
        while Instant::now() < deadline {
            let size = self.size();
            let pixel = probe.map(|number| probe_pixel(number, size));
            let area = match pixel {
                Some((x, y)) if !everything => Area::pixel(x, y),
                _ => Area::all(size),
            };
            everything = true;
            self.shared
                .status
                .send_modify(|status| status.probe = pixel);
            let mut request = Vec::new();
            update_request(false, area, &mut request);
            self.send(request).await?;
            let until = deadline.min(Instant::now() + self.interval());
            let ready = |status: &Status| status.painted && status.probe.is_none();
            if self.wait(until, ready).await? {
                return Ok(());
            }
        }
        Err(timed_out("screen update", limit))
    }

    /// Waits until nothing has changed for `quiet`, but at most `longest`.
    pub(crate) async fn settle(&self, quiet: Duration, longest: Duration) -> Result<(), RfbError> {
        let start = Instant::now();
        loop {
            self.check()?;
            let calm = self.status.borrow().last_change.max(start) + quiet;
            let until = calm.min(start + longest);
            if Instant::now() >= until {
                return Ok(());
            }
            sleep_until(until).await;
        }
    }

    /// The screen's size.
    pub(crate) fn size(&self) -> Size {
        self.status.borrow().size
    }

    /// The last complete frame.
    pub(crate) fn frame(&self) -> Result<Frame, RfbError> {
        self.shared.frame().ok_or(RfbError::Closed)
    }

    /// The pointer's shape.
    pub(crate) fn cursor(&self) -> Option<Arc<CursorImage>> {
        self.shared.cursor()
    }
}
