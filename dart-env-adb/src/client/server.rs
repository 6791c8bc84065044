//! [`AdbServer`]: what is asked of the server itself.

use std::{collections::BTreeSet, time::Duration};

use dart_core::Result;

use super::{connection::Connection, target::AdbTarget, timeouts::Timeouts};
use crate::{
    error::{Adb, AdbError, printable},
    wire::{
        devices::{self, DeviceInfo},
        smart_socket::{Expect, ReplyReader},
    },
};

/// An ADB server: host, port and deadlines. Cloning is cheap; there is no connection inside.
///
/// ```no_run
/// # async fn example() -> dart_core::Result<()> {
/// use dart_env_adb::client::AdbServer;
///
/// let server = AdbServer::new("127.0.0.1", 5038);
/// for device in server.devices().await? {
///     println!("{} is {}", device.serial, device.state);
/// }
/// let output = server.target("emulator-5554")?.shell("getprop ro.product.model").await?;
/// assert_eq!(output.code, 0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdbServer {
    host: String,
    port: u16,
    timeouts: Timeouts,
}

impl AdbServer {
    /// The server at `host` (a name, an IPv4 or an IPv6 address) and `port`.
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self {
            host: host.into(),
            port,
            timeouts: Timeouts::default(),
        }
    }

    /// The same server with other deadlines.
    pub fn with_timeouts(mut self, timeouts: Timeouts) -> Self {
        self.timeouts = timeouts;
        self
    }

    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// Its port.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Its deadlines.
    pub const fn timeouts(&self) -> Timeouts {
        self.timeouts
    }

    /// `host:port`, for people.
    pub fn address(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// One device of the server; nothing is asked yet.
    ///
    /// # Errors
    /// [`Config`](dart_core::ErrorKind::Config) if no device can have such a serial.
    pub fn target(&self, serial: impl Into<String>) -> Result<AdbTarget> {
        AdbTarget::new(self.clone(), serial.into())
    }

    pub(crate) async fn open(&self, limit: Duration) -> Adb<Connection> {
        Connection::open(self, limit).await
    }

    /// One question, one answer.
    pub(crate) async fn ask(&self, service: &str) -> Adb<Vec<u8>> {
        let mut connection = self.open(self.timeouts.call()).await?;
        connection.request(service, Expect::Value).await
    }

    /// The version of the server, such as 41.
    ///
    /// # Errors
    /// [`Disconnected`](dart_core::ErrorKind::Disconnected) if there is no server,
    /// [`Timeout`](dart_core::ErrorKind::Timeout), [`Protocol`](dart_core::ErrorKind::Protocol) if
    /// something else answers. The same holds for all calls.
    pub async fn version(&self) -> Result<u32> {
        let version = async {
            let text = self.ask("host:version").await?;
            let number = std::str::from_utf8(&text).ok();
            let number = number.and_then(|text| u32::from_str_radix(text, 16).ok());
            number.ok_or_else(|| AdbError::malformed("no version", printable(&text)))
        };
        version.await.map_err(|error| error.at("version"))
    }

    /// The devices that the server knows, with their properties.
    ///
    /// # Errors
    /// As [`version`](Self::version).
    pub async fn devices(&self) -> Result<Vec<DeviceInfo>> {
        let list = self.ask("host:devices-l").await;
        devices::parse(&list.map_err(|error| error.at("devices"))?)
    }

    /// Follows the list of devices as it changes.
    ///
    /// # Errors
    /// As [`version`](Self::version).
    pub async fn track_devices(&self) -> Result<DeviceTracker> {
        let opened = async {
            let mut connection = self.open(self.timeouts.call()).await?;
            let service = "host:track-devices";
            connection.request(service, Expect::Status).await?;
            let reader = ReplyReader::new(Expect::Block);
            Ok(DeviceTracker { connection, reader })
        };
        opened
            .await
            .map_err(|error: AdbError| error.at("track devices"))
    }

    /// Has the server connect to a device at `host:port`; gives the server's words. What counts is
    /// the state afterwards ([`AdbTarget::state`]): of a device that has to allow the key first the
    /// server says that it failed, and moments later it is there.
    ///
    /// # Errors
    /// As [`version`](Self::version).
    pub async fn connect(&self, address: &str) -> Result<String> {
        self.words("connect", &format!("host:connect:{address}"))
            .await
    }

    /// Has the server forget a device at `host:port`; gives the server's words.
    ///
    /// # Errors
    /// [`Unsupported`](dart_core::ErrorKind::Unsupported) or
    /// [`Disconnected`](dart_core::ErrorKind::Disconnected) if the server does not know it.
    pub async fn disconnect(&self, address: &str) -> Result<String> {
        self.words("disconnect", &format!("host:disconnect:{address}"))
            .await
    }

    async fn words(&self, operation: &'static str, service: &str) -> Result<String> {
        let words = self
            .ask(service)
            .await
            .map_err(|error| error.at(operation))?;
        Ok(String::from_utf8_lossy(&words).trim().to_owned())
    }

    /// The features of the server itself.
    ///
    /// # Errors
    /// As [`version`](Self::version).
    pub async fn host_features(&self) -> Result<BTreeSet<String>> {
        let words = self.words("features", "host:host-features").await?;
        Ok(features(&words))
    }
}

/// The features in a list with commas.
pub(super) fn features(words: &str) -> BTreeSet<String> {
    let words = words.split(',').filter(|word| !word.is_empty());
    words.map(str::to_owned).collect()
}

/// The list of devices as it changes.
#[derive(Debug)]
pub struct DeviceTracker {
    connection: Connection,
    /// Holds what has come of the next list.
    reader: ReplyReader,
}

impl DeviceTracker {
    /// The next list: at first the present one, then one after each change. Waits for at most
    /// `limit`.
    ///
    /// # Errors
    /// [`Timeout`](dart_core::ErrorKind::Timeout) if nothing changes (ask again), and as
    /// [`AdbServer::version`] (make a new one).
    ///
    /// # Cancel safety
    /// A dropped call loses nothing; neither does one that ran out of time.
    pub async fn next(&mut self, limit: Duration) -> Result<Vec<DeviceInfo>> {
        self.connection.extend(limit);
        let list = self.connection.resume(&mut self.reader).await;
        let list = list.map_err(|error| error.at("track devices"))?;
        self.reader = ReplyReader::new(Expect::Block);
        devices::parse(&list)
    }
}
