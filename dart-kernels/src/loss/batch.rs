//! The loss of many tokens, whose ratios or importance weights may belong to their sequences.
//!
//! Only tokens with a weight other than 0 are read; sequence means and products run over those.

use super::{RatioLevel, Token, TokenLoss, TokenOutcome, WeightLevel, outcome, weight::log_weight};
use crate::Sequences;

/// What a token's loss takes from its sequence: with it, every token stands alone again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SequenceTerm {
    /// Logarithm of the ratio that the surrogate uses, not clamped.
    pub log_ratio: f64,
    /// The importance weight.
    pub importance: f64,
}

impl SequenceTerm {
    /// Of a token that is not read.
    const UNREAD: Self = Self {
        log_ratio: 0.0,
        importance: 1.0,
    };
}

/// Losses of all tokens, given the current log-probability and entropy of each. Tokens of weight 0
/// give the default outcome, whatever their numbers are.
///
/// # Panics
/// If `tokens`, `sequences` and `current` are of different lengths: a bug of the caller.
pub fn token_losses(
    loss: &TokenLoss,
    tokens: &[Token],
    sequences: &Sequences,
    current: &[(f64, f64)],
) -> Vec<TokenOutcome> {
    let log_probs: Vec<f64> = current.iter().map(|(log_prob, _)| *log_prob).collect();
    let terms = sequence_terms(loss, tokens, sequences, &log_probs);
    token_losses_with(loss, tokens, &terms, current)
}

/// [`token_losses`] with the terms of [`sequence_terms`]: a pure map over tokens.
///
/// # Panics
/// If the slices are of different lengths: a bug of the caller.
pub fn token_losses_with(
    loss: &TokenLoss,
    tokens: &[Token],
    terms: &[SequenceTerm],
    current: &[(f64, f64)],
) -> Vec<TokenOutcome> {
    assert_eq!(tokens.len(), terms.len(), "one term for each token");
    assert_eq!(tokens.len(), current.len(), "one number for each token");
    let rows = tokens.iter().zip(terms).zip(current);
    rows.map(|((token, term), current)| {
        if token.weight == 0.0 {
            TokenOutcome::default()
        } else {
            outcome(loss, token, *current, *term)
        }
    })
    .collect()
}

/// The ratio and the importance weight of each token, those of its sequence where the loss says so.
/// A token without a rollout log-prob adds nothing to its sequence's ω; if no token of a sequence
/// has one, the weight is 1.
///
/// # Panics
/// If `tokens`, `sequences` and `log_probs` are of different lengths: a bug of the caller.
pub fn sequence_terms(
    loss: &TokenLoss,
    tokens: &[Token],
    sequences: &Sequences,
    log_probs: &[f64],
) -> Vec<SequenceTerm> {
    assert_eq!(tokens.len(), log_probs.len(), "one number for each token");
    assert_eq!(tokens.len(), sequences.tokens(), "sequences of the tokens");
    let mut terms = Vec::with_capacity(tokens.len());
    for range in sequences.ranges() {
        let (tokens, log_probs) = (&tokens[range.clone()], &log_probs[range]);
        let whole = whole_sequence(loss, tokens, log_probs);
        terms.extend(tokens.iter().zip(log_probs).map(|(token, log_prob)| {
            if token.weight == 0.0 {
                return SequenceTerm::UNREAD;
            }
            SequenceTerm {
                log_ratio: match loss.ratio {
                    RatioLevel::Token => loss.surrogate.log_ratio(token, *log_prob),
                    RatioLevel::Sequence => whole.log_ratio,
                },
                importance: match loss.importance.level() {
                    None | Some(WeightLevel::Token) => loss.importance.of_token(token, *log_prob),
                    Some(_) => whole.importance,
                },
            }
        }));
    }
    terms
}

/// What all tokens of one sequence share; only what the loss needs is meaningful.
fn whole_sequence(loss: &TokenLoss, tokens: &[Token], log_probs: &[f64]) -> SequenceTerm {
    let read = || {
        let pairs = tokens.iter().zip(log_probs);
        pairs.filter(|(token, _)| token.weight != 0.0)
    };
    let mut ratio = Mean::default();
    let mut weight = Mean::default();
    for (token, log_prob) in read() {
        ratio.push(loss.surrogate.log_ratio(token, *log_prob));
        if let Some(log_weight) = log_weight(token, *log_prob) {
            weight.push(log_weight);
        }
    }
    let log_weight = match loss.importance.level() {
        Some(WeightLevel::SequenceSum) => weight.sum,
        _ => weight.mean(),
    };
    SequenceTerm {
        log_ratio: ratio.mean(),
        importance: if weight.count == 0 {
            1.0
        } else {
            loss.importance.weight(log_weight)
        },
    }
}

#[derive(Default)]
struct Mean {
    sum: f64,
    count: usize,
}

impl Mean {
    fn push(&mut self, value: f64) {
        self.sum += value;
        self.count += 1;
    }

    fn mean(&self) -> f64 {
        self.sum / self.count.max(1) as f64
    }
}
