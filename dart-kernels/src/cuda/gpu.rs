//! [`Gpu`]: a device with the kernels on it.

use std::sync::Arc;

use cudarc::{
    driver::{
        CudaContext, CudaFunction, CudaModule, CudaSlice, CudaStream, DevicePtr, DeviceRepr,
        DriverError, ValidAsZeroBits,
        sys::{CUdevice_attribute, CUfunction_attribute, CUresult},
    },
    nvrtc::Ptx,
};
use half::{bf16, f16};

use super::{
    abi::CLUSTER_SIZE,
    error::{Attempt, Error, Result},
    plan::{Form, choose_form, fused_shared_bytes},
    probe,
    source::{Family, IMPORTANCE, LOG_PROB_ENTROPY, LOSS_METRICS, RL_LOSS, SEGMENTS},
};
use crate::Element;

/// A number type that logits on a GPU may have: f32, bf16 or f16. Sealed.
pub trait GpuElement: Element + DeviceRepr + ValidAsZeroBits {
    /// Which one.
    const KIND: ElementKind;
}

/// The number types of logits on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElementKind {
    /// 32 bits.
    F32,
    /// 16 bits with the exponent of f32.
    Bf16,
    /// 16 bits, IEEE.
    F16,
}

impl ElementKind {
    const ALL: [Self; 3] = [Self::F32, Self::Bf16, Self::F16];

    const fn suffix(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
        }
    }
}

impl GpuElement for f32 {
    const KIND: ElementKind = ElementKind::F32;
}
impl GpuElement for bf16 {
    const KIND: ElementKind = ElementKind::Bf16;
}
impl GpuElement for f16 {
    const KIND: ElementKind = ElementKind::F16;
}

/// A GPU with the kernels loaded, and the stream that they run on.
///
/// Operations are queued on that stream in the order of the calls. Those that return numbers wait
/// for them.
#[derive(Clone, Debug)]
pub struct Gpu {
    stream: Arc<CudaStream>,
    capability: (u32, u32),
    kernels: Arc<Kernels>,
}

impl Gpu {
    /// Device `ordinal` with a stream of its own.
    ///
    /// # Errors
    /// [`Error::Library`] without a driver, [`Error::NoDevice`], [`Error::Capability`] before sm_80,
    /// [`Error::Driver`]; with the feature `jit` also what the compiler says.
    pub fn open(ordinal: usize) -> Result<Self> {
        probe::DRIVER.require()?;
        let count = device_count()?;
        if ordinal >= count {
            return Err(Error::NoDevice { ordinal, count });
        }
        let context = CudaContext::new(ordinal).to("make a context")?;
        let stream = context.new_stream().to("make a stream")?;
        Self::on_stream(stream)
    }

    /// The device of `stream`, whose order the kernels keep.
    ///
    /// # Errors
    /// As [`Gpu::open`].
    pub fn on_stream(stream: Arc<CudaStream>) -> Result<Self> {
        let context = stream.context();
        let (major, minor) = context.compute_capability().to("tell its capability")?;
        let capability = (major.unsigned_abs(), minor.unsigned_abs());
        if capability < (8, 0) {
            let name = context.name().to("tell its name")?;
            return Err(Error::Capability { name, capability });
        }
        let optin = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN;
        let shared = context.attribute(optin).to("tell its shared memory")?;
        let kernels = Arc::new(Kernels::load(context, Limits { capability, shared })?);
        Ok(Self {
            stream,
            capability,
            kernels,
        })
    }

    /// The stream that operations are queued on.
    pub fn stream(&self) -> &Arc<CudaStream> {
        &self.stream
    }

    /// Name of the device.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn name(&self) -> Result<String> {
        self.stream.context().name().to("tell its name")
    }

    /// Compute capability, such as (9, 0).
    pub fn capability(&self) -> (u32, u32) {
        self.capability
    }

    /// Waits until everything queued is done.
    ///
    /// # Errors
    /// [`Error::Driver`], also for a fault of an earlier launch.
    pub fn synchronize(&self) -> Result<()> {
        self.stream.synchronize().to("finish its work")
    }

    /// The form that the loss takes for rows of `vocab` logits.
    pub fn form<T: GpuElement>(&self, vocab: usize, token_level: bool) -> Form {
        let granted = self
            .kernels
            .rows(T::KIND)
            .fused
            .as_ref()
            .map_or(0, |fused| fused.shared);
        choose_form(
            fused_shared_bytes(vocab, size_of::<T>()),
            granted,
            token_level,
        )
    }

    pub(super) fn kernels(&self) -> &Kernels {
        &self.kernels
    }

    /// Copies numbers to the device. An empty slice becomes one zero: there are no empty buffers.
    pub(super) fn upload<T>(&self, numbers: &[T]) -> Result<CudaSlice<T>>
    where
        T: DeviceRepr + ValidAsZeroBits,
    {
        if numbers.is_empty() {
            return self.zeros(1);
        }
        self.stream
            .clone_htod(numbers)
            .to("copy numbers to the device")
    }

    /// Zeros, one at least.
    pub(super) fn zeros<T>(&self, count: usize) -> Result<CudaSlice<T>>
    where
        T: DeviceRepr + ValidAsZeroBits,
    {
        self.stream.alloc_zeros(count.max(1)).to("allocate memory")
    }

    /// Copies numbers from the device, once what writes them is done.
    pub(super) fn download<T, S>(&self, numbers: &S) -> Result<Vec<T>>
    where
        T: DeviceRepr + ValidAsZeroBits + Copy + Default,
        S: DevicePtr<T>,
    {
        let mut host = vec![T::default(); numbers.len()];
        let copied = self.stream.memcpy_dtoh(numbers, &mut host);
        copied.to("copy numbers from the device")?;
        // A copy into ordinary memory may still be under way.
        self.synchronize()?;
        Ok(host)
    }
}

