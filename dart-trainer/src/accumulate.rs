//! Gradients that several batches add up to, before one optimizer step.
//!
//! Every aggregation divides by one count: tokens (token-mean) or sequences (the others). A batch's
//! gradient g comes divided by its own count n, so Σ n g over the batches, divided by Σ n in the
//! end, is the gradient of one batch that holds all their samples: the denominators are those of the
//! whole optimizer step (invariant I14), though no batch knows the next.

use crate::gradients::Gradients;

/// What the batches since the last optimizer step came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Accumulated {
    /// Batches taken in, also those whose gradient was left out.
    pub batches: u64,
    /// The sum of their counts.
    pub count: u64,
    /// The sum of their gradients, each times its count.
    pub gradients: Gradients,
}

impl Accumulated {
    /// Takes in a batch's gradient, which is divided by `count`.
    pub(crate) fn add(&mut self, mut gradients: Gradients, count: u64) {
        gradients.scale(count as f32);
        self.gradients.add(gradients);
        self.count += count;
    }

    /// What the gradients are multiplied with in the end.
    pub(crate) fn factor(&self) -> f64 {
        1.0 / self.count.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_weigh_the_gradients() {
        let mut sum = Accumulated::default();
        sum.add(vec![Some(vec![4.0]), None].into(), 1);
        sum.add(vec![Some(vec![1.0]), Some(vec![2.0])].into(), 3);
        // A batch of which nothing is trained on changes nothing.
        sum.add(vec![None, None].into(), 0);
        assert_eq!(sum.gradients, vec![Some(vec![7.0]), Some(vec![6.0])].into());
        assert_eq!((sum.count, sum.factor()), (4, 0.25));
    }
}
