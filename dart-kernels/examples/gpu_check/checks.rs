//! Every operation on the GPU against the definition in f64 on the exact values of the inputs.
//!
//! Used by the example `gpu_check` and by the tests.

use dart_kernels::{
    Clip, Cpu, Importance, Kl, KlEstimate, KlGradient, Labels, LogitsMut, LossSums, RatioLevel,
    RlLoss, RowStats, Sequences, Shape, Surrogate, Temperature, Token, TokenLoss, TokenOutcome,
    WeightLevel,
    cuda::{DeviceLogits, DeviceLogitsMut, Error, Form, Gpu, GpuElement},
    row_stats, token_losses,
};

use super::inputs;

pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

/// The largest error of a check, as a share of what is allowed.
#[derive(Clone, Debug)]
pub(crate) struct Check {
    pub(crate) name: String,
    pub(crate) worst: f64,
    /// Where the largest error was.
    pub(crate) at: String,
    pub(crate) compared: usize,
}

impl Check {
    pub(crate) fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            worst: 0.0,
            at: String::new(),
            compared: 0,
        }
    }

    pub(crate) fn passed(&self) -> bool {
        self.worst <= 1.0 && self.compared > 0
    }

    /// Notes an error of which `allowed` is allowed. Numbers that are not finite must be the same.
    pub(crate) fn note(&mut self, got: f64, want: f64, allowed: f64, at: impl Fn() -> String) {
        let same = got == want || (got.is_nan() && want.is_nan());
        let share = if same {
            0.0
        } else {
            (got - want).abs() / allowed
        };
        self.compared += 1;
        if share > self.worst || share.is_nan() {
            self.worst = if share.is_nan() { f64::INFINITY } else { share };
            self.at = format!("{}: {got:e} for {want:e}", at());
        }
    }
}

/// How much is checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    pub(crate) vocabularies: &'static [usize],
    pub(crate) rows: usize,
}

impl Extent {
    /// For a GPU.
    pub(crate) const FULL: Self = Self {
        vocabularies: &[
            1, 7, 255, 257, 1000, 1003, 32_000, 50_257, 128_256, 151_936, 152_064, 262_144,
        ],
        rows: 33,
    };

    /// For a GPU that is emulated.
    pub(crate) const SMALL: Self = Self {
        vocabularies: &[1, 7, 255, 257, 1003, 5003],
        rows: 13,
    };
}

/// All checks but those of the fused linear layer.
pub(crate) fn all(gpu: &Gpu, extent: Extent) -> Result<Vec<Check>> {
    let mut checks = Vec::new();
    of_type::<f32>(gpu, extent, &mut checks)?;
    of_type::<half::bf16>(gpu, extent, &mut checks)?;
    of_type::<half::f16>(gpu, extent, &mut checks)?;
    checks.push(token_operations(gpu)?);
    checks.push(segments(gpu)?);
    Ok(checks)
}

fn of_type<T: GpuElement>(gpu: &Gpu, extent: Extent, checks: &mut Vec<Check>) -> Result<()> {
    checks.push(statistics::<T>(gpu, extent)?);
    checks.push(edges::<T>(gpu)?);
    for form in [Form::ThreePass, Form::Fused] {
        if form == Form::Fused && gpu.form::<T>(1000, true) != Form::Fused {
            continue;
        }
        checks.push(losses::<T>(gpu, extent, form)?);
        checks.push(repeats::<T>(gpu, form)?);
    }
    checks.push(gradient_of_labels::<T>(gpu)?);
    Ok(())
}

fn exact<T: GpuElement>(row: &[T]) -> Vec<f64> {
    row.iter().map(|x| (*x).into()).collect()
}

/// Rows with gaps that begin at an odd element of a buffer.
struct Rows<T> {
    buffer: Vec<T>,
    shift: usize,
    shape: Shape,
}

impl<T: GpuElement> Rows<T> {
    fn new(stream: u64, rows: usize, vocab: usize, shift: usize) -> Self {
        let row_stride = vocab + shift;
        let count = shift + rows * row_stride;
        Self {
            buffer: inputs::logits(stream, 0, count),
            shift,
            shape: Shape {
                rows,
                vocab,
                row_stride,
            },
        }
    }

    fn start(&self, row: usize) -> usize {
        self.shift + row * self.shape.row_stride
    }

