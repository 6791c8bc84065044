//! Settings of a VNC desktop.

use std::time::Duration;

use dart_core::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use crate::rfb::{Access, Deadlines, EncodingChoice, Keyboard, Password, Target, TlsConfig, Trust};

/// Where a VNC desktop is and how long it may take.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct VncConfig {
    /// `host:port` of the server. Default `127.0.0.1:5901`: display :1 of this machine.
    pub endpoint: String,
    /// Name of the environment variable that holds the password. Default none: the server asks
    /// for none.
    pub password_env: Option<String>,
    /// The user's name, for servers that ask for one (Plain, X509Plain, Apple). Default none.
    pub user: Option<String>,
    /// How the server's certificate is checked. With it, nothing but TLS with that certificate is
    /// spoken. Default none: no TLS, as on loopback or through a tunnel.
    pub tls: Option<TlsConfig>,
    /// Whether a password may cross a network in clear (type Plain without TLS). Default false.
    pub allow_clear_password: bool,
    /// The encoding that pixels are asked for in. Default `auto`: Raw on loopback, where it costs
    /// the least time, and Tight on a network.
    pub encoding: EncodingChoice,
    /// How keys are named to the server. Default `auto`.
    pub keyboard: Keyboard,
    /// Whether text with characters that a US keyboard lacks is pasted where keys are scancodes: put
    /// on the clipboard, then Ctrl+V. Needs a server with the extended clipboard and a guest that
    /// shares it. Default false, because a program may take Ctrl+V for something else: then such
    /// text is an invalid action.
    pub paste_untypable: bool,
    /// Whether the server sends updates without being asked for each, if it can. Default: over a
    /// network, where that saves a round trip for each.
    pub continuous_updates: Option<bool>,
    /// Longest wait for the TCP connection, and for a lost server to come back, milliseconds.
    /// Default 5,000.
    pub connect_timeout_ms: u64,
    /// Longest handshake, milliseconds. Default 15,000: some servers look up our name first.
    pub handshake_timeout_ms: u64,
    /// Longest wait for a screen update that was asked for, milliseconds. Default 5,000: a loaded
    /// server answers within tens.
    pub update_timeout_ms: u64,
    /// After an action, wait until the screen has not changed for this long, milliseconds.
    /// Default 20: pages were seen to react within 17. 0 does not wait; then the task has to.
    pub settle_quiet_ms: u64,
    /// Longest such wait, milliseconds; a blinking screen never settles. Default 250.
    pub settle_max_ms: u64,
}

impl Default for VncConfig {
    fn default() -> Self {
        Self {
            endpoint: "127.0.0.1:5901".to_owned(),
            password_env: None,
            user: None,
            tls: None,
            allow_clear_password: false,
            encoding: EncodingChoice::Auto,
            keyboard: Keyboard::Auto,
            paste_untypable: false,
            continuous_updates: None,
            connect_timeout_ms: 5_000,
            handshake_timeout_ms: 15_000,
            update_timeout_ms: 5_000,
            settle_quiet_ms: 20,
            settle_max_ms: 250,
        }
    }
}

/// Longest deadline that can be set, milliseconds: an hour.
const LONGEST_MS: u64 = 3_600_000;

/// Fails, saying why, unless a deadline is `least` ms to an hour.
pub(crate) fn check_deadline(setting: &str, millis: u64, least: u64) -> Result<(), String> {
    if (least..=LONGEST_MS).contains(&millis) {
        return Ok(());
    }
    Err(format!(
        "{setting} is {least} to {LONGEST_MS} ms, not {millis}"
    ))
}

impl VncConfig {
    /// The default settings for the server at `endpoint`.
    pub fn new(endpoint: impl Into<String>) -> Self {
        Self {
            endpoint: endpoint.into(),
            ..Self::default()
        }
    }

