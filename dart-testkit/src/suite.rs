//! What all suites share: verdicts, settings, the runner of one check, and the macro that turns a
//! list of checks into a suite.

use std::{fmt, future::Future, time::Duration};

use dart_core::{Error, ErrorKind};

/// How a check ended, if it did not fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The contract line holds.
    Passed,
    /// The check cannot be made here, for this reason.
    NotApplicable(String),
}

impl Verdict {
    /// Shorthand for a check that cannot be made.
    pub fn not_applicable(why: impl Into<String>) -> Self {
        Self::NotApplicable(why.into())
    }
}

/// What broke a contract line, in words.
#[derive(Clone, PartialEq, Eq)]
pub struct Failure(pub String);

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self(format!("unexpected error: {error}"))
    }
}

impl From<String> for Failure {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&str> for Failure {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

/// Result of one check.
pub type Checked = Result<Verdict, Failure>;

/// Which clock a check runs on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clock {
    /// The wall clock: for everything that talks to a process, a thread or a socket.
    #[default]
    Real,
    /// Tokio's paused clock: waits cost nothing. For pure in-memory implementations.
    Paused,
}

/// How the checks of one harness are run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Checks that cannot be made here, by name (`c14_a_stalled_peer_times_out`) or number (`c14`).
    pub not_applicable: &'static [&'static str],
    /// Which clock.
    pub clock: Clock,
    /// Longest time of one check. Default 60 s.
    pub limit: Duration,
    /// Within which the implementation promises to give up on a stalled peer, with some slack.
    /// Default 15 s.
    pub deadline: Duration,
    /// Why nothing can be checked on this machine (a server that is not installed), if so. The
    /// checks then print the reason and pass. Use [`gate`], which fails where a skip is forbidden.
    pub skipped: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            not_applicable: &[],
            clock: Clock::Real,
            limit: Duration::from_mins(1),
            deadline: Duration::from_secs(15),
            skipped: None,
        }
    }
}

impl Settings {
    fn expects_not_applicable(&self, name: &str) -> bool {
        self.not_applicable
            .iter()
            .any(|entry| *entry == name || number(name) == *entry)
    }
}

/// `c14` of `c14_a_stalled_peer_times_out`.
fn number(name: &str) -> &str {
    name.split('_').next().unwrap_or(name)
}

/// A way in which a peer fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is there but does not answer any more.
    Stall,
    /// The connection is cut.
    Cut,
}

/// Something whose peer can be made to fail.
pub struct Breakable<T: ?Sized> {
    /// What is tested.
    pub subject: Box<T>,
    /// Makes the peer fail from now on.
    pub break_it: Box<dyn FnOnce() + Send>,
    /// Makes a peer available again, if that is possible: recovery has to succeed afterwards.
    pub heal: Option<Box<dyn FnOnce() + Send>>,
}

impl<T: ?Sized> fmt::Debug for Breakable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Breakable").finish_non_exhaustive()
    }
}

/// Fails with `message` unless `holds`.
pub(crate) fn ensure(holds: bool, message: impl Into<String>) -> Result<(), Failure> {
    if holds {
        Ok(())
    } else {
        Err(Failure(message.into()))
    }
}

/// The result has to be an error of `kind`.
pub(crate) fn ensure_kind<T>(
    result: dart_core::Result<T>,
    kind: ErrorKind,
    what: &str,
) -> Result<(), Failure> {
    match result {
        Err(error) if error.kind() == kind => Ok(()),
        Err(error) => Err(Failure(format!(
            "{what} has to be {kind:?} and was {:?}: {error}",
            error.kind()
        ))),
        Ok(_) => Err(Failure(format!("{what} has to be {kind:?} and succeeded"))),
    }
}

/// The future has to finish within `limit`.
pub(crate) async fn within<F: Future>(
    limit: Duration,
    what: &str,
    future: F,
) -> Result<F::Output, Failure> {
    tokio::time::timeout(limit, future)
        .await
        .map_err(|_| Failure(format!("{what} took longer than {limit:?}")))
}

/// Runs one check as a test: builds a runtime, bounds the time, compares the verdict with what the
/// harness expects.
///
/// # Panics
/// If the contract line is broken: this is the body of a `#[test]`.
pub fn run_check(settings: &Settings, name: &str, check: impl Future<Output = Checked>) {
    if let Some(why) = &settings.skipped {
        say(&format!("skipped: {name}: {why}"));
        return;
    }
    match judge(settings, name, block_on(settings, name, check)) {
        Ok(None) => {}
        Ok(Some(note)) => say(&note),
        Err(failure) => panic!("{name}: {failure}"),
    }
}

/// Runs a future to its end on a runtime of its own, within the time limit.
fn block_on(settings: &Settings, name: &str, check: impl Future<Output = Checked>) -> Checked {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder
        .enable_all()
        .start_paused(settings.clock == Clock::Paused)
        .build()
        .map_err(|error| Failure(format!("no runtime: {error}")))?;
    runtime.block_on(async {
        match tokio::time::timeout(settings.limit, check).await {
            Ok(checked) => checked,
            Err(_) => Err(Failure(format!("{name} hangs: over {:?}", settings.limit))),
        }
    })
}

/// Compares a verdict with the harness's expectation; gives a note to print.
pub(crate) fn judge(
    settings: &Settings,
    name: &str,
    checked: Checked,
) -> Result<Option<String>, Failure> {
    let expected = settings.expects_not_applicable(name);
    match checked? {
        Verdict::Passed if expected => Err(Failure(
            "is named as not applicable, but applies: take it off the list".into(),
        )),
        Verdict::Passed => Ok(None),
        Verdict::NotApplicable(why) if expected => {
            Ok(Some(format!("not applicable: {name}: {why}")))
        }
        Verdict::NotApplicable(why) => Err(Failure(format!(
            "not applicable: {why}. Name it in Settings::not_applicable if that is meant"
        ))),
    }
}

