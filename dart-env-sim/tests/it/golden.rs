//! Frames, bit for bit. A change of the drawing or of the random streams changes what policies
//! were trained on, so it has to be made here too, on purpose.

use dart_core::{Demonstrate, Environment, Size, Split};
use dart_env_sim::SimConfig;

use crate::support::{configs, environment, fnv};

/// A hash over the first frames and those after the expert's first action, of all families.
async fn digest(config: &SimConfig) -> u64 {
    let mut env = environment(config);
    let mut hashes = Vec::new();
    for task in config.tasks(Split::Train).unwrap() {
        for seed in 0..4 {
            let reset = env.reset(&task, seed).await.unwrap();
            hashes.extend(fnv(reset.observation.frame.rgb()).to_le_bytes());
            hashes.extend(fnv(reset.instruction.as_bytes()).to_le_bytes());
            let action = env.expert_action().await.unwrap().unwrap();
            let outcome = env.step(&action).await.unwrap();
            hashes.extend(fnv(outcome.observation.frame.rgb()).to_le_bytes());
        }
    }
    fnv(&hashes)
}

#[tokio::test]
async fn frames_are_as_ever() {
    let [desktop, phone] = configs();
    let large = SimConfig {
        screen: Size::new(1280, 800),
        ..desktop.clone()
    };
    let odd = SimConfig {
        screen: Size::new(391, 263),
        ..desktop.clone()
    };
    let expected = [
        (desktop, 0xc9cf_e47a_e186_bde2_u64),
        (phone, 0x341b_0d6a_24e0_5e31),
        (large, 0xb93a_0048_e6ef_d394),
        (odd, 0x3dba_042b_058f_8256),
    ];
    for (config, expected) in expected {
        let found = digest(&config).await;
        assert_eq!(
            found, expected,
            "{:?} {}: {found:#018x}",
            config.device, config.screen
        );
    }
}

#[tokio::test]
async fn two_environments_show_the_same() {
    for config in configs() {
        let (mut one, mut other) = (environment(&config), environment(&config));
        for task in config.tasks(Split::Words).unwrap() {
            // The second has already shown something else.
            other.reset(&task, 1).await.unwrap();
            let first = one.reset(&task, 7).await.unwrap();
            let second = other.reset(&task, 7).await.unwrap();
            assert_eq!(first.observation.frame, second.observation.frame);
            assert_eq!(first.observation.ui, second.observation.ui);
            assert_eq!(first.instruction, second.instruction);
        }
    }
}
