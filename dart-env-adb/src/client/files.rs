//! Files: push, pull, stat and list over the file service.
//!
//! What a device says never chooses where something is written: a pulled file goes to the path that
//! the caller gives, through a new file beside it, and names in listings are single components.

use std::{path::Path, time::SystemTime};

use dart_core::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{connection::Connection, target::AdbTarget};
use crate::{
    error::{Adb, AdbError},
    wire::sync::{self, Entry, MAX_DATA, Message, Reader, Request, Stat},
};

/// Most entries of a folder.
const MAX_ENTRIES: usize = 100_000;

/// A conversation with the file service.
struct Files {
    connection: Connection,
    reader: Reader,
}

impl Files {
    async fn open(target: &AdbTarget, reader: Reader) -> Adb<Self> {
        let limit = target.server.timeouts().transfer();
        let connection = target.service("sync:", limit).await?;
        Ok(Self { connection, reader })
    }

    async fn ask(&mut self, request: Request, path: &str) -> Adb<()> {
        self.connection.write(&request.bytes(path)?).await
    }

    /// The next message; a failure is an error.
    async fn next(&mut self) -> Adb<Message> {
        loop {
            let reader = &mut self.reader;
            let message = self
                .connection
                .feed(|bytes| {
                    if bytes.is_empty() {
                        return Err(AdbError::Ended("a file"));
                    }
                    reader.take(bytes)
                })
                .await?;
            match message {
                None => {}
                Some(Message::Fail(reason)) => return Err(AdbError::file(&reason)),
                Some(message) => return Ok(message),
            }
        }
    }

    /// The next piece of a file; `None` at its end.
    async fn piece(&mut self) -> Adb<Option<Vec<u8>>> {
        match self.next().await? {
            Message::Data(piece) => Ok(Some(piece)),
            Message::Done => Ok(None),
            other => Err(unexpected(&other)),
        }
    }
}

fn unexpected(message: &Message) -> AdbError {
    AdbError::malformed("not the answer to this request", format!("{message:.60?}"))
}

impl AdbTarget {
    /// Kind, size and time of a file; a [`Stat`] of zeros if there is none or it may not be looked at.
    /// A link is not followed.
    ///
    /// # Errors
    /// As [`state`](Self::state).
    pub async fn stat(&self, remote: &str) -> Result<Stat> {
        let stat = async {
            let mut files = Files::open(self, Reader::default()).await?;
            files.ask(Request::Stat, remote).await?;
            match files.next().await? {
                Message::Stat(stat) => Ok(stat),
                other => Err(unexpected(&other)),
            }
        };
        self.explain("stat", stat.await)
    }

    /// The entries of a folder, without `.` and `..`; none if there is no such folder.
    ///
    /// # Errors
    /// [`Protocol`](dart_core::ErrorKind::Protocol) for a name that is none or more than 100,000
    /// entries, and as [`state`](Self::state).
    pub async fn list(&self, remote: &str) -> Result<Vec<Entry>> {
        let list = async {
            let mut files = Files::open(self, Reader::listing()).await?;
            files.ask(Request::List, remote).await?;
            let mut entries = Vec::new();
            // The two that every folder has count as well: a device may send them for ever.
            for _ in 0..MAX_ENTRIES + 3 {
                match files.next().await? {
                    Message::Done => return Ok(entries),
                    Message::Entry(entry) if matches!(entry.name.as_str(), "." | "..") => {}
                    Message::Entry(entry) => entries.push(entry),
                    other => return Err(unexpected(&other)),
                }
            }
            Err(AdbError::TooMany("entries of a folder", MAX_ENTRIES))
        };
        self.explain("list", list.await)
    }

    /// The content of a file of at most `limit` bytes.
    ///
    /// # Errors
    /// [`Unsupported`](dart_core::ErrorKind::Unsupported) if the device cannot read it,
    /// [`Protocol`](dart_core::ErrorKind::Protocol) if it is longer, and as [`state`](Self::state).
    pub async fn pull(&self, remote: &str, limit: usize) -> Result<Vec<u8>> {
        let content = async {
            let mut files = Files::open(self, Reader::default()).await?;
            files.ask(Request::Recv, remote).await?;
            let mut content = Vec::new();
            while let Some(piece) = files.piece().await? {
                bounded(content.len() + piece.len(), limit)?;
                content.extend(piece);
            }
            Ok(content)
        };
        self.explain("pull", content.await)
    }

    /// Writes a file of at most `limit` bytes to `local`, which appears whole or not at all; gives
    /// its length. A link at `local` is replaced, not followed.
    ///
    /// # Errors
    /// [`Storage`](dart_core::ErrorKind::Storage) if `local` cannot be written, and as
    /// [`pull`](Self::pull).
    ///
    /// # Cancel safety
    /// A dropped call leaves no part of the file behind.
    pub async fn pull_to(&self, remote: &str, local: &Path, limit: usize) -> Result<usize> {
        let pulled = self.pull_into(remote, local, limit).await;
        self.explain("pull", pulled)
    }

