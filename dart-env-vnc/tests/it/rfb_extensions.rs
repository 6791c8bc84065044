//! Extensions of the protocol: the fake server's side of them, and what the core and the device
//! make of them.

#![allow(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::{io, time::Duration};

use dart_core::{Action, Device, ErrorKind, Key, ScreenPx, Size};
use dart_env_vnc::{
    VncConfig, VncDevice,
    rfb::{Abilities, Core, Event, Locks, SizeReply, message},
};
use tokio::io::AsyncReadExt;

use crate::{
    rfb_server::{FakeServer, Input, Mode, Peer, Quirk},
    rfb_stream::{Outcome, Stream, run},
};

pub(crate) const EXTENDED_DESKTOP_SIZE: i32 = -308;

/// An ExtendedDesktopSize rectangle of one screen.
pub(crate) fn screens(reason: u16, status: u16, width: u16, height: u16) -> Stream {
    Stream::new()
        .rect([reason, status, width, height], EXTENDED_DESKTOP_SIZE)
        .bytes(&[1, 0, 0, 0])
        .u32(7)
        .u16(0)
        .u16(0)
        .u16(width)
        .u16(height)
        .u32(3)
}

/// An extended clipboard message of a server.
fn extended(flags: u32) -> Stream {
    let head = Stream::new().bytes(&[3, 0, 0, 0]);
    head.u32(-4i32 as u32).u32(flags)
}

impl Peer {
    /// What a server says of itself once it knows the client's encodings.
    pub(crate) async fn introduce(&mut self) -> io::Result<()> {
        let rect = |encoding| Stream::new().update(1).rect([0; 4], encoding);
        match self.state.quirk {
            Quirk::Scancodes => self.send(rect(-258)).await,
            Quirk::Relative => self.send(rect(-257)).await,
            Quirk::Locked => self.send(rect(-261).bytes(&[0b100])).await,
            Quirk::Agent(_) => {
                self.send(rect(-258)).await?;
                self.send(extended(0x1f00_0001)).await
            }
            Quirk::Clipboard(true) => self.send(extended(0x1f00_0001)).await,
            Quirk::Fences => {
                let fence = Stream::new().bytes(&[248, 0, 0, 0]).u32(0x8000_0001);
                self.send(fence.bytes(&[3]).bytes(b"abc")).await
            }
            _ => Ok(()),
        }
    }

    /// A message that no RFC knows.
    pub(crate) async fn extension(&mut self, kind: u8) -> io::Result<()> {
        match (kind, self.state.quirk) {
            (6, Quirk::Clipboard(_) | Quirk::Agent(_)) => {
                let [_, _, _, length @ ..] = self.read::<7>().await?;
                let length = i32::from_be_bytes(length);
                let mut text = length.to_be_bytes().to_vec();
                text.resize(4 + length.unsigned_abs() as usize, 0);
                self.stream.read_exact(&mut text[4..]).await?;
                self.state.screen.lock().unwrap().clipboard.push(text);
                Ok(())
            }
            (248, Quirk::Fences) => {
                let [_, _, _, flags @ .., length] = self.read::<8>().await?;
                let flags = u32::from_be_bytes(flags);
                let mut payload = vec![0; length.into()];
                self.stream.read_exact(&mut payload).await?;
                if flags & (1 << 31) == 0 {
                    assert_eq!(
                        (flags, &*payload),
                        (1, &b"abc"[..]),
                        "the answer to our fence"
                    );
                    return Ok(());
                }
                let answer = Stream::new().bytes(&[248, 0, 0, 0]).u32(flags & 7);
                self.send(answer.bytes(&[length]).bytes(&payload)).await
            }
            (251, Quirk::Sizes(status)) => {
                let request = self.read::<23>().await?;
                assert_eq!(request[5], 1, "one screen");
                assert_eq!(request[7..11], [0, 0, 0, 7], "the screen keeps its number");
                let side = |at: usize| u16::from_be_bytes([request[at], request[at + 1]]);
                self.resize(status, (side(1), side(3))).await
            }
            (251, Quirk::Fragile) => Err(io::ErrorKind::BrokenPipe.into()),
            (255, quirk @ (Quirk::Scancodes | Quirk::Agent(_))) => {
                let [0, 0, down, a, b, c, d, e, f, g, h] = self.read().await? else {
                    panic!("not a key");
                };
                let code = u32::from_be_bytes([e, f, g, h]);
                self.input(Input::Code {
                    keysym: u32::from_be_bytes([a, b, c, d]),
                    code,
                    down: down == 1,
                });
                if (quirk, code, down) == (Quirk::Agent(true), 0x2f, 1) {
                    return self.send(extended(0x0200_0001)).await;
                }
                Ok(())
            }
            (other, quirk) => panic!("the client sent a message of type {other} to {quirk:?}"),
        }
    }

