//! Every setting of the learner. Defaults are those of the paper (preset `paper`).

use dart_core::overlay::lay_over;
use dart_kernels::{Aggregation, Kl, Rejection, TokenLoss};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use serde_json::{Map, Value};

use crate::{
    AggregationConfig, AverageConfig, Decay, ImportanceConfig, KlEstimateConfig, KlGradientConfig,
    OptimizerConfig, Preset, Published, RatioConfig, RatioSource, RejectionConfig, Schedule,
    SurrogateConfig, WeightLevelConfig,
    error::{Result, TrainerError},
    pipeline::Wrong,
    preset::defaults,
};

/// What happens to a sample without rollout log-probs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MissingLogProbs {
    /// The batch is refused.
    #[default]
    Error,
    /// Its importance weight is 1.
    Unit,
}

/// Settings of the learner. In a file, `preset` chooses the defaults of all keys left out. Keys of a
/// table are laid over the preset's table, unless it is of another `kind`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields)]
pub struct TrainerConfig {
    /// Where the defaults come from.
    pub preset: Preset,
    /// Step size of the optimizer. 1e-6 fits a 7B model; a policy of 10^5 to 10^6 parameters wants 5e-4.
    pub learning_rate: f64,
    /// How the step size rises and falls with the optimizer steps; in the paper it is constant.
    pub schedule: Schedule,
    /// What moves the weights, in imitation too.
    pub optimizer: OptimizerConfig,
    /// Decoupled weight decay of matrices; vectors (biases, norms) are not decayed.
    pub weight_decay: f64,
    /// Largest norm of the gradient over all parameters; 0 turns clipping off.
    pub grad_clip: f64,
    /// The part of the loss that improves the policy, with its clip.
    pub surrogate: SurrogateConfig,
    /// Whose ratio it uses.
    pub ratio: RatioConfig,
    /// Which log-probs the ratio is taken against.
    pub ratio_source: RatioSource,
    /// Correction for tokens that another policy drew. Without it training collapses once sampler
    /// and learner drift apart.
    pub importance: ImportanceConfig,
    /// Rules that take tokens out of the loss whose policy drifted too far, decided before the
    /// first optimizer step. The denominators count what is left. The paper has none.
    pub rejection: Vec<RejectionConfig>,
    /// How token losses become one number.
    pub aggregation: AggregationConfig,
    /// What happens to a sample without rollout log-probs.
    pub missing_rollout_log_probs: MissingLogProbs,
    /// Factor of the KL to the reference (the weights when the first policy gradient was taken).
    /// 0 saves the reference model and its pass.
    pub kl_beta: f64,
    /// Which estimate of that KL.
    pub kl_estimate: KlEstimateConfig,
    /// Whose derivative it has.
    pub kl_gradient: KlGradientConfig,
    /// Whether the KL is multiplied with the surrogate's ratio, through which its gradient then
    /// flows too: right for tokens that an older policy drew.
    pub kl_times_ratio: bool,
    /// Factor of the entropy bonus.
    pub entropy_bonus: f64,
    /// Share of a group's steps, those of lowest entropy, that are not trained on; 0 keeps all.
    pub entropy_drop: f64,
    /// Share of the batch's tokens, those of lowest entropy, that are not trained on though the
    /// denominators count them ("80/20": 0.8, arXiv 2506.01939); 0 keeps all.
    pub token_entropy_drop: f64,
    /// Factor of the model's reading loss beside the policy gradient.
    pub reading_weight: f64,
    /// The exponential moving average of the weights.
    pub average: AverageConfig,
    /// Batches whose gradients make one optimizer step, as if they were one batch; 1 is the paper's.
    /// Above 1 there is one pass over each batch, in one part, and no reading loss.
    pub accumulate_batches: u64,
    /// Passes over each batch.
    pub epochs: usize,
    /// Optimizer steps per pass, each on its part of the batch. Prompts shared by several samples
    /// stay in one part.
    pub minibatches: usize,
    /// A batch is not cut into parts smaller than this many samples.
    pub minibatch_min_samples: usize,
    /// Samples of one forward pass on one thread; bounds memory, does not change the result.
    pub micro_batch_samples: usize,
    /// Threads that share the samples of a policy-gradient step. 1 beside a sampler on two cores.
    pub threads: usize,
    /// Whether a sample without an image is an error: an agent of a graphical interface that is
    /// shown nothing learns to guess.
    pub require_images: bool,
    /// Seeds the order of minibatches.
    pub seed: u64,
    /// Settings of imitation.
    pub imitation: ImitationConfig,
}

