//! Statistics, loss and gradient in place: three passes and the two passes of a cluster.

use dart_kernels::{
    Clip, Importance, Kl, RatioLevel, RowGradient, Surrogate, Token, TokenLoss, WeightLevel,
    row_gradient, row_stats,
};

use super::{
    accuracy::{SMALL, VOCABULARIES, check, threads_for},
    driver::{Argument, Call, Emulator},
    emulator,
    inputs::{
        GAP, Outcome, Rows, Stats, Type, decode_outcomes, decode_stats, encode_loss, encode_tokens,
        tokens,
    },
    sanitized,
};

pub(super) const CLUSTER: usize = 8;

/// Everything at once: both clips, truncation, k3, entropy.
pub(super) const LOSS: TokenLoss = TokenLoss {
    surrogate: Surrogate::Clipped(Clip {
        low: 0.2,
        high: 0.28,
        dual: Some(3.0),
        ratio_cap: None,
    }),
    ratio: RatioLevel::Token,
    importance: Importance::Truncated {
        level: WeightLevel::Token,
        cap: 1.0,
    },
    kl: Kl::k3(0.25),
    entropy_bonus: 0.125,
};

/// What a training step gives.
#[derive(Debug, PartialEq)]
pub(super) struct Step {
    pub(super) gradient: Vec<f64>,
    pub(super) stats: Vec<u8>,
    pub(super) outcomes: Vec<u8>,
    pub(super) read: u64,
    pub(super) written: u64,
}

impl Step {
    pub(super) fn outcomes(&self) -> Vec<Outcome> {
        decode_outcomes(&self.outcomes)
    }

    pub(super) fn stats(&self) -> Vec<Stats> {
        decode_stats(&self.stats)
    }
}

fn row_call(rows: &Rows, name: &str, tokens: &[Token]) -> Call {
    Call::new(rows.kernel(name), rows.count, threads_for(rows.vocab))
        .argument(rows.argument())
        .value(rows.stride_bytes())
        .value((rows.vocab as i32).to_le_bytes())
        .buffer(encode_tokens(tokens))
}

/// Statistics of a row and the outcome of its token: 32 bytes each, poisoned.
fn blank(rows: &Rows) -> Vec<u8> {
    vec![0xaa; 32 * rows.count]
}

/// The two-pass kernel.
pub(super) fn fused_call(rows: &Rows, tokens: &[Token], loss: &TokenLoss) -> Call {
    let vector = 16 / rows.kind.bytes();
    let share = rows.vocab.div_ceil(CLUSTER).next_multiple_of(vector);
    let mut call = row_call(rows, "rl_fused", tokens)
        .value(encode_loss(loss))
        .buffer(blank(rows))
        .buffer(blank(rows));
    call.grid = rows.count * CLUSTER;
    call.cluster = CLUSTER as u32;
    call.threads = threads_for(rows.vocab) / 2;
    call.shared_bytes = share * rows.kind.bytes() + 16;
    call
}

pub(super) fn fused_step(emulator: &mut Emulator, call: &Call, rows: &Rows) -> Step {
    let mut done = emulator.run(call);
    let outcomes = done.buffers.pop().unwrap();
    let stats = done.buffers.pop().unwrap();
    Step {
        gradient: rows.kind.decode(&done.buffers[0]),
        stats,
        outcomes,
        read: done.read,
        written: done.written,
    }
}

pub(super) fn fused(
    emulator: &mut Emulator,
    rows: &Rows,
    tokens: &[Token],
    loss: &TokenLoss,
) -> Step {
    fused_step(emulator, &fused_call(rows, tokens, loss), rows)
}

/// Statistics, loss, gradient: the three kernels one after another.
pub(super) fn three_passes(
    emulator: &mut Emulator,
    rows: &Rows,
    tokens: &[Token],
    loss: &TokenLoss,
) -> Step {
    let forward = emulator.run(&row_call(rows, "rl_stats", tokens).buffer(blank(rows)));
    let stats = forward.buffers.last().unwrap().clone();
    let outcomes = token_loss(emulator, &stats, tokens, None, loss);
    let backward = row_call(rows, "rl_backward", tokens)
        .buffer(stats.clone())
        .buffer(outcomes.clone());
    let backward = emulator.run(&backward);
    Step {
        gradient: rows.kind.decode(&backward.buffers[0]),
        stats,
        outcomes,
        read: forward.read + backward.read,
        written: forward.written + backward.written,
    }
}

/// The kernel of that name; `terms` as bytes.
pub(super) fn token_loss(
    emulator: &mut Emulator,
    stats: &[u8],
    tokens: &[Token],
    terms: Option<Vec<u8>>,
    loss: &TokenLoss,
) -> Vec<u8> {
    let terms = terms.map_or(Argument::Null, |bytes| Argument::Buffer {
        bytes,
        offset: 0,
    });
    let call = Call::new("token_loss", tokens.len().div_ceil(64), 64)
        .buffer(stats)
        .buffer(encode_tokens(tokens))
        .argument(terms)
        .value(encode_loss(loss))
        .value((tokens.len() as i32).to_le_bytes())
        .buffer(vec![0xaa; 32 * tokens.len()]);
    emulator.run(&call).buffers.pop().unwrap()
}