    async fn resize(&mut self, status: u16, (width, height): (u16, u16)) -> io::Result<()> {
        let size = Size::new(width.into(), height.into());
        let change = move |screen: &mut crate::rfb_server::Screen| {
            screen.rgb = vec![90; size.area() * 3];
            screen.size = size;
        };
        match status {
            0 => change(&mut self.state.screen.lock().unwrap()),
            4 => {
                let state = self.state.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(80)).await;
                    change(&mut state.screen.lock().unwrap());
                    state.mode.send_replace(Mode::Serve);
                });
            }
            _ => {}
        }
        self.announce_screens(1, status).await
    }

    /// The screens, and the size; after a refusal a size that means nothing.
    pub(crate) async fn announce_screens(&mut self, reason: u16, status: u16) -> io::Result<()> {
        let size = self.state.screen.lock().unwrap().size;
        let (width, height) = match status {
            0 => (size.width as u16, size.height as u16),
            _ => (9_999, 9_999),
        };
        let rect = screens(reason, status, width, height);
        self.send(Stream::new().update(1).bytes(&rect.0)).await?;
        self.size = size;
        self.shown.clear();
        self.wants = None;
        Ok(())
    }
}

fn last_output(outcome: &Outcome, count: usize) -> &[u8] {
    &outcome.output[outcome.output.len() - count..]
}

#[test]
fn a_fence_is_answered_in_kind_and_in_order() {
    let fence = |flags: u32| {
        let head = Stream::ready(4, 4).bytes(&[248, 0, 0, 0]).u32(flags);
        run(&head.bytes(&[2]).bytes(b"hi"))
    };
    let outcome = fence(0xffff_ffff);
    assert_eq!(outcome.error, None);
    // Kinds that we do not know are dropped, and so is the request.
    assert_eq!(last_output(&outcome, 11), b"\xf8\0\0\0\0\0\0\x07\x02hi");
    assert!(outcome.core.abilities().unwrap().fence);
    let payload = b"hi".to_vec();
    assert!(fence(1).events.contains(&Event::Fence { payload }));
}

#[test]
fn continuous_updates_are_not_asked_for_one_by_one() {
    let feed = |continuous: bool, stream: &Stream| {
        let mut core = Core::new(None);
        core.want_continuous_updates(continuous);
        core.input().extend_from_slice(&stream.0);
        while core.next_event().unwrap().is_some() {}
        core.take_output()
    };
    let painted = Stream::ready(4, 4)
        .bytes(&[150])
        .update(1)
        .fill([0, 0, 4, 4], [1; 3]);
    let mut on = Vec::new();
    let all = dart_env_vnc::rfb::Area::all(Size::new(4, 4));
    message::continuous_updates(true, all, &mut on);
    // The last thing said is to switch them on: no request follows the update.
    assert!(feed(true, &painted).ends_with(&on));
    assert!(
        !feed(false, &painted)
            .windows(on.len())
            .any(|said| said == on)
    );
    // Another size is another area, and is asked for once.
    let resized = painted.clone().update(1).rect([0, 0, 3, 2], -223);
    let area = dart_env_vnc::rfb::Area::all(Size::new(3, 2));
    let mut expected = Vec::new();
    message::update_request(false, area, &mut expected);
    message::continuous_updates(true, area, &mut expected);
    assert!(feed(true, &resized).ends_with(&expected));
    // A server that stops is asked again.
    let mut request = Vec::new();
    message::update_request(true, all, &mut request);
    assert!(feed(true, &painted.bytes(&[150])).ends_with(&request));
}

