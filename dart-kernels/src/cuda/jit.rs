//! Feature `jit`: the kernels compiled at run time to machine code of the present device.
//!
//! The result is a CUBIN: it loads on every driver of the compiler's major version, where PTX of a
//! compiler newer than the driver would be refused. cudarc's safe interface makes PTX only, so the
//! compiler is called one level below it.

use std::ffi::{CString, c_char};

use cudarc::nvrtc::{
    result::{NvrtcError, compile_program, create_program, destroy_program, get_program_log},
    sys,
};

use super::{
    error::{Error, Result},
    probe,
    source::{FAMILIES, Family, expand},
};

/// Machine code of every family of kernels for `architecture` (such as 90), with the family's name.
///
/// Needs NVRTC, not a GPU.
///
/// # Errors
/// [`Error::Library`] without NVRTC, [`Error::Compile`] if it refuses a source or does not know the
/// architecture.
pub fn compile_all(architecture: u32) -> Result<Vec<(&'static str, Vec<u8>)>> {
    let compiled = FAMILIES
        .iter()
        .map(|family| Ok((family.name, compile(family, architecture)?)));
    compiled.collect()
}

pub(super) fn compile(family: &Family, architecture: u32) -> Result<Vec<u8>> {
    probe::NVRTC.require()?;
    let refused = |log: String| Error::Compile {
        family: family.name,
        architecture,
        log,
    };
    let text = CString::new(expand(family)).map_err(|error| refused(error.to_string()))?;
    let program = Program::new(&text).map_err(|error| refused(error.to_string()))?;
    let options = [
        format!("--gpu-architecture=sm_{architecture}"),
        "--std=c++17".into(),
    ];
    program
        .cubin(&options)
        .map_err(|error| refused(format!("{error} {}", program.log())))
}

/// A program that is destroyed when it is dropped.
struct Program<'a> {
    handle: sys::nvrtcProgram,
    /// NVRTC may refer to the text while the program lives.
    _text: &'a CString,
}

impl<'a> Program<'a> {
    fn new(text: &'a CString) -> std::result::Result<Self, NvrtcError> {
        let handle = create_program(text, None)?;
        Ok(Self {
            handle,
            _text: text,
        })
    }

    fn cubin(&self, options: &[String]) -> std::result::Result<Vec<u8>, NvrtcError> {
        // SAFETY: the handle comes from `create_program` and is destroyed only on drop.
        unsafe { compile_program(self.handle, options) }?;
        let mut size = 0usize;
        // SAFETY: as above; `size` outlives the call.
        unsafe { sys::nvrtcGetCUBINSize(self.handle, &raw mut size) }.result()?;
        let mut cubin = vec![0u8; size];
        // SAFETY: as above; NVRTC writes the `size` bytes that it asked for.
        unsafe { sys::nvrtcGetCUBIN(self.handle, cubin.as_mut_ptr().cast::<c_char>()) }.result()?;
        Ok(cubin)
    }

    fn log(&self) -> String {
        // SAFETY: as above.
        let log = unsafe { get_program_log(self.handle) }.unwrap_or_default();
        let bytes: Vec<u8> = log.iter().map(|c| c.cast_unsigned()).collect();
        String::from_utf8_lossy(&bytes)
            .trim_end_matches('\0')
            .trim()
            .to_owned()
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        // SAFETY: destroyed once, and nothing uses it afterwards. A failure leaks a program.
        let _ = unsafe { destroy_program(self.handle) };
    }
}
