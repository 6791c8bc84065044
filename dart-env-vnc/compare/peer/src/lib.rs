//! vnc-rs with what a user who wants frames in red, green and blue has to add: a framebuffer, into
//! which the rectangles that vnc-rs hands over are converted.

use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use tokio::{net::TcpStream, time::timeout};
use vnc::{PixelFormat, VncClient, VncConnector, VncEncoding, VncError, VncEvent, X11Event};

/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// What to offer for an encoding, by its name: it, where the server tells of the pointer so that it
/// is not in the pixels, and what the encoding needs.
///
/// # Errors
/// If the name is unknown.
pub fn encodings(name: &str) -> Result<Vec<VncEncoding>> {
    use VncEncoding as E;
    Ok(match name {
        "raw" => vec![E::Raw, E::CopyRect, E::CursorPseudo],
        "tight" => vec![
            E::Tight,
            E::CopyRect,
            E::Raw,
            E::CursorPseudo,
            E::LastRectPseudo,
        ],
        "zrle" => vec![E::Zrle, E::CopyRect, E::Raw, E::CursorPseudo],
        "trle" => vec![E::Trle, E::CopyRect, E::Raw, E::CursorPseudo],
        other => bail!("vnc-rs has no encoding `{other}`"),
    })
}

/// Converts blue, green, red, unused to red, green, blue: eight pixels at a time, as our own client.
fn convert(pixels: &[u8], colours: &mut [u8]) {
    let (eights, last) = pixels.as_chunks::<32>();
    let (targets, rest) = colours.as_chunks_mut::<24>();
    for (from, to) in eights.iter().zip(targets) {
        let mut pairs = [0; 4];
        for (pair, bytes) in pairs.iter_mut().zip(from.as_chunks::<8>().0) {
            let pixels = u64::from_be_bytes(*bytes);
            *pair = pixels >> 40 | (pixels >> 8 & 0xff_ffff) << 24;
        }
        let [a, b, c, d] = pairs;
        let words = [a | b << 48, b >> 16 | c << 32, c >> 32 | d << 16];
        for (word, bytes) in words.into_iter().zip(to.as_chunks_mut::<8>().0) {
            *bytes = word.to_le_bytes();
        }
    }
    let last = last.as_chunks::<4>().0.iter();
    for ([blue, green, red, _], to) in last.zip(rest.as_chunks_mut::<3>().0) {
        *to = [*red, *green, *blue];
    }
}

/// A connection and its pixels.
pub struct Peer {
    client: VncClient,
    size: [usize; 2],
    /// Red, green, blue of each pixel.
    pixels: Vec<u8>,
    /// Pixels painted so far.
    painted: usize,
    /// Rectangles that were copies.
    pub copies: usize,
}

impl Peer {
    /// Connects; the first whole frame is asked for by vnc-rs itself.
    pub async fn connect(port: u16, encodings: &[VncEncoding]) -> Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.set_nodelay(true)?;
        let mut connector = VncConnector::new(stream)
            .set_auth_method(async { Ok::<String, VncError>(String::new()) })
            .allow_shared(true)
            .set_pixel_format(PixelFormat::bgra());
        for encoding in encodings {
            connector = connector.add_encoding(*encoding);
        }
        let started = timeout(PATIENCE, connector.build()?.try_start()).await;
        let client = started.map_err(|_| anyhow!("no handshake"))??.finish()?;
        let mut peer = Self {
            client,
            size: [0; 2],
            pixels: Vec::new(),
            painted: 0,
            copies: 0,
        };
        while peer.pixels.is_empty() {
            peer.next(PATIENCE).await?;
        }
        peer.whole().await?;
        Ok(peer)
    }

    /// Takes one event; `false` if none comes within `limit`.
    async fn next(&mut self, limit: Duration) -> Result<bool> {
        let Ok(event) = timeout(limit, self.client.recv_event()).await else {
            return Ok(false);
        };
        match event? {
            VncEvent::SetResolution(screen) => {
                self.size = [screen.width.into(), screen.height.into()];
                self.pixels = vec![0; self.size[0] * self.size[1] * 3];
            }
            VncEvent::RawImage(rect, image) => {
                let width = usize::from(rect.width);
                for (y, from) in image.chunks_exact(width * 4).enumerate() {
                    let at = self.at(rect.x.into(), usize::from(rect.y) + y);
                    convert(from, &mut self.pixels[at..at + width * 3]);
                }
                self.painted += usize::from(rect.width) * usize::from(rect.height);
            }
            VncEvent::Copy(to, from) => {
                let before = self.pixels.clone();
                let row = usize::from(to.width) * 3;
                for y in 0..usize::from(to.height) {
                    let source = self.at(from.x.into(), usize::from(from.y) + y);
                    let target = self.at(to.x.into(), usize::from(to.y) + y);
                    self.pixels[target..target + row]
                        .copy_from_slice(&before[source..source + row]);
                }
                self.copies += 1;
            }
            VncEvent::Error(error) => bail!("vnc-rs reports: {error}"),
            _ => {}
        }
        Ok(true)
    }

    fn at(&self, x: usize, y: usize) -> usize {
        (y * self.size[0] + x) * 3
    }

    /// Takes events until a whole frame has been painted. vnc-rs does not say where an update ends,
    /// so pixels are counted.
    async fn whole(&mut self) -> Result<()> {
        while self.painted < self.size[0] * self.size[1] {
            if !self.next(PATIENCE).await? {
                bail!("vnc-rs gives no frame");
            }
        }
        self.painted = 0;
        Ok(())
    }

    /// Asks for every pixel and waits for them.
    pub async fn refresh(&mut self) -> Result<()> {
        self.painted = 0;
        self.client.input(X11Event::FullRefresh).await?;
        self.whole().await
    }

    /// Asks for changes and takes events until the screen is `rgb`; `false` if it never is.
    pub async fn follow(&mut self, rgb: &[u8], limit: Duration) -> Result<bool> {
        let deadline = tokio::time::Instant::now() + limit;
        self.client.input(X11Event::Refresh).await?;
        while self.differing(rgb) > 0 {
            if tokio::time::Instant::now() >= deadline {
                return Ok(false);
            }
            // Quiet may mean that the update is over and the rest is in the next.
            if !self.next(Duration::from_millis(20)).await? {
                self.client.input(X11Event::Refresh).await?;
            }
        }
        Ok(true)
    }

    /// How many pixels are not those of `rgb`.
    pub fn differing(&self, rgb: &[u8]) -> usize {
        let pixels = self.pixels.as_chunks::<3>().0.iter();
        pixels
            .zip(rgb.as_chunks::<3>().0)
            .filter(|(a, b)| a != b)
            .count()
    }

    /// Ends the connection.
    pub async fn close(self) {
        // Nothing is left to lose.
        let _ = self.client.close().await;
    }
}