#[test]
fn abilities_are_known_once_they_are_told() {
    let outcome = run(&Stream::ready(4, 4));
    assert_eq!(outcome.core.abilities(), Some(&Abilities::default()));
    let stream = Stream::ready(4, 4)
        .update(5)
        .rect([0; 4], -258)
        .rect([0; 4], -316)
        .rect([0; 4], -257)
        .rect([0; 4], -261)
        .bytes(&[0b101])
        .bytes(&screens(0, 0, 4, 4).0)
        .update(1)
        .rect([1, 0, 0, 0], -257);
    let outcome = run(&stream);
    assert_eq!(outcome.error, None);
    let told = outcome.core.abilities().unwrap();
    assert!(told.scancodes && told.wide_buttons && !told.relative_pointer);
    let locks = Locks {
        scroll: true,
        num: false,
        caps: true,
    };
    assert_eq!(told.locks, Some(locks));
    assert_eq!((told.screens[0].id, told.screens[0].flags), (7, 3));
    let learned = outcome.events.iter().filter(|e| **e == Event::Learned);
    assert_eq!(learned.count(), 2, "once an update");
}

#[test]
fn a_refused_size_is_not_taken() {
    for (status, reply) in [
        (0, SizeReply::Done),
        (1, SizeReply::Prohibited),
        (2, SizeReply::NoResources),
        (3, SizeReply::Invalid),
        (4, SizeReply::Forwarded),
        (9, SizeReply::Unknown(9)),
    ] {
        let stream = Stream::ready(4, 4)
            .update(1)
            .bytes(&screens(1, status, 6, 5).0);
        let outcome = run(&stream);
        let told = Event::SizeReply(reply);
        assert!(outcome.events.contains(&told), "{:?}", outcome.events);
        let expected = if status == 0 { (6, 5) } else { (4, 4) };
        let size = outcome.core.screen().unwrap().size();
        assert_eq!((size.width, size.height), expected, "status {status}");
    }
}

#[test]
fn a_clipboard_that_is_announced_is_fetched() {
    let outcome = run(&Stream::ready(4, 4).bytes(&extended(0x1f00_0001).0));
    assert!(outcome.core.abilities().unwrap().utf8_clipboard);
    // Our own: text only, nothing unasked.
    assert_eq!(last_output(&outcome, 16)[8..], [0x1f, 0, 0, 1, 0, 0, 0, 0]);
    let outcome = run(&Stream::ready(4, 4).bytes(&extended(0x0800_0001).0));
    assert_eq!(last_output(&outcome, 4), [2, 0, 0, 1], "a request");
    let outcome = run(&Stream::ready(4, 4).bytes(&extended(0x0200_0001).0));
    let wanted = Event::CutTextWanted { peek: false };
    assert_eq!(outcome.events.last(), Some(&wanted));
}

#[tokio::test]
async fn input_is_fenced_where_that_is_possible() {
    let server = FakeServer::start(Quirk::Fences).await;
    let mut device = VncDevice::connect(server.config()).await.unwrap();
    assert!(device.abilities().fence);
    for step in 0..20 {
        let at = ScreenPx::new(step, step);
        device.perform(&Action::click(at)).await.unwrap();
        let frame = device.screenshot().await.unwrap().frame;
        assert_eq!(frame.rgb(), server.rgb());
    }
    server.set(Mode::Stall);
    let error = device.perform(&Action::click(ScreenPx::new(1, 1))).await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Timeout);
}

#[tokio::test]
async fn a_relative_pointer_is_moved_by_differences() {
    let server = FakeServer::start(Quirk::Relative).await;
    let mut device = VncDevice::connect(server.config()).await.unwrap();
    let to = |x, y| Action::MoveTo {
        at: ScreenPx::new(x, y),
    };
    device.perform(&to(10, 10)).await.unwrap();
    server.log();
    device.perform(&to(13, 8)).await.unwrap();
    let moved = Input::Pointer {
        x: 0x7fff + 3,
        y: 0x7fff - 2,
        buttons: 0,
    };
    assert_eq!(server.log(), [moved]);
}

#[tokio::test]
async fn caps_lock_is_taken_off_at_the_start() {
    let server = FakeServer::start(Quirk::Locked).await;
    VncDevice::connect(server.config()).await.unwrap();
    let caps = server.log().into_iter().filter_map(|input| match input {
        Input::Key {
            keysym: 0xffe5,
            down,
        } => Some(down),
        _ => None,
    });
    assert_eq!(caps.collect::<Vec<_>>(), [true, false]);
}

