//! Drops futures half-way, as a caller does that has lost patience.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    task::Poll,
    time::Duration,
};

/// Polls `future` once and drops it. Gives the output if one poll was enough.
pub async fn poll_once_then_drop<F: Future>(future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// Runs `future` for `time` and drops it. Gives the output if that was enough; no time at all
/// means one poll.
pub async fn drop_after<F: Future>(time: Duration, future: F) -> Option<F::Output> {
    if time.is_zero() {
        poll_once_then_drop(future).await
    } else {
        tokio::time::timeout(time, future).await.ok()
    }
}

/// After how long the suites drop a call: at its first wait, and a little later.
pub(crate) const MOMENTS: [Duration; 4] = [
    Duration::ZERO,
    Duration::from_millis(1),
    Duration::from_millis(5),
    Duration::from_millis(25),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn futures_are_dropped_half_way() {
        assert_eq!(poll_once_then_drop(async { 1 }).await, Some(1));
        let sleep = || tokio::time::sleep(Duration::from_millis(3));
        assert_eq!(poll_once_then_drop(sleep()).await, None);
        assert_eq!(drop_after(Duration::from_millis(2), sleep()).await, None);
        assert_eq!(
            drop_after(Duration::from_millis(4), sleep()).await,
            Some(())
        );
    }
}
