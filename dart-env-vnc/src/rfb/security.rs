//! Security type VncAuth (RFC 6143 §7.2.2): DES over a challenge, keyed by the password.

use std::fmt;

use des::{
    Des,
    cipher::{BlockCipherEncrypt, KeyInit},
};

/// A VNC password. Only its first eight bytes count; it is never printed and is wiped when dropped.
#[derive(Clone)]
pub struct Password([u8; 8]);

impl Password {
    /// Takes the first eight bytes of `text`, as the protocol does.
    pub fn new(text: &str) -> Self {
        let mut key = [0; 8];
        for (to, from) in key.iter_mut().zip(text.bytes()) {
            *to = from;
        }
        Self(key)
    }

    /// The response to a challenge.
    pub(crate) fn respond(&self, challenge: [u8; 16]) -> [u8; 16] {
        // VNC mirrors the bits of each key byte.
        let cipher = Des::new(&self.0.map(u8::reverse_bits).into());
        let mut response = challenge;
        for half in response.chunks_exact_mut(8) {
            let mut block = [0; 8];
            block.copy_from_slice(half);
            let mut block = block.into();
            cipher.encrypt_block(&mut block);
            half.copy_from_slice(&block);
        }
        response
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(..)")
    }
}

impl Drop for Password {
    fn drop(&mut self) {
        self.0 = [0; 8];
        std::hint::black_box(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn des_of_a_known_challenge() {
        // The classic DES example (key 0123456789abcdef, "Now is t"), its key bits mirrored back.
        let key = [0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef].map(u8::reverse_bits);
        let mut challenge = [0; 16];
        challenge[..8].copy_from_slice(b"Now is t");
        challenge[8..].copy_from_slice(b"Now is t");
        let expected = [0x3f, 0xa4, 0x0e, 0x8a, 0x98, 0x4d, 0x48, 0x15];
        let response = Password(key).respond(challenge);
        assert_eq!(response[..8], expected);
        assert_eq!(response[8..], expected);
    }

    #[test]
    fn only_eight_bytes_count_and_none_are_shown() {
        let (long, short) = (Password::new("secret12345"), Password::new("secret12"));
        assert_eq!(long.respond([7; 16]), short.respond([7; 16]));
        assert_ne!(
            long.respond([7; 16]),
            Password::new("secret").respond([7; 16])
        );
        assert_eq!(format!("{long:?}"), "Password(..)");
    }
}
