//! Which worker gets a call.

use std::sync::Mutex;

use tokio::sync::Notify;

use crate::error::lock;

/// Whether a worker takes calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    /// It does.
    Serving,
    /// It finishes those it has, or loads.
    Draining,
    /// Not until a load succeeds.
    Out,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    status: Status,
    in_flight: usize,
}

/// State of all workers, as routing sees it.
#[derive(Debug)]
pub(super) struct Routes {
    slots: Mutex<Vec<Slot>>,
    /// A worker serves again.
    resumed: Notify,
    /// A worker that takes no calls has finished its last one.
    emptied: Notify,
}

impl Routes {
    pub(super) fn new(workers: usize) -> Self {
        let slot = Slot {
            status: Status::Serving,
            in_flight: 0,
        };
        Self {
            slots: Mutex::new(vec![slot; workers]),
            resumed: Notify::new(),
            emptied: Notify::new(),
        }
    }

    /// Waits for a serving worker and counts a call on the one with the fewest; the first of equals.
    ///
    /// # Cancel safety
    /// Safe: a call is counted only in the moment in which the ticket is returned.
    pub(super) async fn ticket(&self) -> Ticket<'_> {
        loop {
            let mut resumed = std::pin::pin!(self.resumed.notified());
            resumed.as_mut().enable();
            if let Some(worker) = self.try_route() {
                return Ticket {
                    routes: self,
                    worker,
                };
            }
            resumed.await;
        }
    }

    fn try_route(&self) -> Option<usize> {
        let mut slots = lock(&self.slots);
        let (worker, slot) = slots
            .iter_mut()
            .enumerate()
            .filter(|(_, slot)| slot.status == Status::Serving)
            .min_by_key(|(_, slot)| slot.in_flight)?;
        slot.in_flight += 1;
        Some(worker)
    }

    /// Waits until `worker`, which must not be serving, has no call in flight.
    pub(super) async fn empty(&self, worker: usize) {
        loop {
            let mut emptied = std::pin::pin!(self.emptied.notified());
            emptied.as_mut().enable();
            if lock(&self.slots)[worker].in_flight == 0 {
                return;
            }
            emptied.await;
        }
    }

    /// Sets a status; gives the one before and the calls in flight.
    pub(super) fn set(&self, worker: usize, status: Status) -> (Status, usize) {
        let before = {
            let mut slots = lock(&self.slots);
            let slot = &mut slots[worker];
            (std::mem::replace(&mut slot.status, status), slot.in_flight)
        };
        if status == Status::Serving {
            self.resumed.notify_waiters();
        }
        before
    }

    pub(super) fn status(&self, worker: usize) -> Status {
        lock(&self.slots)[worker].status
    }

    pub(super) fn serving_workers(&self) -> Vec<usize> {
        let slots = lock(&self.slots);
        let all = slots.iter().enumerate();
        all.filter(|(_, slot)| slot.status == Status::Serving)
            .map(|(worker, _)| worker)
            .collect()
    }

    pub(super) fn serving(&self) -> usize {
        self.serving_workers().len()
    }

    pub(super) fn in_flight(&self) -> usize {
        lock(&self.slots).iter().map(|slot| slot.in_flight).sum()
    }
}

/// One call in flight; it ends when this is dropped, also by a panic or a dropped future.
#[derive(Debug)]
pub(super) struct Ticket<'a> {
    routes: &'a Routes,
    worker: usize,
}

impl Ticket<'_> {
    pub(super) const fn worker(&self) -> usize {
        self.worker
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let emptied = {
            let mut slots = lock(&self.routes.slots);
            let slot = &mut slots[self.worker];
            slot.in_flight -= 1;
            slot.in_flight == 0 && slot.status != Status::Serving
        };
        if emptied {
            self.routes.emptied.notify_waiters();
        }
    }
}
