//! Loss of many tokens, with the gradient with respect to their logits.

use crate::{
    Element, Error, Result, RowGradient, Token, TokenLoss, TokenOutcome, row_gradient, row_stats,
    token_loss,
};

/// What [`rl_loss_rows`] gives.
#[derive(Clone, Debug, PartialEq)]
pub struct RlLoss<T> {
    /// Sum of the tokens' shares.
    pub loss: f64,
    /// Derivative of `loss` with respect to each logit, `[tokens, vocab]`.
    pub gradient: Vec<T>,
    /// What each token gave; the default for tokens of weight 0.
    pub outcomes: Vec<TokenOutcome>,
    /// Rows without a finite log-probability. Their gradient is 0 and they make `loss` not finite.
    pub bad_rows: usize,
}

/// Loss of `tokens` under `logits` (`[tokens, vocab]`, row by row), with gradients.
///
/// Each row is read twice: once for its statistics, once for its gradient. Rows are independent,
/// and the loss is summed in the order of the tokens, so results repeat bit for bit.
///
/// # Errors
/// [`Error::Shape`], [`Error::Temperature`].
pub fn rl_loss_rows<T: Element>(
    logits: &[T],
    tokens: &[Token],
    loss: &TokenLoss,
) -> Result<RlLoss<T>> {
    let vocab = logits.len() / tokens.len().max(1);
    check(logits.len(), vocab, tokens)?;
    let mut result = RlLoss {
        loss: 0.0,
        gradient: vec![T::ZERO; logits.len()],
        outcomes: Vec::with_capacity(tokens.len()),
        bad_rows: 0,
    };
    for (index, token) in tokens.iter().enumerate() {
        let range = index * vocab..(index + 1) * vocab;
        let gradient = &mut result.gradient[range.clone()];
        let outcome = row_loss(&logits[range], token, loss, gradient);
        result.loss += outcome.loss;
        // A row of −inf at its target may have a finite clamped loss, but it is broken all the same.
        if token.weight != 0.0 && !outcome.log_prob.is_finite() {
            result.bad_rows += 1;
            result.loss = f64::NAN;
        }
        result.outcomes.push(outcome);
    }
    Ok(result)
}

/// Checks that there is one row for each token and that temperatures are usable.
pub(crate) fn check(elements: usize, vocab: usize, tokens: &[Token]) -> Result<()> {
    let rows = tokens.len();
    if elements != rows * vocab || (rows > 0 && vocab == 0) {
        return Err(Error::Shape {
            elements,
            rows,
            vocab,
        });
    }
    let usable = |t: f64| t.is_finite() && t > 0.0;
    match tokens.iter().find(|token| !usable(token.temperature)) {
        Some(token) => Err(Error::Temperature(token.temperature)),
        None => Ok(()),
    }
}

fn row_loss<T: Element>(
    logits: &[T],
    token: &Token,
    loss: &TokenLoss,
    gradient: &mut [T],
) -> TokenOutcome {
    if token.weight == 0.0 {
        return TokenOutcome::default();
    }
    let target = token.target as usize;
    let stats = row_stats(logits, target, token.temperature);
    let outcome = token_loss(loss, token, stats.log_prob, stats.entropy);
    if stats.is_finite() {
        let by = RowGradient {
            log_prob: outcome.by_log_prob,
            entropy: outcome.by_entropy,
        };
        row_gradient(logits, (target, token.temperature), &stats, by, gradient);
    }
    outcome
}
