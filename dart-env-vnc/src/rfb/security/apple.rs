//! Security type 30, Apple's Diffie-Hellman: user name and password under AES-128-ECB, whose key is
//! the MD5 of the shared secret. It hides them from whoever listens, not from whoever answers in
//! the server's place, and nothing after it is encrypted.
//!
//! | bytes | from the server | bytes | from the client |
//! |---|---|---|---|
//! | 2 | generator | 64 | user name, zero, noise, enciphered |
//! | 2 | length n | 64 | password, zero, noise, enciphered |
//! | n | prime | n | public key |
//! | n | public key | | |

use aes::{
    Aes128,
    cipher::{BlockCipherEncrypt, KeyInit},
};
use md5::{Digest, Md5};
use num_bigint::BigUint;
use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha20Rng;

use super::{
    super::{error::RfbError, wire::check_limit},
    Entropy, Password, Stop, Wire,
};

/// Longest prime, in bytes: 4096 bits cost some tens of milliseconds.
const MAX_PRIME_BYTES: u64 = 512;

/// Shortest prime that keeps anything from anybody, in bits.
const MIN_PRIME_BITS: u64 = 512;

/// Room for the name and for the password, with the zero that ends them.
const FIELD: usize = 64;

/// What the server begins with.
#[derive(Debug)]
pub(super) struct Parameters {
    generator: BigUint,
    prime: BigUint,
    theirs: BigUint,
    bytes: usize,
}

impl Parameters {
    pub(super) fn read(wire: &mut Wire<'_>) -> Result<Self, Stop> {
        let generator = BigUint::from(wire.u16()?);
        let length = wire.u16()?;
        check_limit("Diffie-Hellman prime", length.into(), MAX_PRIME_BYTES)?;
        let bytes = usize::from(length);
        let prime = BigUint::from_bytes_be(wire.take(bytes)?);
        let theirs = BigUint::from_bytes_be(wire.take(bytes)?);
        let one = BigUint::from(1u8);
        let sound = prime.bits() >= MIN_PRIME_BITS && prime.bit(0);
        // Keys of 0, 1 and -1 make the secret known to everybody.
        let inside = |value: &BigUint| *value > one && value + &one < prime;
        if sound && inside(&generator) && inside(&theirs) {
            return Ok(Self {
                generator,
                prime,
                theirs,
                bytes,
            });
        }
        let what = "the Diffie-Hellman parameters protect nothing";
        Err(RfbError::Malformed { what }.into())
    }

    /// The enciphered name and password, and our public key.
    pub(super) fn answer(
        &self,
        user: &str,
        password: &Password,
        entropy: &Entropy,
    ) -> Result<Vec<u8>, RfbError> {
        let mut noise = ChaCha20Rng::from_seed(entropy.0);
        let mut private = vec![0; self.bytes];
        noise.fill_bytes(&mut private);
        let private = BigUint::from_bytes_be(&private);
        let secret = self.theirs.modpow(&private, &self.prime);
        let mut key = [0; 16];
        key.copy_from_slice(&Md5::digest(self.padded(&secret)));
        let mut message = [0; 2 * FIELD];
        noise.fill_bytes(&mut message);
        let (first, second) = message.split_at_mut(FIELD);
        fill(first, user.as_bytes(), "user name in bytes")?;
        fill(second, &password.0, "password in bytes")?;
        let cipher = Aes128::new(&key.into());
        let (blocks, _) = message.as_chunks_mut::<16>();
        for block in blocks {
            let mut text = (*block).into();
            cipher.encrypt_block(&mut text);
            *block = text.into();
        }
        let ours = self.generator.modpow(&private, &self.prime);
        Ok([message.to_vec(), self.padded(&ours)].concat())
    }

    /// The number in as many bytes as the prime has.
    fn padded(&self, number: &BigUint) -> Vec<u8> {
        let digits = number.to_bytes_be();
        let mut padded = vec![0; self.bytes.saturating_sub(digits.len())];
        padded.extend(digits);
        padded
    }
}

