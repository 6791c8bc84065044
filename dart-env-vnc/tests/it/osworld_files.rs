//! Every task file of OSWorld parses, and what each needs is known.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use dart_env_vnc::osworld::{Evaluator, TaskFile};

use crate::needs;

/// The folder of OSWorld's task files, which this repository does not hold.
fn folder() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/osworld/tasks");
    if folder.is_dir() {
        return Some(folder);
    }
    needs::skip(
        "osworld-files",
        "no ../shared/osworld/tasks beside the repository",
    );
    None
}

#[test]
fn every_file_parses_and_no_step_is_unknown() {
    let Some(folder) = folder() else { return };
    let files = TaskFile::read_all(&folder).unwrap();
    assert_eq!(files.len(), 246);
    let mut kinds = BTreeMap::<String, usize>::new();
    let mut infeasible = 0;
    for file in &files {
        for step in &file.task.config {
            *kinds.entry(step.kind().to_owned()).or_default() += 1;
            assert!(
                !matches!(step, dart_env_vnc::osworld::SetupStep::Other { .. }),
                "{}: {step:?}",
                file.path.display()
            );
        }
        match &file.task.evaluator {
            Evaluator::Infeasible => infeasible += 1,
            Evaluator::Checks { unknown, .. } => assert!(unknown.is_empty(), "{unknown:?}"),
        }
    }
    // Counted by hand over the same files.
    assert_eq!(infeasible, 22);
    assert_eq!(
        (kinds["download"], kinds["launch"], kinds["execute"]),
        (189, 188, 122)
    );
    assert_eq!((kinds["open"], kinds["activate_window"]), (101, 41));
}
