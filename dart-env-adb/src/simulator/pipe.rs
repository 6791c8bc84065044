//! One stream of a connection: bytes both ways, as many unacknowledged as the window allows.

use std::{io, sync::PoisonError};

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::link::{Sender, Streams};
use crate::wire::{
    packet::{Command, MAX_PAYLOAD},
    window::{Window, acknowledgement},
};

/// How the two sides have agreed to talk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// Longest payload that the peer takes, bytes.
    pub(crate) payload: usize,
    /// Whether acknowledgements count bytes.
    pub(crate) delayed: bool,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            payload: MAX_PAYLOAD,
            delayed: false,
        }
    }
}

pub(crate) struct Pipe {
    numbers: (u32, u32),
    terms: Terms,
    sender: Sender,
    streams: Streams,
    window: Window,
    incoming: mpsc::Receiver<Vec<u8>>,
    /// The payloads of the peer's acknowledgements.
    acks: mpsc::Receiver<Vec<u8>>,
    /// What has come, and how much of it was read.
    buffer: (Vec<u8>, usize),
    /// Bytes that may still be sent before the connection is cut.
    budget: Option<usize>,
    cut: CancellationToken,
}

/// The ends of a stream's channels that its pipe has.
pub(crate) struct Ends {
    pub(crate) incoming: mpsc::Receiver<Vec<u8>>,
    pub(crate) acks: mpsc::Receiver<Vec<u8>>,
}

impl Pipe {
    pub(crate) fn new(
        numbers: (u32, u32),
        ends: Ends,
        (sender, streams): (Sender, Streams),
    ) -> Self {
        Self {
            numbers,
            terms: Terms::default(),
            sender,
            streams,
            window: Window::single(),
            incoming: ends.incoming,
            acks: ends.acks,
            buffer: (Vec::new(), 0),
            budget: None,
            cut: CancellationToken::new(),
        }
    }

    pub(crate) fn with_terms(mut self, terms: Terms, window: Window) -> Self {
        self.terms = terms;
        self.window = window;
        self
    }

    pub(crate) fn with_cut(mut self, budget: Option<usize>, cut: CancellationToken) -> Self {
        self.budget = budget;
        self.cut = cut;
        self
    }

    /// Sends bytes and waits until another packet may be sent.
    pub(crate) async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        for piece in bytes.chunks(self.terms.payload) {
            self.spend(piece.len())?;
            self.sender
                .send(Command::Write, self.numbers, piece)
                .await?;
            self.window.sent(piece.len());
            while let Ok(ack) = self.acks.try_recv() {
                self.acknowledged(&ack)?;
            }
            while !self.window.is_open() {
                let ack = self.acks.recv().await;
                self.acknowledged(&ack.ok_or(io::ErrorKind::BrokenPipe)?)?;
            }
        }
        Ok(())
    }

    fn acknowledged(&mut self, payload: &[u8]) -> io::Result<()> {
        self.window.acknowledged(payload).map_err(io::Error::other)
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
        let (mut bytes, at) = std::mem::take(&mut self.buffer);
        if at < bytes.len() {
            return Ok(Some(bytes.split_off(at)));
        }
        self.receive().await
    }

    async fn receive(&mut self) -> io::Result<Option<Vec<u8>>> {
        let Some(bytes) = self.incoming.recv().await else {
            return Ok(None);
        };
        let count = acknowledgement(bytes.len());
        let payload = if self.terms.delayed { &count[..] } else { &[] };
        self.sender
            .send(Command::Okay, self.numbers, payload)
            .await?;
        Ok(Some(bytes))
    }

    /// Exactly `length` bytes of the peer.
    pub(crate) async fn read_exact(&mut self, length: usize) -> io::Result<Vec<u8>> {
        let mut all = Vec::with_capacity(length);
        loop {
            let (bytes, at) = &mut self.buffer;
            let portion = &bytes[*at..bytes.len().min(*at + length - all.len())];
            all.extend_from_slice(portion);
            *at += portion.len();
            if all.len() == length {
                return Ok(all);
            }
            let more = self.receive().await?;
            self.buffer = (more.ok_or(io::ErrorKind::UnexpectedEof)?, 0);
        }
    }

    /// An attack: packets for ever, acknowledged or not.
    pub(crate) async fn flood(&mut self, bytes: &[u8]) -> io::Result<()> {
        loop {
            self.sender
                .send(Command::Write, self.numbers, bytes)
                .await?;
            if self.acks.is_closed() {
                return Ok(());
            }
        }
    }

    /// An attack: a packet that announces more than any may hold.
    pub(crate) async fn bad_header(&mut self) -> io::Result<()> {
        self.sender.send_bad_header(self.numbers).await
    }

    /// An attack that misses: packets of streams that nobody opened.
    pub(crate) async fn stray(&mut self) -> io::Result<()> {
        for command in [Command::Write, Command::Okay, Command::Close] {
            self.sender.send(command, (77_777, 88_888), &[]).await?;
        }
        Ok(())
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
