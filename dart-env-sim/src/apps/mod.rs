//! [`AppPhone`]: a simulated phone with apps that keep what they hold in the system below them.
//!
//! | app | what it does |
//! |---|---|
//! | Camera | writes pictures to `/sdcard/DCIM` |
//! | Clock | alarms in a database; timers in the log |
//! | Contacts | a database; shows, adds, deletes, calls |
//! | Files | shows, renames and deletes what is in `/sdcard/Download` |
//! | Messages | a database; adds and deletes |
//! | Notes | files in `/sdcard/Notes` |
//! | Phone | calls: a database and the log |
//! | Recorder | writes recordings to `/sdcard/Recordings` |
//! | Settings | switches, a slider, the name of the phone |
//! | Tasks | a database; adds and ticks |
//!
//! The [`Platform`] may be seen from outside, such as by a shell: tasks are set up and judged there.
//!
//! ```
//! use std::sync::Arc;
//!
//! use dart_core::{Action, Device};
//! use dart_env_sim::{SimConfig, apps::{AppPhone, MemoryPlatform, Platform}};
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let platform = Arc::new(MemoryPlatform::default());
//! let mut phone = AppPhone::new(&SimConfig::phone(), Arc::clone(&platform) as Arc<dyn Platform>)?;
//! phone.perform(&Action::OpenApp { name: "camera".into() }).await?;
//! assert_eq!(platform.front(), "com.android.camera2");
//! # Ok::<(), dart_core::Error>(())
//! # }).unwrap();
//! ```

mod catalog;
mod deeds;
mod form;
mod phone;
mod platform;
mod screens;

pub use phone::AppPhone;
pub use platform::{MemoryPlatform, Platform, Row, Table};