/// A driver without any device refuses to start.
fn device_count() -> Result<usize> {
    match CudaContext::device_count() {
        Ok(count) => Ok(usize::try_from(count).unwrap_or(0)),
        Err(DriverError(CUresult::CUDA_ERROR_NO_DEVICE)) => Ok(0),
        Err(error) => Err(error).to("start the driver"),
    }
}

/// What a device can do.
#[derive(Clone, Copy)]
struct Limits {
    capability: (u32, u32),
    /// Shared memory that a CTA may have on request, in bytes.
    shared: i32,
}

/// The two-pass kernel of one number type.
#[derive(Debug)]
pub(super) struct Fused {
    pub(super) function: CudaFunction,
    /// Dynamic shared memory that a CTA may have, in bytes.
    pub(super) shared: usize,
}

/// The kernels for rows of one number type.
#[derive(Debug)]
pub(super) struct RowKernels {
    pub(super) log_prob_entropy: CudaFunction,
    pub(super) stats: CudaFunction,
    pub(super) backward: CudaFunction,
    /// From sm_90 on.
    pub(super) fused: Option<Fused>,
}

/// All kernels.
#[derive(Debug)]
pub(super) struct Kernels {
    rows: [RowKernels; 3],
    pub(super) token_loss: CudaFunction,
    pub(super) segment_means: CudaFunction,
    pub(super) sequence_terms: CudaFunction,
    pub(super) importance_weights: CudaFunction,
    pub(super) metrics_partial: CudaFunction,
    pub(super) metrics_total: CudaFunction,
}

impl Kernels {
    fn load(context: &Arc<CudaContext>, limits: Limits) -> Result<Self> {
        let module = |family| load_module(context, family, limits.capability);
        let log_prob_entropy = module(&LOG_PROB_ENTROPY)?;
        let rl_loss = module(&RL_LOSS)?;
        let (segments, metrics) = (module(&SEGMENTS)?, module(&LOSS_METRICS)?);
        let [a, b, c] = ElementKind::ALL
            .map(|kind| RowKernels::load((&log_prob_entropy, &rl_loss), kind, limits));
        Ok(Self {
            rows: [a?, b?, c?],
            token_loss: function(&rl_loss, "token_loss")?,
            segment_means: function(&segments, "segment_means")?,
            sequence_terms: function(&segments, "sequence_terms")?,
            importance_weights: function(&module(&IMPORTANCE)?, "importance_weights")?,
            metrics_partial: function(&metrics, "loss_metrics_partial")?,
            metrics_total: function(&metrics, "loss_metrics_total")?,
        })
    }

    pub(super) fn rows(&self, kind: ElementKind) -> &RowKernels {
        &self.rows[kind as usize]
    }
}

impl RowKernels {
    fn load(
        (log_prob_entropy, rl_loss): (&Arc<CudaModule>, &Arc<CudaModule>),
        kind: ElementKind,
        limits: Limits,
    ) -> Result<Self> {
        let named = |module, stem| function(module, &format!("{stem}_{}", kind.suffix()));
        let fused = if limits.capability >= (9, 0) {
            Some(Fused::prepare(named(rl_loss, "rl_fused")?, limits.shared)?)
        } else {
            None
        };
        Ok(Self {
            log_prob_entropy: named(log_prob_entropy, "logprob_entropy")?,
            stats: named(rl_loss, "rl_stats")?,
            backward: named(rl_loss, "rl_backward")?,
            fused,
        })
    }
}

impl Fused {
    /// Lets the kernel have all the shared memory that the device grants on request.
    fn prepare(function: CudaFunction, most: i32) -> Result<Self> {
        let fixed = function
            .shared_size_bytes()
            .to("tell a kernel's shared memory")?;
        let dynamic = (most - fixed).max(0);
        let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        function
            .set_attribute(attribute, dynamic)
            .to("grant shared memory")?;
        let shared = dynamic.unsigned_abs() as usize;
        Ok(Self { function, shared })
    }
}

/// CTAs per row of the two-pass form.
pub(super) const FUSED_CTAS: usize = CLUSTER_SIZE as usize;

fn function(module: &Arc<CudaModule>, name: &str) -> Result<CudaFunction> {
    module.load_function(name).to("find a kernel in its module")
}

fn load_module(
    context: &Arc<CudaContext>,
    family: &Family,
    capability: (u32, u32),
) -> Result<Arc<CudaModule>> {
    let code = code(family, capability)?;
    context
        .load_module(code)
        .to("load the kernels; its driver may be older than CUDA 12.1")
}

#[cfg(feature = "jit")]
fn code(family: &Family, (major, minor): (u32, u32)) -> Result<Ptx> {
    super::jit::compile(family, 10 * major + minor).map(Ptx::from_binary)
}

#[cfg(not(feature = "jit"))]
#[allow(clippy::unnecessary_wraps, reason = "compiling at run time can fail")]
fn code(family: &Family, capability: (u32, u32)) -> Result<Ptx> {
    Ok(Ptx::from_src(family.ptx(capability)))
}
