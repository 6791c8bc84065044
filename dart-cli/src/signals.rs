//! Ctrl-C and SIGTERM: the first asks for a clean stop, the second ends at once.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// A token that fires at the first signal.
///
/// # Errors
/// If the system does not let us listen.
pub(crate) fn stop_on_signal() -> std::io::Result<CancellationToken> {
    let (mut interrupt, mut terminate) = (
        signal(SignalKind::interrupt())?,
        signal(SignalKind::terminate())?,
    );
    let stop = CancellationToken::new();
    let fire = stop.clone();
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            if fire.is_cancelled() {
                std::process::exit(130);
            }
            tracing::warn!("stopping; a second signal ends at once");
            fire.cancel();
        }
    });
    Ok(stop)
}