/// Tokens for random rows, with log-probabilities of other policies near the row's own.
pub(super) fn tokens_for(rows: &Rows, seed: u64) -> Vec<Token> {
    near_rows(rows, tokens(&vec![0.0; rows.count], rows.vocab, seed))
}

/// Moves the other policies' log-probabilities by the row's own.
pub(super) fn near_rows(rows: &Rows, mut tokens: Vec<Token>) -> Vec<Token> {
    for (row, token) in tokens.iter_mut().enumerate() {
        let stats = row_stats(rows.row(row), token.target as usize, token.temperature);
        for other in [&mut token.old, &mut token.rollout, &mut token.reference] {
            *other = other.map(|x| f64::from((x + stats.log_prob) as f32));
        }
    }
    tokens
}

fn norm(values: impl Iterator<Item = f64>) -> f64 {
    values.map(|x| x * x).sum::<f64>().sqrt()
}

/// The gradient of one row: its distance from the f64 gradient, its sum, its target.
fn check_gradient(rows: &Rows, row: usize, token: &Token, outcome: &Outcome, got: &[f64]) {
    let target = token.target as usize;
    let stats = row_stats(rows.row(row), target, token.temperature);
    let by = RowGradient {
        log_prob: outcome.by_log_prob,
        entropy: outcome.by_entropy,
    };
    let mut want = vec![0.0; rows.vocab];
    row_gradient(
        rows.row(row),
        (target, token.temperature),
        &stats,
        by,
        &mut want,
    );
    let what = format!("{:?} vocabulary {} row {row}", rows.kind, rows.vocab);
    let size = norm(want.iter().copied());
    let rounded = |x: f64| rows.kind.round(x);
    let rounding = norm(want.iter().map(|x| rounded(*x) - x));
    let error = norm(want.iter().zip(got).map(|(want, got)| want - got));
    // f16 has subnormals of 6e-8: the f32 result's own error moves some of them by one.
    let bar = match rows.kind {
        Type::F32 => 2e-6 * size,
        Type::Bf16 => 1.02 * rounding + 1e-9 * size,
        Type::F16 => 1.02 * rounding + 2e-6 * size,
    };
    assert!(
        error <= bar,
        "{what}: {error:e} of {size:e}, rounding {rounding:e}"
    );
    let step = match rows.kind {
        Type::F32 => 5e-6,
        Type::Bf16 => 1.0 / 128.0,
        Type::F16 => 1.0 / 1024.0,
    };
    let off = (got[target] - want[target]).abs();
    assert!(
        off <= step * want[target].abs() + 6e-8,
        "{what}: target off by {off:e}"
    );
    if rows.kind == Type::F32 {
        let sum: f64 = got.iter().sum();
        assert!(
            sum.abs() <= 1e-5 * got.iter().map(|x| x.abs()).sum::<f64>(),
            "{what}: sum {sum:e}"
        );
    }
}

fn close(got: f64, want: f64, scale: f64) -> bool {
    (got - want).abs() <= 1e-5 * (want.abs() + scale)
}

fn check_step(rows: &Rows, tokens: &[Token], loss: &TokenLoss, step: &Step) {
    for (row, token) in tokens.iter().enumerate() {
        let (stats, outcome) = (step.stats()[row], step.outcomes()[row]);
        check(
            rows,
            row,
            token.target,
            (1.0 / token.temperature) as f32,
            &stats,
        );
        let want = row_stats(rows.row(row), token.target as usize, token.temperature);
        let want = dart_kernels::token_loss(loss, token, want.log_prob, want.entropy);
        let scale = token.weight * (1.0 + token.advantage.abs());
        assert!(
            close(outcome.loss, want.loss, scale),
            "{outcome:?}, want {want:?}"
        );
        assert!(
            close(outcome.by_log_prob, want.by_log_prob, scale),
            "{outcome:?}, want {want:?}"
        );
        let got = &step.gradient[row * rows.stride..][..rows.vocab];
        check_gradient(rows, row, token, &outcome, got);
    }
    let gaps = step.gradient.chunks(rows.stride);
    assert!(
        gaps.flat_map(|row| &row[rows.vocab..]).all(|x| *x == GAP),
        "a gap was written"
    );
}

/// Both forms of a training step, each against f64, with their passes counted.
fn both_forms(emulator: &mut Emulator, rows: &Rows, seed: u64) {
    let tokens = tokens_for(rows, seed);
    let (pass, targets) = (rows.pass(), (rows.count * rows.kind.bytes()) as u64);
    let three = three_passes(emulator, rows, &tokens, &LOSS);
    check_step(rows, &tokens, &LOSS, &three);
    assert_eq!((three.read, three.written), (2 * pass + targets, pass));
    let two = fused(emulator, rows, &tokens, &LOSS);
    check_step(rows, &tokens, &LOSS, &two);
    assert_eq!(
        (two.read, two.written),
        (pass + CLUSTER as u64 * targets, pass)
    );
}

