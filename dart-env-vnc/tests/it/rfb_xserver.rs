//! Real X servers for tests, each on a free display and port, and a witness of input.

#![allow(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::mpsc,
    time::{Duration, Instant},
};

use dart_core::{Device, Size};
use dart_env_vnc::{VncConfig, VncDevice};
use dart_testkit::suite::gate;
use des::cipher::{BlockCipherEncrypt, KeyInit};

use crate::rfb_conformance::right_click;

pub(crate) const SIZE: Size = Size::new(320, 240);

fn free_port() -> u16 {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    free.local_addr().unwrap().port()
}

fn installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

/// Why the suite cannot run here, if so.
pub(crate) fn skipped() -> Option<String> {
    missing(&[
        ("Xtigervnc", "tigervnc-standalone-server"),
        ("openbox", "openbox"),
        ("xev", "x11-utils"),
    ])
}

/// Why the tests against x11vnc cannot run here, if so.
pub(crate) fn x11vnc_skipped() -> Option<String> {
    skipped().or_else(|| missing(&[("x11vnc", "x11vnc")]))
}

fn missing(needs: &[(&str, &str)]) -> Option<String> {
    let missing = needs.iter().find(|(program, _)| !installed(program));
    let available = missing.map_or(Ok(()), |(program, package)| {
        Err(format!(
            "{program} is not installed (apt-get install {package})"
        ))
    });
    gate("vnc", available)
}

/// Processes that end with their owner.
pub(crate) struct Started(pub(crate) Vec<Child>);

impl Drop for Started {
    fn drop(&mut self) {
        for child in self.0.iter_mut().rev() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A real X server on a free display and port.
pub(crate) struct Server {
    pub(crate) started: Started,
    display: String,
    port: u16,
    password_file: Option<PathBuf>,
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(file) = &self.password_file {
            let _ = std::fs::remove_file(file);
        }
    }
}

impl Server {
    fn start(arguments: &[&str]) -> Self {
        let port = free_port();
        let mut child = Command::new("Xtigervnc")
            .args(["-displayfd", "1", "-rfbport", &port.to_string()])
            .args(["-localhost", "-interface", "127.0.0.1"])
            .args(["-geometry", &SIZE.to_string(), "-depth", "24"])
            .args(["-nolisten", "tcp", "-ac", "-noreset"])
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let stdout = child.stdout.take().unwrap();
        let started = Started(vec![child]);
        BufReader::new(stdout).read_line(&mut line).unwrap();
        let display = format!(":{}", line.trim());
        assert!(display.len() > 1, "Xtigervnc did not start");
        Self {
            started,
            display,
            port,
            password_file: None,
        }
    }

    pub(crate) fn open() -> Self {
        Self::start(&["-SecurityTypes", "None"])
    }

    /// With the window manager, whose menu makes right clicks visible.
    pub(crate) fn desktop() -> Self {
        let mut server = Self::open();
        server.run("openbox", &[], Stdio::null());
        server
    }

    pub(crate) fn locked(password: &str) -> Self {
        Self::secured("VncAuth", password, &[])
    }

    /// With these security types, and more arguments.
    pub(crate) fn secured(types: &str, password: &str, more: &[&str]) -> Self {
        // The file holds the password encrypted with a key that is the same everywhere.
        let key = [23u8, 82, 107, 6, 35, 78, 88, 7].map(u8::reverse_bits);
        let mut block = [0; 8];
        block[..password.len()].copy_from_slice(password.as_bytes());
        let mut block = block.into();
        des::Des::new(&key.into()).encrypt_block(&mut block);
        let name = format!("dart-rfb-{}-{types}-{}", std::process::id(), free_port());
        let file = std::env::temp_dir().join(name);
        std::fs::write(&file, block.as_slice()).unwrap();
        let path = file.display().to_string();
        let arguments = ["-SecurityTypes", types, "-PasswordFile", &path];
        let mut server = Self::start(&[&arguments[..], more].concat());
        server.password_file = Some(file);
        server
    }

    /// A program on the server's screen.
    fn run(&mut self, program: &str, arguments: &[&str], output: Stdio) -> &mut Child {
        let child = Command::new(program)
            .args(arguments)
            .env("DISPLAY", &self.display)
            .stdout(output)
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        self.started.0.push(child);
        self.started.0.last_mut().unwrap()
    }

