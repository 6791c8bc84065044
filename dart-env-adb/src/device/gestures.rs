//! Touches and keys as commands of `input`.

use dart_core::{Direction, ScreenPx, Size};

/// How long a finger takes for a swipe, milliseconds. Slow enough that lists do not fly on.
const SWIPE_MS: u32 = 500;
/// How long a long press is; Android's own threshold is 500 ms at most.
const LONG_PRESS_MS: u32 = 1000;
/// Fingers are set down so far from the edge, where the system's own gestures begin: one part in so
/// many of the side.
const MARGIN: i32 = 20;
/// Most swipes in one command line: each command is a connection of its own, and a busy phone still
/// ends so many within the deadline of a call.
const AT_ONCE: usize = 5;

pub(crate) const ENTER: u32 = 66;
pub(crate) const BACK: u32 = 4;
pub(crate) const HOME: u32 = 3;
pub(crate) const PASTE: u32 = 279;
pub(crate) const TAB: u32 = 61;

pub(crate) fn key(code: u32) -> String {
    format!("input keyevent {code}")
}

pub(crate) fn tap(at: ScreenPx) -> String {
    format!("input tap {} {}", at.x, at.y)
}

pub(crate) fn double_tap(at: ScreenPx) -> String {
    // One command line: the second tap follows as soon as it can.
    format!("{} && {}", tap(at), tap(at))
}

pub(crate) fn long_press(at: ScreenPx) -> String {
    line(at, at, LONG_PRESS_MS)
}

pub(crate) fn swipe(from: ScreenPx, to: ScreenPx) -> String {
    line(from, to, SWIPE_MS)
}

fn line(from: ScreenPx, to: ScreenPx, millis: u32) -> String {
    format!(
        "input swipe {} {} {} {} {millis}",
        from.x, from.y, to.x, to.y
    )
}

/// The command lines of a scroll. Each of its swipes moves the view by a third of the screen, from
/// `at`, or from the opposite side if there is no room for the finger on the way.
pub(crate) fn scroll(
    at: Option<ScreenPx>,
    direction: Direction,
    notches: u8,
    screen: Size,
) -> Vec<String> {
    let middle = ScreenPx::new(screen.width as i32 / 2, screen.height as i32 / 2);
    let from = at.unwrap_or(middle);
    let vertical = matches!(direction, Direction::Up | Direction::Down);
    let side = if vertical {
        screen.height
    } else {
        screen.width
    } as i32;
    let start = if vertical { from.y } else { from.x };
    // The finger goes against the view.
    let forward = matches!(direction, Direction::Down | Direction::Right);
    let (start, end) = travel(start, side, forward);
    let place = |along: i32| {
        if vertical {
            ScreenPx::new(from.x, along)
        } else {
            ScreenPx::new(along, from.y)
        }
    };
    let swipes = vec![swipe(place(start), place(end)); usize::from(notches)];
    let lines = swipes.chunks(AT_ONCE).map(|some| some.join(" && "));
    lines.collect()
}

/// From where to where a finger goes along a side.
fn travel(start: i32, side: i32, forward: bool) -> (i32, i32) {
    let third = (side / 3).max(1);
    let last = side - 1 - side / MARGIN;
    let first = side / MARGIN;
    if forward {
        let start = if start - third < first {
            first + third
        } else {
            start
        };
        (start.min(side - 1), (start - third).max(0))
    } else {
        let start = if start + third > last {
            last - third
        } else {
            start
        };
        (start.max(0), (start + third).min(side - 1))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_finger_goes_against_the_view() {
        let screen = Size::new(90, 300);
        let at = Some(ScreenPx::new(40, 200));
        let down = scroll(at, Direction::Down, 2, screen);
        let swipe = "input swipe 40 200 40 100 500";
        assert_eq!(down, [format!("{swipe} && {swipe}")]);
        let many = scroll(at, Direction::Down, 11, screen);
        let swipes = |line: &String| line.matches("swipe").count();
        assert_eq!(many.iter().map(swipes).collect::<Vec<_>>(), [5, 5, 1]);
        assert_eq!(
            scroll(None, Direction::Left, 1, screen),
            ["input swipe 45 150 75 150 500"]
        );
        // No room above: the finger starts lower.
        let top = Some(ScreenPx::new(40, 10));
        assert_eq!(
            scroll(top, Direction::Down, 1, screen),
            ["input swipe 40 115 40 15 500"]
        );
    }

    proptest! {
        #[test]
        fn fingers_stay_on_the_screen_and_move(side in 3i32..3000, start in 0i32..3000, forward: bool) {
            let (from, to) = travel(start % side, side, forward);
            prop_assert!((0..side).contains(&from) && (0..side).contains(&to) && from != to);
            prop_assert_eq!(from > to, forward);
        }
    }
}
