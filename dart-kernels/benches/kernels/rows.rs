//! Operations on rows of logits.

use std::hint::black_box;

use candle_core::{Device, Tensor, Var};
use criterion::{BatchSize, BenchmarkGroup, Criterion, Throughput, measurement::WallTime};
use dart_kernels::{
    Cpu, Element, Isa, Labels, Logits, LogitsMut, RowGradient, Sequences, row_gradient, row_stats,
    token_loss,
};
use half::{bf16, f16};

use crate::support::{
    composition::{Columns, log_prob_entropy},
    inputs::{Case, loss},
};

/// Each instruction set on one thread, the fastest on all.
pub(crate) fn engines() -> Vec<(String, Cpu)> {
    let one = Cpu::new().single_threaded();
    let mut engines: Vec<(String, Cpu)> = Isa::available()
        .filter_map(|isa| Some((format!("{isa:?}").to_lowercase(), one.with_isa(isa).ok()?)))
        .collect();
    engines.push((
        format!("{}_threads", rayon::current_num_threads()),
        Cpu::new(),
    ));
    engines
}

/// Calls `run` with the next buffer of a rotation.
fn next<T>(buffers: &[T], at: &mut usize) -> usize {
    *at = (*at + 1) % buffers.len();
    *at
}

/// Log-probability and entropy.
pub(crate) fn forward(criterion: &mut Criterion) {
    for case in Case::ALL {
        forward_of::<f32>(criterion, case, "f32");
        forward_of::<bf16>(criterion, case, "bf16");
        forward_of::<f16>(criterion, case, "f16");
    }
}

fn forward_of<T: Element>(criterion: &mut Criterion, case: Case, element: &str) {
    let mut group =
        criterion.benchmark_group(format!("log_prob_entropy {} {element}", case.name()));
    group.throughput(Throughput::Bytes((case.elements() * size_of::<T>()) as u64));
    let buffers = case.rotation::<T>();
    let targets = case.targets();
    let mut at = 0;
    for (name, cpu) in engines() {
        group.bench_function(name, |b| {
            b.iter(|| {
                let data = &buffers[next(&buffers, &mut at)];
                let logits = Logits::new(data, case.rows, case.vocab).expect("the case fits");
                black_box(cpu.log_prob_entropy(logits, &Labels::new(&targets)))
            });
        });
    }
    group.bench_function("reference", |b| {
        b.iter(|| {
            let rows = buffers[next(&buffers, &mut at)].chunks_exact(case.vocab);
            let stats = rows
                .zip(&targets)
                .map(|(row, y)| row_stats(row, *y as usize, 1.0));
            black_box(stats.map(|stats| stats.entropy).sum::<f64>())
        });
    });
    if element == "f32" {
        candle_forward(&mut group, case);
    }
    group.finish();
}

fn candle_forward(group: &mut BenchmarkGroup<'_, WallTime>, case: Case) {
    let tensors = tensors(case);
    let targets = Tensor::new(case.targets(), &Device::Cpu).and_then(|t| t.unsqueeze(1));
    let targets = targets.expect("the targets make a tensor");
    let mut at = 0;
    group.bench_function("candle", |b| {
        b.iter(|| {
            black_box(log_prob_entropy(
                &tensors[next(&tensors, &mut at)],
                &targets,
            ))
        });
    });
}

fn tensors(case: Case) -> Vec<Tensor> {
    let shape = (case.rows, case.vocab);
    let tensor = |data: Vec<f32>| Tensor::from_vec(data, shape, &Device::Cpu);
    let rotation = case.rotation::<f32>().into_iter().map(tensor);
    rotation
        .map(|tensor| tensor.expect("the shape fits"))
        .collect()
}

/// Loss and gradient in place of the logits.
pub(crate) fn training(criterion: &mut Criterion) {
    for case in Case::ALL {
        training_of::<f32>(criterion, case, "f32");
        training_of::<bf16>(criterion, case, "bf16");
    }
}

fn training_of<T: Element>(criterion: &mut Criterion, case: Case, element: &str) {
    let mut group = criterion.benchmark_group(format!("rl_loss {} {element}", case.name()));
    // Read, and overwritten while the row is in the cache.
    group.throughput(Throughput::Bytes(
        (2 * case.elements() * size_of::<T>()) as u64,
    ));
    let buffers = case.rotation::<T>();
    let tokens = case.tokens();
    let sequences = Sequences::single_tokens(case.rows);
    let mut at = 0;
    for (name, cpu) in engines() {
        group.bench_function(name, |b| {
            b.iter_batched_ref(
                || buffers[next(&buffers, &mut at)].clone(),
                |data| {
                    let logits = LogitsMut::new(data, case.rows, case.vocab);
                    let logits = logits.expect("the case fits");
                    black_box(cpu.rl_loss_in_place(logits, &tokens, &sequences, &loss()))
                },
                BatchSize::PerIteration,
            );
        });
    }
    group.bench_function("reference", |b| {
        b.iter(|| black_box(reference::<T>(&buffers[next(&buffers, &mut at)], case)));
    });
    if element == "f32" {
        candle_training(&mut group, case);
    }
    group.finish();
}

/// Loss and gradient by the definition.
fn reference<T: Element>(data: &[T], case: Case) -> Vec<T> {
    let mut gradient = vec![T::ZERO; data.len()];
    let rows = data
        .chunks_exact(case.vocab)
        .zip(gradient.chunks_exact_mut(case.vocab));
    for ((row, out), token) in rows.zip(case.tokens()) {
        let target = token.target as usize;
        let stats = row_stats(row, target, 1.0);
        let outcome = token_loss(&loss(), &token, stats.log_prob, stats.entropy);
        let by = RowGradient {
            log_prob: outcome.by_log_prob,
            entropy: outcome.by_entropy,
        };
        row_gradient(row, (target, 1.0), &stats, by, out);
    }
    gradient
}

fn candle_training(group: &mut BenchmarkGroup<'_, WallTime>, case: Case) {
    let variables: Vec<Var> = tensors(case)
        .iter()
        .map(|tensor| Var::from_tensor(tensor).expect("there is memory"))
        .collect();
    let columns = Columns::new(&case.tokens(), &variables[0]).expect("columns make tensors");
    let mut at = 0;
    group.bench_function("candle", |b| {
        b.iter(|| {
            let loss = columns.loss(&variables[next(&variables, &mut at)]);
            black_box(
                loss.and_then(|loss| loss.backward())
                    .expect("it has a gradient"),
            )
        });
    });
}
