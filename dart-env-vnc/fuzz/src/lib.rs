//! What the fuzz targets do with their input. It is a library so that the tests of the crate itself
//! can replay every seed and every finding without a fuzzer.

use dart_env_vnc::rfb::{
    Core, EncodingChoice, Event, Login, Offer, Password, PixelFormat, RfbError,
};

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

/// Largest screen that a greeting leads to, in pixels: a larger one costs milliseconds and shows
/// nothing that a small one does not.
const SMALL: usize = 1 << 16;

/// Takes all events that there are. Whether TLS began among them: it counts as begun, and what
/// follows is what it carries. Nothing is taken any more if the screen is large.
fn drain(core: &mut Core) -> Result<bool, Option<RfbError>> {
    let mut tls = false;
    loop {
        match core.next_event().map_err(Some)? {
            Some(Event::StartTls { .. }) => {
                core.tls_started();
                tls = true;
            }
            Some(Event::Connected(init)) if init.size.area() > SMALL => return Err(None),
            Some(_) => {}
            None => return Ok(tls),
        }
    }
}

/// Feeds the pieces until there is an error, which is returned.
pub fn feed<'a>(core: &mut Core, pieces: impl IntoIterator<Item = &'a [u8]>) -> Option<RfbError> {
    for piece in pieces {
        core.input().extend_from_slice(piece);
        if let Err(end) = drain(core) {
            return end;
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

/// A client of the kind that the bits of `mode` choose, with or without each thing that a server
/// may ask for. One of them takes the pixels as the server has them.
fn caller(mode: u8) -> Core {
    let bit = |number: u8| mode & (1 << number) != 0;
    let login = Login {
        user: bit(0).then(|| "ann".to_owned()),
        password: bit(1).then(|| Password::new("secret")),
        verified_tls: bit(2),
        clear: bit(3),
        ..Login::default()
    };
    let own = Offer::new(EncodingChoice::Tight, true);
    let offer = Offer {
        format: own.format.filter(|_| !bit(4)),
        ..own
    };
    Core::with_login(login, offer)
}

/// What the client says when it has chosen Apple's security type; the type in the layout of 3.3.
const APPLE: (&[u8], &[u8]) = (&[30], &[0, 0, 0, 30]);

/// Byte by byte until the security type is chosen and, where it may, TLS has begun: Apple's type
/// has to be seen before it is gone through, and nothing may follow in clear what TLS begins with.
fn shake(data: &[u8], mode: u8, apple: bool) -> Option<RfbError> {
    if !apple && data.get(12..16) == Some(APPLE.1) {
        return None;
    }
    let mut core = caller(mode);
    for (at, byte) in data.iter().enumerate() {
        core.input().extend_from_slice(&[*byte]);
        let tls = match drain(&mut core) {
            Ok(tls) => tls,
            Err(end) => return end,
        };
        let said = core.take_output();
        if !apple && said == APPLE.0 {
            return None;
        }
        let chosen = said.len() == 1 || at >= 300;
        if tls || (chosen && mode & 4 == 0) {
            return feed(&mut core, [&data[at + 1..]]);
        }
    }
    None
}

/// A server's bytes from the first one on; the last byte chooses the client. Apple's type is
/// [`apple`]'s: its arithmetic costs a hundred times what all the rest does.
pub fn handshake(data: &[u8]) -> Option<RfbError> {
    let (mode, data) = data.split_last()?;
    shake(data, *mode, false)
}

/// What a server says after its offer of Apple's type.
pub fn apple(data: &[u8]) -> Option<RfbError> {
    let head = b"RFB 003.008\n\x01\x1e";
    shake(&[head, data].concat(), 0b11, true)
}

/// A server's bytes after the handshake, whole and cut: the same must come of both. The first byte
/// says how large the pieces are.
pub fn session(data: &[u8]) -> Option<RfbError> {
    let (size, data) = data.split_first()?;
    let greeting = greeting();
    let mut whole = client(PixelFormat::WIRE);
    let error = feed(&mut whole, [&greeting, data]);
    let mut cut = client(PixelFormat::WIRE);
    let pieces = data.chunks(usize::from(*size) + 1);
    let other = feed(&mut cut, [greeting.as_slice()].into_iter().chain(pieces));
    assert_eq!(error, other);
    let screens = whole.screen().zip(cut.screen());
    if let Some((whole, cut)) = screens.filter(|(whole, _)| whole.size().area() <= SMALL) {
        assert_eq!(whole.rgb(), cut.rgb());
    }
    assert_eq!(whole.cursor(), cut.cursor());
    error
}

/// Tight's head is not compressed: control byte, filter, palette.
fn tight_head(data: &[u8]) -> usize {
    match data {
        [control, 1, count, ..] if control & 0xc0 == 0x40 => 3 + (usize::from(*count) + 1) * 3,
        [control, ..] if control & 0xc0 == 0x40 => 2,
        _ => 1,
    }
}

fn wrapped(encoding: i32, data: &[u8]) -> Vec<u8> {
    let head = if encoding == 7 { tight_head(data) } else { 0 };
    let (head, body) = data.split_at(head.min(data.len()));
    let body = stored(body);
    let length = body.len() as u32;
    let length = if encoding == 7 {
        vec![
            length as u8 | 128,
            (length >> 7) as u8 | 128,
            (length >> 14) as u8,
        ]
    } else {
        length.to_be_bytes().to_vec()
    };
    [head, &length, &body].concat()
}

/// One decoder: the first byte chooses the encoding, the second the pixel format and whether the
/// rest is wrapped in zlib, so that what is inside is reached as well. What is left after the
/// rectangle is the next one, header and all. Gives the client and its error.
pub fn rectangles(data: &[u8]) -> Option<(Core, Option<RfbError>)> {
    let [encoding, mode, data @ ..] = data else {
        return None;
    };
    let encoding = ENCODINGS[usize::from(*encoding) % ENCODINGS.len()];
    let head = [greeting(), rectangle(encoding)].concat();
    let mut core = client(format(*mode & 127));
    let body = if mode & 128 == 0 {
        data.to_vec()
    } else {
        wrapped(encoding, data)
    };
    let error = feed(&mut core, [head.as_slice(), &body]);
    Some((core, error))
}

/// A clipboard message: the first byte chooses its form, Latin-1, extended, or an extended one that
/// provides what follows in a zlib stream, so that what is inside is reached as well.
pub fn clipboard(data: &[u8]) -> Option<RfbError> {
    let (form, data) = data.split_first()?;
    let length = data.len() as i32;
    let (length, body) = match form % 3 {
        0 => (length, data.to_vec()),
        1 => (-length, data.to_vec()),
        _ => {
            let body = [&0x1000_0001_u32.to_be_bytes()[..], &stored(data)].concat();
            (-(body.len() as i32), body)
        }
    };
    let head = [&[3, 0, 0, 0][..], &length.to_be_bytes()].concat();
    let mut core = client(PixelFormat::WIRE);
    feed(&mut core, [&greeting(), &head, body.as_slice()])
}