/// Settings of the warm start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ImitationConfig {
    /// Step size of the optimizer at its highest.
    pub learning_rate: f64,
    /// How it rises and falls. Default: 20 steps up, without which a fresh transformer may not take
    /// off, and down along a cosine to a tenth until step 1000.
    pub schedule: Schedule,
    /// Decoupled weight decay of matrices.
    pub weight_decay: f64,
    /// Largest norm of the gradient; 0 turns clipping off.
    pub grad_clip: f64,
    /// Factor of the model's reading loss. A base that reads is what later learning rests on.
    pub reading_weight: f64,
    /// Samples of one forward pass on one thread.
    pub micro_batch_samples: usize,
    /// Threads that share the samples of a step; nothing else runs during a warm start.
    pub threads: usize,
}

impl Default for ImitationConfig {
    fn default() -> Self {
        Self {
            learning_rate: 1e-3,
            schedule: Schedule {
                warmup_steps: 20,
                decay: Decay::Cosine,
                ..Schedule::default()
            },
            weight_decay: 0.01,
            grad_clip: 1.0,
            reading_weight: 1.0,
            micro_batch_samples: 128,
            threads: 2,
        }
    }
}

impl Default for TrainerConfig {
    fn default() -> Self {
        Self {
            preset: Preset::Paper,
            learning_rate: 1e-6,
            schedule: Schedule::default(),
            optimizer: OptimizerConfig::ADAMW,
            weight_decay: 0.1,
            grad_clip: 2.0,
            surrogate: SurrogateConfig::Clipped {
                low: 0.2,
                high: 0.28,
                dual: 10.0,
                ratio_cap: 0.0,
            },
            ratio: RatioConfig::Token,
            ratio_source: RatioSource::Old,
            importance: ImportanceConfig::Truncated {
                level: WeightLevelConfig::Token,
                cap: 1.0,
            },
            rejection: Vec::new(),
            aggregation: AggregationConfig::SeqMeanTokenMean {},
            missing_rollout_log_probs: MissingLogProbs::Error,
            kl_beta: 0.1,
            kl_estimate: KlEstimateConfig::K3,
            kl_gradient: KlGradientConfig::Own,
            kl_times_ratio: false,
            entropy_bonus: 0.0,
            entropy_drop: 0.2,
            token_entropy_drop: 0.0,
            reading_weight: 0.0,
            average: AverageConfig::default(),
            accumulate_batches: 1,
            epochs: 1,
            minibatches: 1,
            minibatch_min_samples: 32,
            micro_batch_samples: 128,
            threads: 1,
            require_images: true,
            seed: 0,
            imitation: ImitationConfig::default(),
        }
    }
}

impl TrainerConfig {
    /// The defaults of `preset`.
    pub fn preset(preset: Preset) -> Self {
        defaults(preset)
    }

    /// Checks that the numbers make sense together.
    ///
    /// # Errors
    /// [`Config`](dart_core::ErrorKind::Config), naming the key.
    pub fn validate(&self) -> dart_core::Result<()> {
        self.check().map_err(Into::into)
    }

    fn check(&self) -> Result<()> {
        let imitation = &self.imitation;
        let not_negative = [
            ("learning_rate", self.learning_rate),
            ("weight_decay", self.weight_decay),
            ("grad_clip", self.grad_clip),
            ("kl_beta", self.kl_beta),
            ("entropy_bonus", self.entropy_bonus),
            ("reading_weight", self.reading_weight),
            ("imitation.learning_rate", imitation.learning_rate),
            ("imitation.weight_decay", imitation.weight_decay),
            ("imitation.grad_clip", imitation.grad_clip),
            ("imitation.reading_weight", imitation.reading_weight),
        ];
        let positive = [
            ("epochs", self.epochs),
            ("minibatches", self.minibatches),
            ("minibatch_min_samples", self.minibatch_min_samples),
            ("micro_batch_samples", self.micro_batch_samples),
            ("threads", self.threads),
            (
                "imitation.micro_batch_samples",
                imitation.micro_batch_samples,
            ),
            ("imitation.threads", imitation.threads),
        ];
        let shares = [
            ("average.decay", self.average.decay),
            ("entropy_drop", self.entropy_drop),
            ("token_entropy_drop", self.token_entropy_drop),
        ];
        let wrong = |key, message| Err(TrainerError::Config { key, message });
        if let Some((key, _)) = not_negative
            .iter()
            .find(|(_, v)| !v.is_finite() || *v < 0.0)
        {
            return wrong(*key, "must be a number of 0 or more");
        }
        if let Some((key, _)) = positive.iter().find(|(_, v)| *v == 0) {
            return wrong(*key, "must be 1 or more");
        }
        if let Some((key, _)) = shares.iter().find(|(_, v)| !(0.0..1.0).contains(v)) {
            return wrong(*key, "must be at least 0 and below 1");
        }
        match self.wrong_steps().or_else(|| self.wrong_loss()) {
            Some((key, message)) => wrong(key, message),
            None => Ok(()),
        }
    }

