//! The virtual machines of a configuration, each used by one environment at a time.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dart_core::{Error, ErrorKind, Result};

use super::config::ServerConfig;

/// The machines that are free.
#[derive(Debug)]
pub(super) struct Seats {
    free: Mutex<Vec<ServerConfig>>,
}

/// A machine; free again when dropped.
#[derive(Debug)]
pub(super) struct Taken {
    config: ServerConfig,
    seats: Arc<Seats>,
}

impl Seats {
    pub(super) fn new(mut servers: Vec<ServerConfig>) -> Arc<Self> {
        // The first is taken first.
        servers.reverse();
        Arc::new(Self {
            free: Mutex::new(servers),
        })
    }

    fn free(&self) -> MutexGuard<'_, Vec<ServerConfig>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a machine.
    ///
    /// # Errors
    /// [`Exhausted`](ErrorKind::Exhausted) if all are taken.
    pub(super) fn take(self: &Arc<Self>) -> Result<Taken> {
        let Some(config) = self.free().pop() else {
            let message = "every server is in use: name as many as there are environments";
            let kind = ErrorKind::Exhausted;
            return Err(Error::new(kind, "dart-env-vnc", "osworld", message));
        };
        Ok(Taken {
            config,
            seats: Arc::clone(self),
        })
    }
}

impl Taken {
    /// The machine.
    pub(super) const fn config(&self) -> &ServerConfig {
        &self.config
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.seats.free().push(std::mem::take(&mut self.config));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_used_once_at_a_time() {
        let server = |address: &str| ServerConfig {
            address: address.into(),
            ..ServerConfig::default()
        };
        let seats = Seats::new(vec![server("a:1"), server("b:1")]);
        let first = seats.take().unwrap();
        let second = seats.take().unwrap();
        assert_eq!(
            (&*first.config().address, &*second.config().address),
            ("a:1", "b:1")
        );
        assert_eq!(seats.take().unwrap_err().kind(), ErrorKind::Exhausted);
        drop(first);
        assert_eq!(seats.take().unwrap().config().address, "a:1");
    }
}
