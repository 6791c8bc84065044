//! Small in-memory implementations: a screen with one red square, and policies that click.

mod curator;
mod device;
mod driver;
mod environment;
mod learner;
mod policy;
mod weights;

pub use curator::{MemoryCurator, MemoryCuratorConfig, TrajectoryShelf};
pub use device::{FakeDevice, FakeDeviceConfig};
pub use driver::{FakeDriver, HasFakeDevice};
pub use environment::{FakeConfig, FakeEnvironment, FakeFactory, task};
pub use learner::FakeLearner;
pub use policy::{FakePolicy, ScriptedPolicy};
pub use weights::FakeWeights;
