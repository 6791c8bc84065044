//! Which libraries of NVIDIA this machine has.
//!
//! cudarc panics when it cannot load a library, so each is looked for before the first call into
//! it, under names that cudarc tries too. (cudarc's own check is compiled only while it loads
//! libraries at run time; candle's feature `cuda` makes it link them, and the check is gone.)

use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};

use super::error::{Error, Result};

/// A library, and what to say where it is missing.
pub(super) struct Library {
    what: &'static str,
    stems: &'static [&'static str],
    remedy: &'static str,
}

pub(super) const DRIVER: Library = Library {
    what: "the NVIDIA driver",
    stems: &["cuda", "nvcuda"],
    remedy: "install the driver of the GPU, or use the CPU operations",
};

pub(super) const BLAS: Library = Library {
    what: "cuBLAS",
    stems: &["cublas"],
    remedy: "install CUDA 12 or 13, or the Python wheel nvidia-cublas with its lib folder on LD_LIBRARY_PATH",
};

#[cfg(feature = "jit")]
pub(super) const NVRTC: Library = Library {
    what: "the run-time compiler NVRTC",
    stems: &["nvrtc"],
    remedy: "install CUDA 12 or 13, or the Python wheel nvidia-cuda-nvrtc with its lib folder on \
             LD_LIBRARY_PATH, or build without the feature `jit`",
};

impl Library {
    fn names(&self) -> impl Iterator<Item = String> + '_ {
        let versions = ["", ".13", ".12", ".11", ".1"];
        self.stems.iter().flat_map(move |stem| {
            versions.map(|version| format!("{DLL_PREFIX}{stem}{DLL_SUFFIX}{version}"))
        })
    }

    /// Loads the library for good.
    pub(super) fn require(&self) -> Result<()> {
        self.names()
            .find_map(|name| load(&name))
            .ok_or_else(|| Error::Library {
                what: self.what,
                tried: self.names().collect::<Vec<_>>().join(", "),
                remedy: self.remedy,
            })
    }
}

fn load(name: &str) -> Option<()> {
    // SAFETY: what runs on loading is the initialisation of a system library that cudarc is about
    // to load in the same way.
    let library = unsafe { libloading::Library::new(name) }.ok()?;
    // Never unloaded: cudarc holds pointers into it for the life of the process.
    std::mem::forget(library);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_named_with_its_remedy() {
        let missing = Library {
            what: "the library of this test",
            stems: &["dart-no-such-library"],
            remedy: "nothing to do",
        };
        let error = missing.require().unwrap_err();
        assert!(matches!(error, Error::Library { .. }));
        let text = error.to_string();
        assert!(
            text.contains("dart-no-such-library") && text.contains("nothing to do"),
            "{text}"
        );
    }
}
