//! Operation (c) on the GPU: the token loss of hidden states under an output layer, of whose logits
//! only a chunk exists at a time.
//!
//! For each chunk of tokens: logits X = h Wᵀ with cuBLAS, loss and gradient dX over X with the
//! kernels, then dh = dX W and dW += dXᵀ h. That is 6 N H V operations where a kernel that
//! recomputes logits in a backward pass needs 8. Losses with a sequence-level part need all
//! log-probabilities first: a pass over the chunks for statistics, then the one above.

use std::{ffi::c_void, ops::Range};

use cudarc::{
    cublas::{
        CudaBlas, result,
        sys::{
            cublasComputeType_t, cublasGemmAlgo_t, cublasOperation_t,
            cublasOperation_t::{CUBLAS_OP_N, CUBLAS_OP_T},
            cudaDataType_t,
        },
    },
    driver::{CudaSlice, CudaView, DevicePtr, DevicePtrMut},
};

use super::{
    buffers::DeviceLogitsMut,
    error::{Attempt, Result},
    gpu::{ElementKind, Gpu, GpuElement},
    plan::{chunk_rows, int},
    rows::need,
};
use crate::{Labels, Objective, RlLoss, RowStats, Shape, Temperature};

/// A good budget for logits, in bytes: with a vocabulary of 152064 in bf16, 8192 tokens are two
/// chunks. Every chunk more reads and writes the gradient of the layer once more.
pub const LOGITS_BUDGET_BYTES: usize = 2 << 30;

/// [`crate::Head`] on the device: hidden states and the layer's weight, both row-major.
#[derive(Debug)]
pub struct DeviceHead<'a, T> {
    /// `[rows, width]`.
    pub hidden: CudaView<'a, T>,
    /// `[vocab, width]`.
    pub weight: CudaView<'a, T>,
    /// Length of a hidden state.
    pub width: usize,
    /// Number of logits.
    pub vocab: usize,
}

/// What [`FusedLinear::rl_loss`] gives.
#[derive(Debug)]
pub struct DeviceFusedLoss {
    /// Loss and outcomes.
    pub loss: RlLoss,
    /// Gradient with respect to the hidden states, `[rows, width]`.
    pub by_hidden: CudaSlice<f32>,
}

/// The output layer's operations on one GPU.
#[derive(Debug)]
pub struct FusedLinear {
    gpu: Gpu,
    blas: CudaBlas,
    budget_bytes: usize,
}

impl FusedLinear {
    /// With room for logits of `budget_bytes`; one row at least.
    ///
    /// # Errors
    /// [`Error::Library`](super::Error::Library) without cuBLAS, [`Error::Blas`](super::Error::Blas).
    pub fn new(gpu: &Gpu, budget_bytes: usize) -> Result<Self> {
        super::probe::BLAS.require()?;
        Ok(Self {
            gpu: gpu.clone(),
            blas: CudaBlas::new(gpu.stream().clone()).to("start")?,
            budget_bytes,
        })
    }

    /// Loss of `tokens`, whose hidden states are `head.hidden`, with gradients. The gradient of
    /// the output layer is *added* to `by_weight`, `[vocab, width]` in f32.
    ///
    /// Logits and their gradient have the type of the hidden states; sums are f32. Hidden states
    /// must be finite: a row without a loss has gradient 0, and 0 · NaN would reach `by_weight`.
    ///
    /// # Errors
    /// [`Error::Refused`](super::Error::Refused) as for [`Gpu::rl_loss_in_place`],
    /// [`Error::Buffer`](super::Error::Buffer), [`Error::Driver`](super::Error::Driver),
    /// [`Error::Blas`](super::Error::Blas).
    pub fn rl_loss<T: GpuElement>(
        &self,
        head: &DeviceHead<'_, T>,
        objective: &Objective<'_>,
        by_weight: &mut CudaSlice<f32>,
    ) -> Result<DeviceFusedLoss> {
        let Objective {
            tokens,
            sequences,
            loss,
        } = objective;
        head.check(tokens.len())?;
        need(
            "the gradient of the output layer",
            by_weight.len(),
            head.vocab * head.width,
        )?;
        let mut batch = self.gpu.batch(tokens, sequences, loss)?;
        if !loss.is_token_level() {
            self.each_chunk::<T, T>(head, tokens.len(), |rows, logits| {
                self.gpu.stats(logits, &mut batch, rows.start)
            })?;
            self.gpu.sequence_terms(&mut batch)?;
            self.gpu.losses(&mut batch, 0..tokens.len())?;
        }
        let mut by_hidden = self.gpu.zeros::<f32>(tokens.len() * head.width)?;
        self.each_chunk::<T, T>(head, tokens.len(), |rows, logits| {
            if loss.is_token_level() {
                self.gpu.run_part(logits, &mut batch, rows.start)?;
            } else {
                self.gpu.backward(logits, &batch, rows.start)?;
            }
            let chunk = Chunk::of(head, rows, logits.shape().row_stride)?;
            let gradient = logits.data.as_view();
            chunk.by_hidden(&self.blas, &gradient, &mut by_hidden)?;
            chunk.add_by_weight(&self.blas, &gradient, by_weight)
        })?;
        Ok(DeviceFusedLoss {
            loss: self.gpu.results(&batch)?,
            by_hidden,
        })
    }

