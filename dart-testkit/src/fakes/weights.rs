//! [`FakeWeights`]: a model small enough to differentiate by hand.

use std::sync::Arc;

use dart_core::{
    Error, ErrorKind, Frame, PolicyVersion, Rect, Result, WeightsHandle, WeightsSource,
};
use serde::{Deserialize, Serialize};

/// A softmax over the cells of a grid: the logit of a cell is its bias plus `gain` times the share
/// of its pixels that are red. A positive gain clicks red squares.
///
/// Travels as JSON, not as safetensors: it is read by fakes alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FakeWeights {
    /// Cells from left to right.
    pub columns: u32,
    /// How much red attracts.
    #[serde(with = "bits::one")]
    pub gain: f64,
    /// One number for each cell, row by row.
    #[serde(with = "bits::many")]
    pub bias: Vec<f64>,
}

impl FakeWeights {
    /// Weights that prefer no cell.
    pub fn blank(columns: u32, rows: u32) -> Self {
        Self {
            columns,
            gain: 0.0,
            bias: vec![0.0; (columns * rows) as usize],
        }
    }

    /// Number of cells; also the token that ends a response.
    pub fn cells(&self) -> u32 {
        self.bias.len() as u32
    }

    /// Where a cell is on a screen of the frame's size.
    pub fn cell(&self, cell: u32, frame: &Frame) -> Rect {
        let rows = (self.cells() / self.columns).max(1);
        let (width, height) = (
            (frame.size().width / self.columns).max(1),
            (frame.size().height / rows).max(1),
        );
        let (x, y) = (cell % self.columns * width, cell / self.columns * height);
        Rect::new(x as i32, y as i32, width, height)
    }

    /// The share of red pixels in each cell.
    pub fn redness(&self, frame: &Frame) -> Vec<f64> {
        let share = |cell| {
            let area = self.cell(cell, frame);
            let (left, top) = (area.x as u32, area.y as u32);
            let pixels = (top..top + area.height)
                .flat_map(|y| (left..left + area.width).map(move |x| (x, y)));
            let red = pixels
                .filter_map(|(x, y)| frame.pixel(x, y))
                .filter(|[r, g, _]| *r > 150 && *g < 100)
                .count();
            red as f64 / f64::from(area.width * area.height)
        };
        (0..self.cells()).map(share).collect()
    }

    /// Log-probability of each cell at a temperature above 0.
    pub fn log_probs(&self, frame: &Frame, temperature: f64) -> Vec<f64> {
        let redness = self.redness(frame);
        let logits = self.bias.iter().zip(&redness);
        let logits: Vec<_> = logits
            .map(|(bias, red)| (bias + self.gain * red) / temperature)
            .collect();
        let top = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = logits.iter().map(|logit| (logit - top).exp()).sum();
        logits.iter().map(|logit| logit - top - sum.ln()).collect()
    }

    /// The weights as a published version.
    pub fn handle(&self, version: PolicyVersion) -> Result<WeightsHandle> {
        let bytes = serde_json::to_vec(self).map_err(|error| broken("export", error))?;
        Ok(WeightsHandle {
            version,
            digest: blake3::hash(&bytes).to_hex().as_str().into(),
            source: WeightsSource::Memory(bytes.into()),
        })
    }

    /// Reads published weights.
    pub fn from_handle(handle: &WeightsHandle) -> Result<Self> {
        let bytes = checked_bytes(handle)?;
        serde_json::from_slice(&bytes).map_err(|error| broken("load", error))
    }
}

/// The bytes of a handle, if they are there and have the digest that it says.
pub(super) fn checked_bytes(handle: &WeightsHandle) -> Result<Arc<[u8]>> {
    let WeightsSource::Memory(bytes) = &handle.source else {
        let message = "fakes read weights from memory only";
        return Err(Error::new(ErrorKind::Storage, "fake", "load", message));
    };
    if blake3::hash(bytes).to_hex().as_str() != &*handle.digest {
        return Err(broken("load", "the digest does not fit the bytes"));
    }
    Ok(bytes.clone())
}

fn broken(operation: &'static str, why: impl std::fmt::Display) -> Error {
    let message = format!("broken weights: {why}");
    Error::new(ErrorKind::Protocol, "fake", operation, message)
}

/// Numbers as their bits: `serde_json` reads decimal fractions only nearly right, and a restored
/// learner has to go on bit for bit.
pub(super) mod bits {
    pub(in crate::fakes) mod one {
        use serde::{Deserialize, Deserializer, Serialize, Serializer};

        #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
        pub(in crate::fakes) fn serialize<S: Serializer>(
            value: &f64,
            serializer: S,
        ) -> Result<S::Ok, S::Error> {
            value.to_bits().serialize(serializer)
        }

        pub(in crate::fakes) fn deserialize<'de, D: Deserializer<'de>>(
            deserializer: D,
        ) -> Result<f64, D::Error> {
            u64::deserialize(deserializer).map(f64::from_bits)
        }
    }

    pub(in crate::fakes) mod many {
        use serde::{Deserialize, Deserializer, Serializer};

        pub(in crate::fakes) fn serialize<S: Serializer>(
            values: &[f64],
            serializer: S,
        ) -> Result<S::Ok, S::Error> {
            serializer.collect_seq(values.iter().map(|value| value.to_bits()))
        }

        pub(in crate::fakes) fn deserialize<'de, D: Deserializer<'de>>(
            deserializer: D,
        ) -> Result<Vec<f64>, D::Error> {
            let bits = Vec::<u64>::deserialize(deserializer)?;
            Ok(bits.into_iter().map(f64::from_bits).collect())
        }
    }
}
