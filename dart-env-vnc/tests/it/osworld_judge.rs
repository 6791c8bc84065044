//! Metrics that a program of the user's judges: what it is asked, and what its answer comes to.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use dart_core::ErrorKind;
use dart_env_vnc::osworld::{EvaluatorConfig, HostExec};
use serde_json::{Value, json};

use crate::osworld_server::{Bench, file};

#[tokio::test]
async fn other_metrics_are_judged_by_the_users_program() {
    let mut bench = Bench::new().await;
    bench.server.with(|state| {
        state
            .files
            .insert("/home/user/a.xlsx".into(), b"table".to_vec());
    });
    // Passes if it is asked what the format says.
    let script = r#"import json, sys
q = json.load(sys.stdin)
ok = (q["format"], q["task"], q["metric"]) == (1, "t", "compare_table")
ok &= open(q["result"]["path"]).read() == "table" and q["options"] == {"rules": [1]}
ok &= q["expected"] == {"kind": "getter", "getter": {"type": "page_info", "url": "x"}}
ok &= q["guest"]["kind"] == "server" and q["guest"]["address"].startswith("127.0.0.1:")
print(json.dumps({"score": 0.5 if ok else 0.0}))"#;
    let command = ["python3", "-c", script].map(str::to_owned).to_vec();
    bench.config.evaluator = Some(EvaluatorConfig {
        command,
        metrics: vec!["compare_table".into()],
        timeout_ms: 20_000,
    });
    let evaluator = json!({
        "func": "compare_table", "result": file("/home/user/a.xlsx"),
        "expected": {"type": "page_info", "url": "x"}, "options": {"rules": [1]}
    });
    let score = bench.judge(&json!([]), &evaluator, HostExec::Allowed).await;
    assert_eq!(score.unwrap(), 0.5);
    // Without the flag the task is refused before the run, and says why.
    let error = bench
        .task(&json!([]), &evaluator, HostExec::Denied)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("--allow-host-exec"), "{error}");
    // A program that fails is a fault, not a score.
    bench.config.evaluator.as_mut().unwrap().command = vec!["false".into()];
    let score = bench.judge(&json!([]), &evaluator, HostExec::Allowed).await;
    assert_eq!(score.unwrap_err().kind(), ErrorKind::Protocol);
}

/// The program in the documentation judges with OSWorld's metrics, which print as they like.
#[tokio::test]
async fn the_documented_judge_judges() {
    let mut bench = Bench::new().await;
    bench.server.with(|state| {
        state
            .files
            .insert("/home/user/a.xlsx".into(), b"table".to_vec());
    });
    let text = include_str!("../../../docs/osworld.md");
    let program = text.split("```python\n").nth(1).unwrap();
    let program = program.split("```").next().unwrap();
    let package = bench
        .folder
        .path()
        .join("judge/desktop_env/evaluators/metrics");
    std::fs::create_dir_all(&package).unwrap();
    let metric = r#"
def compare_table(result, expected, **options):
    print("result:", result)
    return 0.5 if open(result).read() == "table" and expected is None and options == {"rules": [1]} else 0
"#;
    std::fs::write(package.join("__init__.py"), metric).unwrap();
    for folder in ["desktop_env", "desktop_env/evaluators"] {
        let file = bench
            .folder
            .path()
            .join("judge")
            .join(folder)
            .join("__init__.py");
        std::fs::write(file, "").unwrap();
    }
    let judge = bench.folder.path().join("judge/judge.py");
    std::fs::write(&judge, program).unwrap();
    bench.config.evaluator = Some(EvaluatorConfig {
        command: vec!["python3".into(), judge.display().to_string()],
        metrics: Vec::new(),
        timeout_ms: 20_000,
    });
    let evaluator = |expected: Value| {
        json!({
            "func": "compare_table", "result": file("/home/user/a.xlsx"),
            "expected": expected, "options": {"rules": [1]}
        })
    };
    let missing = evaluator(file("/home/user/none.xlsx"));
    let score = bench.judge(&json!([]), &missing, HostExec::Allowed).await;
    assert_eq!(score.unwrap(), 0.5);
    // What it cannot look up is a fault and no score.
    let other = evaluator(json!({"type": "page_info", "url": "x"}));
    let score = bench.judge(&json!([]), &other, HostExec::Allowed).await;
    assert_eq!(score.unwrap_err().kind(), ErrorKind::Protocol);
}
