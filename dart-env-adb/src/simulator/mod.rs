//! A phone that a real ADB server connects to: `adb connect 127.0.0.1:PORT`.
//!
//! It speaks the device side of the transport and wraps any [`Device`]: touches, text and keys
//! become its actions, its frames are the screen. Around it are a small shell, files, settings,
//! packages and a log, all in memory, and faults on demand. It is for tests and for training without
//! hardware, and trusts its peer: it listens on the loopback interface alone.
//!
//! Deviations from Android: no pipes, variables or globs in the shell; an undo of nothing; commands
//! return at once; a double tap is two `input tap` at one place in one command line; a database is no
//! file: only `sqlite3` and `rm` know of it.

mod commands;
mod console;
mod files;
mod link;
mod options;
mod phone;
mod pipe;
mod services;
mod shell;
mod sql;
mod sql_words;
mod sync;
mod system;

use std::{
    net::SocketAddr,
    sync::{Arc, MutexGuard},
};

use dart_core::{Device, Error, ErrorKind, Result};
use tokio::{net::TcpListener, sync::Mutex, task::JoinHandle};

pub use console::Console;
pub use options::{Auth, Faults, Hostile, Options, UiFault};
use phone::Phone;
pub use system::System;

/// A simulated phone that listens for ADB servers. It goes when it is dropped.
#[derive(Debug)]
pub struct Simulator<D> {
    phone: Arc<Phone<D>>,
    address: SocketAddr,
    listening: JoinHandle<()>,
}

impl<D: Device + 'static> Simulator<D> {
    /// Puts `device` behind a free port of the loopback interface. Needs a tokio runtime.
    ///
    /// # Errors
    /// [`Exhausted`](ErrorKind::Exhausted) if there is no free port.
    pub async fn start(device: D, options: Options) -> Result<Self> {
        Self::start_with(device, System::new(), options).await
    }

    /// Like [`start`](Self::start), with a system that apps inside the device share.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn start_with(device: D, system: System, options: Options) -> Result<Self> {
        let phone = Arc::new(Phone::new(device, system, options));
        let listener = TcpListener::bind("127.0.0.1:0").await;
        let bound = listener.and_then(|listener| Ok((listener.local_addr()?, listener)));
        let (address, listener) = bound.map_err(|error| {
            let message = format!("cannot listen: {error}");
            Error::new(ErrorKind::Exhausted, "dart-env-adb", "simulator", message)
        })?;
        Ok(Self {
            listening: tokio::spawn(link::accept(listener, Arc::clone(&phone))),
            phone,
            address,
        })
    }

    /// What to give to `adb connect`, and the serial afterwards.
    pub fn serial(&self) -> String {
        self.address.to_string()
    }

    /// The device inside, for task drivers and tests.
    pub fn device(&self) -> Arc<Mutex<D>> {
        Arc::clone(&self.phone.device)
    }

    /// What apps, shell and tests share.
    pub fn system(&self) -> &System {
        &self.phone.system
    }

    /// The faults; changes hold from now on.
    pub fn faults(&self) -> MutexGuard<'_, Faults> {
        self.phone.faults()
    }

    /// Cuts every connection.
    pub fn cut(&self) {
        self.phone.cut();
    }

    /// The command lines that were run, oldest first; at most the last 10,000.
    pub fn commands(&self) -> Vec<String> {
        self.phone.state().commands.iter().cloned().collect()
    }

    /// Gives it another serial number, as if another phone had come to its address.
    pub fn rename(&self, serial_number: &str) {
        serial_number.clone_into(&mut self.phone.state().serial_number);
    }

    /// Writes a line to the device's log.
    pub fn log(&self, tag: &str, message: &str) {
        self.phone.state().log(tag, message);
    }
}

impl<D> Drop for Simulator<D> {
    fn drop(&mut self) {
        self.listening.abort();
        self.phone.cut();
    }
}
