//! Times on the GPU: medians of CUDA events over buffers that rotate, so that no run finds its
//! logits in a cache.

use cudarc::driver::{CudaSlice, sys::CUevent_flags};
use dart_kernels::{
    Labels, Objective, Sequences, Shape, TokenLoss,
    cuda::{DeviceHead, DeviceLogits, DeviceLogitsMut, Error, Form, FusedLinear, Gpu, GpuElement},
    row_stats,
};
use rayon::prelude::*;

use super::{
    checks::{Result, upload},
    inputs,
};

/// What is measured, and how often.
pub(crate) struct Plan {
    runs: usize,
    copy_elements: usize,
    /// Rows and vocabularies.
    shapes: &'static [(usize, usize)],
    /// Tokens, width and vocabulary of the fused linear layer.
    linear_shapes: &'static [(usize, usize, usize)],
}

impl Plan {
    /// For a GPU.
    pub(crate) const FULL: Self = Self {
        runs: 50,
        copy_elements: 1 << 30,
        shapes: &SHAPES,
        linear_shapes: &LINEAR_SHAPES,
    };

    /// To see that it runs.
    pub(crate) const SMALL: Self = Self {
        runs: 3,
        copy_elements: 1 << 10,
        shapes: &[(3, 1003)],
        linear_shapes: &[(3, 16, 203)],
    };
}

const SHAPES: [(usize, usize); 5] = [
    (8192, 152_064),
    (8192, 128_256),
    (4096, 32_768),
    (2048, 151_936),
    (64, 152_064),
];

const LINEAR_SHAPES: [(usize, usize, usize); 2] = [(8192, 3584, 152_064), (8192, 4096, 131_072)];

/// One measurement.
#[derive(Clone, Debug)]
pub(crate) struct Time {
    pub(crate) operation: String,
    pub(crate) element: String,
    pub(crate) shape: String,
    /// Median and the spread from the 10th to the 90th of a hundred, in milliseconds.
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
    /// Bytes that the operation has to move.
    pub(crate) bytes: f64,
    /// Largest error of a log-probability or entropy, where that is what it gives.
    pub(crate) error: Option<f64>,
}

struct Bench<'a> {
    gpu: &'a Gpu,
    plan: &'a Plan,
    times: &'a mut Vec<Time>,
}

/// Everything that is measured.
pub(crate) fn all(gpu: &Gpu, plan: &Plan) -> Result<Vec<Time>> {
    let mut times = Vec::new();
    let mut bench = Bench {
        gpu,
        plan,
        times: &mut times,
    };
    bench.copy()?;
    for (rows, vocab) in plan.shapes.iter().copied() {
        bench.shape::<half::bf16>(rows, vocab)?;
        bench.shape::<f32>(rows, vocab)?;
    }
    for shape in plan.linear_shapes.iter().copied() {
        bench.linear(shape)?;
    }
    Ok(times)
}

