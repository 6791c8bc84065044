//! What the fuzz targets share: a server's greeting, and a client that is fed.

use dart_env_vnc::rfb::{Core, EncodingChoice, Offer, Password, PixelFormat, RfbError};

/// Sides of the screen: more than a tile of each kind, and no multiple of one.
pub const WIDTH: u16 = 70;
/// See [`WIDTH`].
pub const HEIGHT: u16 = 35;

/// The encodings of rectangles, cursors included.
pub const ENCODINGS: [i32; 14] = [0, 1, 2, 4, 5, 6, 7, 15, 16, 17, -260, -239, -240, -314];

/// Pixel formats of every kind.
pub fn format(number: u8) -> PixelFormat {
    let wide = PixelFormat {
        depth: 30,
        maximum: [1023; 3],
        shift: [20, 10, 0],
        ..PixelFormat::WIRE
    };
    match number % 6 {
        0 => PixelFormat::WIRE,
        1 => PixelFormat::WIRE.swapped(),
        2 => PixelFormat::RGB565,
        3 => PixelFormat::BGR233,
        4 => PixelFormat::MAPPED,
        _ => wide,
    }
}

/// A 3.8 server without security, up to the end of the handshake.
pub fn greeting() -> Vec<u8> {
    let mut bytes = b"RFB 003.008\n\x01\x01\0\0\0\0".to_vec();
    bytes.extend(WIDTH.to_be_bytes());
    bytes.extend(HEIGHT.to_be_bytes());
    bytes.extend([32, 24, 0, 1, 0, 255, 0, 255, 0, 255, 16, 8, 0, 0, 0, 0]);
    bytes.extend([0, 0, 0, 1, b'x']);
    bytes
}

/// The head of an update with one rectangle over the whole screen, and more to come.
pub fn rectangle(encoding: i32) -> Vec<u8> {
    let mut bytes = vec![0, 0, 0xff, 0xff, 0, 0, 0, 0];
    bytes.extend(WIDTH.to_be_bytes());
    bytes.extend(HEIGHT.to_be_bytes());
    bytes.extend(encoding.to_be_bytes());
    bytes
}

/// A client that has heard nothing yet.
pub fn client(format: PixelFormat) -> Core {
    let offer = Offer {
        format: Some(format),
        ..Offer::new(EncodingChoice::Tight, true)
    };
    Core::with_offer(Some(Password::new("secret")), offer)
}

/// Feeds the pieces until there is an error, which is returned.
pub fn feed<'a>(core: &mut Core, pieces: impl IntoIterator<Item = &'a [u8]>) -> Option<RfbError> {
    for piece in pieces {
        core.input().extend_from_slice(piece);
        loop {
            match core.next_event() {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(error) => return Some(error),
            }
        }
        core.take_output();
    }
    None
}

/// `bytes` as a stream of zlib that does not compress: two bytes of header, then a stored block.
pub fn stored(bytes: &[u8]) -> Vec<u8> {
    let bytes = &bytes[..bytes.len().min(0xffff)];
    let length = bytes.len() as u16;
    let mut out = vec![0x78, 0x01, 0];
    out.extend(length.to_le_bytes());
    out.extend((!length).to_le_bytes());
    out.extend(bytes);
    out
}
