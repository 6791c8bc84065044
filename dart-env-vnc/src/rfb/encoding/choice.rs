//! Which encodings are offered to a server, and in which pixel format.

use serde::{Deserialize, Serialize};

use super::{super::pixel::PixelFormat, number};

/// The encoding that a server is asked to send pixels in.
///
/// A server may send Raw instead of any of them, and all of ours are decoded whichever is asked
/// for: the choice is a wish.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EncodingChoice {
    /// [`Raw`](Self::Raw) on loopback, [`Tight`](Self::Tight) on a network. The default: a full
    /// 1280x800 frame costs a local server 2 ms in Raw and 6 to 41 ms compressed, but is 4 MB.
    #[default]
    Auto,
    /// Plain pixels.
    Raw,
    /// A background and rectangles on it.
    Rre,
    /// RRE with coordinates of one byte.
    Corre,
    /// Tiles of 16x16.
    Hextile,
    /// Raw pixels through zlib.
    Zlib,
    /// Tight without loss.
    Tight,
    /// Tight with JPEG where the server finds it better. Loses detail.
    TightJpeg,
    /// Tight with PNG.
    TightPng,
    /// Run lengths in tiles of 16x16.
    Trle,
    /// Run lengths in tiles of 64x64 through zlib.
    Zrle,
    /// ZRLE with a wavelet. Loses detail.
    Zywrle,
}

impl EncodingChoice {
    /// Every choice that names an encoding.
    pub const ALL: [Self; 11] = [
        Self::Raw,
        Self::Rre,
        Self::Corre,
        Self::Hextile,
        Self::Zlib,
        Self::Tight,
        Self::TightJpeg,
        Self::TightPng,
        Self::Trle,
        Self::Zrle,
        Self::Zywrle,
    ];

    /// The choice with `Auto` decided: `local` says whether the server is on this machine.
    pub const fn decide(self, local: bool) -> Self {
        match (self, local) {
            (Self::Auto, true) => Self::Raw,
            (Self::Auto, false) => Self::Tight,
            (named, _) => named,
        }
    }

    /// The numbers to offer for it, preferred first, without pseudo-encodings. `local` decides
    /// `Auto`.
    pub fn numbers(self, local: bool) -> Vec<i32> {
        let preferred: &[i32] = match self.decide(local) {
            Self::Auto | Self::Raw => &[],
            Self::Rre => &[number::RRE],
            Self::Corre => &[number::CORRE],
            Self::Hextile => &[number::HEXTILE],
            Self::Zlib => &[number::ZLIB],
            Self::Tight => &[number::TIGHT],
            Self::TightJpeg => &[number::TIGHT, number::QUALITY_0 + Self::JPEG_QUALITY],
            Self::TightPng => &[number::TIGHT_PNG],
            Self::Trle => &[number::TRLE],
            Self::Zrle => &[number::ZRLE],
            Self::Zywrle => &[number::ZYWRLE],
        };
        [preferred, &[number::RAW]].concat()
    }

    /// The JPEG quality that [`TightJpeg`](Self::TightJpeg) asks for: 6 of 9, where text is still
    /// sharp and a frame has a tenth of its size.
    pub const JPEG_QUALITY: i32 = 6;
}

/// What a client asks of a server's pixels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Numbers of encodings and pseudo-encodings, preferred first.
    pub encodings: Vec<i32>,
    /// The pixel format to ask for; `None` takes the server's own.
    pub format: Option<PixelFormat>,
}

impl Offer {
    /// The pseudo-encodings that the client follows whatever the pixels come in.
    const PSEUDO: [i32; 5] = [
        number::CURSOR_WITH_ALPHA,
        number::CURSOR,
        number::X_CURSOR,
        number::DESKTOP_SIZE,
        number::LAST_RECT,
    ];

    /// Pixels as `choice` says, in the format that needs no conversion; `local` decides `Auto`.
    pub fn new(choice: EncodingChoice, local: bool) -> Self {
        let mut encodings = choice.numbers(local);
        // After the pixels' own encoding, so that a server that takes the first takes that.
        encodings.push(number::COPY_RECT);
        encodings.extend(Self::PSEUDO);
        encodings.extend(super::super::session::pseudo::OFFERED);
        Self {
            encodings,
            format: Some(PixelFormat::WIRE),
        }
    }
}

impl Default for Offer {
    /// What suits a server on this machine.
    fn default() -> Self {
        Self::new(EncodingChoice::Auto, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_is_raw_on_this_machine_and_tight_elsewhere() {
        assert_eq!(EncodingChoice::Auto.numbers(true), [number::RAW]);
        assert_eq!(
            EncodingChoice::Auto.numbers(false),
            [number::TIGHT, number::RAW]
        );
    }

    #[test]
    fn every_choice_leads_with_its_own_number() {
        let mut leaders = EncodingChoice::ALL.map(|choice| choice.numbers(true)[0]);
        leaders.sort_unstable();
        assert_eq!(leaders, [-260, 0, 2, 4, 5, 6, 7, 7, 15, 16, 17]);
    }

    #[test]
    fn choices_are_written_in_snake_case() {
        let choice: EncodingChoice = serde_json::from_str("\"tight_jpeg\"").unwrap();
        assert_eq!(choice, EncodingChoice::TightJpeg);
        assert!(serde_json::from_str::<EncodingChoice>("\"Raw\"").is_err());
    }
}