    fn row(&self, row: usize) -> &[T] {
        &self.buffer[self.start(row)..][..self.shape.vocab]
    }

    /// Where the rows lie in the buffer, without the gap after the last.
    fn range(&self) -> std::ops::Range<usize> {
        self.shift..self.start(self.shape.rows - 1) + self.shape.vocab
    }

    fn run<R>(
        &mut self,
        gpu: &Gpu,
        work: impl FnOnce(DeviceLogitsMut<'_, T>) -> Result<R>,
    ) -> Result<R> {
        let mut device = upload(gpu, &self.buffer)?;
        let range = self.range();
        let result = work(DeviceLogitsMut::from_view(
            device.slice_mut(range),
            self.shape,
        )?)?;
        self.buffer = download(gpu, &device)?;
        Ok(result)
    }
}

type Buffer<T> = cudarc::driver::CudaSlice<T>;

pub(crate) fn upload<T: GpuElement>(gpu: &Gpu, numbers: &[T]) -> Result<Buffer<T>> {
    let copied = gpu.stream().clone_htod(numbers);
    copied.map_err(|source| Error::Driver {
        what: "copy inputs",
        source,
    })
}

pub(crate) fn download<T: GpuElement>(gpu: &Gpu, buffer: &Buffer<T>) -> Result<Vec<T>> {
    let mut numbers = vec![T::ZERO; buffer.len()];
    let copied = gpu.stream().memcpy_dtoh(buffer, &mut numbers);
    copied.map_err(|source| Error::Driver {
        what: "copy results",
        source,
    })?;
    gpu.synchronize()?;
    Ok(numbers)
}

/// Bars for statistics: absolute for everything, relative near certainty.
fn note_stats(check: &mut Check, got: &RowStats, want: &RowStats, at: impl Fn() -> String) {
    let scaled = |bar: f64, x: f64| bar * x.abs().max(1.0);
    let named = |what: &'static str| {
        let at = at();
        move || format!("{at}, {what}")
    };
    let log_prob = scaled(4e-6, want.log_prob);
    check.note(
        got.log_prob,
        want.log_prob,
        log_prob,
        named("log-probability"),
    );
    check.note(
        got.entropy,
        want.entropy,
        scaled(5e-6, want.entropy),
        named("entropy"),
    );
    let ulp = f64::from(f32::EPSILON) * want.log_sum_exp.abs();
    check.note(
        got.log_sum_exp,
        want.log_sum_exp,
        2.0 * ulp + 3e-6,
        named("log-sum-exp"),
    );
    if want.complement >= 1e-12 || want.complement.is_nan() {
        let relative = |x: f64| 5e-6 * x.abs();
        check.note(
            got.log_prob,
            want.log_prob,
            relative(want.log_prob),
            named("digits of log p"),
        );
        check.note(
            got.entropy,
            want.entropy,
            relative(want.entropy),
            named("digits of entropy"),
        );
        let digits = relative(want.complement);
        check.note(
            got.complement,
            want.complement,
            digits,
            named("digits of 1 - p"),
        );
    }
}

fn statistics<T: GpuElement>(gpu: &Gpu, extent: Extent) -> Result<Check> {
    let mut check = Check::new(format!("log_prob_entropy {:?}", T::KIND));
    for (case, vocab) in extent.vocabularies.iter().copied().enumerate() {
        let mut rows = Rows::<T>::new(case as u64, extent.rows, vocab, case % 9);
        let targets: Vec<u32> = (0..extent.rows)
            .map(|row| inputs::target(50, row, vocab))
            .collect();
        // Every third row is nearly certain of its target.
        for row in (0..extent.rows).step_by(3) {
            let at = rows.start(row) + targets[row] as usize;
            rows.buffer[at] = T::from_f64(14.0 + 8.0 * (row % 4) as f64);
        }
        let temperatures: Vec<f64> = (0..extent.rows)
            .map(|row| [1.0, 0.7, 1.9][row % 3])
            .collect();
        let labels = Labels {
            temperature: Temperature::PerRow(&temperatures),
            ..Labels::new(&targets)
        };
        let range = rows.range();
        let device = upload(gpu, &rows.buffer)?;
        let logits = DeviceLogits::from_view(device.slice(range), rows.shape)?;
        let got = gpu.log_prob_entropy(&logits, &labels)?;
        for (row, got) in got.iter().enumerate() {
            let want = row_stats(
                &exact(rows.row(row)),
                targets[row] as usize,
                temperatures[row],
            );
            note_stats(&mut check, got, &want, || {
                format!("vocabulary {vocab}, row {row}")
            });
        }
    }
    Ok(check)
}

