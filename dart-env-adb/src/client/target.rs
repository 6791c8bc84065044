//! [`AdbTarget`]: one device, named by its serial, and what the server says and does about it.

use std::{collections::BTreeSet, time::Duration};

use dart_core::Result;

use super::{
    connection::Connection,
    server::{self, AdbServer},
};
use crate::{
    error::{Adb, AdbError},
    wire::{devices::DeviceState, smart_socket::Expect},
};

/// Longest serial, bytes.
const MAX_SERIAL: usize = 256;

/// A state to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitFor {
    /// Usable.
    Device,
    /// Gone from the list.
    Disconnect,
    /// In recovery mode.
    Recovery,
}

impl WaitFor {
    const fn word(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Disconnect => "disconnect",
            Self::Recovery => "recovery",
        }
    }
}

/// One device of a server. It is always named, never "the only one", so a call cannot reach another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdbTarget {
    pub(super) server: AdbServer,
    pub(super) serial: String,
}

impl AdbTarget {
    pub(super) fn new(server: AdbServer, serial: String) -> Result<Self> {
        let possible = (1..=MAX_SERIAL).contains(&serial.len())
            && serial.chars().all(|c| c.is_ascii_graphic());
        if possible {
            Ok(Self { server, serial })
        } else {
            let message = format!("{serial:?} is no serial: `adb devices` lists those there are");
            Err(AdbError::Config(message).at("target"))
        }
    }

    /// What the server calls it.
    pub fn serial(&self) -> &str {
        &self.serial
    }

    /// The server.
    pub const fn server(&self) -> &AdbServer {
        &self.server
    }

    /// A connection on which the device's `service` is open.
    pub(super) async fn service(&self, service: &str, limit: Duration) -> Adb<Connection> {
        let mut connection = self.server.open(limit).await?;
        let transport = format!("host:transport:{}", self.serial);
        connection.request(&transport, Expect::Status).await?;
        connection.request(service, Expect::Status).await?;
        Ok(connection)
    }

    async fn words(&self, operation: &'static str, what: &str) -> Result<String> {
        let service = format!("host-serial:{}:{what}", self.serial);
        let words = self.server.ask(&service).await;
        let words = words.map_err(|error| error.at(operation).with("device", &self.serial))?;
        Ok(String::from_utf8_lossy(&words).trim().to_owned())
    }

    /// Its state.
    ///
    /// # Errors
    /// [`Disconnected`](dart_core::ErrorKind::Disconnected) if the server knows no such device or
    /// there is no server, [`Unauthorized`](dart_core::ErrorKind::Unauthorized),
    /// [`Timeout`](dart_core::ErrorKind::Timeout), [`Protocol`](dart_core::ErrorKind::Protocol).
    /// The same holds for all calls.
    pub async fn state(&self) -> Result<DeviceState> {
        Ok(DeviceState::parse(&self.words("state", "get-state").await?))
    }

    /// What both the device and the server can do, such as `shell_v2`.
    ///
    /// # Errors
    /// As [`state`](Self::state).
    pub async fn features(&self) -> Result<BTreeSet<String>> {
        Ok(server::features(&self.words("features", "features").await?))
    }

    /// Has the server drop its connection to the device and make another; gives the server's words.
    ///
    /// # Errors
    /// As [`state`](Self::state).
    pub async fn reconnect(&self) -> Result<String> {
        self.words("reconnect", "reconnect").await
    }

    /// Waits for a state, for at most `limit`.
    ///
    /// # Errors
    /// [`Timeout`](dart_core::ErrorKind::Timeout) if it does not come, and as [`state`](Self::state).
    pub async fn wait_for(&self, state: WaitFor, limit: Duration) -> Result<()> {
        let waited = async {
            let mut connection = self.server.open(limit).await?;
            let word = state.word();
            let service = format!("host-serial:{}:wait-for-any-{word}", self.serial);
            // One reply says that the server waits, the other that the state has come.
            connection.request(&service, Expect::Status).await?;
            connection.reply(Expect::Status).await
        };
        let waited: Adb<_> = waited.await;
        self.explain("wait for", waited).map(drop)
    }

    /// Forwards connections to `local` on the server's machine to `remote` on the device; both such
    /// as `tcp:8000`. With `tcp:0` a free port is chosen and given.
    ///
    /// # Errors
    /// [`Unsupported`](dart_core::ErrorKind::Unsupported) if it is refused, and as
    /// [`state`](Self::state).
    pub async fn forward(&self, local: &str, remote: &str) -> Result<Option<u16>> {
        let forwarded = async {
            let mut connection = self.server.open(self.server.timeouts().call()).await?;
            let service = format!("host-serial:{}:forward:{local};{remote}", self.serial);
            connection.request(&service, Expect::Status).await?;
            port_after(&mut connection, local).await
        };
        self.explain("forward", forwarded.await)
    }

    /// Ends a forward.
    ///
    /// # Errors
    /// [`Unsupported`](dart_core::ErrorKind::Unsupported) if there is none, and as
    /// [`state`](Self::state).
    pub async fn remove_forward(&self, local: &str) -> Result<()> {
        let removed = async {
            let mut connection = self.server.open(self.server.timeouts().call()).await?;
            let service = format!("host-serial:{}:killforward:{local}", self.serial);
            connection.request(&service, Expect::Status).await?;
            connection.reply(Expect::Status).await
        };
        let removed: Adb<_> = removed.await;
        self.explain("remove forward", removed).map(drop)
    }

    /// Forwards connections to `remote` on the device to `local` on the server's machine. This lets
    /// the device open connections there: not for a device that is not trusted.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub async fn reverse(&self, remote: &str, local: &str) -> Result<Option<u16>> {
        let reversed = async {
            let service = format!("reverse:forward:{remote};{local}");
            let limit = self.server.timeouts().call();
            let mut connection = self.service(&service, limit).await?;
            connection.reply(Expect::Status).await?;
            port_after(&mut connection, remote).await
        };
        self.explain("reverse", reversed.await)
    }

    /// Ends a reverse forward.
    ///
    /// # Errors
    /// As [`remove_forward`](Self::remove_forward).
    pub async fn remove_reverse(&self, remote: &str) -> Result<()> {
        let removed = async {
            let service = format!("reverse:killforward:{remote}");
            let limit = self.server.timeouts().call();
            let mut connection = self.service(&service, limit).await?;
            connection.reply(Expect::Status).await?;
            connection.reply(Expect::Status).await
        };
        let removed: Adb<_> = removed.await;
        self.explain("remove reverse", removed).map(drop)
    }

    pub(super) fn explain<T>(&self, operation: &'static str, result: Adb<T>) -> Result<T> {
        result.map_err(|error| error.at(operation).with("device", &self.serial))
    }
}

/// The second reply to a forward, and the port if one was to be chosen.
async fn port_after(connection: &mut Connection, listener: &str) -> Adb<Option<u16>> {
    connection.reply(Expect::Status).await?;
    if listener != "tcp:0" {
        return Ok(None);
    }
    let port = connection.reply(Expect::Block).await?;
    let text = String::from_utf8_lossy(&port).into_owned();
    let port = text
        .parse()
        .map_err(|_| AdbError::malformed("no port", text))?;
    Ok(Some(port))
}
