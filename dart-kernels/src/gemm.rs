//! Matrix products on slices: the one place that calls the `gemm` crate.
//!
//! `gemm` takes raw pointers. Everything it may touch is checked here first, so callers stay safe.
//! Products run on the calling thread: parallelism comes from several workers, each with one
//! thread, because small products lose more at barriers than they gain.
//!
//! ```
//! use dart_kernels::gemm::{Mat, MatMut, Write, matmul};
//!
//! let (a, b) = ([1.0, 2.0, 3.0, 4.0], [1.0, 1.0]);
//! let mut out = [0.0; 2];
//! // [1 2; 3 4]ᵀ times a column of ones.
//! let target = MatMut::new(&mut out, 2, 1);
//! matmul(target, Write::Replace, Mat::new(&a, 2, 2).t(), Mat::new(&b, 2, 1), 1.0);
//! assert_eq!(out, [4.0, 6.0]);
//! ```

#![allow(
    unsafe_code,
    reason = "the gemm crate takes raw pointers; bounds are checked here"
)]

/// A matrix inside a slice, with any strides.
///
/// Invariant: every (row, column) lies inside the slice, and both strides fit an `isize`.
#[derive(Clone, Copy, Debug)]
pub struct Mat<'a> {
    data: &'a [f32],
    rows: usize,
    cols: usize,
    row_stride: usize,
    col_stride: usize,
}

impl<'a> Mat<'a> {
    /// `rows` x `cols`, rows one after another.
    ///
    /// # Panics
    /// If `data` is too short.
    #[inline]
    pub fn new(data: &'a [f32], rows: usize, cols: usize) -> Self {
        Self::strided(data, rows, cols, cols)
    }

    /// Rows of `cols` numbers that begin `stride` apart.
    ///
    /// # Panics
    /// If `data` is too short or `stride` is less than `cols`.
    #[inline]
    pub fn strided(data: &'a [f32], rows: usize, cols: usize, stride: usize) -> Self {
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
    #[inline]
    pub const fn shape(self) -> (usize, usize) {
        (self.rows, self.cols)
    }

    /// The transposed matrix; nothing is copied.
    #[inline]
    pub const fn t(self) -> Self {
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
///
/// Invariant: every (row, column) lies inside the slice at a place of its own, and the stride fits
/// an `isize`.
#[derive(Debug)]
pub struct MatMut<'a> {
    data: &'a mut [f32],
    rows: usize,
    cols: usize,
    stride: usize,
}

impl<'a> MatMut<'a> {
    /// `rows` x `cols`, rows one after another.
    ///
    /// # Panics
    /// If `data` is too short.
    #[inline]
    pub fn new(data: &'a mut [f32], rows: usize, cols: usize) -> Self {
        Self::strided(data, rows, cols, cols)
    }

    /// Rows of `cols` numbers that begin `stride` apart; what lies between them is not touched.
    ///
    /// # Panics
    /// If `data` is too short or `stride` is less than `cols`.
    #[inline]
    pub fn strided(data: &'a mut [f32], rows: usize, cols: usize, stride: usize) -> Self {
        check(data.len(), rows, cols, stride);
        Self {
            data,
            rows,
            cols,
            stride,
        }
    }
}

/// Holds the invariants of [`Mat`] and [`MatMut`]; sizes that overflow fit nothing.
fn check(len: usize, rows: usize, cols: usize, stride: usize) {
    let needed = match rows.checked_sub(1) {
        Some(before) => before
            .checked_mul(stride)
            .and_then(|start| start.checked_add(cols)),
        None => Some(0),
    };
    let fits = needed.is_some_and(|needed| needed <= len);
    assert!(
        fits && stride >= cols && isize::try_from(stride).is_ok(),
        "a {rows}x{cols} matrix of stride {stride} does not fit {len} numbers"
    );
}

/// Whether a product replaces what is there or is added to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// What is there is not read: it may be NaN.
    Replace,
    /// The product is added to what is there.
    Add,
}

/// `dst = scale * a * b`, or `dst += scale * a * b`.
///
/// An inner dimension of 0 gives a product of zeros. The order of the sums depends on the machine's
/// vector units, so results are the same bits only on the same kind of machine.
///
/// # Panics
/// If the shapes do not fit.
#[allow(
    clippy::needless_pass_by_value,
    reason = "a mutable view is made for one product"
)]
pub fn matmul(dst: MatMut<'_>, write: Write, a: Mat<'_>, b: Mat<'_>, scale: f32) {
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
    // SAFETY: by the invariants of the views, which only `check` lets come into being, every
    // (row, column) of the three matrices lies inside its slice and no cast below wraps; the shapes
    // agree, so `gemm` addresses no others. `dst` is borrowed mutably, so it overlaps neither `a`
    // nor `b`, and all three borrows outlive the call, which starts no thread.
    unsafe {
        ::gemm::gemm(
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
            ::gemm::Parallelism::None,
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
    fn only_the_target_is_written_and_its_old_numbers_are_not_read() {
        let mut c = [f32::NAN; 3 * 5];
        c[4] = 7.0;
        let (a, b) = (vec![1.0; 3 * 20], vec![2.0; 20 * 4]);
        let target = MatMut::strided(&mut c[..14], 3, 4, 5);
        matmul(
            target,
            Write::Replace,
            Mat::new(&a, 3, 20),
            Mat::new(&b, 20, 4),
            1.0,
        );
        for (index, value) in c.iter().enumerate() {
            match index {
                4 => assert_eq!(*value, 7.0),
                9 | 14 => assert!(value.is_nan(), "{index}"),
                _ => assert_eq!(*value, 40.0, "{index}"),
            }
        }
    }

    #[test]
    fn empty_matrices_are_fine() {
        let mut c = [3.0; 4];
        let none = Mat::new(&[], 2, 0);
        matmul(MatMut::new(&mut c, 2, 2), Write::Add, none, none.t(), 1.0);
        assert_eq!(c, [3.0; 4]);
        matmul(
            MatMut::new(&mut c, 2, 2),
            Write::Replace,
            none,
            none.t(),
            1.0,
        );
        assert_eq!(c, [0.0; 4]);
        let target = MatMut::new(&mut [], 0, 2);
        matmul(
            target,
            Write::Add,
            Mat::new(&[], 0, 2),
            Mat::new(&c, 2, 2),
            1.0,
        );
    }

    #[test]
    #[should_panic(expected = "does not fit")]
    fn a_view_outside_its_slice_is_refused() {
        let _ = Mat::new(&[0.0; 5], 2, 3);
    }

    #[test]
    #[should_panic(expected = "does not fit")]
    fn a_size_that_overflows_is_refused() {
        // (rows - 1) * stride + cols is 2 in arithmetic that wraps.
        let _ = Mat::strided(&[0.0; 5], 3, 2, 1 << (usize::BITS - 1));
    }

    #[test]
    #[should_panic(expected = "does not fit")]
    fn rows_that_overlap_are_refused() {
        let _ = MatMut::strided(&mut [0.0; 5], 2, 3, 2);
    }

    #[test]
    #[should_panic(expected = "shapes do not fit")]
    fn shapes_that_do_not_fit_are_refused() {
        let a = Mat::new(&[0.0; 6], 2, 3);
        matmul(MatMut::new(&mut [0.0; 4], 2, 2), Write::Add, a, a, 1.0);
    }
}
