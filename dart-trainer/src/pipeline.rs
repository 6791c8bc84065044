//! The switches of the policy-gradient loss, as a configuration file names them.
//!
//! A token's loss comes about in steps: which log-probs its ratio is taken against
//! ([`RatioSource`]), the importance weight ([`ImportanceConfig`]), rules that take tokens out of
//! the loss ([`RejectionConfig`]), the surrogate ([`SurrogateConfig`]), and how tokens become one
//! number ([`AggregationConfig`]). Formulas and sources are at the types of `dart-kernels` that
//! these become; a *sequence* is the response of one step.

use dart_kernels::{
    Aggregation, Clip, Importance, KlEstimate, KlGradient, RatioLevel, Rejection, RejectionLevel,
    RejectionTest, Surrogate, WeightLevel,
};
use serde::{Deserialize, Serialize};

/// The part of the loss that improves the policy, with its clip.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum SurrogateConfig {
    /// PPO and its descendants: the worse of the ratio and the clipped ratio, times the advantage.
    Clipped {
        /// The probability ratio is kept above 1 − this.
        low: f64,
        /// The probability ratio is kept below 1 + this: higher, so that rare tokens can grow.
        high: f64,
        /// With a negative advantage A the token loss is at most −A · this; 0 turns it off.
        #[serde(default)]
        dual: f64,
        /// Largest ratio of the unclipped term; 0 turns it off.
        #[serde(default)]
        ratio_cap: f64,
    },
    /// REINFORCE: log-probability times advantage, without a ratio.
    Reinforce {},
    /// The clipped ratio as a constant factor of REINFORCE: clipped tokens keep a gradient.
    Cispo {
        /// The factor is kept above 1 − this. Without it nothing bounds it below.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        low: Option<f64>,
        /// The factor is kept below 1 + this.
        high: f64,
    },
    /// A sigmoid gate instead of a clip.
    Sapo {
        /// Its steepness for positive advantages.
        positive: f64,
        /// Its steepness for the others.
        negative: f64,
    },
    /// Ratio to the rollout policy; tokens whose probability has moved too far are dropped.
    Prime {
        /// The largest fall of the probability, where the advantage is not positive.
        low: f64,
        /// The largest rise of the probability, where the advantage is positive.
        high: f64,
        /// Factor of the squared log-ratio, which also acts on dropped tokens.
        penalty: f64,
    },
}

/// Whose ratio the surrogate uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RatioConfig {
    /// The token's own.
    #[default]
    Token,
    /// The geometric mean over the sequence (GSPO).
    Sequence,
}

/// Which log-probs the surrogate's ratio is taken against.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RatioSource {
    /// Those of the learner before its step, computed anew: clipping bounds the step alone, and
    /// importance weights correct for what drew the tokens.
    #[default]
    Old,
    /// The recorded ones: one ratio stands for both. It leaves importance weights nothing to do.
    /// Where they are missing and may be, the old ones are taken.
    Rollout,
}

/// Whose ratio an importance weight is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WeightLevelConfig {
    /// The token's own.
    #[default]
    Token,
    /// The product over its sequence.
    SequenceSum,
    /// The geometric mean over its sequence.
    SequenceMean,
}

/// Correction for tokens that were drawn from another policy than the old one, with ω the ratio of
/// old to rollout probability.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum ImportanceConfig {
    /// None. Training collapses once sampler and learner drift apart.
    Off {},
    /// min(ω, `cap`).
    Truncated {
        /// Whose ω.
        #[serde(default)]
        level: WeightLevelConfig,
        /// The largest weight.
        cap: f64,
    },
    /// ω within its bounds, 0 outside: IcePop, and decoupled PPO's mask.
    Masked {
        /// Whose ω.
        #[serde(default)]
        level: WeightLevelConfig,
        /// The smallest ω that counts.
        low: f64,
        /// The largest ω that counts.
        high: f64,
    },
}

/// Whose drift a rejection rule tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RejectionLevelConfig {
    /// Each token's own.
    #[default]
    Token,
    /// The sum over a sequence.
    SequenceSum,
    /// The mean over a sequence.
    SequenceMean,
    /// The worst token of a sequence.
    SequenceMax,
}

