//! Metrics that are judged by a program of the user's: JSON in, a score out (`docs/osworld.md`).
//!
//! The program is started once for each metric of each judgement, without a shell, with a clean
//! environment and a deadline. It runs on this machine, so only `--allow-host-exec` allows it.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::{Map, Value, json};

use super::{
    config::EvaluatorConfig,
    error::{Fault, bounded},
    local::run::{Job, to_end},
    state::{File, State},
};
use crate::desktop::bare::private_folder;

/// Longest answer, bytes.
const MAX_ANSWER: usize = 64 << 10;

/// What the evaluator is told about the guest.
#[derive(Clone, Debug)]
pub(super) enum Place {
    /// A desktop of this machine.
    Local,
    /// The address of OSWorld's server.
    Server(String),
}

/// One question.
#[derive(Debug)]
pub(super) struct Question<'a> {
    pub(super) task: &'a str,
    pub(super) metric: &'a str,
    pub(super) result: Option<&'a State>,
    pub(super) expected: Option<&'a State>,
    pub(super) options: &'a Map<String, Value>,
    pub(super) place: &'a Place,
}

/// A folder that goes with its owner.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _gone = fs::remove_dir_all(&self.0);
    }
}

fn write(folder: &Path, file: &File) -> Result<Value, Fault> {
    let path = folder.join(&file.name);
    let cannot = |cause| Fault::Read {
        what: path.display().to_string(),
        cause,
    };
    fs::create_dir_all(folder).map_err(cannot)?;
    fs::write(&path, &file.content).map_err(cannot)?;
    Ok(json!(path))
}

/// `state` as the evaluator gets it; files lie in `folder`.
fn describe(folder: &Path, state: Option<&State>) -> Result<Value, Fault> {
    Ok(match state {
        None => Value::Null,
        Some(State::Missing) => json!({ "kind": "missing" }),
        Some(State::Value(value)) => json!({ "kind": "value", "value": value }),
        Some(State::Left(getter)) => json!({ "kind": "getter", "getter": getter }),
        Some(State::File(file)) => json!({ "kind": "file", "path": write(folder, file)? }),
        Some(State::Files(files)) => {
            let paths = files.iter().map(|file| match file {
                Some(file) => write(folder, file),
                None => Ok(Value::Null),
            });
            let paths = paths.collect::<Result<Vec<_>, _>>()?;
            json!({ "kind": "files", "paths": paths })
        }
    })
}

/// What of this process's environment the evaluator gets.
fn environment() -> Vec<(&'static str, String)> {
    const KEPT: [&str; 7] = [
        "PATH",
        "HOME",
        "LANG",
        "TMPDIR",
        "PYTHONPATH",
        "VIRTUAL_ENV",
        "LD_LIBRARY_PATH",
    ];
    let kept = KEPT
        .iter()
        .filter_map(|name| Some((*name, std::env::var(name).ok()?)));
    kept.collect()
}

/// Reads `{"score": s}` or `s`.
fn read(what: &str, said: &str) -> Result<f64, Fault> {
    let answer: Option<Value> = serde_json::from_str(said.trim()).ok();
    let score = answer.as_ref().and_then(|answer| match answer {
        Value::Object(object) => object.get("score")?.as_f64(),
        other => other.as_f64(),
    });
    score
        .filter(|score| (0.0..=1.0).contains(score))
        .ok_or_else(|| Fault::Answer {
            what: what.to_owned(),
            why: format!("not a score of 0 to 1: {:?}", bounded(said)),
        })
}

