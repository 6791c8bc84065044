//! Rows of a rectangle, plain or through zlib, some tens of KiB at a time: what was inflated is
//! still in the cache when it is painted, and no rectangle is held twice.

use super::{
    super::{error::RfbError, framebuffer::Area},
    inflate::Inflation,
};

#[derive(Debug)]
enum Source<'a> {
    Plain(&'a [u8]),
    Inflated(Inflation<'a>),
}

/// The rows of a rectangle, top to bottom.
#[derive(Debug)]
pub(crate) struct Rows<'a> {
    source: Source<'a>,
    left: Area,
    row: usize,
    buffer: Vec<u8>,
}

impl<'a> Rows<'a> {
    /// Bytes to have in memory at once, about; at least a row.
    const CHUNK: usize = 32 << 10;

    /// Rows of `row` bytes from `bytes`.
    pub(crate) fn plain(bytes: &'a [u8], area: Area, row: usize) -> Self {
        Self {
            source: Source::Plain(bytes),
            left: area,
            row,
            buffer: Vec::new(),
        }
    }

    /// Rows of `row` bytes from a stream.
    pub(crate) fn inflated(stream: Inflation<'a>, area: Area, row: usize) -> Self {
        let chunk = (Self::CHUNK / row.max(1)).max(1) * row;
        Self {
            source: Source::Inflated(stream),
            left: area,
            row,
            buffer: vec![0; chunk.min(row * usize::from(area.height))],
        }
    }

    /// The next rows and their place; `None` after the last.
    pub(crate) fn next_rows(&mut self) -> Result<Option<(Area, &[u8])>, RfbError> {
        if self.left.height == 0 || self.row == 0 {
            return Ok(None);
        }
        let at_once = match &self.source {
            Source::Plain(_) => usize::from(self.left.height),
            Source::Inflated(_) => self.buffer.len() / self.row,
        };
        let height = self
            .left
            .height
            .min(u16::try_from(at_once).unwrap_or(u16::MAX));
        let length = usize::from(height) * self.row;
        let part = Area {
            height,
            ..self.left
        };
        self.left.y += height;
        self.left.height -= height;
        let bytes = match &mut self.source {
            Source::Plain(bytes) => {
                let (rows, rest) = bytes.split_at_checked(length).ok_or(RfbError::Malformed {
                    what: "pixels end before the rectangle does",
                })?;
                *bytes = rest;
                rows
            }
            Source::Inflated(stream) => {
                let rows = &mut self.buffer[..length];
                stream.exact(rows)?;
                &*rows
            }
        };
        Ok(Some((part, bytes)))
    }

    /// Fails if there is more than the rectangle needs.
    pub(crate) fn finish(self) -> Result<(), RfbError> {
        match self.source {
            Source::Plain([]) => Ok(()),
            Source::Plain(_) => Err(RfbError::Malformed {
                what: "pixels go on after the rectangle",
            }),
            Source::Inflated(stream) => stream.finish(),
        }
    }
}
