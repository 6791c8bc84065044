//! The operations composed of candle's own, as a trainer without these kernels would write them.

use candle_core::{D, DType, Result, Tensor};
use dart_kernels::Token;

/// Log-probabilities and entropies, `[rows]` each.
pub(crate) fn log_prob_entropy(logits: &Tensor, targets: &Tensor) -> Result<(Tensor, Tensor)> {
    let top = logits.max_keepdim(D::Minus1)?.detach();
    let shifted = logits.broadcast_sub(&top)?;
    let log_sum = shifted.exp()?.sum_keepdim(D::Minus1)?.log()?;
    let log_p = shifted.broadcast_sub(&log_sum)?;
    let log_prob = log_p.gather(targets, D::Minus1)?.squeeze(D::Minus1)?;
    let entropy = (log_p.exp()? * &log_p)?.sum(D::Minus1)?.neg()?;
    Ok((log_prob, entropy))
}

/// Targets `[rows, 1]`, and old, rollout and reference log-probs, advantages and weights, `[rows]`.
#[derive(Debug)]
pub(crate) struct Columns {
    pub(crate) targets: Tensor,
    old: Tensor,
    importance: Tensor,
    reference: Tensor,
    advantage: Tensor,
    weight: Tensor,
}

impl Columns {
    pub(crate) fn new(tokens: &[Token], like: &Tensor) -> Result<Self> {
        let device = like.device();
        let column = |of: &dyn Fn(&Token) -> f64| -> Result<Tensor> {
            let numbers: Vec<f64> = tokens.iter().map(of).collect();
            Tensor::new(numbers, device)?.to_dtype(DType::F32)
        };
        let known = |x: Option<f64>| x.unwrap_or_default();
        let targets: Vec<u32> = tokens.iter().map(|token| token.target).collect();
        Ok(Self {
            targets: Tensor::new(targets, device)?.unsqueeze(1)?,
            old: column(&|t| known(t.old))?,
            importance: column(&|t| (known(t.old) - known(t.rollout)).exp().min(1.0))?,
            reference: column(&|t| known(t.reference))?,
            advantage: column(&|t| t.advantage)?,
            weight: column(&|t| t.weight)?,
        })
    }

    /// The loss of [`super::inputs::loss`] as a scalar with a graph.
    pub(crate) fn loss(&self, logits: &Tensor) -> Result<Tensor> {
        let (log_prob, entropy) = log_prob_entropy(logits, &self.targets)?;
        let ratio = (&log_prob - &self.old)?.clamp(-20f32, 20f32)?.exp()?;
        let free = (ratio.clone() * &self.advantage)?.neg()?;
        let bounded = (ratio.clamp(0.8f32, 1.28f32)? * &self.advantage)?.neg()?;
        let larger = free.maximum(&bounded)?;
        let dual = larger.minimum(&(&self.advantage * -10.0)?)?;
        let negative = self.advantage.lt(0f32)?;
        let surrogate = negative.where_cond(&dual, &larger)?;
        let apart = (&self.reference - &log_prob)?.clamp(-20f32, 20f32)?;
        let kl = ((apart.exp()? - &apart)? - 1.0)?.clamp(-10f32, 10f32)?;
        let sum = ((&self.importance * surrogate)? + (kl * 0.1)?)?;
        ((sum - (entropy * 0.01)?)? * &self.weight)?.sum_all()
    }
}
