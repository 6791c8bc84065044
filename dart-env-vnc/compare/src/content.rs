//! What the screens show: pixels as desktops have them, as photographs have them, and both. `salt`
//! makes another picture of the same kind.

/// A colour for each pixel of a picture.
pub type Picture = fn(x: u32, y: u32, salt: u32) -> [u8; 3];

/// The pictures and their names.
pub const PICTURES: [(&str, Picture); 3] =
    [("desktop", desktop), ("photo", photo), ("mixed", mixed)];

/// Scrambles three numbers.
fn scramble(x: u32, y: u32, salt: u32) -> u32 {
    let seed =
        x.wrapping_mul(0x9e37_79b1) ^ y.wrapping_mul(0x85eb_ca6b) ^ salt.wrapping_mul(0xc2b2_ae35);
    let seed = (seed ^ (seed >> 15)).wrapping_mul(0x27d4_eb2f);
    seed ^ (seed >> 13)
}

/// A panel with buttons at the left, a title, lines of text in paragraphs.
pub fn desktop(x: u32, y: u32, salt: u32) -> [u8; 3] {
    if y < 24 {
        return [40, 90, 160];
    }
    if x < 120 {
        let inside = (8..112).contains(&x) && (y % 32) > 6;
        let shade = (scramble(0, y / 32, salt) % 4 * 20) as u8;
        return if inside {
            [200 - shade, 210, 220]
        } else {
            [235; 3]
        };
    }
    let (line, column) = (y / 14, (x - 120) / 7);
    let (down, across) = (y % 14, (x - 120) % 7);
    let words = scramble(column / 6, line, salt) % 7 != 0 && line % 9 != 8 && column < 150;
    let glyph = scramble(scramble(column, line, salt) % 60, 7, 0);
    let stroke =
        down >= 3 && down < 11 && across < 5 && glyph >> ((down / 2 * 5 + across) % 30) & 1 == 1;
    if words && stroke {
        [30, 30, 34]
    } else {
        [252; 3]
    }
}

/// Slow waves of colour with noise on them, as a camera has it.
pub fn photo(x: u32, y: u32, salt: u32) -> [u8; 3] {
    let wave = |at: u32, length: u32| {
        let place = at % (2 * length);
        if place < length {
            place * 90 / length
        } else {
            (2 * length - place) * 90 / length
        }
    };
    let base = 40 + wave(x + salt * 31, 170) + wave(y + salt * 17, 110);
    let noise = scramble(x, y, salt);
    let channel = |number: u32| (base + number * 12 % 40 + (noise >> (number * 8)) % 14) as u8;
    [channel(0), channel(1), channel(2)]
}

/// A page with a photograph in it.
pub fn mixed(x: u32, y: u32, salt: u32) -> [u8; 3] {
    if (500..1140).contains(&x) && (200..620).contains(&y) {
        photo(x, y, salt)
    } else {
        desktop(x, y, salt)
    }
}
