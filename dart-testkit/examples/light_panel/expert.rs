//! How the tasks are solved, for demonstrations. Optional.

use async_trait::async_trait;
use dart_core::{Action, Demonstrator, Result, ScreenPx};

use super::panel::{Goal, Panel};

#[async_trait]
impl Demonstrator<Panel> for Goal {
    async fn expert_action(&mut self, panel: &mut Panel) -> Result<Option<Action>> {
        let light = (*panel.lights()? ^ self.0).trailing_zeros() as i32;
        let click = || Action::click(ScreenPx::new(light % 3 * 32 + 16, light / 3 * 32 + 16));
        Ok(Some(if light < 6 { click() } else { Action::Done }))
    }
}
