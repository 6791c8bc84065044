//! Rows of logits on the host and on the device.

use dart_kernels::{
    Sequences, Shape,
    cuda::{DeviceLogitsMut, Error, Gpu, GpuElement},
    row_stats,
};

use super::{Result, inputs};

pub(super) fn exact<T: GpuElement>(row: &[T]) -> Vec<f64> {
    row.iter().map(|x| (*x).into()).collect()
}

/// Rows with gaps that begin at an odd element of a buffer.
pub(super) struct Rows<T> {
    pub(super) buffer: Vec<T>,
    pub(super) shift: usize,
    pub(super) shape: Shape,
}

impl<T: GpuElement> Rows<T> {
    pub(super) fn new(stream: u64, rows: usize, vocab: usize, shift: usize) -> Self {
        let row_stride = vocab + shift;
        let count = shift + rows * row_stride;
        Self {
            buffer: inputs::logits(stream, 0, count),
            shift,
            shape: Shape {
                rows,
                vocab,
                row_stride,
            },
        }
    }

    pub(super) fn start(&self, row: usize) -> usize {
        self.shift + row * self.shape.row_stride
    }

    pub(super) fn row(&self, row: usize) -> &[T] {
        &self.buffer[self.start(row)..][..self.shape.vocab]
    }

    /// Where the rows lie in the buffer, without the gap after the last.
    pub(super) fn range(&self) -> std::ops::Range<usize> {
        self.shift..self.start(self.shape.rows - 1) + self.shape.vocab
    }

    pub(super) fn run<R>(
        &mut self,
        gpu: &Gpu,
        work: impl FnOnce(DeviceLogitsMut<'_, T>) -> Result<R>,
    ) -> Result<R> {
        let mut device = upload(gpu, &self.buffer)?;
        let range = self.range();
        let result = work(DeviceLogitsMut::from_view(
            device.slice_mut(range),
            self.shape,
        )?)?;
        self.buffer = download(gpu, &device)?;
        Ok(result)
    }
}

pub(super) type Buffer<T> = cudarc::driver::CudaSlice<T>;

pub(crate) fn upload<T: GpuElement>(gpu: &Gpu, numbers: &[T]) -> Result<Buffer<T>> {
    let copied = gpu.stream().clone_htod(numbers);
    copied.map_err(|source| Error::Driver {
        what: "copy inputs",
        source,
    })
}

pub(crate) fn download<T: GpuElement>(gpu: &Gpu, buffer: &Buffer<T>) -> Result<Vec<T>> {
    let mut numbers = vec![T::ZERO; buffer.len()];
    let copied = gpu.stream().memcpy_dtoh(buffer, &mut numbers);
    copied.map_err(|source| Error::Driver {
        what: "copy results",
        source,
    })?;
    gpu.synchronize()?;
    Ok(numbers)
}

/// Sequences of 5, 0, 5, 5, … tokens.
pub(super) fn sequences(tokens: usize) -> Sequences {
    let mut lengths = vec![tokens.min(5), 0];
    while lengths.iter().sum::<usize>() < tokens {
        lengths.push(5.min(tokens - lengths.iter().sum::<usize>()));
    }
    Sequences::from_lengths(&lengths)
}

/// Log-probabilities at temperature 1, for tokens to be near to.
pub(super) fn current<T: GpuElement>(rows: &Rows<T>, stream: u64) -> Vec<f64> {
    let of = |row| {
        let target = inputs::target(stream, row, rows.shape.vocab);
        row_stats(&exact(rows.row(row)), target as usize, 1.0).log_prob
    };
    (0..rows.shape.rows).map(of).collect()
}
