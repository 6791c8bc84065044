//! What a server sent, sent again: two clients that are given the same bytes at the same moment
//! differ only in what they do with them. The server's own time is not in it.

use std::{
    io::{ErrorKind, Read, Write},
    net::{TcpListener, TcpStream},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use dart_env_vnc::rfb::{Area, Core, Event, PixelFormat, message};

use crate::screen::PATIENCE;

/// One connection of a server.
pub struct Recording {
    /// ServerInit: size, pixel format, name.
    init: Vec<u8>,
    /// Updates of the whole screen, in the order in which they were sent: streams of zlib go on from
    /// one to the next.
    frames: Vec<Vec<u8>>,
    /// The screen after each of them.
    pub rgb: Vec<u8>,
    size: [u16; 2],
}

const NO_LOGIN: [u8; 2] = [1, 1];

fn everything([width, height]: [u16; 2]) -> Area {
    Area {
        x: 0,
        y: 0,
        width,
        height,
    }
}

/// Up to ServerInit, which is given back.
fn shake_hands(stream: &mut TcpStream) -> Result<Vec<u8>> {
    stream.read_exact(&mut [0; 12])?;
    stream.write_all(b"RFB 003.008\n")?;
    let mut count = [0];
    stream.read_exact(&mut count)?;
    stream.read_exact(&mut vec![0; count[0].into()])?;
    stream.write_all(&[1])?;
    stream.read_exact(&mut [0; 4])?;
    stream.write_all(&[1])?;
    let mut init = vec![0; 24];
    stream.read_exact(&mut init)?;
    let name = u32::from_be_bytes(init[20..24].try_into()?) as usize;
    ensure!(name < 1000, "a name of {name} bytes");
    init.resize(24 + name, 0);
    stream.read_exact(&mut init[24..])?;
    Ok(init)
}

impl Recording {
    /// A recording that was made by hand.
    pub fn of(size: [u16; 2], frames: Vec<Vec<u8>>, rgb: Vec<u8>) -> Self {
        let mut init = size.map(u16::to_be_bytes).concat();
        init.extend([32, 24, 0, 1, 0, 255, 0, 255, 0, 255, 16, 8, 0, 0, 0, 0]);
        init.extend([0; 4]);
        Self {
            init,
            frames,
            rgb,
            size,
        }
    }

    /// Asks a server for so many whole screens in the first of these encodings.
    pub fn take(port: u16, encodings: &[i32], count: usize) -> Result<Self> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let init = shake_hands(&mut stream)?;
        // The core only finds where updates end; what it would answer is not sent.
        let mut core = Core::new(None);
        for part in [&b"RFB 003.008\n"[..], &NO_LOGIN, &[0; 4], &init] {
            core.input().extend_from_slice(part);
            while core.next_event()?.is_some() {}
        }
        let size = core.screen().context("no handshake")?.size();
        let size = [size.width as u16, size.height as u16];
        let mut setup = Vec::new();
        message::set_pixel_format(PixelFormat::WIRE, &mut setup);
        message::set_encodings(encodings, &mut setup);
        stream.write_all(&setup)?;
        let mut frames = Vec::new();
        for _ in 0..count {
            frames.push(frame(&mut stream, &mut core, size)?);
        }
        let first = encodings.first().context("no encoding")?;
        ensure!(
            core.encodings_seen().contains(first),
            "the server sends no encoding {first}"
        );
        let rgb = core.screen().context("no screen")?.rgb().to_vec();
        Ok(Self {
            init,
            frames,
            rgb,
            size,
        })
    }

    /// Bytes of the last frame: the first ones differ by what zlib has learnt.
    pub fn bytes(&self) -> usize {
        self.frames.last().map_or(0, Vec::len)
    }

    /// Serves the recording to so many clients, one after the other or at once; gives the port.
    pub fn serve(self: &Arc<Self>, clients: usize) -> Result<u16> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let recording = self.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().take(clients).flatten() {
                let recording = recording.clone();
                // A client that leaves ends its thread.
                std::thread::spawn(move || recording.talk(stream));
            }
        });
        Ok(port)
    }

    fn talk(&self, mut stream: TcpStream) -> Result<()> {
        stream.set_nodelay(true)?;
        stream.write_all(b"RFB 003.008\n")?;
        stream.read_exact(&mut [0; 12])?;
        stream.write_all(&NO_LOGIN)?;
        stream.read_exact(&mut [0])?;
        stream.write_all(&[0; 4])?;
        stream.read_exact(&mut [0])?;
        stream.write_all(&self.init)?;
        let mut frames = self.frames.iter();
        loop {
            let Some([x, y, width, height]) = wanted(&mut stream)? else {
                continue;
            };
            if [width, height] == self.size {
                // A client that asks for more than there is waits until it gives up.
                stream.write_all(frames.next().map_or(&[][..], Vec::as_slice))?;
            } else {
                stream.write_all(&self.pixel(x, y))?;
            }
        }
    }

    /// An update with one pixel, in Raw.
    fn pixel(&self, x: u16, y: u16) -> Vec<u8> {
        let at = (usize::from(y) * usize::from(self.size[0]) + usize::from(x)) * 3;
        let mut out = vec![0, 0, 0, 1];
        for field in [x, y, 1, 1, 0, 0] {
            out.extend(u16::to_be_bytes(field));
        }
        out.extend([self.rgb[at + 2], self.rgb[at + 1], self.rgb[at], 0]);
        out
    }

    /// What it takes to ask for a frame and to read it without looking at it: the part of a
    /// client's time that no client can save.
    pub fn floor(&self, port: u16) -> Result<Vec<Duration>> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        shake_hands(&mut stream)?;
        let mut request = Vec::new();
        message::update_request(false, everything(self.size), &mut request);
        let mut buffer = vec![0; 256 << 10];
        let mut times = Vec::new();
        for frame in &self.frames {
            let begun = Instant::now();
            stream.write_all(&request)?;
            let mut left = frame.len();
            while left > 0 {
                let count = some(&mut stream, &mut buffer)?;
                left = left.saturating_sub(count);
            }
            times.push(begun.elapsed());
        }
        Ok(times)
    }
}

