//! Statistics of rows against the f64 definition: all vocabularies, types and alignments.

use dart_kernels::row_stats;

use super::{
    driver::{Argument, Call, Done, Emulator},
    emulator,
    inputs::{Rows, Stats, Type, decode_stats},
    sanitized,
};

pub(super) const VOCABULARIES: [usize; 12] = [
    1, 7, 255, 257, 1000, 1003, 32_000, 50_257, 128_256, 151_936, 152_064, 262_144,
];

/// Vocabularies that take little time under a sanitizer.
pub(super) const SMALL: [usize; 7] = [1, 7, 60, 255, 257, 1003, 5000];

/// No label is ignored.
const NO_LABEL: u32 = u32::MAX;

/// CTAs of small rows are small too, so that every thread has something to do.
pub(super) fn threads_for(vocab: usize) -> u32 {
    if vocab < 30_000 { 64 } else { 256 }
}

/// `logprob_entropy` of all rows.
pub(super) fn call(rows: &Rows, targets: &[u32], inverse_temperatures: &[f32]) -> Call {
    let words = |numbers: &[u32]| {
        numbers
            .iter()
            .flat_map(|n| n.to_le_bytes())
            .collect::<Vec<_>>()
    };
    let (each, all) = if let [one] = inverse_temperatures {
        (Argument::Null, *one)
    } else {
        let numbers = inverse_temperatures.iter();
        let bytes = numbers.flat_map(|number| number.to_le_bytes()).collect();
        (Argument::Buffer { bytes, offset: 0 }, f32::NAN)
    };
    Call::new(
        rows.kernel("logprob_entropy"),
        rows.count,
        threads_for(rows.vocab),
    )
    .argument(rows.argument())
    .value(rows.stride_bytes())
    .value((rows.vocab as i32).to_le_bytes())
    .buffer(words(targets))
    .argument(each)
    .value(all.to_le_bytes())
    .value(NO_LABEL.to_le_bytes())
    .buffer(vec![0xaa; 32 * rows.count])
}

pub(super) fn stats_of(done: &Done) -> Vec<Stats> {
    decode_stats(done.buffers.last().unwrap())
}

fn relative(got: f64, want: f64) -> f64 {
    if got == want {
        0.0
    } else {
        (got - want).abs() / want.abs()
    }
}

/// The bars: relative precision of log-probability, entropy and 1 − p unless p is 1 to 12 digits.
/// Gives the largest error as a share of its bar.
pub(super) fn check(
    rows: &Rows,
    row: usize,
    target: u32,
    inverse_temperature: f32,
    got: &Stats,
) -> f64 {
    let temperature = 1.0 / f64::from(inverse_temperature);
    let want = row_stats(rows.row(row), target as usize, temperature);
    let ulp = f64::from(f32::EPSILON) * want.log_sum_exp.abs();
    let mut shares = vec![
        (got.log_prob - want.log_prob).abs() / (4e-6 * want.log_prob.abs().max(1.0)),
        (got.entropy - want.entropy).abs() / (5e-6 * want.entropy.max(1.0)),
        (got.log_sum_exp - want.log_sum_exp).abs() / (2.0 * ulp + 3e-6),
    ];
    if want.complement >= 1e-12 || want.complement == 0.0 {
        shares.extend([
            relative(got.log_prob, want.log_prob) / 5e-6,
            relative(got.entropy, want.entropy) / 5e-6,
            relative(got.complement, want.complement) / 5e-6,
        ]);
    }
    let what = format!(
        "{:?} vocabulary {} row {row}: {got:?}, want {want:?}: shares of the bars {shares:?}",
        rows.kind, rows.vocab
    );
    assert_eq!(got.status, 0, "{what}");
    assert!(shares.iter().all(|share| *share <= 1.0), "{what}");
    shares.into_iter().fold(0.0, f64::max)
}

/// Targets spread over the row: first, last, and in between.
fn targets(rows: &Rows) -> Vec<u32> {
    let last = rows.vocab as u32 - 1;
    let spread = [0, last, last / 2, last / 3];
    (0..rows.count).map(|row| spread[row % 4]).collect()
}

