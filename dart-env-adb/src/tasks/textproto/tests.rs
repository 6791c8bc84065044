use dart_core::ErrorKind;
use proptest::prelude::*;

use super::{
    super::format::{Condition, Step},
    parse_textproto,
};

/// A task in all the spellings that the text form allows.
const TASK: &str = r#"
# proto-file: task.proto
id: "catch"
name: 'Catch'
description: "Catch the {ball}"
    ' and keep\x20it.\n'
setup_steps: [
  { sleep: { time_sec: 0.5 } },
  { adb_request < package_manager { clear { package_name: "com.a" } } timeout_sec: 5.0 > }
]
setup_steps { adb_request: { settings: { name_space: SYSTEM put: { key: "volume" value: "3" } } } };
reset_steps: {
  adb_request: {
    start_activity: {
      full_activity: "com.a/.Main",
      extra_args: ["--es", '"CONFIG"', "'{\"x\":1}'"],
      force_stop: true
    }
  }
  success_condition: {
    num_retries: 10
    wait_for_app_screen: { app_screen: { activity: "com.a/.Main" view_hierarchy_path: [] } timeout_sec: 10 }
  }
}
reset_steps { success_condition { check_install { package_name: "com.b" timeout_sec: 1f } } }
expected_app_screen { activity: "com.a/.Main" }
max_episode_sec: 60.5
max_episode_steps: 12
log_parsing_config: {
  filters: ["Game:V", "Other"]
  log_regexps: {
    score: "^score: (\\d+)$"
    reward: ["reward ([\\d.]+)", ""]
    episode_end: "over"
    extra: "(?P<name>x)(?P<extra>y)"
    reward_event: { event: "coin" reward: -1.5 }
  }
}
extras_spec: [{ name: "grid" shape: [4, 4] dtype: INT32 }]
"#;

#[test]
fn the_common_subset_is_read() {
    let task = parse_textproto(TASK).unwrap();
    assert_eq!(task.id.to_string(), "catch");
    assert_eq!(task.instruction, "Catch the {{ball} and keep it.\n");
    assert_eq!((task.horizon, task.max_seconds), (12, Some(61)));
    assert_eq!(task.activity.as_deref(), Some("com.a/.Main"));
    let started = "am start -S -W -n 'com.a/.Main' --es \"CONFIG\" '{{\"x\":1}'";
    let setting = Step::Setting {
        namespace: "system".into(),
        key: "volume".into(),
        value: "3".into(),
    };
    let expected = [
        Step::SleepMs(500),
        Step::ClearApp("com.a".into()),
        setting,
        Step::Attempt {
            step: Box::new(Step::Shell(started.into())),
            until: Condition::Activity("com.a/.Main".into()),
            timeout_ms: 10_000,
            attempts: 10,
        },
        Step::WaitFor {
            condition: Condition::Package("com.b".into()),
            timeout_ms: 1000,
        },
    ];
    assert_eq!(task.setup, expected);
    let reward = task.reward.unwrap();
    assert_eq!(reward.tags, ["Game", "Other"]);
    assert_eq!(reward.score.as_deref(), Some(r"^score: (\d+)$"));
    assert_eq!(reward.rewards, [r"reward ([\d.]+)"]);
    assert_eq!(reward.ends, ["over"]);
    assert_eq!(
        (reward.events[0].line.as_str(), reward.events[0].reward),
        ("coin", -1.5)
    );
}

/// A task with one more field.
fn with(more: &str) -> String {
    format!(
        "id: \"a\" description: \"b\" log_parsing_config {{ log_regexps {{ score: \"(.)\" }} }}\n{more}"
    )
}

