//! Segment means and sums of metrics.

use dart_kernels::{ClipSide, LossSums, Token, TokenLoss, TokenOutcome};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{
    driver::{Call, Emulator},
    emulator,
    inputs::{Outcome, decode_outcomes, encode_loss, encode_tokens, floats},
    losses::{population, stats_bytes},
    sanitized,
    training::token_loss,
};

const METRIC_BLOCKS: usize = 64;
const METRIC_THREADS: u32 = 256;
const SUMS: usize = 152;

fn segment_means(emulator: &mut Emulator) {
    let mut random = ChaCha8Rng::seed_from_u64(5);
    let values: Vec<f32> = (0..1_000).map(|_| random.random_range(0.0..3.0)).collect();
    let offsets = [0usize, 1, 1, 33, 34, 700, 1_000];
    let segments = offsets.len() - 1;
    let call = Call::new("segment_means", segments.div_ceil(4), 128)
        .buffer(
            values
                .iter()
                .flat_map(|x| x.to_le_bytes())
                .collect::<Vec<_>>(),
        )
        .buffer(
            offsets
                .iter()
                .flat_map(|x| (*x as i64).to_le_bytes())
                .collect::<Vec<_>>(),
        )
        .value((segments as i32).to_le_bytes())
        .buffer(vec![0xaa; 4 * segments]);
    let means = floats(&emulator.run(&call).buffers.pop().unwrap());
    for (pair, got) in offsets.windows(2).zip(means) {
        let part = &values[pair[0]..pair[1]];
        let want = part.iter().map(|x| f64::from(*x)).sum::<f64>() / part.len() as f64;
        if part.is_empty() {
            assert!(got.is_nan());
        } else {
            assert!((f64::from(got) - want).abs() <= 1e-7 * want, "{got} {want}");
        }
    }
}

/// Both stages.
fn total(
    emulator: &mut Emulator,
    (stats, tokens, outcomes): (&[u8], &[Token], &[u8]),
    loss: &TokenLoss,
    seed: u32,
) -> Vec<u8> {
    let mut call = Call::new("loss_metrics_partial", METRIC_BLOCKS, METRIC_THREADS)
        .buffer(stats)
        .buffer(encode_tokens(tokens))
        .buffer(outcomes)
        .value(encode_loss(loss))
        .value((tokens.len() as i32).to_le_bytes())
        .buffer(vec![0xaa; SUMS * METRIC_BLOCKS]);
    call.seed = seed;
    let partials = emulator.run(&call).buffers.pop().unwrap();
    let mut call = Call::new("loss_metrics_total", 1, METRIC_THREADS)
        .buffer(partials)
        .buffer(vec![0xaa; SUMS]);
    call.seed = seed;
    emulator.run(&call).buffers.pop().unwrap()
}

/// 1536 tokens of all sorts, some of whose rows are broken.
fn broken_population() -> (Vec<Token>, Vec<(f64, f64)>, Vec<u8>) {
    let (mut tokens, mut current) = population(80);
    for _ in 0..4 {
        tokens.extend_from_within(..);
        current.extend_from_within(..);
    }
    let mut stats = stats_bytes(&current, &tokens);
    for (row, status) in [(0, 1u8), (1, 2), (2, 4), (4, 8), (6, 8)] {
        stats[32 * row + 24] = status;
        current[row].0 = f64::NAN;
    }
    (tokens, current, stats)
}

fn host_outcome(outcome: &Outcome, (log_prob, entropy): (f64, f64)) -> TokenOutcome {
    let sides = [
        ClipSide::None,
        ClipSide::Low,
        ClipSide::High,
        ClipSide::Dual,
    ];
    TokenOutcome {
        log_prob,
        entropy,
        loss: outcome.loss,
        surrogate: outcome.surrogate,
        importance: outcome.importance,
        kl: outcome.kl,
        clip: sides[outcome.clip as usize],
        by_log_prob: outcome.by_log_prob,
        by_entropy: outcome.by_entropy,
        log_ratio: outcome.log_ratio,
    }
}

fn loss_metrics(emulator: &mut Emulator) {
    let (tokens, current, stats) = broken_population();
    let loss = TokenLoss::PAPER;
    let outcomes = token_loss(emulator, &stats, &tokens, None, &loss);
    let got = total(emulator, (&stats, &tokens, &outcomes), &loss, 1);
    assert_eq!(
        total(emulator, (&stats, &tokens, &outcomes), &loss, 2),
        got,
        "bits repeat"
    );
    let outcomes = decode_outcomes(&outcomes);
    let outcomes = outcomes.iter().zip(current);
    let outcomes: Vec<_> = outcomes
        .map(|(outcome, current)| host_outcome(outcome, current))
        .collect();
    let want = LossSums::of(&loss, &tokens, &outcomes);
    let (numbers, counts) = got.split_at(80);
    let numbers = numbers
        .chunks_exact(8)
        .map(|x| f64::from_le_bytes(x.try_into().unwrap()));
    let counts = counts
        .chunks_exact(8)
        .map(|x| u64::from_le_bytes(x.try_into().unwrap()) as usize);
    let (numbers, counts): (Vec<_>, Vec<_>) = (numbers.collect(), counts.collect());
    assert!(numbers[0].is_nan(), "broken rows show in the loss");
    let wanted = [
        want.surrogate,
        want.log_prob,
        want.entropy,
        want.kl,
        want.importance,
        want.importance_squared,
        want.importance_max,
        want.ratio_k1,
        want.ratio_k3,
    ];
    for (index, (got, want)) in numbers[1..].iter().zip(wanted).enumerate() {
        assert!(
            (got - want).abs() <= 1e-6 * want.abs(),
            "{index}: {got} {want}"
        );
    }
    let clips = [want.clip_low, want.clip_high, want.clip_dual];
    assert!(
        clips.iter().all(|count| *count > 0),
        "{clips:?} have something to count"
    );
    assert_eq!(counts[..4], [want.tokens, clips[0], clips[1], clips[2]]);
    assert_eq!(counts[4..], [want.importance_bound, 1, 1, 1, 2]);
    assert_eq!(want.bad_rows, 5);
}

#[test]
fn sums_of_nothing_are_nothing() {
    let Some(mut emulator) = emulator() else {
        return;
    };
    let got = total(&mut emulator, (&[], &[], &[]), &TokenLoss::PAPER, 1);
    let numbers = got
        .chunks_exact(8)
        .map(|x| f64::from_le_bytes(x.try_into().unwrap()));
    let numbers: Vec<_> = numbers.collect();
    assert_eq!(numbers[7], f64::NEG_INFINITY, "the largest of nothing");
    assert!(numbers.iter().enumerate().all(|(i, x)| i == 7 || *x == 0.0));
}

#[test]
fn reductions_are_the_sums() {
    if let Some(mut emulator) = emulator() {
        segment_means(&mut emulator);
        loss_metrics(&mut emulator);
    }
}

#[test]
fn reductions_are_clean_under_sanitizers() {
    if let Some(mut emulator) = sanitized() {
        segment_means(&mut emulator);
        loss_metrics(&mut emulator);
    }
}