/// Reads what there is, at least a byte. A child that ends interrupts reads.
fn some(stream: &mut TcpStream, buffer: &mut [u8]) -> Result<usize> {
    loop {
        match stream.read(buffer) {
            Ok(0) => bail!("the server ended the connection"),
            Ok(count) => return Ok(count),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// One update of the whole screen.
fn frame(stream: &mut TcpStream, core: &mut Core, size: [u16; 2]) -> Result<Vec<u8>> {
    let mut request = Vec::new();
    message::update_request(false, everything(size), &mut request);
    stream.write_all(&request)?;
    let (mut bytes, mut painted) = (Vec::new(), 0);
    let mut buffer = vec![0; 64 << 10];
    while painted < everything(size).pixels() {
        let count = some(stream, &mut buffer)?;
        bytes.extend(&buffer[..count]);
        core.input().extend_from_slice(&buffer[..count]);
        while let Some(event) = core.next_event()? {
            if let Event::Updated(update) = event {
                painted += update.painted;
            }
        }
    }
    ensure!(core.input().is_empty(), "more than one update came");
    Ok(bytes)
}

/// The rectangle that a client's next message asks for unconditionally, if it does.
fn wanted(stream: &mut TcpStream) -> Result<Option<[u16; 4]>> {
    let mut kind = [0];
    stream.read_exact(&mut kind)?;
    let mut take = |count: usize| -> Result<Vec<u8>> {
        let mut bytes = vec![0; count];
        stream.read_exact(&mut bytes)?;
        Ok(bytes)
    };
    match kind[0] {
        0 => drop(take(19)?),
        2 => {
            let head = take(3)?;
            take(usize::from(u16::from_be_bytes([head[1], head[2]])) * 4)?;
        }
        3 => {
            let rest = take(9)?;
            let field = |at: usize| u16::from_be_bytes([rest[at], rest[at + 1]]);
            let area = [field(1), field(3), field(5), field(7)];
            return Ok((rest[0] == 0).then_some(area));
        }
        4 => drop(take(7)?),
        5 => drop(take(5)?),
        other => bail!("a message of type {other}"),
    }
    Ok(None)
}
