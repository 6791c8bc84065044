//! The phone's side of the file service.

use std::{io, sync::Arc};

use super::{files::File, options::Hostile, phone::Phone, pipe::Pipe};
use crate::wire::sync::{self, MAX_DATA, MAX_PATH};

/// Longest file, bytes.
const MAX_FILE: usize = 256 << 20;
const FOLDER: u32 = 0o040_755;

pub(crate) async fn serve<D>(phone: &Phone<D>, pipe: &mut Pipe) -> io::Result<()> {
    loop {
        let Ok(head) = pipe.read_exact(8).await else {
            return Ok(());
        };
        let length = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
        if &head[..4] == b"QUIT" {
            return Ok(());
        }
        if length > MAX_PATH {
            return fail(pipe, "path too long").await;
        }
        let path = pipe.read_exact(length).await?;
        let path = String::from_utf8_lossy(&path).into_owned();
        match &head[..4] {
            b"STAT" => stat(phone, pipe, &path).await?,
            b"LIST" => list(phone, pipe, &path).await?,
            b"RECV" => recv(phone, pipe, &path).await?,
            b"SEND" => send(phone, pipe, &path).await?,
            _ => return fail(pipe, "unknown request").await,
        }
    }
}

async fn fail(pipe: &mut Pipe, reason: &str) -> io::Result<()> {
    let length = (reason.len() as u32).to_le_bytes();
    let bytes = [b"FAIL", &length[..], reason.as_bytes()].concat();
    pipe.write(&bytes).await
}

/// Mode, size and time as the protocol has them.
fn numbers(file: Option<&File>) -> [u8; 12] {
    let (mode, size, time) = match file {
        Some(file) => (file.mode, file.content.len() as u32, file.time),
        None => (FOLDER, 4096, 0),
    };
    let mut bytes = [0; 12];
    for (place, number) in bytes.chunks_exact_mut(4).zip([mode, size, time]) {
        place.copy_from_slice(&number.to_le_bytes());
    }
    bytes
}

async fn stat<D>(phone: &Phone<D>, pipe: &mut Pipe, path: &str) -> io::Result<()> {
    let numbers = {
        let state = phone.state();
        match state.kept.files.get(path) {
            Some(file) => numbers(Some(file)),
            None if state.kept.files.is_folder(path) => numbers(None),
            None => [0; 12],
        }
    };
    pipe.write(&[b"STAT", &numbers[..]].concat()).await
}

async fn list<D>(phone: &Phone<D>, pipe: &mut Pipe, path: &str) -> io::Result<()> {
    let mut entries = phone.state().kept.files.list(path);
    if phone.faults().hostile == Some(Hostile::PathTraversal) {
        entries.push(("../../../tmp/planted".into(), Some(File::default())));
    }
    let dots = [(".".to_owned(), None), ("..".to_owned(), None)];
    let mut bytes = Vec::new();
    for (name, file) in dots.into_iter().chain(entries) {
        bytes.extend(b"DENT");
        bytes.extend(numbers(file.as_ref()));
        bytes.extend((name.len() as u32).to_le_bytes());
        bytes.extend(name.bytes());
    }
    bytes.extend(b"DONE");
    bytes.extend([0; 16]);
    pipe.write(&bytes).await
}

async fn recv<D>(phone: &Phone<D>, pipe: &mut Pipe, path: &str) -> io::Result<()> {
    let file = phone.state().kept.files.get(path).cloned();
    let Some(file) = file else {
        return fail(pipe, "No such file or directory").await;
    };
    if phone.faults().hostile == Some(Hostile::LongPieces) {
        let length = (MAX_DATA as u32 + 1).to_le_bytes();
        let long = [b"DATA", &length[..], &vec![0; MAX_DATA + 1]].concat();
        return pipe.write(&long).await;
    }
    // Sixteen pieces go into one packet.
    for many in file.content.chunks(15 * MAX_DATA) {
        let pieces: Vec<u8> = many.chunks(MAX_DATA).flat_map(sync::data).collect();
        pipe.write(&pieces).await?;
    }
    pipe.write(&sync::done(0)).await
}

async fn send<D>(phone: &Phone<D>, pipe: &mut Pipe, target: &str) -> io::Result<()> {
    let (path, mode) = target.rsplit_once(',').unwrap_or((target, "33188"));
    let mut content = Vec::new();
    let time = loop {
        let head = pipe.read_exact(8).await?;
        let number = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
        match &head[..4] {
            b"DONE" => break number,
            b"DATA" if number as usize <= MAX_DATA => {
                content.extend(pipe.read_exact(number as usize).await?);
            }
            _ => return fail(pipe, "invalid data message").await,
        }
        if content.len() > MAX_FILE {
            return fail(pipe, "file too large").await;
        }
    };
    let file = File {
        content: Arc::new(content),
        mode: mode.parse().unwrap_or(0o100_644),
        time,
    };
    let written = phone.state().kept.files.put(path, file);
    match written {
        Ok(()) => pipe.write(b"OKAY\0\0\0\0").await,
        Err(reason) => fail(pipe, &reason).await,
    }
}
