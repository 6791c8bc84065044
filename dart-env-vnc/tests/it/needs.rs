//! What the real-server suites need, and how a suite that lacks it is skipped.

use std::path::{Path, PathBuf};

use dart_env_vnc::DesktopConfig;

/// The programs of an own desktop are installed. Otherwise prints why the suite is skipped; where
/// `DART_TEST_REQUIRE` names the suite, that is a failure.
pub(crate) fn desktop(suite: &str) -> bool {
    match DesktopConfig::default().preflight() {
        Ok(()) => true,
        Err(error) => skip(suite, &error.to_string()),
    }
}

/// The folder of the MiniWoB++ pages: `DART_MINIWOB_PAGES`, or `target/miniwob/html`.
pub(crate) fn pages() -> PathBuf {
    std::env::var_os("DART_MINIWOB_PAGES").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/miniwob/html"),
        PathBuf::from,
    )
}

/// As [`skip`], for what no set-up command installs: who wants it names the suite.
pub(crate) fn skip_unless_wanted(suite: &str, why: &str) -> bool {
    skip(suite, &format!("{why} (DART_TEST_REQUIRE={suite} insists)"))
}

/// Prints why `suite` is skipped, or fails if it must not be.
#[allow(clippy::print_stdout, reason = "a skip has to be seen")]
pub(crate) fn skip(suite: &str, why: &str) -> bool {
    let why = dart_testkit::suite::gate(suite, Err(why.to_owned())).unwrap_or_default();
    println!("skipped: {suite}: {why}");
    false
}
