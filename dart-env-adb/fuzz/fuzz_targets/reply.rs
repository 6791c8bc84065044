//! Replies of a server. The second byte says which kind is expected; whatever follows one reply is
//! the next.

#![no_main]

use dart_env_adb::wire::smart_socket::{Expect, Reply, ReplyReader};
use dart_env_adb_fuzz::alike;

/// All replies up to an error or the end, and whether there was one.
fn read(expect: Expect, pieces: &mut dyn Iterator<Item = &[u8]>) -> (Vec<Reply>, bool) {
    let mut replies = Vec::new();
    let mut reader = ReplyReader::new(expect);
    for mut piece in pieces {
        while !piece.is_empty() {
            let Ok((taken, reply)) = reader.push(piece) else {
                return (replies, true);
            };
            assert!(taken > 0 && taken <= piece.len());
            piece = &piece[taken..];
            if let Some(reply) = reply {
                replies.push(reply);
                reader = ReplyReader::new(expect);
            }
        }
    }
    (replies, false)
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let [size, kind, bytes @ ..] = data else {
        return;
    };
    let expect = [Expect::Status, Expect::Value, Expect::Block][usize::from(kind % 3)];
    let data = [&[*size], bytes].concat();
    alike(&data, |pieces| read(expect, pieces));
});