    /// Log-probability and entropy of `labels` under the output layer, from logits of type `L`: f32
    /// keeps what bf16 products would round away.
    ///
    /// # Errors
    /// As [`FusedLinear::rl_loss`].
    pub fn log_prob_entropy<T: GpuElement, L: GpuElement>(
        &self,
        head: &DeviceHead<'_, T>,
        labels: &Labels<'_>,
    ) -> Result<Vec<RowStats>> {
        let rows = labels.targets.len();
        head.check(rows)?;
        labels.check(Shape::dense(rows, head.vocab))?;
        let mut all = Vec::with_capacity(rows);
        self.each_chunk::<T, L>(head, rows, |range, logits| {
            let labels = Labels {
                targets: &labels.targets[range.clone()],
                temperature: match labels.temperature {
                    Temperature::PerRow(each) => Temperature::PerRow(&each[range]),
                    shared @ Temperature::Shared(_) => shared,
                },
                ignore: labels.ignore,
            };
            all.extend(self.gpu.log_prob_entropy(&logits.as_logits(), &labels)?);
            Ok(())
        })?;
        Ok(all)
    }

    /// Makes the logits of one chunk of tokens after another and hands them to `work`.
    fn each_chunk<T: GpuElement, L: GpuElement>(
        &self,
        head: &DeviceHead<'_, T>,
        rows: usize,
        mut work: impl FnMut(Range<usize>, &mut DeviceLogitsMut<'_, L>) -> Result<()>,
    ) -> Result<()> {
        if rows == 0 {
            return Ok(());
        }
        // Rows at multiples of 16 bytes, whatever the vocabulary: cuBLAS is several times faster.
        let stride = head.vocab.next_multiple_of(16 / size_of::<L>());
        let chunk = chunk_rows(rows, stride * size_of::<L>(), self.budget_bytes);
        let mut buffer = self.gpu.zeros::<L>(chunk * stride)?;
        for start in (0..rows).step_by(chunk) {
            let range = start..rows.min(start + chunk);
            Chunk::of(head, range.clone(), stride)?.logits(&self.blas, &mut buffer)?;
            let used = range.len() * stride;
            let shape = Shape {
                rows: range.len(),
                vocab: head.vocab,
                row_stride: stride,
            };
            let view = buffer.slice_mut(..used);
            work(range, &mut DeviceLogitsMut::from_view(view, shape)?)?;
        }
        Ok(())
    }
}

impl<T> DeviceHead<'_, T> {
    fn check(&self, rows: usize) -> Result<()> {
        need("the hidden states", self.hidden.len(), rows * self.width)?;
        need(
            "the output layer",
            self.weight.len(),
            self.vocab * self.width,
        )
    }
}

/// The products of one chunk of rows.
///
/// cuBLAS counts columns first: it sees each of our row-major matrices as its transpose.
struct Chunk<'l, 'a, T> {
    head: &'l DeviceHead<'a, T>,
    rows: Range<usize>,
    /// Numbers of rows, logits, numbers of a hidden state, and of a row of logits with its gap.
    counts: [i32; 4],
}

impl<'l, 'a, T: GpuElement> Chunk<'l, 'a, T> {
    fn of(head: &'l DeviceHead<'a, T>, rows: Range<usize>, stride: usize) -> Result<Self> {
        let counts = [
            int("the number of rows", rows.len())?,
            int("the vocabulary", head.vocab)?,
            int("the width", head.width)?,
            int("the row of logits", stride)?,
        ];
        Ok(Self { head, rows, counts })
    }

    fn hidden(&self) -> CudaView<'_, T> {
        let width = self.head.width;
        self.head
            .hidden
            .slice(self.rows.start * width..self.rows.end * width)
    }

    /// X = h Wᵀ.
    fn logits<L: GpuElement>(&self, blas: &CudaBlas, logits: &mut CudaSlice<L>) -> Result<()> {
        let [rows, vocab, width, stride] = self.counts;
        let product = Product {
            operations: (CUBLAS_OP_T, CUBLAS_OP_N),
            sizes: [vocab, rows, width],
            strides: [width, width, stride],
            keep: 0.0,
        };
        product.run(blas, &self.head.weight, &self.hidden(), logits)
    }

    /// dh = dX W.
    fn by_hidden(
        &self,
        blas: &CudaBlas,
        gradient: &CudaView<'_, T>,
        by_hidden: &mut CudaSlice<f32>,
    ) -> Result<()> {
        let [rows, vocab, width, stride] = self.counts;
        let product = Product {
            operations: (CUBLAS_OP_N, CUBLAS_OP_N),
            sizes: [width, rows, vocab],
            strides: [width, stride, width],
            keep: 0.0,
        };
        let start = self.rows.start * self.head.width;
        let mut part = by_hidden.slice_mut(start..start + self.rows.len() * self.head.width);
        product.run(blas, &self.head.weight, gradient, &mut part)
    }

    /// dW += dXᵀ h.
    fn add_by_weight(
        &self,
        blas: &CudaBlas,
        gradient: &CudaView<'_, T>,
        by_weight: &mut CudaSlice<f32>,
    ) -> Result<()> {
        let [rows, vocab, width, stride] = self.counts;
        let product = Product {
            operations: (CUBLAS_OP_N, CUBLAS_OP_T),
            sizes: [width, vocab, rows],
            strides: [width, stride, width],
            keep: 1.0,
        };
        product.run(blas, &self.hidden(), gradient, by_weight)
    }
}

