//! `test`: sets up the real servers where it may, runs every test, names every skipped suite.

use std::{
    collections::BTreeSet,
    io::{BufRead, BufReader, Write},
    process::{Child, Stdio},
};

use anyhow::{Context, Result, bail};

use crate::{process, setup};

/// What the tests may not skip in continuous integration.
const REQUIRED: &str = "vnc,miniwob,osworld-editor,osworld-browser,adb,qemu,wayvnc";

pub(crate) fn run(arguments: &[String]) -> Result<()> {
    setup::run_or_explain();
    let mut cargo = process::cargo();
    cargo.args(["test", "--workspace"]).args(arguments);
    if !arguments.iter().any(|argument| argument == "--") {
        cargo.arg("--");
    }
    cargo.arg("--show-output");
    cargo.env("DART_MINIWOB_PAGES", setup::miniwob_pages());
    if process::is_ci() && std::env::var_os("DART_TEST_REQUIRE").is_none() {
        cargo.env("DART_TEST_REQUIRE", REQUIRED);
    }
    let mut child = cargo
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start `cargo test --workspace`")?;
    let report = Report::read(&mut child)?;
    let status = child.wait()?;
    report.print();
    if !status.success() {
        bail!("tests failed ({status}); the whole output is in target/test.log");
    }
    if process::is_ci() && report.unexpected_skips() > 0 {
        bail!("in continuous integration a skipped suite is a failure; they are listed above");
    }
    Ok(())
}

/// What a person wants to know of a test run.
#[derive(Default)]
struct Report {
    passed: u64,
    failed: u64,
    ignored: u64,
    skipped: BTreeSet<String>,
}

impl Report {
    /// Passes on what matters, keeps everything in `target/test.log`.
    fn read(child: &mut Child) -> Result<Self> {
        let folder = process::root().join("target");
        std::fs::create_dir_all(&folder)?;
        let mut log = std::fs::File::create(folder.join("test.log"))?;
        let mut report = Self::default();
        let stdout = child
            .stdout
            .take()
            .context("the output of cargo test is piped")?;
        for line in BufReader::new(stdout).split(b'\n') {
            let line = String::from_utf8_lossy(&line?).into_owned();
            writeln!(log, "{line}")?;
            if report.note(&line) {
                println!("{line}");
            }
        }
        Ok(report)
    }

    /// Counts a line; `true` if a person wants to see it at once.
    fn note(&mut self, line: &str) -> bool {
        if let Some(counts) = line.strip_prefix("test result: ") {
            self.passed += count_before(counts, " passed");
            self.failed += count_before(counts, " failed");
            self.ignored += count_before(counts, " ignored");
            return true;
        }
        if line.starts_with("skipped: ") {
            self.skipped.insert(line.to_owned());
        }
        line.contains("panicked at") || line.ends_with("... FAILED")
    }

    /// Skips that nobody chose. A suite for the user's own server (`DART_TEST_VNC` and the like) is
    /// run when one is named, and is nobody's fault otherwise.
    fn unexpected_skips(&self) -> usize {
        self.skipped
            .iter()
            .filter(|line| !line.contains("DART_TEST_"))
            .count()
    }

    fn print(&self) {
        for line in &self.skipped {
            println!("{line}");
        }
        let Self {
            passed,
            failed,
            ignored,
            ..
        } = self;
        println!(
            "{passed} passed, {failed} failed, {} skipped",
            ignored + self.skipped.len() as u64
        );
    }
}

fn count_before(text: &str, word: &str) -> u64 {
    let before = text.split(word).next().unwrap_or_default();
    before
        .rsplit(|c: char| !c.is_ascii_digit())
        .next()
        .and_then(|n| n.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_skips_are_read() {
        let mut report = Report::default();
        let result = "test result: ok. 12 passed; 3 failed; 1 ignored; 0 measured; 0 filtered out";
        assert!(report.note(result));
        assert!(!report.note("skipped: Xtigervnc is not installed"));
        assert!(!report.note("skipped: Xtigervnc is not installed"));
        assert!(!report.note("skipped: c01: DART_TEST_VNC=host:port is not set"));
        assert_eq!((report.passed, report.failed, report.ignored), (12, 3, 1));
        assert_eq!((report.skipped.len(), report.unexpected_skips()), (2, 1));
    }
}
