//! Matrix products on slices: the one place that calls the `gemm` crate.
//!
//! `gemm` takes raw pointers. Everything it may touch is checked here first, so callers stay safe.
//! Products run on the calling thread: parallelism comes from several workers, each with one
//! thread, because small products lose more at barriers than they gain.

#![allow(
    unsafe_code,
    reason = "the gemm crate takes raw pointers; bounds are checked here"
)]

/// A matrix inside a slice, with any strides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mat<'a> {
    data: &'a [f32],
    rows: usize,
    cols: usize,
    row_stride: usize,
    col_stride: usize,
}

impl<'a> Mat<'a> {
    /// `rows` x `cols`, rows one after another.
    pub(crate) fn new(data: &'a [f32], rows: usize, cols: usize) -> Self {
        Self::strided(data, rows, cols, cols)
    }

    /// Rows of `cols` numbers that begin `stride` apart.
    pub(crate) fn strided(data: &'a [f32], rows: usize, cols: usize, stride: usize) -> Self {
        check(data.len(), rows, cols, stride);
        Self {
            data,
            rows,
            cols,
            row_stride: stride,
            col_stride: 1,
        }
    }

    /// Rows and columns.
    pub(crate) const fn shape(self) -> (usize, usize) {
        (self.rows, self.cols)
    }

    /// The transposed matrix.
    pub(crate) const fn t(self) -> Self {
        Self {
            data: self.data,
            rows: self.cols,
            cols: self.rows,
            row_stride: self.col_stride,
            col_stride: self.row_stride,
        }
    }
}

/// A matrix to write into: rows of `cols` numbers that begin `stride` apart.
#[derive(Debug)]
pub(crate) struct MatMut<'a> {
    data: &'a mut [f32],
    rows: usize,
    cols: usize,
    stride: usize,
}

impl<'a> MatMut<'a> {
    /// `rows` x `cols`, rows one after another.
    pub(crate) fn new(data: &'a mut [f32], rows: usize, cols: usize) -> Self {
        Self::strided(data, rows, cols, cols)
    }

    /// Rows of `cols` numbers that begin `stride` apart.
    pub(crate) fn strided(data: &'a mut [f32], rows: usize, cols: usize, stride: usize) -> Self {
        check(data.len(), rows, cols, stride);
        Self {
            data,
            rows,
            cols,
            stride,
        }
    }
}

fn check(len: usize, rows: usize, cols: usize, stride: usize) {
    assert!(
        stride >= cols && (rows == 0 || (rows - 1) * stride + cols <= len),
        "a {rows}x{cols} matrix of stride {stride} does not fit {len} numbers"
    );
}

/// Whether a product replaces what is there or is added to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Write {
    Replace,
    Add,
}

/// `dst = scale * a * b`, or `dst += scale * a * b`.
#[allow(
    clippy::needless_pass_by_value,
    reason = "a mutable view is made for one product"
)]
pub(crate) fn matmul(dst: MatMut<'_>, write: Write, a: Mat<'_>, b: Mat<'_>, scale: f32) {
    assert!(
        a.cols == b.rows && dst.rows == a.rows && dst.cols == b.cols,
        "shapes do not fit: {}x{} * {}x{} -> {}x{}",
        a.rows,
        a.cols,
        b.rows,
        b.cols,
        dst.rows,
        dst.cols
    );
    if dst.rows == 0 || dst.cols == 0 {
        return;
    }
    // SAFETY: the constructors checked that every (row, column) of the three matrices lies inside
    // its slice; `dst` is borrowed mutably, so it overlaps neither `a` nor `b`.
    unsafe {
        gemm::gemm(
            dst.rows,
            dst.cols,
            a.cols,
            dst.data.as_mut_ptr(),
            1,
            dst.stride as isize,
            write == Write::Add,
            a.data.as_ptr(),
            a.col_stride as isize,
            a.row_stride as isize,
            b.data.as_ptr(),
            b.col_stride as isize,
            b.row_stride as isize,
            1.0,
            scale,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_of_views_are_right() {
        let a: Vec<f32> = (0..12).map(|v| v as f32).collect();
        let b: Vec<f32> = (0..6).map(|v| v as f32 * 0.5).collect();
        // Columns 1 to 3 of a 3x4 matrix, times a 2x3 matrix, transposed.
        let mut c = vec![1.0; 3 * 2];
        matmul(
            MatMut::new(&mut c, 3, 2),
            Write::Add,
            Mat::strided(&a[1..], 3, 3, 4),
            Mat::new(&b, 2, 3).t(),
            2.0,
        );
        for row in 0..3 {
            for col in 0..2 {
                let sum: f32 = (0..3).map(|k| a[1 + row * 4 + k] * b[col * 3 + k]).sum();
                assert_eq!(c[row * 2 + col], 1.0 + 2.0 * sum);
            }
        }
    }

    #[test]
    #[should_panic(expected = "does not fit")]
    fn a_view_outside_its_slice_is_refused() {
        let _ = Mat::new(&[0.0; 5], 2, 3);
    }
}
