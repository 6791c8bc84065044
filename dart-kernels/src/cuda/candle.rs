//! Feature `cuda`: what [`crate::candle_op`] does with tensors that live on a GPU.
//!
//! Kernels run on the stream of candle's device, so their order among candle's own is that of the
//! calls. Storage is used where it lies; nothing of the size of the logits is copied.

use std::sync::{Mutex, PoisonError};

use candle_core::{
    CpuStorage, CudaStorage, DType, InplaceOp1, Layout, Shape as TensorShape, Tensor,
    backend::BackendDevice,
    cuda_backend::{CudaDType, CudaDevice, DeviceId, cudarc::driver::CudaSlice},
};
use half::{bf16, f16};

use super::{DeviceLogits, DeviceLogitsMut, Error, Gpu, GpuElement, Result};
use crate::{Labels, RlLoss, RowStats, Sequences, Shape, Token, TokenLoss};

/// Devices with the kernels on them, loaded once for each device of candle.
static LOADED: Mutex<Vec<(DeviceId, Gpu)>> = Mutex::new(Vec::new());

fn gpu(device: &CudaDevice) -> Result<Gpu> {
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, gpu)) = loaded.iter().find(|(id, _)| *id == device.id()) {
        return Ok(gpu.clone());
    }
    let gpu = Gpu::on_stream(device.cuda_stream())?;
    loaded.push((device.id(), gpu.clone()));
    Ok(gpu)
}

/// Runs `$body` with `$element` as the number type of a tensor on the GPU.
macro_rules! by_type {
    ($storage:expr, $element:ident => $body:expr) => {
        match candle_core::backend::BackendStorage::dtype($storage) {
            DType::F32 => {
                type $element = f32;
                $body
            }
            DType::BF16 => {
                type $element = bf16;
                $body
            }
            DType::F16 => {
                type $element = f16;
                $body
            }
            other => Err(unsupported(format!("{other:?} on a GPU"))),
        }
    };
}

fn unsupported(what: String) -> Error {
    crate::Error::Unsupported(what).into()
}

/// Where the rows of a contiguous tensor `[rows, vocab]` begin and end, and their shape.
fn rows_of(layout: &Layout) -> Result<(std::ops::Range<usize>, Shape)> {
    let (rows, vocab) = layout.shape().dims2().map_err(crate::Error::from)?;
    let Some((start, end)) = layout.contiguous_offsets() else {
        return Err(unsupported("not contiguous".into()));
    };
    Ok((start..end, Shape::dense(rows, vocab)))
}

fn slice<T: CudaDType>(storage: &CudaStorage) -> Result<&CudaSlice<T>> {
    Ok(storage.as_cuda_slice::<T>().map_err(crate::Error::from)?)
}

/// Statistics of every row.
pub(crate) fn row_stats(
    storage: &CudaStorage,
    layout: &Layout,
    labels: &Labels<'_>,
) -> Result<Vec<RowStats>> {
    fn run<T: GpuElement + CudaDType>(
        storage: &CudaStorage,
        layout: &Layout,
        labels: &Labels<'_>,
    ) -> Result<Vec<RowStats>> {
        let (range, shape) = rows_of(layout)?;
        let view = slice::<T>(storage)?.slice(range);
        let logits = DeviceLogits::from_view(view, shape)?;
        gpu(&storage.device)?.log_prob_entropy(&logits, labels)
    }
    by_type!(storage, E => run::<E>(storage, layout, labels))
}

/// Log-probabilities and entropies as a tensor `[rows, 2]` of f32 on the device.
pub(crate) fn log_prob_entropy(
    storage: &CudaStorage,
    layout: &Layout,
    labels: &Labels<'_>,
) -> candle_core::Result<(CudaStorage, TensorShape)> {
    let stats = row_stats(storage, layout, labels).map_err(candle_core::Error::wrap)?;
    let pairs = stats
        .iter()
        .flat_map(|row| [row.log_prob as f32, row.entropy as f32]);
    let output = on_device(storage, &CpuStorage::F32(pairs.collect()))?;
    Ok((output, TensorShape::from((stats.len(), 2))))
}

/// The same numbers on the device of `beside`.
pub(crate) fn on_device(
    beside: &CudaStorage,
    numbers: &CpuStorage,
) -> candle_core::Result<CudaStorage> {
    beside.device.storage_from_cpu_storage(numbers)
}

/// Loss of `tokens`; the logits become their gradient.
pub(crate) fn rl_loss_in_place(
    storage: &mut CudaStorage,
    layout: &Layout,
    (tokens, sequences): (&[Token], &Sequences),
    loss: &TokenLoss,
) -> Result<RlLoss> {
    with_rows_mut(
        storage,
        layout,
        RlLossRows {
            tokens,
            sequences,
            loss,
        },
    )
}

/// The gradient of a loss that depends on the log-probability and the entropy of each row as `by`
/// says, as a new tensor.
pub(crate) fn label_gradient(
    logits: &Tensor,
    labels: &Labels<'_>,
    by: &[f64],
) -> candle_core::Result<Tensor> {
    let gradient = logits.detach().copy()?;
    gradient.inplace_op1(&LabelGradient { labels, by })?;
    Ok(gradient)
}

/// Something to do with rows of any number type.
trait RowsWork {
    type Output;

    fn run<T: GpuElement>(self, gpu: &Gpu, rows: DeviceLogitsMut<'_, T>) -> Result<Self::Output>;
}

fn with_rows_mut<W: RowsWork>(
    storage: &mut CudaStorage,
    layout: &Layout,
    work: W,
) -> Result<W::Output> {
    fn run<T: GpuElement + CudaDType, W: RowsWork>(
        storage: &mut CudaStorage,
        layout: &Layout,
        work: W,
    ) -> Result<W::Output> {
        let gpu = gpu(&storage.device)?;
        let (range, shape) = rows_of(layout)?;
        let data = storage
            .as_cuda_slice_mut::<T>()
            .map_err(crate::Error::from)?;
        work.run(
            &gpu,
            DeviceLogitsMut::from_view(data.slice_mut(range), shape)?,
        )
    }
    by_type!(storage, E => run::<E, W>(storage, layout, work))
}

struct RlLossRows<'a> {
    tokens: &'a [Token],
    sequences: &'a Sequences,
    loss: &'a TokenLoss,
}

impl RowsWork for RlLossRows<'_> {
    type Output = RlLoss;

    fn run<T: GpuElement>(self, gpu: &Gpu, rows: DeviceLogitsMut<'_, T>) -> Result<RlLoss> {
        gpu.rl_loss_in_place(rows, self.tokens, self.sequences, self.loss)
    }
}

#[derive(Clone, Copy)]
struct LabelGradient<'a> {
    labels: &'a Labels<'a>,
    by: &'a [f64],
}

impl RowsWork for LabelGradient<'_> {
    type Output = ();

    fn run<T: GpuElement>(self, gpu: &Gpu, rows: DeviceLogitsMut<'_, T>) -> Result<()> {
        gpu.label_gradient(rows, self.labels, self.by)
    }
}

impl InplaceOp1 for LabelGradient<'_> {
    fn name(&self) -> &'static str {
        "label-gradient"
    }

    fn cpu_fwd(&self, _: &mut CpuStorage, _: &Layout) -> candle_core::Result<()> {
        candle_core::bail!("this is the operation for GPUs")
    }

    fn cuda_fwd(&self, storage: &mut CudaStorage, layout: &Layout) -> candle_core::Result<()> {
        with_rows_mut(storage, layout, *self).map_err(candle_core::Error::wrap)
    }
}
