//! [`Watchdog`]: says who waits for what when somebody has waited too long.
//!
//! It changes nothing: deadlines cut waits, the watchdog explains them (invariant I12). It also sees
//! the waits that have no deadline by design, such as a worker's for the curator's next request.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    deadline,
    error::lock,
    events::{Events, RolloutEvent, WaitReport},
};

#[derive(Debug)]
struct Wait {
    what: &'static str,
    since: Instant,
    reported: Option<Instant>,
}

#[derive(Debug)]
struct Party {
    who: String,
    wait: Option<Wait>,
}

#[derive(Debug, Default)]
struct Parties {
    next_key: u64,
    by_key: BTreeMap<u64, Party>,
}

/// Knows who waits for what.
#[derive(Clone, Debug)]
pub struct Watchdog {
    parties: Arc<Mutex<Parties>>,
    stall_timeout: Duration,
}

impl Watchdog {
    /// A watchdog that calls a wait of `stall_timeout` a stall.
    pub fn new(stall_timeout: Duration) -> Self {
        Self {
            parties: Arc::default(),
            stall_timeout,
        }
    }

    /// Adds somebody who waits now and then; forgotten when the last clone of the waiter is dropped.
    pub fn register(&self, who: impl Into<String>) -> Waiter {
        let mut parties = lock(&self.parties);
        let key = parties.next_key;
        parties.next_key += 1;
        let who = who.into();
        parties.by_key.insert(key, Party { who, wait: None });
        Waiter(Some(Arc::new(Registration {
            parties: Arc::clone(&self.parties),
            key,
        })))
    }

    /// All present waits, the longest first, if one of them has become a stall since the last call.
    /// A wait that goes on is a stall again after another `stall_timeout`.
    pub fn check(&self) -> Option<Vec<WaitReport>> {
        let now = Instant::now();
        let mut parties = lock(&self.parties);
        let mut stalled = false;
        for wait in parties.by_key.values_mut().filter_map(|p| p.wait.as_mut()) {
            let from = wait.reported.unwrap_or(wait.since);
            if now.saturating_duration_since(from) >= self.stall_timeout {
                wait.reported = Some(now);
                stalled = true;
            }
        }
        stalled.then(|| Self::report(&parties, now))
    }

    fn report(parties: &Parties, now: Instant) -> Vec<WaitReport> {
        let mut waits: Vec<WaitReport> = parties
            .by_key
            .values()
            .filter_map(|party| {
                let wait = party.wait.as_ref()?;
                Some(WaitReport {
                    who: party.who.clone(),
                    what: wait.what.to_owned(),
                    for_ms: now.saturating_duration_since(wait.since).as_millis() as u64,
                })
            })
            .collect();
        waits.sort_by_key(|wait| std::cmp::Reverse(wait.for_ms));
        waits
    }

    /// Looks four times per `stall_timeout` and reports, until `cancel` fires.
    pub(crate) async fn run(self, events: Events, cancel: CancellationToken) {
        let interval = (self.stall_timeout / 4).max(Duration::from_millis(1));
        while deadline::pause(interval, &cancel).await {
            if let Some(waits) = self.check() {
                for wait in &waits {
                    tracing::warn!(
                        who = wait.who,
                        what = wait.what,
                        for_ms = wait.for_ms,
                        "waits"
                    );
                }
                events.emit(RolloutEvent::Stalled { waits });
            }
        }
    }
}

#[derive(Debug)]
struct Registration {
    parties: Arc<Mutex<Parties>>,
    key: u64,
}

impl Registration {
    fn set(&self, wait: Option<Wait>) {
        if let Some(party) = lock(&self.parties).by_key.get_mut(&self.key) {
            party.wait = wait;
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        lock(&self.parties).by_key.remove(&self.key);
    }
}

/// Somebody's entry with a [`Watchdog`]. The default belongs to no watchdog and does nothing.
#[derive(Clone, Debug, Default)]
pub struct Waiter(Option<Arc<Registration>>);

impl Waiter {
    /// Says that a wait for `what` begins; it ends when the guard is dropped.
    pub fn wait(&self, what: &'static str) -> Waiting<'_> {
        if let Some(registration) = &self.0 {
            registration.set(Some(Wait {
                what,
                since: Instant::now(),
                reported: None,
            }));
        }
        Waiting(self)
    }
}

/// A wait that is going on.
#[derive(Debug)]
#[must_use = "the wait ends when this is dropped"]
pub struct Waiting<'a>(&'a Waiter);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(registration) = &self.0.0 {
            registration.set(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_stall_names_everybody_who_waits() {
        let watchdog = Watchdog::new(Duration::from_secs(10));
        let (a, b) = (watchdog.register("a"), watchdog.register("b"));
        let waiting = a.wait("policy.act");
        tokio::time::advance(Duration::from_secs(7)).await;
        let _other = b.wait("environment.step");
        assert_eq!(watchdog.check(), None);
        tokio::time::advance(Duration::from_secs(3)).await;
        let waits = watchdog.check().unwrap();
        let names: Vec<_> = waits
            .iter()
            .map(|w| (w.who.as_str(), w.what.as_str(), w.for_ms))
            .collect();
        assert_eq!(
            names,
            [
                ("a", "policy.act", 10_000),
                ("b", "environment.step", 3_000)
            ]
        );
        assert_eq!(watchdog.check(), None, "reported once");
        drop(waiting);
        drop(a);
        tokio::time::advance(Duration::from_secs(8)).await;
        assert_eq!(watchdog.check().unwrap().len(), 1, "a is gone, b stalls");
    }
}
