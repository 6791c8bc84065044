//! Configuration: which device, how large, which tasks.

use dart_core::{Result, Size, Split, Task, TaskId};
use serde::{Deserialize, Serialize};

use crate::{
    error::SimError,
    families::{self, Family},
};

/// Which kind of device is simulated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SimDeviceKind {
    /// Mouse and keyboard; [`ActionSet::DESKTOP`](dart_core::ActionSet::DESKTOP).
    #[default]
    Desktop,
    /// Touch; [`ActionSet::PHONE`](dart_core::ActionSet::PHONE).
    Phone,
}

impl SimDeviceKind {
    /// The smallest screen on which every layout has room, and the default: the smaller the
    /// picture, the faster a policy learns on a CPU.
    pub const fn smallest_screen(self) -> Size {
        match self {
            Self::Desktop => Size::new(128, 96),
            Self::Phone => Size::new(96, 160),
        }
    }

    /// Name of the device in logs.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Desktop => "sim-desktop",
            Self::Phone => "sim-phone",
        }
    }
}

/// What is simulated.
///
/// ```
/// use dart_env_sim::{SimConfig, SimDeviceKind};
///
/// let phone: SimConfig = serde_json::from_str(r#"{"device": "phone"}"#)?;
/// assert_eq!(phone.device, SimDeviceKind::Phone);
/// assert_eq!(phone.screen.height, 160);
/// assert!(serde_json::from_str::<SimConfig>(r#"{"colour": "red"}"#).is_err());
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "Keys")]
pub struct SimConfig {
    /// Desktop (default) or phone.
    pub device: SimDeviceKind,
    /// Size of the screen. Default: [`SimDeviceKind::smallest_screen`]. From twice 128x96 (or
    /// 96x160) upwards everything is drawn larger by a whole factor and there is more room.
    pub screen: Size,
    /// Task families; empty (default) means all of the device.
    pub families: Vec<String>,
    /// Share of the labels that are random letters instead of words, in the training split.
    /// Default 0.7: with it a policy reads letters and so can read words it has never seen.
    pub random_words: f64,
    /// Widgets are placed at multiples of so many pixels (times the drawing factor), 1 to 8.
    /// Default 8: with 1 a small policy takes many times longer to learn to read.
    pub grid: u32,
}

/// [`SimConfig`] as written in a file.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Keys {
    device: SimDeviceKind,
    screen: Option<Size>,
    families: Vec<String>,
    random_words: f64,
    grid: u32,
}

impl Default for Keys {
    fn default() -> Self {
        Self {
            device: SimDeviceKind::Desktop,
            screen: None,
            families: Vec::new(),
            random_words: 0.7,
            grid: 8,
        }
    }
}

impl From<Keys> for SimConfig {
    fn from(keys: Keys) -> Self {
        Self {
            device: keys.device,
            screen: keys.screen.unwrap_or(keys.device.smallest_screen()),
            families: keys.families,
            random_words: keys.random_words,
            grid: keys.grid,
        }
    }
}

impl Default for SimConfig {
    fn default() -> Self {
        Keys::default().into()
    }
}

impl SimConfig {
    /// Widest and highest screen, px.
    pub const MAX_SIDE: u32 = 8192;

    /// The default phone.
    pub fn phone() -> Self {
        let device = SimDeviceKind::Phone;
        Keys {
            device,
            ..Keys::default()
        }
        .into()
    }

