//! Optimizers with state that can be saved: AdamW, and one whose second moments are factored.
//!
//! # Source
//! AdamW: Loshchilov and Hutter, arXiv 1711.05101, algorithm 2. Adafactor: Shazeer and Stern, arXiv
//! 1804.04235, algorithms 4 and 5. Deviations of both: vectors are not decayed, and a parameter that
//! got no gradient is left alone, as is its state. Deviations of Adafactor: the step size is the
//! configured one instead of relative to the parameter; the decay rate is constant with Adam's
//! correction of the bias (their section 7.1) instead of growing; decay of weights is decoupled. State
//! is f32.

use std::collections::BTreeMap;

use candle_core::Tensor;
use dart_policy::Parameters;
use serde::{Deserialize, Serialize};

use crate::{error::Result, gradients::Gradients};

/// What moves the weights.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum OptimizerConfig {
    /// AdamW: two numbers of state for each weight.
    Adamw {
        /// Decay rates of the two moments. Default 0.9 and 0.999 (paper).
        #[serde(default = "adamw_betas")]
        betas: [f64; 2],
        /// Added to the root of the second moment. Default 1e-8.
        #[serde(default = "adamw_epsilon")]
        epsilon: f64,
    },
    /// Adafactor: for a matrix of n by m weights n + m numbers of state instead of 2nm. Tensors of
    /// higher rank are matrices with the last dimension as columns; vectors keep a whole moment.
    Adafactor {
        /// Decay rates of the moments. With 0 as the first, the default, there is no first moment
        /// and no memory for it. Default 0 and 0.999.
        #[serde(default = "adafactor_betas")]
        betas: [f64; 2],
        /// Added to squared gradients. Default 1e-30.
        #[serde(default = "adafactor_epsilon")]
        epsilon: f64,
        /// Largest root mean square of a parameter's update before the learning rate; 0 turns this
        /// off. Default 1: the second moments, which lag, cannot make a step too large.
        #[serde(default = "adafactor_clip")]
        clip_rms: f64,
    },
}

const fn adamw_betas() -> [f64; 2] {
    [0.9, 0.999]
}

const fn adamw_epsilon() -> f64 {
    1e-8
}

const fn adafactor_betas() -> [f64; 2] {
    [0.0, 0.999]
}

const fn adafactor_epsilon() -> f64 {
    1e-30
}

const fn adafactor_clip() -> f64 {
    1.0
}

impl OptimizerConfig {
    /// The paper's.
    pub const ADAMW: Self = Self::Adamw {
        betas: adamw_betas(),
        epsilon: adamw_epsilon(),
    };
    /// The one of small state, with its defaults.
    pub const ADAFACTOR: Self = Self::Adafactor {
        betas: adafactor_betas(),
        epsilon: adafactor_epsilon(),
        clip_rms: adafactor_clip(),
    };

    pub(crate) const fn kind(&self) -> OptimizerKind {
        match self {
            Self::Adamw { .. } => OptimizerKind::Adamw,
            Self::Adafactor { .. } => OptimizerKind::Adafactor,
        }
    }

    const fn betas(&self) -> [f64; 2] {
        match self {
            Self::Adamw { betas, .. } | Self::Adafactor { betas, .. } => *betas,
        }
    }

    /// The key and the rule that a number breaks.
    pub(crate) fn wrong(&self) -> Option<(&'static str, &'static str)> {
        let (Self::Adamw { epsilon, .. } | Self::Adafactor { epsilon, .. }) = self;
        if !self.betas().iter().all(|beta| (0.0..1.0).contains(beta)) {
            return Some(("optimizer.betas", "must be at least 0 and below 1"));
        }
        if !(epsilon.is_finite() && *epsilon > 0.0) {
            return Some(("optimizer.epsilon", "must be above 0"));
        }
        let Self::Adafactor { clip_rms, .. } = self else {
            return None;
        };
        if !(clip_rms.is_finite() && *clip_rms >= 0.0) {
            return Some(("optimizer.clip_rms", "must be a number of 0 or more"));
        }
        // A moment that rounds to 0 would divide by 0: the first step adds this much to it.
        let least = epsilon * (1.0 - self.betas()[1]);
        (least < f64::from(f32::MIN_POSITIVE)).then_some((
            "optimizer.epsilon",
            "must be large enough for single precision: (1 - betas[1]) epsilon is at least 1.2e-38",
        ))
    }
}

