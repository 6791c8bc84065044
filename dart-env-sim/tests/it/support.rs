//! Both devices, episodes to the end, a hash.

use dart_core::{Demonstrate, Environment, Result, StepStatus, Task};
use dart_env_sim::{SimConfig, SimEnvironment, SimFactory};

pub(crate) fn configs() -> [SimConfig; 2] {
    [SimConfig::default(), SimConfig::phone()]
}

pub(crate) fn environment(config: &SimConfig) -> SimEnvironment {
    SimFactory::new(config.clone())
        .unwrap()
        .environment()
        .unwrap()
}

/// Lets the expert finish the episode; returns its number of steps.
pub(crate) async fn demonstrate(env: &mut SimEnvironment, task: &Task, seed: u64) -> Result<u32> {
    env.reset(task, seed).await?;
    let mut steps = 0;
    while let Some(action) = env.expert_action().await? {
        steps += 1;
        if env.step(&action).await?.status != StepStatus::Running {
            break;
        }
    }
    Ok(steps)
}

/// FNV-1a, 64 bits.
pub(crate) fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
