//! Clipboards: Latin-1 text (RFC 6143 §7.5.6, §7.6.4), and the extended messages that carry UTF-8
//! (rfbproto, pseudo-encoding 0xC0A1E5CE).
//!
//! An extended message is a cut text of negative length: 32 bits of flags, then by action nothing,
//! sizes, or a zlib stream of its own. Only text is exchanged. What comes out of a stream is
//! bounded, and text beyond the bound is dropped rather than cut: a plain message is passed over
//! without being held.

use std::io::{Read, Write};

use flate2::{Compression, read::ZlibDecoder, write::ZlibEncoder};

use super::super::{
    error::RfbError,
    limits::{MAX_CUT_TEXT_BYTES, MAX_DROPPED_TEXT_BYTES},
    wire::{Stop, Wire, check_limit},
};

const TEXT: u32 = 1;
const CAPS: u32 = 1 << 24;
const REQUEST: u32 = 1 << 25;
const PEEK: u32 = 1 << 26;
const NOTIFY: u32 = 1 << 27;
const PROVIDE: u32 = 1 << 28;

/// What a cut text came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    /// The server's clipboard has this text.
    Text(String),
    /// It has text that is too long, or none.
    Unknown,
    /// The same, and so many bytes of the message are still to be passed over.
    Long(u32),
    /// It speaks extended messages.
    Caps,
    /// It has new text and waits to be asked for it.
    Announced,
    /// It asks for our text.
    Requested,
    /// It asks whether we have text.
    Peeked,
    /// Nothing that concerns us.
    Other,
}

/// Reads a cut text after its message type and padding.
pub(super) fn read(wire: &mut Wire<'_>) -> Result<Cut, Stop> {
    let length = wire.i32()?;
    let bytes = length.unsigned_abs();
    let limit = MAX_DROPPED_TEXT_BYTES;
    check_limit("clipboard text", bytes.into(), limit.into())?;
    if bytes > MAX_CUT_TEXT_BYTES {
        return Ok(Cut::Long(bytes));
    }
    let bytes = wire.take(bytes as usize)?;
    if length >= 0 {
        return Ok(Cut::Text(of_latin_1(bytes)));
    }
    let mut inside = Wire::new(bytes);
    match extended(&mut inside) {
        // The message is complete: what is missing in it will not come.
        Err(Stop::Incomplete) => {
            let what = "an extended clipboard message is too short";
            Err(RfbError::Malformed { what }.into())
        }
        other => other,
    }
}

fn extended(wire: &mut Wire<'_>) -> Result<Cut, Stop> {
    let flags = wire.u32()?;
    let text = flags & TEXT != 0;
    Ok(match flags {
        _ if flags & CAPS != 0 => Cut::Caps,
        _ if flags & PROVIDE != 0 && text => inflate(wire.peek())?.map_or(Cut::Unknown, Cut::Text),
        _ if flags & NOTIFY != 0 && text => Cut::Announced,
        _ if flags & NOTIFY != 0 => Cut::Unknown,
        _ if flags & REQUEST != 0 && text => Cut::Requested,
        _ if flags & PEEK != 0 => Cut::Peeked,
        _ => Cut::Other,
    })
}

/// The text of a stream: its size, then UTF-8 with a final zero.
fn inflate(stream: &[u8]) -> Result<Option<String>, RfbError> {
    let damaged = |_| RfbError::Malformed {
        what: "compressed clipboard data are damaged",
    };
    let mut stream = ZlibDecoder::new(stream);
    let mut size = [0; 4];
    stream.read_exact(&mut size).map_err(damaged)?;
    let size = u32::from_be_bytes(size);
    if size > MAX_CUT_TEXT_BYTES {
        return Ok(None);
    }
    let mut text = Vec::new();
    let taken = stream.take(size.into()).read_to_end(&mut text);
    taken.map_err(damaged)?;
    if text.len() < size as usize {
        let what = "compressed clipboard data are too short";
        return Err(RfbError::Malformed { what });
    }
    let text = String::from_utf8_lossy(&text);
    Ok(Some(text.trim_end_matches('\0').replace("\r\n", "\n")))
}

/// Latin-1: each byte is a code point.
fn of_latin_1(bytes: &[u8]) -> String {
    let text: String = bytes.iter().copied().map(char::from).collect();
    text.replace("\r\n", "\n")
}

/// Text as a client's Latin-1 cut text, or `None` if it has other characters.
pub(crate) fn latin_1(text: &str) -> Option<Vec<u8>> {
    let bytes = text.chars().map(|c| u8::try_from(u32::from(c)).ok());
    let bytes: Vec<u8> = bytes.collect::<Option<_>>()?;
    let mut out = vec![6, 0, 0, 0];
    out.extend((bytes.len() as u32).to_be_bytes());
    out.extend(bytes);
    Some(out)
}

