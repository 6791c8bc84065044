//! The loss of a batch written from its definition, with what carries no gradient taken from other
//! log-probs than what does: differences in the latter alone are the gradient.

use dart_kernels::{
    Importance, KlEstimate, KlGradient, RatioLevel, Sequences, Surrogate, Token, TokenLoss,
    WeightLevel,
};

/// The loss at the log-probs `now`; constants of the gradient come from `base`, which holds
/// log-prob and entropy of each token.
pub(crate) fn oracle(
    loss: &TokenLoss,
    (tokens, sequences): (&[Token], &Sequences),
    base: &[(f64, f64)],
    now: &[f64],
) -> f64 {
    let mut sum = 0.0;
    for range in sequences.ranges() {
        let read: Vec<usize> = range.filter(|index| tokens[*index].weight != 0.0).collect();
        for index in &read {
            let token = &tokens[*index];
            let (fixed, entropy) = base[*index];
            let own = |log_prob: f64| log_prob - before(loss, token, fixed);
            let mean = read
                .iter()
                .map(|i| base[*i].0 - before(loss, &tokens[*i], base[*i].0))
                .sum::<f64>()
                / read.len() as f64;
            let log_ratio = |log_prob: f64| match loss.ratio {
                RatioLevel::Token => own(log_prob),
                RatioLevel::Sequence => mean + log_prob - fixed,
            };
            let ratio = |log_prob: f64| log_ratio(log_prob).clamp(-20.0, 20.0).exp();
            let now = now[*index];
            let policy = surrogate(loss, token, (now, fixed), (ratio(now), ratio(fixed)));
            let pull = kl(loss, token, (now, fixed), ratio(now));
            let weight = importance(loss, tokens, base, (*index, &read));
            sum += token.weight
                * (weight * policy + loss.kl.beta * pull - loss.entropy_bonus * entropy);
        }
    }
    sum
}

/// Log-prob that the ratio is taken against.
fn before(loss: &TokenLoss, token: &Token, fixed: f64) -> f64 {
    match loss.surrogate {
        Surrogate::Prime { .. } => token.rollout.unwrap_or(fixed),
        _ => token.old.unwrap_or(fixed),
    }
}

fn surrogate(
    loss: &TokenLoss,
    token: &Token,
    (now, fixed): (f64, f64),
    (ratio, fixed_ratio): (f64, f64),
) -> f64 {
    let a = token.advantage;
    match loss.surrogate {
        Surrogate::Clipped(clip) => {
            let free = -a * clip.ratio_cap.map_or(ratio, |cap| ratio.min(cap));
            let bounded = -a * ratio.min(1.0 + clip.high).max(1.0 - clip.low);
            let base = free.max(bounded);
            match clip.dual {
                Some(dual) if a < 0.0 => base.min(-a * dual),
                _ => base,
            }
        }
        Surrogate::LogLikelihood => -a * now,
        Surrogate::Cispo { low, high } => {
            let floor = low.map_or(0.0, |low| 1.0 - low);
            -a * fixed_ratio.min(1.0 + high).max(floor) * now
        }
        Surrogate::Sapo { positive, negative } => {
            let tau = if a > 0.0 { positive } else { negative };
            -a * (4.0 / tau) / (1.0 + (tau * (1.0 - ratio)).exp())
        }
        Surrogate::Prime { low, high, penalty } => {
            let moved = fixed.exp() - token.rollout.unwrap_or(fixed).exp();
            let drop = if a > 0.0 { moved > high } else { moved < -low };
            let gain = if drop { 0.0 } else { -a * ratio };
            gain + penalty * ratio.ln() * ratio.ln()
        }
    }
}

fn kl(loss: &TokenLoss, token: &Token, (now, fixed): (f64, f64), ratio: f64) -> f64 {
    let Some(reference) = token.reference else {
        return 0.0;
    };
    let k2 = |log_prob: f64| (log_prob - reference).powi(2) / 2.0;
    let estimate = |log_prob: f64| match loss.kl.estimate {
        KlEstimate::K1 => log_prob - reference,
        KlEstimate::K2 => k2(log_prob),
        KlEstimate::K3 => (reference - log_prob).exp() + (log_prob - reference) - 1.0,
    };
    let value = match loss.kl.gradient {
        KlGradient::Own => estimate(now),
        KlGradient::K2 => estimate(fixed) + k2(now) - k2(fixed),
    };
    if loss.kl.times_ratio {
        value * ratio
    } else {
        value
    }
}

fn importance(
    loss: &TokenLoss,
    tokens: &[Token],
    base: &[(f64, f64)],
    (index, read): (usize, &[usize]),
) -> f64 {
    let log = |i: usize| {
        let rollout = tokens[i].rollout?;
        Some(tokens[i].old.unwrap_or(base[i].0) - rollout)
    };
    let all: Vec<f64> = read.iter().filter_map(|i| log(*i)).collect();
    let weight = |level| match level {
        WeightLevel::Token => log(index),
        _ if all.is_empty() => None,
        WeightLevel::SequenceSum => Some(all.iter().sum()),
        WeightLevel::SequenceMean => Some(all.iter().sum::<f64>() / all.len() as f64),
    };
    match loss.importance {
        Importance::Off => 1.0,
        Importance::Truncated { level, cap } => weight(level).map_or(1.0, |log| log.exp().min(cap)),
        Importance::Masked { level, low, high } => match weight(level).map(f64::exp) {
            Some(weight) if (low..=high).contains(&weight) => weight,
            Some(_) => 0.0,
            None => 1.0,
        },
    }
}