/// Masked, broken, ignored rows.
fn edges<T: GpuElement>(gpu: &Gpu) -> Result<Check> {
    let mut check = Check::new(format!("edge rows {:?}", T::KIND));
    for vocab in [3usize, 1000, 5003] {
        let plain = inputs::logits::<T>(9, 0, vocab);
        let masked = T::from_f64(f64::NEG_INFINITY);
        let with = |change: &dyn Fn(usize) -> Option<f64>| -> Vec<T> {
            let of = |i| change(i).map_or(plain[i], T::from_f64);
            (0..vocab).map(of).collect()
        };
        let last = vocab as u32 - 1;
        let cases: Vec<(&str, Vec<T>, u32)> = vec![
            (
                "prefix masked",
                with(&|i| (i < vocab - 1).then_some(f64::NEG_INFINITY)),
                last,
            ),
            (
                "third masked",
                with(&|i| (i % 3 == 0).then_some(f64::NEG_INFINITY)),
                1,
            ),
            ("all masked", vec![masked; vocab], 1),
            ("NaN", with(&|i| (i == vocab / 2).then_some(f64::NAN)), 0),
            (
                "NaN at the target",
                with(&|i| (i == 0).then_some(f64::NAN)),
                0,
            ),
            (
                "+inf",
                with(&|i| (i == vocab / 2).then_some(f64::INFINITY)),
                0,
            ),
            (
                "target masked",
                with(&|i| (i == 1).then_some(f64::NEG_INFINITY)),
                1,
            ),
            ("label outside", plain.clone(), vocab as u32),
            ("label far outside", plain.clone(), u32::MAX),
            (
                "shifted",
                with(&|i| Some(Into::<f64>::into(plain[i]) + 300.0)),
                1,
            ),
        ];
        let all: Vec<T> = cases.iter().flat_map(|(_, row, _)| row.clone()).collect();
        let targets: Vec<u32> = cases.iter().map(|(_, _, target)| *target).collect();
        let device = upload(gpu, &all)?;
        let logits = DeviceLogits::new(&device, Shape::dense(cases.len(), vocab))?;
        let got = gpu.log_prob_entropy(&logits, &Labels::new(&targets))?;
        for ((name, row, target), got) in cases.iter().zip(&got) {
            let want = row_stats(&exact(row), *target as usize, 1.0);
            note_stats(&mut check, got, &want, || {
                format!("{name}, vocabulary {vocab}")
            });
        }
        let labels = Labels {
            ignore: Some(last),
            ..Labels::new(&targets)
        };
        let ignored = gpu.log_prob_entropy(&logits, &labels)?;
        check.note(ignored[0].log_prob, 0.0, 1e-30, || "ignored label".into());
        check.note(ignored[1].log_prob, got[1].log_prob, 1e-30, || {
            "label beside it".into()
        });
    }
    Ok(check)
}

/// Losses that together use every branch of the token loss.
pub(crate) fn published() -> Vec<(&'static str, TokenLoss)> {
    let clip = Clip {
        ratio_cap: Some(1.1),
        ..Clip::new(0.1, 0.15)
    };
    let sequence = |level| Importance::Masked {
        level,
        low: 0.2,
        high: 3.0,
    };
    let base = TokenLoss::PAPER;
    let kl = |estimate, gradient, times_ratio| Kl {
        estimate,
        gradient,
        times_ratio,
        ..Kl::k3(0.3)
    };
    vec![
        (
            "paper",
            TokenLoss {
                entropy_bonus: 0.02,
                ..base
            },
        ),
        (
            "likelihood",
            TokenLoss {
                kl: kl(KlEstimate::K1, KlGradient::K2, true),
                ..TokenLoss::LIKELIHOOD
            },
        ),
        (
            "capped",
            TokenLoss {
                surrogate: Surrogate::Clipped(clip),
                ..base
            },
        ),
        (
            "cispo",
            TokenLoss {
                surrogate: Surrogate::Cispo {
                    low: None,
                    high: 0.1,
                },
                ..base
            },
        ),
        (
            "sapo",
            TokenLoss {
                surrogate: Surrogate::Sapo {
                    positive: 1.0,
                    negative: 1.05,
                },
                kl: kl(KlEstimate::K2, KlGradient::Own, false),
                ..base
            },
        ),
        (
            "prime",
            TokenLoss {
                surrogate: Surrogate::PRIME,
                importance: Importance::Off,
                ..base
            },
        ),
        (
            "gspo",
            TokenLoss {
                ratio: RatioLevel::Sequence,
                importance: sequence(WeightLevel::SequenceMean),
                entropy_bonus: 0.01,
                ..base
            },
        ),
        (
            "sequence product",
            TokenLoss {
                importance: sequence(WeightLevel::SequenceSum),
                ..base
            },
        ),
    ]
}

