//! The operations for candle tensors on the CPU, and with the feature `cuda` on a GPU.
//!
//! Two that compose with automatic differentiation, [`log_prob_entropy`] and [`rl_loss`], and one
//! that does without it: [`rl_loss_in_place`] overwrites the logits by their gradient, for callers
//! that drive the backward pass themselves. Candle adds every gradient into a fresh tensor of
//! zeros; at `[8192, 152064]` that is several passes over gigabytes, which a trainer can avoid.

use candle_core::{
    CpuStorage, CustomOp1, DType, InplaceOp1, Layout, Shape as TensorShape, Storage, Tensor,
    WithDType, backend::BackendStorage,
};
use half::{bf16, f16};

use crate::{
    Cpu, Element, Error, Labels, Logits, LogitsMut, Result, RlLoss, RowStats, Sequences, Token,
    TokenLoss, TokenOutcome, label_gradient::label_gradient,
};

/// What [`rl_loss`] gives.
#[derive(Clone, Debug)]
pub struct LossOutput {
    /// The loss as a scalar tensor of the logits' type, with its gradient.
    pub loss: Tensor,
    /// The loss in full precision.
    pub value: f64,
    /// What each token gave.
    pub outcomes: Vec<TokenOutcome>,
    /// Rows without a finite log-probability; the loss is then NaN.
    pub bad_rows: usize,
}

/// Runs `$body` with `$element` as the number type of `$tensor`.
macro_rules! by_type {
    ($tensor:expr, $element:ident => $body:expr) => {
        match $tensor.dtype() {
            DType::F32 => {
                type $element = f32;
                $body
            }
            DType::F64 => {
                type $element = f64;
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
            other => Err(Error::Unsupported(format!("{other:?}"))),
        }
    };
}

/// Log-probabilities and entropies of the labels under `logits` `[rows, vocab]` (CPU). No gradient.
///
/// # Errors
/// [`Error::Length`], [`Error::Temperature`], [`Error::Unsupported`].
pub fn row_stats(logits: &Tensor, labels: &Labels<'_>) -> Result<Vec<RowStats>> {
    let (rows, vocab) = logits.dims2()?;
    let logits = logits.contiguous()?;
    #[cfg(feature = "cuda")]
    if let (Storage::Cuda(storage), layout) = (&*logits.storage_and_layout().0, logits.layout()) {
        return Ok(crate::cuda::candle::row_stats(storage, layout, labels)?);
    }
    by_type!(logits, E => with_rows(&logits, |data: &[E]| {
        Cpu::new().log_prob_entropy(Logits::new(data, rows, vocab)?, labels)
    })?)
}

/// Log-probabilities (first column) and entropies (second) of `targets` under `logits`
/// `[rows, vocab]` (CPU) as a tensor `[rows, 2]`, differentiable once with respect to the logits.
/// f64 logits give f64, others f32.
///
/// # Errors
/// [`Error::Length`], [`Error::Temperature`], [`Error::Unsupported`].
///
/// ```
/// use candle_core::{Device, Var};
/// use dart_kernels::candle_op::log_prob_entropy;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let logits = Var::new(&[[0f32, 0.0]], &Device::Cpu)?;
/// let output = log_prob_entropy(&logits, &[1], 1.0)?;
/// let gradients = output.narrow(1, 0, 1)?.sum_all()?.backward()?;
/// assert_eq!(gradients.get(&logits).unwrap().to_vec2::<f32>()?, [[-0.5, 0.5]]);
/// # Ok(())
/// # }
/// ```
pub fn log_prob_entropy(logits: &Tensor, targets: &[u32], temperature: f64) -> Result<Tensor> {
    let (rows, vocab) = logits.dims2()?;
    let op = LogProbEntropy {
        targets: targets.to_vec(),
        temperature,
        shape: (rows, vocab),
    };
    // Checked here, where the error keeps its type.
    op.labels().check(crate::Shape::dense(rows, vocab))?;
    by_type!(logits, E => { let _: Option<E> = None; Ok(()) })?;
    Ok(logits.contiguous()?.apply_op1(op)?)
}

struct LogProbEntropy {
    targets: Vec<u32>,
    temperature: f64,
    shape: (usize, usize),
}

impl LogProbEntropy {
    fn labels(&self) -> Labels<'_> {
        Labels {
            temperature: crate::Temperature::Shared(self.temperature),
            ..Labels::new(&self.targets)
        }
    }

    fn forward<E: Element>(&self, data: &[E]) -> Result<Vec<f64>> {
        let logits = Logits::new(data, self.shape.0, self.shape.1)?;
        let rows = Cpu::new().log_prob_entropy(logits, &self.labels())?;
        Ok(rows
            .iter()
            .flat_map(|row| [row.log_prob, row.entropy])
            .collect())
    }
}

