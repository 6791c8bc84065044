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
}
