//! The packets between an ADB server and a device, sans I/O.
//!
//! Source: AOSP `packages/modules/adb`, `protocol.txt`. A header of six 32-bit numbers, low byte
//! first, and the payload:
//!
//! | bytes | what |
//! |---|---|
//! | 0-3 | command, four letters |
//! | 4-7, 8-11 | two arguments |
//! | 12-15 | length of the payload |
//! | 16-19 | sum of the payload's bytes; 0 from version 0x01000001 on |
//! | 20-23 | the command with all bits turned |

use dart_core::Result;

use crate::error::{Adb, AdbError, printable};

/// Length of a header, bytes.
pub const HEADER: usize = 24;
/// Largest payload, bytes: that of every version since Android 7.
pub const MAX_PAYLOAD: usize = 1 << 20;
/// The version without checksums.
pub const VERSION: u32 = 0x0100_0001;

/// What a packet is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the protocol")]
pub enum Command {
    Auth,
    Close,
    Connect,
    Okay,
    Open,
    Tls,
    Write,
}

const NAMES: [(Command, [u8; 4]); 7] = [
    (Command::Auth, *b"AUTH"),
    (Command::Close, *b"CLSE"),
    (Command::Connect, *b"CNXN"),
    (Command::Okay, *b"OKAY"),
    (Command::Open, *b"OPEN"),
    (Command::Tls, *b"STLS"),
    (Command::Write, *b"WRTE"),
];

impl Command {
    const fn name(self) -> [u8; 4] {
        NAMES[self as usize].1
    }
}

/// The header of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What the packet is for.
    pub command: Command,
    /// The first argument; mostly the sender's number of the stream.
    pub arg0: u32,
    /// The second argument; mostly the receiver's number of the stream.
    pub arg1: u32,
    /// Length of the payload, at most [`MAX_PAYLOAD`].
    pub length: usize,
    checksum: u32,
}

impl Header {
    /// The header for `payload`, with a checksum, which every version takes.
    ///
    /// # Errors
    /// [`Misuse`](dart_core::ErrorKind::Misuse) if the payload is longer than [`MAX_PAYLOAD`].
    pub fn of(command: Command, arg0: u32, arg1: u32, payload: &[u8]) -> Result<Self> {
        if payload.len() > MAX_PAYLOAD {
            return Err(AdbError::PacketLength(payload.len()).at("write packet"));
        }
        // The sum of a large payload costs more than sending it, and the greeting says VERSION.
        let summed = matches!(command, Command::Connect | Command::Auth | Command::Tls);
        Ok(Self {
            command,
            arg0,
            arg1,
            length: payload.len(),
            checksum: if summed { sum(payload) } else { 0 },
        })
    }

    /// The bytes.
    pub fn encode(&self) -> [u8; HEADER] {
        let name = u32::from_le_bytes(self.command.name());
        let numbers = [
            name,
            self.arg0,
            self.arg1,
            self.length as u32,
            self.checksum,
            !name,
        ];
        let mut bytes = [0; HEADER];
        for (place, number) in bytes.chunks_exact_mut(4).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// Reads a header.
    ///
    /// # Errors
    /// [`Protocol`](dart_core::ErrorKind::Protocol) for an unknown command, a wrong last number, or
    /// a payload longer than [`MAX_PAYLOAD`].
    pub fn decode(bytes: &[u8; HEADER]) -> Result<Self> {
        Self::parse(bytes).map_err(|error| error.at("read packet"))
    }

    fn parse(bytes: &[u8; HEADER]) -> Adb<Self> {
        let number = |index: usize| {
            let at = index * 4;
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let known = NAMES.iter().find(|(_, name)| name[..] == bytes[..4]);
        let Some((command, _)) = known else {
            return Err(AdbError::malformed(
                "unknown command",
                printable(&bytes[..4]),
            ));
        };
        if number(5) != !number(0) {
            return Err(AdbError::malformed("wrong magic number", number(5)));
        }
        let length = number(3) as usize;
        if length > MAX_PAYLOAD {
            let (what, limit) = ("a packet", MAX_PAYLOAD);
            return Err(AdbError::TooLong { what, limit });
        }
        Ok(Self {
            command: *command,
            arg0: number(1),
            arg1: number(2),
            length,
            checksum: number(4),
        })
    }

    /// Whether `payload` is what the sender meant. A sender of [`VERSION`] or later gives no sum.
    pub fn fits(&self, payload: &[u8]) -> bool {
        payload.len() == self.length && (self.checksum == 0 || self.checksum == sum(payload))
    }
}

fn sum(payload: &[u8]) -> u32 {
    payload
        .iter()
        .fold(0, |sum: u32, byte| sum.wrapping_add(u32::from(*byte)))
}

#[cfg(test)]
mod tests {
    use dart_core::ErrorKind;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_greeting_is_as_adb_sends_it() {
        let header = Header::of(Command::Connect, VERSION, 0x10_0000, b"host::").unwrap();
        let bytes = header.encode();
        assert_eq!(&bytes[..4], b"CNXN");
        assert_eq!(bytes[4..12], [1, 0, 0, 1, 0, 0, 16, 0]);
        assert_eq!(bytes[12..20], [6, 0, 0, 0, 0x32, 2, 0, 0]);
        assert_eq!(bytes[20..], [0xbc, 0xb1, 0xa7, 0xb1]);
        assert_eq!(Header::decode(&bytes).unwrap(), header);
        assert!(header.fits(b"host::") && !header.fits(b"host:;"));
    }

    #[test]
    fn bad_headers_are_refused() {
        let good = Header::of(Command::Write, 1, 2, b"x").unwrap().encode();
        for (at, value) in [(0, b'X'), (20, 0), (14, 0x20), (15, 0xff)] {
            let mut bad = good;
            bad[at] = value;
            let error = Header::decode(&bad).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Protocol, "byte {at}");
        }
        let long = vec![0; MAX_PAYLOAD + 1];
        assert!(Header::of(Command::Write, 1, 2, &long).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::array::uniform24(any::<u8>()), cut in 0usize..6) {
            let mut bytes = bytes;
            bytes[..4].copy_from_slice(&NAMES[cut].1);
            if let Ok(header) = Header::decode(&bytes) {
                prop_assert!(header.length <= MAX_PAYLOAD);
            }
        }
    }
}
