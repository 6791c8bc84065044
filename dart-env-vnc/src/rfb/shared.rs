//! What the tasks of a connection share: the screen as of the last update boundary, the status,
//! and the requests that wait to be sent.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use dart_core::{Frame, Size};
use tokio::{
    sync::{Notify, watch},
    time::Instant,
};

use super::{
    core::Core,
    encoding::cursor::CursorImage,
    error::RfbError,
    framebuffer::{Area, Framebuffer},
    rect::Update,
    session::{Abilities, Event, SizeReply, clipboard},
};

/// Bytes of requests that wait for the writer, beyond which no more are taken: a server that sends
/// updates and reads nothing would otherwise let them pile up.
const MAX_OUTBOX: usize = 64 << 10;

/// What the reader wants to have sent.
#[derive(Debug, Default)]
struct Outbox {
    requests: Vec<u8>,
    /// An answer to a question for our clipboard. It may be longer than all requests together, so it
    /// does not count among them; a server that asks again before it has read one gets one.
    text: Vec<u8>,
}

/// What the reader tells the others.
#[derive(Clone, Debug)]
pub(super) struct Status {
    pub(super) size: Size,
    /// Whether the screen has all its pixels since it got its size.
    pub(super) painted: bool,
    /// The pixel that was asked for and has not been painted since.
    pub(super) probe: Option<(u16, u16)>,
    pub(super) last_change: Instant,
    pub(super) abilities: Arc<Abilities>,
    /// The last of our fences that was answered.
    pub(super) fence: u64,
    /// The answer to our request for another size, until it is taken.
    pub(super) size_reply: Option<SizeReply>,
    /// How often the server has asked for the text of our clipboard.
    pub(super) fetched: u64,
    pub(super) failure: Option<RfbError>,
}

/// The screen as of the last update boundary.
struct Screen {
    size: Size,
    /// Shared with the frames that were handed out.
    rgb: Arc<[u8]>,
    /// Pixels that have not come yet since the screen got its size: it is black where they belong.
    /// Counted as if none came twice meanwhile.
    missing: u64,
    cursor: Option<Arc<CursorImage>>,
}

impl Screen {
    fn new() -> Self {
        Self {
            size: Size::new(0, 0),
            rgb: Arc::default(),
            missing: 0,
            cursor: None,
        }
    }

    /// Counts what has come.
    const fn count(&mut self, update: Update) {
        if update.resized {
            self.missing = self.size.area() as u64;
        }
        self.missing = self.missing.saturating_sub(update.painted);
    }

    /// Copies what changed; or everything, if somebody still looks at the last frame, which stays
    /// as it is.
    fn publish(&mut self, from: &Framebuffer, damage: &[Area]) {
        if damage.is_empty() {
            return;
        }
        if self.size != from.size() {
            self.size = from.size();
            self.missing = self.size.area() as u64;
            self.rgb = from.rgb().into();
            return;
        }
        let Some(rgb) = Arc::get_mut(&mut self.rgb) else {
            self.rgb = from.rgb().into();
            return;
        };
        let stride = self.size.width as usize * 3;
        for area in damage {
            let left = usize::from(area.x) * 3;
            let right = left + usize::from(area.width) * 3;
            let rows = usize::from(area.y)..usize::from(area.y) + usize::from(area.height);
            for row in rows.map(|y| y * stride) {
                let span = row + left..row + right;
                rgb[span.clone()].copy_from_slice(&from.rgb()[span]);
            }
        }
    }

    fn frame(&self) -> Option<Frame> {
        if self.missing > 0 {
            return None;
        }
        Frame::new(self.size, self.rgb.clone()).ok()
    }
}

/// The clipboards of both sides, as far as they were told.
#[derive(Debug, Default)]
pub(super) struct Clipboards {
    pub(super) theirs: Option<String>,
    pub(super) ours: Option<String>,
}

