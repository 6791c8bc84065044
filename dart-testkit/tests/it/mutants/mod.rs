//! The suites have teeth: an implementation that breaks one line fails the check of that line,
//! and no other where lines can be told apart.

mod curator;
mod device;
mod driver;
mod environment;
mod learner;
mod policy;

use std::sync::{Mutex, MutexGuard, PoisonError};

use dart_testkit::{Checked, Verdict};

/// Locks, whoever panicked before.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Collects what did not come out as expected, so that one run shows all of it.
#[derive(Default)]
pub(crate) struct Expectations(Vec<String>);

impl Expectations {
    /// Exactly the checks `expected` (numbers, separated by blanks) have to fail, and all others to
    /// apply and pass.
    pub(crate) fn compare(
        &mut self,
        flaw: &str,
        results: &[(&'static str, Checked)],
        expected: &str,
    ) {
        let failed = results.iter().filter(|(_, checked)| checked.is_err());
        let failures: Vec<_> = failed
            .clone()
            .map(|(name, checked)| (name, checked))
            .collect();
        let numbers: Vec<_> = failed.map(|(name, _)| &name[..3]).collect();
        let numbers = numbers.join(" ");
        if numbers != expected {
            let line = format!("{flaw}: [{numbers}] failed, expected [{expected}]: {failures:?}");
            self.0.push(line);
        }
        let absent = |checked: &Checked| matches!(checked, Ok(Verdict::NotApplicable(_)));
        if let Some(absent) = results.iter().find(|(_, checked)| absent(checked)) {
            self.0.push(format!("{flaw}: {absent:?}"));
        }
    }

    pub(crate) fn assert_met(&self) {
        assert!(self.0.is_empty(), "{}", self.0.join("\n\n"));
    }
}
