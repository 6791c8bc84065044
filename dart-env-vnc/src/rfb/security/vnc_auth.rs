//! Security type VncAuth (RFC 6143 §7.2.2): DES over a challenge, keyed by the password.
//!
//! The password does not cross the wire, but eight characters and DES keep it from nobody who
//! listens: it is right on loopback and inside TLS.

use des::{
    Des,
    cipher::{BlockCipherEncrypt, KeyInit},
};

use super::Password;

/// The response to a challenge. Only the first eight bytes of the password count.
pub(super) fn respond(password: &Password, challenge: [u8; 16]) -> [u8; 16] {
    let mut key = [0; 8];
    for (to, from) in key.iter_mut().zip(password.bytes()) {
        // VNC mirrors the bits of each key byte.
        *to = from.reverse_bits();
    }
    let cipher = Des::new(&key.into());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn des_of_a_known_challenge() {
        // The classic DES example: key 0123456789abcdef, "Now is t". Mirrored, the key is not text.
        let key = [0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef].map(u8::reverse_bits);
        let mut challenge = [0; 16];
        challenge[..8].copy_from_slice(b"Now is t");
        challenge[8..].copy_from_slice(b"Now is t");
        let expected = [0x3f, 0xa4, 0x0e, 0x8a, 0x98, 0x4d, 0x48, 0x15];
        let response = respond(&Password(key.to_vec()), challenge);
        assert_eq!(response[..8], expected);
        assert_eq!(response[8..], expected);
    }

    #[test]
    fn only_eight_bytes_count() {
        let of = |text: &str| respond(&Password::new(text), [7; 16]);
        assert_eq!(of("secret12345"), of("secret12"));
        assert_ne!(of("secret12345"), of("secret"));
    }
}