    /// x11vnc on the same screen; settings to reach it.
    pub(crate) fn x11vnc(&mut self) -> VncConfig {
        let port = free_port();
        let arguments = [
            "-localhost",
            "-nopw",
            "-forever",
            "-shared",
            "-quiet",
            "-noxdamage",
        ];
        let number = port.to_string();
        let arguments = [&arguments[..], &["-rfbport", &number]].concat();
        self.run("x11vnc", &arguments, Stdio::null());
        let deadline = Instant::now() + Duration::from_secs(10);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < deadline, "x11vnc did not start");
            std::thread::sleep(Duration::from_millis(50));
        }
        Self::config_of(port)
    }

    pub(crate) fn config(&self) -> VncConfig {
        Self::config_of(self.port)
    }

    fn config_of(port: u16) -> VncConfig {
        VncConfig {
            update_timeout_ms: 5_000,
            settle_quiet_ms: 100,
            settle_max_ms: 1_000,
            ..VncConfig::new(format!("127.0.0.1:{port}"))
        }
    }

    pub(crate) async fn device(&self) -> VncDevice {
        VncDevice::connect(self.config()).await.unwrap()
    }

    /// Until the window manager has opened and closed its menu, whatever it drew when it started.
    pub(crate) async fn wait_for_menu(&self, device: &mut VncDevice) {
        let mut seen = device.screenshot().await.unwrap().frame;
        let mut in_a_row = 0;
        for _ in 0..50 {
            device.perform(&right_click(device)).await.unwrap();
            let frame = device.screenshot().await.unwrap().frame;
            in_a_row = if frame == seen { 0 } else { in_a_row + 1 };
            if in_a_row == 4 {
                return;
            }
            seen = frame;
        }
        panic!("openbox shows no menu");
    }

    /// Has another client change the size of the screen.
    pub(crate) fn resize(&self, width: u16, height: u16) {
        let mut peer = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        peer.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let take = |peer: &mut TcpStream, count: usize| {
            let mut bytes = vec![0; count];
            peer.read_exact(&mut bytes).unwrap();
            bytes
        };
        take(&mut peer, 12);
        peer.write_all(b"RFB 003.008\n").unwrap();
        let count = take(&mut peer, 1)[0];
        take(&mut peer, count.into());
        peer.write_all(&[1]).unwrap();
        take(&mut peer, 4);
        peer.write_all(&[1]).unwrap();
        let init = take(&mut peer, 24);
        let name = u32::from_be_bytes([init[20], init[21], init[22], init[23]]);
        take(&mut peer, name as usize);
        // SetEncodings: ExtendedDesktopSize. SetDesktopSize: one screen.
        let mut message = vec![2, 0, 0, 1];
        message.extend((-308i32).to_be_bytes());
        message.extend([251, 0]);
        message.extend(width.to_be_bytes());
        message.extend(height.to_be_bytes());
        message.extend([1, 0, 0, 0, 0, 1, 0, 0, 0, 0]);
        message.extend(width.to_be_bytes());
        message.extend(height.to_be_bytes());
        message.extend([0; 4]);
        peer.write_all(&message).unwrap();
        std::thread::sleep(Duration::from_millis(300));
    }
}

/// Lines of xev, in a window that fills the screen.
pub(crate) struct Witness(mpsc::Receiver<String>);

impl Witness {
    pub(crate) fn start(server: &mut Server) -> Self {
        let geometry = format!("{SIZE}+0+0");
        let xev = server.run("xev", &["-geometry", &geometry], Stdio::piped());
        let stdout = xev.stdout.take().unwrap();
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout)
                .lines()
                .map_while(std::io::Result::ok)
            {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let witness = Self(lines);
        witness.until(|line| line.starts_with("MapNotify") || line.starts_with("Expose"));
        witness
    }

    /// Lines up to the first that fits.
    pub(crate) fn until(&self, fits: impl Fn(&str) -> bool) -> Vec<String> {
        let deadline = Instant::now() + Duration::from_secs(5);
        let mut lines = Vec::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(line) = self.0.recv_timeout(left) else {
                panic!("xev did not say it: {lines:#?}");
            };
            let done = fits(&line);
            lines.push(line);
            if done {
                return lines;
            }
        }
    }

    /// Names of the keysyms pressed, up to `last`.
    pub(crate) fn pressed(&self, last: &str) -> Vec<String> {
        let mut down = false;
        let lines = self.until(|line| line.contains(&format!(", {last}),")));
        let mut names = Vec::new();
        for line in lines {
            if line.starts_with("Key") {
                down = line.starts_with("KeyPress");
            }
            if let (true, Some((_, rest))) = (down, line.split_once("(keysym 0x")) {
                let name = rest.split_once(", ").unwrap().1;
                names.push(name.split_once(')').unwrap().0.to_owned());
            }
        }
        names
    }
}
