//! Everything a learner consists of, as files.
//!
//! | file | what |
//! |---|---|
//! | `weights.safetensors` | the parameters: what policies load |
//! | `reference.safetensors` | those of the KL reference, if there is one |
//! | `average.safetensors` | their moving average, if there is one |
//! | `optimizer.safetensors` | moments: `m.NAME`, and `v.NAME` or, factored, `r.NAME` and `c.NAME` |
//! | `accumulated.safetensors` | gradients of batches whose optimizer step is still to come, if any |
//! | `learner.json` | version and counters |

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    path::Path,
};

use candle_core::{DType, Tensor};
use dart_core::{Objective, PolicyVersion};
use dart_policy::{Parameters, TrainableModel};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use serde::{Deserialize, Serialize};

use crate::{
    accumulate::Accumulated,
    average::Average,
    error::{Result, TrainerError},
    gradients::Gradients,
    optimizer::{Moments, Optimizer, OptimizerKind, Second},
};

pub(crate) const FORMAT: u32 = 1;
pub(crate) const WEIGHTS: &str = "weights.safetensors";
pub(crate) const REFERENCE: &str = "reference.safetensors";
pub(crate) const AVERAGE: &str = "average.safetensors";
pub(crate) const ACCUMULATED: &str = "accumulated.safetensors";
pub(crate) const OPTIMIZER: &str = "optimizer.safetensors";
pub(crate) const PROGRESS: &str = "learner.json";

/// Counters of a learner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Progress {
    /// Version of the weights.
    pub version: PolicyVersion,
    /// The objective that the optimizer state belongs to.
    pub stage: Option<Objective>,
    /// Optimizer steps taken for it.
    pub stage_steps: u64,
    /// Optimizer steps left out because a number was not finite.
    pub not_finite: u64,
}

/// The content of `learner.json`. Random draws are derived from seed and version: no generator has
/// a state to save.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Saved {
    pub format: u32,
    pub progress: Progress,
    pub has_reference: bool,
    #[serde(default)]
    pub has_average: bool,
    /// Batches taken in since the last optimizer step.
    #[serde(default)]
    pub accumulated_batches: u64,
    /// The sum of their counts.
    #[serde(default)]
    pub accumulated_count: u64,
    /// Whose moments these are.
    #[serde(default)]
    pub optimizer: OptimizerKind,
    /// Optimizer steps of each parameter.
    pub optimizer_steps: BTreeMap<String, u64>,
}

/// A named array.
struct Array<'a> {
    name: String,
    shape: Vec<usize>,
    values: &'a [f32],
}

/// Learners move f32 weights only.
pub(crate) fn check_parameters(parameters: &Parameters) -> Result<()> {
    match parameters.iter().find(|(_, var)| var.dtype() != DType::F32) {
        None => Ok(()),
        Some((name, var)) => Err(TrainerError::Parameter {
            name: name.to_owned(),
            message: format!("is {:?}, only F32 is trained", var.dtype()),
        }),
    }
}

/// The model's parameters, or values in their place, and its metadata as one safetensors file. The
/// same values give the same bytes.
pub(crate) fn encode_weights<M: TrainableModel>(
    model: &M,
    instead: Option<&Average>,
) -> Result<Vec<u8>> {
    let parameters = model.parameters();
    let Average(values) = match instead {
        Some(average) => average.clone(),
        None => Average::of(parameters)?,
    };
    let arrays = parameters.iter().zip(&values);
    let arrays = arrays.map(|((name, var), values)| Array {
        name: name.to_owned(),
        shape: var.dims().to_vec(),
        values,
    });
    encode(arrays, model.weights_metadata()?)
}

pub(crate) fn write_weights<M: TrainableModel>(
    path: &Path,
    model: &M,
    instead: Option<&Average>,
) -> Result<()> {
    write(path, &encode_weights(model, instead)?)
}

pub(crate) fn write_optimizer(path: &Path, optimizer: &Optimizer) -> Result<()> {
    let arrays = optimizer.moments.iter().flat_map(|(name, moments)| {
        let first = (!moments.first.is_empty()).then_some(("m", &moments.first));
        let second = match &moments.second {
            Second::Full(values) => vec![("v", values)],
            Second::Factored { rows, columns } => vec![("r", rows), ("c", columns)],
        };
        first
            .into_iter()
            .chain(second)
            .map(move |(kind, values)| Array {
                name: format!("{kind}.{name}"),
                shape: vec![values.len()],
                values,
            })
    });
    write(path, &encode(arrays, None)?)
}

/// Writes the gradients of the parameters that have one.
pub(crate) fn write_accumulated(
    path: &Path,
    accumulated: &Accumulated,
    parameters: &Parameters,
) -> Result<()> {
    let pairs = parameters.iter().zip(accumulated.gradients.iter());
    let arrays = pairs.filter_map(|((name, var), gradient)| {
        gradient.map(|values| Array {
            name: name.to_owned(),
            shape: var.dims().to_vec(),
            values,
        })
    });
    write(path, &encode(arrays, None)?)
}