    /// The names of all task families of `device`.
    pub fn family_names(device: SimDeviceKind) -> impl Iterator<Item = &'static str> {
        families::of_device(device).map(|family| family.name)
    }

    /// One task for each family, named `sim.<family>` in training and `sim.<family>.<split>`
    /// otherwise. The seed given to `reset` picks the words, the target and the layout.
    ///
    /// # Errors
    /// [`Config`](dart_core::ErrorKind::Config) if a value is out of range or a family unknown.
    pub fn tasks(&self, split: Split) -> Result<Vec<Task>> {
        self.validate()?;
        let chosen = self.chosen()?;
        chosen.into_iter().map(|f| task_of(f, split)).collect()
    }

    /// Checks every value.
    pub(crate) fn validate(&self) -> Result<(), SimError> {
        let (least, most) = (self.device.smallest_screen(), Self::MAX_SIDE);
        let fits = |side: u32, least: u32| (least..=most).contains(&side);
        if !fits(self.screen.width, least.width) || !fits(self.screen.height, least.height) {
            return Err(SimError::Screen(self.screen, least));
        }
        if !(1..=8).contains(&self.grid) {
            return Err(SimError::Grid(self.grid));
        }
        if !(0.0..=1.0).contains(&self.random_words) {
            return Err(SimError::RandomWords(self.random_words));
        }
        self.chosen().map(drop)
    }

    fn chosen(&self) -> Result<Vec<&'static Family>, SimError> {
        if self.families.is_empty() {
            return Ok(families::of_device(self.device).collect());
        }
        let find = |name: &String| families::find(name, self.device);
        self.families.iter().map(find).collect()
    }

    /// By which factor everything is drawn larger.
    pub(crate) fn scale(&self) -> u32 {
        let base = self.device.smallest_screen();
        let fits = |side: u32, base: u32| side / (2 * base);
        fits(self.screen.width, base.width)
            .min(fits(self.screen.height, base.height))
            .max(1)
    }

    /// The screen before enlarging.
    pub(crate) fn logical_screen(&self) -> Size {
        let scale = self.scale();
        Size::new(
            self.screen.width.div_ceil(scale),
            self.screen.height.div_ceil(scale),
        )
    }
}

fn task_of(family: &Family, split: Split) -> Result<Task> {
    let id = match split {
        Split::Train => format!("sim.{}", family.name),
        held_out => format!("sim.{}.{}", family.name, held_out.name()),
    };
    Ok(Task {
        id: TaskId::new(id)?,
        family: family.name.to_owned(),
        split,
        horizon: family.horizon,
        params: serde_json::Value::Null,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use dart_core::ErrorKind;

    #[test]
    fn tasks_are_named_after_family_and_split() {
        let config = SimConfig {
            families: vec!["menu".into()],
            ..SimConfig::default()
        };
        let ids = |split| config.tasks(split).unwrap()[0].id.to_string();
        assert_eq!(ids(Split::Train), "sim.menu");
        assert_eq!(ids(Split::Layouts), "sim.menu.layouts");
        assert_eq!(ids(Split::Words), "sim.menu.words");
        assert!(SimConfig::default().tasks(Split::Train).unwrap().len() >= 9);
        assert!(SimConfig::phone().tasks(Split::Train).unwrap().len() >= 3);
    }

    #[test]
    fn faults_are_named() {
        type Fault = fn(&mut SimConfig);
        let cases: [(Fault, &str); 6] = [
            (|c| c.screen.width = 64, "screen"),
            (|c| c.screen.height = 100_000, "screen"),
            (|c| c.grid = 0, "grid"),
            (|c| c.random_words = f64::NAN, "random_words"),
            (|c| c.families = vec!["juggle".into()], "juggle"),
            (|c| c.families = vec!["open-app".into()], "open-app"),
        ];
        for (break_it, named) in cases {
            let mut config = SimConfig::default();
            break_it(&mut config);
            let error = config.tasks(Split::Train).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config);
            assert!(error.to_string().contains(named), "{error}");
        }
    }

    #[test]
    fn large_screens_are_enlarged() {
        let mut config = SimConfig::default();
        assert_eq!(
            (config.scale(), config.logical_screen()),
            (1, Size::new(128, 96))
        );
        config.screen = Size::new(1280, 800);
        assert_eq!(
            (config.scale(), config.logical_screen()),
            (4, Size::new(320, 200))
        );
        config.screen = Size::new(1366, 768);
        assert_eq!(
            (config.scale(), config.logical_screen()),
            (4, Size::new(342, 192))
        );
    }

    #[test]
    fn configurations_round_trip() {
        let json = serde_json::to_string(&SimConfig::phone()).unwrap();
        assert_eq!(
            serde_json::from_str::<SimConfig>(&json).unwrap(),
            SimConfig::phone()
        );
    }
}
