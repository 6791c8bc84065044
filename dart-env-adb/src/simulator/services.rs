//! Which services the phone has, and what runs them.

use std::{future::pending, io, sync::Arc};

use dart_core::{Device, Frame};

use super::{commands, options::Hostile, phone::Phone, pipe::Pipe, sync};
use crate::wire::packet::MAX_PAYLOAD;

/// A service by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    /// Gives back what it gets; stands for a port of the phone.
    Echo,
    Exec(String),
    Framebuffer,
    Reboot,
    /// The words of a service that only says something.
    Say(&'static str),
    /// A command; with packets (version 2), or as a terminal prints it.
    Shell(String, bool),
    Sync,
    /// The answer to a request for a reverse forward.
    Reverse(String),
}

pub(crate) fn find(name: &str) -> Option<Service> {
    let (kind, rest) = name.split_once(':')?;
    Some(match kind {
        "exec" => Service::Exec(rest.to_owned()),
        "framebuffer" => Service::Framebuffer,
        "reboot" => Service::Reboot,
        "remount" => Service::Say("remount succeeded\n"),
        "reverse" => Service::Reverse(rest.to_owned()),
        "root" => Service::Say("adbd is already running as root\n"),
        "unroot" => Service::Say("adbd not running as root\n"),
        "sync" => Service::Sync,
        "tcp" | "localabstract" => Service::Echo,
        _ => {
            let mut words = kind.split(',');
            if words.next() != Some("shell") {
                return None;
            }
            let packets = words.any(|word| word == "v2");
            Service::Shell(rest.to_owned(), packets)
        }
    })
}

/// Runs a service to its end.
pub(crate) async fn run<D: Device>(service: Service, phone: Arc<Phone<D>>, mut pipe: Pipe) {
    if let Err(error) = serve(service, &phone, &mut pipe).await {
        tracing::debug!(%error, "a service of the simulated phone ended");
    }
    pipe.close().await;
}

async fn serve<D: Device>(service: Service, phone: &Phone<D>, pipe: &mut Pipe) -> io::Result<()> {
    let (stall, slow) = {
        let faults = phone.faults();
        (faults.stall, faults.slow)
    };
    if stall && service != Service::Reboot {
        pending::<()>().await;
    }
    if !slow.is_zero() {
        tokio::time::sleep(slow).await;
    }
    let hostile = phone.faults().hostile;
    match hostile {
        Some(Hostile::BadHeader) => return pipe.bad_header().await,
        Some(Hostile::Flood) => return pipe.flood(&vec![9; 32 << 10]).await,
        Some(Hostile::Stray) => pipe.stray().await?,
        _ => {}
    }
    match service {
        Service::Echo => {
            while let Some(bytes) = pipe.read().await? {
                pipe.write(&bytes).await?;
            }
            Ok(())
        }
        Service::Exec(command) => exec(&command, phone, pipe).await,
        Service::Framebuffer => framebuffer(phone, pipe).await,
        Service::Reboot => {
            phone.reboot();
            Ok(())
        }
        Service::Reverse(request) => reverse(&request, pipe).await,
        Service::Say(words) => pipe.write(words.as_bytes()).await,
        Service::Shell(command, packets) => shell((&command, packets), phone, pipe).await,
        Service::Sync => sync::serve(phone, pipe).await,
    }
}

async fn exec<D: Device>(command: &str, phone: &Phone<D>, pipe: &mut Pipe) -> io::Result<()> {
    if command == "yes" {
        return endless(pipe, &vec![b'y'; MAX_PAYLOAD]).await;
    }
    let output = commands::run(phone, command).await;
    for bytes in [
        &output.stdout,
        output.picture.as_deref().unwrap_or(&Vec::new()),
    ] {
        if phone.faults().crlf {
            pipe.write(&with_carriage_returns(bytes)).await?;
        } else {
            pipe.write(bytes).await?;
        }
    }
    pipe.write(&output.stderr).await
}

async fn endless(pipe: &mut Pipe, bytes: &[u8]) -> io::Result<()> {
    loop {
        pipe.write(bytes).await?;
    }
}

/// What a terminal makes of output.
fn with_carriage_returns(bytes: &[u8]) -> Vec<u8> {
    let mut all = Vec::with_capacity(bytes.len() + bytes.len() / 64);
    for byte in bytes {
        if *byte == b'\n' {
            all.push(b'\r');
        }
        all.push(*byte);
    }
    all
}

/// A packet of the shell protocol.
fn shell_packet(kind: u8, data: &[u8]) -> Vec<u8> {
    [&[kind], &(data.len() as u32).to_le_bytes()[..], data].concat()
}

async fn shell<D: Device>(
    (command, packets): (&str, bool),
    phone: &Phone<D>,
    pipe: &mut Pipe,
) -> io::Result<()> {
    if command == "yes" {
        let piece = vec![b'y'; 32 << 10];
        let bytes = if packets {
            shell_packet(1, &piece)
        } else {
            piece
        };
        return endless(pipe, &bytes).await;
    }
    let output = commands::run(phone, command).await.joined();
    if !packets {
        let both = [output.stdout, output.stderr].concat();
        return pipe.write(&with_carriage_returns(&both)).await;
    }
    let mut bytes = Vec::new();
    for (kind, data) in [(1, &output.stdout), (2, &output.stderr)] {
        if !data.is_empty() {
            bytes.extend(shell_packet(kind, data));
        }
    }
    bytes.extend(shell_packet(3, &[output.code]));
    pipe.write(&bytes).await
}

async fn framebuffer<D: Device>(phone: &Phone<D>, pipe: &mut Pipe) -> io::Result<()> {
    let frame = phone.screen().await.map_err(io::Error::other)?.frame;
    let size = frame.size();
    let bytes = size.area() as u32 * 4;
    let bad = phone.faults().hostile == Some(Hostile::BadPacket);
    let width = if bad { u32::MAX } else { size.width };
    let numbers = [
        2,
        32,
        1,
        bytes,
        width,
        size.height,
        0,
        8,
        16,
        8,
        8,
        8,
        24,
        8,
    ];
    let header: Vec<u8> = numbers.iter().flat_map(|n: &u32| n.to_le_bytes()).collect();
    pipe.write(&header).await?;
    pipe.write(&rgba(&frame, Vec::new())).await
}

/// `start`, then red, green, blue and 255 for each pixel.
pub(crate) fn rgba(frame: &Frame, start: Vec<u8>) -> Vec<u8> {
    let mut bytes = start;
    let header = bytes.len();
    bytes.resize(header + frame.size().area() * 4, 255);
    let pixels = frame.rgb().chunks_exact(3);
    for (to, from) in bytes[header..].chunks_exact_mut(4).zip(pixels) {
        to[..3].copy_from_slice(from);
    }
    bytes
}

async fn reverse(request: &str, pipe: &mut Pipe) -> io::Result<()> {
    let answer: &[u8] = if request == "list-forward" {
        b"OKAY0000"
    } else if request.starts_with("forward:tcp:0;") {
        b"OKAYOKAY000512345"
    } else if request.starts_with("forward:") || request.starts_with("killforward") {
        b"OKAYOKAY"
    } else {
        b"FAIL0007unknown"
    };
    pipe.write(answer).await
}
