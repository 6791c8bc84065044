//! [`Schedule`]: how a learning rate rises and falls.

use serde::{Deserialize, Serialize};

/// How the learning rate falls after its warm-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Decay {
    /// Not at all.
    #[default]
    Constant,
    /// In a straight line.
    Linear,
    /// Along half a cosine.
    Cosine,
}

/// How a learning rate rises and falls with the optimizer steps of one objective. The default is
/// the paper's: constant, without a warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Schedule {
    /// Steps over which it rises from 0 in a straight line. Default 0.
    pub warmup_steps: u64,
    /// How it falls afterwards. Default constant.
    pub decay: Decay,
    /// Steps, warm-up included, after which it has fallen to `final_share`. Default 1000: about
    /// what a run of minutes takes.
    pub decay_steps: u64,
    /// What is left of it at the end, as a share. Default 0.1: the policy goes on to learn.
    pub final_share: f64,
}

impl Default for Schedule {
    fn default() -> Self {
        Self {
            warmup_steps: 0,
            decay: Decay::Constant,
            decay_steps: 1000,
            final_share: 0.1,
        }
    }
}

impl Schedule {
    /// The factor of the learning rate in step `step`, counted from 1.
    pub fn share(&self, step: u64) -> f64 {
        let fall = self.decay_steps.saturating_sub(self.warmup_steps).max(1);
        let done = step.saturating_sub(self.warmup_steps).min(fall) as f64 / fall as f64;
        let left = match self.decay {
            Decay::Constant => 1.0,
            Decay::Linear => 1.0 - done,
            Decay::Cosine => 0.5 * (1.0 + (std::f64::consts::PI * done).cos()),
        };
        (self.final_share + (1.0 - self.final_share) * left) * self.warmup(step)
    }

    fn warmup(&self, step: u64) -> f64 {
        if step < self.warmup_steps {
            step as f64 / self.warmup_steps as f64
        } else {
            1.0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_rise_and_fall() {
        for decay in [Decay::Linear, Decay::Cosine] {
            let schedule = Schedule {
                warmup_steps: 10,
                decay,
                decay_steps: 110,
                final_share: 0.2,
            };
            let middle = if decay == Decay::Linear {
                0.8
            } else {
                0.882_842_712
            };
            let expected = [
                (1, 0.1),
                (10, 1.0),
                (35, middle),
                (60, 0.6),
                (110, 0.2),
                (9999, 0.2),
            ];
            for (step, share) in expected {
                let got = schedule.share(step);
                assert!((got - share).abs() < 1e-9, "{decay:?} {step}: {got}");
            }
        }
        assert_eq!(Schedule::default().share(1), 1.0);
        assert_eq!(Schedule::default().share(u64::MAX), 1.0);
        let late = Schedule {
            warmup_steps: 50,
            decay: Decay::Linear,
            decay_steps: 10,
            ..Schedule::default()
        };
        assert_eq!(
            (late.share(25), late.share(51)),
            (0.5, 0.1),
            "the warm-up is not cut"
        );
    }
}
