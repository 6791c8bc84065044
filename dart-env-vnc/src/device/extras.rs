//! What a desktop offers beside actions and screenshots: every pixel anew, the pointer's shape,
//! clipboards, another size of the screen.

use std::sync::Arc;

use dart_core::{Frame, Result, Size};

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
    /// server's clipboard takes only those,
    /// [`InvalidAction`](dart_core::ErrorKind::InvalidAction) for more than 1 MiB, or that of a lost
    /// connection.
    pub async fn set_clipboard(&self, text: &str) -> Result<()> {
        let set = async { self.connection()?.set_clipboard(text).await };
        self.explain("set_clipboard", set.await)
    }

    /// A frame of which every pixel was fetched anew, for servers that miss changes (x11vnc without
    /// the damage extension) and for measurements: an ordinary screenshot brings what has changed.
    ///
    /// # Errors
    /// [`Timeout`](dart_core::ErrorKind::Timeout) if the server does not send it, or that of a lost
    /// connection.
    pub async fn refresh(&mut self) -> Result<Frame> {
        self.check_open("refresh")?;
        let refreshed = async { self.connection()?.refresh().await };
        let refreshed = refreshed.await;
        self.explain("refresh", refreshed)?;
        let frame = self.current_frame().await;
        self.explain("refresh", frame)
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

    /// Empties the server's clipboard, whoever filled it: between episodes, for task drivers, so that
    /// none finds what another one has copied.
    ///
    /// # Errors
    /// If the connection is lost.
    pub async fn clear_clipboard(&self) -> Result<()> {
        let cleared = async { self.connection()?.clear_clipboard().await };
        self.explain("clear_clipboard", cleared.await)
    }

    /// Lets go of every key and button that an action holds, and waits until the server has taken
    /// that: between episodes, for task drivers that keep the connection. What other clients hold
    /// and the modifiers that were down before stay; [`recover`](dart_core::Device::recover)
    /// releases those too. Closing, recovering and dropping release what is held anyway; the
    /// clipboard is emptied by [`clear_clipboard`](Self::clear_clipboard) alone.
    ///
    /// # Errors
    /// If the connection is lost; then what is held is remembered, and released by `recover`.
    ///
    /// # Cancel safety
    /// What was not released for certain still counts as held.
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