/// C = keep · C + op(A) op(B), columns first.
struct Product {
    operations: (cublasOperation_t, cublasOperation_t),
    /// Rows of C, columns of C, length of the sums.
    sizes: [i32; 3],
    /// Elements between the columns of A, B and C.
    strides: [i32; 3],
    keep: f32,
}

impl Product {
    fn run<T, L, A, B, C>(&self, blas: &CudaBlas, a: &A, b: &B, c: &mut C) -> Result<()>
    where
        T: GpuElement,
        L: GpuElement,
        A: DevicePtr<T>,
        B: DevicePtr<T>,
        C: DevicePtrMut<L>,
    {
        for (what, got, needed) in self.needs([a.len(), b.len(), c.len()]) {
            need(what, got, needed)?;
        }
        let stream = c.stream().clone();
        // Unlike cudarc's own calls, this one does not do it by itself.
        stream.context().bind_to_thread().to("use its context")?;
        let ((a, _a), (b, _b)) = (a.device_ptr(&stream), b.device_ptr(&stream));
        let (c, _c) = c.device_ptr_mut(&stream);
        let ([m, n, k], [lda, ldb, ldc]) = (self.sizes, self.strides);
        let (one, keep) = (1f32, self.keep);
        let pointer = |number: &f32| std::ptr::from_ref(number).cast::<c_void>();
        // SAFETY: the matrices hold what sizes and strides say (compared above) and outlive the
        // call, which only queues work; cudarc orders their release after it. With 32-bit sums the
        // scalars are f32 on the host.
        unsafe {
            result::gemm_ex(
                *blas.handle(),
                self.operations.0,
                self.operations.1,
                m,
                n,
                k,
                pointer(&one),
                a as *const c_void,
                data_type(T::KIND),
                lda,
                b as *const c_void,
                data_type(T::KIND),
                ldb,
                pointer(&keep),
                c as *mut c_void,
                data_type(L::KIND),
                ldc,
                cublasComputeType_t::CUBLAS_COMPUTE_32F,
                cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT,
            )
        }
        .to("multiply matrices")
    }

    /// Elements that each matrix must have.
    fn needs(&self, got: [usize; 3]) -> [(&'static str, usize, usize); 3] {
        let [m, n, k] = self.sizes.map(|size| size as usize);
        let stored = |operation, rows, columns| match operation {
            CUBLAS_OP_N => (rows, columns),
            _ => (columns, rows),
        };
        let shapes = [
            stored(self.operations.0, m, k),
            stored(self.operations.1, k, n),
            (m, n),
        ];
        let names = ["matrix A", "matrix B", "matrix C"];
        std::array::from_fn(|i| {
            let (rows, columns) = shapes[i];
            let last = columns.saturating_sub(1) * self.strides[i] as usize;
            let needed = if columns == 0 { 0 } else { last + rows };
            (names[i], got[i], needed)
        })
    }
}

fn data_type(kind: ElementKind) -> cudaDataType_t {
    match kind {
        ElementKind::F32 => cudaDataType_t::CUDA_R_32F,
        ElementKind::Bf16 => cudaDataType_t::CUDA_R_16BF,
        ElementKind::F16 => cudaDataType_t::CUDA_R_16F,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_knows_how_much_it_reads() {
        // X[3, 5 of stride 8] = h[3, 2] W[5, 2]ᵀ.
        let logits = Product {
            operations: (CUBLAS_OP_T, CUBLAS_OP_N),
            sizes: [5, 3, 2],
            strides: [2, 2, 8],
            keep: 0.0,
        };
        let needed = logits.needs([0; 3]).map(|(_, _, needed)| needed);
        assert_eq!(needed, [5 * 2, 3 * 2, 2 * 8 + 5]);
        // dW[5, 2] += dX[3, 5 of stride 8]ᵀ h[3, 2].
        let by_weight = Product {
            operations: (CUBLAS_OP_N, CUBLAS_OP_T),
            sizes: [2, 5, 3],
            strides: [2, 8, 2],
            keep: 1.0,
        };
        let needed = by_weight.needs([0; 3]).map(|(_, _, needed)| needed);
        assert_eq!(needed, [3 * 2, 2 * 8 + 5, 5 * 2]);
    }
}
