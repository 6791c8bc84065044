//! Weights as a safetensors file that says the model's shape, and back.
//!
//! Files come from elsewhere: names, types, shapes and numbers are all checked.

use std::collections::HashMap;

use safetensors::{SafeTensors, tensor::TensorView};

use crate::{
    config::ModelConfig,
    error::{PolicyError, Result},
    nn::Net,
};

/// Key of the model's shape in the metadata of its weights.
const CONFIG_KEY: &str = "dart.model_config";

/// The entry of the file's header that says the model's shape.
pub(crate) fn metadata(net: &Net) -> Result<(String, String)> {
    let config = serde_json::to_string(&net.config)
        .map_err(|error| PolicyError::Weights(error.to_string()))?;
    Ok((CONFIG_KEY.to_owned(), config))
}

/// The file of `values`, the flat array of all parameters, and of the model's shape.
pub(crate) fn write(net: &Net, values: &[f32]) -> Result<Vec<u8>> {
    let weights = |error: &dyn std::fmt::Display| PolicyError::Weights(error.to_string());
    let bytes: Vec<Vec<u8>> = net
        .layout
        .entries
        .iter()
        .map(|e| {
            e.span
                .of(values)
                .iter()
                .flat_map(|v| v.to_le_bytes())
                .collect()
        })
        .collect();
    let mut views = Vec::with_capacity(bytes.len());
    for (entry, bytes) in net.layout.entries.iter().zip(&bytes) {
        let view = TensorView::new(safetensors::Dtype::F32, entry.shape.clone(), bytes)
            .map_err(|e| weights(&e))?;
        views.push((entry.name.as_str(), view));
    }
    let metadata = HashMap::from([metadata(net)?]);
    safetensors::serialize(views, Some(metadata)).map_err(|e| weights(&e))
}

/// The model's shape as a file says it; not validated.
pub(crate) fn config(bytes: &[u8]) -> Result<ModelConfig> {
    let fault = |error: &dyn std::fmt::Display| PolicyError::Weights(error.to_string());
    let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(|e| fault(&e))?;
    let config = metadata
        .metadata()
        .as_ref()
        .and_then(|map| map.get(CONFIG_KEY))
        .ok_or_else(|| fault(&"they do not say the model's shape"))?;
    serde_json::from_str(config).map_err(|e| fault(&e))
}

/// The flat array of all parameters, if the file holds exactly these, all finite.
pub(crate) fn values(net: &Net, bytes: &[u8]) -> Result<Vec<f32>> {
    let fault = |text: String| PolicyError::Weights(text);
    let tensors = SafeTensors::deserialize(bytes).map_err(|e| fault(e.to_string()))?;
    if tensors.len() != net.layout.entries.len() {
        return Err(fault(format!("{} tensors", tensors.len())));
    }
    let mut values = vec![0.0; net.layout.total];
    for entry in &net.layout.entries {
        let name = &entry.name;
        let tensor = tensors.tensor(name).map_err(|e| fault(e.to_string()))?;
        if tensor.dtype() != safetensors::Dtype::F32 || tensor.shape() != entry.shape {
            return Err(fault(format!("{name} has another type or shape")));
        }
        let numbers = tensor.data().chunks_exact(4);
        for (value, number) in entry.span.of_mut(&mut values).iter_mut().zip(numbers) {
            let mut word = [0; 4];
            word.copy_from_slice(number);
            *value = f32::from_le_bytes(word);
        }
        if entry.span.of(&values).iter().any(|v| !v.is_finite()) {
            return Err(fault(format!("{name} is not finite")));
        }
    }
    Ok(values)
}