#[test]
fn every_request_of_the_subset_is_a_step() {
    for (request, step) in [
        ("force_stop { package_name: 'p' }", "force_stop"),
        ("clear_cache { package_name: 'p' }", "clear_app"),
        (
            "uninstall_package { package_name: 'p' }",
            "pm' 'uninstall' 'p'",
        ),
        ("tap { x: 3 y: 4 }", "\"x\":3,\"y\":4"),
        ("press_button { button: BACK }", "go_back"),
        ("press_button { }", "go_home"),
        ("press_button { button: ENTER }", "press_enter"),
        ("input_text { text: 'hi {x}' }", "hi {{x}"),
        ("push { path: '/sdcard/a' content: 'b' }", "put_file"),
        (
            "settings { name_space: GLOBAL delete_key { key: 'k' } }",
            "'delete' 'global' 'k'",
        ),
        ("generic { args: ['shell', 'echo', '$A'] }", "echo $A"),
        (
            "package_manager { grant { package_name: 'p' permissions: ['a', 'b'] } }",
            "'grant' 'p' 'b'",
        ),
        (
            "send_broadcast { action: 'x' component: 'c/.R' }",
            "'-n' 'c/.R'",
        ),
        ("rotate { orientation: LANDSCAPE_90 }", "user_rotation"),
    ] {
        let text = with(&format!("reset_steps {{ adb_call {{ {request} }} }}"));
        let task = parse_textproto(&text).unwrap();
        let steps = serde_json::to_string(&task.setup).unwrap();
        assert!(steps.contains(step), "{request}: {steps}");
    }
    let installed = with(
        "setup_steps { adb_call { install_apk { apk_source: X mpm { path: 'y' } } } success_condition { check_install { package_name: 'p' timeout_sec: 1 } } }",
    );
    let setup = parse_textproto(&installed).unwrap().setup;
    assert!(
        matches!(&setup[..], [Step::WaitFor { condition: Condition::Package(p), .. }] if p == "p")
    );
}

#[test]
fn what_cannot_be_done_is_named_with_its_line() {
    let step = |request: &str| with(&format!("reset_steps {{ adb_request {{ {request} }} }}"));
    for (text, named) in [
        (with("colour: 1"), "line 2: colour is not supported"),
        (
            with("expected_app_screen { activity: 'a' depth: 2 }"),
            "expected_app_screen.depth",
        ),
        (
            with("expected_app_screen { activity: 'a' view_hierarchy_path: 'x' }"),
            "view_hierarchy_path",
        ),
        (
            step("start_screen_pinning { full_activity: 'a' }"),
            "start_screen_pinning",
        ),
        (step("install_apk { filesystem { path: '/x' } }"), "install"),
        (
            step("generic { args: ['install', 'x'] }"),
            "generic install",
        ),
        (
            step("tap { x: 1 y: 2 z: 3 }"),
            "reset_steps.adb_request.tap.z",
        ),
        (step("tap { x: 'a' }"), "x needs"),
        (step("tap { } force_stop { }"), "one command"),
        (step("push { path: 'a' content: '\\xff' }"), "UTF-8"),
        (with("reset_steps { sleep { time_sec: 1e9 } }"), "0 to 60"),
        (with("reset_steps { }"), "needs one of"),
        ("id: 'a' description: 'b'".into(), "nothing would be worth"),
        ("description: 'b'".into(), "task id"),
        ("id: '../a' description: 'b'".into(), "task id"),
        (with("name: 'b"), "closing quote"),
        (with("name: '\\q'"), "backslash"),
        (with("name: {"), "too early"),
        (with("name = 'b'"), "'='"),
        (with("[a.b]: 1"), "'['"),
        (with("5: 1"), "no name of a field"),
        (with(&"a {".repeat(40)), "too deep"),
        (with(&"name: 'a' ".repeat(20_001)), "more than 20000"),
        (
            "id: 'a' description: 'b' log_parsing_config { log_regexps { score: '(' } }".into(),
            "pattern",
        ),
        (" ".repeat(5 << 20), "at most"),
    ] {
        let error = parse_textproto(&text).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        let start: String = text.chars().take(200).collect();
        assert!(error.to_string().contains(named), "{start}: {error}");
    }
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "\\PC{0,60}|[a-z:{}<>\\[\\],;\"'\\\\x0-9 \n#]{0,60}") {
        let _ = parse_textproto(&text);
    }

    #[test]
    fn no_damage_makes_it_panic(at in 0..TASK.len(), length in 0_usize..40, new in "\\PC{0,3}") {
        let mut bytes = TASK.as_bytes().to_vec();
        let end = (at + length).min(bytes.len());
        bytes.splice(at..end, new.bytes());
        let _ = parse_textproto(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn any_text_in_quotes_comes_back(text in "\\PC{0,20}") {
        let escaped: Vec<_> = text.bytes().map(|byte| format!("\\{byte:03o}")).collect();
        let escaped = escaped.concat();
        let source = with(&format!("name: \"x\" description: \"a{escaped}\""));
        let told = parse_textproto(&source).unwrap().instruction;
        prop_assert_eq!(told, format!("a{text}").replace('{', "{{"));
    }
}
