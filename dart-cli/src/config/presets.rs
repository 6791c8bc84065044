//! One preset chooses a method: its loss in `[trainer]`, and its advantage in `[curation]`.

use dart_curation::AdvantageConfig;
use dart_trainer::Preset;
use serde::Deserialize;
use toml::{Table, Value};

/// AReaL's epsilon beside a deviation.
const AREAL_EPSILON: f64 = 1e-5;

/// The advantage that the method of a learner's preset is meant for; `None` leaves the choice to
/// `curation.preset`.
fn advantage(preset: Preset) -> Option<AdvantageConfig> {
    let grpo = |epsilon| Some(AdvantageConfig::Grpo { epsilon });
    match preset {
        Preset::Paper => None,
        Preset::Released => Some(AdvantageConfig::released()),
        Preset::DrGrpo | Preset::Prime => Some(AdvantageConfig::DrGrpo {}),
        Preset::Rloo => Some(AdvantageConfig::Rloo {}),
        Preset::ReinforcePlusPlus => Some(AdvantageConfig::ReinforcePlusPlus { discount: 1.0 }),
        Preset::ArealDecoupled => grpo(AREAL_EPSILON),
        Preset::Dapo
        | Preset::Gspo
        | Preset::Cispo
        | Preset::Sapo
        | Preset::VerlSeqTis
        | Preset::Icepop => grpo(dart_core::advantage::ADVANTAGE_EPSILON),
    }
}

/// Puts what `trainer.preset` implies for curation under what is said there. What has no sense is
/// left for the types to refuse.
pub(super) fn complete(table: &mut Table) {
    let named = table
        .get("trainer")
        .and_then(|trainer| trainer.get("preset"));
    let Some(preset) = named.and_then(|name| Preset::deserialize(name.clone()).ok()) else {
        return;
    };
    let section = |table: &mut Table, key: &str| -> Option<Table> {
        let empty = || Value::Table(Table::new());
        table
            .get(key)
            .cloned()
            .unwrap_or_else(empty)
            .try_into()
            .ok()
    };
    let Some(mut curation) = section(table, "curation") else {
        return;
    };
    let implied = advantage(preset).and_then(|advantage| Table::try_from(advantage).ok());
    if let (Some(mut implied), Some(given)) = (implied, section(&mut curation, "advantage"))
        && (given.get("kind").is_none() || given.get("kind") == implied.get("kind"))
    {
        implied.extend(given);
        curation.insert("advantage".into(), Value::Table(implied));
    }
    if preset == Preset::Dapo
        && let Some(mut overlong) = section(&mut curation, "overlong")
    {
        overlong.entry("enabled").or_insert(Value::Boolean(true));
        curation.insert("overlong".into(), Value::Table(overlong));
    }
    table.insert("curation".into(), Value::Table(curation));
}

#[cfg(test)]
mod tests {
    use dart_core::advantage::Deviation;
    use dart_curation::CurationPreset;

    use super::*;
    use crate::config::RunConfig;

    fn read(text: &str) -> RunConfig {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn every_method_brings_its_advantage() {
        for preset in Preset::ALL {
            let name = Value::try_from(preset).unwrap();
            let config = read(&format!("[trainer]\npreset = {name}"));
            assert_eq!(config.trainer.preset, preset);
            let expected = advantage(preset).unwrap_or_default();
            assert_eq!(config.curation.advantage, expected, "{name}");
            assert_eq!(config.curation.overlong.enabled, preset == Preset::Dapo);
            config.validate().unwrap();
            let again = read(&config.to_toml().unwrap());
            assert_eq!(again, config, "the resolved config says the same");
        }
    }

    #[test]
    fn what_is_said_wins() {
        let said = "[trainer]\npreset = 'rloo'\n[curation.advantage]\nkind = 'gigpo'\nweight = 0.5";
        let AdvantageConfig::Gigpo { weight, .. } = read(said).curation.advantage else {
            panic!("another kind");
        };
        assert_eq!(weight, 0.5);
        let part = "[trainer]\npreset = 'gspo'\n[curation.advantage]\nepsilon = 1e-4";
        let expected = AdvantageConfig::Grpo { epsilon: 1e-4 };
        assert_eq!(read(part).curation.advantage, expected);
        let off = "[trainer]\npreset = 'dapo'\n[curation.overlong]\nenabled = false";
        assert!(!read(off).curation.overlong.enabled);
    }

    #[test]
    fn curation_has_a_preset_of_its_own() {
        let config = read("[curation]\npreset = 'released'");
        assert_eq!(config.curation.preset, CurationPreset::Released);
        assert_eq!(config.curation.advantage, AdvantageConfig::released());
        assert!(!config.curation.trajectory_length.enabled);
        let sample = AdvantageConfig::StepWise {
            deviation: Deviation::Sample,
        };
        assert_eq!(
            read("[trainer]\npreset = 'released'").curation.advantage,
            sample
        );
    }

    #[test]
    fn mistakes_are_still_named() {
        let refused = |text: &str| toml::from_str::<RunConfig>(text).unwrap_err().to_string();
        let wrong = refused("[trainer]\npreset = 'drgrpo'");
        assert!(
            wrong.contains("drgrpo") && wrong.contains("dr-grpo"),
            "{wrong}"
        );
        let wrong = refused("[trainer]\npreset = 'dapo'\n[curation]\noverlong = 3");
        assert!(wrong.contains("overlong"), "{wrong}");
        let wrong = refused("[curation]\ndeviation = 'sample'");
        assert!(wrong.contains("step-wise"), "{wrong}");
    }
}
