//! Characters on servers that take scancodes: those of a US keyboard are keys, others can be pasted.

use dart_core::{Action, Error, ErrorKind, Key, Modifier, Result};

use super::VncDevice;

/// Text that is on its way through the clipboard.
#[derive(Debug)]
pub(super) struct Pasted {
    /// What pastes it.
    pub(super) keys: Action,
    /// How often the server had asked for our text before.
    fetched: u64,
}

impl VncDevice {
    /// The first character of `action` that the server has no key for.
    fn untypable(&self, action: &Action) -> Option<char> {
        let character = |key: &Key| match key {
            Key::Char(c) => Some(*c),
            Key::Named(_) => None,
        };
        let dialect = self.dialect();
        match action {
            Action::Type { text } => dialect.untypable(text.chars()),
            Action::KeyDown { key } | Action::Press { key } => {
                dialect.untypable(character(key).into_iter())
            }
            Action::Hotkey { keys } => dialect.untypable(keys.iter().filter_map(character)),
            _ => None,
        }
    }

    /// Whether characters without a key can be pasted.
    fn pastes(&self, action: &Action) -> bool {
        let text = matches!(action, Action::Type { .. });
        text && self.config.paste_untypable && self.abilities().utf8_clipboard
    }

    /// Fails if the server has no key for a character, and it cannot be pasted either.
    pub(super) fn check_keys(&self, action: &Action) -> Result<()> {
        let Some(c) = self.untypable(action).filter(|_| !self.pastes(action)) else {
            return Ok(());
        };
        let message = "this server takes scancodes, and a US keyboard has no key for the character";
        let kind = ErrorKind::InvalidAction;
        let error = Error::new(kind, "dart-env-vnc", "perform", message);
        Err(error.with("character", c.escape_debug()))
    }

    /// Offers the text of `action` on the clipboard if it cannot be typed.
    pub(super) async fn offer_untypable(&self, action: &Action) -> Result<Option<Pasted>> {
        let text = match action {
            Action::Type { text } if self.untypable(action).is_some() => text,
            _ => return Ok(None),
        };
        let offered = async {
            let connection = self.connection()?;
            let fetched = connection.fetched();
            connection.set_clipboard(text).await?;
            Ok(fetched)
        };
        let fetched = self.explain("perform", offered.await)?;
        let keys = vec![Modifier::Ctrl.key(), Key::Char('v')];
        Ok(Some(Pasted {
            keys: Action::Hotkey { keys },
            fetched,
        }))
    }

    /// Fails if nobody has taken the text: keys alone prove nothing.
    pub(super) async fn wait_pasted(&self, pasted: &Pasted) -> Result<()> {
        let taken = async { self.connection()?.wait_fetched(pasted.fetched).await };
        self.explain("perform", taken.await)
    }
}
