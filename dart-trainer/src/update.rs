//! One optimizer step: guard, clip, move.

use dart_policy::Parameters;

use crate::{
    error::Result,
    gradients::Gradients,
    optimizer::{Optimizer, Rates},
};

/// What became of one optimizer step, or of one batch's part in it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Update {
    /// Norm of the gradient before clipping.
    pub grad_norm: f64,
    /// Whether the weights moved.
    pub applied: bool,
    /// Whether the gradient was taken in for an optimizer step that is still to come.
    pub pending: bool,
    /// Whether loss or gradient was not finite.
    pub not_finite: bool,
}

/// Moves `parameters`, unless the gradient is not finite or 0: then weight decay and momentum would
/// move them by themselves.
pub(crate) fn update(
    optimizer: &mut Optimizer,
    parameters: &Parameters,
    gradients: &Gradients,
    mut rates: Rates,
) -> Result<Update> {
    let grad_norm = gradients.norm() * rates.gradient_scale;
    let not_finite = !grad_norm.is_finite();
    let applied = !not_finite && grad_norm > 0.0;
    if applied {
        let clip = rates.grad_clip;
        if clip > 0.0 && grad_norm > clip {
            rates.gradient_scale *= clip / grad_norm;
        }
        optimizer.step(parameters, gradients, &rates)?;
    }
    Ok(Update {
        grad_norm,
        applied,
        pending: false,
        not_finite,
    })
}

#[cfg(test)]
mod tests {
    use candle_core::{Device, Var};

    use super::*;
    use crate::OptimizerConfig;

    #[test]
    fn gradients_are_clipped_by_their_common_norm() {
        let mut parameters = Parameters::default();
        for name in ["a", "b"] {
            parameters.insert(name, Var::new(&[0f32], &Device::Cpu).unwrap());
        }
        for (grad_clip, gradient_scale, scale) in [
            (1.0, 1.0, 0.2),
            (0.0, 1.0, 1.0),
            (9.0, 1.0, 1.0),
            (1.0, 0.1, 0.1),
            (1.0, 0.4, 0.2),
        ] {
            let rates = Rates {
                // With a decay rate of 0 the first moment is the gradient itself.
                optimizer: OptimizerConfig::Adamw {
                    betas: [0.0, 0.999],
                    epsilon: 1e-8,
                },
                learning_rate: 0.1,
                weight_decay: 0.0,
                grad_clip,
                gradient_scale,
            };
            let gradients = vec![Some(vec![3.0]), Some(vec![-4.0])].into();
            let mut optimizer = Optimizer::default();
            let update = update(&mut optimizer, &parameters, &gradients, rates).unwrap();
            assert_eq!(
                (update.grad_norm, update.applied),
                (5.0 * gradient_scale, true)
            );
            let got = [&optimizer.moments["a"], &optimizer.moments["b"]].map(|m| m.first[0]);
            for (got, expected) in got.iter().zip([3.0 * scale, -4.0 * scale]) {
                assert!((got - expected).abs() < 1e-6, "{got} is not {expected}");
            }
        }
    }
}
