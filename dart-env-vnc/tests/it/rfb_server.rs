//! A small RFB server with a screen that reacts to input, and with the quirks and faults of real
//! ones. It keeps held keys and buttons across connections, as the less careful servers do.

#![allow(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::{
    collections::BTreeSet,
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use dart_core::Size;
use dart_env_vnc::VncConfig;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
};

use crate::rfb_stream::{CURSOR, DESKTOP_SIZE, Stream};

/// How the server differs from a plain one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Quirk {
    #[default]
    None,
    /// Each unconditional request is answered by pseudo-rectangles alone and then forgotten.
    PseudoOnly,
    /// Nothing but pseudo-rectangles, ever.
    OnlyPseudo,
    /// The first update has only the size, which is another one.
    SizeFirst,
    /// Clipboard, bell, palette and cursor between all updates; true-colour flag 255.
    Noisy,
    /// Writes one byte at a time.
    Bytewise,
    /// Writes one byte a second after the handshake.
    Dripping,
    /// A press at (0, 0) gives the screen another size, announced the way TigerVNC does.
    Resizing,
    /// The screen never stops changing.
    Restless,
    /// Reacts to input only after this long.
    Lazy(Duration),
    /// Takes scancodes, as QEMU does.
    Scancodes,
    /// Takes pointer motion only as differences.
    Relative,
    /// Sends fences at the start, as TigerVNC does, and answers them.
    Fences,
    /// Announces the screens with each unconditional request, and answers requests for another size
    /// with this status.
    Sizes(u16),
    /// Announces the screens, and hangs up when it is asked for another size.
    Fragile,
    /// Has a clipboard: extended or not.
    Clipboard(bool),
    /// Has Caps Lock on.
    Locked,
    /// Takes scancodes and has the extended clipboard; whether its guest asks for the text when
    /// Ctrl+V is pressed.
    Agent(bool),
}

/// What the server does with its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Serve,
    Stall,
    Cut,
}

/// An input event as it arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    Key { keysym: u32, down: bool },
    Code { keysym: u32, code: u32, down: bool },
    Pointer { x: u16, y: u16, buttons: u8 },
}

#[derive(Debug)]
pub(crate) struct Screen {
    pub(crate) size: Size,
    pub(crate) rgb: Vec<u8>,
    keys: BTreeSet<u32>,
    buttons: u8,
    reactions: u8,
    log: Vec<Input>,
    pub(crate) clipboard: Vec<Vec<u8>>,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) quirk: Quirk,
    pub(crate) mode: watch::Sender<Mode>,
    pub(crate) screen: Mutex<Screen>,
    connections: AtomicUsize,
}

/// A running server. Its tasks end with the runtime.
#[derive(Clone, Debug)]
pub(crate) struct FakeServer {
    address: SocketAddr,
    state: Arc<State>,
}

pub(crate) const SIZE: Size = Size::new(64, 48);

impl FakeServer {
    pub(crate) async fn start(quirk: Quirk) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let screen = Screen {
            size: SIZE,
            rgb: vec![40; SIZE.area() * 3],
            keys: BTreeSet::new(),
            buttons: 0,
            reactions: 0,
            log: Vec::new(),
            clipboard: Vec::new(),
        };
        let state = Arc::new(State {
            quirk,
            mode: watch::Sender::new(Mode::Serve),
            screen: Mutex::new(screen),
            connections: AtomicUsize::new(0),
        });
        let shared = state.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let state = shared.clone();
                tokio::spawn(async move {
                    state.connections.fetch_add(1, Ordering::Relaxed);
                    let _ = Peer::serve(stream, state).await;
                });
            }
        });
        Self { address, state }
    }

    pub(crate) fn config(&self) -> VncConfig {
        VncConfig {
            update_timeout_ms: 1_000,
            handshake_timeout_ms: 1_000,
            connect_timeout_ms: 1_000,
            settle_quiet_ms: 5,
            settle_max_ms: 50,
            ..VncConfig::new(self.address.to_string())
        }
    }

    pub(crate) fn set(&self, mode: Mode) {
        self.state.mode.send_replace(mode);
    }

    pub(crate) fn held(&self) -> usize {
        let screen = self.state.screen.lock().unwrap();
        screen.keys.len() + screen.buttons.count_ones() as usize
    }

    /// The input since the last call.
    pub(crate) fn log(&self) -> Vec<Input> {
        std::mem::take(&mut self.state.screen.lock().unwrap().log)
    }

    /// The clipboard messages so far, each from its length on.
    pub(crate) fn cut_texts(&self) -> Vec<Vec<u8>> {
        self.state.screen.lock().unwrap().clipboard.clone()
    }

    pub(crate) fn connections(&self) -> usize {
        self.state.connections.load(Ordering::Relaxed)
    }

    pub(crate) fn rgb(&self) -> Vec<u8> {
        self.state.screen.lock().unwrap().rgb.clone()
    }

    /// Paints the whole screen without any input.
    pub(crate) fn repaint(&self, level: u8) {
        self.state.screen.lock().unwrap().rgb.fill(level);
        self.state.mode.send_replace(Mode::Serve);
    }
}