impl CustomOp1 for LogProbEntropy {
    fn name(&self) -> &'static str {
        "log-prob-entropy"
    }

    fn cpu_fwd(
        &self,
        storage: &CpuStorage,
        layout: &Layout,
    ) -> candle_core::Result<(CpuStorage, TensorShape)> {
        let Some((start, end)) = layout.contiguous_offsets() else {
            candle_core::bail!("logits are not contiguous");
        };
        let numbers = by_type!(storage, E => self.forward(&storage.as_slice::<E>()?[start..end]));
        let numbers = numbers.map_err(candle_core::Error::wrap)?;
        let output = match storage.dtype() {
            DType::F64 => CpuStorage::F64(numbers),
            _ => CpuStorage::F32(numbers.into_iter().map(|x| x as f32).collect()),
        };
        Ok((output, TensorShape::from((self.shape.0, 2))))
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(
        &self,
        storage: &candle_core::CudaStorage,
        layout: &Layout,
    ) -> candle_core::Result<(candle_core::CudaStorage, TensorShape)> {
        crate::cuda::candle::log_prob_entropy(storage, layout, &self.labels())
    }

    fn bwd(&self, arg: &Tensor, _: &Tensor, grad: &Tensor) -> candle_core::Result<Option<Tensor>> {
        let by: Vec<f64> = grad.to_dtype(DType::F64)?.flatten_all()?.to_vec1()?;
        let (rows, vocab) = self.shape;
        let arg = arg.contiguous()?;
        #[cfg(feature = "cuda")]
        if arg.device().is_cuda() {
            return crate::cuda::candle::label_gradient(&arg, &self.labels(), &by).map(Some);
        }
        let gradient = by_type!(arg, E => {
            let mut data: Vec<E> = arg.flatten_all()?.to_vec1()?;
            let logits = LogitsMut::new(&mut data, rows, vocab);
            logits
                .and_then(|logits| label_gradient(Cpu::new(), logits, &self.labels(), &by))
                .and_then(|()| Ok(Tensor::from_vec(data, (rows, vocab), arg.device())?))
        });
        gradient.map(Some).map_err(candle_core::Error::wrap)
    }
}

/// Loss of `tokens` under `logits` `[tokens, vocab]` (CPU), differentiable once with respect to the
/// logits, which stay as they are. The gradient is made together with the loss.
///
/// # Errors
/// [`Error::Length`], [`Error::Sequences`], [`Error::Temperature`], [`Error::Unsupported`].
///
/// ```
/// use candle_core::{Device, Var};
/// use dart_kernels::{Sequences, Token, TokenLoss, candle_op::rl_loss};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let logits = Var::new(&[[0f32, 0.0]], &Device::Cpu)?;
/// let token = Token {
///     target: 1, temperature: 1.0, weight: 1.0, advantage: 1.0,
///     old: None, rollout: None, reference: None,
/// };
/// let output = rl_loss(&logits, &[token], &Sequences::single_tokens(1), &TokenLoss::LIKELIHOOD)?;
/// let gradients = output.loss.backward()?;
/// assert_eq!(gradients.get(&logits).unwrap().to_vec2::<f32>()?, [[0.5, -0.5]]);
/// # Ok(())
/// # }
/// ```
pub fn rl_loss(
    logits: &Tensor,
    tokens: &[Token],
    sequences: &Sequences,
    loss: &TokenLoss,
) -> Result<LossOutput> {
    let gradient = logits.detach().copy()?.contiguous()?;
    let result = rl_loss_in_place(&gradient, tokens, sequences, loss)?;
    let op = WithGradient {
        value: result.loss,
        gradient,
    };
    Ok(LossOutput {
        loss: logits.apply_op1(op)?,
        value: result.loss,
        outcomes: result.outcomes,
        bad_rows: result.bad_rows,
    })
}