/// Whose state a checkpoint holds: moments of the same form may have other units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum OptimizerKind {
    #[default]
    Adamw,
    Adafactor,
}

impl Default for OptimizerConfig {
    fn default() -> Self {
        Self::ADAMW
    }
}

/// Numbers of one optimizer step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rates {
    pub optimizer: OptimizerConfig,
    pub learning_rate: f64,
    pub weight_decay: f64,
    /// Largest norm of the gradient; 0 turns clipping off.
    pub grad_clip: f64,
    /// The gradient is multiplied by this (denominators of accumulated batches, clipping).
    pub gradient_scale: f64,
}

/// The running mean of squared gradients.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Second {
    Full(Vec<f32>),
    /// Means over the columns and over the rows of a matrix.
    Factored {
        rows: Vec<f32>,
        columns: Vec<f32>,
    },
}

/// State of one parameter.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Moments {
    /// Steps that this parameter took part in.
    pub steps: u64,
    /// Empty where the optimizer keeps none.
    pub first: Vec<f32>,
    pub second: Second,
}

impl Moments {
    /// What `optimizer` begins with for a parameter of this shape.
    fn begin(optimizer: &OptimizerConfig, dims: &[usize]) -> Self {
        let count = dims.iter().product();
        let factors = matches!(optimizer, OptimizerConfig::Adafactor { .. });
        let keeps_first = !factors || optimizer.betas()[0] > 0.0;
        let second = match dims {
            [leading @ .., columns] if factors && !leading.is_empty() => Second::Factored {
                rows: vec![0.0; leading.iter().product()],
                columns: vec![0.0; *columns],
            },
            _ => Second::Full(vec![0.0; count]),
        };
        Self {
            steps: 0,
            first: vec![0.0; if keeps_first { count } else { 0 }],
            second,
        }
    }

    /// Whether both are state of the same form.
    fn like(&self, other: &Self) -> bool {
        let form = |moments: &Self| match &moments.second {
            Second::Full(values) => (moments.first.len(), values.len(), 0),
            Second::Factored { rows, columns } => (moments.first.len(), rows.len(), columns.len()),
        };
        let kind = |moments: &Self| matches!(moments.second, Second::Full(_));
        form(self) == form(other) && kind(self) == kind(other)
    }

    /// 1 − βᵗ.
    fn corrections(&self, [first, second]: [f64; 2]) -> [f64; 2] {
        let steps = self.steps.min(1 << 30) as i32;
        [1.0 - first.powi(steps), 1.0 - second.powi(steps)]
    }
}

/// State of all parameters, by name. State of another optimizer, from a checkpoint, begins anew.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Optimizer {
    pub moments: BTreeMap<String, Moments>,
}

impl Optimizer {
    /// Moves `parameters` against `gradients`.
    pub(crate) fn step(
        &mut self,
        parameters: &Parameters,
        gradients: &Gradients,
        rates: &Rates,
    ) -> Result<()> {
        for ((name, var), gradient) in parameters.iter().zip(gradients.iter()) {
            let Some(gradient) = gradient else { continue };
            let fresh = Moments::begin(&rates.optimizer, var.dims());
            let moments = self
                .moments
                .entry(name.to_owned())
                .or_insert_with(|| fresh.clone());
            if !moments.like(&fresh) {
                tracing::warn!(parameter = name, "another optimizer's state begins anew");
                *moments = fresh;
            }
            moments.steps += 1;
            let mut values = var.flatten_all()?.to_vec1::<f32>()?;
            let mut rates = *rates;
            if var.rank() < 2 {
                rates.weight_decay = 0.0;
            }
            move_values(&mut values, gradient, moments, &rates);
            var.set(&Tensor::from_vec(values, var.shape(), var.device())?)?;
        }
        Ok(())
    }
}

fn move_values(values: &mut [f32], gradient: &[f32], moments: &mut Moments, rates: &Rates) {
    match rates.optimizer {
        OptimizerConfig::Adamw { betas, epsilon } => {
            adamw(values, gradient, moments, (rates, betas, epsilon));
        }
        OptimizerConfig::Adafactor {
            betas,
            epsilon,
            clip_rms,
        } => {
            let update = preconditioned(gradient, moments, (rates, betas[1], epsilon));
            let most = if clip_rms > 0.0 {
                clip_rms
            } else {
                f64::INFINITY
            };
            adafactor(values, &update, moments, (rates, betas, most));
        }
    }
}