fn message(flags: u32, payload: &[u8], out: &mut Vec<u8>) {
    let length = -(payload.len() as i32 + 4);
    out.extend([6, 0, 0, 0]);
    out.extend(length.to_be_bytes());
    out.extend(flags.to_be_bytes());
    out.extend(payload);
}

/// What we can do: exchange text, each direction when it is wanted.
pub(super) fn caps(out: &mut Vec<u8>) {
    let flags = CAPS | REQUEST | PEEK | NOTIFY | PROVIDE | TEXT;
    // Nothing is to be sent unasked.
    message(flags, &0u32.to_be_bytes(), out);
}

/// Asks for the server's text.
pub(super) fn request(out: &mut Vec<u8>) {
    message(REQUEST | TEXT, &[], out);
}

/// Says whether we have text.
pub(crate) fn notify(text: bool, out: &mut Vec<u8>) {
    message(NOTIFY | u32::from(text), &[], out);
}

/// Our text, as an answer.
pub(crate) fn provide(text: &str, out: &mut Vec<u8>) {
    let text = text.replace("\r\n", "\n").replace('\n', "\r\n");
    let mut stream = ZlibEncoder::new(Vec::new(), Compression::fast());
    let size = text.len() as u32 + 1;
    let written = stream
        .write_all(&size.to_be_bytes())
        .and_then(|()| stream.write_all(text.as_bytes()))
        .and_then(|()| stream.write_all(&[0]))
        .and_then(|()| stream.finish());
    // Writing into memory cannot fail; without a stream there is nothing to say.
    if let Ok(stream) = written {
        message(PROVIDE | TEXT, &stream, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_message(message: &[u8]) -> Result<Cut, Stop> {
        read(&mut Wire::new(&message[4..]))
    }

    #[test]
    fn utf_8_survives_both_ways() {
        for text in ["", "é 你好 € 😀", "two\nlines\n", &"x".repeat(100_000)] {
            let mut out = Vec::new();
            provide(text, &mut out);
            let cut = read_message(&out).unwrap();
            assert_eq!(cut, Cut::Text(text.to_owned()));
        }
    }

    #[test]
    fn latin_1_is_read_and_written_as_such() {
        let message = latin_1("hé\n").unwrap();
        assert_eq!(message, [6, 0, 0, 0, 0, 0, 0, 3, b'h', 0xe9, b'\n']);
        assert_eq!(
            read_message(&message).unwrap(),
            Cut::Text("hé\n".to_owned())
        );
        assert_eq!(latin_1("€"), None);
    }

    #[test]
    fn actions_are_told_apart() {
        let of = |flags: u32| {
            let mut out = Vec::new();
            message(flags, &[], &mut out);
            read_message(&out).unwrap()
        };
        assert_eq!(of(0x1f00_0001), Cut::Caps);
        assert_eq!(of(NOTIFY | TEXT), Cut::Announced);
        assert_eq!(of(NOTIFY), Cut::Unknown);
        assert_eq!(of(REQUEST | TEXT), Cut::Requested);
        assert_eq!(of(PEEK), Cut::Peeked);
        assert_eq!(of(PROVIDE | 2), Cut::Other);
    }

    /// A zlib stream of a thousand bytes can hold a megabyte: the claimed size decides, and what
    /// does not fit is damage.
    #[test]
    fn compressed_text_is_bounded() {
        let compressed = |size: u32, bytes: usize| {
            let mut stream = ZlibEncoder::new(Vec::new(), Compression::best());
            stream.write_all(&size.to_be_bytes()).unwrap();
            stream.write_all(&vec![b'x'; bytes]).unwrap();
            let mut out = Vec::new();
            message(PROVIDE | TEXT, &stream.finish().unwrap(), &mut out);
            read_message(&out)
        };
        let large = compressed(MAX_CUT_TEXT_BYTES + 1, 2 << 20);
        assert_eq!(large.unwrap(), Cut::Unknown);
        let more = compressed(3, 64 << 20);
        assert_eq!(more.unwrap(), Cut::Text("xxx".to_owned()));
        assert!(compressed(4, 3).is_err());
        let mut damaged = Vec::new();
        message(PROVIDE | TEXT, &[7; 30], &mut damaged);
        assert!(read_message(&damaged).is_err());
        assert!(read_message(&[3, 0, 0, 0, 255, 255, 255, 254, 1, 2]).is_err());
        let lowest = [3, 0, 0, 0, 0x80, 0, 0, 0];
        assert!(matches!(
            read_message(&lowest),
            Err(Stop::Fault(RfbError::TooLarge { .. }))
        ));
    }
}