#[tokio::test]
async fn a_clipboard_is_latin_1_unless_the_server_can_do_more() {
    let server = FakeServer::start(Quirk::Clipboard(false)).await;
    let device = VncDevice::connect(server.config()).await.unwrap();
    device.set_clipboard("hé").await.unwrap();
    let error = device.set_clipboard("€").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    device.settle(Duration::ZERO, Duration::ZERO).await.unwrap();
    assert_eq!(server.cut_texts(), [[0, 0, 0, 2, b'h', 0xe9]]);

    let server = FakeServer::start(Quirk::Clipboard(true)).await;
    let device = VncDevice::connect(server.config()).await.unwrap();
    device.set_clipboard("€").await.unwrap();
    device.settle(Duration::ZERO, Duration::ZERO).await.unwrap();
    let texts = server.cut_texts();
    // What we can do, then that there is text; the text itself only when it is asked for.
    assert_eq!(texts.len(), 2, "{texts:?}");
    assert_eq!(texts[1][4..], [8, 0, 0, 1]);
}

#[tokio::test]
async fn a_clipboard_is_emptied_in_either_way() {
    for (extended, expected) in [
        (false, vec![vec![0, 0, 0, 0]]),
        (true, vec![vec![8, 0, 0, 1], vec![8, 0, 0, 0]]),
    ] {
        let server = FakeServer::start(Quirk::Clipboard(extended)).await;
        let device = VncDevice::connect(server.config()).await.unwrap();
        device.set_clipboard("secret").await.unwrap();
        let settle = async || device.settle(Duration::ZERO, Duration::ZERO).await;
        settle().await.unwrap();
        let before = server.cut_texts().len();
        device.clear_clipboard().await.unwrap();
        settle().await.unwrap();
        assert_eq!(device.clipboard(), None);
        let sent = server.cut_texts();
        let skip = if extended { 4 } else { 0 };
        let sent = sent[before..].iter().map(|text| text[skip..].to_vec());
        assert_eq!(sent.collect::<Vec<_>>(), expected);
    }
}

/// Text that a US keyboard lacks goes through the clipboard where that is allowed, and counts as
/// typed only if the desktop takes it.
#[tokio::test]
async fn what_has_no_key_is_pasted_or_refused() {
    let connect = async |quirk, paste_untypable| {
        let server = FakeServer::start(quirk).await;
        let config = VncConfig {
            paste_untypable,
            ..server.config()
        };
        (server, VncDevice::connect(config).await.unwrap())
    };
    let text = "na\u{ef}ve \u{20ac}".to_owned();
    let naive = Action::Type { text };

    let (server, mut device) = connect(Quirk::Agent(true), true).await;
    server.log();
    device.perform(&naive).await.unwrap();
    let keys = server.log().into_iter().map(|input| match input {
        Input::Code { code, down, .. } => (code, down),
        other => panic!("{other:?}"),
    });
    let expected = [(0x1d, true), (0x2f, true), (0x2f, false), (0x1d, false)];
    assert_eq!(keys.collect::<Vec<_>>(), expected);
    device.settle(Duration::ZERO, Duration::ZERO).await.unwrap();
    let sent = server.cut_texts().pop().unwrap();
    assert_eq!(sent[4..8], [0x10, 0, 0, 1]);
    let mut inflated = Vec::new();
    let mut stream = flate2::read::ZlibDecoder::new(&sent[8..]);
    io::Read::read_to_end(&mut stream, &mut inflated).unwrap();
    assert_eq!(inflated[4..], *"na\u{ef}ve \u{20ac}\0".as_bytes());
    // Keys are no text.
    let press = Action::Press {
        key: Key::Char('\u{20ac}'),
    };
    let error = device.perform(&press).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidAction, "{error}");

    for (quirk, allowed, word) in [
        (Quirk::Agent(false), true, "to be pasted"),
        (Quirk::Agent(true), false, "no key for the character"),
        (Quirk::Scancodes, true, "no key for the character"),
    ] {
        let (_server, mut device) = connect(quirk, allowed).await;
        let error = device.perform(&naive).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidAction, "{error}");
        assert!(error.to_string().contains(word), "{quirk:?}: {error}");
        device.screenshot().await.unwrap();
    }
}

/// What a server's clipboard had is forgotten when it has nothing any more.
#[test]
fn an_empty_clipboard_is_told() {
    let outcome = run(&Stream::ready(4, 4).bytes(&extended(0x0800_0000).0));
    assert_eq!(outcome.events.last(), Some(&Event::CutTextUnknown));
}
