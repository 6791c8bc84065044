//! How the screen is held, and from the pixels of a picture to those that `input` takes.

use dart_core::{ScreenPx, Size};

/// What `dumpsys window displays` says of the first display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Display {
    /// Width and height as it is held; the space of `input`.
    pub(crate) size: Size,
    /// Quarter turns from the upright position, 0 to 3.
    pub(crate) turns: u8,
}

/// The command whose output [`Display::parse`] reads.
pub(crate) const COMMAND: &str = "dumpsys window displays";

impl Display {
    /// Reads the dump; `None` if it has no size (then touches are not checked).
    pub(crate) fn parse(dump: &str) -> Option<Self> {
        let word = |name: &str| {
            let rest = &dump[dump.find(name)? + name.len()..];
            rest.split_whitespace().next()
        };
        let (width, height) = word("cur=")?.split_once('x')?;
        let size = Size::new(width.parse().ok()?, height.parse().ok()?);
        let possible = |side: u32| (1..=1 << 14).contains(&side);
        let turns = word("mCurrentRotation=").or_else(|| word("mRotation="));
        let turns = match turns.map(|word| word.trim_start_matches("ROTATION_")) {
            Some("90" | "1") => 1,
            Some("180" | "2") => 2,
            Some("270" | "3") => 3,
            _ => 0,
        };
        (possible(size.width) && possible(size.height)).then_some(Self { size, turns })
    }

    /// Where to touch for the point `at` of a picture of size `picture`. A picture that is upright
    /// although the screen is not is turned, one of another size is scaled.
    pub(crate) fn locate(&self, at: ScreenPx, picture: Size) -> ScreenPx {
        let is_wide = |size: Size| size.width > size.height;
        let (at, picture) = if is_wide(picture) == is_wide(self.size) {
            (at, picture)
        } else {
            self.turned(at, picture)
        };
        let scale = |value: i32, from: u32, to: u32| {
            let middle = i64::from(2 * value + 1) * i64::from(to) / i64::from(2 * from.max(1));
            middle.clamp(0, i64::from(to) - 1) as i32
        };
        ScreenPx::new(
            scale(at.x, picture.width, self.size.width),
            scale(at.y, picture.height, self.size.height),
        )
    }

    fn turned(&self, at: ScreenPx, picture: Size) -> (ScreenPx, Size) {
        let (right, bottom) = (picture.width as i32 - 1, picture.height as i32 - 1);
        let turned = Size::new(picture.height, picture.width);
        let at = if self.turns == 3 {
            ScreenPx::new(bottom - at.y, at.x)
        } else {
            ScreenPx::new(at.y, right - at.x)
        };
        (at, turned)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn dumps_of_old_and_new_versions_are_read() {
        let new = "Display: mDisplayId=0\n  init=1080x2400 420dpi cur=2400x1080 app=2400x1017\n  mCurrentRotation=ROTATION_90\n";
        let display = Display::parse(new).unwrap();
        assert_eq!((display.size, display.turns), (Size::new(2400, 1080), 1));
        let old =
            "init=720x1280 320dpi cur=720x1280 app=720x1184\n mRotation=0 mAltOrientation=false";
        assert_eq!(Display::parse(old).unwrap().turns, 0);
        for bad in ["", "cur=", "cur=0x9", "cur=ax9", "cur=99999x2"] {
            assert_eq!(Display::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn points_are_scaled_and_turned() {
        let size = Size::new(1080, 2400);
        let upright = Display { size, turns: 0 };
        let at = ScreenPx::new(270, 1199);
        assert_eq!(upright.locate(at, size), at);
        let half = upright.locate(ScreenPx::new(100, 300), Size::new(540, 1200));
        assert_eq!(half, ScreenPx::new(201, 601));
        // A picture that stayed upright: its top right corner is the top left one of a screen
        // turned by 90 degrees.
        let wide = Size::new(2400, 1080);
        let left = Display {
            size: wide,
            turns: 1,
        };
        assert_eq!(
            left.locate(ScreenPx::new(1079, 0), size),
            ScreenPx::new(0, 0)
        );
        let right = Display {
            size: wide,
            turns: 3,
        };
        assert_eq!(
            right.locate(ScreenPx::new(0, 2399), size),
            ScreenPx::new(0, 0)
        );
    }

    proptest! {
        #[test]
        fn points_stay_on_the_screen(
            (w, h, x, y) in (1u32..3000, 1u32..3000, 0i32..3000, 0i32..3000), turns in 0u8..4,
        ) {
            let display = Display { size: Size::new(500, 900), turns };
            let at = display.locate(ScreenPx::new(x % w as i32, y % h as i32), Size::new(w, h));
            prop_assert!(display.size.contains(at));
        }

        #[test]
        fn no_dump_makes_it_panic(dump in ".{0,80}|(cur=|mRotation=)[0-9x]{0,12}") {
            let _ = Display::parse(&dump);
        }
    }
}
