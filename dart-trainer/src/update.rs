//! One optimizer step: guard, clip, move.

use dart_policy::Parameters;

use crate::{
    adamw::{AdamW, Rates},
    error::Result,
    pass::Computed,
};

/// What became of one optimizer step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Update {
    /// Norm of the gradient before clipping.
    pub grad_norm: f64,
    /// Whether the weights moved.
    pub applied: bool,
    /// Whether loss or gradient was not finite.
    pub not_finite: bool,
}

/// Moves `parameters`, unless loss or gradient is not finite or the gradient is 0: then weight
/// decay and momentum would move them by themselves.
pub(crate) fn update(
    adam: &mut AdamW,
    parameters: &Parameters,
    computed: &Computed,
    (mut rates, clip): (Rates, f64),
) -> Result<Update> {
    let grad_norm = computed.gradients.norm();
    let not_finite = !grad_norm.is_finite() || !computed.loss.is_finite();
    let applied = !not_finite && grad_norm > 0.0;
    if applied {
        if clip > 0.0 && grad_norm > clip {
            rates.gradient_scale = clip / grad_norm;
        }
        adam.step(parameters, &computed.gradients, &rates)?;
    }
    Ok(Update {
        grad_norm,
        applied,
        not_finite,
    })
}

#[cfg(test)]
mod tests {
    use candle_core::{Device, Var};

    use super::*;

    #[test]
    fn gradients_are_clipped_by_their_common_norm() {
        let mut parameters = Parameters::default();
        for name in ["a", "b"] {
            parameters.insert(name, Var::new(&[0f32], &Device::Cpu).unwrap());
        }
        let rates = Rates {
            learning_rate: 0.1,
            betas: [0.0, 0.999],
            epsilon: 1e-8,
            weight_decay: 0.0,
            gradient_scale: 1.0,
        };
        for (clip, scale) in [(1.0, 0.2), (0.0, 1.0), (9.0, 1.0)] {
            let computed = Computed {
                gradients: vec![Some(vec![3.0]), Some(vec![-4.0])].into(),
                ..Computed::default()
            };
            let mut adam = AdamW::default();
            let update = update(&mut adam, &parameters, &computed, (rates, clip)).unwrap();
            assert_eq!((update.grad_norm, update.applied), (5.0, true));
            // With a decay rate of 0 the first moment is the gradient itself.
            let got = [adam.moments["a"].first[0], adam.moments["b"].first[0]];
            for (got, expected) in got.iter().zip([3.0 * scale, -4.0 * scale]) {
                assert!((got - expected).abs() < 1e-6, "{got} is not {expected}");
            }
        }
    }
}