fn fill(field: &mut [u8], text: &[u8], what: &'static str) -> Result<(), RfbError> {
    check_limit(what, text.len() as u64, FIELD as u64 - 1)?;
    for (to, from) in field.iter_mut().zip(text.iter().chain(&[0])) {
        *to = *from;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use aes::cipher::BlockCipherDecrypt;

    use super::*;

    /// The second Oakley group (RFC 2409 §6.2), whose 1024 bits Apple's servers use.
    const OAKLEY_2: &str = "ffffffffffffffffc90fdaa22168c234c4c6628b80dc1cd129024e088a67cc74\
        020bbea63b139b22514a08798e3404ddef9519b3cd3a431b302b0a6df25f1437\
        4fe1356d6d51c245e485b576625e7ec6f44c42e9a637ed6b0bff5cb6f406b7ed\
        ee386bfb5a899fa5ae9f24117c4b1fe649286651ece65381ffffffffffffffff";

    fn prime() -> BigUint {
        BigUint::parse_bytes(OAKLEY_2.as_bytes(), 16).unwrap()
    }

    fn stream(generator: u16, prime: &BigUint, public: &BigUint) -> Vec<u8> {
        let mut bytes = generator.to_be_bytes().to_vec();
        bytes.extend(128u16.to_be_bytes());
        for number in [prime, public] {
            let digits = number.to_bytes_be();
            bytes.extend(vec![0; 128 - digits.len()]);
            bytes.extend(digits);
        }
        bytes
    }

    /// The server's side, computed anew: it finds the same secret and reads what was sent.
    #[test]
    fn the_other_side_reads_name_and_password() {
        let (prime, theirs) = (prime(), BigUint::from(0x1234_5678_9abc_def1_u64));
        let public = BigUint::from(2u8).modpow(&theirs, &prime);
        let bytes = stream(2, &prime, &public);
        let parameters = Parameters::read(&mut Wire::new(&bytes)).unwrap();
        let password = Password::new("pass word");
        let answer = parameters
            .answer("ann", &password, &Entropy([9; 32]))
            .unwrap();
        assert_eq!(answer.len(), 128 + 128);
        let ours = BigUint::from_bytes_be(&answer[128..]);
        let secret = parameters.padded(&ours.modpow(&theirs, &prime));
        let key: [u8; 16] = Md5::digest(secret).into();
        let cipher = Aes128::new(&key.into());
        let mut clear = Vec::new();
        for block in answer[..128].chunks_exact(16) {
            let mut block: [u8; 16] = block.try_into().unwrap();
            let mut text = block.into();
            cipher.decrypt_block(&mut text);
            block = text.into();
            clear.extend(block);
        }
        assert!(clear.starts_with(b"ann\0"));
        assert!(clear[64..].starts_with(b"pass word\0"));
        let other = parameters.answer("ann", &password, &Entropy([8; 32]));
        assert_ne!(answer, other.unwrap());
    }

    #[test]
    fn parameters_that_protect_nothing_are_refused() {
        let (prime, one) = (prime(), BigUint::from(1u8));
        let last = &prime - &one;
        let small = BigUint::from(23u8);
        let five = BigUint::from(5u8);
        for (generator, prime, public) in [
            (2, &prime, &BigUint::ZERO),
            (2, &prime, &one),
            (2, &prime, &last),
            (1, &prime, &five),
            (0, &prime, &five),
            (2, &last, &five),
            (2, &small, &five),
            (2, &BigUint::ZERO, &BigUint::ZERO),
        ] {
            let bytes = stream(generator, prime, public);
            assert!(matches!(
                Parameters::read(&mut Wire::new(&bytes)),
                Err(Stop::Fault(RfbError::Malformed { .. }))
            ));
        }
        let huge = [0, 2, 2, 1];
        assert!(matches!(
            Parameters::read(&mut Wire::new(&huge)),
            Err(Stop::Fault(RfbError::TooLarge { .. }))
        ));
    }

    #[test]
    fn a_long_name_is_refused() {
        let public = BigUint::from(4u8);
        let bytes = stream(2, &prime(), &public);
        let parameters = Parameters::read(&mut Wire::new(&bytes)).unwrap();
        let answer = |user: &str| parameters.answer(user, &Password::new("x"), &Entropy::default());
        assert!(answer(&"x".repeat(63)).is_ok());
        assert!(answer(&"x".repeat(64)).is_err());
    }
}
