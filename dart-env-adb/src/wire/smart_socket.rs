//! Requests to the ADB server and its replies, sans I/O.
//!
//! Source: AOSP `packages/modules/adb`, OVERVIEW.TXT ("Client <-> Server protocol") and SERVICES.TXT.
//! A request is its length as four hexadecimal digits, then the text. A reply is `OKAY`, after which
//! some services send a block of the same form, or `FAIL` and a block with the reason. Once a
//! service is open the connection carries that service's own bytes, so a reader takes no byte more
//! than its reply has.
//!
//! # Bounds
//! Four hexadecimal digits announce at most 65,535 bytes; nothing is allocated before it arrives.

use dart_core::Result;

use crate::error::{Adb, AdbError, printable};

/// Longest request, reason or block, in bytes: what four hexadecimal digits can say.
pub const MAX_BLOCK: usize = 0xffff;

/// The bytes that ask for `service`, such as `host:version` or `shell,v2,raw:ls`.
///
/// # Errors
/// [`Misuse`](dart_core::ErrorKind::Misuse) if the name is empty or longer than [`MAX_BLOCK`], or has
/// a NUL in it, at which a device would cut it.
pub fn request(service: &str) -> Result<Vec<u8>> {
    encode(service).map_err(|error| error.at("request"))
}

pub(crate) fn encode(service: &str) -> Adb<Vec<u8>> {
    if !(1..=MAX_BLOCK).contains(&service.len()) {
        return Err(AdbError::ServiceLength(service.len()));
    }
    if service.contains('\0') {
        return Err(AdbError::Nul);
    }
    Ok(format!("{:04x}{service}", service.len()).into_bytes())
}

/// What a reader waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// `OKAY` alone (`host:transport:…` and the device's services) or `FAIL` with a reason.
    Status,
    /// `OKAY` and one block (`host:version`, `host:devices-l`) or `FAIL` with a reason.
    Value,
    /// One block alone: the later messages of `host:track-devices`.
    Block,
}

/// A complete reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The service is open.
    Okay,
    /// What the server had to say.
    Value(Vec<u8>),
    /// The server refused, for this reason. Bytes that are not UTF-8 are replaced.
    Fail(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Status,
    FailLength,
    FailText,
    ValueLength,
    ValueBytes,
    Complete,
}

/// Reads one reply from bytes that arrive in any portions.
///
/// ```
/// use dart_env_adb::wire::smart_socket::{Expect, Reply, ReplyReader};
///
/// let mut reader = ReplyReader::new(Expect::Value);
/// assert_eq!(reader.push(b"OKAY00").unwrap(), (6, None));
/// let version = Reply::Value(b"0029".to_vec());
/// assert_eq!(reader.push(b"040029rest").unwrap(), (6, Some(version)));
/// ```
#[derive(Clone, Debug)]
pub struct ReplyReader {
    expect: Expect,
    stage: Stage,
    /// The bytes of the present stage so far.
    part: Vec<u8>,
    /// How many the stage has.
    wanted: usize,
}

impl ReplyReader {
    /// A reader of one reply.
    pub const fn new(expect: Expect) -> Self {
        let stage = match expect {
            Expect::Status | Expect::Value => Stage::Status,
            Expect::Block => Stage::ValueLength,
        };
        Self {
            expect,
            stage,
            part: Vec::new(),
            wanted: 4,
        }
    }

    /// Takes bytes from the front of `input`; gives how many, and the reply if it is complete. Those
    /// left over belong to whatever comes after the reply.
    ///
    /// # Errors
    /// [`Protocol`](dart_core::ErrorKind::Protocol) if the peer does not speak this protocol: drop the
    /// connection. [`Misuse`](dart_core::ErrorKind::Misuse) once the reply is complete.
    pub fn push(&mut self, input: &[u8]) -> Result<(usize, Option<Reply>)> {
        self.take(input).map_err(|error| error.at("read reply"))
    }

    pub(crate) fn take(&mut self, input: &[u8]) -> Adb<(usize, Option<Reply>)> {
        if self.stage == Stage::Complete {
            return Err(AdbError::Complete);
        }
        let mut taken = 0;
        while taken < input.len() {
            let missing = self.wanted - self.part.len();
            let portion = &input[taken..input.len().min(taken + missing)];
            self.part.extend_from_slice(portion);
            taken += portion.len();
            // A block of no bytes is complete without another portion.
            while self.stage != Stage::Complete && self.part.len() == self.wanted {
                if let Some(reply) = self.advance()? {
                    return Ok((taken, Some(reply)));
                }
            }
        }
        Ok((taken, None))
    }

    /// Ends a stage.
    fn advance(&mut self) -> Adb<Option<Reply>> {
        let part = std::mem::take(&mut self.part);
        match self.stage {
            Stage::Status => match (part.as_slice(), self.expect) {
                (b"OKAY", Expect::Status) => return Ok(Some(self.complete(Reply::Okay))),
                (b"OKAY", _) => self.enter(Stage::ValueLength, 4),
                (b"FAIL", _) => self.enter(Stage::FailLength, 4),
                (other, _) => return Err(AdbError::Status(printable(other))),
            },
            Stage::FailLength => self.enter(Stage::FailText, block_length(&part)?),
            Stage::ValueLength => self.enter(Stage::ValueBytes, block_length(&part)?),
            Stage::FailText => {
                let reason = String::from_utf8_lossy(&part).into_owned();
                return Ok(Some(self.complete(Reply::Fail(reason))));
            }
            Stage::ValueBytes => return Ok(Some(self.complete(Reply::Value(part)))),
            Stage::Complete => return Err(AdbError::Complete),
        }
        Ok(None)
    }

