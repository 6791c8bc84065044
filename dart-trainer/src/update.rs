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
