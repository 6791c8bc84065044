//! The fused linear layer on the GPU against products and losses in f64.

use dart_kernels::{
    Cpu, Labels, LogitsMut, Objective, RlLoss, Sequences, TokenLoss,
    cuda::{DeviceHead, FusedLinear, Gpu, GpuElement},
    row_stats,
};

use super::{
    checks::{Check, Result, download, published, upload},
    inputs,
};

const ROWS: usize = 37;
const WIDTH: usize = 24;
const VOCAB: usize = 203;

/// All number types. Logits and their gradient have the type of the layer, so 16 bits cost digits.
pub(crate) fn all(gpu: &Gpu) -> Result<Vec<Check>> {
    Ok(vec![
        check::<f32>(gpu, 1e-4)?,
        check::<half::bf16>(gpu, 2e-2)?,
        check::<half::f16>(gpu, 4e-3)?,
    ])
}

/// Loss, gradients and statistics, for a loss of tokens and one of sequences, in several chunks.
fn check<T: GpuElement>(gpu: &Gpu, allowed: f64) -> Result<Check> {
    let mut check = Check::new(format!("fused_linear {:?}", T::KIND));
    let hidden = inputs::logits::<T>(20, 0, ROWS * WIDTH);
    let weight: Vec<T> = inputs::logits::<f32>(21, 0, VOCAB * WIDTH)
        .into_iter()
        .map(|x| T::from_f64(f64::from(x) * 0.1))
        .collect();
    let (on_gpu, layer) = (upload(gpu, &hidden)?, upload(gpu, &weight)?);
    let linear = DeviceHead {
        hidden: on_gpu.as_view(),
        weight: layer.as_view(),
        width: WIDTH,
        vocab: VOCAB,
    };
    let (hidden, weight) = (widen(&hidden), widen(&weight));
    let logits = product(&hidden, &weight);
    // Ten rows of logits at a time.
    let fused = FusedLinear::new(gpu, 10 * 208 * size_of::<T>())?;
    statistics(&fused, &linear, &logits, allowed, &mut check)?;
    for (name, loss) in published()
        .into_iter()
        .filter(|(name, _)| ["paper", "gspo"].contains(name))
    {
        let tokens = inputs::tokens(22, VOCAB, &log_probs(&logits));
        let sequences = Sequences::from_lengths(&[20, 17]);
        let mut by_weight = upload(gpu, &vec![0f32; VOCAB * WIDTH])?;
        let objective = Objective {
            tokens: &tokens,
            sequences: &sequences,
            loss,
        };
        let got = fused.rl_loss(&linear, &objective, &mut by_weight)?;
        let (want, gradient) = reference(&logits, &tokens, &sequences, &loss)?;
        check.note(got.loss.loss, want.loss, allowed, || {
            format!("{name}, loss")
        });
        let by_hidden = transposed_product(&gradient, &weight, ROWS, VOCAB);
        let name_of = |what: &str| format!("{name}, {what}");
        norms(
            &mut check,
            &download(gpu, &got.by_hidden)?,
            &by_hidden,
            allowed,
            &name_of("dh"),
        );
        let by_layer = transposed_product(&transpose(&gradient, ROWS, VOCAB), &hidden, VOCAB, ROWS);
        norms(
            &mut check,
            &download(gpu, &by_weight)?,
            &by_layer,
            allowed,
            &name_of("dW"),
        );
    }
    Ok(check)
}

fn statistics<T: GpuElement>(
    fused: &FusedLinear,
    linear: &DeviceHead<'_, T>,
    logits: &[f64],
    allowed: f64,
    check: &mut Check,
) -> Result<()> {
    let targets: Vec<u32> = (0..ROWS)
        .map(|row| inputs::target(22, row, VOCAB))
        .collect();
    // Logits in f32: only the order of the sums differs.
    let got = fused.log_prob_entropy::<T, f32>(linear, &Labels::new(&targets))?;
    for (row, got) in got.iter().enumerate() {
        let want = row_stats(&logits[row * VOCAB..][..VOCAB], targets[row] as usize, 1.0);
        let allowed = allowed.min(1e-4);
        check.note(got.log_prob, want.log_prob, allowed, || {
            format!("log-probability {row}")
        });
        check.note(got.entropy, want.entropy, allowed, || {
            format!("entropy {row}")
        });
    }
    Ok(())
}

fn widen<T: GpuElement>(numbers: &[T]) -> Vec<f64> {
    numbers.iter().map(|x| (*x).into()).collect()
}

fn log_probs(logits: &[f64]) -> Vec<f64> {
    let row = |row: usize| {
        let target = inputs::target(22, row, VOCAB) as usize;
        row_stats(&logits[row * VOCAB..][..VOCAB], target, 1.0).log_prob
    };
    (0..ROWS).map(row).collect()
}

/// h Wᵀ.
fn product(hidden: &[f64], weight: &[f64]) -> Vec<f64> {
    let row = |h: &[f64]| {
        let dot = |w: &[f64]| h.iter().zip(w).map(|(h, w)| h * w).sum::<f64>();
        weight.chunks_exact(WIDTH).map(dot).collect::<Vec<_>>()
    };
    hidden.chunks_exact(WIDTH).flat_map(row).collect()
}

/// A B for A `[rows, inner]` and B `[inner, WIDTH]`.
fn transposed_product(a: &[f64], b: &[f64], rows: usize, inner: usize) -> Vec<f64> {
    let mut out = vec![0.0; rows * WIDTH];
    for (row, out) in out.chunks_exact_mut(WIDTH).enumerate() {
        for k in 0..inner {
            for (out, b) in out.iter_mut().zip(&b[k * WIDTH..][..WIDTH]) {
                *out += a[row * inner + k] * b;
            }
        }
    }
    out
}

fn transpose(a: &[f64], rows: usize, columns: usize) -> Vec<f64> {
    let at = |i: usize| a[i % rows * columns + i / rows];
    (0..rows * columns).map(at).collect()
}

fn reference(
    logits: &[f64],
    tokens: &[dart_kernels::Token],
    sequences: &Sequences,
    loss: &TokenLoss,
) -> Result<(RlLoss, Vec<f64>)> {
    let mut gradient = logits.to_vec();
    let rows = LogitsMut::new(&mut gradient, ROWS, VOCAB)?;
    let loss = Cpu::new().rl_loss_in_place(rows, tokens, sequences, loss)?;
    Ok((loss, gradient))
}

fn norms(check: &mut Check, got: &[f32], want: &[f64], allowed: f64, at: &str) {
    let square = |x: f64| x * x;
    let size: f64 = want.iter().map(|x| square(*x)).sum();
    let error = got
        .iter()
        .zip(want)
        .map(|(got, want)| square(f64::from(*got) - want))
        .sum::<f64>();
    check.note(error.sqrt(), 0.0, allowed * size.sqrt(), || at.to_owned());
}