    const fn enter(&mut self, stage: Stage, wanted: usize) {
        self.stage = stage;
        self.wanted = wanted;
    }

    const fn complete(&mut self, reply: Reply) -> Reply {
        self.stage = Stage::Complete;
        reply
    }
}

/// Reads four hexadecimal digits. The standard parser alone would take a sign.
fn block_length(digits: &[u8]) -> Adb<usize> {
    digits.iter().try_fold(0, |length, digit| {
        let value = char::from(*digit).to_digit(16);
        let value = value.ok_or_else(|| AdbError::Length(printable(digits)))?;
        Ok(length * 16 + value as usize)
    })
}

#[cfg(test)]
mod tests {
    use dart_core::ErrorKind;
    use proptest::prelude::*;

    use super::*;

    /// Feeds `input` in portions of the given sizes, in turn.
    fn read(expect: Expect, input: &[u8], portions: &[usize]) -> Result<(usize, Option<Reply>)> {
        let mut reader = ReplyReader::new(expect);
        let mut at = 0;
        for portion in portions.iter().cycle() {
            if at == input.len() {
                break;
            }
            let end = input.len().min(at + portion);
            let (taken, reply) = reader.push(&input[at..end])?;
            at += taken;
            if reply.is_some() {
                return Ok((at, reply));
            }
        }
        Ok((at, None))
    }

    #[test]
    fn requests_are_as_the_documentation_has_them() {
        assert_eq!(request("host:version").unwrap(), b"000chost:version");
        let longest = "x".repeat(MAX_BLOCK);
        assert!(request(&longest).unwrap().starts_with(b"ffffx"));
        for bad in ["", "shell,v2,raw:a\0b", &format!("{longest}x")] {
            assert_eq!(request(bad).unwrap_err().kind(), ErrorKind::Misuse);
        }
    }

    #[test]
    fn replies_in_the_words_of_a_server_are_read() {
        // Version and reason are what adb 29.0.6 says.
        let reason = "device 'nosuch' not found";
        let fail = format!("FAIL0019{reason}");
        let cases: [(Expect, &[u8], Reply); 4] = [
            (
                Expect::Value,
                b"OKAY00040029",
                Reply::Value(b"0029".to_vec()),
            ),
            (Expect::Value, b"OKAY0000", Reply::Value(Vec::new())),
            (Expect::Status, b"OKAY", Reply::Okay),
            (Expect::Status, fail.as_bytes(), Reply::Fail(reason.into())),
        ];
        for (expect, bytes, reply) in cases {
            let (_, read) = read(expect, bytes, &[1]).unwrap();
            assert_eq!(read, Some(reply), "{}", printable(bytes));
        }
    }

    #[test]
    fn what_is_no_reply_is_refused_as_early_as_possible() {
        let cases: [(&[u8], &str); 5] = [
            (b"HTTP/1.1", "HTTP"),
            (b"okay", "okay"),
            (b"OKAY+123", "+123"),
            (b"OKAY 12 ", " 12 "),
            (b"FAIL\xff\x00zz", "\\xff\\x00zz"),
        ];
        for (bytes, named) in cases {
            let error = read(Expect::Value, bytes, &[1]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Protocol);
            assert!(error.to_string().contains(&format!("{named:?}")), "{error}");
        }
    }

    #[test]
    fn nothing_is_allocated_before_it_arrives() {
        let mut reader = ReplyReader::new(Expect::Value);
        reader.push(b"OKAYffff").unwrap();
        assert!(reader.part.capacity() < 64);
    }

    #[test]
    fn a_complete_reader_takes_nothing() {
        let mut reader = ReplyReader::new(Expect::Status);
        reader.push(b"OKAY").unwrap();
        assert_eq!(reader.push(b"x").unwrap_err().kind(), ErrorKind::Misuse);
    }

    proptest! {
        #[test]
        fn any_reply_is_read_in_any_portions(
            value in proptest::collection::vec(any::<u8>(), 0..600),
            rest in proptest::collection::vec(any::<u8>(), 0..9),
            portions in proptest::collection::vec(1usize..40, 1..9),
            which in 0..4,
        ) {
            let text = String::from_utf8_lossy(&value).into_owned();
            let block = |bytes: &[u8]| [format!("{:04X}", bytes.len()).as_bytes(), bytes].concat();
            let (expect, bytes, reply) = match which {
                0 => (Expect::Status, b"OKAY".to_vec(), Reply::Okay),
                1 => (Expect::Value, [b"OKAY", &*block(&value)].concat(), Reply::Value(value)),
                2 => (Expect::Block, block(&value), Reply::Value(value)),
                _ => (Expect::Value, [b"FAIL", &*block(text.as_bytes())].concat(), Reply::Fail(text)),
            };
            let input = [&*bytes, &*rest].concat();
            prop_assert_eq!(read(expect, &input, &portions).unwrap(), (bytes.len(), Some(reply)));
            // Cut anywhere, it is incomplete and no error.
            let cut = &bytes[..bytes.len() - 1];
            prop_assert_eq!(read(expect, cut, &portions).unwrap(), (cut.len(), None));
        }

        #[test]
        fn no_bytes_make_it_panic_or_take_too_much(
            bytes in proptest::collection::vec(any::<u8>(), 0..64),
            okay in any::<bool>(),
        ) {
            let input = if okay { [b"OKAY", &*bytes].concat() } else { bytes };
            if let Ok((taken, _)) = read(Expect::Value, &input, &[7]) {
                prop_assert!(taken <= input.len());
            }
        }
    }
}
