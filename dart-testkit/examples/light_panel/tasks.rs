//! Tasks are data: a name, a set, a step limit. The seed given to each episode does the rest.

use dart_core::{Result, Split, Task, TaskId};

/// One task for training and one for each held-out set.
pub fn tasks() -> Result<Vec<Task>> {
    let task = |split: Split| {
        Ok(Task {
            id: TaskId::new(format!("panel.{}", split.name()))?,
            family: "panel".into(),
            split,
            horizon: 4,
            params: serde_json::Value::Null,
        })
    };
    Split::ALL.into_iter().map(task).collect()
}
