//! Every operation on the GPU against the definition in f64 on the exact values of the inputs.
//!
//! Used by the example `gpu_check` and by the tests.

mod losses;
mod notes;
mod published;
mod rows;
mod stats;
mod tokens;

use dart_kernels::cuda::{Error, Form, Gpu, GpuElement};

pub(crate) use published::published;
pub(crate) use rows::{download, upload};

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
    /// Batches of operations over tokens.
    pub(crate) tokens: &'static [usize],
}

impl Extent {
    /// For a GPU.
    pub(crate) const FULL: Self = Self {
        vocabularies: &[
            1, 7, 255, 257, 1000, 1003, 32_000, 50_257, 128_256, 151_936, 152_064, 262_144,
        ],
        rows: 33,
        tokens: &[0, 1, 255, 257, 3001],
    };

    /// For a GPU that is emulated.
    pub(crate) const SMALL: Self = Self {
        // The last one takes more shared memory in f32 than a CTA has without asking.
        vocabularies: &[1, 7, 257, 1003, 100_003],
        rows: 11,
        tokens: &[0, 1, 257],
    };
}

/// All checks but those of the fused linear layer.
pub(crate) fn all(gpu: &Gpu, extent: Extent) -> Result<Vec<Check>> {
    let mut checks = Vec::new();
    of_type::<f32>(gpu, extent, &mut checks)?;
    of_type::<half::bf16>(gpu, extent, &mut checks)?;
    of_type::<half::f16>(gpu, extent, &mut checks)?;
    checks.push(tokens::token_operations(gpu, extent)?);
    checks.push(tokens::segments(gpu)?);
    Ok(checks)
}

fn of_type<T: GpuElement>(gpu: &Gpu, extent: Extent, checks: &mut Vec<Check>) -> Result<()> {
    checks.push(stats::statistics::<T>(gpu, extent)?);
    checks.push(stats::edges::<T>(gpu)?);
    for form in [Form::ThreePass, Form::Fused] {
        if form == Form::Fused && gpu.form::<T>(1000, true) != Form::Fused {
            continue;
        }
        checks.push(losses::losses::<T>(gpu, extent, form)?);
        checks.push(losses::repeats::<T>(gpu, form)?);
    }
    checks.push(losses::gradient_of_labels::<T>(gpu)?);
    Ok(())
}
