//! Weights on their way to and from bytes.

use candle_core::Tensor;
use dart_core::{ErrorKind, PolicyVersion, WeightsSource};
use dart_policy::{ModelConfig, TrainableModel, VlmModel};

use crate::common::{model, tiny};

/// Names and numbers of all parameters, in order.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn digest(model: &VlmModel) -> String {
    let mut hasher = blake3::Hasher::new();
    for (name, var) in model.parameters().iter() {
        hasher.update(name.as_bytes());
        for value in var.flatten_all().unwrap().to_vec1::<f32>().unwrap() {
            hasher.update(&value.to_le_bytes());
        }
    }
    hasher.finalize().to_hex().to_string()
}

/// Published runs name a seed: it must keep giving the weights that it gave then. The digest holds
/// for Linux on x86-64, whose mathematics library rounds the logarithms and cosines behind it.
#[test]
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn a_seed_keeps_giving_the_same_weights() {
    let model = VlmModel::new(&ModelConfig::default(), 0).unwrap();
    assert_eq!(
        digest(&model),
        "4a2955925161a1a1ae70f12cf623767bf30b25ceb786bbc5a3eb3ac83eb0a248"
    );
}

#[test]
fn bytes_round_trip_with_the_shape() {
    let model = model();
    let handle = model.weights(PolicyVersion(3)).unwrap();
    assert_eq!(handle.version, PolicyVersion(3));
    let WeightsSource::Memory(bytes) = &handle.source else {
        panic!("not in memory");
    };
    let again = VlmModel::from_weights(bytes).unwrap();
    assert_eq!(again.config(), model.config());
    assert_eq!(
        again.weights(PolicyVersion(3)).unwrap().digest,
        handle.digest
    );
    assert_eq!(blake3::hash(bytes).to_hex().as_str(), &*handle.digest);
    let other = VlmModel::new(&tiny(), 4).unwrap();
    assert_ne!(other.to_bytes().unwrap(), **bytes);
    other.load_bytes(bytes).unwrap();
    assert_eq!(other.to_bytes().unwrap(), **bytes);
}

#[test]
fn bad_weights_are_refused_and_change_nothing() {
    let model = model();
    let before = model.to_bytes().unwrap();
    let wider = ModelConfig {
        width: 32,
        ..tiny()
    };
    let wider = VlmModel::new(&wider, 0).unwrap().to_bytes().unwrap();
    let poisoned = model.deep_copy().unwrap();
    let var = poisoned.parameters().get("block01.up").unwrap();
    let mut values = vec![0.0f32; var.elem_count()];
    values[7] = f32::NAN;
    let tensor = Tensor::from_vec(values, var.dims(), var.device()).unwrap();
    var.set(&tensor).unwrap();
    let cases = [
        b"no safetensors".to_vec(),
        before[..before.len() - 1].to_vec(),
        wider,
        poisoned.to_bytes().unwrap(),
    ];
    for (index, bytes) in cases.iter().enumerate() {
        let fault = model.load_bytes(bytes).unwrap_err();
        assert_eq!(fault.kind(), ErrorKind::Protocol, "case {index}: {fault}");
        assert_eq!(model.to_bytes().unwrap(), before, "case {index}");
    }
    assert!(VlmModel::from_weights(&cases[0]).is_err());
    assert!(VlmModel::from_weights(&cases[3]).is_err());
}