    async fn pull_into(&self, remote: &str, local: &Path, limit: usize) -> Adb<usize> {
        let folder = match local.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let part = tempfile::NamedTempFile::new_in(folder).map_err(|e| storage(local, &e))?;
        let copy = part.reopen().map_err(|e| storage(local, &e))?;
        let mut file = tokio::fs::File::from_std(copy);
        let mut files = Files::open(self, Reader::default()).await?;
        files.ask(Request::Recv, remote).await?;
        let mut length = 0;
        while let Some(piece) = files.piece().await? {
            length += piece.len();
            bounded(length, limit)?;
            let written = files.connection.until_deadline(file.write_all(&piece));
            written.await?.map_err(|e| storage(local, &e))?;
        }
        let written = files.connection.until_deadline(file.flush()).await?;
        written.map_err(|e| storage(local, &e))?;
        part.persist(local).map_err(|e| storage(local, &e.error))?;
        Ok(length)
    }

    /// Writes `content` to a file of the device, with permissions `mode` (such as 0o644) and the
    /// present time. After an error the device may hold a part of it.
    ///
    /// # Errors
    /// [`Unsupported`](dart_core::ErrorKind::Unsupported) if the device cannot write it, and as
    /// [`state`](Self::state).
    pub async fn push(&self, content: &[u8], remote: &str, mode: u32) -> Result<()> {
        let kind = (mode, seconds(SystemTime::now()));
        let pushed = self.push_from(&mut &content[..], remote, kind).await;
        self.explain("push", pushed)
    }

    /// Writes the local file `local`, with its time, to a file of the device.
    ///
    /// # Errors
    /// [`Storage`](dart_core::ErrorKind::Storage) if `local` cannot be read or is no regular file, and
    /// as [`push`](Self::push).
    pub async fn push_file(&self, local: &Path, remote: &str, mode: u32) -> Result<()> {
        let limit = self.server.timeouts().transfer();
        let pushed = async {
            let opened = tokio::time::timeout(limit, open_regular(local)).await;
            let late = |_| AdbError::Late(limit.as_millis());
            let (mut file, time) = opened.map_err(late)??;
            self.push_from(&mut file, remote, (mode, time)).await
        };
        self.explain("push", pushed.await)
    }

    async fn push_from<R>(&self, content: &mut R, remote: &str, (mode, time): (u32, u32)) -> Adb<()>
    where
        R: tokio::io::AsyncRead + Unpin + Send,
    {
        let mut files = Files::open(self, Reader::default()).await?;
        let kind_and_permissions = 0o100_000 | (mode & 0o7777);
        let path = format!("{remote},{kind_and_permissions}");
        files.ask(Request::Send, &path).await?;
        // The piece lies behind room for its header, so that both are written at once.
        let mut piece = vec![0; sync::DATA_HEADER + MAX_DATA];
        loop {
            let filled = fill(content, &mut piece[sync::DATA_HEADER..]);
            let length = files.connection.until_deadline(filled).await??;
            if length == 0 {
                break;
            }
            piece[..sync::DATA_HEADER].copy_from_slice(&sync::data_header(length));
            let bytes = &piece[..sync::DATA_HEADER + length];
            let sent = files.connection.write(bytes).await;
            if matches!(sent, Err(AdbError::Broken(_))) {
                // The device stops listening when it has a reason, and says which.
                files.next().await?;
            }
            sent?;
        }
        files.connection.write(&sync::done(time)).await?;
        match files.next().await? {
            Message::Okay => Ok(()),
            other => Err(unexpected(&other)),
        }
    }
}

fn storage(path: &Path, error: &dyn ToString) -> AdbError {
    AdbError::LocalFile(path.display().to_string(), error.to_string())
}

/// Opens a file that has an end, and gives its time. Others, such as a pipe that nobody writes to,
/// would hold a thread for ever.
async fn open_regular(path: &Path) -> Adb<(tokio::fs::File, u32)> {
    let metadata = tokio::fs::metadata(path).await;
    let metadata = metadata.map_err(|e| storage(path, &e))?;
    if !metadata.is_file() {
        return Err(storage(path, &"not a regular file"));
    }
    let file = tokio::fs::File::open(path).await;
    let file = file.map_err(|e| storage(path, &e))?;
    Ok((file, metadata.modified().map_or(0, seconds)))
}

/// Seconds since 1970, as far as the protocol can count.
fn seconds(time: SystemTime) -> u32 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    let seconds = since.map_or(0, |since| since.as_secs());
    u32::try_from(seconds).unwrap_or(u32::MAX)
}

/// Reads until `piece` is full or the file ends.
async fn fill<R: tokio::io::AsyncRead + Unpin>(from: &mut R, piece: &mut [u8]) -> Adb<usize> {
    let mut length = 0;
    while length < piece.len() {
        match from.read(&mut piece[length..]).await {
            Ok(0) => break,
            Ok(read) => length += read,
            Err(error) => return Err(AdbError::LocalFile("read".into(), error.to_string())),
        }
    }
    Ok(length)
}

const fn bounded(length: usize, limit: usize) -> Adb<()> {
    if length > limit {
        let what = "a file";
        return Err(AdbError::TooLong { what, limit });
    }
    Ok(())
}
