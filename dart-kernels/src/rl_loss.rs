//! Loss of many tokens; their logits are overwritten by the gradient.

use crate::{
    Cpu, Element, Error, LogitsMut, Result, RowGradient, Sequences, Token, TokenLoss, TokenOutcome,
    cpu::{partial::Finished, rows::finish_row},
    logits::check_temperature,
    loss::{sequence_terms, token_loss, token_losses_with},
};

/// What [`rl_loss_in_place`] gives beside the gradient.
#[derive(Clone, Debug, PartialEq)]
pub struct RlLoss {
    /// Sum of the tokens' shares, in the order of the tokens.
    pub loss: f64,
    /// What each token gave; the default for tokens of weight 0.
    pub outcomes: Vec<TokenOutcome>,
    /// Rows without a finite log-probability. Their gradient is 0 and they make `loss` NaN.
    pub bad_rows: usize,
}

/// [`Cpu::rl_loss_in_place`] with the fastest instruction set and all threads.
///
/// # Errors
/// [`Error::Length`], [`Error::Sequences`], [`Error::Temperature`].
///
/// ```
/// use dart_kernels::{LogitsMut, Sequences, Token, TokenLoss, rl_loss_in_place};
///
/// # fn main() -> dart_kernels::Result<()> {
/// let token = Token {
///     target: 1, temperature: 1.0, weight: 1.0, advantage: 1.0,
///     old: None, rollout: None, reference: None,
/// };
/// let mut logits = [0f32, 0.0];
/// let rows = LogitsMut::new(&mut logits, 1, 2)?;
/// let sequences = Sequences::single_tokens(1);
/// rl_loss_in_place(rows, &[token], &sequences, &TokenLoss::LIKELIHOOD)?;
/// assert_eq!(logits, [0.5, -0.5]);
/// # Ok(())
/// # }
/// ```
pub fn rl_loss_in_place<T: Element>(
    logits: LogitsMut<'_, T>,
    tokens: &[Token],
    sequences: &Sequences,
    loss: &TokenLoss,
) -> Result<RlLoss> {
    Cpu::new().rl_loss_in_place(logits, tokens, sequences, loss)
}

impl Cpu {
    /// Loss of `tokens` under `logits`, one row each, and its gradient in place of the logits.
    ///
    /// Under a token-level loss a row is overwritten while it is still in the cache. A loss with a
    /// sequence-level part reads all rows first; `sequences` says which tokens belong together.
    /// Rows of weight 0 are not read; their gradient is 0. The numbers of a row's gradient sum to
    /// 0 up to rounding.
    ///
    /// # Errors
    /// [`Error::Length`], [`Error::Sequences`], [`Error::Temperature`]; nothing is written then.
    pub fn rl_loss_in_place<T: Element>(
        self,
        logits: LogitsMut<'_, T>,
        tokens: &[Token],
        sequences: &Sequences,
        loss: &TokenLoss,
    ) -> Result<RlLoss> {
        check(logits.shape().rows, tokens)?;
        sequences.check(tokens.len())?;
        let outcomes = if loss.is_token_level() {
            self.token_level(logits, tokens, loss)
        } else {
            self.sequence_level(logits, tokens, sequences, loss)
        };
        Ok(RlLoss::sum(tokens, outcomes))
    }

    fn token_level<T: Element>(
        self,
        logits: LogitsMut<'_, T>,
        tokens: &[Token],
        loss: &TokenLoss,
    ) -> Vec<TokenOutcome> {
        self.map_mut(logits, |index, row| {
            let token = &tokens[index];
            if token.weight == 0.0 {
                row.fill(T::ZERO);
                return TokenOutcome::default();
            }
            let finished = finish_row(self.isa, row, token.target, token.temperature);
            let stats = &finished.stats;
            let outcome = token_loss(loss, token, stats.log_prob, stats.entropy);
            self.overwrite(row, token, &finished, &outcome);
            outcome
        })
    }

    fn sequence_level<T: Element>(
        self,
        logits: LogitsMut<'_, T>,
        tokens: &[Token],
        sequences: &Sequences,
        loss: &TokenLoss,
    ) -> Vec<TokenOutcome> {
        let finished = self.map(logits.as_logits(), |index, row| {
            let token = &tokens[index];
            let read = token.weight != 0.0;
            read.then(|| finish_row(self.isa, row, token.target, token.temperature))
        });
        let current: Vec<(f64, f64)> = finished
            .iter()
            .map(|row| row.map_or((0.0, 0.0), |row| (row.stats.log_prob, row.stats.entropy)))
            .collect();
        let log_probs: Vec<f64> = current.iter().map(|(log_prob, _)| *log_prob).collect();
        let terms = sequence_terms(loss, tokens, sequences, &log_probs);
        let outcomes = token_losses_with(loss, tokens, &terms, &current);
        self.map_mut(logits, |index, row| match &finished[index] {
            Some(finished) => self.overwrite(row, &tokens[index], finished, &outcomes[index]),
            None => row.fill(T::ZERO),
        });
        outcomes
    }

    /// Overwrites one row by its gradient.
    fn overwrite<T: Element>(
        self,
        row: &mut [T],
        token: &Token,
        finished: &Finished,
        outcome: &TokenOutcome,
    ) {
        let by = RowGradient {
            log_prob: outcome.by_log_prob,
            entropy: outcome.by_entropy,
        };
        // A clipped token without an entropy bonus has no gradient; NaN is not 0.
        if !finished.stats.is_finite() || by == RowGradient::default() {
            row.fill(T::ZERO);
            return;
        }
        let scale = T::scale(token.temperature);
        T::gradient(self.isa, row, &finished.coefficients(by, scale));
        row[token.target as usize] = T::from_f64(finished.at_target(by, scale));
    }
}

impl RlLoss {
    /// Sums in the order of the tokens, so that the loss does not depend on threads.
    pub(crate) fn sum(tokens: &[Token], outcomes: Vec<TokenOutcome>) -> Self {
        let read = || {
            let pairs = tokens.iter().zip(&outcomes);
            pairs.filter(|(token, _)| token.weight != 0.0)
        };
        // A row of −inf at its target may have a finite clamped loss, but it is broken all the same.
        let bad_rows = read()
            .filter(|(_, o)| !o.log_prob.is_finite() || !o.entropy.is_finite())
            .count();
        let loss = if bad_rows > 0 {
            f64::NAN
        } else {
            read().map(|(_, outcome)| outcome.loss).sum()
        };
        Self {
            loss,
            outcomes,
            bad_rows,
        }
    }
}

/// Whether there is one token for each of `rows` rows, with a usable temperature.
pub(crate) fn check(rows: usize, tokens: &[Token]) -> Result<()> {
    if tokens.len() != rows {
        return Err(Error::Length {
            what: "tokens",
            got: tokens.len(),
            rows,
        });
    }
    let mut temperatures = tokens.iter().map(|token| token.temperature);
    temperatures.try_for_each(check_temperature)
}