/// The body of each suite's `coverage` test: prints which lines are not checked here and refuses
/// names that no check has.
///
/// # Panics
/// If a name in [`Settings::not_applicable`] belongs to no check.
pub fn run_coverage(settings: &Settings, suite: &str, names: &[&str]) {
    for entry in settings.not_applicable {
        let known = names
            .iter()
            .any(|name| name == entry || number(name) == *entry);
        assert!(known, "{entry} is not a check of the {suite} suite");
    }
    let left_out: Vec<_> = names
        .iter()
        .filter(|name| settings.expects_not_applicable(name))
        .collect();
    say(&format!(
        "{suite} suite: {} of {} contract lines checked; not applicable: {left_out:?}",
        names.len() - left_out.len(),
        names.len(),
    ));
}

/// Decides whether a suite that needs `what` (such as `vnc`) is skipped. Give the result to
/// [`Settings::skipped`].
///
/// # Panics
/// If it would be skipped although the environment variable `DART_TEST_REQUIRE` (names separated
/// by commas, or `all`) promises that it is there.
pub fn gate(what: &str, available: Result<(), String>) -> Option<String> {
    let why = available.err()?;
    let required = std::env::var("DART_TEST_REQUIRE").unwrap_or_default();
    let promised = is_promised(&required, what);
    assert!(!promised, "DART_TEST_REQUIRE names {what}, but: {why}");
    Some(why)
}

fn is_promised(required: &str, what: &str) -> bool {
    let mut names = required.split(',').map(str::trim);
    names.any(|name| name == what || name == "all")
}

#[allow(
    clippy::print_stdout,
    reason = "test output is what this function is for"
)]
fn say(line: &str) {
    println!("{line}");
}

/// Turns a list of checks into a suite: their names, a function that runs all of them, and the
/// exported macro that makes one `#[test]` of each. The first token is a dollar sign, which a
/// macro that makes a macro has no other way to write.
macro_rules! suite {
    ($d:tt $(#[$doc:meta])* $macro_name:ident in $module:ident for $harness:ident: $($check:ident),+ $(,)?) => {
        /// The names of all checks, in the order of the contract.
        pub const NAMES: &[&str] = &[$(stringify!($check)),+];

        /// Runs every check on the caller's runtime, whatever becomes of the others.
        pub async fn run_all<H: $harness>(harness: &H) -> Vec<(&'static str, $crate::suite::Checked)> {
            let limit = harness.settings().limit;
            let mut all = Vec::new();
            $(
                let checked = match tokio::time::timeout(limit, Box::pin($check(harness))).await {
                    Ok(checked) => checked,
                    Err(_) => Err($crate::suite::Failure(format!("hangs: over {limit:?}"))),
                };
                all.push((stringify!($check), checked));
            )+
            all
        }

        $(#[$doc])*
        #[macro_export]
        macro_rules! $macro_name {
            ($d harness:expr) => { $crate::$macro_name!(mod $macro_name, $d harness); };
            (mod $d name:ident, $d harness:expr) => {
                mod $d name {
                    #[allow(unused_imports, clippy::wildcard_imports, reason = "names of the harness expression")]
                    use super::*;

                    #[test]
                    fn coverage() {
                        let settings = $crate::$module::$harness::settings(&$d harness);
                        $crate::suite::run_coverage(&settings, stringify!($module), $crate::$module::NAMES);
                    }

                    $(
                        #[test]
                        fn $check() {
                            let harness = $d harness;
                            $crate::suite::run_check(
                                &$crate::$module::$harness::settings(&harness),
                                stringify!($check),
                                $crate::$module::$check(&harness),
                            );
                        }
                    )+
                }
            };
        }
    };
}
pub(crate) use suite;

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "c14_a_stalled_peer_times_out";

    #[test]
    fn exemptions_are_explicit_both_ways() {
        let plain = Settings::default();
        let exempt = Settings {
            not_applicable: &["c14"],
            ..Settings::default()
        };
        let absent = || Ok(Verdict::not_applicable("no peer"));
        assert!(judge(&plain, NAME, Ok(Verdict::Passed)).unwrap().is_none());
        assert!(judge(&plain, NAME, absent()).is_err());
        assert!(judge(&exempt, NAME, absent()).unwrap().is_some());
        assert!(judge(&exempt, NAME, Ok(Verdict::Passed)).is_err());
        assert!(judge(&exempt, NAME, Err("broken".into())).is_err());
    }

    #[test]
    #[should_panic(expected = "c99 is not a check")]
    fn unknown_exemptions_are_refused() {
        let settings = Settings {
            not_applicable: &["c99"],
            ..Settings::default()
        };
        run_coverage(&settings, "environment", &[NAME]);
    }

    #[test]
    fn skips_are_forbidden_by_name() {
        assert!(is_promised("vnc, miniwob", "miniwob"));
        assert!(is_promised("all", "vnc"));
        assert!(!is_promised("vnc-live", "vnc"));
        assert!(!is_promised("", "vnc"));
        assert_eq!(gate("vnc", Ok(())), None);
    }

    #[test]
    fn a_hanging_check_is_cut() {
        let settings = Settings {
            clock: Clock::Paused,
            ..Settings::default()
        };
        let checked = block_on(&settings, NAME, std::future::pending());
        assert!(checked.unwrap_err().0.contains("hangs"));
    }
}
