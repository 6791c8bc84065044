//! AdamW with state that can be saved.
//!
//! # Source
//! Loshchilov and Hutter, arXiv 1711.05101, algorithm 2. Deviations: vectors are not decayed, and
//! a parameter that got no gradient is left alone, as is its state. Moments are f32.

use std::collections::BTreeMap;

use candle_core::Tensor;
use dart_policy::Parameters;

use crate::{error::Result, gradients::Gradients};

/// Numbers of one optimizer step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rates {
    pub learning_rate: f64,
    pub betas: [f64; 2],
    pub epsilon: f64,
    pub weight_decay: f64,
    /// The gradient is multiplied by this (clipping).
    pub gradient_scale: f64,
}

/// State of one parameter.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Moments {
    /// Steps that this parameter took part in.
    pub steps: u64,
    pub first: Vec<f32>,
    pub second: Vec<f32>,
}

/// State of all parameters, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct AdamW {
    pub moments: BTreeMap<String, Moments>,
}

impl AdamW {
    /// Moves `parameters` against `gradients`.
    pub(crate) fn step(
        &mut self,
        parameters: &Parameters,
        gradients: &Gradients,
        rates: &Rates,
    ) -> Result<()> {
        for ((name, var), gradient) in parameters.iter().zip(gradients.iter()) {
            let Some(gradient) = gradient else { continue };
            let moments = self.moments.entry(name.to_owned()).or_default();
            moments.first.resize(gradient.len(), 0.0);
            moments.second.resize(gradient.len(), 0.0);
            moments.steps += 1;
            let mut values = var.flatten_all()?.to_vec1::<f32>()?;
            let decay = if var.rank() >= 2 {
                rates.weight_decay
            } else {
                0.0
            };
            move_values(&mut values, gradient, moments, (rates, decay));
            var.set(&Tensor::from_vec(values, var.shape(), var.device())?)?;
        }
        Ok(())
    }
}

fn move_values(
    values: &mut [f32],
    gradient: &[f32],
    moments: &mut Moments,
    (rates, decay): (&Rates, f64),
) {
    let [beta1, beta2] = rates.betas;
    let correct = |beta: f64| 1.0 - beta.powi(moments.steps.min(1 << 30) as i32);
    let step_size = (rates.learning_rate / correct(beta1)) as f32;
    let second_scale = (1.0 / correct(beta2)) as f32;
    let keep = (1.0 - rates.learning_rate * decay) as f32;
    let (scale, epsilon) = (rates.gradient_scale as f32, rates.epsilon as f32);
    let (b1, c1) = (beta1 as f32, (1.0 - beta1) as f32);
    let (b2, c2) = (beta2 as f32, (1.0 - beta2) as f32);
    let states = moments.first.iter_mut().zip(&mut moments.second);
    for ((value, g), (m, v)) in values.iter_mut().zip(gradient).zip(states) {
        let g = g * scale;
        *m = b1 * *m + c1 * g;
        *v = b2 * *v + c2 * g * g;
        *value = *value * keep - step_size * *m / ((*v * second_scale).sqrt() + epsilon);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::{Device, Var};

    const RATES: Rates = Rates {
        learning_rate: 0.1,
        betas: [0.9, 0.999],
        epsilon: 1e-8,
        weight_decay: 0.5,
        gradient_scale: 1.0,
    };

    fn parameters() -> Parameters {
        let mut parameters = Parameters::default();
        let var = |values: &[f32], shape: &[usize]| {
            Var::from_tensor(&Tensor::from_slice(values, shape, &Device::Cpu).unwrap()).unwrap()
        };
        parameters.insert("matrix", var(&[1.0, -2.0], &[1, 2]));
        parameters.insert("unreached", var(&[3.0], &[1, 1]));
        parameters.insert("vector", var(&[1.0], &[1]));
        parameters
    }

    fn values(parameters: &Parameters, name: &str) -> Vec<f32> {
        let var = parameters.get(name).unwrap();
        var.flatten_all().unwrap().to_vec1().unwrap()
    }

    #[test]
    fn two_steps_agree_with_the_formula() {
        let parameters = parameters();
        let mut adam = AdamW::default();
        let steps = [[0.5f32, -1.0], [0.1, 3.0]];
        for g in steps {
            let gradients = vec![Some(g.to_vec()), None, Some(vec![2.0])].into();
            adam.step(&parameters, &gradients, &RATES).unwrap();
        }
        for (index, start) in [1.0f64, -2.0].into_iter().enumerate() {
            let (mut value, mut m, mut v) = (start, 0.0f64, 0.0f64);
            for (t, g) in steps.iter().enumerate() {
                let g = f64::from(g[index]);
                m = 0.9 * m + 0.1 * g;
                v = 0.999 * v + 0.001 * g * g;
                let t = t as i32 + 1;
                let (m_hat, v_hat) = (m / (1.0 - 0.9f64.powi(t)), v / (1.0 - 0.999f64.powi(t)));
                value = value * (1.0 - 0.1 * 0.5) - 0.1 * m_hat / (v_hat.sqrt() + 1e-8);
            }
            let got = f64::from(values(&parameters, "matrix")[index]);
            assert!((got - value).abs() < 1e-5, "{got} is not {value}");
        }
        assert_eq!(values(&parameters, "unreached"), [3.0]);
        assert!(
            (values(&parameters, "vector")[0] - 0.8).abs() < 1e-5,
            "no decay"
        );
    }
}
