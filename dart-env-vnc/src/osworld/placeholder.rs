//! Placeholders in commands, such as `{CLIENT_PASSWORD}`.

use dart_core::Size;

use super::step::GuestCommand;

/// The password of the guest's user.
pub(super) const PASSWORD: &str = "CLIENT_PASSWORD";

/// Values of the placeholders of one guest.
#[derive(Clone)]
pub(super) struct Placeholders {
    screen: Size,
    password: Option<String>,
}

impl std::fmt::Debug for Placeholders {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Placeholders")
            .field("screen", &self.screen)
            .finish_non_exhaustive()
    }
}

/// Whether `text` has the placeholder `name`.
pub(super) fn holds(text: &str, name: &str) -> bool {
    text.contains(&format!("{{{name}}}"))
}

impl Placeholders {
    pub(super) const fn new(screen: Size, password: Option<String>) -> Self {
        Self { screen, password }
    }

    fn replace(&self, text: &str) -> String {
        let Size { width, height } = self.screen;
        let mut text = text
            .replace("{SCREEN_WIDTH_HALF}", &(width / 2).to_string())
            .replace("{SCREEN_HEIGHT_HALF}", &(height / 2).to_string())
            .replace("{SCREEN_WIDTH}", &width.to_string())
            .replace("{SCREEN_HEIGHT}", &height.to_string());
        if let Some(password) = &self.password {
            text = text.replace(&format!("{{{PASSWORD}}}"), password);
        }
        text
    }

    /// `command` with its placeholders replaced.
    pub(super) fn fill(&self, command: &GuestCommand) -> GuestCommand {
        command.map(|text| self.replace(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::osworld::step::CommandText;

    #[test]
    fn placeholders_are_replaced_and_the_password_is_not_shown() {
        let known = Placeholders::new(Size::new(1280, 721), Some("secret".into()));
        let text = "echo {CLIENT_PASSWORD} | x {SCREEN_WIDTH_HALF},{SCREEN_HEIGHT_HALF} {OTHER}";
        let command = GuestCommand {
            command: CommandText::Line(text.into()),
            shell: true,
        };
        let filled = known.fill(&command).command;
        assert_eq!(
            filled,
            CommandText::Line("echo secret | x 640,360 {OTHER}".into())
        );
        assert!(!format!("{known:?}").contains("secret"));
        assert!(holds(text, PASSWORD) && !holds("CLIENT_PASSWORD", PASSWORD));
    }
}
