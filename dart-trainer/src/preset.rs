//! [`Preset`]: named sets of defaults.

use serde::{Deserialize, Serialize};

use crate::{
    AggregationConfig, ImportanceConfig, MissingLogProbs, RatioConfig, SurrogateConfig,
    TrainerConfig, WeightLevelConfig,
};

/// A named set of defaults for the loss. Those after the first two leave out the paper's own
/// additions (entropy selection, KL, truncated weights) where the method has none; the optimizer's
/// settings stay the paper's. Advantages come with the batch: which ones a method expects is said
/// here and cannot be set in the learner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Preset {
    /// arXiv 2509.23866. Advantages: step-wise GRPO, population deviation.
    #[default]
    Paper,
    /// Its public code, where that differs: clip 0.1/0.28, learning rate 1e-7, and a weight of 1
    /// for samples without rollout log-probs. Advantages: the same with sample deviation.
    Released,
    /// DAPO (arXiv 2503.14476): clip-higher 0.2/0.28, mean over all tokens. Advantages: GRPO by
    /// trajectory, with overlong reward shaping.
    Dapo,
    /// Dr. GRPO (arXiv 2503.20783): symmetric clip, sums over tokens divided by the longest
    /// response allowed. Advantages: reward less the group's mean.
    DrGrpo,
    /// GSPO (arXiv 2507.18071): sequence ratios, clip 3e-4/4e-4. Advantages: GRPO by trajectory.
    Gspo,
    /// CISPO (arXiv 2506.13585) with the bounds 1.0/4.0. Advantages: GRPO by trajectory.
    Cispo,
    /// SAPO (arXiv 2511.20347), τ 1.0/1.05, mean over all tokens. Advantages: GRPO by trajectory.
    Sapo,
    /// RLOO (arXiv 2402.14740): REINFORCE, summed over the tokens. Advantages: reward less the mean
    /// of the group's others.
    Rloo,
    /// REINFORCE++ (arXiv 2501.03262): symmetric clip by token. Advantages: returns, or rewards
    /// less the group's mean, whitened over the batch.
    #[serde(rename = "reinforce++")]
    ReinforcePlusPlus,
    /// Decoupled PPO (arXiv 2505.24298): weights above 5 count as 0. Advantages: GRPO or GAE.
    ArealDecoupled,
    /// PPO clip with a dual clip of 3 under truncated *sequence* weights, cap 2. Advantages: GRPO.
    VerlSeqTis,
    /// IcePop: token weights outside 0.5 to 5 count as 0. Advantages: GRPO by trajectory.
    Icepop,
    /// Ratios against the rollout policy, masked where a probability moved by more than 0.2, with a
    /// squared log-ratio penalty. Advantages: rewards less the group's mean.
    Prime,
}

impl Preset {
    /// Every preset.
    pub const ALL: [Self; 13] = [
        Self::Paper,
        Self::Released,
        Self::Dapo,
        Self::DrGrpo,
        Self::Gspo,
        Self::Cispo,
        Self::Sapo,
        Self::Rloo,
        Self::ReinforcePlusPlus,
        Self::ArealDecoupled,
        Self::VerlSeqTis,
        Self::Icepop,
        Self::Prime,
    ];
}

/// Tokens of the longest response that the paper allows.
const LONGEST_RESPONSE: usize = 500;

const fn clip(low: f64, high: f64) -> SurrogateConfig {
    SurrogateConfig::Clipped {
        low,
        high,
        dual: 0.0,
        ratio_cap: 0.0,
    }
}

/// The defaults of `preset`.
pub(crate) fn defaults(preset: Preset) -> TrainerConfig {
    match preset {
        Preset::Paper => TrainerConfig::default(),
        Preset::Released => TrainerConfig {
            preset,
            learning_rate: 1e-7,
            surrogate: SurrogateConfig::Clipped {
                low: 0.1,
                high: 0.28,
                dual: 10.0,
                ratio_cap: 0.0,
            },
            missing_rollout_log_probs: MissingLogProbs::Unit,
            ..TrainerConfig::default()
        },
        _ => variant(preset),
    }
}

/// A method without the paper's own additions: its surrogate over a plain mean of tokens, unless it
/// is said otherwise.
fn variant(preset: Preset) -> TrainerConfig {
    let mut config = TrainerConfig {
        preset,
        surrogate: surrogate(preset),
        importance: importance(preset),
        aggregation: AggregationConfig::TokenMean {},
        kl_beta: 0.0,
        entropy_drop: 0.0,
        ..TrainerConfig::default()
    };
    match preset {
        Preset::DrGrpo => {
            config.aggregation = AggregationConfig::SeqMeanTokenSumNorm {
                max_tokens: LONGEST_RESPONSE,
            };
        }
        Preset::Gspo => {
            config.ratio = RatioConfig::Sequence;
            config.aggregation = AggregationConfig::SeqMeanTokenMean {};
        }
        Preset::Rloo => config.aggregation = AggregationConfig::SeqMeanTokenSum {},
        _ => {}
    }
    config
}

fn surrogate(preset: Preset) -> SurrogateConfig {
    match preset {
        Preset::Dapo => clip(0.2, 0.28),
        Preset::Gspo => clip(3e-4, 4e-4),
        Preset::Cispo => SurrogateConfig::Cispo {
            low: Some(1.0),
            high: 4.0,
        },
        Preset::Sapo => SurrogateConfig::Sapo {
            positive: 1.0,
            negative: 1.05,
        },
        Preset::Rloo => SurrogateConfig::Reinforce {},
        Preset::VerlSeqTis => SurrogateConfig::Clipped {
            low: 0.2,
            high: 0.2,
            dual: 3.0,
            ratio_cap: 0.0,
        },
        Preset::Prime => SurrogateConfig::Prime {
            low: 0.2,
            high: 0.2,
            penalty: 1e-3,
        },
        _ => clip(0.2, 0.2),
    }
}

fn importance(preset: Preset) -> ImportanceConfig {
    match preset {
        Preset::ArealDecoupled => ImportanceConfig::Masked {
            level: WeightLevelConfig::Token,
            low: 0.0,
            high: 5.0,
        },
        Preset::VerlSeqTis => ImportanceConfig::Truncated {
            level: WeightLevelConfig::SequenceSum,
            cap: 2.0,
        },
        Preset::Icepop => ImportanceConfig::Masked {
            level: WeightLevelConfig::Token,
            low: 0.5,
            high: 5.0,
        },
        _ => ImportanceConfig::Off {},
    }
}
