//! The file service (`sync:`), version 1, sans I/O.
//!
//! Source: AOSP `packages/modules/adb`, `SYNC.TXT`. Requests are four letters, a length (32 bits, low
//! byte first) and a path. Messages of the device:
//!
//! | letters | then |
//! |---|---|
//! | `STAT` | mode, size, time |
//! | `DENT` | mode, size, time, length of the name, name |
//! | `DATA` | length, bytes |
//! | `DONE` | a number; after `LIST` an empty `DENT` |
//! | `OKAY` | a number |
//! | `FAIL` | length, reason |
//!
//! # Bounds
//! A piece of data has at most 64 KiB, a name 255 bytes, a reason 4 KiB. A name with a slash or a NUL
//! is refused: devices have used them to make clients write elsewhere (CVE-2022-20128).

use dart_core::Result;

use crate::error::{Adb, AdbError, printable};

/// Largest piece of data, bytes.
pub const MAX_DATA: usize = 64 << 10;
/// Longest path of a request, bytes; the device's own bound.
pub const MAX_PATH: usize = 1024;
const MAX_NAME: usize = 255;
const MAX_REASON: usize = 4096;

/// What is asked of the file service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// The entries of a folder.
    List,
    /// The end of the conversation.
    Quit,
    /// The content of a file.
    Recv,
    /// A file is to be written; the path is followed by a comma and the mode in decimal digits.
    Send,
    /// Kind, size and time of a file.
    Stat,
}

impl Request {
    const fn name(self) -> &'static [u8; 4] {
        match self {
            Self::List => b"LIST",
            Self::Quit => b"QUIT",
            Self::Recv => b"RECV",
            Self::Send => b"SEND",
            Self::Stat => b"STAT",
        }
    }

    /// The bytes of the request.
    ///
    /// # Errors
    /// [`Misuse`](dart_core::ErrorKind::Misuse) if the path is longer than [`MAX_PATH`] or has a NUL in
    /// it, at which the device would cut it.
    pub fn encode(self, path: &str) -> Result<Vec<u8>> {
        self.bytes(path).map_err(|error| error.at("file service"))
    }

    pub(crate) fn bytes(self, path: &str) -> Adb<Vec<u8>> {
        if path.len() > MAX_PATH {
            return Err(AdbError::PathLength(path.len()));
        }
        if path.contains('\0') {
            return Err(AdbError::Nul);
        }
        let length = (path.len() as u32).to_le_bytes();
        Ok([self.name(), &length[..], path.as_bytes()].concat())
    }
}

/// `DATA`, the length and `piece`, which has at most [`MAX_DATA`] bytes (more is cut).
pub fn data(piece: &[u8]) -> Vec<u8> {
    let piece = &piece[..piece.len().min(MAX_DATA)];
    [&data_header(piece.len()), piece].concat()
}

/// Length of what comes before a piece of data, bytes.
pub(crate) const DATA_HEADER: usize = 8;

/// What comes before a piece of data of `length` bytes, at most [`MAX_DATA`].
pub(crate) fn data_header(length: usize) -> [u8; DATA_HEADER] {
    let [a, b, c, d] = (length as u32).to_le_bytes();
    [b'D', b'A', b'T', b'A', a, b, c, d]
}

/// `DONE` and the file's time, in seconds since 1970.
pub fn done(time: u32) -> [u8; 8] {
    let [a, b, c, d] = time.to_le_bytes();
    [b'D', b'O', b'N', b'E', a, b, c, d]
}

/// Kind, size and time of a file. Of a link they are its own, as by `lstat(2)`: it is not followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// Kind and permissions as in `stat(2)`; 0 if there is no such file, or it may not be looked at.
    pub mode: u32,
    /// Length in bytes, modulo 4 GiB.
    pub size: u32,
    /// Time of the last change, in seconds since 1970.
    pub time: u32,
}

impl Stat {
    /// Whether there is such a file.
    pub const fn exists(self) -> bool {
        self.mode != 0
    }

    /// Whether it is a folder.
    pub const fn is_folder(self) -> bool {
        self.mode & 0o170_000 == 0o040_000
    }
}

/// One entry of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name: one component of a path, never several. `.` and `..` are among them, since devices
    /// list both.
    pub name: String,
    /// What it is.
    pub stat: Stat,
}

