//! The task families: what is on the screen, what is asked, what solves it.

mod desktop;
mod phone;

use dart_core::Split;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use crate::{
    config::{SimConfig, SimDeviceKind},
    error::SimError,
    goal::Goal,
    layout::{self, Builder},
    ui::Ui,
    words::Words,
};

/// Layouts drawn for one task instance before giving up; one in four at least is accepted.
const ATTEMPTS: usize = 10_000;

/// A task instance: what is on the screen, what is asked, what solves it.
#[derive(Clone, Debug)]
pub(crate) struct Scene {
    pub(crate) instruction: String,
    pub(crate) ui: Ui,
    pub(crate) goal: Goal,
}

/// A kind of task.
#[derive(Debug)]
pub(crate) struct Family {
    pub(crate) name: &'static str,
    pub(crate) device: SimDeviceKind,
    /// Step limit: about twice the expert's longest way, plus 2.
    pub(crate) horizon: u32,
    /// Fills the screen; `None` if a widget found no room.
    build: fn(Builder<'_>) -> Option<Scene>,
}

/// All families of `device`.
pub(crate) fn of_device(device: SimDeviceKind) -> impl Iterator<Item = &'static Family> {
    let of_both = desktop::FAMILIES.iter().chain(phone::FAMILIES);
    of_both.filter(move |family| family.device == device)
}

/// The family `name` of `device`.
pub(crate) fn find(name: &str, device: SimDeviceKind) -> Result<&'static Family, SimError> {
    of_device(device)
        .find(|family| family.name == name)
        .ok_or_else(|| {
            let known: Vec<_> = of_device(device).map(|family| family.name).collect();
            let shown = name.chars().take(64).collect();
            SimError::Family(shown, known.join(", "))
        })
}

impl Family {
    /// The task instance `seed` of `split`. Reproducible.
    pub(crate) fn scene(
        &self,
        config: &SimConfig,
        split: Split,
        seed: u64,
    ) -> Result<Scene, SimError> {
        let (mut places, mut content) = self.streams(split, seed);
        for _ in 0..ATTEMPTS {
            let ui = Ui::new(config.logical_screen(), self.device == SimDeviceKind::Phone);
            let words = Words::new(&mut content, split, config.random_words);
            let builder = Builder::new(ui, config.grid, &mut places, words);
            let scene = (self.build)(builder);
            if let Some(scene) = scene.filter(|s| layout::allowed(layout::hash(&s.ui), split)) {
                return Ok(scene);
            }
        }
        Err(SimError::Layout(self.name))
    }

    /// Independent random streams for the layout and for the words.
    fn streams(&self, split: Split, seed: u64) -> (ChaCha8Rng, ChaCha8Rng) {
        let mut key = layout::mix(seed);
        for byte in self.name.bytes().chain(split.name().bytes()) {
            key = layout::mix(key ^ u64::from(byte));
        }
        let stream = |number| {
            let mut rng = ChaCha8Rng::seed_from_u64(key);
            rng.set_stream(number);
            rng
        };
        (stream(0), stream(1))
    }
}

/// The words in quotes, with spaces between.
fn quoted<S: AsRef<str>>(words: &[S]) -> String {
    let quoted: Vec<_> = words
        .iter()
        .map(|w| format!("\"{}\"", w.as_ref()))
        .collect();
    quoted.join(" ")
}

#[cfg(test)]
mod tests;