impl Screen {
    fn paint(&mut self, x: usize, y: usize) {
        self.reactions = self.reactions.wrapping_add(1);
        let level = 60 + self.reactions % 190;
        let (width, height) = (self.size.width as usize, self.size.height as usize);
        for row in y..(y + 8).min(height) {
            let start = (row * width + x) * 3;
            let end = (row * width + (x + 8).min(width)) * 3;
            self.rgb[start..end].fill(level);
        }
    }

    fn take(&mut self, input: Input, quirk: Quirk) {
        self.log.push(input);
        match input {
            Input::Key { keysym, down: true }
            | Input::Code {
                keysym, down: true, ..
            } => {
                self.keys.insert(keysym);
                self.paint(0, self.size.height as usize - 8);
            }
            Input::Key { keysym, .. } | Input::Code { keysym, .. } => {
                self.keys.remove(&keysym);
            }
            Input::Pointer { x, y, buttons } => {
                let pressed = buttons & !self.buttons != 0;
                self.buttons = buttons;
                if pressed && (x, y) == (0, 0) && quirk == Quirk::Resizing {
                    self.size = Size::new(self.size.width + 16, self.size.height - 8);
                    self.rgb = vec![90; self.size.area() * 3];
                } else if pressed && quirk != Quirk::Relative {
                    self.paint(x.into(), y.into());
                }
            }
        }
    }
}

/// One connection.
pub(crate) struct Peer {
    pub(crate) stream: TcpStream,
    pub(crate) state: Arc<State>,
    /// What the client has.
    pub(crate) shown: Vec<u8>,
    pub(crate) size: Size,
    pub(crate) wants: Option<Want>,
    first: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    Changes,
    /// This area, and what has changed.
    Area([u16; 4]),
}

impl Peer {
    async fn serve(stream: TcpStream, state: Arc<State>) -> io::Result<()> {
        let mut mode = state.mode.subscribe();
        if *mode.borrow() != Mode::Serve {
            return Self::misbehave(stream, &mut mode).await;
        }
        stream.set_nodelay(true)?;
        let mut peer = Self {
            stream,
            shown: Vec::new(),
            size: SIZE,
            wants: None,
            first: true,
            state,
        };
        peer.greet().await?;
        loop {
            let mut kind = [0];
            let tick = Duration::from_millis(3);
            tokio::select! {
                biased;
                changed = mode.changed() => {
                    changed.map_err(io::Error::other)?;
                    if *mode.borrow_and_update() != Mode::Serve {
                        return Self::misbehave(peer.stream, &mut mode).await;
                    }
                }
                read = peer.stream.read_exact(&mut kind) => {
                    read?;
                    peer.message(kind[0]).await?;
                }
                () = tokio::time::sleep(tick), if peer.state.quirk == Quirk::Restless => {
                    peer.state.screen.lock().unwrap().paint(20, 20);
                }
            }
            peer.answer().await?;
        }
    }

    /// A stalled connection never recovers; it ends when the mode changes again.
    async fn misbehave(stream: TcpStream, mode: &mut watch::Receiver<Mode>) -> io::Result<()> {
        if *mode.borrow() == Mode::Stall {
            let _ = mode.changed().await;
        }
        drop(stream);
        Ok(())
    }

    async fn greet(&mut self) -> io::Result<()> {
        self.size = self.state.screen.lock().unwrap().size;
        let flag = if self.state.quirk == Quirk::Noisy {
            255
        } else {
            1
        };
        self.send(Stream::new().bytes(b"RFB 003.008\n")).await?;
        self.stream.read_exact(&mut [0; 12]).await?;
        self.send(Stream::new().bytes(&[1, 1])).await?;
        self.stream.read_exact(&mut [0; 1]).await?;
        self.send(Stream::new().u32(0)).await?;
        self.stream.read_exact(&mut [0; 1]).await?;
        let (width, height) = (self.size.width as u16, self.size.height as u16);
        let init = Stream::new().u16(width).u16(height).format(flag);
        self.send(init.u32(4).bytes(b"fake")).await
    }

