//! The token loss of the kernels against the closed forms in f64: every variant with every other.

use dart_kernels::{
    Clip, ClipSide, Importance, Kl, KlEstimate, KlGradient, RatioLevel, Sequences, Surrogate,
    Token, TokenLoss, TokenOutcome, WeightLevel, sequence_terms, token_losses_with,
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{
    driver::{Argument, Call, Emulator},
    emulator,
    inputs::{Outcome, decode_outcomes, encode_loss, encode_tokens, floats, normal, tokens},
    sanitized,
    training::token_loss,
};

const TOKENS: usize = 96;

pub(super) fn surrogates() -> Vec<Surrogate> {
    let plain = Clip::new(0.2, 0.28);
    vec![
        Surrogate::Clipped(plain),
        Surrogate::Clipped(Clip {
            dual: Some(1.5),
            ..plain
        }),
        Surrogate::Clipped(Clip {
            dual: Some(3.0),
            ratio_cap: Some(1.4),
            ..plain
        }),
        // A cap below the clip's own bound.
        Surrogate::Clipped(Clip {
            ratio_cap: Some(1.125),
            ..plain
        }),
        Surrogate::LogLikelihood,
        Surrogate::Cispo {
            low: Some(0.25),
            high: 0.5,
        },
        Surrogate::cispo_capped(1.25),
        Surrogate::Sapo {
            positive: 1.0,
            negative: 1.05,
        },
        Surrogate::PRIME,
        Surrogate::Prime {
            low: 0.01,
            high: 0.02,
            penalty: 0.5,
        },
    ]
}

fn importances() -> Vec<Importance> {
    use WeightLevel::{SequenceMean, SequenceSum, Token};
    let mut all = vec![Importance::Off];
    for level in [Token, SequenceSum, SequenceMean] {
        all.push(Importance::Truncated { level, cap: 1.125 });
        all.push(Importance::Masked {
            level,
            low: 0.75,
            high: 1.5,
        });
    }
    all
}

fn pulls() -> Vec<Kl> {
    let mut all = vec![Kl::OFF];
    for estimate in [KlEstimate::K1, KlEstimate::K2, KlEstimate::K3] {
        for gradient in [KlGradient::Own, KlGradient::K2] {
            for times_ratio in [false, true] {
                all.push(Kl {
                    beta: 0.5,
                    estimate,
                    gradient,
                    times_ratio,
                });
            }
        }
    }
    all
}

/// Every combination.
fn losses() -> Vec<TokenLoss> {
    let mut all = Vec::new();
    for surrogate in surrogates() {
        for ratio in [RatioLevel::Token, RatioLevel::Sequence] {
            for importance in importances() {
                all.extend(pulls().into_iter().map(|kl| TokenLoss {
                    surrogate,
                    ratio,
                    importance,
                    kl,
                    entropy_bonus: 0.25,
                }));
            }
        }
    }
    all
}

/// Tokens with their log-probability and entropy: ordinary ones, some with parts missing, some
/// beyond every clamp, some not read.
pub(super) fn population(seed: u64) -> (Vec<Token>, Vec<(f64, f64)>) {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let exact = |x: f64| f64::from(x as f32);
    let current: Vec<(f64, f64)> = (0..TOKENS)
        .map(|_| {
            let log_prob = exact(-normal(&mut random).abs() - 1e-3);
            (log_prob, exact(random.random_range(0.0..3.0)))
        })
        .collect();
    let log_probs: Vec<f64> = current.iter().map(|(log_prob, _)| *log_prob).collect();
    let mut tokens = tokens(&log_probs, 1000, seed);
    for (index, token) in tokens.iter_mut().enumerate() {
        match index % 16 {
            3 => token.old = None,
            5 => token.rollout = None,
            7 => token.reference = None,
            9 => token.weight = 0.0,
            11 => token.old = Some(-25.0),
            13 => token.reference = Some(-30.0),
            14 => token.reference = Some(exact(log_probs[index] + 1e-4)),
            15 => token.rollout = Some(exact(log_probs[index] - 24.0)),
            _ => {}
        }
    }
    (tokens, current)
}

/// `RowStats` of the kernels with these log-probabilities and entropies.
pub(super) fn stats_bytes(current: &[(f64, f64)], tokens: &[Token]) -> Vec<u8> {
    let rows = current.iter().zip(tokens);
    rows.flat_map(|((log_prob, entropy), token)| {
        let mut row = vec![0; 32];
        row[..4].copy_from_slice(&(*log_prob as f32).to_le_bytes());
        row[4..8].copy_from_slice(&(*entropy as f32).to_le_bytes());
        let status = if token.weight == 0.0 { 16u32 } else { 0 };
        row[24..28].copy_from_slice(&status.to_le_bytes());
        row
    })
    .collect()
}

fn side(clip: ClipSide) -> u32 {
    match clip {
        ClipSide::None => 0,
        ClipSide::Low => 1,
        ClipSide::High => 2,
        ClipSide::Dual => 3,
    }
}

/// 1e-5 of the largest term, which is what f32 leaves of a ratio of e^±20.
fn compare(loss: &TokenLoss, token: &Token, want: &TokenOutcome, got: &Outcome) {
    let scale = 1e-2 + want.importance.abs() * (1.0 + want.surrogate.abs() + want.kl.abs());
    let pairs = [
        (got.loss, want.loss),
        (got.surrogate, want.surrogate),
        (got.importance, want.importance),
        (got.kl, want.kl),
        (got.by_log_prob, want.by_log_prob),
        (got.by_entropy, want.by_entropy),
        (got.log_ratio, want.log_ratio),
    ];
    for (got_one, want_one) in pairs {
        let near = (got_one - want_one).abs() <= 1e-5 * want_one.abs() + 1e-6 * scale;
        assert!(near, "{loss:?}\n{token:?}\n{got:?}\nwant {want:?}");
    }
    assert_eq!(
        got.clip,
        side(want.clip),
        "{loss:?}\n{token:?}\n{got:?}\nwant {want:?}"
    );
}

fn sequences() -> Sequences {
    Sequences::from_lengths(&[10, 0, 1, 40, 33, 12])
}

/// The kernel `sequence_terms`: one warp per sequence.
fn terms(emulator: &mut Emulator, loss: &TokenLoss, stats: &[u8], tokens: &[Token]) -> Vec<u8> {
    let sequences = sequences();
    let offsets = sequences.offsets().iter();
    let offsets: Vec<u8> = offsets.flat_map(|x| (*x as i64).to_le_bytes()).collect();
    let call = Call::new("sequence_terms", sequences.len().div_ceil(2), 64)
        .buffer(stats)
        .buffer(encode_tokens(tokens))
        .buffer(offsets)
        .value((sequences.len() as i32).to_le_bytes())
        .value(encode_loss(loss))
        .buffer(vec![0xaa; 8 * tokens.len()]);
    emulator.run(&call).buffers.pop().unwrap()
}

fn every_combination(emulator: &mut Emulator, step: usize) {
    let (tokens, current) = population(77);
    let stats = stats_bytes(&current, &tokens);
    let log_probs: Vec<f64> = current.iter().map(|(log_prob, _)| *log_prob).collect();
    for loss in losses().iter().step_by(step) {
        let wanted_terms = sequence_terms(loss, &tokens, &sequences(), &log_probs);
        let wanted = token_losses_with(loss, &tokens, &wanted_terms, &current);
        let mut given = Vec::new();
        if loss.is_token_level() {
            given.push(None);
        }
        given.push(Some(terms(emulator, loss, &stats, &tokens)));
        for terms in given {
            let bytes = token_loss(emulator, &stats, &tokens, terms, loss);
            for ((token, want), got) in tokens.iter().zip(&wanted).zip(decode_outcomes(&bytes)) {
                compare(loss, token, want, &got);
            }
        }
    }
}

#[test]
fn every_combination_is_the_closed_form() {
    if let Some(mut emulator) = emulator() {
        every_combination(&mut emulator, 1);
    }
}

#[test]
fn losses_are_clean_under_sanitizers() {
    if let Some(mut emulator) = sanitized() {
        every_combination(&mut emulator, 7);
    }
}

#[test]
fn weights_are_those_of_the_loss() {
    let Some(mut emulator) = emulator() else {
        return;
    };
    let (tokens, current) = population(78);
    let stats = stats_bytes(&current, &tokens);
    let log_probs: Vec<f64> = current.iter().map(|(log_prob, _)| *log_prob).collect();
    for importance in importances() {
        let loss = TokenLoss {
            importance,
            ..TokenLoss::PAPER
        };
        let want = sequence_terms(&loss, &tokens, &sequences(), &log_probs);
        let given = terms(&mut emulator, &loss, &stats, &tokens);
        let call = Call::new("importance_weights", 2, 64)
            .buffer(stats.clone())
            .buffer(encode_tokens(&tokens))
            .argument(Argument::Buffer {
                bytes: given,
                offset: 0,
            })
            .value(encode_loss(&loss))
            .value((tokens.len() as i32).to_le_bytes())
            .buffer(vec![0xaa; 4 * tokens.len()]);
        let got = floats(&emulator.run(&call).buffers.pop().unwrap());
        for ((token, want), got) in tokens.iter().zip(want).zip(got) {
            let want = if token.weight == 0.0 {
                0.0
            } else {
                want.importance
            };
            assert!(
                (f64::from(got) - want).abs() <= 3e-6 * want,
                "{importance:?}: {got} {want}"
            );
        }
    }
}

#[test]
fn numbers_that_are_not_finite_are_not_hidden() {
    let Some(mut emulator) = emulator() else {
        return;
    };
    let (mut tokens, current) = population(79);
    for token in &mut tokens {
        token.rollout = Some(f64::NAN);
    }
    let stats = stats_bytes(&current, &tokens);
    for surrogate in surrogates() {
        let loss = TokenLoss {
            surrogate,
            ..TokenLoss::PAPER
        };
        let bytes = token_loss(&mut emulator, &stats, &tokens, None, &loss);
        for (token, outcome) in tokens.iter().zip(decode_outcomes(&bytes)) {
            assert_eq!(
                outcome.loss.is_nan(),
                token.weight != 0.0,
                "{loss:?} {outcome:?}"
            );
        }
    }
}
