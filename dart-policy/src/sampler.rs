//! Drawing one token: temperature, grammar mask, log-probability and entropy.
//!
//! What is recorded belongs to the distribution that was drawn from, softmax of the allowed
//! logits over the temperature; forbidden tokens have probability 0. There is no top-p and no
//! top-k, with which that would not be so.

use rand::Rng;
use rand_chacha::ChaCha8Rng;

use crate::error::{PolicyError, Result};

/// One drawn token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Draw {
    pub(crate) token: u32,
    /// ln of its probability, ≤ 0.
    pub(crate) log_prob: f32,
    /// Entropy of the distribution over the whole vocabulary, nats, ≥ 0.
    pub(crate) entropy: f32,
}

/// A token that had to come.
pub(crate) const fn forced(token: u32) -> Draw {
    Draw {
        token,
        log_prob: 0.0,
        entropy: 0.0,
    }
}

/// How tokens are drawn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    /// 0 takes the most likely token, whose probability is then 1.
    pub(crate) temperature: f32,
    /// Logits are rounded to multiples of this; 0 leaves them. Greedy draws are never rounded.
    pub(crate) logit_step: f32,
}

/// Draws one of `allowed` by `logits`.
pub(crate) fn draw(
    logits: &[f32],
    allowed: &[u32],
    rule: Rule,
    random: &mut ChaCha8Rng,
) -> Result<Draw> {
    let temperature = rule.temperature;
    let chosen: Vec<f32> = allowed.iter().map(|t| logits[*t as usize]).collect();
    if chosen.is_empty() || chosen.iter().any(|logit| !logit.is_finite()) {
        return Err(PolicyError::NotFinite);
    }
    if temperature <= 0.0 {
        // The first of equals, so that ties are the same everywhere.
        let best =
            (1..chosen.len()).fold(0, |best, i| if chosen[i] > chosen[best] { i } else { best });
        return Ok(forced(allowed[best]));
    }
    let rounded = |logit: f32| (logit / rule.logit_step).round() * rule.logit_step;
    let seen = |logit: &f32| {
        if rule.logit_step > 0.0 {
            rounded(*logit)
        } else {
            *logit
        }
    };
    let scaled: Vec<f32> = chosen.iter().map(|l| seen(l) / temperature).collect();
    let peak = scaled.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weights: Vec<f32> = scaled.iter().map(|z| (z - peak).exp()).collect();
    let total: f32 = weights.iter().sum();
    let log_total = total.ln();
    let mean: f32 = weights
        .iter()
        .zip(&scaled)
        .map(|(w, z)| w * (z - peak))
        .sum::<f32>()
        / total;
    let mut left = random.random::<f32>() * total;
    let mut index = 0;
    // Rounding may leave a rest after the last token with weight; that token is taken then.
    for (i, weight) in weights.iter().enumerate().filter(|(_, w)| **w > 0.0) {
        index = i;
        left -= weight;
        if left < 0.0 {
            break;
        }
    }
    Ok(Draw {
        token: allowed[index],
        log_prob: (scaled[index] - peak - log_total).min(0.0),
        entropy: (log_total - mean).max(0.0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_chacha::rand_core::SeedableRng;

    const fn at(temperature: f32) -> Rule {
        Rule {
            temperature,
            logit_step: 0.0,
        }
    }

    #[test]
    fn frequencies_match_the_recorded_probabilities() {
        let logits = [0.0, 1.0, 50.0, -1.0, 0.5];
        let allowed = [0, 1, 3, 4];
        let mut random = ChaCha8Rng::seed_from_u64(1);
        let mut counts = [0u32; 5];
        let mut log_probs = [0.0; 5];
        let mut entropy = 0.0;
        for _ in 0..40_000 {
            let draw = draw(&logits, &allowed, at(2.0), &mut random).unwrap();
            counts[draw.token as usize] += 1;
            log_probs[draw.token as usize] = draw.log_prob;
            entropy = draw.entropy;
        }
        assert_eq!(counts[2], 0, "a forbidden token was drawn");
        let mut sum = 0.0;
        for token in allowed {
            let p = log_probs[token as usize].exp();
            let share = f64::from(counts[token as usize]) / 40_000.0;
            assert!((share - f64::from(p)).abs() < 0.01, "{token}: {share} {p}");
            sum -= p * p.ln();
        }
        assert!((sum - entropy).abs() < 1e-5);
    }

    #[test]
    fn greedy_takes_the_best_allowed_and_nan_is_an_error() {
        let mut random = ChaCha8Rng::seed_from_u64(1);
        let best = draw(&[0.0, 2.0, 9.0, 2.0], &[0, 1, 3], at(0.0), &mut random).unwrap();
        assert_eq!(best, forced(1));
        assert!(draw(&[0.0, f32::NAN], &[0, 1], at(1.0), &mut random).is_err());
        assert!(draw(&[0.0, f32::NAN], &[], at(1.0), &mut random).is_err());
    }

    #[test]
    fn extreme_temperatures_stay_finite() {
        let mut random = ChaCha8Rng::seed_from_u64(2);
        for temperature in [1e-6, 1e6] {
            let draw = draw(&[-300.0, 300.0], &[0, 1], at(temperature), &mut random).unwrap();
            assert!(draw.log_prob.is_finite() && draw.log_prob <= 0.0);
            assert!(draw.entropy.is_finite() && draw.entropy >= 0.0);
        }
    }

    #[test]
    fn rounded_logits_are_drawn_from_and_recorded() {
        let mut random = ChaCha8Rng::seed_from_u64(3);
        let rule = Rule {
            temperature: 1.0,
            logit_step: 0.5,
        };
        // To the sampler these are 0, 0 and 0.5.
        let logits = [0.2, -0.2, 0.3];
        let total = 2.0 + 0.5f32.exp();
        let expected = [1.0 / total, 1.0 / total, 0.5f32.exp() / total];
        let mut counts = [0u32; 3];
        for _ in 0..20_000 {
            let draw = draw(&logits, &[0, 1, 2], rule, &mut random).unwrap();
            let index = draw.token as usize;
            counts[index] += 1;
            assert!(
                (draw.log_prob - expected[index].ln()).abs() < 1e-6,
                "{draw:?}"
            );
        }
        for (count, expected) in counts.iter().zip(expected) {
            let share = f64::from(*count) / 20_000.0;
            assert!(
                (share - f64::from(expected)).abs() < 0.015,
                "{share} {expected}"
            );
        }
        let greedy = Rule {
            temperature: 0.0,
            ..rule
        };
        let best = draw(&[0.2, 0.1], &[0, 1], greedy, &mut random).unwrap();
        assert_eq!(best, forced(0), "greedy draws are exact");
    }
}
