//! [`CurationConfig`]: every choice of the data manager, with the reason for its default.
//!
//! The defaults are the preset `paper` (arXiv 2509.23866 §3); `released` is what its released code
//! does where the two differ.

use dart_core::overlay::lay_over;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use serde_json::{Map, Value};

use crate::{
    advantage::AdvantageConfig,
    collate::Credit,
    error::{CurationError, Result},
    overlong::OverlongConfig,
    pool::PoolConfig,
    rollout_number::RolloutNumberConfig,
    sampler::SamplerConfig,
    trajectory_length::TrajectoryLengthConfig,
};

/// A named set of defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CurationPreset {
    /// arXiv 2509.23866 §3.
    #[default]
    Paper,
    /// Its public code, where that differs: sample deviation, no dynamic trajectory length, and the
    /// pool is the newest success of the run.
    Released,
}

/// Every choice of the data manager. In a file, `preset` chooses the defaults of all keys left out;
/// keys of a table are laid over the preset's table, unless it is of another `kind`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields)]
pub struct CurationConfig {
    /// Where the defaults come from.
    pub preset: CurationPreset,
    /// Groups that a batch needs. Default 8: the released code trains on 6 to 8 tasks a step.
    pub groups_per_batch: usize,
    /// Groups that a batch takes at most, if more are ready. Default 8: batches of one size.
    pub max_groups_per_batch: usize,
    /// Rollouts of a group while the dynamic rollout number is off. Default 8 (paper).
    pub rollouts_per_group: u32,
    /// Scored trajectories below which a group is dropped. Default 2: one alone has no spread.
    pub min_group_size: usize,
    /// Times that one slot is handed out before it is given up. Default 4: at 5 % aborts a slot is
    /// lost once in 160,000.
    pub max_attempts: u32,
    /// Rollouts in flight at most. Default 256: the paper's cluster has 80 environments.
    pub max_in_flight: usize,
    /// Largest learner version − oldest version of a trajectory at consumption. Default 1: the
    /// paper trains on trajectories of the newest two published versions.
    pub max_staleness: u64,
    /// Temperature of the rollouts. Default 1 (paper).
    pub temperature: f32,
    /// How rewards become advantages. Default step-wise with the population deviation (paper).
    pub advantage: AdvantageConfig,
    /// What long trajectories lose of their reward. Default nothing.
    pub overlong: OverlongConfig,
    /// Which tasks and seeds come next.
    pub sampler: SamplerConfig,
    /// Fewer rollouts for tasks that go well.
    pub rollout_number: RolloutNumberConfig,
    /// Shorter episodes for tasks that are solved in few steps.
    pub trajectory_length: TrajectoryLengthConfig,
    /// Earlier successes for groups in which every rollout failed.
    pub pool: PoolConfig,
}

impl Default for CurationConfig {
    fn default() -> Self {
        Self {
            preset: CurationPreset::Paper,
            groups_per_batch: 8,
            max_groups_per_batch: 8,
            rollouts_per_group: 8,
            min_group_size: 2,
            max_attempts: 4,
            max_in_flight: 256,
            max_staleness: 1,
            temperature: 1.0,
            advantage: AdvantageConfig::default(),
            overlong: OverlongConfig::default(),
            sampler: SamplerConfig::default(),
            rollout_number: RolloutNumberConfig::default(),
            trajectory_length: TrajectoryLengthConfig::default(),
            pool: PoolConfig::default(),
        }
    }
}

impl CurationConfig {
    /// The defaults of `preset`.
    pub fn preset(preset: CurationPreset) -> Self {
        match preset {
            CurationPreset::Paper => Self::default(),
            CurationPreset::Released => Self::released(),
        }
    }

    /// The preset `released`.
    pub fn released() -> Self {
        Self {
            preset: CurationPreset::Released,
            advantage: AdvantageConfig::released(),
            trajectory_length: TrajectoryLengthConfig {
                enabled: false,
                ..TrajectoryLengthConfig::default()
            },
            pool: PoolConfig::released(),
            ..Self::default()
        }
    }

    /// How outcomes become advantages.
    pub const fn credit(&self) -> Credit {
        Credit {
            advantage: self.advantage,
            overlong: self.overlong,
        }
    }

    /// Checks what no type can say.
    ///
    /// # Errors
    /// [`Config`](dart_core::ErrorKind::Config), naming the key.
    pub fn validate(&self) -> dart_core::Result<()> {
        self.check().map_err(|error| error.during("configure"))
    }

    fn check(&self) -> Result<()> {
        let rules = [
            (
                self.groups_per_batch >= 1,
                "groups_per_batch",
                "is at least 1",
            ),
            (
                self.max_groups_per_batch >= self.groups_per_batch,
                "max_groups_per_batch",
                "is at least groups_per_batch",
            ),
            (
                self.min_group_size >= 2,
                "min_group_size",
                "is at least 2: one trajectory has no spread",
            ),
            (
                self.rollouts_per_group as usize >= self.min_group_size,
                "rollouts_per_group",
                "is at least min_group_size",
            ),
            (
                self.rollouts_per_group <= 4096,
                "rollouts_per_group",
                "is at most 4096",
            ),
            (self.max_attempts >= 1, "max_attempts", "is at least 1"),
            (self.max_in_flight >= 1, "max_in_flight", "is at least 1"),
            (
                self.temperature.is_finite() && self.temperature >= 0.0,
                "temperature",
                "is a finite number, 0 or more",
            ),
        ];
        for (holds, key, rule) in rules {
            if !holds {
                return Err(CurationError::BadSetting { key, rule });
            }
        }
        self.rollout_number.check(self.min_group_size)?;
        self.trajectory_length.check()?;
        self.sampler.check()?;
        self.advantage.check()?;
        self.overlong.check()?;
        self.pool.check()
    }
}