    /// The server to connect to, with what is needed to log in.
    pub(crate) fn target(&self, password: Option<Password>) -> Result<Target> {
        let (host, port) = self.address()?;
        self.check_deadlines()?;
        let trust = self.tls.as_ref().map(|tls| Trust::load(tls, host));
        let trust = trust
            .transpose()
            .map_err(|message| Error::new(ErrorKind::Config, "dart-env-vnc", "connect", message))?;
        Ok(Target {
            host: host.to_owned(),
            port,
            access: Access {
                user: self.user.clone(),
                password,
                trust,
                clear_password: self.allow_clear_password,
            },
            encoding: self.encoding,
            continuous: self.continuous_updates,
            deadlines: self.deadlines(),
        })
    }

    fn check_deadlines(&self) -> Result<()> {
        let all = [
            ("connect_timeout_ms", self.connect_timeout_ms, 1),
            ("handshake_timeout_ms", self.handshake_timeout_ms, 1),
            ("update_timeout_ms", self.update_timeout_ms, 1),
            ("settle_quiet_ms", self.settle_quiet_ms, 0),
            ("settle_max_ms", self.settle_max_ms, 0),
        ];
        let check =
            |(name, millis, least)| check_deadline(&format!("environment.{name}"), millis, least);
        all.into_iter()
            .try_for_each(check)
            .map_err(|message| Error::new(ErrorKind::Config, "dart-env-vnc", "connect", message))
    }

    pub(crate) const fn deadlines(&self) -> Deadlines {
        Deadlines {
            connect: Duration::from_millis(self.connect_timeout_ms),
            handshake: Duration::from_millis(self.handshake_timeout_ms),
            update: Duration::from_millis(self.update_timeout_ms),
        }
    }

    /// Host and port of the endpoint.
    pub(crate) fn address(&self) -> Result<(&str, u16)> {
        let parts = self.endpoint.rsplit_once(':');
        let parts = parts.and_then(|(host, port)| Some((host, port.parse::<u16>().ok()?)));
        match parts {
            Some((host, port)) if !host.is_empty() && port > 0 => {
                Ok((host.trim_start_matches('[').trim_end_matches(']'), port))
            }
            _ => {
                let message = format!(
                    "environment.endpoint {:?} is not host:port: write it like 127.0.0.1:5901",
                    self.endpoint
                );
                Err(Error::new(
                    ErrorKind::Config,
                    "dart-env-vnc",
                    "connect",
                    message,
                ))
            }
        }
    }

    /// The password from the environment, if one is configured.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if the variable is not set.
    pub fn password(&self) -> Result<Option<Password>> {
        let Some(name) = &self.password_env else {
            return Ok(None);
        };
        match std::env::var(name) {
            Ok(text) if !text.is_empty() => Ok(Some(Password::new(&text))),
            _ => {
                let message = format!(
                    "environment.password_env names {name}, which is not set: export it or drop the setting"
                );
                Err(Error::new(
                    ErrorKind::Config,
                    "dart-env-vnc",
                    "connect",
                    message,
                ))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_checked() {
        let config = VncConfig::new("[::1]:5901");
        assert_eq!(config.address().unwrap(), ("::1", 5901));
        for bad in ["", "localhost", ":5901", "host:0", "host:70000", "host:abc"] {
            let error = VncConfig::new(bad).address().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{bad}");
            assert!(error.to_string().contains("is not host:port"));
        }
    }

    #[test]
    fn deadlines_are_checked() {
        assert!(VncConfig::default().target(None).is_ok());
        let none = VncConfig {
            update_timeout_ms: 0,
            ..VncConfig::default()
        };
        let endless = VncConfig {
            settle_max_ms: u64::MAX,
            ..VncConfig::default()
        };
        for (config, name) in [(none, "update_timeout_ms"), (endless, "settle_max_ms")] {
            let error = config.target(None).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config);
            assert!(error.to_string().contains(name), "{error}");
        }
    }

    #[test]
    fn a_missing_password_is_named() {
        let config = VncConfig {
            password_env: Some("DART_TEST_NO_SUCH_VARIABLE".to_owned()),
            ..VncConfig::default()
        };
        let error = config.password().unwrap_err();
        assert!(error.to_string().contains("DART_TEST_NO_SUCH_VARIABLE"));
    }

    #[test]
    fn unknown_keys_are_refused() {
        let json = r#"{"endpoint":"a:1","settle_ms":3}"#;
        assert!(serde_json::from_str::<VncConfig>(json).is_err());
    }
}
