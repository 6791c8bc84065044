//! Which tasks are both trained on and held out: success on them says nothing about others.
//!
//! What tells the splits of a generated task apart (a page, a simulated screen) is up to its
//! backend, which is told the split: one family under two names is no overlap. A task that carries
//! its own instruction among its parameters is fixed, whatever the seed: there the parameters count.

use std::{collections::BTreeMap, fmt};

use dart_core::{Split, Task, TaskId};
use serde_json::Value;

/// One task that is on both sides.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Overlap {
    /// Its name in training.
    pub training: TaskId,
    /// Its name among the held-out tasks: the same, or another for the same parameters.
    pub held_out: TaskId,
    /// Where it is held out.
    pub split: Split,
}

impl fmt::Display for Overlap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let split = self.split.name();
        if self.training == self.held_out {
            return write!(
                f,
                "task {} is trained on and held out ({split})",
                self.training
            );
        }
        let (training, held_out) = (&self.training, &self.held_out);
        write!(
            f,
            "task {training} is trained on, and held out ({split}) as {held_out}: same instruction and parameters"
        )
    }
}

/// The overlap of training tasks and held-out ones, in order of their names.
pub fn overlaps<'a>(tasks: impl IntoIterator<Item = &'a Task>) -> Vec<Overlap> {
    let tasks = tasks.into_iter();
    let (training, held_out): (Vec<_>, Vec<_>) = tasks.partition(|task| task.split == Split::Train);
    let mut by_content: BTreeMap<String, Vec<&TaskId>> = BTreeMap::new();
    for task in &training {
        if let Some(content) = content(task) {
            by_content.entry(content).or_default().push(&task.id);
        }
    }
    let mut found = Vec::new();
    for task in held_out {
        let same_content = content(task).and_then(|content| by_content.get(&content));
        let same_name = training.iter().map(|other| &other.id);
        let same_name = same_name.filter(|id| **id == task.id);
        let both = same_name.chain(same_content.into_iter().flatten().copied());
        found.extend(both.map(|id| Overlap {
            training: id.clone(),
            held_out: task.id.clone(),
            split: task.split,
        }));
    }
    found.sort();
    found.dedup();
    found
}

/// What a fixed task consists of, its name left out; `None` of a generated one.
fn content(task: &Task) -> Option<String> {
    let Value::Object(params) = &task.params else {
        return None;
    };
    params.get("instruction")?.as_str()?;
    let mut params = params.clone();
    params.remove("id");
    // Object keys are sorted, so equal parameters are equal text.
    Some(format!("{} {}", task.family, Value::Object(params)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(id: &str, split: Split, params: Value) -> Task {
        Task {
            id: TaskId::new(id).unwrap(),
            family: "office".into(),
            split,
            horizon: 10,
            params,
        }
    }

    fn fixed(id: &str, split: Split, instruction: &str, file: &str) -> Task {
        let params = serde_json::json!({"id": id, "instruction": instruction, "file": file});
        task(id, split, params)
    }

    #[test]
    fn names_and_parameters_are_compared() {
        let tasks = [
            fixed("a", Split::Train, "Mute it.", "x"),
            fixed("b", Split::Train, "Close it.", "x"),
            fixed("c", Split::Layouts, "Mute it.", "x"),
            fixed("d", Split::Words, "Mute it.", "y"),
            task("e", Split::Train, Value::Null),
            task("e", Split::Layouts, Value::Null),
        ];
        let found: Vec<_> = overlaps(&tasks).iter().map(Overlap::to_string).collect();
        assert_eq!(
            found,
            [
                "task a is trained on, and held out (layouts) as c: same instruction and parameters",
                "task e is trained on and held out (layouts)",
            ]
        );
    }

    #[test]
    fn a_generated_task_has_a_name_for_each_split() {
        let page = serde_json::json!({"page": "click-test"});
        let tasks = [
            task("page", Split::Train, page.clone()),
            task("page.layouts", Split::Layouts, page),
            task("sim", Split::Train, Value::Null),
            task("sim.words", Split::Words, Value::Null),
        ];
        assert_eq!(overlaps(&tasks), []);
    }
}
