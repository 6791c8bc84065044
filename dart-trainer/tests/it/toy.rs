//! A model small enough to reason about: one row of logits for each pair of context (first prompt
//! token) and position, plus a bias. Some contexts misbehave.

use candle_core::{Device, Tensor, Var};
use dart_core::{
    Batch, BatchId, BatchImage, Error, ErrorKind, Frame, GroupId, ImageSpan, LogProbKind,
    Objective, PolicyVersion, Prompt, Result, Sample, SampleOrigin, Size, TrajectoryId,
};
use dart_policy::{Forward, Parameters, TrainableModel, Upstream};
use dart_trainer::{ImitationConfig, Schedule, TrainerConfig};

pub const VOCAB: usize = 6;
const POSITIONS: usize = 4;
const CONTEXTS: usize = 10;
/// A context whose logits are NaN.
pub const NAN: u32 = 8;
/// A context that panics.
pub const PANIC: u32 = 9;

#[derive(Debug)]
pub struct Toy {
    parameters: Parameters,
}

impl Toy {
    pub fn new() -> Self {
        // Different everywhere, without a random generator.
        let table = (0..CONTEXTS * POSITIONS * VOCAB).map(|i| ((i * i) as f32 * 0.37).sin());
        let shape = (CONTEXTS * POSITIONS, VOCAB);
        let table = Tensor::from_iter(table, &Device::Cpu).unwrap();
        Self::with([
            (
                "bias",
                Tensor::zeros(VOCAB, candle_core::DType::F32, &Device::Cpu).unwrap(),
            ),
            (
                "reader",
                Tensor::zeros(1, candle_core::DType::F32, &Device::Cpu).unwrap(),
            ),
            ("table", table.reshape(shape).unwrap()),
        ])
    }

    fn with(tensors: [(&str, Tensor); 3]) -> Self {
        let mut parameters = Parameters::default();
        for (name, tensor) in tensors {
            parameters.insert(name, Var::from_tensor(&tensor).unwrap());
        }
        Self { parameters }
    }

    pub fn values(&self, name: &str) -> Vec<f32> {
        let var = self.parameters.get(name).unwrap();
        var.flatten_all().unwrap().to_vec1().unwrap()
    }

    fn logits(&self, batch: &Batch, samples: &[usize]) -> candle_core::Result<Tensor> {
        let mut rows = Vec::new();
        let mut broken = false;
        for sample in samples.iter().map(|i| &batch.samples[*i]) {
            let context = sample.prompt.token_ids[0];
            assert_ne!(context, PANIC, "the toy model was told to panic");
            broken |= context == NAN;
            let first = context * POSITIONS as u32;
            rows.extend((0..sample.response.len() as u32).map(|t| first + t));
        }
        let rows = Tensor::new(rows, &Device::Cpu)?;
        let table = self.parameters.get("table").unwrap();
        let bias = self.parameters.get("bias").unwrap();
        let logits = table.index_select(&rows, 0)?.broadcast_add(bias)?;
        if broken {
            logits * f64::NAN
        } else {
            Ok(logits)
        }
    }
}

fn failed(error: candle_core::Error) -> Error {
    Error::new(ErrorKind::Internal, "toy", "pass", "tensors failed").caused_by(error)
}

/// The graph of a forward pass.
#[derive(Debug)]
pub struct Tape {
    logits: Tensor,
    reading_loss: Option<Tensor>,
}

impl TrainableModel for Toy {
    type Tape = Tape;

    fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    fn device(&self) -> &Device {
        &Device::Cpu
    }

    fn forward(&self, batch: &Batch, samples: &[usize], reading: bool) -> Result<Forward<Tape>> {
        let reader = self.parameters.get("reader").unwrap();
        let reading_loss = || (reader.as_tensor() - 1.0)?.sqr()?.sum_all();
        let tape = Tape {
            logits: self.logits(batch, samples).map_err(failed)?,
            reading_loss: reading.then(reading_loss).transpose().map_err(failed)?,
        };
        let reading = tape.reading_loss.as_ref();
        Ok(Forward {
            logits: tape.logits.detach().copy().map_err(failed)?,
            reading_loss: reading.map(|loss| loss.to_scalar::<f32>().unwrap().into()),
            tape,
        })
    }

    fn backward(&self, tape: Tape, by: Upstream<'_>) -> Result<Vec<Option<Tensor>>> {
        let run = || {
            let mut loss = (tape.logits * by.logits.detach())?.sum_all()?;
            if let Some(reading) = tape.reading_loss {
                loss = (loss + (reading * by.reading)?)?;
            }
            let mut store = loss.backward()?;
            let parameters = self.parameters.iter();
            Ok(parameters.map(|(_, var)| store.remove(var)).collect())
        };
        run().map_err(failed)
    }

    fn deep_copy(&self) -> Result<Self> {
        let copy = |name| self.parameters.get(name).unwrap().copy().unwrap();
        Ok(Self::with(
            ["bias", "reader", "table"].map(|name| (name, copy(name))),
        ))
    }
}

/// Settings under which the toy model learns in a few steps.
pub fn config() -> TrainerConfig {
    TrainerConfig {
        learning_rate: 0.02,
        weight_decay: 0.0,
        kl_beta: 0.0,
        imitation: ImitationConfig {
            learning_rate: 0.05,
            schedule: Schedule {
                warmup_steps: 0,
                ..ImitationConfig::default().schedule
            },
            ..ImitationConfig::default()
        },
        ..TrainerConfig::default()
    }
}

/// A sample with plausible rollout log-probs.
pub fn sample(context: u32, response: &[u32], advantage: f64) -> Sample {
    Sample {
        trajectory: TrajectoryId(u128::from(context)),
        step: 0,
        group: GroupId(1),
        origin: SampleOrigin::Rollout,
        prompt: Prompt {
            token_ids: vec![context, 0].into(),
            images: vec![ImageSpan {
                image: 0,
                start: 1,
                len: 1,
            }],
        },
        response: response.into(),
        rollout_log_probs: vec![-1.8; response.len()].into(),
        log_prob_kind: LogProbKind::AfterTemperature,
        temperature: 1.0,
        version: PolicyVersion(0),
        advantages: vec![advantage; response.len()].into(),
    }
}

pub fn batch(objective: Objective, samples: Vec<Sample>) -> Batch {
    let size = Size {
        width: 1,
        height: 1,
    };
    Batch {
        id: BatchId(0),
        objective,
        images: vec![BatchImage {
            frame: Frame::new(size, vec![0; 3]).unwrap(),
            ui: None,
        }],
        samples,
    }
}

/// A policy-gradient batch of several contexts, lengths and advantages.
pub fn mixed() -> Batch {
    let samples = (0..24u32)
        .map(|i| {
            let length = 1 + i as usize % POSITIONS;
            let response: Vec<u32> = (0..length as u32).map(|t| (i + 2 * t) % 6).collect();
            let mut sample = sample(i % 5, &response, f64::from(i % 7) - 3.0);
            sample.group = GroupId(u64::from(i % 3));
            sample
        })
        .collect();
    batch(Objective::PolicyGradient, samples)
}
