//! [`Logits`], [`LogitsMut`]: rows of logits in memory, and what is asked of them.

use crate::{Error, Result};

/// Rows of logits `[rows, vocab]`, row-major. Rows may lie `row_stride` elements apart, so that a
/// padded vocabulary is never read.
#[derive(Clone, Copy, Debug)]
pub struct Logits<'a, T> {
    data: &'a [T],
    shape: Shape,
}

/// [`Logits`] that may be overwritten by their gradient.
#[derive(Debug)]
pub struct LogitsMut<'a, T> {
    data: &'a mut [T],
    shape: Shape,
}

/// How many rows, how many logits a row has, and how far apart rows begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Rows, one for each token.
    pub rows: usize,
    /// Logits of a row.
    pub vocab: usize,
    /// Elements from the beginning of a row to that of the next; at least `vocab`.
    pub row_stride: usize,
}

impl Shape {
    /// Rows without gaps.
    pub const fn dense(rows: usize, vocab: usize) -> Self {
        Self {
            rows,
            vocab,
            row_stride: vocab,
        }
    }

    pub(crate) fn check(self, elements: usize) -> Result<Self> {
        let last_row = self.rows.saturating_sub(1).checked_mul(self.row_stride);
        let needed = match self.rows {
            0 => Some(0),
            _ => last_row.and_then(|start| start.checked_add(self.vocab)),
        };
        let fits = needed.is_some_and(|needed| needed <= elements)
            && (self.row_stride > self.vocab || needed == Some(elements) || self.rows == 0);
        if !fits || self.row_stride < self.vocab || (self.rows > 0 && self.vocab == 0) {
            return Err(Error::Shape {
                elements,
                rows: self.rows,
                vocab: self.vocab,
            });
        }
        Ok(self)
    }
}

impl<'a, T> Logits<'a, T> {
    /// Rows without gaps.
    ///
    /// # Errors
    /// [`Error::Shape`] unless `data` has `rows · vocab` elements.
    pub fn new(data: &'a [T], rows: usize, vocab: usize) -> Result<Self> {
        Self::with_shape(data, Shape::dense(rows, vocab))
    }

    /// Rows that may have gaps.
    ///
    /// # Errors
    /// [`Error::Shape`] if `data` does not hold every row, or rows overlap.
    pub fn with_shape(data: &'a [T], shape: Shape) -> Result<Self> {
        let shape = shape.check(data.len())?;
        Ok(Self { data, shape })
    }

    /// Rows, vocabulary and stride.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Row `index`.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn row(&self, index: usize) -> &'a [T] {
        assert!(
            index < self.shape.rows,
            "row {index} of {}",
            self.shape.rows
        );
        let start = index * self.shape.row_stride;
        &self.data[start..start + self.shape.vocab]
    }
}

impl<'a, T> LogitsMut<'a, T> {
    /// Rows without gaps.
    ///
    /// # Errors
    /// [`Error::Shape`] unless `data` has `rows · vocab` elements.
    pub fn new(data: &'a mut [T], rows: usize, vocab: usize) -> Result<Self> {
        Self::with_shape(data, Shape::dense(rows, vocab))
    }

    /// Rows that may have gaps. What lies in the gaps is neither read nor written.
    ///
    /// # Errors
    /// [`Error::Shape`] if `data` does not hold every row, or rows overlap.
    pub fn with_shape(data: &'a mut [T], shape: Shape) -> Result<Self> {
        let shape = shape.check(data.len())?;
        Ok(Self { data, shape })
    }

    /// Rows, vocabulary and stride.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The same rows, for reading.
    pub fn as_logits(&self) -> Logits<'_, T> {
        Logits {
            data: self.data,
            shape: self.shape,
        }
    }

    /// The elements, gaps included; empty if there is no row. The first row begins at 0, and
    /// chunks of `row_stride` elements hold one row each.
    pub(crate) fn into_data(self) -> &'a mut [T] {
        let used = match self.shape.rows {
            0 => 0,
            rows => (rows - 1) * self.shape.row_stride + self.shape.vocab,
        };
        &mut self.data[..used]
    }
}

