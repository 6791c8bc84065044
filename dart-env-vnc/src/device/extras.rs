//! What a desktop offers beside actions and screenshots: the pointer's shape, clipboards, another
//! size of the screen.

use std::sync::Arc;

use dart_core::{Result, Size};

use super::VncDevice;
use crate::rfb::{Abilities, Connection, CursorImage};

impl VncDevice {
    /// What the server can do, as far as it has told; of a lost server, nothing.
    pub fn abilities(&self) -> Arc<Abilities> {
        let connection = self.connection.as_ref();
        connection.map(Connection::abilities).unwrap_or_default()
    }

    /// The text that the server's clipboard was last said to have.
    pub fn clipboard(&self) -> Option<String> {
        self.connection.as_ref().and_then(Connection::clipboard)
    }

    /// Gives the server's clipboard this text, to be pasted by whatever pastes there.
    ///
    /// # Errors
    /// [`Unsupported`](dart_core::ErrorKind::Unsupported) for other characters than Latin-1 if the
    /// server's clipboard takes only those, [`Protocol`](dart_core::ErrorKind::Protocol) for more
    /// than 1 MiB, or that of a lost connection.
    pub async fn set_clipboard(&self, text: &str) -> Result<()> {
        let set = async { self.connection()?.set_clipboard(text).await };
        self.explain("set_clipboard", set.await)
    }

    /// Asks for a screen of `size` and waits until it has it.
    ///
    /// # Errors
    /// [`Unsupported`](dart_core::ErrorKind::Unsupported) if the server does not offer it or
    /// refuses, [`Timeout`](dart_core::ErrorKind::Timeout) if it does not say.
    pub async fn resize(&mut self, size: Size) -> Result<()> {
        self.check_open("resize")?;
        let resized = async { self.connection()?.resize(size).await };
        let resized = resized.await;
        self.explain("resize", resized)?;
        let followed = self.follow_resize().await;
        self.explain("resize", followed)
    }

    /// Lets go of every key and button that is held: between episodes, for task drivers. Closing,
    /// recovering and dropping do so anyway.
    ///
    /// # Errors
    /// If the connection is lost.
    pub async fn release(&mut self) -> Result<()> {
        self.check_open("release")?;
        let steps = self.input.release(self.spec.screen);
        let released = self.act(steps).await;
        self.explain("release", released)?;
        self.interrupted = false;
        Ok(())
    }

    /// The pointer's shape, if the server told it.
    pub fn cursor(&self) -> Option<Arc<CursorImage>> {
        self.connection.as_ref().and_then(Connection::cursor)
    }
}