/// A rule that takes tokens, or whole sequences, out of the loss; r is the ratio of old to rollout
/// probability. Bounds themselves are kept.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "test", rename_all = "kebab-case", deny_unknown_fields)]
pub enum RejectionConfig {
    /// Kept where r lies within bounds.
    K1 {
        /// Whose drift.
        #[serde(default)]
        level: RejectionLevelConfig,
        /// The smallest r.
        low: f64,
        /// The largest r; without it nothing bounds r above.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        high: Option<f64>,
    },
    /// Kept where (log r)²/2 is at most `max`.
    K2 {
        /// Whose drift.
        #[serde(default)]
        level: RejectionLevelConfig,
        /// The largest value.
        max: f64,
    },
    /// Kept where r − 1 − log r is at most `max`.
    K3 {
        /// Whose drift.
        #[serde(default)]
        level: RejectionLevelConfig,
        /// The largest value.
        max: f64,
    },
}

/// How token losses become one number. Counts are those of the whole optimizer step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum AggregationConfig {
    /// Mean over all tokens.
    TokenMean {},
    /// Mean over sequences of the sum over tokens.
    SeqMeanTokenSum {},
    /// Mean over sequences of the mean over tokens.
    SeqMeanTokenMean {},
    /// Mean over sequences of the sum over tokens divided by a constant.
    SeqMeanTokenSumNorm {
        /// The constant: the largest number of tokens of a response.
        max_tokens: usize,
    },
}

/// Which estimate of the KL to the reference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KlEstimateConfig {
    /// log(current/reference): unbiased, of any sign.
    K1,
    /// Half of its square.
    K2,
    /// e^q − q − 1 with q = log(reference/current): unbiased and never negative.
    #[default]
    K3,
}

/// Whose derivative the KL term has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KlGradientConfig {
    /// The estimate's own.
    #[default]
    Own,
    /// That of k2, whose mean is the gradient of the divergence.
    K2,
}

