//! The device on a real server: Xtigervnc, with xev as a witness of input.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::mpsc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use dart_core::{
    Action, Device, Direction, ErrorKind, Key, Modifier, Modifiers, MouseButton, Result, ScreenPx,
    Size,
};
use dart_env_vnc::{VncConfig, VncDevice, rfb::Password};
use dart_testkit::{
    Breakable, Fault, Settings, device::DeviceHarness, device_conformance, suite::gate,
};
use des::cipher::{BlockCipherEncrypt, KeyInit};

use crate::rfb_conformance::right_click;

const SIZE: Size = Size::new(320, 240);

fn installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

/// Why the suite cannot run here, if so.
fn skipped() -> Option<String> {
    let needs = [
        ("Xtigervnc", "tigervnc-standalone-server"),
        ("openbox", "openbox"),
        ("xev", "x11-utils"),
    ];
    let missing = needs.iter().find(|(program, _)| !installed(program));
    let available = missing.map_or(Ok(()), |(program, package)| {
        Err(format!(
            "{program} is not installed (apt-get install {package})"
        ))
    });
    gate("vnc", available)
}

macro_rules! or_skip {
    () => {
        if let Some(why) = skipped() {
            println!("skipped: {why}");
            return;
        }
    };
}

/// Processes that end with their owner.
struct Started(Vec<Child>);