/// What logits are divided by before the softmax, above 0.
#[derive(Clone, Copy, Debug)]
pub enum Temperature<'a> {
    /// The same for all rows.
    Shared(f64),
    /// One for each row.
    PerRow(&'a [f64]),
}

/// Which token of each row is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Labels<'a> {
    /// Index into the vocabulary, for each row.
    pub targets: &'a [u32],
    /// Temperature of the distribution.
    pub temperature: Temperature<'a>,
    /// Rows of this target are not read and give zeros.
    pub ignore: Option<u32>,
}

impl<'a> Labels<'a> {
    /// `targets` under temperature 1, none ignored.
    pub const fn new(targets: &'a [u32]) -> Self {
        Self {
            targets,
            temperature: Temperature::Shared(1.0),
            ignore: None,
        }
    }

    /// Temperature of row `index`.
    pub(crate) fn temperature(&self, index: usize) -> f64 {
        match self.temperature {
            Temperature::Shared(temperature) => temperature,
            Temperature::PerRow(temperatures) => temperatures[index],
        }
    }

    /// Whether there is a target and a usable temperature for each of `rows` rows.
    pub(crate) fn check(&self, shape: Shape) -> Result<()> {
        let per_row = match self.temperature {
            Temperature::Shared(_) => shape.rows,
            Temperature::PerRow(temperatures) => temperatures.len(),
        };
        for (what, got) in [("targets", self.targets.len()), ("temperatures", per_row)] {
            if got != shape.rows {
                let rows = shape.rows;
                return Err(Error::Length { what, got, rows });
            }
        }
        match self.temperature {
            Temperature::Shared(temperature) => check_temperature(temperature),
            Temperature::PerRow(all) => all.iter().try_for_each(|t| check_temperature(*t)),
        }
    }
}

/// Whether logits can be divided by `temperature`.
pub(crate) fn check_temperature(temperature: f64) -> Result<()> {
    // Beyond these the reciprocal is no normal number of f32.
    let usable = temperature.is_finite() && (1e-30..=1e30).contains(&temperature);
    usable.then_some(()).ok_or(Error::Temperature(temperature))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_checked() {
        let data = [0f32; 12];
        assert!(Logits::new(&data, 3, 4).is_ok());
        assert!(Logits::new(&data, 3, 3).is_err());
        assert!(Logits::new(&data[..0], 0, 0).is_ok());
        assert!(Logits::new(&data[..0], 3, 0).is_err());
        let strided = |rows, vocab, row_stride| {
            let shape = Shape {
                rows,
                vocab,
                row_stride,
            };
            Logits::with_shape(&data, shape)
        };
        let logits = strided(2, 3, 8).unwrap();
        assert_eq!(logits.row(1).as_ptr(), data[8..].as_ptr());
        assert!(strided(2, 3, 2).is_err(), "rows overlap");
        assert!(strided(3, 3, 8).is_err(), "too short");
        assert!(strided(usize::MAX, 3, 8).is_err(), "overflow");
    }

    fn with(temperature: Temperature<'_>) -> Labels<'_> {
        Labels {
            temperature,
            ..Labels::new(&[0, 1])
        }
    }

    #[test]
    fn labels_are_checked() {
        let shape = Shape::dense(2, 4);
        assert!(Labels::new(&[0, 1]).check(shape).is_ok());
        assert!(Labels::new(&[0]).check(shape).is_err());
        assert!(with(Temperature::PerRow(&[1.0])).check(shape).is_err());
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-40] {
            assert!(with(Temperature::Shared(bad)).check(shape).is_err());
            let per_row = [1.0, bad];
            assert!(with(Temperature::PerRow(&per_row)).check(shape).is_err());
        }
    }
}
