//! One connection of an ADB server to the simulated phone: greeting, key, streams.

use std::{
    collections::HashMap,
    io::{self, IoSlice},
    sync::{Arc, Mutex as StdMutex, PoisonError},
    time::Duration,
};

use dart_core::Device;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, BufReader},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{Mutex, mpsc},
    task::JoinSet,
    time::sleep,
};
use tokio_util::sync::CancellationToken;

use super::{
    options::{Auth, Hostile},
    phone::Phone,
    pipe::{Ends, Pipe, Terms},
    services,
};
use crate::wire::{
    packet::{Command, HEADER, Header, MAX_PAYLOAD, VERSION},
    window::{self, Window},
};

/// Most streams of one connection.
const MAX_STREAMS: usize = 256;
/// Kinds of an AUTH packet.
const TOKEN: u32 = 1;
const PUBLIC_KEY: u32 = 3;
/// Pause after a connection that could not be taken.
const PAUSE: Duration = Duration::from_millis(20);
/// Least payload of any version, bytes.
const MIN_PAYLOAD: usize = 4 << 10;
/// With delayed acknowledgement: bytes that the peer may send before they are read, and packets.
const GRANT: usize = 4 << 20;
const PACKETS: usize = 4096;
/// Acknowledgements that may wait for their stream, which takes them when it sends.
const ACKS: usize = 4096;

/// Takes connections until it is dropped.
pub(crate) async fn accept<D: Device + 'static>(listener: TcpListener, phone: Arc<Phone<D>>) {
    let mut links = JoinSet::new();
    loop {
        let Ok((socket, _)) = listener.accept().await else {
            // Out of file descriptors, say, which does not pass at once.
            sleep(PAUSE).await;
            continue;
        };
        while links.try_join_next().is_some() {}
        if phone.is_booting() || phone.faults().refuse {
            continue;
        }
        let phone = Arc::clone(&phone);
        let cut = phone.link();
        links.spawn(async move {
            tokio::select! {
                () = cut.cancelled() => {}
                ended = serve(socket, phone, cut.clone()) => {
                    if let Err(error) = ended {
                        tracing::debug!(%error, "a connection of the simulated phone ended");
                    }
                }
            }
        });
    }
}

/// The sending half; packets never mix.
#[derive(Clone, Debug)]
pub(crate) struct Sender(Arc<Mutex<OwnedWriteHalf>>);

impl Sender {
    pub(crate) async fn send(
        &self,
        command: Command,
        (arg0, arg1): (u32, u32),
        payload: &[u8],
    ) -> io::Result<()> {
        let header = Header::of(command, arg0, arg1, payload).map_err(io::Error::other)?;
        let header = header.encode();
        let mut half = self.0.lock().await;
        // In one go, so that the peer is not woken up for the header alone.
        let both = [IoSlice::new(&header), IoSlice::new(payload)];
        let written = half.write_vectored(&both).await?;
        half.write_all(header.get(written..).unwrap_or_default())
            .await?;
        half.write_all(&payload[written.saturating_sub(HEADER)..])
            .await
    }
}

impl Sender {
    /// A packet that announces four gigabytes.
    pub(crate) async fn send_bad_header(&self, (arg0, arg1): (u32, u32)) -> io::Result<()> {
        let header = Header::of(Command::Write, arg0, arg1, &[]).map_err(io::Error::other)?;
        let mut bytes = header.encode();
        bytes[12..16].fill(0xff);
        self.0.lock().await.write_all(&bytes).await
    }
}

/// What the reader of the connection tells a stream.
pub(crate) struct Feed {
    data: mpsc::Sender<Vec<u8>>,
    acknowledged: mpsc::Sender<Vec<u8>>,
}

/// The open streams by the phone's number. A stream that is removed sees its end.
pub(crate) type Streams = Arc<StdMutex<HashMap<u32, Feed>>>;

struct Link<D> {
    phone: Arc<Phone<D>>,
    sender: Sender,
    streams: Streams,
    services: JoinSet<()>,
    next: u32,
    cut: CancellationToken,
    terms: Terms,
    greeted: bool,
}

async fn serve<D: Device + 'static>(
    socket: TcpStream,
    phone: Arc<Phone<D>>,
    cut: CancellationToken,
) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let (read, write) = socket.into_split();
    let mut read = BufReader::with_capacity(64 << 10, read);
    let mut link = Link {
        phone,
        sender: Sender(Arc::new(Mutex::new(write))),
        streams: Streams::default(),
        services: JoinSet::new(),
        next: 1,
        cut,
        terms: Terms::default(),
        greeted: false,
    };
    loop {
        let (header, payload) = packet(&mut read).await?;
        link.take(header, payload).await?;
    }
}

async fn packet(read: &mut BufReader<OwnedReadHalf>) -> io::Result<(Header, Vec<u8>)> {
    let mut bytes = [0; HEADER];
    read.read_exact(&mut bytes).await?;
    let header = Header::decode(&bytes).map_err(io::Error::other)?;
    let mut payload = vec![0; header.length];
    read.read_exact(&mut payload).await?;
    if header.fits(&payload) {
        Ok((header, payload))
    } else {
        Err(io::Error::other("wrong checksum"))
    }
}

