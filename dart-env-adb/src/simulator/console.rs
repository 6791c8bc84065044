//! The console of a simulated phone: what an emulator offers at a port beside its own.
//!
//! Lines of text: a greeting that ends in `OK`, `auth TOKEN` where it asks for one, `avd snapshot
//! save NAME`, `load NAME` and `list`, `ping`, `quit`. Each answer ends in `OK` or in `KO: why`.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use dart_core::{Action, Device, Error, ErrorKind, Result};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
    time::timeout,
};

use super::{Simulator, phone::Phone};

/// Longest line, bytes.
const MAX_LINE: u64 = 1024;
/// Longest pause between two lines.
const IDLE: Duration = Duration::from_mins(1);

/// A console that listens; it goes when it is dropped.
#[derive(Debug)]
pub struct Console {
    address: SocketAddr,
    listening: JoinHandle<()>,
}

impl Console {
    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

impl<D: Device + 'static> Simulator<D> {
    /// Opens a console at a free port of the loopback interface. With a `token` it takes no order
    /// before `auth TOKEN`.
    ///
    /// # Errors
    /// [`Exhausted`](ErrorKind::Exhausted) if there is no free port.
    pub async fn open_console(&self, token: Option<&str>) -> Result<Console> {
        let listener = TcpListener::bind("127.0.0.1:0").await;
        let bound = listener.and_then(|listener| Ok((listener.local_addr()?, listener)));
        let (address, listener) = bound.map_err(|error| {
            let message = format!("cannot listen: {error}");
            Error::new(ErrorKind::Exhausted, "dart-env-adb", "console", message)
        })?;
        let (phone, token) = (Arc::clone(&self.phone), token.map(str::to_owned));
        let listening = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // One at a time: who waits has a deadline.
                if let Err(error) = serve(&phone, token.as_deref(), stream).await {
                    tracing::debug!(%error, "a console of the simulated phone ended");
                }
            }
        });
        Ok(Console { address, listening })
    }
}

async fn serve<D: Device>(
    phone: &Phone<D>,
    token: Option<&str>,
    stream: TcpStream,
) -> std::io::Result<()> {
    let (read, mut write) = stream.into_split();
    let mut lines = BufReader::new(read.take(0));
    let mut allowed = token.is_none();
    let greeting = if allowed {
        "Android Console: type 'help' for a list of commands\r\nOK\r\n"
    } else {
        "Android Console: Authentication required\r\nAndroid Console: type 'auth <auth_token>' to authenticate\r\nOK\r\n"
    };
    write.write_all(greeting.as_bytes()).await?;
    loop {
        lines.get_mut().set_limit(MAX_LINE);
        let mut line = String::new();
        let read = timeout(IDLE, lines.read_line(&mut line)).await??;
        if read == 0 || !line.ends_with('\n') {
            return Ok(());
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let answer = match words.as_slice() {
            ["quit" | "exit"] => return Ok(()),
            ["auth", given] => {
                allowed = token.is_none_or(|token| token == *given);
                if allowed {
                    Ok(String::new())
                } else {
                    Err("auth: wrong token")
                }
            }
            _ if !allowed => Err("authentication required"),
            ["ping"] => Ok("I am alive!\r\n".to_owned()),
            ["avd", "snapshot", order @ ..] => snapshot(phone, order).await,
            _ => Err("unknown command, try 'help'"),
        };
        let answer = match answer {
            Ok(words) => format!("{words}OK\r\n"),
            Err(why) => format!("KO: {why}\r\n"),
        };
        write.write_all(answer.as_bytes()).await?;
    }
}

async fn snapshot<D: Device>(
    phone: &Phone<D>,
    order: &[&str],
) -> std::result::Result<String, &'static str> {
    match order {
        ["save", name] => phone.system.save(name),
        ["load", name] => {
            if !phone.system.load(name) {
                return Err("Snapshot load failed: there is no such snapshot");
            }
            // What was on the screen belongs to what is gone.
            let home = phone.perform(&[Action::NavigateHome]).await;
            home.map_err(|_| "the device failed")?;
        }
        ["list"] => {
            let names = phone.system.snapshots();
            let lines: Vec<_> = names.iter().map(|name| format!("{name}\r\n")).collect();
            return Ok(lines.concat());
        }
        _ => return Err("avd snapshot: bad sub-command"),
    }
    Ok(String::new())
}
