//! Segment means and sums of metrics.

use dart_kernels::{Token, TokenLoss};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{
    driver::{Call, Emulator},
    emulator,
    inputs::{decode_outcomes, encode_loss, encode_tokens, floats},
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

fn loss_metrics(emulator: &mut Emulator) {
    let (mut tokens, mut current) = population(80);
    for _ in 0..4 {
        tokens.extend_from_within(..);
        current.extend_from_within(..);
    }
    let loss = TokenLoss::PAPER;
    let mut stats = stats_bytes(&current, &tokens);
    for (row, status) in [(0, 1u8), (1, 2), (2, 4), (4, 8), (6, 8)] {
        stats[32 * row + 24] = status;
    }
    let outcomes = token_loss(emulator, &stats, &tokens, None, &loss);
    let got = total(emulator, (&stats, &tokens, &outcomes), &loss, 1);
    assert_eq!(
        total(emulator, (&stats, &tokens, &outcomes), &loss, 2),
        got,
        "bits repeat"
    );
    let doubles: Vec<f64> = got[..80]
        .chunks_exact(8)
        .map(|x| f64::from_le_bytes(x.try_into().unwrap()))
        .collect();
    let counts: Vec<u64> = got[80..]
        .chunks_exact(8)
        .map(|x| u64::from_le_bytes(x.try_into().unwrap()))
        .collect();
    assert!(doubles[0].is_nan(), "broken rows show in the loss");
    let outcomes = decode_outcomes(&outcomes);
    let read: Vec<_> = (0..tokens.len())
        .filter(|i| tokens[*i].weight != 0.0 && stats[32 * i + 24] == 0)
        .collect();
    let sum = |of: &dyn Fn(usize) -> f64| read.iter().map(|i| of(*i)).sum::<f64>();
    let clamped = |i: usize| outcomes[i].log_ratio.clamp(-20.0, 20.0);
    let want = [
        sum(&|i| outcomes[i].surrogate),
        sum(&|i| current[i].0),
        sum(&|i| current[i].1),
        sum(&|i| outcomes[i].kl),
        sum(&|i| outcomes[i].importance),
        sum(&|i| outcomes[i].importance.powi(2)),
        read.iter()
            .map(|i| outcomes[*i].importance)
            .fold(0.0, f64::max),
        sum(&|i| -clamped(i)),
        sum(&|i| clamped(i).exp_m1() - clamped(i)),
    ];
    for (index, (got, want)) in doubles[1..].iter().zip(want).enumerate() {
        assert!(
            (got - want).abs() <= 1e-6 * want.abs(),
            "{index}: {got} {want}"
        );
    }
    let clips = |side| read.iter().filter(|i| outcomes[**i].clip == side).count() as u64;
    let capped = read.iter().filter(|i| outcomes[**i].importance == 1.0);
    let sides = [clips(1), clips(2), clips(3)];
    assert!(
        sides.iter().all(|count| *count > 0),
        "{sides:?} have something to count"
    );
    assert_eq!(
        counts[..4],
        [read.len() as u64, sides[0], sides[1], sides[2]]
    );
    assert_eq!(counts[4..], [capped.count() as u64, 1, 1, 1, 2]);
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