/// Asks the evaluator.
///
/// # Errors
/// If it cannot be run, is late, fails, or gives anything but a number from 0 to 1.
pub(super) async fn ask(config: &EvaluatorConfig, question: Question<'_>) -> Result<f64, Fault> {
    let folder = Folder(private_folder("dart-judge")?);
    let guest = match question.place {
        Place::Local => json!({ "kind": "local" }),
        Place::Server(address) => json!({ "kind": "server", "address": address }),
    };
    let input = json!({
        "format": 1,
        "task": question.task,
        "metric": question.metric,
        "result": describe(&folder.0.join("result"), question.result)?,
        "expected": describe(&folder.0.join("expected"), question.expected)?,
        "options": question.options,
        "guest": guest,
    });
    let what = format!("the evaluator {}", config.command.join(" "));
    let output = to_end(Job {
        words: &config.command,
        environment: &environment(),
        folder: Path::new("."),
        input: input.to_string().into_bytes(),
        deadline: Duration::from_millis(config.timeout_ms),
        limit: MAX_ANSWER,
        // Programs warn and show progress there.
        talkative: true,
    })
    .await?;
    if output.code != 0 {
        let why = format!("exit status {}: {}", output.code, bounded(&output.stderr));
        return Err(Fault::Answer { what, why });
    }
    read(&what, &output.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evaluator(script: &str, timeout_ms: u64) -> EvaluatorConfig {
        EvaluatorConfig {
            command: ["sh", "-c", script].map(str::to_owned).to_vec(),
            metrics: Vec::new(),
            timeout_ms,
        }
    }

    async fn judged(script: &str, timeout_ms: u64) -> Result<f64, Fault> {
        let result = State::File(File {
            name: "a.txt".into(),
            content: b"content".to_vec(),
        });
        let question = Question {
            task: "t",
            metric: "m",
            result: Some(&result),
            expected: None,
            options: &Map::new(),
            place: &Place::Local,
        };
        ask(&evaluator(script, timeout_ms), question).await
    }

    #[tokio::test]
    async fn a_program_judges_files_and_they_are_gone_afterwards() {
        let seen = std::env::temp_dir().join(format!("dart-judge-seen-{}", std::process::id()));
        let script = format!(
            "path=$(sed 's/.*\"path\":\"\\([^\"]*\\)\".*/\\1/'); printf %s \"$path\" > {0}; \
             [ \"$(cat \"$path\")\" = content ] && echo '{{\"score\": 0.5}}'",
            seen.display()
        );
        assert_eq!(judged(&script, 10_000).await.unwrap(), 0.5);
        let path = fs::read_to_string(&seen).unwrap();
        fs::remove_file(&seen).unwrap();
        assert!(path.ends_with("result/a.txt"), "{path}");
        assert!(!Path::new(&path).exists());
        assert_eq!(judged("echo 1", 10_000).await.unwrap(), 1.0);
    }

    #[tokio::test]
    async fn anything_but_a_score_is_a_fault() {
        for script in [
            "exit 1",
            "echo",
            "echo 1.5",
            "echo nan",
            "echo '{\"score\": \"1\"}'",
            "echo 1 2",
            "echo 1; exit 2",
            "echo 1 >&2",
            "echo -0.1",
            "echo 1e999",
            "echo NaN",
            "echo Infinity",
            "echo true",
            "echo null",
            "echo '[1]'",
            "echo '{}'",
            "echo '{\"score\": NaN}'",
            "echo '{\"score\": 2}'",
            "echo '{\"score\": null}'",
            "printf '[%.0s' $(seq 5000)",
            "printf '\\377\\376'",
            "kill -9 $$",
        ] {
            let error = judged(script, 10_000).await.unwrap_err();
            assert!(matches!(error, Fault::Answer { .. }), "{script}: {error}");
        }
        assert!(matches!(
            judged("sleep 30", 200).await,
            Err(Fault::Deadline { .. })
        ));
        let long = judged("head -c 1000000 /dev/zero", 10_000).await;
        assert!(matches!(long, Err(Fault::TooLarge { .. })));
        let endless = judged("yes 1", 10_000).await;
        assert!(matches!(endless, Err(Fault::TooLarge { .. })));
        // What it says beside the score is not the score, however long it is.
        let chatty = judged("head -c 3000000 /dev/zero >&2; echo 0.25", 10_000).await;
        assert_eq!(chatty.unwrap(), 0.25);
        let error = judged("head -c 3000000 /dev/zero >&2; exit 7", 10_000).await;
        let said = error.unwrap_err().to_string();
        assert!(said.contains("exit status 7") && said.len() < 500, "{said}");
    }
}
