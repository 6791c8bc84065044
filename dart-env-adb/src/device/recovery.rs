//! Reaching a device: wait, reconnect, and as the last resort restart it.

use std::time::Duration;

use dart_core::{Error, Result};
use tokio::time::{Instant, sleep, timeout_at};

use super::adb_device::AdbDevice;
use crate::{client::WaitFor, error::AdbError, wire::devices::DeviceState};

/// Pauses between attempts, from the first to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

impl AdbDevice {
    /// Returns once the device can be used.
    pub(super) async fn reach(&mut self) -> Result<()> {
        let limit = Duration::from_millis(self.config.recover_ms);
        let Err(last) = self.reach_within(limit).await else {
            return Ok(());
        };
        if !self.config.may_reboot || !last.is_retryable() {
            return Err(last);
        }
        tracing::warn!(device = %self.config.serial, error = %last, "restarting the device");
        self.target.reboot(None).await?;
        let limit = Duration::from_millis(self.config.reboot_ms);
        // It may still answer for a moment after the order.
        let gone = self
            .target
            .wait_for(WaitFor::Disconnect, limit.min(Duration::from_secs(2)));
        let _ = gone.await;
        self.reach_within(limit).await
    }

    async fn reach_within(&mut self, limit: Duration) -> Result<()> {
        let deadline = Instant::now() + limit;
        let mut pause = FIRST_PAUSE;
        let mut last = self.about(AdbError::Late(limit.as_millis()));
        loop {
            // A call has a deadline of its own, which may be later.
            let error = match timeout_at(deadline, self.check_alive()).await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(error)) => error,
                Err(_) => return Err(last),
            };
            if !error.is_retryable() || Instant::now() + pause >= deadline {
                return Err(error);
            }
            let _ = timeout_at(deadline, self.reconnect(&error)).await;
            last = error;
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Whether it answers, has started, speaks this protocol and is the device that it was.
    async fn check_alive(&mut self) -> Result<()> {
        let state = self.target.state().await?;
        if state != DeviceState::Device {
            let error = match state {
                DeviceState::NoPermissions => AdbError::NoPermission(state.to_string()),
                DeviceState::Unauthorized => AdbError::NotAllowed(state.to_string()),
                _ => AdbError::Offline,
            };
            return Err(self.about(error));
        }
        if !self.target.features().await?.contains("shell_v2") {
            let message = "the device's shell gives no exit codes: Android 7 or later is needed";
            return Err(self.about(AdbError::Unsupported(message.into())));
        }
        let said = self
            .run("getprop ro.serialno; getprop sys.boot_completed")
            .await?;
        let said = said.text();
        let mut lines = said.lines();
        let identity = lines.next().unwrap_or_default().trim().to_owned();
        if lines.next().is_none_or(|line| line.trim() != "1") {
            return Err(self.about(AdbError::Offline));
        }
        match &self.identity {
            Some(known) if *known != identity => {
                let found = format!("{identity:?} in place of {known:?}");
                let what = "another device answers at this address";
                Err(self.about(AdbError::malformed(what, found)))
            }
            _ => {
                self.identity = Some(identity);
                Ok(())
            }
        }
    }

    fn about(&self, error: AdbError) -> Error {
        error.at("reach").with("device", &self.config.serial)
    }

    /// Has the server make the connection to the device anew. What counts is what the device says
    /// afterwards, so the server's words are only noted.
    async fn reconnect(&self, because: &Error) {
        let serial = &self.config.serial;
        tracing::debug!(device = %serial, error = %because, "reconnecting");
        if !self.config.is_network() {
            let _ = self.target.reconnect().await;
            return;
        }
        let server = self.target.server();
        // A server that believes in a dead connection does not make another.
        let _ = server.disconnect(serial).await;
        match server.connect(serial).await {
            Ok(words) => tracing::debug!(device = %serial, words, "the server's answer"),
            Err(error) => tracing::debug!(device = %serial, %error, "the server's answer"),
        }
    }
}
