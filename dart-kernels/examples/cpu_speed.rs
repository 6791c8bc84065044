//! Times the row operations on one case and prints a JSON line for each: `cargo xtask bench-peer`
//! sets them beside those of torch on the same numbers.
//!
//! Arguments: rows, vocabulary, repeats. The line holds the median in milliseconds and a checksum,
//! by which the other side shows that it read the same numbers.

#![allow(clippy::print_stdout, reason = "its output is the result")]

#[path = "../benches/support/mod.rs"]
mod support;

use std::time::Instant;

use candle_core::{Device, Tensor, Var};
use dart_kernels::{Cpu, Isa, Labels, Logits, LogitsMut, Sequences};
use support::{
    composition::{Columns, log_prob_entropy},
    inputs::{Case, loss},
};

type Failure = Box<dyn std::error::Error + Send + Sync>;
/// Milliseconds and a checksum.
type Timed = Result<(f64, f64), Failure>;

fn main() -> Result<(), Failure> {
    let numbers: Vec<usize> = std::env::args()
        .skip(1)
        .map(|a| a.parse())
        .collect::<Result<_, _>>()?;
    let [rows, vocab, repeats] = numbers[..] else {
        return Err("arguments: rows, vocabulary, repeats".into());
    };
    let bench = Bench::new(Case::new(rows, vocab), repeats);
    for (threads, isa) in engines() {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()?;
        let cpu = Cpu::new().with_isa(isa)?;
        let who = format!(
            "dart {} {threads} thread",
            format!("{isa:?}").to_lowercase()
        );
        pool.install(|| bench.print(&who, "forward", |at| bench.forward(cpu, at)))?;
        pool.install(|| bench.print(&who, "training", |at| bench.training(cpu, at)))?;
    }
    bench.candle()
}

/// Each instruction set on one thread, the fastest also on two.
fn engines() -> Vec<(usize, Isa)> {
    let one = Isa::available().map(|isa| (1, isa));
    one.chain([(2, Isa::detect())]).collect()
}

struct Bench {
    case: Case,
    repeats: usize,
    buffers: Vec<Vec<f32>>,
    targets: Vec<u32>,
}

impl Bench {
    fn new(case: Case, repeats: usize) -> Self {
        Self {
            case,
            repeats,
            buffers: case.rotation(),
            targets: case.targets(),
        }
    }

    /// Runs `run` with the index of a buffer, and prints the median of its times.
    fn print(&self, who: &str, what: &str, run: impl Fn(usize) -> Timed) -> Result<(), Failure> {
        let mut times = Vec::new();
        let mut checksum = 0.0;
        for round in 0..=self.repeats {
            let (milliseconds, sum) = run(round % self.buffers.len())?;
            // The first warms up.
            if round > 0 {
                times.push(milliseconds);
            }
            if round % self.buffers.len() == 0 {
                checksum = sum;
            }
        }
        times.sort_by(f64::total_cmp);
        let median = times[times.len() / 2];
        println!(
            "{{\"who\":\"{who}\",\"what\":\"{what}\",\"ms\":{median},\"least_ms\":{},\"checksum\":{checksum}}}",
            times[0]
        );
        Ok(())
    }

    fn forward(&self, cpu: Cpu, at: usize) -> Timed {
        let logits = Logits::new(&self.buffers[at], self.case.rows, self.case.vocab)?;
        let start = Instant::now();
        let rows = cpu.log_prob_entropy(logits, &Labels::new(&self.targets))?;
        let time = start.elapsed().as_secs_f64() * 1e3;
        Ok((
            time,
            rows.iter().map(|row| row.log_prob + row.entropy).sum(),
        ))
    }

    fn training(&self, cpu: Cpu, at: usize) -> Timed {
        let (tokens, sequences) = (self.case.tokens(), Sequences::single_tokens(self.case.rows));
        let mut data = self.buffers[at].clone();
        let logits = LogitsMut::new(&mut data, self.case.rows, self.case.vocab)?;
        let start = Instant::now();
        let result = cpu.rl_loss_in_place(logits, &tokens, &sequences, &loss())?;
        Ok((start.elapsed().as_secs_f64() * 1e3, result.loss))
    }

    /// The composition of candle's operations.
    fn candle(&self) -> Result<(), Failure> {
        let shape = (self.case.rows, self.case.vocab);
        let tensor = |at: usize| Tensor::from_slice(&self.buffers[at], shape, &Device::Cpu);
        let columns = Columns::new(&self.case.tokens(), &tensor(0)?)?;
        self.print("candle", "forward", |at| {
            let logits = tensor(at)?;
            let start = Instant::now();
            let (log_prob, entropy) = log_prob_entropy(&logits, &columns.targets)?;
            let time = start.elapsed().as_secs_f64() * 1e3;
            let sum = (log_prob + entropy)?.sum_all()?.to_scalar::<f32>()?;
            Ok((time, sum.into()))
        })?;
        self.print("candle", "training", |at| {
            let logits = Var::from_tensor(&tensor(at)?)?;
            let start = Instant::now();
            let loss = columns.loss(&logits)?;
            let gradients = loss.backward()?;
            let time = start.elapsed().as_secs_f64() * 1e3;
            std::hint::black_box(gradients.get(&logits));
            Ok((time, loss.to_scalar::<f32>()?.into()))
        })
    }
}
