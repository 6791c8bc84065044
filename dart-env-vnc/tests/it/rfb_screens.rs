//! Screens that real servers show for the tests of encodings: a small X server with a picture that
//! has something for every encoding, x11vnc on the same screen, QEMU with its BIOS, wayvnc.
//!
//! The benchmarks use this file too.

#![allow(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::{fs::MetadataExt, net::UnixStream},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use dart_env_vnc::rfb::{Core, Event, Offer};

/// How long a server may take to start or to answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// Processes that end with their owner, and the port of the last one.
pub(crate) struct Screen {
    children: Vec<Child>,
    folder: Option<tempfile::TempDir>,
    display: String,
    pub(crate) port: u16,
}

impl Drop for Screen {
    fn drop(&mut self) {
        for child in self.children.iter_mut().rev() {
            // What is a shell ends with its input, and takes along what it has started.
            drop(child.stdin.take());
            if self.folder.is_some() {
                let deadline = Instant::now() + Duration::from_secs(3);
                while matches!(child.try_wait(), Ok(None)) && Instant::now() < deadline {
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn free_port() -> u16 {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    free.local_addr().unwrap().port()
}

pub(crate) fn installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

fn spawn(command: &mut Command) -> Child {
    let quiet = command.stdin(Stdio::null()).stderr(Stdio::null());
    quiet.spawn().unwrap()
}

impl Screen {
    /// Waits until something listens at the port, without saying anything to it.
    fn wait(self) -> Self {
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(Instant::now() < deadline, "the server did not start");
            std::thread::sleep(Duration::from_millis(50));
        }
        self
    }

    /// Xtigervnc with `picture` on its root window.
    pub(crate) fn xtigervnc(width: u16, height: u16, picture: Picture) -> Self {
        let port = free_port();
        let mut command = Command::new("Xtigervnc");
        command
            .args(["-displayfd", "1", "-rfbport", &port.to_string()])
            .args(["-localhost", "-interface", "127.0.0.1"])
            .args(["-geometry", &format!("{width}x{height}"), "-depth", "24"])
            .args(["-nolisten", "tcp", "-ac", "-noreset"])
            // A connection that looks whether the port is open counts as a failed login.
            .args([
                "-SecurityTypes",
                "None",
                "-UseBlacklist=0",
                "-desktop",
                "test",
            ])
            .stdout(Stdio::piped());
        let mut child = spawn(&mut command);
        let stdout = child.stdout.take().unwrap();
        let mut screen = Self {
            children: vec![child],
            folder: None,
            display: String::new(),
            port,
        };
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        line.trim().clone_into(&mut screen.display);
        assert!(!screen.display.is_empty(), "Xtigervnc did not start");
        show(&screen.display, [width, height], picture);
        screen
    }

    /// x11vnc on the screen of [`xtigervnc`](Self::xtigervnc).
    pub(crate) fn x11vnc(width: u16, height: u16, picture: Picture) -> Self {
        let mut screen = Self::xtigervnc(width, height, picture);
        screen.port = free_port();
        let mut command = Command::new("x11vnc");
        command
            .args(["-localhost", "-nopw", "-forever", "-shared", "-quiet"])
            .args([
                "-desktop",
                "test",
                "-noxdamage",
                "-nocursorshape",
                "-nocursorpos",
                "-cursor",
                "none",
            ])
            .args(["-rfbport", &screen.port.to_string()])
            .env("DISPLAY", format!(":{}", screen.display))
            .stdout(Stdio::null());
        screen.children.push(spawn(&mut command));
        screen.wait()
    }

    /// QEMU with nothing to boot, stopped when its BIOS has said so.
    pub(crate) fn qemu() -> Self {
        let port = free_port();
        let display = format!("127.0.0.1:{}", i32::from(port) - 5900);
        let mut command = Command::new("qemu-system-x86_64");
        command
            .args(["-accel", "tcg", "-m", "16", "-net", "none", "-nodefaults"])
            .args(["-vga", "std", "-monitor", "stdio", "-display", "none"])
            .args(["-vnc", &display])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut screen = Self {
            children: vec![command.spawn().unwrap()],
            folder: None,
            display: String::new(),
            port,
        }
        .wait();
        // The BIOS gives up on booting within this time, also on a busy machine; a text cursor
        // that blinks stands still once the machine does.
        std::thread::sleep(Duration::from_secs(4));
        let monitor = screen.children[0].stdin.as_mut().unwrap();
        monitor.write_all(b"stop\n").unwrap();
        std::thread::sleep(Duration::from_millis(500));
        screen
    }

    /// wayvnc on a headless sway, as another user, because sway refuses to run as root.
    pub(crate) fn wayvnc(width: u16, height: u16) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let port = free_port();
        let path = folder.path().display().to_string();
        let config = format!(
            "output HEADLESS-1 resolution {width}x{height}\n\
             exec swaynag -m 'a line of text' -B 'a button' true\n\
             exec wayvnc 127.0.0.1 {port}\n"
        );
        std::fs::write(folder.path().join("config"), config).unwrap();
        let all = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(folder.path(), all).unwrap();
        let is_root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
        let mut command = Command::new(if is_root { "runuser" } else { "env" });
        if is_root {
            command.args(["-u", "nobody", "--", "env"]);
        }
        command
            .args(["WLR_BACKENDS=headless", "WLR_RENDERER=pixman"])
            .args(["WLR_LIBINPUT_NO_DEVICES=1", &format!("HOME={path}")])
            .args([&format!("XDG_RUNTIME_DIR={path}"), "sh", "-c"])
            .arg(format!(
                "sway -c {path}/config & child=$!; read line; kill $child; wait"
            ))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let screen = Self {
            children: vec![command.spawn().unwrap()],
            folder: Some(folder),
            display: String::new(),
            port,
        };
        let screen = screen.wait();
        std::thread::sleep(Duration::from_secs(2));
        screen
    }
}

/// The colour at x and y of a picture of some width and height.
pub(crate) type Picture = fn(u32, u32, u32, u32) -> [u8; 3];

/// One pixel of a picture that is smaller in rectangles of one colour than in pixels.
pub(crate) fn blocks(x: u32, y: u32, _width: u32, _height: u32) -> [u8; 3] {
    match (x / 7 + y / 5 * 3) % 9 {
        0 => [200, 40, 40],
        1 if x.is_multiple_of(3) => [10, 10, 10],
        2..=4 => [240, 240, 235],
        n => [(n * 25) as u8, 120, (255 - n * 20) as u8],
    }
}

/// One pixel of a picture with plain areas, two colours, a few colours, a gradient and noise.
pub(crate) fn picture(x: u32, y: u32, width: u32, height: u32) -> [u8; 3] {
    let (column, row) = (x * 3 / width, y * 2 / height);
    let noise =
        (x.wrapping_mul(0x9e37_79b1) ^ y.wrapping_mul(0x85eb_ca6b)).wrapping_mul(0x27d4_eb2f);
    let noise = noise >> 24;
    match (column, row) {
        (0, 0) => [40, 90, 160],
        // Like text: two colours in strokes.
        (1, 0) if (x / 2 + y / 3).is_multiple_of(5) || (x ^ y).is_multiple_of(7) => [20, 20, 20],
        (1, 0) => [250, 250, 245],
        // Like icons: twelve colours in blocks.
        (2, 0) => {
            let n = (x / 5 + y / 4 * 3) % 12;
            [(n * 20) as u8, (255 - n * 11) as u8, (n * n) as u8]
        }
        // A gradient.
        (0, 1) => [
            (x * 255 / width) as u8,
            (y * 255 / height) as u8,
            (x + y) as u8,
        ],
        // Like a photo: a gradient with noise.
        (1, 1) => {
            let wave = 128 + (x as i32 % 64 - 32) + (y as i32 % 48 - 24);
            [wave + (noise % 16) as i32, wave, wave - (noise % 9) as i32].map(|v| v as u8)
        }
        // Lines of one pixel, and dots.
        _ if y.is_multiple_of(8) => [200, 30, 30],
        _ if x.is_multiple_of(11) && noise > 100 => [30, 200, 30],
        _ => [230, 230, 230],
    }
}

/// Paints a picture on the root window by the X11 protocol: a connection, a graphics context,
/// and rows of pixels.
fn show(display: &str, [width, height]: [u16; 2], picture: Picture) {
    let mut x11 = UnixStream::connect(format!("/tmp/.X11-unix/X{display}")).unwrap();
    x11.set_read_timeout(Some(PATIENCE)).unwrap();
    x11.write_all(&[b'l', 0, 11, 0, 0, 0, 0, 0, 0, 0, 0, 0])
        .unwrap();
    let mut head = [0; 8];
    x11.read_exact(&mut head).unwrap();
    assert_eq!(head[0], 1, "the X server refuses");
    let mut setup = vec![0; usize::from(u16::from_le_bytes([head[6], head[7]])) * 4];
    x11.read_exact(&mut setup).unwrap();
    let vendor = usize::from(u16::from_le_bytes([setup[16], setup[17]]));
    let formats = usize::from(setup[21]);
    let root = &setup[32 + vendor.div_ceil(4) * 4 + formats * 8..][..4];
    let base = &setup[4..8];
    // CreateGC with the first id of ours.
    let mut out = [&[55, 0, 4, 0][..], base, root, &[0; 4]].concat();
    let rows = (60_000 / (usize::from(width) * 4)).max(1);
    for top in (0..height).step_by(rows) {
        let rows = rows.min(usize::from(height - top));
        let words = (6 + usize::from(width) * rows) as u16;
        // PutImage, format ZPixmap, depth 24.
        out.extend([72, 2]);
        out.extend(words.to_le_bytes());
        out.extend([root, base].concat());
        for field in [width, rows as u16, 0, top] {
            out.extend(field.to_le_bytes());
        }
        out.extend([0, 24, 0, 0]);
        for y in top..top + rows as u16 {
            for x in 0..width {
                let [r, g, b] = picture(x.into(), y.into(), width.into(), height.into());
                out.extend([b, g, r, 0]);
            }
        }
    }
    // GetInputFocus: its reply says that everything before it is done.
    out.extend([43, 0, 1, 0]);
    x11.write_all(&out).unwrap();
    let mut reply = [0; 32];
    x11.read_exact(&mut reply).unwrap();
    assert_eq!(reply[0], 1, "the X server could not paint: {reply:?}");
}

/// What a server sent up to the first whole screen, and what came of it.
pub(crate) struct Capture {
    pub(crate) core: Core,
    pub(crate) bytes: Vec<u8>,
}

impl Capture {
    /// Connects and takes what comes until every pixel was painted once.
    pub(crate) fn take(port: u16, offer: Offer) -> Self {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut core = Core::with_offer(None, offer);
        let (mut bytes, mut painted) = (Vec::new(), 0);
        let mut chunk = vec![0; 1 << 16];
        loop {
            let count = stream.read(&mut chunk).unwrap();
            assert!(count > 0, "the server closed the connection");
            bytes.extend(&chunk[..count]);
            core.input().extend_from_slice(&chunk[..count]);
            while let Some(event) = core.next_event().unwrap() {
                if let Event::Updated(update) = event {
                    painted += update.painted;
                }
            }
            let pixels = core.screen().map_or(u64::MAX, |screen| {
                u64::from(screen.size().width) * u64::from(screen.size().height)
            });
            if painted >= pixels {
                return Self { core, bytes };
            }
            stream.write_all(&core.take_output()).unwrap();
        }
    }

    pub(crate) fn rgb(&self) -> &[u8] {
        self.core.screen().unwrap().rgb()
    }
}