/// Reads what `write_accumulated` wrote for the same model.
pub(crate) fn read_accumulated(
    path: &Path,
    saved: &Saved,
    parameters: &Parameters,
) -> Result<Accumulated> {
    if saved.accumulated_batches == 0 {
        return Ok(Accumulated::default());
    }
    let bytes = fs::read(path).map_err(TrainerError::io("read", path))?;
    let file = parse(path, &bytes)?;
    let gradient = |(name, var): (&str, &candle_core::Var)| {
        let present = file.tensor(name).is_ok();
        let read = || values(path, &file, name, var.dims());
        present.then(read).transpose()
    };
    let gradients: Vec<_> = parameters.iter().map(gradient).collect::<Result<_>>()?;
    if gradients.iter().flatten().count() != file.len() {
        let message = "has gradients of parameters that the model lacks";
        return Err(TrainerError::corrupt(path, message));
    }
    Ok(Accumulated {
        batches: saved.accumulated_batches,
        count: saved.accumulated_count,
        // Nothing at all if no batch had a gradient.
        gradients: if file.is_empty() {
            Gradients::default()
        } else {
            gradients.into()
        },
    })
}

pub(crate) fn write_progress(path: &Path, saved: &Saved) -> Result<()> {
    write(path, &serde_json::to_vec_pretty(saved)?)
}

pub(crate) fn read_progress(path: &Path) -> Result<Saved> {
    let bytes = fs::read(path).map_err(TrainerError::io("read", path))?;
    let saved: Saved = serde_json::from_slice(&bytes)
        .map_err(|error| TrainerError::corrupt(path, format!("is no learner state: {error}")))?;
    if saved.format == FORMAT {
        return Ok(saved);
    }
    let message = format!("has format {}, this program reads {FORMAT}", saved.format);
    Err(TrainerError::corrupt(path, message))
}

/// Values of the weights in `path`, which have to be those of `parameters` by name and shape.
pub(crate) fn read_weights(path: &Path, parameters: &Parameters) -> Result<Vec<Tensor>> {
    let bytes = fs::read(path).map_err(TrainerError::io("read", path))?;
    let file = parse(path, &bytes)?;
    if file.len() != parameters.len() {
        let message = format!("has {} tensors, the model {}", file.len(), parameters.len());
        return Err(TrainerError::corrupt(path, message));
    }
    parameters
        .iter()
        .map(|(name, var)| {
            let values = values(path, &file, name, var.dims())?;
            Ok(Tensor::from_vec(values, var.shape(), var.device())?)
        })
        .collect()
}

/// Makes `values`, which `read_weights` gave for the same model, the parameters.
pub(crate) fn set_weights(parameters: &Parameters, values: &[Tensor]) -> Result<()> {
    for ((_, var), values) in parameters.iter().zip(values) {
        var.set(values)?;
    }
    Ok(())
}

pub(crate) fn read_optimizer(
    path: &Path,
    saved: &Saved,
    parameters: &Parameters,
) -> Result<Optimizer> {
    let bytes = fs::read(path).map_err(TrainerError::io("read", path))?;
    let file = parse(path, &bytes)?;
    let mut optimizer = Optimizer::default();
    for (name, steps) in &saved.optimizer_steps {
        let Some(var) = parameters.get(name) else {
            let message = format!("has moments of {name}, which the model lacks");
            return Err(TrainerError::corrupt(path, message));
        };
        let read = |kind, shape: &[usize]| values(path, &file, &format!("{kind}.{name}"), shape);
        let has = |kind| file.tensor(&format!("{kind}.{name}")).is_ok();
        let shape = [var.elem_count()];
        let second = match var.dims() {
            [leading @ .., columns] if has("r") => Second::Factored {
                rows: read("r", &[leading.iter().product()])?,
                columns: read("c", &[*columns])?,
            },
            _ => Second::Full(read("v", &shape)?),
        };
        let first = has("m").then(|| read("m", &shape)).transpose()?;
        let moments = Moments {
            steps: *steps,
            first: first.unwrap_or_default(),
            second,
        };
        optimizer.moments.insert(name.clone(), moments);
    }
    Ok(optimizer)
}

fn parse<'a>(path: &Path, bytes: &'a [u8]) -> Result<SafeTensors<'a>> {
    SafeTensors::deserialize(bytes)
        .map_err(|error| TrainerError::corrupt(path, format!("is no safetensors file: {error}")))
}

fn values(path: &Path, file: &SafeTensors, name: &str, shape: &[usize]) -> Result<Vec<f32>> {
    let view = file
        .tensor(name)
        .map_err(|_| TrainerError::corrupt(path, format!("lacks tensor {name}")))?;
    if view.dtype() != Dtype::F32 || view.shape() != shape {
        let (dtype, found) = (view.dtype(), view.shape());
        let message = format!("has {name} as {dtype:?} {found:?}, F32 {shape:?} is needed");
        return Err(TrainerError::corrupt(path, message));
    }
    let (numbers, _) = view.data().as_chunks::<4>();
    Ok(numbers
        .iter()
        .map(|bytes| f32::from_le_bytes(*bytes))
        .collect())
}

fn encode<'a>(
    arrays: impl Iterator<Item = Array<'a>>,
    metadata: Option<(String, String)>,
) -> Result<Vec<u8>> {
    let bytes: Vec<(String, Vec<usize>, Vec<u8>)> = arrays
        .map(|array| {
            let bytes = array.values.iter().flat_map(|v| v.to_le_bytes()).collect();
            (array.name, array.shape, bytes)
        })
        .collect();
    let views = bytes
        .iter()
        .map(|(name, shape, bytes)| Ok((name, TensorView::new(Dtype::F32, shape.clone(), bytes)?)))
        .collect::<Result<Vec<_>>>()?;
    Ok(safetensors::serialize(
        views,
        metadata.map(|entry| HashMap::from([entry])),
    )?)
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    fs::write(path, bytes).map_err(TrainerError::io("write", path))
}
