//! Threads that compute gradients.
//!
//! They live as long as the learner and have large stacks: candle walks and frees a graph
//! recursively, and a stack that overflows ends the process.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::mpsc,
    thread,
};

use crate::error::{Result, TrainerError};

/// Bytes of stack of every thread that touches a graph. Only what is used takes memory.
pub(crate) const STACK_BYTES: usize = 64 << 20;

/// One share of work; gives its result.
pub(crate) type Task<T> = Box<dyn FnOnce() -> Result<T> + Send>;

/// A fixed set of threads.
pub(crate) struct Workers {
    senders: Vec<mpsc::Sender<Box<dyn FnOnce() + Send>>>,
}

impl Workers {
    /// Starts `count` threads. They end when this is dropped.
    pub(crate) fn start(count: usize) -> Result<Self> {
        let senders = (0..count).map(start_worker).collect::<Result<_>>()?;
        Ok(Self { senders })
    }

    /// Runs task i on thread i, waits for all, and gives the results in order.
    ///
    /// The first error in order is returned; a panic is an error, not a wait without end.
    pub(crate) fn run<T: Send + 'static>(&self, tasks: Vec<Task<T>>) -> Result<Vec<T>> {
        let count = tasks.len();
        let (sender, receiver) = mpsc::channel();
        for (index, task) in tasks.into_iter().enumerate() {
            let sender = sender.clone();
            let job = Box::new(move || {
                let result = guarded(task);
                // The other end is gone only if the caller itself panicked.
                let _ = sender.send((index, result));
            });
            self.senders[index % self.senders.len()]
                .send(job)
                .map_err(|_| TrainerError::Worker("has ended".into()))?;
        }
        drop(sender);
        let mut results: Vec<_> = receiver.iter().collect();
        results.sort_by_key(|(index, _)| *index);
        if results.len() != count {
            return Err(TrainerError::Worker("gave no result".into()));
        }
        results.into_iter().map(|(_, result)| result).collect()
    }
}

impl std::fmt::Debug for Workers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Workers({})", self.senders.len())
    }
}

fn start_worker(index: usize) -> Result<mpsc::Sender<Box<dyn FnOnce() + Send>>> {
    let (sender, receiver) = mpsc::channel::<Box<dyn FnOnce() + Send>>();
    thread::Builder::new()
        .name(format!("dart-gradient-{index}"))
        .stack_size(STACK_BYTES)
        .spawn(move || {
            for job in receiver {
                job();
            }
        })
        .map_err(|source| TrainerError::Worker(format!("did not start: {source}")))?;
    Ok(sender)
}

fn guarded<T>(task: Task<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(task)).unwrap_or_else(|panic| {
        Err(TrainerError::Worker(format!(
            "panicked: {}",
            panic_message(panic.as_ref())
        )))
    })
}

/// What a panic said.
pub(crate) fn panic_message(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_order_and_panics_are_errors() {
        let workers = Workers::start(2).unwrap();
        let tasks = (0..5u64)
            .map(|i| -> Task<u64> {
                Box::new(move || {
                    thread::sleep(std::time::Duration::from_millis(5 - i));
                    Ok(i * i)
                })
            })
            .collect();
        assert_eq!(workers.run(tasks).unwrap(), [0, 1, 4, 9, 16]);
        let tasks: Vec<Task<u64>> = vec![Box::new(|| Ok(1)), Box::new(|| panic!("boom {}", 7))];
        let error = workers.run(tasks).unwrap_err().to_string();
        assert!(error.contains("boom 7"), "{error}");
        let again: Vec<Task<u64>> = vec![Box::new(|| Ok(1)), Box::new(|| Ok(2))];
        assert_eq!(workers.run(again).unwrap(), [1, 2], "the threads live on");
    }
}
