//! The secrets that keep other users of the machine out of a desktop: the X server's cookie and the
//! VNC password. Both live in files that only this user can read and die with the desktop.

use std::{
    fmt,
    fs::{File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use des::{
    Des,
    cipher::{BlockCipherEncrypt, KeyInit},
};

/// Bytes from the operating system. Secrets are the one kind of randomness that must not come from
/// the run's seed.
pub(crate) fn entropy<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// A secret as text. It is never printed.
#[derive(Clone)]
pub(super) struct Secret(String);

impl Secret {
    /// `2 * N` random hexadecimal digits.
    pub(super) fn fresh<const N: usize>() -> io::Result<Self> {
        token::<N>().map(Self)
    }

    /// The secret itself.
    pub(super) fn text(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// `2 * N` random hexadecimal digits.
pub(super) fn token<const N: usize>() -> io::Result<String> {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(2 * N);
    for byte in entropy::<N>()? {
        let _infallible = write!(text, "{byte:02x}");
    }
    Ok(text)
}

/// Writes a file that only this user can read.
pub(super) fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(bytes)
}

/// Writes an X authority file (Xau(3)): one cookie, for any host and any display.
pub(super) fn write_cookie(path: &Path) -> io::Result<()> {
    const FAMILY_WILD: u16 = 0xffff;
    let cookie = entropy::<16>()?;
    let mut entry = Vec::new();
    entry.extend(FAMILY_WILD.to_be_bytes());
    for field in [b"" as &[u8], b"", b"MIT-MAGIC-COOKIE-1", &cookie] {
        entry.extend((field.len() as u16).to_be_bytes());
        entry.extend(field);
    }
    write_private(path, &entry)
}

/// Writes a VNC password file: the eight bytes of the password, enciphered with a key that every
/// implementation knows. It hides the password from a glance, no more.
pub(super) fn write_password(path: &Path, password: &str) -> io::Result<()> {
    write_private(path, &obfuscated(password))
}

fn obfuscated(password: &str) -> [u8; 8] {
    // VNC feeds DES the bits of each key byte in reverse order.
    const KEY: [u8; 8] = [23, 82, 107, 6, 35, 78, 88, 7];
    let mut block = [0; 8];
    for (to, from) in block.iter_mut().zip(password.bytes()) {
        *to = from;
    }
    let mut block = block.into();
    Des::new(&KEY.map(u8::reverse_bits).into()).encrypt_block(&mut block);
    block.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_password_file_is_what_vncpasswd_writes() {
        // The widely published file for the password "password".
        assert_eq!(
            obfuscated("password"),
            [0xdb, 0xd8, 0x3c, 0xfd, 0x72, 0x7a, 0x14, 0x58]
        );
    }

    #[test]
    fn a_secret_is_not_printed() {
        let secret = Secret::fresh::<4>().unwrap();
        assert_eq!(secret.text().len(), 8);
        assert_eq!(format!("{secret:?}"), "Secret(..)");
    }

    #[test]
    fn tokens_differ() {
        let (a, b) = (token::<4>().unwrap(), token::<4>().unwrap());
        assert_eq!(a.len(), 8);
        assert_ne!(a, b);
    }
}