/// Loss of `tokens` under `logits` `[tokens, vocab]` (CPU, contiguous), whose storage is overwritten
/// by the gradient: every tensor that shares it changes. Outside automatic differentiation.
///
/// # Errors
/// [`Error::Length`], [`Error::Sequences`], [`Error::Temperature`], [`Error::Unsupported`]; nothing
/// is written then.
pub fn rl_loss_in_place(
    logits: &Tensor,
    tokens: &[Token],
    sequences: &Sequences,
    loss: &TokenLoss,
) -> Result<RlLoss> {
    if !logits.is_contiguous() {
        return Err(Error::Unsupported("not contiguous".into()));
    }
    let op = InPlace {
        shape: logits.dims2()?,
        tokens,
        sequences,
        loss,
        result: std::cell::RefCell::new(None),
    };
    logits.inplace_op1(&op)?;
    let missing = || Error::Unsupported("on a device without this operation".into());
    op.result.into_inner().ok_or_else(missing)?
}

struct InPlace<'a> {
    shape: (usize, usize),
    tokens: &'a [Token],
    sequences: &'a Sequences,
    loss: &'a TokenLoss,
    result: std::cell::RefCell<Option<Result<RlLoss>>>,
}

impl InPlace<'_> {
    fn run<E: Element>(&self, data: &mut [E]) -> Result<RlLoss> {
        let logits = LogitsMut::new(data, self.shape.0, self.shape.1)?;
        Cpu::new().rl_loss_in_place(logits, self.tokens, self.sequences, self.loss)
    }
}

impl InplaceOp1 for InPlace<'_> {
    fn name(&self) -> &'static str {
        "rl-loss-in-place"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> candle_core::Result<()> {
        let Some((start, end)) = layout.contiguous_offsets() else {
            candle_core::bail!("logits are not contiguous");
        };
        let result = match storage {
            CpuStorage::F32(data) => self.run(&mut data[start..end]),
            CpuStorage::F64(data) => self.run(&mut data[start..end]),
            CpuStorage::BF16(data) => self.run(&mut data[start..end]),
            CpuStorage::F16(data) => self.run(&mut data[start..end]),
            other => Err(Error::Unsupported(format!("{:?}", other.dtype()))),
        };
        *self.result.borrow_mut() = Some(result);
        Ok(())
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(
        &self,
        storage: &mut candle_core::CudaStorage,
        layout: &Layout,
    ) -> candle_core::Result<()> {
        let tokens = (self.tokens, self.sequences);
        let result = crate::cuda::candle::rl_loss_in_place(storage, layout, tokens, self.loss);
        *self.result.borrow_mut() = Some(result.map_err(Error::from));
        Ok(())
    }
}

/// Lends the numbers of a contiguous CPU tensor without copying them.
fn with_rows<T: WithDType, R>(tensor: &Tensor, read: impl FnOnce(&[T]) -> R) -> Result<R> {
    let (storage, layout) = tensor.storage_and_layout();
    let Storage::Cpu(storage) = &*storage else {
        return Err(Error::Unsupported("on another device".into()));
    };
    let start = layout.start_offset();
    let all = storage.as_slice::<T>()?;
    Ok(read(&all[start..start + tensor.elem_count()]))
}

/// A scalar whose gradient with respect to the argument is known already.
struct WithGradient {
    value: f64,
    gradient: Tensor,
}

impl WithGradient {
    fn number(&self, dtype: DType) -> CpuStorage {
        match dtype {
            DType::F64 => CpuStorage::F64(vec![self.value]),
            DType::BF16 => CpuStorage::BF16(vec![bf16::from_f64(self.value)]),
            DType::F16 => CpuStorage::F16(vec![f16::from_f64(self.value)]),
            _ => CpuStorage::F32(vec![self.value as f32]),
        }
    }
}

impl CustomOp1 for WithGradient {
    fn name(&self) -> &'static str {
        "rl-loss"
    }

    fn cpu_fwd(
        &self,
        storage: &CpuStorage,
        _: &Layout,
    ) -> candle_core::Result<(CpuStorage, TensorShape)> {
        Ok((self.number(storage.dtype()), TensorShape::from(())))
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(
        &self,
        storage: &candle_core::CudaStorage,
        _: &Layout,
    ) -> candle_core::Result<(candle_core::CudaStorage, TensorShape)> {
        let number = self.number(storage.dtype());
        let number = crate::cuda::candle::on_device(storage, &number)?;
        Ok((number, TensorShape::from(())))
    }

    fn bwd(&self, _: &Tensor, _: &Tensor, grad: &Tensor) -> candle_core::Result<Option<Tensor>> {
        // Nearly always 1: then the multiplication, a pass over all logits, is saved.
        if grad.to_dtype(DType::F64)?.to_scalar::<f64>()? == 1.0 {
            return Ok(Some(self.gradient.clone()));
        }
        self.gradient.broadcast_mul(grad).map(Some)
    }
}