impl Drop for Started {
    fn drop(&mut self) {
        for child in self.0.iter_mut().rev() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A real X server on a free display and port.
struct Server {
    started: Started,
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
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
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

    fn open() -> Self {
        Self::start(&["-SecurityTypes", "None"])
    }

    /// With the window manager, whose menu makes right clicks visible.
    fn desktop() -> Self {
        let mut server = Self::open();
        server.run("openbox", &[], Stdio::null());
        server
    }

    fn locked(password: &str) -> Self {
        // The file holds the password encrypted with a key that is the same everywhere.
        let key = [23u8, 82, 107, 6, 35, 78, 88, 7].map(u8::reverse_bits);
        let mut block = [0; 8];
        block[..password.len()].copy_from_slice(password.as_bytes());
        let mut block = block.into();
        des::Des::new(&key.into()).encrypt_block(&mut block);
        let name = format!("dart-rfb-{}-{password}", std::process::id());
        let file = std::env::temp_dir().join(name);
        std::fs::write(&file, block.as_slice()).unwrap();
        let path = file.display().to_string();
        let mut server = Self::start(&["-SecurityTypes", "VncAuth", "-PasswordFile", &path]);
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

    fn config(&self) -> VncConfig {
        VncConfig {
            update_timeout_ms: 3_000,
            settle_quiet_ms: 100,
            settle_max_ms: 1_000,
            ..VncConfig::new(format!("127.0.0.1:{}", self.port))
        }
    }

    async fn device(&self) -> VncDevice {
        VncDevice::connect(self.config()).await.unwrap()
    }

    /// Until the window manager has opened and closed its menu, whatever it drew when it started.
    async fn wait_for_menu(&self, device: &mut VncDevice) {
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
    fn resize(&self, width: u16, height: u16) {
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
struct Witness(mpsc::Receiver<String>);

impl Witness {
    fn start(server: &mut Server) -> Self {
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
    fn until(&self, fits: impl Fn(&str) -> bool) -> Vec<String> {
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
    fn pressed(&self, last: &str) -> Vec<String> {
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

#[tokio::test]
async fn a_real_server_is_seen() {
    or_skip!();
    let server = Server::desktop();
    let mut device = server.device().await;
    server.wait_for_menu(&mut device).await;
    let first = device.screenshot().await.unwrap().frame;
    assert_eq!(first.size(), SIZE);
    device.perform(&right_click(&device)).await.unwrap();
    let menu = device.screenshot().await.unwrap().frame;
    assert_ne!(first, menu);
    // Another client sees the same pixels.
    let mut other = server.device().await;
    let theirs = other.screenshot().await.unwrap().frame;
    assert_eq!(theirs, device.screenshot().await.unwrap().frame);
}

/// TigerVNC paints the pointer into the pixels of a client that has not moved it yet.
#[tokio::test]
async fn the_pointer_is_never_in_the_pixels() {
    or_skip!();
    let server = Server::desktop();
    server.wait_for_menu(&mut server.device().await).await;
    let mut device = server.device().await;
    let mut frames = vec![device.screenshot().await.unwrap().frame];
    for at in [ScreenPx::new(20, 30), ScreenPx::new(160, 120)] {
        device.perform(&Action::MoveTo { at }).await.unwrap();
        frames.push(device.screenshot().await.unwrap().frame);
    }
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    frames.push(device.screenshot().await.unwrap().frame);
    assert!(frames.iter().all(|frame| *frame == frames[0]));
    assert!(device.cursor().unwrap().size.area() > 0);
}

#[tokio::test]
async fn vnc_auth_with_the_right_and_the_wrong_password() {
    or_skip!();
    let server = Server::locked("hunter2");
    let right = Some(Password::new("hunter2"));
    let mut device = VncDevice::connect_with(server.config(), right.clone())
        .await
        .unwrap();
    assert_eq!(device.screenshot().await.unwrap().frame.size(), SIZE);

    let error = VncDevice::connect(server.config()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    let wrong = || Some(Password::new("hunter3"));
    let error = VncDevice::connect_with(server.config(), wrong())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthorized, "{error}");
    assert!(
        error.to_string().contains("environment.password_env"),
        "{error}"
    );
    assert!(!error.to_string().contains("hunter"), "{error}");

    // vncdotool#355: after several failures the server answers in the 3.3 layout, and refuses the
    // right password too.
    for _ in 0..6 {
        VncDevice::connect_with(server.config(), wrong())
            .await
            .unwrap_err();
    }
    let error = VncDevice::connect_with(server.config(), right)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthorized, "{error}");
    assert!(
        error.to_string().contains("Too many security failures"),
        "{error}"
    );
}

#[tokio::test]
async fn typed_text_arrives() {
    or_skip!();
    let mut server = Server::open();
    let witness = Witness::start(&mut server);
    let mut device = server.device().await;
    device
        .perform(&Action::MoveTo {
            at: ScreenPx::new(100, 100),
        })
        .await
        .unwrap();
    let text = "aZ9 <>!@#$%^&*()_+{}|:\"~éß€Ω你😀\n".to_owned();
    device.perform(&Action::Type { text }).await.unwrap();
    let names = witness.pressed("Return");
    let names = names
        .iter()
        .filter(|name| !name.starts_with("Shift"))
        .collect::<Vec<_>>();
    let expected = [
        "a",
        "Z",
        "9",
        "space",
        "less",
        "greater",
        "exclam",
        "at",
        "numbersign",
        "dollar",
        "percent",
        "asciicircum",
        "ampersand",
        "asterisk",
        "parenleft",
        "parenright",
        "underscore",
        "plus",
        "braceleft",
        "braceright",
        "bar",
        "colon",
        "quotedbl",
        "asciitilde",
        "eacute",
        "ssharp",
        "U20AC",
        "U03A9",
        "U4F60",
        "U0001F600",
        "Return",
    ];
    assert_eq!(names, expected);
}

#[tokio::test]
async fn long_text_loses_nothing() {
    or_skip!();
    let mut server = Server::open();
    let witness = Witness::start(&mut server);
    let mut device = server.device().await;
    device
        .perform(&Action::MoveTo {
            at: ScreenPx::new(100, 100),
        })
        .await
        .unwrap();
    let text = "abcdefgh".repeat(256) + "\n";
    device
        .perform(&Action::Type { text: text.clone() })
        .await
        .unwrap();
    let names = witness.pressed("Return");
    assert_eq!(names[..names.len() - 1].concat() + "\n", text);
}

#[tokio::test]
async fn pointer_and_modifiers_arrive() {
    or_skip!();
    let mut server = Server::open();
    let witness = Witness::start(&mut server);
    let mut device = server.device().await;
    device
        .perform(&Action::Click {
            at: ScreenPx::new(50, 60),
            button: MouseButton::Right,
            count: 2,
            modifiers: Modifiers::NONE.with(Modifier::Ctrl),
        })
        .await
        .unwrap();
    let lines = witness.until(|line| line.contains("Control_L") && line.contains("keysym"));
    assert!(!lines.iter().any(|line| line.starts_with("ButtonPress")));
    for _ in 0..2 {
        let lines = witness.until(|line| line.contains("state 0x4, button 3"));
        assert!(
            lines.iter().any(|line| line.contains("(50,60)")),
            "{lines:#?}"
        );
        witness.until(|line| line.contains("state 0x404, button 3"));
    }
    witness.until(|line| line.contains("Control_L"));
    for (direction, button) in [
        (Direction::Up, 4),
        (Direction::Down, 5),
        (Direction::Left, 6),
        (Direction::Right, 7),
    ] {
        let scroll = Action::Scroll {
            at: None,
            direction,
            notches: 2,
        };
        device.perform(&scroll).await.unwrap();
        for _ in 0..4 {
            witness.until(|line| line.contains(&format!("button {button},")));
        }
    }
    let keys = ["ctrl", "shift", "t"].map(|name| name.parse::<Key>().unwrap());
    device
        .perform(&Action::Hotkey {
            keys: keys.to_vec(),
        })
        .await
        .unwrap();
    witness.until(|line| line.contains("state 0x5,") && line.contains(", T),"));
    let drag = Action::DragTo {
        from: Some(ScreenPx::new(10, 10)),
        to: ScreenPx::new(90, 50),
    };
    device.perform(&drag).await.unwrap();
    let path = witness.until(|line| line.contains("(90,50)") && line.contains("root:"));
    let moves = path
        .iter()
        .filter(|line| line.starts_with("MotionNotify"))
        .count();
    assert!(moves >= 4, "{path:#?}");
}

#[tokio::test]
async fn a_resize_by_another_client_is_followed() {
    or_skip!();
    let server = Server::desktop();
    let mut device = server.device().await;
    for size in [Size::new(400, 200), Size::new(160, 120), SIZE] {
        server.resize(size.width as u16, size.height as u16);
        let frame = device.screenshot().await.unwrap().frame;
        assert_eq!((frame.size(), device.spec().screen), (size, size));
        let mut fresh = server.device().await;
        assert_eq!(fresh.screenshot().await.unwrap().frame, frame);
    }
}

#[tokio::test]
async fn a_killed_server_is_disconnected() {
    or_skip!();
    let mut server = Server::open();
    let mut device = server.device().await;
    server.started.0[0].kill().unwrap();
    let begun = Instant::now();
    let error = device.screenshot().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Disconnected, "{error}");
    let error = device.recover().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Disconnected, "{error}");
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn a_stopped_server_is_a_timeout() {
    or_skip!();
    let server = Server::open();
    let mut device = VncDevice::connect(VncConfig {
        update_timeout_ms: 500,
        ..server.config()
    })
    .await
    .unwrap();
    let pid = server.started.0[0].id().to_string();
    let signal = |name: &str| Command::new("kill").args([name, &pid]).status().unwrap();
    signal("-STOP");
    let error = device.screenshot().await.unwrap_err();
    signal("-CONT");
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    device.recover().await.unwrap();
    device.screenshot().await.unwrap();
}

/// The device suite on the real server.
struct Real;

std::thread_local! {
    // Each check runs on one thread; its servers end with it.
    static SERVERS: std::cell::RefCell<Vec<Server>> = const { std::cell::RefCell::new(Vec::new()) };
}

#[async_trait]
impl DeviceHarness for Real {
    type Device = VncDevice;

    fn settings(&self) -> Settings {
        Settings {
            skipped: skipped(),
            ..Settings::default()
        }
    }

    async fn make(&self) -> Result<Box<VncDevice>> {
        let server = Server::desktop();
        let mut device = server.device().await;
        server.wait_for_menu(&mut device).await;
        SERVERS.with_borrow_mut(|servers| servers.push(server));
        Ok(Box::new(device))
    }

    async fn visible_action(&self, device: &mut VncDevice) -> Result<Action> {
        Ok(right_click(device))
    }

    async fn breakable(&self, fault: Fault) -> Result<Option<Breakable<VncDevice>>> {
        let server = Server::desktop();
        let config = VncConfig {
            update_timeout_ms: 1_000,
            ..server.config()
        };
        let mut device = VncDevice::connect(config).await?;
        server.wait_for_menu(&mut device).await;
        let pid = server.started.0[0].id().to_string();
        let signal = |name: &'static str, pid: String| -> Box<dyn FnOnce() + Send> {
            Box::new(move || {
                Command::new("kill").args([name, &pid]).status().unwrap();
            })
        };
        SERVERS.with_borrow_mut(|servers| servers.push(server));
        Ok(Some(match fault {
            Fault::Stall => Breakable {
                subject: Box::new(device),
                break_it: signal("-STOP", pid.clone()),
                heal: Some(signal("-CONT", pid)),
            },
            Fault::Cut => Breakable {
                subject: Box::new(device),
                break_it: signal("-KILL", pid),
                heal: None,
            },
        }))
    }
}

device_conformance!(mod real_server, Real);
