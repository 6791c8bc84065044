//! The vocabulary of DART: the traits that its parts implement and the records that travel between them.
//!
//! DART trains agents that operate graphical interfaces. Four modules run asynchronously:
//! environments produce observations, a policy decides, a curator turns finished trajectories
//! into batches, and a learner turns batches into new weights (arXiv 2509.23866 §3).
//! This crate holds what they say to each other and nothing else: it performs no I/O, knows no
//! tensors and starts no task.
//!
//! # Map
//!
//! | module | what |
//! |---|---|
//! | [`environment`], [`device`], [`task_driver`], [`policy`], [`curator`], [`learner`] | the traits, one file each |
//! | [`device_environment`] | turns a [`Device`] and a [`TaskDriver`] into an [`Environment`] |
//! | [`action`], [`key`], [`geometry`] | what an agent can do, and where |
//! | [`observation`] | what it sees |
//! | [`task`], [`outcome`], [`decision`], [`trajectory`], [`batch`], [`weights`] | the records |
//! | [`advantage`], [`selection`] | pure functions of the method: estimates of advantages, high-entropy steps |
//! | [`overlay`] | settings that were given over those that a preset implies |
//! | [`error`] | the one error type at trait boundaries |

#![forbid(unsafe_code)]

pub mod action;
pub mod advantage;
pub mod batch;
pub mod curator;
pub mod decision;
pub mod device;
pub mod device_environment;
pub mod environment;
pub mod error;
pub mod fault;
pub mod geometry;
pub mod ids;
pub mod key;
pub mod learner;
pub mod observation;
pub mod outcome;
pub mod overlay;
pub mod policy;
pub mod selection;
pub mod task;
pub mod task_driver;
pub mod trajectory;
pub mod weights;

pub use action::{Action, ActionKind, ActionSet, Direction, MouseButton};
pub use batch::{Batch, BatchImage, Group, Objective, Sample, SampleOrigin};
pub use curator::{Commit, Curator, CuratorStatus, RolloutRequest};
pub use decision::{Decision, ImageSpan, LogProbKind, ParsedAction, Prompt, Sampling};
pub use device::{Device, DeviceSpec};
pub use device_environment::{DeviceEnvironment, DeviceEnvironmentConfig};
pub use environment::{
    Demonstrate, EnvSpec, Environment, EnvironmentFactory, Reset, StepOutcome, StepStatus,
};
pub use error::{Error, ErrorKind, Result};
pub use geometry::{ModelPx, Norm, Rect, ScreenPx, Size, Viewport};
pub use ids::{BatchId, GroupId, PolicyVersion, TaskId, TrajectoryId};
pub use key::{Key, Modifier, Modifiers, NamedKey};
pub use learner::{Learner, LearnerReport};
pub use observation::{Frame, Observation, UiElement, UiRole};
pub use outcome::{Outcome, Reward, StopReason};
pub use policy::{DemonstrationEncoder, PastStep, Policy, PolicyInput};
pub use task::{Split, Task};
pub use task_driver::{Demonstrator, EpisodeEnd, TaskDriver};
pub use trajectory::{Step, Trajectory};
pub use weights::{WeightsHandle, WeightsSource};
