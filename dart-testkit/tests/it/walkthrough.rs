//! docs/adding-an-environment.md shows what is compiled here, and nothing else.

// The example as it is shown, of which the tests use most.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::new_without_default,
    clippy::wildcard_imports
)]

#[path = "../../examples/light_panel/expert.rs"]
mod expert;
#[path = "light_panel.rs"]
mod light_panel;
#[path = "../../examples/light_panel/panel.rs"]
mod panel;
#[path = "../../examples/light_panel/tasks.rs"]
mod tasks;

const DOC: &str = include_str!("../../../docs/adding-an-environment.md");
const PANEL: &str = include_str!("../../examples/light_panel/panel.rs");
const EXPERT: &str = include_str!("../../examples/light_panel/expert.rs");
const TASKS: &str = include_str!("../../examples/light_panel/tasks.rs");
const SUITES: &str = include_str!("light_panel.rs");

/// The contents of the document's Rust blocks, in order.
fn rust_blocks() -> Vec<&'static str> {
    let blocks = DOC.split("```rust\n").skip(1);
    blocks.filter_map(|rest| rest.split("```").next()).collect()
}

#[test]
fn the_document_shows_the_compiled_files() {
    let blocks = rust_blocks();
    for (block, file) in blocks.iter().zip([PANEL, TASKS, EXPERT, SUITES]) {
        assert_eq!(*block, file);
    }
    assert_eq!(blocks.len(), 4);
}

#[test]
fn the_backend_has_at_most_80_lines_of_code() {
    let code = |line: &&str| !line.trim().is_empty() && !line.trim().starts_with("//");
    let lines = PANEL.lines().filter(code).count();
    assert!(lines <= 80, "{lines} lines");
}
