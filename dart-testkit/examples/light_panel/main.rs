//! One episode on the panel, played by its expert: `cargo run -p dart-testkit --example light_panel`.

#![forbid(unsafe_code)]
#![allow(
    unreachable_pub,
    clippy::new_without_default,
    clippy::wildcard_imports,
    reason = "the backend is written as a crate of its own would be"
)]

mod expert;
mod panel;
mod tasks;

use dart_core::{EnvironmentFactory, Result, StepStatus};
use panel::PanelFactory;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let mut env = PanelFactory.create_demonstrator().await?;
    let reset = env.reset(&tasks::tasks()?[0], 7).await?;
    say(&reset.instruction);
    while let Some(action) = env.expert_action().await? {
        say(&format!("{action:?}"));
        if env.step(&action).await?.status != StepStatus::Running {
            break;
        }
    }
    say(&format!("reward {}", env.score().await?.value()));
    env.close().await
}

#[allow(clippy::print_stdout, reason = "an example shows what it does")]
fn say(line: &str) {
    println!("{line}");
}
