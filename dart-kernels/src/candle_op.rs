//! The kernels for candle tensors on the CPU.
//!
//! The gradient is computed together with the loss and handed over in the backward pass as it is:
//! `[tokens, vocab]` crosses candle's autograd once.

use candle_core::{
    CpuStorage, CustomOp1, DType, Layout, Shape, Storage, Tensor, WithDType,
    backend::BackendStorage,
};

use crate::{
    Element, Error, Result, RowStats, Token, TokenLoss, TokenOutcome, rl_loss::check, rl_loss_rows,
    row_stats,
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

/// Loss of `tokens` under `logits` `[tokens, vocab]` (f32 or f64, CPU), differentiable once with
/// respect to the logits.
///
/// # Errors
/// [`Error::Shape`], [`Error::Temperature`], [`Error::Unsupported`].
///
/// ```
/// use candle_core::{Device, Var};
/// use dart_kernels::{Token, TokenLoss, rl_loss};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let logits = Var::new(&[[0f32, 0.0]], &Device::Cpu)?;
/// let token = Token {
///     target: 1, temperature: 1.0, weight: 1.0, advantage: 1.0,
///     old: None, rollout: None, reference: None,
/// };
/// let output = rl_loss(&logits, &[token], &TokenLoss::LIKELIHOOD)?;
/// let gradients = output.loss.backward()?;
/// assert_eq!(gradients.get(&logits).unwrap().to_vec2::<f32>()?, [[0.5, -0.5]]);
/// # Ok(())
/// # }
/// ```
pub fn rl_loss(logits: &Tensor, tokens: &[Token], loss: &TokenLoss) -> Result<LossOutput> {
    match logits.dtype() {
        DType::F32 => rl_loss_as::<f32>(logits, tokens, loss),
        DType::F64 => rl_loss_as::<f64>(logits, tokens, loss),
        other => Err(Error::Unsupported(format!("{other:?}"))),
    }
}

fn rl_loss_as<T: Element + WithDType>(
    logits: &Tensor,
    tokens: &[Token],
    loss: &TokenLoss,
) -> Result<LossOutput> {
    check(logits.elem_count(), logits.dim(1)?, tokens)?;
    let logits = logits.contiguous()?;
    let result = with_rows(&logits, |rows: &[T]| rl_loss_rows(rows, tokens, loss))??;
    let gradient = Tensor::from_vec(result.gradient, logits.shape(), logits.device())?;
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

/// Log-probabilities and entropies of `targets` (with the temperature of each) under `logits`
/// `[targets, vocab]` (f32 or f64, CPU). No gradient.
///
/// # Errors
/// [`Error::Shape`], [`Error::Unsupported`].
pub fn log_prob_entropy(logits: &Tensor, targets: &[(u32, f64)]) -> Result<Vec<RowStats>> {
    fn rows<T: Element + WithDType>(
        logits: &Tensor,
        vocab: usize,
        targets: &[(u32, f64)],
    ) -> Result<Vec<RowStats>> {
        with_rows(logits, |rows: &[T]| {
            targets
                .iter()
                .zip(rows.chunks_exact(vocab.max(1)))
                .map(|((target, temperature), row)| row_stats(row, *target as usize, *temperature))
                .collect()
        })
    }
    let (count, vocab) = logits.dims2()?;
    if count != targets.len() {
        return Err(Error::Shape {
            elements: logits.elem_count(),
            rows: targets.len(),
            vocab,
        });
    }
    let logits = logits.contiguous()?;
    match logits.dtype() {
        DType::F32 => rows::<f32>(&logits, vocab, targets),
        DType::F64 => rows::<f64>(&logits, vocab, targets),
        other => Err(Error::Unsupported(format!("{other:?}"))),
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

impl CustomOp1 for WithGradient {
    fn name(&self) -> &'static str {
        "rl-loss"
    }

    fn cpu_fwd(
        &self,
        storage: &CpuStorage,
        _layout: &Layout,
    ) -> candle_core::Result<(CpuStorage, Shape)> {
        let storage = match storage.dtype() {
            DType::F64 => CpuStorage::F64(vec![self.value]),
            _ => CpuStorage::F32(vec![self.value as f32]),
        };
        Ok((storage, Shape::from(())))
    }

    fn bwd(
        &self,
        _arg: &Tensor,
        _res: &Tensor,
        grad_res: &Tensor,
    ) -> candle_core::Result<Option<Tensor>> {
        // Nearly always 1: then the multiplication, a pass over all logits, is saved.
        if grad_res.to_dtype(DType::F64)?.to_scalar::<f64>()? == 1.0 {
            return Ok(Some(self.gradient.clone()));
        }
        self.gradient.broadcast_mul(grad_res).map(Some)
    }
}