fn adamw(
    values: &mut [f32],
    gradient: &[f32],
    moments: &mut Moments,
    (rates, betas, epsilon): (&Rates, [f64; 2], f64),
) {
    let [first, second] = moments.corrections(betas);
    let step_size = (rates.learning_rate / first) as f32;
    let second_scale = (1.0 / second) as f32;
    let keep = (1.0 - rates.learning_rate * rates.weight_decay) as f32;
    let (scale, epsilon) = (rates.gradient_scale as f32, epsilon as f32);
    let [(b1, c1), (b2, c2)] = betas.map(|beta| (beta as f32, (1.0 - beta) as f32));
    let Second::Full(second) = &mut moments.second else {
        return;
    };
    let states = moments.first.iter_mut().zip(second);
    for ((value, g), (m, v)) in values.iter_mut().zip(gradient).zip(states) {
        let g = g * scale;
        *m = b1 * *m + c1 * g;
        *v = b2 * *v + c2 * g * g;
        *value = *value * keep - step_size * *m / ((*v * second_scale).sqrt() + epsilon);
    }
}

/// Takes the gradient into the second moments and divides it by their root.
fn preconditioned(
    gradient: &[f32],
    moments: &mut Moments,
    (rates, beta, epsilon): (&Rates, f64, f64),
) -> Vec<f64> {
    let [_, correction] = moments.corrections([0.0, beta]);
    let gradient: Vec<f64> = gradient
        .iter()
        .map(|g| f64::from(*g) * rates.gradient_scale)
        .collect();
    let squares: Vec<f64> = gradient.iter().map(|g| g * g + epsilon).collect();
    let towards = |moment: &mut f32, mean: f64| {
        *moment = (beta * f64::from(*moment) + (1.0 - beta) * mean) as f32;
    };
    let divide = |(g, second): (&f64, f64)| g / (second / correction).sqrt();
    match &mut moments.second {
        Second::Full(second) => {
            for (moment, square) in second.iter_mut().zip(&squares) {
                towards(moment, *square);
            }
            let second = second.iter().map(|v| f64::from(*v));
            gradient.iter().zip(second).map(divide).collect()
        }
        Second::Factored { rows, columns } => {
            let (height, width) = (rows.len(), columns.len());
            for (moment, row) in rows.iter_mut().zip(squares.chunks(width)) {
                towards(moment, row.iter().sum::<f64>() / width as f64);
            }
            for (column, moment) in columns.iter_mut().enumerate() {
                let sum: f64 = squares.iter().skip(column).step_by(width).sum();
                towards(moment, sum / height as f64);
            }
            let mean = rows.iter().map(|r| f64::from(*r)).sum::<f64>() / height as f64;
            let second = rows.iter().flat_map(|row| {
                let share = f64::from(*row) / mean;
                columns.iter().map(move |column| share * f64::from(*column))
            });
            gradient.iter().zip(second).map(divide).collect()
        }
    }
}

/// Moves the values by an update whose root mean square is cut to `most`, through the first moment
/// if there is one.
fn adafactor(
    values: &mut [f32],
    update: &[f64],
    moments: &mut Moments,
    (rates, betas, most): (&Rates, [f64; 2], f64),
) {
    let square = update.iter().map(|u| u * u).sum::<f64>() / update.len().max(1) as f64;
    let cut = (most / square.sqrt()).min(1.0);
    let keep = 1.0 - rates.learning_rate * rates.weight_decay;
    let [correction, _] = moments.corrections(betas);
    for (index, (value, u)) in values.iter_mut().zip(update).enumerate() {
        let mut step = u * cut;
        if let Some(m) = moments.first.get_mut(index) {
            *m = (betas[0] * f64::from(*m) + (1.0 - betas[0]) * step) as f32;
            step = f64::from(*m) / correction;
        }
        *value = (f64::from(*value) * keep - rates.learning_rate * step) as f32;
    }
}

#[cfg(test)]
mod tests;
