//! One connection to the server, with a deadline.

use std::time::Duration;

use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    time::{Instant, timeout, timeout_at},
};

use super::server::AdbServer;
use crate::{
    error::{Adb, AdbError},
    wire::smart_socket::{self, Expect, Reply, ReplyReader},
};

/// Bytes read ahead. Larger reads go around the buffer.
const BUFFER: usize = 64 << 10;

/// A connection that serves one call. Its deadline covers everything from the first byte on.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: BufReader<TcpStream>,
    limit: Duration,
    deadline: Instant,
}

impl Connection {
    /// Connects; whatever is done with the connection has to be over within `limit`.
    pub(crate) async fn open(server: &AdbServer, limit: Duration) -> Adb<Self> {
        let no_server = |reason: &dyn ToString| AdbError::NoServer {
            address: server.address(),
            reason: reason.to_string(),
        };
        let deadline = Instant::now() + limit;
        let connect = TcpStream::connect((server.host(), server.port()));
        let allowed = limit.min(server.timeouts().connect());
        let stream = match timeout(allowed, connect).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(no_server(&error)),
            Err(_) => return Err(AdbError::Late(allowed.as_millis())),
        };
        stream.set_nodelay(true)?;
        Ok(Self {
            stream: BufReader::with_capacity(BUFFER, stream),
            limit,
            deadline,
        })
    }

    /// Grants another `limit` from now on.
    pub(crate) fn extend(&mut self, limit: Duration) {
        self.limit = limit;
        self.deadline = Instant::now() + limit;
    }

    async fn in_time<T>(
        (limit, deadline): (Duration, Instant),
        work: impl Future<Output = T>,
    ) -> Adb<T> {
        // Bytes that are always there would be read past any deadline.
        if Instant::now() >= deadline {
            return Err(AdbError::Late(limit.as_millis()));
        }
        let done = timeout_at(deadline, work).await;
        done.map_err(|_| AdbError::Late(limit.as_millis()))
    }

    /// Other work that belongs to the call.
    pub(crate) async fn until_deadline<T>(&self, work: impl Future<Output = T>) -> Adb<T> {
        Self::in_time(self.times(), work).await
    }

    const fn times(&self) -> (Duration, Instant) {
        (self.limit, self.deadline)
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) -> Adb<()> {
        let times = self.times();
        Ok(Self::in_time(times, self.stream.get_mut().write_all(bytes)).await??)
    }

    /// Asks for a service and reads the first reply.
    pub(crate) async fn request(&mut self, service: &str, expect: Expect) -> Adb<Vec<u8>> {
        let bytes = smart_socket::encode(service)?;
        self.write(&bytes).await?;
        self.reply(expect).await
    }

    /// Reads a reply; a refusal is an error.
    pub(crate) async fn reply(&mut self, expect: Expect) -> Adb<Vec<u8>> {
        self.resume(&mut ReplyReader::new(expect)).await
    }

    /// Reads what `reader` still misses of a reply. A dropped call loses nothing: what has come is in
    /// `reader`.
    pub(crate) async fn resume(&mut self, reader: &mut ReplyReader) -> Adb<Vec<u8>> {
        loop {
            let bytes = Self::in_time(self.times(), self.stream.fill_buf()).await??;
            if bytes.is_empty() {
                return Err(AdbError::Ended("a reply"));
            }
            let (taken, reply) = reader.take(bytes)?;
            self.stream.consume(taken);
            match reply {
                None => {}
                Some(Reply::Okay) => return Ok(Vec::new()),
                Some(Reply::Value(value)) => return Ok(value),
                Some(Reply::Fail(reason)) => return Err(AdbError::refusal(&reason)),
            }
        }
    }

    /// Gives the bytes that are there (none at the end) to `take`, which says how many it has used.
    pub(crate) async fn feed<T>(&mut self, take: impl FnOnce(&[u8]) -> Adb<(usize, T)>) -> Adb<T> {
        let bytes = Self::in_time(self.times(), self.stream.fill_buf()).await??;
        let (taken, value) = take(bytes)?;
        self.stream.consume(taken);
        Ok(value)
    }

    pub(crate) async fn read_exact(&mut self, bytes: &mut [u8], what: &'static str) -> Adb<()> {
        let times = self.times();
        let read = Self::in_time(times, self.stream.read_exact(bytes)).await?;
        read.map_err(|_| AdbError::Ended(what))?;
        Ok(())
    }

    /// Appends everything up to the end of the service, at most `limit` bytes.
    pub(crate) async fn read_to_end(&mut self, bytes: &mut Vec<u8>, limit: usize) -> Adb<()> {
        let times = self.times();
        let mut bounded = (&mut self.stream).take((limit as u64).saturating_add(1));
        let read = Self::in_time(times, bounded.read_to_end(bytes)).await??;
        if read > limit {
            let what = "what the device sends";
            return Err(AdbError::TooLong { what, limit });
        }
        Ok(())
    }
}