/// Sequences of 5, 0, 5, 5, … tokens.
fn sequences(tokens: usize) -> Sequences {
    let mut lengths = vec![tokens.min(5), 0];
    while lengths.iter().sum::<usize>() < tokens {
        lengths.push(5.min(tokens - lengths.iter().sum::<usize>()));
    }
    Sequences::from_lengths(&lengths)
}

/// Log-probabilities at temperature 1, for tokens to be near to.
fn current<T: GpuElement>(rows: &Rows<T>, stream: u64) -> Vec<f64> {
    let of = |row| {
        let target = inputs::target(stream, row, rows.shape.vocab);
        row_stats(&exact(rows.row(row)), target as usize, 1.0).log_prob
    };
    (0..rows.shape.rows).map(of).collect()
}

fn note_outcome(check: &mut Check, got: &TokenOutcome, want: &TokenOutcome, at: &str) {
    let pairs = [
        ("log-probability", got.log_prob, want.log_prob),
        ("loss", got.loss, want.loss),
        ("surrogate", got.surrogate, want.surrogate),
        ("weight", got.importance, want.importance),
        ("KL", got.kl, want.kl),
        (
            "slope by log-probability",
            got.by_log_prob,
            want.by_log_prob,
        ),
        ("slope by entropy", got.by_entropy, want.by_entropy),
        ("log-ratio", got.log_ratio, want.log_ratio),
        (
            "clip",
            f64::from(got.clip as u8),
            f64::from(want.clip as u8),
        ),
    ];
    for (what, got, want) in pairs {
        check.note(got, want, 2e-5 * want.abs().max(1.0), || {
            format!("{at}, {what}")
        });
    }
}

fn losses<T: GpuElement>(gpu: &Gpu, extent: Extent, form: Form) -> Result<Check> {
    let mut check = Check::new(format!("rl_loss_in_place {:?} {form:?}", T::KIND));
    for (case, vocab) in extent.vocabularies.iter().copied().enumerate() {
        let stream = 100 + case as u64;
        let rows = Rows::<T>::new(stream, extent.rows, vocab, case % 9);
        let tokens = inputs::tokens(stream, vocab, &current(&rows, stream));
        // One loss for large vocabularies, all for small ones.
        let all = published();
        let chosen = if vocab > 2000 {
            &all[case % all.len()..][..1]
        } else {
            &all[..]
        };
        for (name, loss) in chosen {
            if form == Form::Fused && gpu.form::<T>(vocab, loss.is_token_level()) != Form::Fused {
                continue;
            }
            let at = format!("{name}, vocabulary {vocab}");
            one_loss(gpu, form, &rows, &tokens, loss, (&mut check, &at))?;
        }
    }
    Ok(check)
}

