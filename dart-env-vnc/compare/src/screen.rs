//! A real Xtigervnc, what is painted on it through the X11 protocol, and which pixels that makes.

use std::{
    io::{BufRead, BufReader, ErrorKind, Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::net::UnixStream,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};

use crate::content::Picture;

/// How long a server may take to answer.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A rectangle: left, top, width, height.
pub type Area = [u16; 4];

/// The server, a client of it, and what it ought to show.
pub struct Screen {
    server: Child,
    display: String,
    x11: UnixStream,
    /// The identifier of the graphics context; the root window's.
    ids: [[u8; 4]; 2],
    /// Where it speaks RFB.
    pub port: u16,
    /// Width and height.
    pub size: [u16; 2],
    /// Red, green and blue of each pixel.
    pub rgb: Vec<u8>,
}

impl Drop for Screen {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// Another server that shows the same screen. It ends with this.
pub struct Other {
    server: Child,
    /// Where it speaks RFB.
    pub port: u16,
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn free_port() -> Result<u16> {
    let free = TcpListener::bind("127.0.0.1:0")?;
    Ok(free.local_addr()?.port())
}

impl Screen {
    /// x11vnc on this screen; `None` if it is not installed.
    pub fn x11vnc(&self) -> Result<Option<Other>> {
        let port = free_port()?;
        let mut command = Command::new("x11vnc");
        command
            .args(["-localhost", "-nopw", "-forever", "-shared", "-quiet"])
            .args(["-desktop", "compare", "-noxdamage", "-nocursorshape"])
            .args(["-nocursorpos", "-cursor", "none", "-rfbport"])
            .arg(port.to_string())
            .env("DISPLAY", format!(":{}", self.display))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let server = match command.spawn() {
            Ok(server) => server,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let other = Other { server, port };
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            ensure!(Instant::now() < deadline, "x11vnc did not start");
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(Some(other))
    }

    /// Starts a server with a black screen.
    pub fn start(width: u16, height: u16) -> Result<Self> {
        let port = free_port()?;
        let mut command = Command::new("Xtigervnc");
        let port_text = port.to_string();
        let geometry = format!("{width}x{height}");
        command
            .args(["-displayfd", "1", "-rfbport", &port_text, "-localhost"])
            .args(["-interface", "127.0.0.1", "-geometry", &geometry])
            .args(["-depth", "24", "-nolisten", "tcp", "-ac", "-noreset"])
            .args([
                "-SecurityTypes",
                "None",
                "-UseBlacklist=0",
                "-FrameRate=240",
            ])
            .args(["-desktop", "compare"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let start = command.spawn();
        let mut server = start.context("cannot start Xtigervnc (tigervnc-standalone-server)")?;
        let mut line = String::new();
        let stdout = server.stdout.take().context("no standard output")?;
        BufReader::new(stdout).read_line(&mut line)?;
        let (x11, ids) = match open(line.trim()) {
            Ok(opened) => opened,
            Err(error) => {
                let _ = server.kill();
                let _ = server.wait();
                return Err(error.context("Xtigervnc did not start"));
            }
        };
        let mut screen = Self {
            server,
            display: line.trim().to_owned(),
            x11,
            ids,
            port,
            size: [width, height],
            rgb: vec![0; usize::from(width) * usize::from(height) * 3],
        };
        screen.paint([0, 0, width, height], |_, _| [0; 3])?;
        Ok(screen)
    }

    /// Paints `area`.
    pub fn paint(&mut self, area: Area, colour: impl Fn(u32, u32) -> [u8; 3]) -> Result<()> {
        let [left, top, width, height] = area;
        let [context, root] = self.ids;
        let at_once = (60_000 / (usize::from(width.max(1)) * 4)).max(1);
        let mut out = Vec::new();
        for first in (0..height).step_by(at_once) {
            let rows = at_once.min(usize::from(height - first)) as u16;
            let words = 6 + u32::from(width) * u32::from(rows);
            // PutImage, format ZPixmap, depth 24.
            out.extend([72, 2]);
            out.extend((words as u16).to_le_bytes());
            out.extend([root, context].concat());
            for field in [width, rows, left, top + first] {
                out.extend(field.to_le_bytes());
            }
            out.extend([0, 24, 0, 0]);
            for y in top + first..top + first + rows {
                for x in left..left + width {
                    let [red, green, blue] = colour(x.into(), y.into());
                    out.extend([blue, green, red, 0]);
                    let at = (usize::from(y) * usize::from(self.size[0]) + usize::from(x)) * 3;
                    self.rgb[at..at + 3].copy_from_slice(&[red, green, blue]);
                }
            }
        }
        self.done(out)
    }

    /// Paints all of it with a picture.
    pub fn show(&mut self, picture: Picture, salt: u32) -> Result<()> {
        let [width, height] = self.size;
        self.paint([0, 0, width, height], |x, y| picture(x, y, salt))
    }

    /// Copies a rectangle to another place, as windows and scrolled pages move.
    pub fn copy(&mut self, from: Area, [x, y]: [u16; 2]) -> Result<()> {
        let [context, root] = self.ids;
        let [left, top, width, height] = from;
        // CopyArea.
        let mut out = vec![62, 0, 7, 0];
        out.extend([root, root, context].concat());
        for field in [left, top, x, y, width, height] {
            out.extend(field.to_le_bytes());
        }
        let before = self.rgb.clone();
        let stride = usize::from(self.size[0]) * 3;
        let length = usize::from(width) * 3;
        for row in 0..usize::from(height) {
            let source = (usize::from(top) + row) * stride + usize::from(left) * 3;
            let target = (usize::from(y) + row) * stride + usize::from(x) * 3;
            self.rgb[target..target + length].copy_from_slice(&before[source..source + length]);
        }
        self.done(out)
    }

    /// Sends requests and waits until the server has done them.
    fn done(&mut self, mut out: Vec<u8>) -> Result<()> {
        // GetInputFocus has a reply.
        out.extend([43, 0, 1, 0]);
        self.x11.write_all(&out)?;
        // Events may come first: x11vnc changes the keyboard's map.
        let mut reply = [2; 32];
        while reply[0] > 1 {
            self.x11.read_exact(&mut reply)?;
        }
        ensure!(reply[0] == 1, "the X server could not paint: {reply:?}");
        Ok(())
    }
}

/// A connection, a graphics context that reports no exposures, and the root window.
fn open(display: &str) -> Result<(UnixStream, [[u8; 4]; 2])> {
    ensure!(!display.is_empty(), "it names no display");
    let mut x11 = UnixStream::connect(format!("/tmp/.X11-unix/X{display}"))?;
    x11.set_read_timeout(Some(PATIENCE))?;
    x11.write_all(&[b'l', 0, 11, 0, 0, 0, 0, 0, 0, 0, 0, 0])?;
    let mut head = [0; 8];
    x11.read_exact(&mut head)?;
    ensure!(head[0] == 1, "the X server refuses");
    let mut setup = vec![0; usize::from(u16::from_le_bytes([head[6], head[7]])) * 4];
    x11.read_exact(&mut setup)?;
    let vendor = usize::from(u16::from_le_bytes([setup[16], setup[17]]));
    let screens = 32 + vendor.div_ceil(4) * 4 + usize::from(setup[21]) * 8;
    let root: [u8; 4] = setup[screens..screens + 4].try_into()?;
    let context: [u8; 4] = setup[4..8].try_into()?;
    // CreateGC; the value is that of graphics-exposures.
    let request = [&[55, 0, 5, 0][..], &context, &root, &[0, 0, 1, 0], &[0; 4]].concat();
    x11.write_all(&request)?;
    Ok((x11, [context, root]))
}