/// A number that must be 0 or more, by its key.
type Bound = (&'static str, f64);

impl SurrogateConfig {
    pub(crate) fn kernel(self) -> Surrogate {
        let on = |value: f64| (value > 0.0).then_some(value);
        match self {
            Self::Clipped {
                low,
                high,
                dual,
                ratio_cap,
            } => Surrogate::Clipped(Clip {
                low,
                high,
                dual: on(dual),
                ratio_cap: on(ratio_cap),
            }),
            Self::Reinforce {} => Surrogate::LogLikelihood,
            Self::Cispo { low, high } => Surrogate::Cispo { low, high },
            Self::Sapo { positive, negative } => Surrogate::Sapo { positive, negative },
            Self::Prime { low, high, penalty } => Surrogate::Prime { low, high, penalty },
        }
    }

    /// What is wrong with it.
    pub(crate) fn wrong(self) -> Option<Wrong> {
        match self {
            Self::Clipped {
                low,
                high,
                dual,
                ratio_cap,
            } => not_negative(&[
                ("surrogate.low", low),
                ("surrogate.high", high),
                ("surrogate.dual", dual),
                ("surrogate.ratio_cap", ratio_cap),
            ])
            .or_else(|| {
                // A ratio is never below 0.
                (low >= 1.0).then_some(("surrogate.low", "must be at least 0 and below 1"))
            })
            .or_else(|| {
                let inside = dual > 0.0 && dual <= 1.0;
                inside.then_some(("surrogate.dual", "must be above 1, or 0 for none"))
            }),
            Self::Reinforce {} => None,
            Self::Cispo { low, high } => not_negative(&[
                ("surrogate.low", low.unwrap_or(0.0)),
                ("surrogate.high", high),
            ])
            .or_else(|| positive("surrogate.high", high)),
            Self::Sapo { positive, negative } => {
                let keys = [
                    ("surrogate.positive", positive),
                    ("surrogate.negative", negative),
                ];
                let zero = keys.iter().find(|(_, steepness)| *steepness == 0.0);
                not_negative(&keys).or(zero.map(|(key, _)| (*key, "must be above 0")))
            }
            Self::Prime { low, high, penalty } => not_negative(&[
                ("surrogate.low", low),
                ("surrogate.high", high),
                ("surrogate.penalty", penalty),
            ]),
        }
    }
}

impl RatioConfig {
    pub(crate) const fn kernel(self) -> RatioLevel {
        match self {
            Self::Token => RatioLevel::Token,
            Self::Sequence => RatioLevel::Sequence,
        }
    }
}

impl ImportanceConfig {
    pub(crate) const fn kernel(self) -> Importance {
        match self {
            Self::Off {} => Importance::Off,
            Self::Truncated { level, cap } => Importance::Truncated {
                level: level.kernel(),
                cap,
            },
            Self::Masked { level, low, high } => Importance::Masked {
                level: level.kernel(),
                low,
                high,
            },
        }
    }

    pub(crate) fn wrong(self) -> Option<Wrong> {
        match self {
            Self::Off {} => None,
            Self::Truncated { cap, .. } => positive("importance.cap", cap),
            Self::Masked { low, high, .. } => {
                let keys = [("importance.low", low), ("importance.high", high)];
                let order = (low > high).then_some(("importance.high", "must not be below low"));
                not_negative(&keys)
                    .or_else(|| positive("importance.high", high))
                    .or(order)
            }
        }
    }
}

impl WeightLevelConfig {
    const fn kernel(self) -> WeightLevel {
        match self {
            Self::Token => WeightLevel::Token,
            Self::SequenceSum => WeightLevel::SequenceSum,
            Self::SequenceMean => WeightLevel::SequenceMean,
        }
    }
}

impl RejectionConfig {
    pub(crate) fn kernel(self) -> Rejection {
        let (level, test) = match self {
            Self::K1 { level, low, high } => {
                let high = high.unwrap_or(f64::INFINITY);
                (level, RejectionTest::K1 { low, high })
            }
            Self::K2 { level, max } => (level, RejectionTest::K2 { max }),
            Self::K3 { level, max } => (level, RejectionTest::K3 { max }),
        };
        let level = match level {
            RejectionLevelConfig::Token => RejectionLevel::Token,
            RejectionLevelConfig::SequenceSum => RejectionLevel::SequenceSum,
            RejectionLevelConfig::SequenceMean => RejectionLevel::SequenceMean,
            RejectionLevelConfig::SequenceMax => RejectionLevel::SequenceMax,
        };
        Rejection { level, test }
    }

    pub(crate) fn wrong(self) -> Option<Wrong> {
        match self {
            Self::K1 { low, high, .. } => {
                let high = high.unwrap_or(low);
                let keys = [("rejection.low", low), ("rejection.high", high)];
                let order = (low > high).then_some(("rejection.high", "must not be below low"));
                not_negative(&keys).or(order)
            }
            Self::K2 { max, .. } | Self::K3 { max, .. } => not_negative(&[("rejection.max", max)]),
        }
    }
}

impl AggregationConfig {
    pub(crate) const fn kernel(self) -> Aggregation {
        match self {
            Self::TokenMean {} => Aggregation::TokenMean,
            Self::SeqMeanTokenSum {} => Aggregation::SequenceMeanTokenSum,
            Self::SeqMeanTokenMean {} => Aggregation::SequenceMeanTokenMean,
            Self::SeqMeanTokenSumNorm { max_tokens } => Aggregation::SequenceMeanTokenSumNorm {
                max_length: max_tokens,
            },
        }
    }

    pub(crate) fn wrong(self) -> Option<Wrong> {
        let zero = matches!(self, Self::SeqMeanTokenSumNorm { max_tokens: 0 });
        zero.then_some(("aggregation.max_tokens", "must be 1 or more"))
    }
}

impl KlEstimateConfig {
    pub(crate) const fn kernel(self) -> KlEstimate {
        match self {
            Self::K1 => KlEstimate::K1,
            Self::K2 => KlEstimate::K2,
            Self::K3 => KlEstimate::K3,
        }
    }
}

impl KlGradientConfig {
    pub(crate) const fn kernel(self) -> KlGradient {
        match self {
            Self::Own => KlGradient::Own,
            Self::K2 => KlGradient::K2,
        }
    }
}

/// A key and what is wrong with its value.
pub(crate) type Wrong = (&'static str, &'static str);

/// A bound at 0 leaves nothing to learn from.
fn positive(key: &'static str, bound: f64) -> Option<Wrong> {
    not_negative(&[(key, bound)]).or((bound == 0.0).then_some((key, "must be above 0")))
}

fn not_negative(bounds: &[Bound]) -> Option<Wrong> {
    let wrong = bounds.iter().find(|(_, v)| !v.is_finite() || *v < 0.0);
    wrong.map(|(key, _)| (*key, "must be a number of 0 or more"))
}
