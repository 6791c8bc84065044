//! Every wait of this crate goes through here: it has a name, a deadline and a way out.

use std::{future::Future, time::Duration};

use tokio_util::sync::CancellationToken;

/// Why a wait was cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// The run was told to stop.
    Cancelled,
    /// The deadline passed.
    Overdue,
}

/// Waits for `future`, at most `limit`, unless `cancel` fires first. The future is dropped then.
pub(crate) async fn within<T>(
    limit: Duration,
    cancel: &CancellationToken,
    future: impl Future<Output = T>,
) -> Result<T, Cut> {
    tokio::select! {
        biased;
        () = cancel.cancelled() => Err(Cut::Cancelled),
        result = tokio::time::timeout(limit, future) => result.map_err(|_| Cut::Overdue),
    }
}

/// Sleeps; `false` if `cancel` fired first.
pub(crate) async fn pause(length: Duration, cancel: &CancellationToken) -> bool {
    tokio::select! {
        biased;
        () = cancel.cancelled() => false,
        () = tokio::time::sleep(length) => true,
    }
}
