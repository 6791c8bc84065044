//! The shell service, version 2 (`shell,v2,raw:…`), sans I/O.
//!
//! Source: AOSP `packages/modules/adb`, `shell_protocol.h`. Both sides send packets: one byte for the
//! kind, the length as 32 bits, low byte first, then the data. The last packet of the device is the
//! exit code; nothing is to be read after it (a client that reads on until the connection ends loses
//! the code, as was seen in the field).
//!
//! # Bounds
//! Data is handed on as it arrives, so an announced length of 4 GiB costs nothing.

use dart_core::Result;

use crate::error::{Adb, AdbError};

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const EXIT: u8 = 3;
const CLOSE_STDIN: u8 = 4;
const HEADER: usize = 5;

/// The packet that gives `data` to the command's standard input.
///
/// # Errors
/// [`Misuse`](dart_core::ErrorKind::Misuse) if the length does not fit into 32 bits.
pub fn stdin(data: &[u8]) -> Result<Vec<u8>> {
    let length = u32::try_from(data.len());
    let length = length.map_err(|_| AdbError::PacketLength(data.len()).at("write stdin"))?;
    Ok([&[STDIN], &length.to_le_bytes()[..], data].concat())
}

/// The packet that ends the command's standard input.
pub const fn close_stdin() -> [u8; HEADER] {
    [CLOSE_STDIN, 0, 0, 0, 0]
}

/// What a command says. Output comes in pieces of any length, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShellEvent {
    /// A piece of standard output.
    Stdout(Vec<u8>),
    /// A piece of standard error.
    Stderr(Vec<u8>),
    /// The command has ended with this code. The last event.
    Exit(u8),
}

/// Reads what a command says from bytes that arrive in any portions.
///
/// ```
/// use dart_env_adb::wire::shell::{ShellEvent, ShellReader};
///
/// let mut reader = ShellReader::default();
/// let events = reader.push(b"\x01\x03\0\0\0hi\n\x03\x01\0\0\0\x07").unwrap();
/// assert_eq!(events, [ShellEvent::Stdout(b"hi\n".to_vec()), ShellEvent::Exit(7)]);
/// ```
#[derive(Clone, Debug, Default)]
pub struct ShellReader {
    /// The header of the present packet so far.
    header: [u8; HEADER],
    have: usize,
    /// Data bytes that the present packet still has.
    left: u32,
    exited: bool,
}

impl ShellReader {
    /// Takes all of `input`.
    ///
    /// # Errors
    /// [`Protocol`](dart_core::ErrorKind::Protocol) if the peer does not speak this protocol: drop the
    /// connection. [`Misuse`](dart_core::ErrorKind::Misuse) for bytes after the exit code.
    pub fn push(&mut self, input: &[u8]) -> Result<Vec<ShellEvent>> {
        self.take_all(input).map_err(|error| error.at("read shell"))
    }

    pub(crate) fn take_all(&mut self, input: &[u8]) -> Adb<Vec<ShellEvent>> {
        let mut events = Vec::new();
        let mut rest = input;
        while !rest.is_empty() {
            rest = self.take(rest, &mut events)?;
        }
        Ok(events)
    }

    /// Whether the exit code has been read.
    pub const fn has_exited(&self) -> bool {
        self.exited
    }