/// What the device says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A piece of a file.
    Data(Vec<u8>),
    /// The end of a file or folder.
    Done,
    /// An entry of a folder.
    Entry(Entry),
    /// It went wrong, for this reason.
    Fail(String),
    /// It went well.
    Okay,
    /// The answer to [`Request::Stat`].
    Stat(Stat),
}

/// Which numbers follow the letters, and what the bytes after them are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Data,
    Done,
    Entry,
    Fail,
    Okay,
    Stat,
}

impl Kind {
    fn of(letters: &[u8]) -> Adb<Self> {
        Ok(match letters {
            b"DATA" => Self::Data,
            b"DONE" => Self::Done,
            b"DENT" => Self::Entry,
            b"FAIL" => Self::Fail,
            b"OKAY" => Self::Okay,
            b"STAT" => Self::Stat,
            other => {
                return Err(AdbError::malformed(
                    "the file service does not say",
                    printable(other),
                ));
            }
        })
    }

    /// Bytes from the letters to the last number.
    const fn header(self) -> usize {
        match self {
            Self::Data | Self::Done | Self::Fail | Self::Okay => 8,
            Self::Entry => 20,
            Self::Stat => 16,
        }
    }

    /// Most bytes after the header, and what they are.
    const fn bound(self) -> (usize, &'static str) {
        match self {
            Self::Data => (MAX_DATA, "a piece of a file"),
            Self::Entry => (MAX_NAME, "the name of a file"),
            Self::Fail => (MAX_REASON, "the reason of a failure"),
            Self::Done | Self::Okay | Self::Stat => (0, "a message"),
        }
    }
}

/// Reads one message after another from bytes that arrive in any portions.
///
/// ```
/// use dart_env_adb::wire::sync::{Message, Reader};
///
/// let mut reader = Reader::default();
/// assert_eq!(reader.push(b"DATA\x02\0\0").unwrap(), (7, None));
/// assert_eq!(reader.push(b"\0hiDONE").unwrap(), (3, Some(Message::Data(b"hi".to_vec()))));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Reader {
    /// The letters of a listing's end are followed by as many numbers as those of an entry.
    listing: bool,
    part: Vec<u8>,
}

impl Reader {
    /// A reader of the answer to [`Request::List`].
    pub const fn listing() -> Self {
        Self {
            listing: true,
            part: Vec::new(),
        }
    }

    /// Takes bytes from the front of `input`; gives how many, and the message if one is complete.
    ///
    /// # Errors
    /// [`Protocol`](dart_core::ErrorKind::Protocol) if the peer does not speak this protocol: drop
    /// the connection.
    pub fn push(&mut self, input: &[u8]) -> Result<(usize, Option<Message>)> {
        self.take(input).map_err(|error| error.at("file service"))
    }

    pub(crate) fn take(&mut self, input: &[u8]) -> Adb<(usize, Option<Message>)> {
        let mut taken = 0;
        loop {
            let wanted = self.wanted()?;
            if self.part.len() == wanted {
                let message = self.message()?;
                self.part.clear();
                return Ok((taken, Some(message)));
            }
            let missing = wanted - self.part.len();
            let portion = &input[taken..input.len().min(taken + missing)];
            if portion.is_empty() {
                return Ok((taken, None));
            }
            self.part.extend_from_slice(portion);
            taken += portion.len();
        }
    }

    /// How many bytes the present message has, as far as that is known.
    fn wanted(&self) -> Adb<usize> {
        let Some(letters) = self.part.get(..4) else {
            return Ok(4);
        };
        let kind = Kind::of(letters)?;
        let header = match kind {
            Kind::Done if self.listing => Kind::Entry.header(),
            kind => kind.header(),
        };
        if self.part.len() < header || matches!(kind, Kind::Done | Kind::Okay | Kind::Stat) {
            return Ok(header);
        }
        let length = self.number(header - 4) as usize;
        let (limit, what) = kind.bound();
        if length > limit {
            return Err(AdbError::TooLong { what, limit });
        }
        Ok(header + length)
    }

    fn number(&self, at: usize) -> u32 {
        let bytes = self.part.get(at..at + 4).and_then(|b| b.try_into().ok());
        u32::from_le_bytes(bytes.unwrap_or_default())
    }

    fn stat(&self) -> Stat {
        Stat {
            mode: self.number(4),
            size: self.number(8),
            time: self.number(12),
        }
    }

