//! What a server may offer beside pixels and input: clipboards, and another size of the screen.

use std::time::Duration;

use dart_core::Size;
use tokio::time::Instant;

use super::{
    super::{
        dial::timed_out,
        error::RfbError,
        limits::MAX_CUT_TEXT_BYTES,
        session::{SizeReply, clipboard, screens},
        shared::{Clipboards, Status},
    },
    Connection,
};

/// How long whoever pastes may take to ask for the text.
const FETCH_DEADLINE: Duration = Duration::from_secs(2);

impl Connection {
    /// The text that the server's clipboard was last said to have.
    pub(crate) fn clipboard(&self) -> Option<String> {
        self.shared.clipboards().theirs.clone()
    }

    /// Gives the server's clipboard this text. A server with the extended clipboard is told that
    /// there is some and fetches it when it is pasted; another one takes Latin-1 only.
    pub(crate) async fn set_clipboard(&self, text: &str) -> Result<(), RfbError> {
        let limit = MAX_CUT_TEXT_BYTES as usize;
        if text.len() > limit {
            let bytes = text.len();
            return Err(RfbError::TextTooLong { bytes, limit });
        }
        let mut message = Vec::new();
        if self.abilities().utf8_clipboard {
            self.shared.clipboards().ours = Some(text.to_owned());
            clipboard::notify(true, &mut message);
        } else {
            message = clipboard::latin_1(text).ok_or(RfbError::NotLatin1)?;
        }
        self.send(message).await
    }

    /// How often the server has asked for our text.
    pub(crate) fn fetched(&self) -> u64 {
        self.status.borrow().fetched
    }

    /// Waits until the server has asked for our text again since it had done so `before` times.
    pub(crate) async fn wait_fetched(&self, before: u64) -> Result<(), RfbError> {
        let limit = FETCH_DEADLINE.min(self.deadlines.update);
        let asked = |status: &Status| status.fetched > before;
        if self.wait(Instant::now() + limit, asked).await? {
            return Ok(());
        }
        Err(RfbError::NotPasted)
    }

    /// Makes the server's clipboard hold nothing, whoever filled it. A server with the extended
    /// clipboard lets go of what another program holds only if it takes it over first.
    pub(crate) async fn clear_clipboard(&self) -> Result<(), RfbError> {
        let mut message = Vec::new();
        if self.abilities().utf8_clipboard {
            clipboard::notify(true, &mut message);
            clipboard::notify(false, &mut message);
        } else {
            message.extend(clipboard::latin_1("").unwrap_or_default());
        }
        *self.shared.clipboards() = Clipboards::default();
        self.send(message).await
    }

    /// Asks for a screen of `size` and waits until it has it.
    pub(crate) async fn resize(&self, size: Size) -> Result<(), RfbError> {
        let first = self.abilities().screens.first().copied();
        let sides = (u16::try_from(size.width), u16::try_from(size.height));
        let (Some(first), (Ok(width), Ok(height))) = (first, sides) else {
            return Err(RfbError::ResizeRefused {
                reason: "the server does not offer it",
            });
        };
        let mut message = Vec::new();
        screens::set_desktop_size((width, height), Some(first), &mut message);
        self.shared
            .status
            .send_modify(|status| status.size_reply = None);
        self.send(message).await?;
        let limit = self.deadlines.update;
        let decided = |status: &Status| {
            // What was passed on may still come; its answer is the size itself.
            let waiting = matches!(status.size_reply, None | Some(SizeReply::Forwarded));
            status.size == size || !waiting
        };
        if !self.wait(Instant::now() + limit, decided).await? {
            return Err(timed_out("change of the screen's size", limit));
        }
        let (now, reply) = {
            let status = self.status.borrow();
            (status.size, status.size_reply)
        };
        let reason = match reply {
            Some(SizeReply::Prohibited) => "the server prohibits it",
            Some(SizeReply::NoResources) => "the server has no room for it",
            Some(SizeReply::Invalid) => "the server finds the layout invalid",
            Some(SizeReply::Unknown(_)) => "the server gives an unknown reason",
            _ if now == size => return Ok(()),
            _ => "the server chose another size",
        };
        Err(RfbError::ResizeRefused { reason })
    }
}
