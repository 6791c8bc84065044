//! A simulated desktop and a simulated phone: real widgets, pixels, seeded tasks, scripted experts.
//!
//! [`SimDevice`] is a screen full of widgets drawn in RGB with an embedded bitmap font; they react
//! to actions as those of a real toolkit do. [`SimDriver`] sets tasks up on it, judges them on the
//! state of the widgets and demonstrates them. [`SimFactory`] joins the two by
//! [`DeviceEnvironment`](dart_core::DeviceEnvironment).
//!
//! What a policy has to know is on the screen (focus, ticks, selection, whether something was
//! copied), so none needs a memory. A wrong command (another button, Submit with wrong content)
//! ends the episode with reward 0; a click beside everything costs a step.
//!
//! # Splits
//!
//! The kinds and places of the widgets of a screen are hashed. Training shows only layouts whose
//! hash is not a multiple of 4, [`Split::Layouts`](dart_core::Split::Layouts) and
//! [`Split::Words`](dart_core::Split::Words) only the others: no layout is on both sides.
//! `Words` also draws its labels from words that training never shows.
//!
//! # Task families
//!
//! | family | instruction | expert's steps |
//! |---|---|---|
//! | `click-button` | `click "save"` | 1 |
//! | `tick-boxes` | `tick "red" "blue"` | 2-3 |
//! | `enter-text` | `type "lamp" in the field` | 3 |
//! | `menu` | `menu "edit" "copy"` | 2 |
//! | `dialog` | `close "mail"` | 1 |
//! | `slider` | `set 5` | 2 |
//! | `scroll-list` | `pick "plum"` | 1-3 |
//! | `form` | `check "cat" type "lamp" choose "red"` | 5 |
//! | `copy-text` | `copy the text` | 5 |
//! | `tabs` | `open "home" press "go"` | 1-2 |
//! | `open-app` (phone) | `open "music"` | 1 |
//! | `toggle-setting` (phone) | `toggle "radio"` | 1 |
//! | `delete-item` (phone) | `delete "milk"` | 2 |
//! | `find-item` (phone) | `find "plum"` | 1-3 |
//!
//! [`apps`] has another phone, with a home screen and apps over a system that can be looked into.
//!
//! # Example
//!
//! ```
//! use dart_core::{Environment, Demonstrate, Split, StepStatus};
//! use dart_env_sim::{SimConfig, SimFactory};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! let config = SimConfig::default();
//! let task = &config.tasks(Split::Train)?[0];
//! let mut environment = SimFactory::new(config)?.environment()?;
//! let reset = environment.reset(task, 7).await?;
//! assert!(reset.instruction.starts_with("click \""));
//! let action = environment.expert_action().await?.expect("the expert knows");
//! assert_eq!(environment.step(&action).await?.status, StepStatus::Terminated);
//! assert!(environment.score().await?.is_success());
//! # Ok::<(), dart_core::Error>(())
//! # }).unwrap();
//! ```

#![forbid(unsafe_code)]

pub mod apps;
mod canvas;
mod config;
mod device;
mod driver;
mod error;
mod factory;
mod families;
mod font;
mod geom;
mod goal;
mod layout;
mod ui;
mod words;

pub use config::{SimConfig, SimDeviceKind};
pub use device::SimDevice;
pub use driver::SimDriver;
pub use factory::{SimEnvironment, SimFactory};
