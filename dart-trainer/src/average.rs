//! The exponential moving average of the weights.
//!
//! # Source
//! Polyak averaging as in arXiv 1710.06952 and everywhere since: after each optimizer step that was
//! taken, a ← a + (1 − decay)(w − a), in f32. It starts as a copy of the weights when the first
//! policy gradient is taken, so it needs no correction of a bias.

use candle_core::Tensor;
use dart_policy::Parameters;
use serde::{Deserialize, Serialize};

use crate::error::Result;

/// Which weights the policies get, for rollouts and evaluation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Published {
    /// Those that the optimizer moves.
    #[default]
    Current,
    /// Their average. What it draws is then off-policy by as much as it lags: importance weights
    /// correct for that, because they are taken against the log-probs that it recorded.
    Average,
}

/// The exponential moving average of the weights over policy-gradient steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AverageConfig {
    /// Share of the average that each optimizer step leaves, for example 0.99. Default 0: there is
    /// no average (paper).
    pub decay: f64,
    /// Which weights the policies get. A checkpoint holds both, so either can be evaluated later.
    /// Default the current ones.
    pub publish: Published,
}

/// The average, parameter by parameter, in their order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Average(pub Vec<Vec<f32>>);

impl Average {
    /// A copy of the weights of now.
    pub(crate) fn of(parameters: &Parameters) -> Result<Self> {
        let values = parameters
            .iter()
            .map(|(_, var)| var.flatten_all()?.to_vec1())
            .collect::<candle_core::Result<_>>()?;
        Ok(Self(values))
    }

    /// The average that a file holds.
    pub(crate) fn from_tensors(tensors: &[Tensor]) -> Result<Self> {
        let values = tensors
            .iter()
            .map(|tensor| tensor.flatten_all()?.to_vec1())
            .collect::<candle_core::Result<_>>()?;
        Ok(Self(values))
    }

    /// Goes towards the weights of now.
    pub(crate) fn follow(&mut self, parameters: &Parameters, decay: f64) -> Result<()> {
        let step = (1.0 - decay) as f32;
        let Self(now) = Self::of(parameters)?;
        for (average, now) in self.0.iter_mut().flatten().zip(now.iter().flatten()) {
            *average += step * (now - *average);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use candle_core::{Device, Var};

    use super::*;

    #[test]
    fn it_follows_the_weights() {
        let mut parameters = Parameters::default();
        let var = Var::new(&[1f32, -4.0], &Device::Cpu).unwrap();
        parameters.insert("a", var);
        let mut average = Average::of(&parameters).unwrap();
        let moved = Tensor::new(&[3f32, 0.0], &Device::Cpu).unwrap();
        parameters.get("a").unwrap().set(&moved).unwrap();
        average.follow(&parameters, 0.75).unwrap();
        average.follow(&parameters, 0.75).unwrap();
        // 1 → 1.5 → 1.875 and −4 → −3 → −2.25.
        assert_eq!(average.0, [vec![1.875, -2.25]]);
    }
}
