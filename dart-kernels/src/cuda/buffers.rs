//! [`DeviceLogits`], [`DeviceLogitsMut`]: rows of logits in the memory of the GPU.

use cudarc::driver::{CudaSlice, CudaView, CudaViewMut};

use super::{error::Result, plan::int};
use crate::{Error, Shape};

/// Rows of logits on the device, row-major, possibly with gaps between rows.
#[derive(Debug)]
pub struct DeviceLogits<'a, T> {
    pub(super) data: CudaView<'a, T>,
    shape: Shape,
}

/// [`DeviceLogits`] that may be overwritten by their gradient.
#[derive(Debug)]
pub struct DeviceLogitsMut<'a, T> {
    pub(super) data: CudaViewMut<'a, T>,
    shape: Shape,
}

/// Row numbers for one launch, as the kernels take them.
pub(super) struct Rows {
    pub(super) stride: i64,
    pub(super) vocab: i32,
}

/// Checks that rows of `shape` lie in `elements` elements and that a kernel can count them.
fn check(shape: Shape, elements: usize) -> Result<Shape> {
    let shape = shape.check(elements)?;
    int("the vocabulary", shape.vocab)?;
    // Never larger than the memory; said all the same, since the kernels take it as 64 bits.
    i64::try_from(shape.row_stride).map_err(|_| Error::Shape {
        elements,
        rows: shape.rows,
        vocab: shape.vocab,
    })?;
    Ok(shape)
}

impl<'a, T> DeviceLogits<'a, T> {
    /// Rows that lie in `data`.
    ///
    /// # Errors
    /// [`Error::Shape`] if `data` does not hold every row or rows overlap;
    /// [`super::Error::TooLarge`] for a vocabulary of 2³¹ or more.
    pub fn new(data: &'a CudaSlice<T>, shape: Shape) -> Result<Self> {
        Self::from_view(data.as_view(), shape)
    }

    /// Rows that lie in a part of a buffer.
    ///
    /// # Errors
    /// As [`DeviceLogits::new`].
    pub fn from_view(data: CudaView<'a, T>, shape: Shape) -> Result<Self> {
        let shape = check(shape, data.len())?;
        Ok(Self { data, shape })
    }

    /// Rows, vocabulary and stride.
    pub fn shape(&self) -> Shape {
        self.shape
    }
}

impl<'a, T> DeviceLogitsMut<'a, T> {
    /// Rows that lie in `data`. What lies in gaps is neither read nor written.
    ///
    /// # Errors
    /// As [`DeviceLogits::new`].
    pub fn new(data: &'a mut CudaSlice<T>, shape: Shape) -> Result<Self> {
        Self::from_view(data.as_view_mut(), shape)
    }

    /// Rows that lie in a part of a buffer.
    ///
    /// # Errors
    /// As [`DeviceLogits::new`].
    pub fn from_view(data: CudaViewMut<'a, T>, shape: Shape) -> Result<Self> {
        let shape = check(shape, data.len())?;
        Ok(Self { data, shape })
    }

    /// Rows, vocabulary and stride.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The same rows, for reading.
    pub fn as_logits(&self) -> DeviceLogits<'_, T> {
        DeviceLogits {
            data: self.data.as_view(),
            shape: self.shape,
        }
    }
}

impl Rows {
    pub(super) fn of(shape: Shape) -> Self {
        // Both were checked when the rows were made.
        Self {
            stride: shape.row_stride as i64,
            vocab: shape.vocab as i32,
        }
    }
}

/// Where the rows `rows` begin and end in the buffer.
pub(super) fn elements(shape: Shape, rows: &std::ops::Range<usize>) -> std::ops::Range<usize> {
    let end = (rows.end - 1) * shape.row_stride + shape.vocab;
    rows.start * shape.row_stride..end
}