impl Serialize for CurationConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for CurationConfig {
    /// Lays the given keys over the preset's values.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let given = Map::deserialize(deserializer)?;
        if given.contains_key("deviation") {
            return Err(D::Error::custom(
                "`deviation` is part of the advantage now: \
                 write advantage = { kind = \"step-wise\", deviation = \"sample\" }",
            ));
        }
        let preset = match given.get("preset") {
            Some(name) => CurationPreset::deserialize(name).map_err(D::Error::custom)?,
            None => CurationPreset::default(),
        };
        let defaults = serde_json::to_value(Self::preset(preset)).map_err(D::Error::custom)?;
        let Value::Object(mut all) = defaults else {
            return Err(D::Error::custom("the defaults are no table"));
        };
        for (key, value) in given {
            lay_over(all.entry(&key).or_insert(Value::Null), value);
            // One by one, so that the key is named.
            Self::deserialize(Value::Object(all.clone()))
                .map_err(|error| D::Error::custom(format!("{key}: {error}")))?;
        }
        Self::deserialize(Value::Object(all)).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_are_valid() {
        CurationConfig::default().validate().unwrap();
        CurationConfig::released().validate().unwrap();
    }

    #[test]
    fn a_wrong_setting_is_named() {
        let config = CurationConfig {
            max_groups_per_batch: 3,
            ..CurationConfig::default()
        };
        let error = config.validate().unwrap_err();
        assert_eq!(error.kind(), dart_core::ErrorKind::Config);
        assert!(
            error.to_string().contains("max_groups_per_batch"),
            "{error}"
        );
    }

    #[test]
    fn unknown_keys_are_refused_and_missing_ones_defaulted() {
        assert!(serde_json::from_str::<CurationConfig>(r#"{"groups_per_bach": 3}"#).is_err());
        let config: CurationConfig = serde_json::from_str(r#"{"max_staleness": 4}"#).unwrap();
        assert_eq!(config.max_staleness, 4);
        assert_eq!(config.groups_per_batch, 8);
    }

    fn parse(text: &str) -> std::result::Result<CurationConfig, serde_json::Error> {
        serde_json::from_str(text)
    }

    #[test]
    fn a_preset_chooses_what_is_left_out() {
        let text = r#"{"preset": "released", "max_staleness": 3, "pool": {"capacity": 9}}"#;
        let config = parse(text).unwrap();
        let mut expected = CurationConfig::released();
        expected.max_staleness = 3;
        expected.pool.capacity = 9;
        assert_eq!(config, expected);
        let again = serde_json::to_string(&config).unwrap();
        assert_eq!(parse(&again).unwrap(), config);
        assert_eq!(parse("{}").unwrap(), CurationConfig::default());
        assert!(parse(r#"{"preset": "dapo"}"#).is_err());
        let wrong = parse(r#"{"max_staleness": 1, "pool": {"capacity": "many"}}"#);
        let wrong = wrong.unwrap_err().to_string();
        assert!(wrong.starts_with("pool: invalid type"), "{wrong}");
    }

    #[test]
    fn an_advantage_is_chosen_by_its_kind() {
        let advantage = |text: &str| {
            let config = parse(&format!(r#"{{"advantage": {text}}}"#))?;
            config.validate().map_err(serde_json::Error::custom)?;
            Ok::<_, serde_json::Error>(config.advantage)
        };
        let given = advantage(r#"{"kind": "grpo", "epsilon": 1e-4}"#).unwrap();
        assert_eq!(given, AdvantageConfig::Grpo { epsilon: 1e-4 });
        let given = advantage(r#"{"deviation": "sample"}"#).unwrap();
        assert_eq!(given, AdvantageConfig::released(), "laid over the default");
        for kind in [
            "step-wise",
            "grpo",
            "dr-grpo",
            "rloo",
            "reinforce++",
            "reinforce++-baseline",
            "gigpo",
        ] {
            advantage(&format!(r#"{{"kind": "{kind}"}}"#)).unwrap();
        }
        for wrong in [
            r#"{"kind": "gae"}"#,
            r#"{"kind": "rloo", "epsilon": 1}"#,
            r#"{"kind": "grpo", "epsilon": 0}"#,
            r#"{"kind": "gigpo", "discount": 2}"#,
            r#"{"kind": "gigpo", "weight": -1}"#,
        ] {
            assert!(advantage(wrong).is_err(), "{wrong}");
        }
        let old = parse(r#"{"deviation": "sample"}"#).unwrap_err().to_string();
        assert!(old.contains("kind = \"step-wise\""), "{old}");
    }
}
