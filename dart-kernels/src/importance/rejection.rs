//! Rejection: tokens that leave the loss because the learner has moved too far from what drew them.

use std::ops::Range;

use super::{Drift, exp, k3};

/// Whose drift is tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejectionLevel {
    /// Each token's own.
    Token,
    /// The sum over a sequence; of log-ratios for [`RejectionTest::K1`].
    SequenceSum,
    /// The mean over a sequence; the geometric mean for [`RejectionTest::K1`] (Geo-RS).
    SequenceMean,
    /// The worst token of a sequence.
    SequenceMax,
}

/// What is tested, with r = old / rollout probability. Bounds themselves are kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RejectionTest {
    /// r lies in [`low`, `high`].
    K1 {
        /// The smallest r.
        low: f64,
        /// The largest r.
        high: f64,
    },
    /// (log r)²/2 is at most this.
    K2 {
        /// The largest value.
        max: f64,
    },
    /// r − 1 − log r is at most this.
    K3 {
        /// The largest value.
        max: f64,
    },
}

/// One rule of a chain. A rule at sequence level rejects whole sequences.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rejection {
    /// Whose drift is tested.
    pub level: RejectionLevel,
    /// What is tested.
    pub test: RejectionTest,
}

impl Rejection {
    /// A sequence goes if a single one of its tokens has become less likely than `low` times what
    /// it was.
    pub const fn veto(low: f64) -> Self {
        Self {
            level: RejectionLevel::SequenceMax,
            test: RejectionTest::K1 {
                low,
                high: f64::INFINITY,
            },
        }
    }
}

/// What a chain of rules leaves.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    /// For each token whether it stays.
    pub mask: Vec<bool>,
    /// Tokens that each rule rejects, whether or not another does so too.
    pub rejected: Vec<usize>,
    /// Tokens before and after.
    pub tokens: (usize, usize),
}

impl Kept {
    /// Share of the tokens that went; 0 of nothing.
    pub fn share_rejected(&self) -> f64 {
        let (before, after) = self.tokens;
        (before - after) as f64 / before.max(1) as f64
    }
}

impl RejectionTest {
    /// The number that is summed, averaged or compared.
    fn statistic(self, log_ratio: f64) -> f64 {
        match self {
            Self::K1 { .. } => log_ratio,
            Self::K2 { .. } => 0.5 * log_ratio * log_ratio,
            Self::K3 { .. } => k3(log_ratio),
        }
    }

    /// Whether a statistic is outside the bounds. NaN is not: it is to show in the loss.
    fn fails(self, statistic: f64) -> bool {
        match self {
            Self::K1 { low, high } => {
                let ratio = exp(statistic);
                ratio < low || ratio > high
            }
            Self::K2 { max } | Self::K3 { max } => statistic > max,
        }
    }
}

impl Drift<'_> {
    /// The tokens that pass every rule. Each rule looks at the tokens of the original mask, so
    /// that the order of the rules does not matter.
    ///
    /// Rejected tokens leave the loss; advantages and other statistics of a group are made before.
    pub fn keep(&self, rules: &[Rejection]) -> Kept {
        let before = count(self.mask);
        let mut mask = self.mask.to_vec();
        let mut rejected = Vec::with_capacity(rules.len());
        for rule in rules {
            let passed = self.passed(rule);
            rejected.push(before - count(&passed));
            mask.iter_mut()
                .zip(passed)
                .for_each(|(all, one)| *all &= one);
        }
        let tokens = (before, count(&mask));
        Kept {
            mask,
            rejected,
            tokens,
        }
    }

    fn passed(&self, rule: &Rejection) -> Vec<bool> {
        let mut mask = self.mask.to_vec();
        for range in self.sequences.ranges() {
            if rule.level == RejectionLevel::Token {
                for (index, log_ratio) in self.read(range) {
                    mask[index] = !rule.test.fails(rule.test.statistic(log_ratio));
                }
            } else if self.sequence_fails(rule, range.clone()) {
                mask[range].fill(false);
            }
        }
        mask
    }

    fn sequence_fails(&self, rule: &Rejection, range: Range<usize>) -> bool {
        let statistics = || {
            let read = self.read(range.clone());
            read.map(|(_, log_ratio)| rule.test.statistic(log_ratio))
        };
        let sum: f64 = statistics().sum();
        match rule.level {
            RejectionLevel::SequenceSum => rule.test.fails(sum),
            RejectionLevel::SequenceMean => rule.test.fails(sum / statistics().count() as f64),
            _ => statistics().any(|statistic| rule.test.fails(statistic)),
        }
    }
}

fn count(mask: &[bool]) -> usize {
    mask.iter().filter(|kept| **kept).count()
}
