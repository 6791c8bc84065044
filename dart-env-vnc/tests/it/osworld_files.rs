//! Every task file of OSWorld parses, and what each needs is known.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use dart_env_vnc::osworld::{
    Capabilities, Evaluator, EvaluatorConfig, Getter, GuestConfig, HostExec, OsworldConfig,
    OsworldTask, ServerConfig, Support, TaskFile,
};

use crate::needs;

/// The folder of OSWorld's task files, which this repository does not hold.
fn folder() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/osworld/tasks");
    if folder.is_dir() {
        return Some(folder);
    }
    needs::skip_unless_wanted(
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

/// How many of `files` are supported, and the reasons for the rest, most frequent first.
fn supported(
    files: &[TaskFile],
    config: &OsworldConfig,
    host_exec: HostExec,
) -> (usize, Vec<(usize, String)>) {
    let capabilities = Capabilities::of(config, host_exec).unwrap();
    let mut reasons = BTreeMap::<String, usize>::new();
    let mut count = 0;
    for file in files {
        match capabilities.support(&file.task) {
            Support::Supported => count += 1,
            Support::Unsupported { reasons: all } => {
                assert!(!all.is_empty());
                for reason in all {
                    *reasons.entry(reason).or_default() += 1;
                }
            }
        }
    }
    let mut list: Vec<_> = reasons.into_iter().map(|(reason, n)| (n, reason)).collect();
    list.sort_by(|a, b| b.cmp(a));
    (count, list)
}

/// What is supported of the 246 files without any reference file. Each of the others has a reason.
#[test]
fn what_is_supported_is_known_before_a_run() {
    let Some(folder) = folder() else { return };
    let files = TaskFile::read_all(&folder).unwrap();
    let local = OsworldConfig::default();
    let server = OsworldConfig {
        guest: GuestConfig::Servers {
            servers: vec![ServerConfig::default()],
        },
        ..OsworldConfig::default()
    };
    let evaluator = Some(EvaluatorConfig {
        command: vec!["judge".into()],
        metrics: Vec::new(),
        timeout_ms: 1,
    });
    let judged = OsworldConfig {
        evaluator,
        ..server.clone()
    };
    let dry = tempfile::tempdir().unwrap();
    let complete = OsworldConfig {
        files_dir: Some(dry.path().to_owned()),
        guest: GuestConfig::Servers {
            servers: vec![ServerConfig {
                proxy: true,
                password_env: Some("PASSWORD".into()),
                ..ServerConfig::default()
            }],
        },
        ..judged.clone()
    };
    for file in &files {
        write_references(dry.path(), &file.task);
    }
    let counts = [
        supported(&files, &local, HostExec::Denied),
        supported(&files, &local, HostExec::Allowed),
        supported(&files, &server, HostExec::Denied),
        supported(&files, &judged, HostExec::Allowed),
        supported(&files, &complete, HostExec::Allowed),
    ];
    for (count, reasons) in &counts {
        let few: Vec<_> = reasons.iter().take(8).collect();
        println!("{count} supported; most frequent of the other reasons: {few:?}");
    }
    // All but those that need an account or write into the browser's history.
    assert_eq!(
        counts.each_ref().map(|(count, _)| *count),
        [15, 23, 47, 95, 237]
    );
}

/// Empty files in place of the reference files.
fn write_references(folder: &Path, task: &OsworldTask) {
    let Evaluator::Checks { checks, .. } = &task.evaluator else {
        return;
    };
    for source in checks
        .iter()
        .flat_map(|check| check.result.iter().chain(&check.expected))
    {
        if let Getter::CloudFile(files) = &source.getter {
            let own = folder.join(task.id.as_str());
            std::fs::create_dir_all(&own).unwrap();
            for file in files {
                std::fs::write(own.join(&file.dest), "").unwrap();
            }
        }
    }
}
