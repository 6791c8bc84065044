//! Small helpers on rectangles.

use dart_core::{Rect, ScreenPx};

/// The first column to the right of `rect`.
pub(crate) const fn right(rect: Rect) -> i32 {
    rect.x + rect.width as i32
}

/// The first row below `rect`.
pub(crate) const fn bottom(rect: Rect) -> i32 {
    rect.y + rect.height as i32
}

/// `rect` with `by` pixels added on each side; negative shrinks.
pub(crate) fn grown(rect: Rect, by: i32) -> Rect {
    let side = |side: u32| (side as i32 + 2 * by).max(0) as u32;
    Rect::new(
        rect.x - by,
        rect.y - by,
        side(rect.width),
        side(rect.height),
    )
}

/// Whether the two share a pixel.
pub(crate) const fn overlap(a: Rect, b: Rect) -> bool {
    a.x < right(b) && b.x < right(a) && a.y < bottom(b) && b.y < bottom(a)
}

/// Whether `inner` lies inside `outer`.
pub(crate) const fn encloses(outer: Rect, inner: Rect) -> bool {
    inner.x >= outer.x
        && inner.y >= outer.y
        && right(inner) <= right(outer)
        && bottom(inner) <= bottom(outer)
}

/// The middle of the 8-px cell that holds the centre of `rect`: where an expert points, so that a
/// policy which points at cells can imitate it exactly.
pub(crate) const fn cell_target(rect: Rect) -> ScreenPx {
    let center = rect.center();
    ScreenPx::new(
        center.x.div_euclid(8) * 8 + 4,
        center.y.div_euclid(8) * 8 + 4,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_do_not_overlap() {
        let a = Rect::new(0, 0, 8, 8);
        assert!(!overlap(a, Rect::new(8, 0, 8, 8)));
        assert!(overlap(grown(a, 1), Rect::new(8, 0, 8, 8)));
        assert!(encloses(a, grown(a, -1)) && !encloses(a, grown(a, 1)));
        assert_eq!(grown(a, -5).width, 0);
    }

    #[test]
    fn a_target_is_inside_whatever_is_16_px_high() {
        for y in 0..40 {
            let rect = Rect::new(3, y, 40, 16);
            assert!(rect.contains(cell_target(rect)));
        }
    }
}