    /// What is wrong with how optimizer steps are taken.
    fn wrong_steps(&self) -> Option<Wrong> {
        let share = |schedule: &Schedule| (0.0..=1.0).contains(&schedule.final_share);
        let one = self.accumulate_batches == 1;
        let idle = self.average.publish == Published::Average && self.average.decay == 0.0;
        let rules = [
            (
                share(&self.schedule),
                "schedule.final_share",
                "must be 0 to 1",
            ),
            (
                share(&self.imitation.schedule),
                "imitation.schedule.final_share",
                "must be 0 to 1",
            ),
            (
                self.accumulate_batches >= 1,
                "accumulate_batches",
                "must be 1 or more",
            ),
            (
                one || (self.epochs == 1 && self.minibatches == 1),
                "accumulate_batches",
                "must be 1 where a batch has several optimizer steps (epochs, minibatches)",
            ),
            (
                one || self.reading_weight == 0.0,
                "accumulate_batches",
                "must be 1 where reading_weight is not 0: the two losses have other denominators",
            ),
            (
                !idle,
                "average.publish",
                "must be current where average.decay is 0: there is no average",
            ),
        ];
        let broken = rules.into_iter().find(|(holds, ..)| !holds);
        broken
            .map(|(_, key, message)| (key, message))
            .or_else(|| self.optimizer.wrong())
    }

    /// What is wrong with the switches of the loss.
    fn wrong_loss(&self) -> Option<Wrong> {
        let corrects = !matches!(self.importance, ImportanceConfig::Off {});
        let idle = corrects && self.ratio_source == RatioSource::Rollout;
        let rules = || self.rejection.iter().find_map(|rule| rule.wrong());
        let sequence = self.ratio == RatioConfig::Sequence
            && matches!(self.surrogate, SurrogateConfig::Reinforce {});
        self.surrogate
            .wrong()
            .or_else(|| self.importance.wrong())
            .or_else(rules)
            .or_else(|| self.aggregation.wrong())
            .or(idle.then_some((
                "importance",
                "must be off where ratio_source is rollout: the ratio corrects already",
            )))
            .or(sequence.then_some(("ratio", "has no use in the surrogate reinforce")))
    }

    /// The policy-gradient loss that these settings describe.
    pub fn token_loss(&self) -> TokenLoss {
        TokenLoss {
            surrogate: self.surrogate.kernel(),
            ratio: self.ratio.kernel(),
            importance: self.importance.kernel(),
            kl: Kl {
                beta: self.kl_beta,
                estimate: self.kl_estimate.kernel(),
                gradient: self.kl_gradient.kernel(),
                times_ratio: self.kl_times_ratio,
            },
            entropy_bonus: self.entropy_bonus,
        }
    }

    /// How the losses of tokens become one number.
    pub fn token_weights(&self) -> Aggregation {
        self.aggregation.kernel()
    }

    /// The rules that take tokens out of the loss.
    pub fn rejection_rules(&self) -> Vec<Rejection> {
        self.rejection.iter().map(|rule| rule.kernel()).collect()
    }

    /// Learning rate of policy-gradient step `step`, counted from 1.
    pub fn rate(&self, step: u64) -> f64 {
        self.learning_rate * self.schedule.share(step)
    }
}