    /// Takes one header byte or as much data as there is; gives what is left of the input.
    fn take<'a>(&mut self, input: &'a [u8], events: &mut Vec<ShellEvent>) -> Adb<&'a [u8]> {
        if self.exited {
            return Err(AdbError::Complete);
        }
        if self.have < HEADER {
            self.header[self.have] = input[0];
            self.have += 1;
            if self.have == HEADER {
                self.begin()?;
            }
            return Ok(&input[1..]);
        }
        let (data, rest) = input.split_at(input.len().min(self.left as usize));
        self.left -= data.len() as u32;
        if self.left == 0 {
            self.have = 0;
        }
        events.push(match self.header[0] {
            STDOUT => ShellEvent::Stdout(data.to_vec()),
            STDERR => ShellEvent::Stderr(data.to_vec()),
            _ => {
                self.exited = true;
                ShellEvent::Exit(data[0])
            }
        });
        Ok(rest)
    }

    /// Begins the packet whose header is complete.
    fn begin(&mut self) -> Adb<()> {
        let [kind, a, b, c, d] = self.header;
        self.left = u32::from_le_bytes([a, b, c, d]);
        match kind {
            STDOUT | STDERR => {}
            EXIT if self.left == 1 => {}
            EXIT => return Err(AdbError::ExitLength(self.left)),
            other => return Err(AdbError::PacketKind(other)),
        }
        if self.left == 0 {
            self.have = 0;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use dart_core::ErrorKind;
    use proptest::prelude::*;

    use super::*;

    fn packet(kind: u8, data: &[u8]) -> Vec<u8> {
        [&[kind], &(data.len() as u32).to_le_bytes()[..], data].concat()
    }

    /// Output, errors and exit code of a whole session.
    fn gather(events: Vec<ShellEvent>) -> (Vec<u8>, Vec<u8>, Option<u8>) {
        let mut all = (Vec::new(), Vec::new(), None);
        for event in events {
            match event {
                ShellEvent::Stdout(data) => all.0.extend(data),
                ShellEvent::Stderr(data) => all.1.extend(data),
                ShellEvent::Exit(code) => all.2 = Some(code),
            }
        }
        all
    }

    #[test]
    fn packets_to_the_device_are_as_the_header_file_has_them() {
        assert_eq!(stdin(b"ab").unwrap(), b"\x00\x02\0\0\0ab");
        assert_eq!(close_stdin(), *b"\x04\0\0\0\0");
    }

    #[test]
    fn an_announced_length_costs_nothing() {
        let mut reader = ShellReader::default();
        assert_eq!(reader.push(b"\x01\xff\xff\xff\xff").unwrap(), []);
        let events = reader.push(b"x").unwrap();
        assert_eq!(events, [ShellEvent::Stdout(b"x".to_vec())]);
    }

    #[test]
    fn what_a_shell_does_not_send_is_refused() {
        for bytes in [&b"\x09\0\0\0\0"[..], b"\x00\x01\0\0\0a", b"\x03\x04\0\0\0"] {
            let error = ShellReader::default().push(bytes).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Protocol, "{bytes:?}");
        }
        let mut reader = ShellReader::default();
        reader.push(&packet(EXIT, &[127])).unwrap();
        assert!(reader.has_exited());
        assert_eq!(reader.push(b"x").unwrap_err().kind(), ErrorKind::Misuse);
    }

    proptest! {
        #[test]
        fn any_session_is_read_in_any_portions(
            pieces in proptest::collection::vec(
                (any::<bool>(), proptest::collection::vec(any::<u8>(), 0..50)), 0..12),
            code in any::<u8>(),
            portion in 1usize..64,
        ) {
            let (mut out, mut err, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
            for (is_out, data) in &pieces {
                bytes.extend(packet(if *is_out { STDOUT } else { STDERR }, data));
                if *is_out { &mut out } else { &mut err }.extend(data);
            }
            bytes.extend(packet(EXIT, &[code]));
            let mut reader = ShellReader::default();
            let mut events = Vec::new();
            for portion in bytes.chunks(portion) {
                prop_assert!(!reader.has_exited());
                events.extend(reader.push(portion).unwrap());
            }
            prop_assert_eq!(gather(events), (out, err, Some(code)));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(0u8..5, 0..64)) {
            let mut reader = ShellReader::default();
            if let Ok(events) = reader.push(&bytes) {
                let (out, err, _) = gather(events);
                prop_assert!(out.len() + err.len() <= bytes.len());
            }
        }
    }
}
