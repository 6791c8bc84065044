//! What a simulated phone is, and what is wrong with it.

use std::time::Duration;

/// Whether the phone asks for a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Auth {
    /// It asks for one and takes the first that is offered, as if a person allowed it.
    Accept,
    /// It asks for one and takes none.
    Deny,
    /// It asks for none.
    #[default]
    Open,
}

/// What a simulated phone is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// What it calls itself, `ro.serialno`. Default `DART0001`.
    pub serial_number: String,
    /// Product, model and device in one. Default `dart_phone`.
    pub model: String,
    /// Whether it asks for a key. Default no.
    pub auth: Auth,
    /// Length of the header of a raw `screencap`: 16 (default), or 12 up to Android 8.
    pub screencap_header: usize,
    /// Dots per inch. Default 420.
    pub density: u32,
    /// The packages that are installed. Default: settings, and a launcher.
    pub packages: Vec<String>,
    /// How long a restart takes, milliseconds. Default 200.
    pub reboot_ms: u64,
    /// Whether it offers delayed acknowledgement, which servers from platform-tools 34 on can take.
    /// Default true, as on phones of that time.
    pub delayed_ack: bool,
}

/// The package of the keyboard app that types any text.
pub(crate) const KEYBOARD: &str = "com.android.adbkeyboard";
/// The package of the app that sets the clipboard.
pub(crate) const CLIPBOARD: &str = "ca.zgrs.clipper";

impl Default for Options {
    fn default() -> Self {
        Self {
            serial_number: "DART0001".into(),
            model: "dart_phone".into(),
            auth: Auth::Open,
            screencap_header: 16,
            density: 420,
            packages: vec![
                "com.android.settings".into(),
                "com.android.launcher3".into(),
            ],
            reboot_ms: 200,
            delayed_ack: true,
        }
    }
}

impl Options {
    /// The default with a keyboard app that types any text.
    pub fn with_keyboard() -> Self {
        let mut options = Self::default();
        options.packages.push(KEYBOARD.into());
        options
    }

    /// The default with an app that sets the clipboard.
    pub fn with_clipboard() -> Self {
        let mut options = Self::default();
        options.packages.push(CLIPBOARD.into());
        options
    }
}

/// How `uiautomator dump` fails, always with exit code 0 as real ones do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UiFault {
    /// The dump has no node.
    Empty,
    /// "could not get idle state".
    Idle,
    /// "null root node returned by UiTestAutomationBridge".
    NullRoot,
}

/// A device that attacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hostile {
    /// In the middle of a service, it sends a header with an impossible length.
    BadHeader,
    /// Its pictures have impossible sizes.
    BadPacket,
    /// Every service sends packet after packet, whether or not they are acknowledged.
    Flood,
    /// Its pieces of files are longer than the protocol allows.
    LongPieces,
    /// After the greeting it opens a connection to this port of the server's machine, unasked.
    OpenPort(u16),
    /// Its listings name files in other folders.
    PathTraversal,
    /// Before each service it sends data, acknowledgements and ends of streams that nobody opened.
    Stray,
}

/// What is wrong with the phone. All off by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
pub struct Faults {
    /// The next so many services are closed at once.
    pub close_services: u32,
    /// The terminal and, damaged as on old devices, `exec` turn LF into CR LF.
    pub crlf: bool,
    /// The connection is cut after so many bytes of the next transfers.
    pub cut_after: Option<usize>,
    /// A warning about several displays comes before each picture.
    pub display_warning: bool,
    /// It attacks.
    pub hostile: Option<Hostile>,
    /// Connections are cut at once, as by a phone that is switched off.
    pub refuse: bool,
    /// The screen is turned by 90 degrees.
    pub rotated: bool,
    /// It takes connections and never greets: `offline`.
    pub silent: bool,
    /// Each command takes so much longer.
    pub slow: Duration,
    /// Commands never end; restarting helps.
    pub stall: bool,
    /// How dumps of the user interface fail.
    pub ui: Option<UiFault>,
}
