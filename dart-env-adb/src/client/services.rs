//! Services of the device: shell, exec, framebuffer, root and reboot.

use std::time::Duration;

use dart_core::{Frame, Result};

use super::{connection::Connection, target::AdbTarget};
use crate::{
    error::{Adb, AdbError},
    wire::{
        framebuffer,
        shell::{ShellEvent, ShellReader},
    },
};

/// Most output of a shell command, bytes.
const MAX_OUTPUT: usize = 16 << 20;
/// Most words of a service that answers with words, bytes.
const MAX_WORDS: usize = 64 << 10;

/// What a command has said and how it ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShellOutput {
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
    /// The exit code.
    pub code: u8,
}

impl ShellOutput {
    /// Standard output as text; what is not UTF-8 is replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Both outputs as text, for messages.
    pub(crate) fn said(&self) -> String {
        let both = [&self.stdout[..], &self.stderr].concat();
        crate::error::excerpt(&both, 400)
    }
}

impl AdbTarget {
    /// Runs a command line in the device's shell. Whatever is put into `command` has to be quoted
    /// ([`quote`](crate::quote::quote)).
    ///
    /// # Errors
    /// [`Disconnected`](dart_core::ErrorKind::Disconnected) if the device is offline, unknown or
    /// closes the service before the exit code, [`Protocol`](dart_core::ErrorKind::Protocol) for
    /// more than 16 MiB of output, and as [`state`](Self::state). A command that fails is no error.
    pub async fn shell(&self, command: &str) -> Result<ShellOutput> {
        self.shell_within(command, self.server.timeouts().call())
            .await
    }

    /// Like [`shell`](Self::shell), with a deadline of its own.
    ///
    /// # Errors
    /// As [`shell`](Self::shell).
    pub async fn shell_within(&self, command: &str, limit: Duration) -> Result<ShellOutput> {
        let output = async {
            let service = format!("shell,v2,raw:{command}");
            let mut connection = self.service(&service, limit).await?;
            collect(&mut connection).await
        };
        self.explain("shell", output.await)
    }

    /// Runs a command line without a terminal and appends all that it prints to `output`, at most
    /// `limit` bytes. Binary data comes as it is. There is no exit code, and the end of the output
    /// cannot be told from a connection that was cut: what is read has to say where it ends.
    ///
    /// # Errors
    /// [`Protocol`](dart_core::ErrorKind::Protocol) for more output, and as [`state`](Self::state).
    pub async fn exec(&self, command: &str, output: &mut Vec<u8>, limit: usize) -> Result<()> {
        let done = async {
            let service = format!("exec:{command}");
            let time = self.server.timeouts().call();
            let mut connection = self.service(&service, time).await?;
            connection.read_to_end(output, limit).await
        };
        self.explain("exec", done.await)
    }

    /// Like [`exec`](Self::exec), but gives all that is printed to `take`, piece by piece as it comes.
    pub(crate) async fn exec_with(
        &self,
        command: &str,
        mut take: impl FnMut(&[u8]) -> Adb<()>,
    ) -> Result<()> {
        let done = async {
            let time = self.server.timeouts().call();
            let mut connection = self.service(&format!("exec:{command}"), time).await?;
            let mut goes_on = true;
            while goes_on {
                let fed = connection.feed(|bytes| {
                    take(bytes)?;
                    Ok((bytes.len(), !bytes.is_empty()))
                });
                goes_on = fed.await?;
            }
            Ok(())
        };
        self.explain("exec", done.await)
    }

    /// What is on the screen, from the service made for that. Slower than `screencap` on most
    /// devices, which it runs.
    ///
    /// # Errors
    /// [`Protocol`](dart_core::ErrorKind::Protocol) if the header makes no sense, and as
    /// [`state`](Self::state).
    pub async fn framebuffer(&self) -> Result<Frame> {
        let picture = async {
            let time = self.server.timeouts().call();
            let mut connection = self.service("framebuffer:", time).await?;
            let mut header = [0; framebuffer::MAX_HEADER];
            connection.read_exact(&mut header[..4], "a header").await?;
            let version = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
            let length = framebuffer::length_of(version)?;
            connection
                .read_exact(&mut header[4..length], "a header")
                .await?;
            let layout = framebuffer::read(&header[..length])?;
            let mut pixels = vec![0; layout.length()];
            connection.read_exact(&mut pixels, "a picture").await?;
            Ok((layout, pixels))
        };
        let (layout, pixels) = self.explain("framebuffer", picture.await)?;
        layout.frame(&pixels)
    }

    /// Has the device's daemon start anew with all rights; gives the device's words. The device is
    /// gone for a moment.
    ///
    /// # Errors
    /// As [`state`](Self::state). A refusal is in the words.
    pub async fn root(&self) -> Result<String> {
        self.words_of("root", "root:").await
    }

    /// Has the device's daemon start anew without special rights; gives the device's words.
    ///
    /// # Errors
    /// As [`state`](Self::state).
    pub async fn unroot(&self) -> Result<String> {
        self.words_of("unroot", "unroot:").await
    }

    /// Makes the system's partitions writable; gives the device's words.
    ///
    /// # Errors
    /// As [`state`](Self::state).
    pub async fn remount(&self) -> Result<String> {
        self.words_of("remount", "remount:").await
    }

    /// Restarts the device, into `mode` (`bootloader`, `recovery`) if there is one. Returns once the
    /// device has taken the order.
    ///
    /// # Errors
    /// As [`state`](Self::state).
    pub async fn reboot(&self, mode: Option<&str>) -> Result<()> {
        let service = format!("reboot:{}", mode.unwrap_or_default());
        self.words_of("reboot", &service).await.map(drop)
    }

    async fn words_of(&self, operation: &'static str, service: &str) -> Result<String> {
        let words = async {
            let limit = self.server.timeouts().call();
            let mut connection = self.service(service, limit).await?;
            let mut words = Vec::new();
            match connection.read_to_end(&mut words, MAX_WORDS).await {
                // A device that restarts may cut the connection.
                Ok(()) | Err(AdbError::Broken(_)) => Ok(words),
                Err(error) => Err(error),
            }
        };
        let words = self.explain(operation, words.await)?;
        Ok(String::from_utf8_lossy(&words).trim().to_owned())
    }
}

/// Reads the packets of a shell up to the exit code, and not one byte more.
async fn collect(connection: &mut Connection) -> Adb<ShellOutput> {
    let mut reader = ShellReader::default();
    let mut output = ShellOutput::default();
    while !reader.has_exited() {
        let events = connection
            .feed(|bytes| {
                if bytes.is_empty() {
                    return Err(AdbError::Ended("a command, before its exit code"));
                }
                Ok((bytes.len(), reader.take_all(bytes)?))
            })
            .await?;
        for event in events {
            match event {
                ShellEvent::Stdout(piece) => output.stdout.extend(piece),
                ShellEvent::Stderr(piece) => output.stderr.extend(piece),
                ShellEvent::Exit(code) => output.code = code,
            }
        }
        if output.stdout.len() + output.stderr.len() > MAX_OUTPUT {
            let (what, limit) = ("the output of a command", MAX_OUTPUT);
            return Err(AdbError::TooLong { what, limit });
        }
    }
    Ok(output)
}
