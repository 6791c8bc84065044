//! [`LearnerHandle`]: a learner for async callers.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread,
};

use dart_core::{
    Batch, Error, ErrorKind, Learner, LearnerReport, PolicyVersion, Result, WeightsHandle,
};
use tokio::sync::oneshot;

use crate::workers::{STACK_BYTES, panic_message};

/// A learner that can also score responses, such as demonstrations that enter the experience pool.
pub trait ScoringLearner: Learner {
    /// Log-probs of each sample's response under the weights of now.
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported) if the learner cannot.
    fn score(&mut self, _batch: &Batch) -> Result<Vec<Vec<f32>>> {
        let message = "this learner does not score responses";
        Err(Error::new(
            ErrorKind::Unsupported,
            "dart-trainer",
            "score",
            message,
        ))
    }
}

type Boxed = Box<dyn ScoringLearner>;
type Job = Box<dyn FnOnce(&mut Boxed) + Send>;

/// A learner for async callers: calls are answered one after another, in order.
///
/// A call goes on when its future is dropped: a step that has begun is taken. If the learner
/// panics, this call and all later ones give [`Internal`](ErrorKind::Internal), because half a
/// step may have been taken; nothing waits for ever. The thread ends when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct LearnerHandle(Kind);

#[derive(Clone)]
enum Kind {
    Thread(mpsc::Sender<Job>),
    Inline(Arc<Mutex<Option<Boxed>>>),
}

impl std::fmt::Debug for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Thread(_) => "Thread",
            Self::Inline(_) => "Inline",
        })
    }
}

impl LearnerHandle {
    /// Gives `learner` a thread of its own with a large stack.
    ///
    /// # Errors
    /// [`Internal`](ErrorKind::Internal) if the thread cannot be started.
    pub fn spawn(learner: Boxed) -> Result<Self> {
        let (sender, receiver) = mpsc::channel::<Job>();
        thread::Builder::new()
            .name("dart-learner".into())
            .stack_size(STACK_BYTES)
            .spawn(move || serve(learner, &receiver))
            .map_err(|source| internal("start", "the thread did not start").caused_by(source))?;
        Ok(Self(Kind::Thread(sender)))
    }

    /// Computes in the caller's task, blocking it: for simulated time, where a step takes none.
    pub fn inline(learner: Boxed) -> Self {
        Self(Kind::Inline(Arc::new(Mutex::new(Some(learner)))))
    }

    /// [`Learner::step`]. If the future is dropped, the step is taken all the same.
    pub async fn step(&self, batch: Batch) -> Result<LearnerReport> {
        self.call("step", move |learner| learner.step(&batch)).await
    }

    /// [`Learner::version`].
    pub async fn version(&self) -> Result<PolicyVersion> {
        self.call("version", |learner| Ok(learner.version())).await
    }

    /// [`Learner::export`].
    pub async fn export(&self) -> Result<WeightsHandle> {
        self.call("export", |learner| learner.export()).await
    }

    /// [`Learner::save`].
    pub async fn save(&self, dir: PathBuf) -> Result<()> {
        self.call("save", move |learner| learner.save(&dir)).await
    }

    /// [`Learner::restore`].
    pub async fn restore(&self, dir: PathBuf) -> Result<()> {
        self.call("restore", move |learner| learner.restore(&dir))
            .await
    }

    /// [`ScoringLearner::score`].
    pub async fn score(&self, batch: Batch) -> Result<Vec<Vec<f32>>> {
        self.call("score", move |learner| learner.score(&batch))
            .await
    }

    async fn call<T: Send + 'static>(
        &self,
        operation: &'static str,
        run: impl FnOnce(&mut Boxed) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let sender = match &self.0 {
            Kind::Inline(learner) => return call_inline(learner, operation, run),
            Kind::Thread(sender) => sender,
        };
        let (answer, answered) = oneshot::channel();
        let job: Job = Box::new(move |learner| {
            // Nobody listens if the caller gave up.
            let _ = answer.send(run(learner));
        });
        let gone = || internal(operation, "the learner's thread has ended after a panic");
        sender.send(job).map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?
    }
}

fn call_inline<T>(
    learner: &Mutex<Option<Boxed>>,
    operation: &'static str,
    run: impl FnOnce(&mut Boxed) -> Result<T>,
) -> Result<T> {
    // A panic cannot poison the lock: it is caught, and the learner is thrown away.
    let mut place = learner.lock().unwrap_or_else(PoisonError::into_inner);
    let gone = || internal(operation, "the learner has panicked");
    let Some(mut learner) = place.take() else {
        return Err(gone());
    };
    match catch_unwind(AssertUnwindSafe(|| run(&mut learner))) {
        Ok(result) => {
            *place = Some(learner);
            result
        }
        Err(panic) => Err(gone().with("panic", panic_message(panic.as_ref()))),
    }
}

/// Answers calls until nobody is left to call, or one panics: then the answer is dropped, which
/// its caller sees, and so is the queue.
fn serve(mut learner: Boxed, jobs: &mpsc::Receiver<Job>) {
    for job in jobs {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| job(&mut learner))) {
            let message = panic_message(panic.as_ref());
            tracing::error!(message, "the learner panicked; its thread ends");
            return;
        }
    }
}

fn internal(operation: &'static str, message: &'static str) -> Error {
    Error::new(ErrorKind::Internal, "dart-trainer", operation, message)
}
