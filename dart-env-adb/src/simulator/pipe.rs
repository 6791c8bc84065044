//! One stream of a connection: bytes both ways, one unacknowledged packet at a time.

use std::{io, sync::PoisonError};

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::link::{Sender, Streams};
use crate::wire::packet::{Command, MAX_PAYLOAD};

pub(crate) struct Pipe {
    numbers: (u32, u32),
    sender: Sender,
    streams: Streams,
    incoming: mpsc::Receiver<Vec<u8>>,
    acks: mpsc::Receiver<()>,
    /// What has come and was not read.
    buffer: Vec<u8>,
    /// Bytes that may still be sent before the connection is cut.
    budget: Option<usize>,
    cut: CancellationToken,
}

impl Pipe {
    pub(crate) fn new(numbers: (u32, u32), sender: Sender, streams: Streams) -> Self {
        Self {
            numbers,
            sender,
            streams,
            incoming: mpsc::channel(1).1,
            acks: mpsc::channel(1).1,
            buffer: Vec::new(),
            budget: None,
            cut: CancellationToken::new(),
        }
    }

    pub(crate) fn with_channels(
        mut self,
        incoming: mpsc::Receiver<Vec<u8>>,
        acks: mpsc::Receiver<()>,
    ) -> Self {
        self.incoming = incoming;
        self.acks = acks;
        self
    }

    pub(crate) fn with_cut(mut self, budget: Option<usize>, cut: CancellationToken) -> Self {
        self.budget = budget;
        self.cut = cut;
        self
    }

    /// Sends bytes and waits until the peer has taken them.
    pub(crate) async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        for piece in bytes.chunks(MAX_PAYLOAD) {
            self.spend(piece.len())?;
            self.sender
                .send(Command::Write, self.numbers, piece)
                .await?;
            if self.acks.recv().await.is_none() {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
        }
        Ok(())
    }

    fn spend(&mut self, length: usize) -> io::Result<()> {
        let Some(left) = &mut self.budget else {
            return Ok(());
        };
        let Some(rest) = left.checked_sub(length) else {
            self.cut.cancel();
            return Err(io::ErrorKind::ConnectionAborted.into());
        };
        *left = rest;
        Ok(())
    }

    /// The next bytes of the peer; `None` at the end.
    pub(crate) async fn read(&mut self) -> io::Result<Option<Vec<u8>>> {
        if !self.buffer.is_empty() {
            return Ok(Some(std::mem::take(&mut self.buffer)));
        }
        let Some(bytes) = self.incoming.recv().await else {
            return Ok(None);
        };
        self.sender.send(Command::Okay, self.numbers, &[]).await?;
        Ok(Some(bytes))
    }

    /// Exactly `length` bytes of the peer.
    pub(crate) async fn read_exact(&mut self, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = std::mem::take(&mut self.buffer);
        while bytes.len() < length {
            match self.read().await? {
                Some(more) => bytes.extend(more),
                None => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
        self.buffer = bytes.split_off(length);
        Ok(bytes)
    }

    /// Tells the peer that this was all.
    pub(crate) async fn close(self) {
        let streams = self.streams.lock();
        streams
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&self.numbers.0);
        // The peer may be gone, which is as good.
        let _ = self.sender.send(Command::Close, self.numbers, &[]).await;
    }
}