fn one_loss<T: GpuElement>(
    gpu: &Gpu,
    form: Form,
    rows: &Rows<T>,
    tokens: &[Token],
    loss: &TokenLoss,
    (check, at): (&mut Check, &str),
) -> Result<()> {
    let sequences = sequences(tokens.len());
    let mut ours = Rows {
        buffer: rows.buffer.clone(),
        ..*rows
    };
    let (got, sums) = ours.run(gpu, |mut logits| {
        let mut batch = gpu.batch(tokens, &sequences, loss)?;
        gpu.run(&mut logits, &mut batch, Some(form))?;
        Ok((gpu.results(&batch)?, gpu.loss_sums(&batch)?))
    })?;
    let (want, gradient) = reference(rows, tokens, &sequences, loss)?;
    for (row, (got, want)) in got.outcomes.iter().zip(&want.outcomes).enumerate() {
        note_outcome(check, got, want, &format!("{at}, token {row}"));
    }
    check.note(got.loss, want.loss, 2e-5 * want.loss.abs().max(1.0), || {
        format!("{at}, sum")
    });
    let expected = LossSums::of(loss, tokens, &want.outcomes);
    note_sums(check, &sums, &expected, at);
    let vocab = rows.shape.vocab;
    for row in 0..rows.shape.rows {
        let want = &gradient[row * vocab..][..vocab];
        note_gradient(
            check,
            ours.row(row),
            want,
            &format!("{at}, gradient of row {row}"),
        );
    }
    // What lies between the rows stays as it was.
    let gaps = (0..rows.buffer.len()).filter(|i| {
        let past = i.checked_sub(rows.shift);
        past.is_none_or(|past| past % rows.shape.row_stride >= vocab)
    });
    for i in gaps {
        let (got, want) = (ours.buffer[i].into(), rows.buffer[i].into());
        check.note(got, want, 0.0, || format!("{at}, gap at {i}"));
    }
    Ok(())
}

/// Loss and gradient in f64.
fn reference<T: GpuElement>(
    rows: &Rows<T>,
    tokens: &[Token],
    sequences: &Sequences,
    loss: &TokenLoss,
) -> Result<(RlLoss, Vec<f64>)> {
    let vocab = rows.shape.vocab;
    let mut gradient: Vec<f64> = (0..rows.shape.rows)
        .flat_map(|row| exact(rows.row(row)))
        .collect();
    let logits = LogitsMut::new(&mut gradient, rows.shape.rows, vocab)?;
    let loss = Cpu::new().rl_loss_in_place(logits, tokens, sequences, loss)?;
    Ok((loss, gradient))
}

/// A row of the gradient may be off by its rounding and 2e-6 of its norm.
fn note_gradient<T: GpuElement>(check: &mut Check, got: &[T], want: &[f64], at: &str) {
    let norm = |numbers: &mut dyn Iterator<Item = f64>| numbers.map(|x| x * x).sum::<f64>().sqrt();
    let rounding = norm(&mut want.iter().map(|x| Into::<f64>::into(T::from_f64(*x)) - x));
    let size = norm(&mut want.iter().copied());
    let error = norm(
        &mut got
            .iter()
            .zip(want)
            .map(|(got, want)| Into::<f64>::into(*got) - want),
    );
    // Numbers below f16 are lost in it: they are in the rounding already.
    let allowed = 1.02 * rounding + 2e-6 * size + f64::MIN_POSITIVE;
    check.note(error, 0.0, allowed, || at.to_owned());
}

fn note_sums(check: &mut Check, got: &LossSums, want: &LossSums, at: &str) {
    let counts = |sums: &LossSums| {
        let counts = [
            sums.tokens,
            sums.clip_low,
            sums.clip_high,
            sums.clip_dual,
            sums.importance_bound,
            sums.bad_rows,
        ];
        counts.map(|count| count as f64)
    };
    let numbers = |sums: &LossSums| {
        [
            sums.loss,
            sums.surrogate,
            sums.log_prob,
            sums.entropy,
            sums.kl,
            sums.importance,
            sums.importance_squared,
            sums.importance_max,
            sums.ratio_k1,
            sums.ratio_k3,
        ]
    };
    for (i, (got, want)) in counts(got).into_iter().zip(counts(want)).enumerate() {
        check.note(got, want, 0.0, || format!("{at}, count {i}"));
    }
    let tokens = want.tokens.max(1) as f64;
    for (i, (got, want)) in numbers(got).into_iter().zip(numbers(want)).enumerate() {
        check.note(got, want, 2e-5 * want.abs().max(tokens), || {
            format!("{at}, sum {i}")
        });
    }
}

