//! The tokio driver: one reader task that owns the core, one writer task, and a screen that
//! changes only at update boundaries.
//!
//! Input never waits for the server to say something, and a slow writer never stops the reader:
//! the two share a bounded outbox and nothing else.

mod extras;
mod sync;

use std::{
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use dart_core::{Frame, Size};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::{mpsc, watch},
    task::AbortHandle,
    time::timeout,
};

use super::{
    core::Core,
    dial::{Deadlines, Dialled, Sink, Source, Target, dial, timed_out},
    encoding::cursor::CursorImage,
    error::RfbError,
    session::{Abilities, Event},
    shared::{Shared, Status},
};

/// Bytes to make room for before each read. A full frame in Raw was seen to take longer with reads of
/// 64 KiB.
const READ_CHUNK: usize = 256 << 10;

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

/// A live connection. Dropping it sends what was queued, closes the socket and ends both tasks.
#[derive(Debug)]
pub(crate) struct Connection {
    inputs: mpsc::Sender<Vec<u8>>,
    shared: Arc<Shared>,
    status: watch::Receiver<Status>,
    deadlines: Deadlines,
    /// Questions asked so far, to tell their answers apart.
    questions: AtomicU64,
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
            questions: AtomicU64::new(0),
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

    /// What the server can do, as far as it has told.
    pub(crate) fn abilities(&self) -> Arc<Abilities> {
        self.status.borrow().abilities.clone()
    }

    /// The screen's size.
    pub(crate) fn size(&self) -> Size {
        self.status.borrow().size
    }

    /// The last complete frame; none while pixels of it are still to come.
    pub(crate) fn frame(&self) -> Option<Frame> {
        self.shared.frame()
    }

    /// The pointer's shape.
    pub(crate) fn cursor(&self) -> Option<Arc<CursorImage>> {
        self.shared.cursor()
    }
}
