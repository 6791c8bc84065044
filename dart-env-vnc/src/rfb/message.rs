//! Client messages to bytes (RFC 6143 §7.5).

use super::{framebuffer::Area, pixel::PixelFormat};

/// Asks for pixels in `format`.
pub fn set_pixel_format(format: PixelFormat, out: &mut Vec<u8>) {
    out.extend([0; 4]);
    format.write(out);
}

/// Offers encodings, preferred first.
pub fn set_encodings(encodings: &[i32], out: &mut Vec<u8>) {
    out.extend([2, 0]);
    out.extend((encodings.len() as u16).to_be_bytes());
    for encoding in encodings {
        out.extend(encoding.to_be_bytes());
    }
}

/// Asks for `area`: what changes in it, or all of it.
pub fn update_request(incremental: bool, area: Area, out: &mut Vec<u8>) {
    out.extend([3, incremental.into()]);
    for field in [area.x, area.y, area.width, area.height] {
        out.extend(field.to_be_bytes());
    }
}

/// Presses or releases a key.
pub fn key(keysym: u32, down: bool, out: &mut Vec<u8>) {
    out.extend([4, down.into(), 0, 0]);
    out.extend(keysym.to_be_bytes());
}

/// Moves the pointer; bit n of `buttons` says that button n + 1 is down.
pub fn pointer(x: u16, y: u16, buttons: u8, out: &mut Vec<u8>) {
    out.extend([5, buttons]);
    out.extend(x.to_be_bytes());
    out.extend(y.to_be_bytes());
}

/// Moves the pointer by so much, where the server takes only that (QEMU without a tablet).
pub fn relative_pointer(right: i32, down: i32, buttons: u8, out: &mut Vec<u8>) {
    // The middle of the range means no motion.
    let field = |by: i32| (by.clamp(-0x7fff, 0x7fff) + 0x7fff) as u16;
    pointer(field(right), field(down), buttons, out);
}

/// Like [`pointer()`], for a server that takes nine buttons and more.
pub fn wide_pointer(x: u16, y: u16, buttons: u16, out: &mut Vec<u8>) {
    // Bit 7 of the usual mask says that a byte of higher buttons follows.
    if buttons < 0x80 {
        return pointer(x, y, buttons as u8, out);
    }
    pointer(x, y, buttons as u8 & 0x7f | 0x80, out);
    out.push((buttons >> 7) as u8);
}

/// Presses or releases a key, named by keysym and by XT scancode (QEMU extended key event).
pub fn scancode(keysym: u32, code: u8, down: bool, out: &mut Vec<u8>) {
    out.extend([255, 0, 0, down.into()]);
    out.extend(keysym.to_be_bytes());
    out.extend(u32::from(code).to_be_bytes());
}

/// A fence that is to be answered.
pub(crate) const FENCE_REQUEST: u32 = 1 << 31;

/// A fence before which everything has to be done.
pub(crate) const FENCE_BLOCK_BEFORE: u32 = 1;

/// The kinds of fences that there are: block before, block after, together with the next.
pub(crate) const FENCE_KINDS: u32 = 0b111;

/// A fence, or the answer to one.
pub fn fence(flags: u32, payload: &[u8], out: &mut Vec<u8>) {
    out.extend([248, 0, 0, 0]);
    out.extend(flags.to_be_bytes());
    out.push(payload.len() as u8);
    out.extend(payload);
}

/// Switches continuous updates of `area` on or off.
pub fn continuous_updates(on: bool, area: Area, out: &mut Vec<u8>) {
    out.extend([150, on.into()]);
    for field in [area.x, area.y, area.width, area.height] {
        out.extend(field.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_those_of_the_rfc() {
        let mut out = Vec::new();
        update_request(
            true,
            Area {
                x: 1,
                y: 2,
                width: 0x300,
                height: 4,
            },
            &mut out,
        );
        assert_eq!(out, [3, 1, 0, 1, 0, 2, 3, 0, 0, 4]);
        out.clear();
        key(0x0100_20ac, true, &mut out);
        assert_eq!(out, [4, 1, 0, 0, 1, 0, 0x20, 0xac]);
        out.clear();
        pointer(258, 3, 0b101, &mut out);
        assert_eq!(out, [5, 5, 1, 2, 0, 3]);
        out.clear();
        set_encodings(&[0, -239], &mut out);
        assert_eq!(out, [2, 0, 0, 2, 0, 0, 0, 0, 255, 255, 255, 17]);
    }

    #[test]
    fn extensions_are_those_of_rfbproto() {
        let mut out = Vec::new();
        relative_pointer(-1, 2, 4, &mut out);
        assert_eq!(out, [5, 4, 0x7f, 0xfe, 0x80, 0x01]);
        out.clear();
        wide_pointer(1, 2, 0b1_0000_0001, &mut out);
        assert_eq!(out, [5, 0x81, 0, 1, 0, 2, 2]);
        out.clear();
        wide_pointer(1, 2, 4, &mut out);
        assert_eq!(out, [5, 4, 0, 1, 0, 2]);
        out.clear();
        scancode(0xff52, 0xc8, true, &mut out);
        assert_eq!(out, [255, 0, 0, 1, 0, 0, 0xff, 0x52, 0, 0, 0, 0xc8]);
        out.clear();
        fence(FENCE_REQUEST | FENCE_BLOCK_BEFORE, b"ab", &mut out);
        assert_eq!(out, [248, 0, 0, 0, 0x80, 0, 0, 1, 2, b'a', b'b']);
        out.clear();
        continuous_updates(true, Area::pixel(1, 2), &mut out);
        assert_eq!(out, [150, 1, 0, 1, 0, 2, 0, 1, 0, 1]);
    }
}
