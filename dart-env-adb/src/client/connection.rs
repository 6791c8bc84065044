//! One connection to the server, with a deadline.

use std::{future::Future, io, time::Duration};

use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    time::{Instant, timeout_at},
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
        let until = deadline.min(Instant::now() + server.timeouts().connect());
        let stream = match timeout_at(until, connect).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(no_server(&error)),
            Err(_) => return Err(AdbError::Late(server.timeouts().connect().as_millis())),
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
        io: impl Future<Output = io::Result<T>>,
    ) -> Adb<T> {
        match timeout_at(deadline, io).await {
            Ok(done) => Ok(done?),
            Err(_) => Err(AdbError::Late(limit.as_millis())),
        }
    }

    const fn times(&self) -> (Duration, Instant) {
        (self.limit, self.deadline)
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) -> Adb<()> {
        Self::in_time(self.times(), self.stream.get_mut().write_all(bytes)).await
    }

    /// Asks for a service and reads the first reply.
    pub(crate) async fn request(&mut self, service: &str, expect: Expect) -> Adb<Vec<u8>> {
        let bytes = smart_socket::request(service);
        let bytes = bytes.map_err(|_| AdbError::ServiceLength(service.len()))?;
        self.write(&bytes).await?;
        self.reply(expect).await
    }

    /// Reads a reply; a refusal is an error.
    pub(crate) async fn reply(&mut self, expect: Expect) -> Adb<Vec<u8>> {
        let mut reader = ReplyReader::new(expect);
        loop {
            let bytes = Self::in_time(self.times(), self.stream.fill_buf()).await?;
            if bytes.is_empty() {
                return Err(AdbError::Ended("a reply"));
            }
            let (taken, reply) = reader.take(bytes)?;
            self.stream.consume(taken);
            match reply {
                None => {}
                Some(Reply::Okay) => return Ok(Vec::new()),
                Some(Reply::Value(value)) => return Ok(value),
                Some(Reply::Fail(reason)) => return Err(AdbError::refusal(reason)),
            }
        }
    }

    /// Gives the bytes that are there (none at the end) to `take`, which says how many it has used.
    pub(crate) async fn feed<T>(&mut self, take: impl FnOnce(&[u8]) -> Adb<(usize, T)>) -> Adb<T> {
        let bytes = Self::in_time(self.times(), self.stream.fill_buf()).await?;
        let (taken, value) = take(bytes)?;
        self.stream.consume(taken);
        Ok(value)
    }

    pub(crate) async fn read_exact(&mut self, bytes: &mut [u8], what: &'static str) -> Adb<()> {
        let times = self.times();
        match Self::in_time(times, self.stream.read_exact(bytes)).await {
            Ok(_) => Ok(()),
            Err(AdbError::Broken(_)) => Err(AdbError::Ended(what)),
            Err(error) => Err(error),
        }
    }

    /// Appends everything up to the end of the service, at most `limit` bytes.
    pub(crate) async fn read_to_end(&mut self, bytes: &mut Vec<u8>, limit: usize) -> Adb<()> {
        let times = self.times();
        let mut bounded = (&mut self.stream).take(limit as u64 + 1);
        let read = Self::in_time(times, bounded.read_to_end(bytes)).await?;
        if read > limit {
            let what = "what the device sends";
            return Err(AdbError::TooLong { what, limit });
        }
        Ok(())
    }
}
