//! What can go wrong; converted to [`dart_core::Error`] where it leaves the crate.

use dart_core::{Error, ErrorKind, Size};

const ORIGIN: &str = "dart-env-sim";

#[derive(Debug, thiserror::Error)]
pub(crate) enum SimError {
    #[error("screen is {0}; it must be at least {1} and at most 8192 px a side")]
    Screen(Size, Size),
    #[error("grid is {0}; it must be 1 to 8 px")]
    Grid(u32),
    #[error("random_words is {0}; it must be 0 to 1")]
    RandomWords(f64),
    #[error("unknown task family \"{0}\" for this device; known: {1}")]
    Family(String, String),
    #[error("no layout of \"{0}\" found for this split and screen")]
    Layout(&'static str),
    #[error("apps need a phone: device has to be \"phone\"")]
    NoPhone,
    #[error("the device is closed")]
    Closed,
    #[error("no task is set up")]
    NoTask,
}

impl SimError {
    const fn kind(&self) -> ErrorKind {
        match self {
            Self::Screen(..)
            | Self::Grid(_)
            | Self::RandomWords(_)
            | Self::NoPhone
            | Self::Family(..) => ErrorKind::Config,
            Self::Layout(_) => ErrorKind::Internal,
            Self::Closed | Self::NoTask => ErrorKind::Misuse,
        }
    }

    const fn operation(&self) -> &'static str {
        match self {
            Self::Screen(..) | Self::Grid(_) | Self::RandomWords(_) | Self::NoPhone => "configure",
            Self::Family(..) | Self::Layout(_) => "set up",
            Self::Closed => "use",
            Self::NoTask => "judge",
        }
    }
}

impl From<SimError> for Error {
    fn from(error: SimError) -> Self {
        Self::new(error.kind(), ORIGIN, error.operation(), error.to_string())
    }
}
