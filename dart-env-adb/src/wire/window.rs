//! How much of a stream may be sent before the peer acknowledges it, sans I/O.
//!
//! Source: AOSP `packages/modules/adb`, `protocol.txt` and `docs/dev/delayed_ack.md`. Without the
//! feature `delayed_ack` (platform-tools before 34, and whenever one side does not name it), each
//! packet waits for an empty `OKAY`. With it `OPEN` carries in its second argument how many bytes the
//! opener takes unacknowledged, the `OKAY` that answers it carries the same of the other side as its
//! payload, and every later `OKAY` says how many more bytes were taken: four bytes, low first, with a
//! sign. As long as the balance is positive another packet may be sent, which may make it negative.

use dart_core::Result;

use crate::error::{Adb, AdbError};

/// The feature, as both greetings have to name it.
pub const FEATURE: &str = "delayed_ack";
/// What AOSP lets the other side send unacknowledged, bytes.
pub const INITIAL: u32 = 32 << 20;

/// Whether a greeting names `feature`.
///
/// ```
/// use dart_env_adb::wire::window;
///
/// let greeting = b"host::features=shell_v2,delayed_ack";
/// assert!(window::has_feature(greeting, window::FEATURE));
/// assert!(!window::has_feature(greeting, "shell"));
/// ```
pub fn has_feature(greeting: &[u8], feature: &str) -> bool {
    let text = String::from_utf8_lossy(greeting);
    let properties = text.trim_end_matches('\0').split([';', ':']);
    let lists = properties.filter_map(|property| property.strip_prefix("features="));
    lists
        .flat_map(|list| list.split(','))
        .any(|known| known == feature)
}

/// The payload of an `OKAY` for `bytes` that were taken, or that may be sent from the start.
pub fn acknowledgement(bytes: usize) -> [u8; 4] {
    i32::try_from(bytes).unwrap_or(i32::MAX).to_le_bytes()
}

/// The sender's side of a stream.
///
/// ```
/// use dart_env_adb::wire::window::{Window, acknowledgement};
///
/// let mut window = Window::delayed(100);
/// window.sent(60);
/// assert!(window.is_open());
/// window.sent(60);
/// assert!(!window.is_open(), "20 more than may be");
/// window.acknowledged(&acknowledgement(60))?;
/// assert!(window.is_open());
/// # Ok::<(), dart_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    delayed: bool,
    /// Bytes, or without the feature packets, that may still be sent.
    balance: i64,
}

impl Window {
    /// One packet at a time.
    pub const fn single() -> Self {
        Self {
            delayed: false,
            balance: 1,
        }
    }

    /// With the feature, from `initial` bytes on.
    pub const fn delayed(initial: u32) -> Self {
        Self {
            delayed: true,
            balance: initial as i64,
        }
    }

    /// Whether another packet may be sent.
    pub const fn is_open(&self) -> bool {
        self.balance > 0
    }

    /// Notes a packet with so many bytes.
    pub const fn sent(&mut self, bytes: usize) {
        let spent = if self.delayed { bytes as i64 } else { 1 };
        self.balance = self.balance.saturating_sub(spent);
    }

    /// Notes an `OKAY`.
    ///
    /// # Errors
    /// [`Protocol`](dart_core::ErrorKind::Protocol) if the payload is not that of an `OKAY` with, or
    /// without, the feature.
    pub fn acknowledged(&mut self, payload: &[u8]) -> Result<()> {
        self.take(payload)
            .map_err(|error| error.at("acknowledgement"))
    }

    fn take(&mut self, payload: &[u8]) -> Adb<()> {
        let bad = AdbError::malformed("no acknowledgement of this stream", payload.len());
        self.balance = match (self.delayed, payload) {
            // One more than none is outstanding would let two packets out.
            (false, []) => 1,
            (true, &[a, b, c, d]) => {
                let more = i32::from_le_bytes([a, b, c, d]);
                self.balance.saturating_add(i64::from(more))
            }
            _ => return Err(bad),
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use dart_core::ErrorKind;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn without_the_feature_one_packet_is_under_way() {
        let mut window = Window::single();
        window.acknowledged(b"").unwrap();
        assert!(window.is_open(), "an OKAY for nothing");
        window.sent(1 << 20);
        assert!(!window.is_open());
        window.acknowledged(b"").unwrap();
        assert!(window.is_open());
        let error = window.acknowledged(&acknowledgement(1)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol);
    }

    #[test]
    fn a_balance_may_be_taken_back_and_an_odd_payload_is_refused() {
        let mut window = Window::delayed(10);
        window.acknowledged(&(-10_i32).to_le_bytes()).unwrap();
        assert!(!window.is_open());
        for bad in [&b""[..], b"abc", b"abcde"] {
            let error = window.acknowledged(bad).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Protocol, "{bad:?}");
        }
        assert_eq!(acknowledgement(usize::MAX), i32::MAX.to_le_bytes());
    }

    #[test]
    fn features_are_whole_words_of_a_greeting() {
        let phone = b"device::ro.product.name=x;features=delayed_ack,shell_v2\0";
        assert!(has_feature(phone, FEATURE) && has_feature(phone, "shell_v2"));
        for other in [&b"host::"[..], b"host::features=delayed_acks", b"\xff"] {
            assert!(!has_feature(other, FEATURE));
        }
    }

    proptest! {
        #[test]
        fn what_is_under_way_is_bounded(
            initial in 1u32..1000,
            steps in proptest::collection::vec((any::<bool>(), 0usize..300), 0..60),
        ) {
            let mut window = Window::delayed(initial);
            let mut outstanding = std::collections::VecDeque::new();
            for (sends, length) in steps {
                if sends && window.is_open() {
                    window.sent(length);
                    outstanding.push_back(length);
                } else if let Some(length) = outstanding.pop_front() {
                    window.acknowledged(&acknowledgement(length)).unwrap();
                }
                let bytes: usize = outstanding.iter().sum();
                prop_assert!(bytes < initial as usize + 300);
                prop_assert_eq!(window.is_open(), bytes < initial as usize);
            }
        }
    }
}
