//! Named fault points: places where a crash test may end the process.
//!
//! A point does nothing until a program installs a hook, and does not exist in release builds
//! without the feature `fault-points`. The hook decides what happens; this crate never ends anything.
//!
//! ```
//! use std::sync::atomic::{AtomicU32, Ordering};
//!
//! static PASSED: AtomicU32 = AtomicU32::new(0);
//! dart_core::fault::install(|name| {
//!     assert_eq!(name, "row.inserted");
//!     PASSED.fetch_add(1, Ordering::Relaxed);
//! });
//! dart_core::fault::point("row.inserted");
//! assert_eq!(PASSED.load(Ordering::Relaxed), u32::from(dart_core::fault::ENABLED));
//! ```

use std::sync::OnceLock;

/// What is called at each point, with its name.
pub type Hook = fn(&'static str);

static HOOK: OnceLock<Hook> = OnceLock::new();

/// Whether points exist in this build.
pub const ENABLED: bool = cfg!(any(debug_assertions, feature = "fault-points"));

/// Makes `hook` the process's hook. `false` if there is one already: the first stays.
pub fn install(hook: Hook) -> bool {
    HOOK.set(hook).is_ok()
}

/// Passes the point `name`: calls the hook, if there is one and this build has points.
#[inline]
pub fn point(name: &'static str) {
    if ENABLED && let Some(hook) = HOOK.get() {
        hook(name);
    }
}