impl Bench<'_> {
    /// The speed of a copy within the device: what all others are measured against.
    fn copy(&mut self) -> Result<()> {
        let count = self.plan.copy_elements;
        let from = zeros::<half::bf16>(self.gpu, count)?;
        let mut to = zeros::<half::bf16>(self.gpu, count)?;
        let gpu = self.gpu;
        self.time(
            ("copy", "bf16", format!("{count}"), 4.0 * count as f64),
            1,
            |_| {
                gpu.stream()
                    .memcpy_dtod(&from, &mut to)
                    .map_err(driver("copy"))
            },
        )
    }

    fn shape<T: GpuElement>(&mut self, rows: usize, vocab: usize) -> Result<()> {
        let gpu = self.gpu;
        let shape = Shape::dense(rows, vocab);
        let bytes = (rows * vocab * size_of::<T>()) as f64;
        let mut buffers = buffers::<T>(gpu, shape)?;
        let element = format!("{:?}", T::KIND).to_lowercase();
        let named = |operation: &'static str, passes: f64| {
            (
                operation,
                element.as_str(),
                format!("{rows}x{vocab}"),
                passes * bytes,
            )
        };
        let targets: Vec<u32> = (0..rows).map(|row| inputs::target(1, row, vocab)).collect();
        let labels = gpu.upload_labels(&Labels::new(&targets), shape)?;
        let mut stats = gpu.stream().alloc_zeros(rows).map_err(driver("allocate"))?;
        self.time(named("log_prob_entropy", 1.0), buffers.len(), |i| {
            gpu.row_stats(&DeviceLogits::new(&buffers[i], shape)?, &labels, &mut stats)
        })?;
        if let Some(time) = self.times.last_mut() {
            time.error = Some(largest_error::<T>(gpu, rows.min(64), vocab)?);
        }
        let tokens = inputs::tokens(2, vocab, &vec![-11.0; rows]);
        let sequences = Sequences::single_tokens(rows);
        let mut batch = gpu.batch(&tokens, &sequences, &TokenLoss::PAPER)?;
        for (form, name, passes) in [
            (Form::ThreePass, "rl_loss three passes", 3.0),
            (Form::Fused, "rl_loss fused", 2.0),
        ] {
            if form == Form::Fused && gpu.form::<T>(vocab, true) != form {
                continue;
            }
            // After its first run a buffer holds a gradient: other numbers, the same work.
            self.time(named(name, passes), buffers.len(), |i| {
                let mut logits = DeviceLogitsMut::new(&mut buffers[i], shape)?;
                gpu.run(&mut logits, &mut batch, Some(form))
            })?;
        }
        Ok(())
    }

    fn linear(&mut self, (rows, width, vocab): (usize, usize, usize)) -> Result<()> {
        let gpu = self.gpu;
        let fused = FusedLinear::new(gpu, dart_kernels::cuda::fused_linear::LOGITS_BUDGET_BYTES)?;
        let hidden = upload(gpu, &numbers::<half::bf16>(3, rows * width))?;
        let weight = upload(gpu, &numbers::<half::bf16>(4, vocab * width))?;
        let linear = DeviceHead {
            hidden: hidden.as_view(),
            weight: weight.as_view(),
            width,
            vocab,
        };
        let targets: Vec<u32> = (0..rows).map(|row| inputs::target(1, row, vocab)).collect();
        let tokens = inputs::tokens(2, vocab, &vec![-11.0; rows]);
        let sequences = Sequences::single_tokens(rows);
        let objective = Objective {
            tokens: &tokens,
            sequences: &sequences,
            loss: TokenLoss::PAPER,
        };
        let mut by_weight = zeros::<f32>(gpu, vocab * width)?;
        let named = |operation| (operation, "bf16", format!("{rows}x{width}x{vocab}"), 0.0);
        self.time(named("fused_linear forward"), 1, |_| {
            let labels = Labels::new(&targets);
            fused
                .log_prob_entropy::<half::bf16, half::bf16>(&linear, &labels)
                .map(drop)
        })?;
        self.time(named("fused_linear full"), 1, |_| {
            fused.rl_loss(&linear, &objective, &mut by_weight).map(drop)
        })
    }

    /// Median after a few that do not count; run i uses buffer i modulo `buffers`.
    fn time(
        &mut self,
        (operation, element, shape, bytes): (&str, &str, String, f64),
        buffers: usize,
        mut run: impl FnMut(usize) -> Result<()>,
    ) -> Result<()> {
        let (stream, runs) = (self.gpu.stream(), self.plan.runs);
        let mark = || {
            let flags = Some(CUevent_flags::CU_EVENT_DEFAULT);
            stream
                .record_event(flags)
                .map_err(driver("record an event"))
        };
        for i in 0..2 * buffers {
            run(i % buffers)?;
        }
        let mut milliseconds = Vec::with_capacity(runs);
        for i in 0..runs {
            let start = mark()?;
            run(i % buffers)?;
            let end = mark()?;
            let elapsed = start.elapsed_ms(&end).map_err(driver("measure"))?;
            milliseconds.push(f64::from(elapsed));
        }
        milliseconds.sort_by(f64::total_cmp);
        self.times.push(Time {
            operation: operation.to_owned(),
            element: element.to_owned(),
            shape,
            median: milliseconds[runs / 2],
            low: milliseconds[runs / 10],
            high: milliseconds[runs - 1 - runs / 10],
            bytes,
            error: None,
        });
        Ok(())
    }
}

fn driver(what: &'static str) -> impl Fn(cudarc::driver::DriverError) -> Error {
    move |source| Error::Driver { what, source }
}

fn zeros<T: GpuElement>(gpu: &Gpu, count: usize) -> Result<CudaSlice<T>> {
    gpu.stream().alloc_zeros(count).map_err(driver("allocate"))
}

/// The numbers of a stream, made on all cores.
fn numbers<T: GpuElement>(stream: u64, count: usize) -> Vec<T> {
    let number = |i| T::from_f64(inputs::normal(stream, i as u64).into());
    (0..count).into_par_iter().map(number).collect()
}

/// Four buffers with the same logits, or as many as fit half of the free memory.
fn buffers<T: GpuElement>(gpu: &Gpu, shape: Shape) -> Result<Vec<CudaSlice<T>>> {
    let count = shape.rows * shape.vocab;
    let first = upload(gpu, &numbers::<T>(0, count))?;
    let (free, _) = gpu
        .stream()
        .context()
        .mem_get_info()
        .map_err(driver("tell its memory"))?;
    let more = (free / 2 / (count * size_of::<T>())).min(3);
    let copies = (0..more).map(|_| gpu.stream().clone_dtod(&first).map_err(driver("copy")));
    let copies: Result<Vec<_>> = copies.collect();
    let mut all = copies?;
    all.push(first);
    Ok(all)
}

/// Largest error of the log-probabilities and entropies of the first rows.
fn largest_error<T: GpuElement>(gpu: &Gpu, rows: usize, vocab: usize) -> Result<f64> {
    let logits = numbers::<T>(0, rows * vocab);
    let targets: Vec<u32> = (0..rows).map(|row| inputs::target(1, row, vocab)).collect();
    let device = upload(gpu, &logits)?;
    let on_device = DeviceLogits::new(&device, Shape::dense(rows, vocab))?;
    let got = gpu.log_prob_entropy(&on_device, &Labels::new(&targets))?;
    let errors = got.par_iter().enumerate().map(|(row, got)| {
        let row_logits = &logits[row * vocab..][..vocab];
        let want = row_stats(row_logits, targets[row] as usize, 1.0);
        let log_prob = (got.log_prob - want.log_prob).abs();
        log_prob.max((got.entropy - want.entropy).abs())
    });
    Ok(errors.reduce(|| 0.0, f64::max))
}