/// All rows are within the bars, in one pass. Gives the largest share of a bar.
fn accurate(emulator: &mut Emulator, rows: &Rows, seed: u32) -> f64 {
    let inverse_temperatures: Vec<f32> = match rows.vocab % 3 {
        0 => vec![1.0],
        _ => (0..rows.count)
            .map(|row| [1.0, 1.4, 0.37][row % 3])
            .collect(),
    };
    let targets = targets(rows);
    let mut call = call(rows, &targets, &inverse_temperatures);
    call.seed = seed;
    let done = emulator.run(&call);
    let shares = stats_of(&done).into_iter().enumerate().map(|(row, got)| {
        let inverse = inverse_temperatures[row % inverse_temperatures.len()];
        check(rows, row, targets[row], inverse, &got)
    });
    let worst = shares.fold(0.0, f64::max);
    // One pass, and each target once more.
    let targets_again = (rows.count * rows.kind.bytes()) as u64;
    assert_eq!((done.read, done.written), (rows.pass() + targets_again, 0));
    worst
}

#[allow(
    clippy::print_stdout,
    reason = "measured numbers are for whoever asks with --nocapture"
)]
fn say(what: &str, worst: f64) {
    println!("{what}: the largest error is {worst:.2} of its bar");
}

fn every_shape(emulator: &mut Emulator, vocabularies: &[usize]) {
    let mut worst = 0.0f64;
    for (index, vocab) in vocabularies.iter().enumerate() {
        for kind in Type::ALL {
            let rows = if *vocab < 30_000 { 4 } else { 2 };
            let input = Rows::random(kind, rows, *vocab, index as u64);
            let placed = input.placed(index % 8, index % 3);
            worst = worst.max(accurate(emulator, &placed, 1 + index as u32));
        }
    }
    say("statistics of random rows", worst);
}

#[test]
fn statistics_meet_the_bars() {
    if let Some(mut emulator) = emulator() {
        every_shape(&mut emulator, &VOCABULARIES);
    }
}

#[test]
fn statistics_are_clean_under_sanitizers() {
    if let Some(mut emulator) = sanitized() {
        every_shape(&mut emulator, &SMALL);
        for offset in 0..8 {
            let rows = Rows::random(Type::ALL[offset % 3], 2, 40 + offset, 3);
            accurate(&mut emulator, &rows.placed(offset, 1), 5);
        }
    }
}

#[test]
fn a_common_shift_costs_nothing() {
    let Some(mut emulator) = emulator() else {
        return;
    };
    for shift in [300.0, -300.0, 20_000.0] {
        let rows = Rows::random(Type::F32, 3, 32_000, 8).shifted(shift);
        accurate(&mut emulator, &rows, 2);
    }
}

#[test]
fn near_certainty_keeps_relative_precision() {
    let Some(mut emulator) = emulator() else {
        return;
    };
    for kind in Type::ALL {
        let mut rows = Rows::random(kind, 8, 20_000, 11);
        let targets: Vec<u32> = (0..8).map(|row| 2_000 * row + 77).collect();
        for (row, target) in targets.iter().enumerate() {
            // 1 − p from about 0.9 down to 1e-12.
            rows.row_mut(row)[*target as usize] = kind.round(13.0 + 4.0 * row as f64);
        }
        let done = emulator.run(&call(&rows, &targets, &[1.0]));
        let shares = stats_of(&done).into_iter().enumerate();
        let shares = shares.map(|(row, got)| check(&rows, row, targets[row], 1.0, &got));
        say("near certainty", shares.fold(0.0, f64::max));
        let certain = stats_of(&done)[6].complement;
        assert!(certain < 1e-9 && certain > 0.0, "{certain}");
    }
}

#[test]
fn bits_do_not_depend_on_the_schedule() {
    let Some(mut emulator) = emulator() else {
        return;
    };
    let rows = Rows::random(Type::Bf16, 3, 5_003, 4).placed(3, 0);
    let mut call = call(&rows, &targets(&rows), &[0.8]);
    let first = emulator.run(&call);
    for seed in [0, 2, 3, 4, 5] {
        call.seed = seed;
        assert_eq!(emulator.run(&call), first, "seed {seed}");
    }
}

#[test]
fn rows_may_lie_beyond_32_bits() {
    let Some(mut emulator) = emulator() else {
        return;
    };
    for kind in Type::ALL {
        let rows = Rows::random(kind, 2, 1_003, 4).far_apart();
        accurate(&mut emulator, &rows, 1);
    }
}
