//! Messages of the file service. The second byte says whether a listing is read. No name has more
//! than one component.

#![no_main]

use dart_env_adb::wire::sync::{MAX_DATA, Message, Reader};
use dart_env_adb_fuzz::alike;

fn read(mut reader: Reader, pieces: &mut dyn Iterator<Item = &[u8]>) -> (Vec<Message>, bool) {
    let mut all = Vec::new();
    for mut piece in pieces {
        loop {
            let Ok((taken, message)) = reader.push(piece) else {
                return (all, true);
            };
            piece = &piece[taken..];
            let Some(message) = message else { break };
            all.push(message);
        }
    }
    (all, false)
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let [size, listing, bytes @ ..] = data else {
        return;
    };
    let reader = || match listing % 2 {
        0 => Reader::default(),
        _ => Reader::listing(),
    };
    let data = [&[*size], bytes].concat();
    let (messages, _) = alike(&data, |pieces| read(reader(), pieces)).unwrap_or_default();
    for message in messages {
        match message {
            Message::Entry(entry) => {
                assert!(!entry.name.is_empty() && !entry.name.contains(['/', '\0']));
            }
            Message::Data(piece) => assert!(piece.len() <= MAX_DATA),
            _ => {}
        }
    }
});