/// The same bits twice, and the same gradient from either form within its rounding.
fn repeats<T: GpuElement>(gpu: &Gpu, form: Form) -> Result<Check> {
    let mut check = Check::new(format!("repeats {:?} {form:?}", T::KIND));
    let rows = Rows::<T>::new(7, 9, 4099, 1);
    let tokens = inputs::tokens(7, 4099, &current(&rows, 7));
    let sequences = sequences(tokens.len());
    let run = || {
        let mut ours = Rows {
            buffer: rows.buffer.clone(),
            ..rows
        };
        let loss = ours.run(gpu, |mut logits| {
            let mut batch = gpu.batch(&tokens, &sequences, &TokenLoss::PAPER)?;
            gpu.run(&mut logits, &mut batch, Some(form))?;
            gpu.results(&batch)
        })?;
        Ok::<_, Error>((loss.loss, exact(&ours.buffer)))
    };
    let (first, second) = (run()?, run()?);
    check.note(first.0, second.0, 0.0, || "loss".into());
    for (i, (a, b)) in first.1.iter().zip(&second.1).enumerate() {
        check.note(*a, *b, 0.0, || format!("element {i}"));
    }
    Ok(check)
}

fn gradient_of_labels<T: GpuElement>(gpu: &Gpu) -> Result<Check> {
    let mut check = Check::new(format!("label_gradient {:?}", T::KIND));
    let vocab = 1003;
    let mut rows = Rows::<T>::new(8, 5, vocab, 3);
    let before: Vec<Vec<f64>> = (0..5).map(|row| exact(rows.row(row))).collect();
    let targets: Vec<u32> = (0..5).map(|row| inputs::target(8, row, vocab)).collect();
    let by: Vec<f64> = (0..10).map(|i| inputs::uniform(8, i) - 0.5).collect();
    let labels = Labels {
        temperature: Temperature::Shared(1.3),
        ignore: Some(targets[3]),
        ..Labels::new(&targets)
    };
    rows.run(gpu, |logits| gpu.label_gradient(logits, &labels, &by))?;
    for (row, before) in before.iter().enumerate() {
        let target = targets[row] as usize;
        let mut want = vec![0.0; vocab];
        if row != 3 {
            let stats = row_stats(before, target, 1.3);
            let by = dart_kernels::RowGradient {
                log_prob: by[2 * row],
                entropy: by[2 * row + 1],
            };
            dart_kernels::row_gradient(before, (target, 1.3), &stats, by, &mut want);
        }
        note_gradient(&mut check, rows.row(row), &want, &format!("row {row}"));
    }
    Ok(check)
}

fn token_operations(gpu: &Gpu) -> Result<Check> {
    let mut check = Check::new("token_losses, importance_weights");
    for count in [0usize, 1, 255, 257, 3001] {
        let log_probs: Vec<f64> = (0..count)
            .map(|row| -3.0 * inputs::uniform(60, row as u64))
            .collect();
        let tokens = inputs::tokens(60, 1000, &log_probs);
        let current: Vec<(f64, f64)> = log_probs.iter().map(|log_prob| (*log_prob, 1.5)).collect();
        let sequences = sequences(count);
        for (name, loss) in published() {
            let got = gpu.token_losses(&loss, &tokens, &sequences, &current)?;
            let want = token_losses(&loss, &tokens, &sequences, &current);
            for (row, (got, want)) in got.iter().zip(&want).enumerate() {
                note_outcome(
                    &mut check,
                    got,
                    want,
                    &format!("{name}, token {row} of {count}"),
                );
            }
            let weights = gpu.importance_weights(&loss, &tokens, &sequences, &current)?;
            for (row, (got, want)) in weights.iter().zip(&want).enumerate() {
                let at = || format!("{name}, weight {row} of {count}");
                check.note(*got, want.importance, 2e-5 * want.importance.max(1.0), at);
            }
        }
    }
    Ok(check)
}

fn segments(gpu: &Gpu) -> Result<Check> {
    let mut check = Check::new("segment_means");
    for lengths in [vec![], vec![0], vec![1, 0, 33, 5000, 2, 64], vec![3; 700]] {
        let segments = Sequences::from_lengths(&lengths);
        let values: Vec<f32> = (0..segments.tokens() as u64)
            .map(|i| inputs::normal(70, i))
            .collect();
        let got = gpu.segment_means(&values, &segments)?;
        for (segment, (got, range)) in got.iter().zip(segments.ranges()).enumerate() {
            let part = &values[range];
            let sum: f64 = part.iter().map(|x| f64::from(*x)).sum();
            let want = sum / part.len() as f64;
            check.note((*got).into(), want, 1e-6 * want.abs().max(1.0), || {
                format!("segment {segment}")
            });
        }
        check.compared += 1;
    }
    Ok(check)
}