/// What the tasks of a connection share.
pub(super) struct Shared {
    screen: Mutex<Screen>,
    clipboards: Mutex<Clipboards>,
    pub(super) status: watch::Sender<Status>,
    outbox: Mutex<Outbox>,
    outbox_filled: Notify,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

/// No code panics while it holds one of these locks, so a poisoned one is still whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(super) fn new() -> Self {
        let status = Status {
            size: Size::new(0, 0),
            painted: false,
            probe: None,
            last_change: Instant::now(),
            abilities: Arc::default(),
            fence: 0,
            size_reply: None,
            fetched: 0,
            failure: None,
        };
        Self {
            screen: Mutex::new(Screen::new()),
            clipboards: Mutex::default(),
            status: watch::Sender::new(status),
            outbox: Mutex::default(),
            outbox_filled: Notify::new(),
        }
    }

    /// Notes the first failure.
    pub(super) fn fail(&self, error: RfbError) {
        tracing::debug!(%error, "RFB connection failed");
        self.status.send_modify(|status| {
            status.failure.get_or_insert(error);
        });
    }

    /// Queues requests for the writer.
    pub(super) fn post(&self, bytes: &[u8]) -> Result<(), RfbError> {
        let mut outbox = lock(&self.outbox);
        if outbox.requests.len() >= MAX_OUTBOX {
            return Err(RfbError::Malformed {
                what: "the server sends updates but reads no requests",
            });
        }
        outbox.requests.extend(bytes);
        self.outbox_filled.notify_one();
        Ok(())
    }

    /// Tells the others what happened.
    pub(super) fn handle(&self, event: Event, core: &mut Core) {
        match event {
            Event::Connected(init) => {
                tracing::debug!(name = init.name, size = %init.size, "RFB connection ready");
                self.status.send_modify(|status| status.size = init.size);
            }
            Event::Updated(update) => self.publish(update, core),
            Event::Learned => {
                let abilities = Arc::new(core.abilities().cloned().unwrap_or_default());
                tracing::debug!(?abilities, "the server can");
                self.status
                    .send_modify(|status| status.abilities = abilities);
            }
            Event::Fence { payload } => {
                let number = payload.try_into().map_or(0, u64::from_be_bytes);
                self.status
                    .send_modify(|status| status.fence = status.fence.max(number));
            }
            Event::SizeReply(reply) => self
                .status
                .send_modify(|status| status.size_reply = Some(reply)),
            Event::CutText { text } => lock(&self.clipboards).theirs = Some(text),
            Event::CutTextUnknown => lock(&self.clipboards).theirs = None,
            Event::CutTextWanted { peek } => self.offer_text(peek),
            Event::StartTls { .. } | Event::Bell | Event::ColourMap { .. } => {}
        }
    }

    /// The clipboards.
    pub(super) fn clipboards(&self) -> MutexGuard<'_, Clipboards> {
        lock(&self.clipboards)
    }

    /// Says that we have text for the server's clipboard, or which.
    fn offer_text(&self, peek: bool) {
        let mut message = Vec::new();
        match &lock(&self.clipboards).ours {
            Some(text) if !peek => clipboard::provide(text, &mut message),
            text => clipboard::notify(text.is_some(), &mut message),
        }
        lock(&self.outbox).text = message;
        self.outbox_filled.notify_one();
        if !peek {
            self.status.send_modify(|status| status.fetched += 1);
        }
    }

    /// Makes the screen of the core visible to the others.
    fn publish(&self, update: Update, core: &mut Core) {
        let damage = core.screen_mut().map(Framebuffer::take_damage);
        let damage = damage.unwrap_or_default();
        let (size, painted) = {
            let mut screen = lock(&self.screen);
            if update.cursor {
                screen.cursor = core.cursor().cloned().map(Arc::new);
            }
            if let Some(framebuffer) = core.screen() {
                screen.publish(framebuffer, &damage);
                screen.count(update);
            }
            (screen.size, screen.missing == 0)
        };
        self.status.send_modify(|status| {
            status.size = size;
            status.painted = painted;
            status.probe = status
                .probe
                .filter(|(x, y)| !damage.iter().any(|area| area.contains(*x, *y)));
            // One pixel is the answer to a probe.
            if update.painted > 1 || update.resized {
                status.last_change = Instant::now();
            }
        });
    }

    /// The last complete frame; none while pixels of it are still to come.
    pub(super) fn frame(&self) -> Option<Frame> {
        lock(&self.screen).frame()
    }

    /// The pointer's shape.
    pub(super) fn cursor(&self) -> Option<Arc<CursorImage>> {
        lock(&self.screen).cursor.clone()
    }

    /// Waits for requests and takes them.
    pub(super) async fn next_requests(&self) -> Vec<u8> {
        self.outbox_filled.notified().await;
        let Outbox { mut requests, text } = std::mem::take(&mut *lock(&self.outbox));
        requests.extend(text);
        requests
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn requests_that_nobody_reads_do_not_pile_up() {
        let shared = Shared::new();
        let refused = (0..100_000).find(|_| shared.post(&[3; 10]).is_err());
        assert_eq!(refused, Some(MAX_OUTBOX.div_ceil(10)));
        assert!(shared.next_requests().await.len() < MAX_OUTBOX + 10);
        shared.post(&[3; 10]).unwrap();
    }

    /// A long text is no sign of a server that reads nothing, and a server that asks for it again
    /// and again does not make it pile up.
    #[tokio::test]
    async fn a_long_clipboard_is_answered_once_and_stops_nothing() {
        let shared = Shared::new();
        let mut noise = 1u32;
        let text = std::iter::repeat_with(|| {
            noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            char::from(33 + (noise >> 24) as u8 % 90)
        });
        shared.clipboards().ours = Some(text.take(200_000).collect());
        for _ in 0..3 {
            shared.offer_text(false);
        }
        shared.post(&[3; 10]).unwrap();
        let sent = shared.next_requests().await;
        let once = MAX_OUTBOX..2 * 200_000;
        assert!(once.contains(&sent.len()), "{}", sent.len());
        assert_eq!(sent[..10], [3; 10]);
    }

    #[test]
    fn only_what_is_damaged_is_copied_and_old_frames_stay() {
        let mut from = Framebuffer::new(4, 4).unwrap();
        let mut screen = Screen::new();
        let damage = from.take_damage();
        screen.publish(&from, &damage);
        assert_eq!(screen.frame(), None, "pixels are missing");
        screen.count(Update {
            painted: 16,
            ..Update::default()
        });
        let area = Area {
            x: 1,
            y: 2,
            width: 2,
            height: 1,
        };
        from.paint(area, &[9; 8]);
        from.paint(Area::pixel(0, 0), &[5; 4]);
        let damage = from.take_damage();
        screen.publish(&from, &damage[..1]);
        let before = screen.frame().unwrap();
        assert_eq!(before.pixel(2, 2), Some([9; 3]));
        assert_eq!(before.pixel(0, 0), Some([0; 3]));
        screen.publish(&from, &damage[1..]);
        assert_eq!(before.pixel(0, 0), Some([0; 3]));
        assert_eq!(screen.frame().unwrap().rgb(), from.rgb());
    }
}
