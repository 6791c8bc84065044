//! Waiting for a server: for pixels, until it has taken our input, until the screen is calm.

use std::{sync::atomic::Ordering, time::Duration};

use dart_core::Size;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::{
    super::{
        dial::timed_out,
        error::RfbError,
        framebuffer::Area,
        message::{self, update_request},
        shared::Status,
    },
    Connection,
};

/// How long a probe waits before it asks in another way, at most; then twice as long, and so on.
const PROBE_INTERVAL: Duration = Duration::from_millis(600);

/// The pixel of the `number`-th probe: multiples of two irrational fractions of the sides keep
/// consecutive ones far apart.
fn probe_pixel(number: u32, size: Size) -> (u16, u16) {
    let along = |side: u32, fraction: f64| {
        let place = (f64::from(number) * fraction).fract() * f64::from(side);
        place.min(f64::from(side.saturating_sub(1))) as u16
    };
    (along(size.width, 0.754_877), along(size.height, 0.569_840))
}

impl Connection {
    /// Waits until `ready`; `false` if the deadline passed first.
    pub(super) async fn wait(
        &self,
        deadline: Instant,
        ready: impl Fn(&Status) -> bool,
    ) -> Result<bool, RfbError> {
        let mut status = self.status.clone();
        let seen = status.wait_for(|status| status.failure.is_some() || ready(status));
        match timeout_at(deadline, seen).await {
            Ok(Ok(status)) => status.failure.clone().map_or(Ok(true), Err),
            Ok(Err(_)) => Err(RfbError::Closed),
            Err(_) => Ok(false),
        }
    }

    /// Waits until the screen has pixels.
    pub(super) async fn first_frame(&self) -> Result<(), RfbError> {
        // The first request was made with the handshake; it is repeated if nothing comes of it.
        let soon = Instant::now() + self.interval();
        if self.wait(soon, |status| status.painted).await? {
            return Ok(());
        }
        self.ask(None, true).await
    }

    /// Waits until the server has taken all input sent so far: a fence, where the server answers
    /// them; otherwise [`sync`](Self::sync). What the input changes may come later.
    pub(crate) async fn acknowledged(&self) -> Result<(), RfbError> {
        if !self.abilities().fence {
            return self.sync().await;
        }
        let number = self.questions.fetch_add(1, Ordering::Relaxed) + 1;
        let mut fence = Vec::new();
        let flags = message::FENCE_REQUEST | message::FENCE_BLOCK_BEFORE;
        message::fence(flags, &number.to_be_bytes(), &mut fence);
        self.send(fence).await?;
        let limit = self.deadlines.update;
        let answered = |status: &Status| status.fence >= number;
        if self.wait(Instant::now() + limit, answered).await? {
            return Ok(());
        }
        Err(timed_out("answer to a fence", limit))
    }

    /// Waits until the server has taken all input sent so far and has sent everything that has
    /// changed so far.
    ///
    /// Asking for one pixel unconditionally makes every server answer at once, also when nothing
    /// changes. Each time it is another pixel, far from the last one, so that a late answer to an
    /// earlier question is not taken for this one. A server that does not answer is asked for
    /// everything after a while.
    pub(crate) async fn sync(&self) -> Result<(), RfbError> {
        self.first_frame().await?;
        let number = self.questions.fetch_add(1, Ordering::Relaxed);
        self.ask(Some(number as u32), false).await
    }

    /// Like [`sync`](Self::sync), but every pixel is sent again.
    pub(crate) async fn refresh(&self) -> Result<(), RfbError> {
        self.first_frame().await?;
        let number = self.questions.fetch_add(1, Ordering::Relaxed);
        self.ask(Some(number as u32), true).await
    }

    fn interval(&self) -> Duration {
        PROBE_INTERVAL.min(self.deadlines.update / 8)
    }

    /// Asks for the pixel of this probe, or for `everything`, until it is painted.
    ///
    /// A server may answer an unconditional request with announcements alone (libvncserver#743), and
    /// x11vnc sleeps for a second after a motion of the pointer, anew with each request: so every
    /// other question is for what has changed, and they become rarer.
    async fn ask(&self, probe: Option<u32>, everything: bool) -> Result<(), RfbError> {
        let limit = self.deadlines.update;
        let deadline = Instant::now() + limit;
        let mut turn = u32::from(everything);
        let mut interval = self.interval();
        while Instant::now() < deadline {
            let size = self.size();
            let pixel = probe.map(|number| probe_pixel(number, size));
            let area = match pixel {
                Some((x, y)) if turn == 0 => Area::pixel(x, y),
                _ => Area::all(size),
            };
            let changes = turn > 0 && turn.is_multiple_of(2);
            turn += 1;
            self.shared
                .status
                .send_modify(|status| status.probe = pixel);
            let mut request = Vec::new();
            update_request(changes, area, &mut request);
            self.send(request).await?;
            let until = deadline.min(Instant::now() + interval);
            interval *= 2;
            let ready = |status: &Status| status.painted && status.probe.is_none();
            if self.wait(until, ready).await? {
                return Ok(());
            }
        }
        Err(timed_out("screen update", limit))
    }

    /// Waits until nothing has changed for `quiet`, but at most `longest`.
    pub(crate) async fn settle(&self, quiet: Duration, longest: Duration) -> Result<(), RfbError> {
        let start = Instant::now();
        loop {
            self.check()?;
            let calm = self.status.borrow().last_change.max(start) + quiet;
            let until = calm.min(start + longest);
            if Instant::now() >= until {
                return Ok(());
            }
            sleep_until(until).await;
        }
    }
}
