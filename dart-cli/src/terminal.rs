//! What the program says. Standard output is its answer, standard error what it tells meanwhile.
//!
//! Whoever reads either may leave early (`| head`): then nothing panics, an answer ends quietly, and
//! a run goes on.

use std::{
    fmt::{self, Display},
    io::{self, Write},
};

use anyhow::Result;

/// Whoever read standard output has left. Ends the command, and is no failure.
#[derive(Debug)]
pub(crate) struct ReaderLeft;

impl Display for ReaderLeft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nobody reads standard output any more")
    }
}

impl std::error::Error for ReaderLeft {}

/// Writes to standard output, as it is.
///
/// # Errors
/// [`ReaderLeft`], or what the system says.
pub(crate) fn print(text: impl Display) -> Result<()> {
    write_to(&mut io::stdout().lock(), text)
}

fn write_to(out: &mut impl Write, text: impl Display) -> Result<()> {
    match write!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(ReaderLeft.into()),
        written => Ok(written?),
    }
}

/// Writes a line to standard error, if anybody reads it.
pub(crate) fn tell_line(line: impl Display) {
    let mut out = io::stderr().lock();
    let _ = writeln!(out, "{line}");
}

/// Tells a line, formatted.
macro_rules! tell {
    ($($text:tt)*) => {
        $crate::terminal::tell_line(format_args!($($text)*))
    };
}
pub(crate) use tell;

#[cfg(test)]
mod tests {
    use super::*;

    struct Closed;

    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_left_is_told_from_a_fault() {
        let left = write_to(&mut Closed, "x").unwrap_err();
        assert!(left.is::<ReaderLeft>());
        let mut full = std::fs::OpenOptions::new()
            .write(true)
            .open("/dev/full")
            .unwrap();
        assert!(!write_to(&mut full, "x").unwrap_err().is::<ReaderLeft>());
    }
}
