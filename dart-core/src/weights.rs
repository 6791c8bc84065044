//! Versioned weights on their way from the learner to the policies.

use std::{path::PathBuf, sync::Arc};

use crate::PolicyVersion;

/// Where the weights are. The format is safetensors in both cases; nothing else is ever loaded.
#[derive(Clone)]
pub enum WeightsSource {
    /// The bytes of one safetensors file.
    Memory(Arc<[u8]>),
    /// A directory with safetensors files and a manifest, for policies in other processes.
    Directory(PathBuf),
}

impl std::fmt::Debug for WeightsSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Memory(bytes) => write!(f, "Memory({} bytes)", bytes.len()),
            Self::Directory(path) => write!(f, "Directory({})", path.display()),
        }
    }
}

/// A published set of weights. A version is a number and a digest, never a path alone.
#[derive(Clone, Debug)]
pub struct WeightsHandle {
    /// Which version.
    pub version: PolicyVersion,
    /// BLAKE3 of the weights, as 64 hexadecimal digits.
    pub digest: Arc<str>,
    /// Where they are.
    pub source: WeightsSource,
}
