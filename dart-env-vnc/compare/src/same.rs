//! Do both clients see what is on the screen, pixel by pixel, while it changes?

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use dart_core::Device;
use dart_env_vnc::{VncDevice, rfb::EncodingChoice as Ours};
use dart_env_vnc_peer::{Peer, encodings};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::{content::PICTURES, ours, replay::Recording, screen::Screen};

const SIZE: [u16; 2] = [640, 400];

/// Screens for each encoding.
const CHANGES: usize = 60;

/// The same for a server that takes its time.
const FEW_CHANGES: usize = 12;

/// How long a client may take to show a change.
const LIMIT: Duration = Duration::from_secs(5);

/// The encoding's name, and what our client asks for.
type Case = (&'static str, Ours);

/// What both clients know of the encodings that these servers send.
const CASES: [Case; 3] = [
    ("raw", Ours::Raw),
    ("tight", Ours::Tight),
    ("zrle", Ours::Zrle),
];

/// Changes a part of the screen: a picture, a plain area, or a copy of another part.
fn change(screen: &mut Screen, random: &mut ChaCha8Rng) -> Result<()> {
    let mut side = |longest: u16| random.random_range(1..=longest);
    let [width, height] = [side(SIZE[0]), side(SIZE[1])];
    let mut place = |length: u16, of: u16| random.random_range(0..=of - length);
    let [x, y] = [place(width, SIZE[0]), place(height, SIZE[1])];
    let [to_x, to_y] = [place(width, SIZE[0]), place(height, SIZE[1])];
    let salt = random.random_range(0..1000);
    match random.random_range(0..5) {
        0 => screen.copy([x, y, width, height], [to_x, to_y]),
        1 => screen.paint([x, y, width, height], |_, _| [(salt % 256) as u8, 99, 180]),
        number => {
            let picture = PICTURES[number - 2].1;
            screen.paint([x, y, width, height], |x, y| picture(x, y, salt))
        }
    }
}

/// Two clients that look at one screen.
struct Pair {
    name: String,
    device: VncDevice,
    peer: Peer,
    /// Screens that vnc-rs did not show.
    missed: usize,
}

impl Pair {
    async fn connect(server: &str, [our_port, their_port]: [u16; 2], case: Case) -> Result<Self> {
        let (encoding, ours) = case;
        Ok(Self {
            name: format!("{server} {encoding}"),
            device: ours::connect(our_port, ours).await?,
            peer: Peer::connect(their_port, &encodings(encoding)?).await?,
            missed: 0,
        })
    }

    /// Compares both with what is on the screen. A server that looks for changes from time to time
    /// (`eventually`) is given time; Xtigervnc is not, to our client.
    async fn compare(&mut self, rgb: &[u8], eventually: bool) -> Result<()> {
        let name = &self.name;
        let deadline = Instant::now() + LIMIT;
        while self.device.screenshot().await?.frame.rgb() != rgb {
            let late = !eventually || Instant::now() > deadline;
            ensure!(!late, "{name}: our client is wrong");
        }
        if !self.peer.follow(rgb, LIMIT).await? {
            let wrong = self.peer.differing(rgb);
            println!("{name}: vnc-rs has {wrong} other pixels");
            self.missed += 1;
            self.peer.refresh().await?;
        }
        Ok(())
    }

    async fn close(mut self, screens: usize) -> Result<()> {
        let (name, copies, missed) = (&self.name, self.peer.copies, self.missed);
        let right = screens - missed;
        println!(
            "{name}: {screens} screens, ours right in all, vnc-rs in {right}; {copies} copies"
        );
        self.device.close().await?;
        ensure!(missed == 0, "{name}: the two clients do not agree");
        self.peer.close().await;
        Ok(())
    }
}

/// Xtigervnc tells of each change at once, and of copies as such.
async fn xtigervnc(case: Case) -> Result<()> {
    let mut screen = Screen::start(SIZE[0], SIZE[1])?;
    screen.show(PICTURES[2].1, 0)?;
    let mut random = ChaCha8Rng::seed_from_u64(5);
    let mut pair = Pair::connect("xtigervnc", [screen.port; 2], case).await?;
    for number in 0..CHANGES {
        if number > 0 {
            change(&mut screen, &mut random)?;
        }
        pair.compare(&screen.rgb, false).await?;
    }
    let copies = pair.peer.copies;
    pair.close(CHANGES).await?;
    ensure!(copies > 0, "the server sent no copies");
    Ok(())
}

/// x11vnc has other encoders, and looks for changes from time to time.
async fn x11vnc(case: Case) -> Result<()> {
    let mut screen = Screen::start(SIZE[0], SIZE[1])?;
    screen.show(PICTURES[2].1, 0)?;
    // One for each: it writes to one client at a time.
    let (Some(server), Some(other)) = (screen.x11vnc()?, screen.x11vnc()?) else {
        println!("skipped: x11vnc is not installed (apt-get install x11vnc)");
        return Ok(());
    };
    let mut random = ChaCha8Rng::seed_from_u64(6);
    let mut pair = Pair::connect("x11vnc", [server.port, other.port], case).await?;
    for number in 0..FEW_CHANGES {
        if number > 0 {
            change(&mut screen, &mut random)?;
        }
        pair.compare(&screen.rgb, true).await?;
    }
    pair.close(FEW_CHANGES).await
}

/// A screen of two tiles in TRLE as RFC 6143 has it: no length, tiles of 16x16.
fn trle() -> Recording {
    let mut frame = vec![0, 0, 0, 1];
    for field in [0u16, 0, 32, 16, 0, 15] {
        frame.extend(field.to_be_bytes());
    }
    // One colour; then two, a bit for each pixel. Blue comes first.
    frame.extend([1, 3, 2, 1, 2, 9, 8, 7, 30, 20, 10]);
    frame.extend([0b0101_0101; 32]);
    let rgb = (0..32 * 16).flat_map(|at| match at % 32 {
        x if x < 16 => [1, 2, 3],
        x if x % 2 == 0 => [7, 8, 9],
        _ => [10, 20, 30],
    });
    Recording::of([32, 16], vec![frame], rgb.collect())
}

/// No server at hand sends TRLE, so both are given a stream that follows the RFC.
async fn compare_trle() -> Result<()> {
    let recording = Arc::new(trle());
    let port = recording.serve(2)?;
    let mut device = ours::connect(port, Ours::Trle).await?;
    let frame = device.screenshot().await?.frame;
    ensure!(frame.rgb() == recording.rgb, "trle: our client is wrong");
    let peer = tokio::time::timeout(LIMIT, Peer::connect(port, &encodings("trle")?)).await;
    let said = match peer {
        Ok(Ok(peer)) if peer.differing(&recording.rgb) == 0 => "agrees".to_owned(),
        Ok(Ok(peer)) => format!("has {} other pixels", peer.differing(&recording.rgb)),
        Ok(Err(error)) => format!("fails: {error}"),
        Err(_) => format!("gives no frame within {LIMIT:?}"),
    };
    println!(
        "trle: ours right, vnc-rs {said} (it waits for a length and tiles of 64x64, which RFC 6143 \
         has in ZRLE only)"
    );
    Ok(())
}

/// Every encoding that both clients know. vnc-rs may be wrong in TRLE.
pub async fn run() -> Result<()> {
    for case in CASES {
        xtigervnc(case).await?;
        x11vnc(case).await?;
    }
    compare_trle().await
}