    /// The message in `part`, which is complete.
    fn message(&self) -> Adb<Message> {
        let kind = Kind::of(&self.part[..4])?;
        let body = self.part.get(kind.header()..).unwrap_or_default();
        Ok(match kind {
            Kind::Data => Message::Data(body.to_vec()),
            Kind::Done => Message::Done,
            Kind::Fail => Message::Fail(String::from_utf8_lossy(body).into_owned()),
            Kind::Okay => Message::Okay,
            Kind::Stat => Message::Stat(self.stat()),
            Kind::Entry => Message::Entry(Entry {
                name: name(body)?,
                stat: self.stat(),
            }),
        })
    }
}

/// A name that is one component of a path.
fn name(bytes: &[u8]) -> Adb<String> {
    let text = std::str::from_utf8(bytes).ok();
    match text {
        Some(text) if !text.is_empty() && !text.contains(['/', '\0', '\\']) => Ok(text.to_owned()),
        _ => Err(AdbError::malformed("no name of a file", printable(bytes))),
    }
}

#[cfg(test)]
mod tests {
    use dart_core::ErrorKind;
    use proptest::prelude::*;

    use super::*;

    fn read(mut reader: Reader, bytes: &[u8], portion: usize) -> Result<Vec<Message>> {
        let mut all = Vec::new();
        for piece in bytes.chunks(portion.max(1)) {
            let mut rest = piece;
            loop {
                let (taken, message) = reader.push(rest)?;
                rest = &rest[taken..];
                let Some(message) = message else { break };
                all.push(message);
            }
        }
        Ok(all)
    }

    fn entry(name: &[u8]) -> Vec<u8> {
        let numbers = [0o100_644, 5, 9, name.len() as u32].map(u32::to_le_bytes);
        [b"DENT", &numbers.concat()[..], name].concat()
    }

    #[test]
    fn a_folder_is_read_in_any_portions() {
        let bytes = [entry(b"a.txt"), entry(b".."), b"DONE".to_vec(), vec![0; 16]].concat();
        for portion in [1, 3, 7, 100] {
            let messages = read(Reader::listing(), &bytes, portion).unwrap();
            assert_eq!(messages.len(), 3, "{messages:?}");
            assert!(matches!(&messages[0], Message::Entry(e) if e.name == "a.txt"));
            assert_eq!(messages[2], Message::Done);
        }
    }

    #[test]
    fn requests_and_stats_are_as_documented() {
        let request = Request::Send.encode("/a,33188").unwrap();
        assert_eq!(request, b"SEND\x08\0\0\0/a,33188");
        for bad in [&*"x".repeat(1025), "/sdcard/a\0b"] {
            let error = Request::Recv.encode(bad).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Misuse, "{bad}");
        }
        let numbers = [0o040_755, 1, 2].map(u32::to_le_bytes).concat();
        let bytes = [b"STAT", &numbers[..]].concat();
        let stat = read(Reader::default(), &bytes, 5).unwrap().remove(0);
        assert!(matches!(stat, Message::Stat(stat) if stat.is_folder() && stat.size == 1));
        assert!(!Stat::default().exists());
    }

    #[test]
    fn hostile_lengths_and_names_are_refused() {
        let bad: [Vec<u8>; 7] = [
            b"DATA\x01\0\x01\0".to_vec(),
            b"DATA\xff\xff\xff\xff".to_vec(),
            b"FAIL\xff\xff\xff\x7f".to_vec(),
            [entry(b""), vec![]].concat(),
            entry(b"../../etc/passwd"),
            entry(b"a\0b"),
            b"QUIT\0\0\0\0".to_vec(),
        ];
        for bytes in bad {
            let error = read(Reader::default(), &bytes, 4).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Protocol, "{}", printable(&bytes));
        }
    }

    proptest! {
        #[test]
        fn pieces_come_back(data in proptest::collection::vec(any::<u8>(), 0..300), portion in 1usize..50) {
            let bytes = [super::data(&data), done(7).to_vec()].concat();
            let messages = read(Reader::default(), &bytes, portion).unwrap();
            prop_assert_eq!(messages, vec![Message::Data(data), Message::Done]);
        }

        #[test]
        fn no_bytes_make_it_panic(which in 0usize..6, bytes in proptest::collection::vec(any::<u8>(), 0..80), listing: bool) {
            let letters = [b"DATA", b"DONE", b"DENT", b"FAIL", b"OKAY", b"STAT"][which];
            let reader = if listing { Reader::listing() } else { Reader::default() };
            let _ = read(reader, &[letters, &bytes[..]].concat(), 7);
        }
    }
}
