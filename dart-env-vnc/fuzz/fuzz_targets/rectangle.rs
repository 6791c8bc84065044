//! One decoder: the first byte chooses the encoding, the second the pixel format and whether the rest
//! is wrapped in zlib, so that what is inside is reached as well. What is left after the rectangle is
//! the next one, header and all.

#![no_main]

use dart_env_vnc_fuzz::{ENCODINGS, client, feed, format, greeting, rectangle, stored};

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

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let [encoding, mode, data @ ..] = data else {
        return;
    };
    let encoding = ENCODINGS[usize::from(*encoding) % ENCODINGS.len()];
    let head = [greeting(), rectangle(encoding)].concat();
    let mut core = client(format(*mode));
    if mode & 128 == 0 {
        feed(&mut core, [&head, data]);
    } else {
        feed(
            &mut core,
            [head, wrapped(encoding, data)].iter().map(Vec::as_slice),
        );
    }
});