    pub(crate) async fn send(&mut self, stream: Stream) -> io::Result<()> {
        match self.state.quirk {
            Quirk::Bytewise => {
                for byte in stream.0 {
                    self.stream.write_all(&[byte]).await?;
                    tokio::task::yield_now().await;
                }
                Ok(())
            }
            Quirk::Dripping if self.wants.is_some() => {
                for byte in stream.0 {
                    self.stream.write_all(&[byte]).await?;
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
                Ok(())
            }
            _ => self.stream.write_all(&stream.0).await,
        }
    }

    async fn message(&mut self, kind: u8) -> io::Result<()> {
        match kind {
            0 => self.read::<19>().await.map(drop),
            2 => {
                let [_, high, low] = self.read().await?;
                for _ in 0..u16::from_be_bytes([high, low]) {
                    self.read::<4>().await?;
                }
                self.introduce().await
            }
            3 => {
                let [incremental, rest @ ..] = self.read::<9>().await?;
                if incremental == 0 {
                    let field = |at: usize| u16::from_be_bytes([rest[at], rest[at + 1]]);
                    self.wants = Some(Want::Area([0, 2, 4, 6].map(field)));
                } else {
                    self.wants.get_or_insert(Want::Changes);
                }
                Ok(())
            }
            4 => {
                let [down, _, _, a, b, c, d] = self.read().await?;
                let keysym = u32::from_be_bytes([a, b, c, d]);
                self.input(Input::Key {
                    keysym,
                    down: down == 1,
                });
                Ok(())
            }
            5 => {
                let [buttons, a, b, c, d] = self.read().await?;
                let [x, y] = [u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])];
                self.input(Input::Pointer { x, y, buttons });
                Ok(())
            }
            other => self.extension(other).await,
        }
    }

    pub(crate) async fn read<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.stream.read_exact(&mut bytes).await?;
        Ok(bytes)
    }

    pub(crate) fn input(&self, input: Input) {
        if let Quirk::Lazy(delay) = self.state.quirk {
            let state = self.state.clone();
            let mode = *state.mode.borrow();
            tokio::spawn(async move {
                tokio::time::sleep(delay).await;
                state.screen.lock().unwrap().take(input, state.quirk);
                state.mode.send_replace(mode);
            });
            return;
        }
        let mut screen = self.state.screen.lock().unwrap();
        screen.take(input, self.state.quirk);
    }

    /// Answers the outstanding request if there is something to say.
    async fn answer(&mut self) -> io::Result<()> {
        let Some(want) = self.wants else {
            return Ok(());
        };
        let (size, rgb) = {
            let screen = self.state.screen.lock().unwrap();
            (screen.size, screen.rgb.clone())
        };
        if size != self.size {
            if matches!(self.state.quirk, Quirk::Sizes(_)) {
                return self.announce_screens(0, 0).await;
            }
            return self.announce(size).await;
        }
        if self.quirky(want).await? {
            return Ok(());
        }
        let all = [0, 0, size.width as u16, size.height as u16];
        let area = match want {
            _ if rgb != self.shown => all,
            Want::Area(area) => area,
            Want::Changes => return Ok(()),
        };
        let mut update = Stream::new().update(1).rect(area, 0);
        for y in area[1]..area[1] + area[3] {
            for x in area[0]..area[0] + area[2] {
                let at = (usize::from(y) * size.width as usize + usize::from(x)) * 3;
                update = update.bytes(&[rgb[at + 2], rgb[at + 1], rgb[at], 0]);
            }
        }
        self.send(update).await?;
        self.shown = rgb;
        self.wants = None;
        Ok(())
    }

    /// The old size, then the new one twice; then the client has to ask again.
    async fn announce(&mut self, size: Size) -> io::Result<()> {
        for told in [self.size, size, size] {
            let rect = [0, 0, told.width as u16, told.height as u16];
            self.send(Stream::new().update(1).rect(rect, DESKTOP_SIZE))
                .await?;
        }
        self.size = size;
        self.shown.clear();
        self.wants = None;
        Ok(())
    }

    /// Whether the quirk was the whole answer.
    async fn quirky(&mut self, want: Want) -> io::Result<bool> {
        let size = [0, 0, self.size.width as u16, self.size.height as u16];
        let pseudo = Stream::new().update(1).rect(size, DESKTOP_SIZE);
        match self.state.quirk {
            Quirk::PseudoOnly | Quirk::OnlyPseudo if want != Want::Changes => {
                self.send(pseudo).await?;
                self.wants = None;
                if self.state.quirk == Quirk::PseudoOnly {
                    self.shown.clear();
                }
                Ok(true)
            }
            Quirk::OnlyPseudo => Ok(true),
            Quirk::Sizes(_) | Quirk::Fragile if want != Want::Changes => {
                self.announce_screens(0, 0).await?;
                Ok(true)
            }
            Quirk::SizeFirst if self.first => {
                self.first = false;
                {
                    let mut screen = self.state.screen.lock().unwrap();
                    screen.size = Size::new(32, 16);
                    screen.rgb = vec![200; 32 * 16 * 3];
                }
                self.announce(Size::new(32, 16)).await?;
                Ok(true)
            }
            Quirk::Noisy => {
                let noise = Stream::new()
                    .bytes(&[2])
                    .bytes(&[3, 0, 0, 0])
                    .u32(3)
                    .bytes(b"abc")
                    .bytes(&[1, 0, 0, 0, 0, 1])
                    .bytes(&[0; 6])
                    .update(1)
                    .rect([0, 0, 1, 1], CURSOR)
                    .bytes(&[1, 2, 3, 0, 0x80]);
                if want != Want::Changes {
                    self.send(noise).await?;
                }
                Ok(false)
            }
            _ => Ok(false),
        }
    }
}
