//! Gradients of all parameters as plain numbers, in the order of the parameters' names.

use candle_core::{DType, Tensor};

use crate::error::Result;

/// One gradient for each parameter; `None` where the loss did not reach it. Models that compute
/// all gradients at once give zeros there: weight decay alone must not move such a parameter.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Gradients(Vec<Option<Vec<f32>>>);

impl Gradients {
    /// The numbers of `tensors`, one for each parameter.
    pub(crate) fn of(tensors: Vec<Option<Tensor>>) -> Result<Self> {
        let numbers = |tensor: Tensor| -> Result<Option<Vec<f32>>> {
            let flat = tensor.to_dtype(DType::F32)?.flatten_all()?;
            let numbers = flat.to_vec1::<f32>()?;
            Ok(numbers.iter().any(|g| *g != 0.0).then_some(numbers))
        };
        tensors
            .into_iter()
            .map(|tensor| tensor.map_or(Ok(None), numbers))
            .collect::<Result<_>>()
            .map(Self)
    }

    /// Adds `other`. The order of additions is the caller's, so sums repeat bit for bit.
    pub(crate) fn add(&mut self, other: Self) {
        if self.0.is_empty() {
            *self = other;
            return;
        }
        for (sum, term) in self.0.iter_mut().zip(other.0) {
            match (sum.as_mut(), term) {
                (Some(sum), Some(term)) => sum.iter_mut().zip(term).for_each(|(a, b)| *a += b),
                (None, Some(term)) => *sum = Some(term),
                (_, None) => {}
            }
        }
    }

    /// Multiplies all numbers with `factor`.
    pub(crate) fn scale(&mut self, factor: f32) {
        let numbers = self.0.iter_mut().flatten().flatten();
        numbers.for_each(|number| *number *= factor);
    }

    /// Euclidean norm over all parameters.
    pub(crate) fn norm(&self) -> f64 {
        let square =
            |gradient: &Vec<f32>| gradient.iter().map(|g| f64::from(*g).powi(2)).sum::<f64>();
        self.0.iter().flatten().map(square).sum::<f64>().sqrt()
    }

    /// The gradients, in the order of the parameters.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Option<&[f32]>> {
        self.0.iter().map(Option::as_deref)
    }

    /// How many parameters the loss did not reach.
    pub(crate) fn missing(&self) -> usize {
        self.0.iter().filter(|gradient| gradient.is_none()).count()
    }
}

impl From<Vec<Option<Vec<f32>>>> for Gradients {
    fn from(gradients: Vec<Option<Vec<f32>>>) -> Self {
        Self(gradients)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_and_norms() {
        let mut sum = Gradients::default();
        sum.add(vec![Some(vec![1.0, 2.0]), None].into());
        sum.add(vec![Some(vec![2.0, 2.0]), Some(vec![0.0])].into());
        assert_eq!(sum, vec![Some(vec![3.0, 4.0]), Some(vec![0.0])].into());
        assert_eq!(sum.norm(), 5.0);
        assert_eq!(sum.missing(), 0);
    }
}
