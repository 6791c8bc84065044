//! Weights on their way to and from bytes.

use candle_core::Tensor;
use dart_core::{ErrorKind, PolicyVersion, WeightsSource};
use dart_policy::{ModelConfig, TrainableModel, VlmModel};

use crate::common::{model, tiny};

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