impl<D: Device + 'static> Link<D> {
    async fn take(&mut self, header: Header, payload: Vec<u8>) -> io::Result<()> {
        match header.command {
            Command::Connect => {
                self.agree(&header, &payload);
                self.greeted_by_server().await
            }
            Command::Auth => self.key(header.arg0).await,
            _ if !self.greeted => Err(io::Error::other("no greeting yet")),
            Command::Open => self.open((header.arg0, header.arg1), &payload).await,
            Command::Okay => {
                // Without a stream it answers one that was closed meanwhile.
                let told =
                    self.with_stream(header.arg1, |feed| feed.acknowledged.try_send(payload));
                match told {
                    Some(Err(mpsc::error::TrySendError::Full(_))) => {
                        Err(io::Error::other("acknowledgements of what was never sent"))
                    }
                    _ => Ok(()),
                }
            }
            Command::Write => self.data(header, payload).await,
            Command::Close => {
                self.streams().remove(&header.arg1);
                Ok(())
            }
            Command::Tls => Err(io::Error::other("no TLS here")),
        }
    }

    fn streams(&self) -> std::sync::MutexGuard<'_, HashMap<u32, Feed>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with_stream<T>(&self, id: u32, with: impl FnOnce(&Feed) -> T) -> Option<T> {
        self.streams().get(&id).map(with)
    }

    /// Learns from the server's greeting what it takes.
    fn agree(&mut self, header: &Header, greeting: &[u8]) {
        let payload = (header.arg1 as usize).clamp(MIN_PAYLOAD, MAX_PAYLOAD);
        let offered = self.phone.options.delayed_ack;
        let delayed = offered && window::has_feature(greeting, window::FEATURE);
        self.terms = Terms { payload, delayed };
    }

    async fn greeted_by_server(&mut self) -> io::Result<()> {
        if self.phone.faults().silent {
            return Ok(());
        }
        match self.phone.options.auth {
            Auth::Open => self.greet().await,
            Auth::Accept | Auth::Deny => self.ask_for_key().await,
        }
    }

    async fn ask_for_key(&self) -> io::Result<()> {
        // The token is never checked: signatures are always refused, as by a phone that sees a
        // computer for the first time.
        self.sender.send(Command::Auth, (TOKEN, 0), &[7; 20]).await
    }

    async fn key(&mut self, kind: u32) -> io::Result<()> {
        match (kind, self.phone.options.auth) {
            (PUBLIC_KEY, Auth::Accept) => self.greet().await,
            // The person at the phone has not answered yet, and never does.
            (PUBLIC_KEY, _) => Ok(()),
            _ => self.ask_for_key().await,
        }
    }

    async fn greet(&mut self) -> io::Result<()> {
        let model = &self.phone.options.model;
        let mut banner = format!(
            "device::ro.product.name={model};ro.product.model={model};ro.product.device={model};features=shell_v2,cmd"
        );
        if self.phone.options.delayed_ack {
            banner = format!("{banner},{}", window::FEATURE);
        }
        let numbers = (VERSION, MAX_PAYLOAD as u32);
        let sent = self
            .sender
            .send(Command::Connect, numbers, banner.as_bytes());
        sent.await?;
        self.greeted = true;
        let hostile = self.phone.faults().hostile;
        if let Some(Hostile::OpenPort(port)) = hostile {
            let service = format!("tcp:127.0.0.1:{port}\0");
            let open = self
                .sender
                .send(Command::Open, (9_999, 0), service.as_bytes());
            open.await?;
        }
        Ok(())
    }

    async fn data(&mut self, header: Header, payload: Vec<u8>) -> io::Result<()> {
        let delivered = self.with_stream(header.arg1, |feed| feed.data.try_send(payload));
        match delivered {
            Some(Err(mpsc::error::TrySendError::Full(_))) => {
                Err(io::Error::other("data before the last was acknowledged"))
            }
            Some(_) => Ok(()),
            None => {
                let numbers = (0, header.arg0);
                self.sender.send(Command::Close, numbers, &[]).await
            }
        }
    }

    /// Opens a stream for the peer's number `remote`. With delayed acknowledgement, and only with it,
    /// the peer says how much it takes.
    async fn open(&mut self, (remote, takes): (u32, u32), payload: &[u8]) -> io::Result<()> {
        while self.services.try_join_next().is_some() {}
        let name = String::from_utf8_lossy(payload);
        let name = name.trim_end_matches('\0').to_owned();
        let refused = self.streams().len() >= MAX_STREAMS || self.close_at_once();
        let differs = self.terms.delayed != (takes > 0);
        if refused || differs || remote == 0 {
            return self.sender.send(Command::Close, (0, remote), &[]).await;
        }
        let (local, pipe) = self.pipe(remote);
        let window = if self.terms.delayed {
            Window::delayed(takes)
        } else {
            Window::single()
        };
        let pipe = pipe.with_terms(self.terms, window);
        let Some(service) = services::find(&name) else {
            self.streams().remove(&local);
            return self.sender.send(Command::Close, (0, remote), &[]).await;
        };
        let grant = window::acknowledgement(GRANT);
        let grant = if self.terms.delayed { &grant[..] } else { &[] };
        self.sender
            .send(Command::Okay, (local, remote), grant)
            .await?;
        let phone = Arc::clone(&self.phone);
        self.services.spawn(services::run(service, phone, pipe));
        Ok(())
    }

    fn pipe(&mut self, remote: u32) -> (u32, Pipe) {
        let local = self.next;
        self.next = self.next.wrapping_add(1).max(1);
        let packets = if self.terms.delayed { PACKETS } else { 1 };
        let (data, incoming) = mpsc::channel(packets);
        let (acknowledged, acks) = mpsc::channel(ACKS);
        let feed = Feed { data, acknowledged };
        self.streams().insert(local, feed);
        let budget = self.phone.faults().cut_after;
        let streams = Arc::clone(&self.streams);
        let ends = Ends { incoming, acks };
        let pipe = Pipe::new((local, remote), ends, (self.sender.clone(), streams))
            .with_cut(budget, self.cut.clone());
        (local, pipe)
    }

    fn close_at_once(&self) -> bool {
        let mut faults = self.phone.faults();
        let closes = faults.close_services > 0;
        faults.close_services = faults.close_services.saturating_sub(1);
        closes
    }
}
