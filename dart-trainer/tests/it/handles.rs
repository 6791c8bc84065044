//! A learner behind a handle.

use std::time::Duration;

use dart_core::{ErrorKind, Learner, Objective, PolicyVersion};
use dart_trainer::{GrpoLearner, LearnerHandle, TrainerConfig};

use crate::toy::{PANIC, Toy, batch, config, mixed, sample};

fn learner() -> Box<GrpoLearner<Toy>> {
    Box::new(GrpoLearner::new(Toy::new(), config()).unwrap())
}

fn both() -> [LearnerHandle; 2] {
    [
        LearnerHandle::spawn(learner()).unwrap(),
        LearnerHandle::inline(learner()),
    ]
}

#[tokio::test]
async fn a_handle_does_what_the_learner_does() {
    let mut direct = learner();
    direct.step(&mixed()).unwrap();
    let expected = direct.export().unwrap().digest;
    for handle in both() {
        let report = handle.step(mixed()).await.unwrap();
        assert_eq!(report.version, PolicyVersion(1));
        assert_eq!(handle.version().await.unwrap(), PolicyVersion(1));
        assert_eq!(handle.export().await.unwrap().digest, expected);
        let dir = tempfile::tempdir().unwrap();
        handle.save(dir.path().to_owned()).await.unwrap();
        handle.step(mixed()).await.unwrap();
        assert_ne!(handle.export().await.unwrap().digest, expected);
        handle.restore(dir.path().to_owned()).await.unwrap();
        assert_eq!(handle.export().await.unwrap().digest, expected);
        let scores = handle.score(mixed()).await.unwrap();
        assert_eq!(scores, direct.score(&mixed()).unwrap());
    }
}

#[tokio::test]
async fn a_panic_of_the_model_is_an_error_and_the_learner_lives() {
    let poison = batch(Objective::PolicyGradient, vec![sample(PANIC, &[1], 1.0)]);
    for handle in both() {
        let error = handle.step(poison.clone()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Internal);
        assert!(error.to_string().contains("told to panic"), "{error}");
        assert_eq!(
            handle.step(mixed()).await.unwrap().version,
            PolicyVersion(1)
        );
    }
}

/// A learner that panics itself.
struct Panics;

impl Learner for Panics {
    fn step(&mut self, _: &dart_core::Batch) -> dart_core::Result<dart_core::LearnerReport> {
        panic!("as intended")
    }

    fn version(&self) -> PolicyVersion {
        PolicyVersion(0)
    }

    fn export(&self) -> dart_core::Result<dart_core::WeightsHandle> {
        panic!("as intended")
    }

    fn save(&self, _: &std::path::Path) -> dart_core::Result<()> {
        Ok(())
    }

    fn restore(&mut self, _: &std::path::Path) -> dart_core::Result<()> {
        Ok(())
    }
}

impl dart_trainer::ScoringLearner for Panics {}

#[tokio::test]
async fn after_a_panic_every_call_is_an_error() {
    for handle in [
        LearnerHandle::spawn(Box::new(Panics)).unwrap(),
        LearnerHandle::inline(Box::new(Panics)),
    ] {
        let unsupported = handle.score(mixed()).await.unwrap_err();
        assert_eq!(unsupported.kind(), ErrorKind::Unsupported);
        for _ in 0..3 {
            let call = tokio::time::timeout(Duration::from_secs(20), handle.step(mixed()));
            let error = call.await.expect("no call hangs").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Internal);
        }
        let error = handle.version().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Internal);
    }
}

#[tokio::test]
async fn a_dropped_call_is_carried_out() {
    let handle = LearnerHandle::spawn(learner()).unwrap();
    // Not a timer: the call is made on the first poll and dropped before its answer can be taken.
    let dropped = tokio::time::timeout(Duration::ZERO, handle.step(mixed())).await;
    let version = handle.version().await.unwrap();
    assert_eq!(version, PolicyVersion(1), "{dropped:?}");
}

#[test]
fn settings_are_checked_at_once() {
    let config = TrainerConfig {
        threads: 0,
        ..config()
    };
    let error = GrpoLearner::new(Toy::new(), config).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
}