fn every_shape(emulator: &mut Emulator, vocabularies: &[usize]) {
    for (index, vocab) in vocabularies.iter().enumerate() {
        for kind in Type::ALL {
            let count = if *vocab < 30_000 { 3 } else { 1 };
            let rows = Rows::random(kind, count, *vocab, 50 + index as u64);
            both_forms(
                emulator,
                &rows.placed((3 * index) % 8, index % 2),
                index as u64,
            );
        }
    }
}

#[test]
fn training_steps_meet_the_bars() {
    if let Some(mut emulator) = emulator() {
        every_shape(&mut emulator, &VOCABULARIES);
    }
}

#[test]
fn training_steps_are_clean_under_sanitizers() {
    if let Some(mut emulator) = sanitized() {
        every_shape(&mut emulator, &SMALL);
        for offset in 0..8 {
            let rows = Rows::random(Type::ALL[offset % 3], 1, 70 + 9 * offset, 3);
            both_forms(&mut emulator, &rows.placed(offset, 1), 5);
        }
    }
}

#[test]
fn certain_tokens_have_a_gradient() {
    let Some(mut emulator) = emulator() else {
        return;
    };
    let loss = TokenLoss {
        entropy_bonus: 0.01,
        ..TokenLoss::LIKELIHOOD
    };
    for kind in Type::ALL {
        let mut rows = Rows::random(kind, 4, 4_001, 21);
        let mut tokens = tokens_for(&rows, 22);
        for (row, token) in tokens.iter_mut().enumerate() {
            token.temperature = 1.0;
            // f16 ends at 6e-8: the gradient of one logit must stay above that.
            let top = if kind == Type::F16 { 16.0 } else { 24.0 };
            rows.row_mut(row)[token.target as usize] = kind.round(top + row as f64);
        }
        let step = fused(&mut emulator, &rows, &tokens, &loss);
        check_step(&rows, &tokens, &loss, &step);
        let step = three_passes(&mut emulator, &rows, &tokens, &loss);
        check_step(&rows, &tokens, &loss, &step);
    }
}

#[test]
fn bits_do_not_depend_on_the_schedule() {
    let Some(mut emulator) = emulator() else {
        return;
    };
    let rows = Rows::random(Type::F16, 2, 3_001, 4).placed(5, 3);
    let tokens = tokens_for(&rows, 9);
    let mut call = fused_call(&rows, &tokens, &LOSS);
    let first = fused_step(&mut emulator, &call, &rows);
    for seed in [0, 2, 3, 4, 5, 6] {
        call.seed = seed;
        let again = fused_step(&mut emulator, &call, &rows);
        assert_eq!(again, first, "seed {seed}");
    }
}

#[test]
fn clipped_rows_are_not_read_again() {
    let Some(mut emulator) = emulator() else {
        return;
    };
    let rows = Rows::random(Type::Bf16, 1, 1_000, 6);
    let mut tokens = tokens_for(&rows, 1);
    let own = row_stats(
        rows.row(0),
        tokens[0].target as usize,
        tokens[0].temperature,
    );
    tokens[0].advantage = 1.0;
    tokens[0].old = Some(f64::from((own.log_prob - 1.0) as f32));
    let loss = TokenLoss {
        kl: Kl::OFF,
        entropy_bonus: 0.0,
        ..LOSS
    };
    let step = three_passes(&mut emulator, &rows, &tokens, &loss);
    assert_eq!(step.outcomes()[0].clip, 2);
    assert!(step.gradient.iter().all(|x| *x == 0.0));
    assert_eq!((step.read, step.written), (rows.pass() + 2, rows.pass()));
}

#[test]
fn rows_may_lie_beyond_32_bits() {
    let Some(mut emulator) = emulator() else {
        return;
    };
    for kind in Type::ALL {
        both_forms(
            &mut emulator,
            &Rows::random(kind, 2, 1_003, 4).far_apart(),
            1,
        );
    }
}

#[test]
fn blocks_of_every_size_agree() {
    let Some(mut emulator) = emulator() else {
        return;
    };
    let rows = Rows::random(Type::Bf16, 1, 20_011, 17).placed(3, 0);
    let tokens = tokens_for(&rows, 18);
    for threads in [32, 96, 512] {
        let mut call = fused_call(&rows, &tokens, &LOSS);
        call.threads = threads;
        let step = fused_step(&mut emulator, &call, &rows);
        check_step(&rows, &tokens, &LOSS, &step);
        let mut call = row_call(&rows, "rl_stats", &tokens).buffer(blank(&rows));
        call.threads = threads;
        let stats = decode_stats(emulator.run(&call).buffers.last().unwrap());
        let inverse_temperature = (1.0 / tokens[0].temperature) as f32;
        check(&rows, 0, tokens[0].target, inverse_temperature, &stats[0]);
    }
}