impl ImitationConfig {
    /// Learning rate of step `step`, counted from 1.
    pub fn rate(&self, step: u64) -> f64 {
        self.learning_rate * self.schedule.share(step)
    }
}

impl Serialize for TrainerConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for TrainerConfig {
    /// Lays the given keys over the preset's values.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let given = Map::deserialize(deserializer)?;
        let preset = match given.get("preset") {
            Some(name) => Preset::deserialize(name).map_err(D::Error::custom)?,
            None => Preset::default(),
        };
        let defaults = serde_json::to_value(Self::preset(preset)).map_err(D::Error::custom)?;
        let Value::Object(mut all) = defaults else {
            return Err(D::Error::custom("the defaults are no table"));
        };
        for (key, value) in given {
            let under = all.entry(key).or_insert(Value::Null);
            lay_over(under, value);
        }
        Self::deserialize(Value::Object(all)).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<TrainerConfig, serde_json::Error> {
        serde_json::from_str(text)
    }

    #[test]
    fn the_preset_chooses_what_is_left_out() {
        assert_eq!(parse("{}").unwrap(), TrainerConfig::default());
        let released = parse(r#"{"preset": "released", "surrogate": {"high": 0.3}}"#).unwrap();
        let clip = SurrogateConfig::Clipped {
            low: 0.1,
            high: 0.3,
            dual: 10.0,
            ratio_cap: 0.0,
        };
        assert_eq!(released.surrogate, clip);
        assert_eq!(released.missing_rollout_log_probs, MissingLogProbs::Unit);
        let text = serde_json::to_string(&released).unwrap();
        assert_eq!(parse(&text).unwrap(), released);
    }

    #[test]
    fn unknown_and_wrong_keys_are_named() {
        let unknown = parse(r#"{"kl_bet": 0.3}"#).unwrap_err().to_string();
        assert!(unknown.contains("`kl_bet`") && unknown.contains("`kl_beta`"));
        let nested = parse(r#"{"imitation": {"lr": 1}}"#)
            .unwrap_err()
            .to_string();
        assert!(nested.contains("`lr`"), "{nested}");
        for (key, text) in [
            ("kl_beta", r#"{"kl_beta": -1}"#),
            ("threads", r#"{"threads": 0}"#),
            ("entropy_drop", r#"{"entropy_drop": 1.0}"#),
            (
                "imitation.schedule.final_share",
                r#"{"imitation": {"schedule": {"final_share": 2}}}"#,
            ),
            ("optimizer.betas", r#"{"optimizer": {"betas": [0.9, 1]}}"#),
            (
                "optimizer.clip_rms",
                r#"{"optimizer": {"kind": "adafactor", "clip_rms": -1}}"#,
            ),
            (
                "optimizer.epsilon",
                r#"{"optimizer": {"kind": "adafactor", "epsilon": 1e-36}}"#,
            ),
            ("accumulate_batches", r#"{"accumulate_batches": 0}"#),
            (
                "minibatches",
                r#"{"accumulate_batches": 2, "minibatches": 2}"#,
            ),
            (
                "reading_weight",
                r#"{"accumulate_batches": 2, "reading_weight": 0.1}"#,
            ),
            ("average.decay", r#"{"average": {"decay": 1}}"#),
            ("average.publish", r#"{"average": {"publish": "average"}}"#),
        ] {
            let error = parse(text).unwrap().validate().unwrap_err();
            assert_eq!(error.kind(), dart_core::ErrorKind::Config);
            assert!(error.to_string().contains(key), "{error}");
        }
    }

    #[test]
    fn part_of_a_schedule_leaves_the_rest() {
        let text = r#"{"imitation": {"schedule": {"decay_steps": 50}}}"#;
        let imitation = parse(text).unwrap().imitation;
        assert_eq!(imitation.schedule.warmup_steps, 20);
        assert_eq!((imitation.rate(10), imitation.rate(50)), (5e-4, 1e-4));
        assert_eq!(
            TrainerConfig::default().rate(1),
            1e-6,
            "constant, as in the paper"
        );
        let text = r#"{"optimizer": {"kind": "adafactor", "clip_rms": 2}}"#;
        let optimizer = OptimizerConfig::Adafactor {
            betas: [0.0, 0.999],
            epsilon: 1e-30,
            clip_rms: 2.0,
        };
        assert_eq!(parse(text).unwrap().optimizer, optimizer);
    }
}
