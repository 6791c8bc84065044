//! Operations that are not bound by the vocabulary, and the fused output layer.

use std::hint::black_box;

use criterion::{Criterion, Throughput};
use dart_kernels::{
    Cpu, FusedLinear, Head, Objective, RatioLevel, Selection, Sequences, TokenLoss, segment_means,
    select_steps, token_losses,
};

use crate::support::inputs::{Case, loss, normal};

fn numbers(seed: u32, count: usize) -> Vec<f32> {
    (0..count as u32).map(|i| normal(seed, i)).collect()
}

/// Hidden states times output weights, loss and both gradients.
pub(crate) fn fused_linear(criterion: &mut Criterion) {
    let (case, hidden) = (Case::new(256, 32_768), 896);
    let mut group = criterion.benchmark_group("fused_linear 256x896x32768 f32");
    group.throughput(Throughput::Elements((6 * case.elements() * hidden) as u64));
    let states = numbers(1, case.rows * hidden);
    let weight = numbers(2, case.vocab * hidden);
    let weight: Vec<f32> = weight.iter().map(|w| w / 100.0).collect();
    let tokens = case.tokens();
    let objective = Objective {
        tokens: &tokens,
        sequences: &Sequences::single_tokens(case.rows),
        loss: loss(),
    };
    let head = Head {
        hidden: &states,
        weight: &weight,
        rows: case.rows,
        width: hidden,
        vocab: case.vocab,
    };
    let mut by_weight = vec![0.0; weight.len()];
    for chunk_rows in [32, 256] {
        let layer = FusedLinear::new(Cpu::new()).with_chunk_rows(chunk_rows);
        group.bench_function(format!("chunks_of_{chunk_rows}"), |b| {
            b.iter(|| black_box(layer.rl_loss(&head, &objective, &mut by_weight)));
        });
    }
    group.finish();
}

/// The closed forms for many tokens.
pub(crate) fn token_loss(criterion: &mut Criterion) {
    let count = 65_536;
    let mut group = criterion.benchmark_group("token_loss 65536");
    group.throughput(Throughput::Elements(count as u64));
    let tokens = Case::new(count, 32_768).tokens();
    let current: Vec<(f64, f64)> = (0..count as u32)
        .map(|i| (-10.0 + f64::from(normal(5, i)) / 10.0, 1.0))
        .collect();
    let sequences = Sequences::from_lengths(&vec![64; count / 64]);
    group.bench_function("token_level", |b| {
        b.iter(|| black_box(token_losses(&loss(), &tokens, &sequences, &current)));
    });
    let gspo = TokenLoss {
        ratio: RatioLevel::Sequence,
        ..loss()
    };
    group.bench_function("sequence_level", |b| {
        b.iter(|| black_box(token_losses(&gspo, &tokens, &sequences, &current)));
    });
    group.finish();
}

/// Mean entropies of steps and the choice among them.
pub(crate) fn steps(criterion: &mut Criterion) {
    let steps = 4096;
    let entropies: Vec<f64> = (0..steps as u32 * 32)
        .map(|i| f64::from(normal(6, i).abs()))
        .collect();
    let sequences = Sequences::from_lengths(&vec![32; steps]);
    let mask = vec![true; entropies.len()];
    let mut group = criterion.benchmark_group("steps 4096");
    group.throughput(Throughput::Elements(steps as u64));
    group.bench_function("segment_means", |b| {
        b.iter(|| black_box(segment_means(&entropies, &mask, &sequences)));
    });
    let means: Vec<f64> = entropies.iter().copied().take(steps).collect();
    let groups: Vec<u64> = (0..steps as u64).map(|i| i / 64).collect();
    group.bench_function("select_steps", |b| {
        b.iter(|| black_box(select_steps(&means, &groups, Selection::Quantile(0.2))));
    });
    group.finish();
}
