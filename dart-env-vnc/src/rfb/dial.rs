//! From an address to a server that has greeted us: connecting, the handshake, TLS.

use std::time::Duration;

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use super::{
    core::Core,
    encoding::choice::{EncodingChoice, Offer},
    error::RfbError,
    handshake::ServerInit,
    security::{Entropy, Login, Password},
    session::Event,
    tls::Trust,
};

/// Who we are and whom we trust.
#[derive(Clone, Debug, Default)]
pub(crate) struct Access {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<Password>,
    /// How the server's certificate is checked; then nothing but TLS is spoken.
    pub(crate) trust: Option<Trust>,
    /// A password may cross a network in clear.
    pub(crate) clear_password: bool,
}

/// How long the parts of a connection may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadlines {
    pub(crate) connect: Duration,
    pub(crate) handshake: Duration,
    pub(crate) update: Duration,
}

/// Which server, and how.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) access: Access,
    pub(crate) encoding: EncodingChoice,
    /// Whether updates come without being asked for; none means over a network.
    pub(crate) continuous: Option<bool>,
    pub(crate) deadlines: Deadlines,
}

/// The two directions of a connection.
pub(super) type Source = Box<dyn AsyncRead + Send + Unpin>;
pub(super) type Sink = Box<dyn AsyncWrite + Send + Unpin>;

/// A server that has greeted us.
pub(super) struct Dialled {
    pub(super) source: Source,
    pub(super) sink: Sink,
    pub(super) core: Core,
    pub(super) init: ServerInit,
}

pub(super) const fn timed_out(what: &'static str, limit: Duration) -> RfbError {
    RfbError::Timeout {
        what,
        millis: limit.as_millis() as u64,
    }
}

/// Connects and shakes hands.
pub(super) async fn dial(target: &Target) -> Result<Dialled, RfbError> {
    let deadlines = target.deadlines;
    let connecting = TcpStream::connect((&*target.host, target.port));
    let stream = match timeout(deadlines.connect, connecting).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return Err(RfbError::connect(&error)),
        Err(_) => return Err(timed_out("connection", deadlines.connect)),
    };
    stream.set_nodelay(true).map_err(|e| RfbError::io(&e))?;
    let peer = stream.peer_addr();
    let local = peer.is_ok_and(|peer| peer.ip().to_canonical().is_loopback());
    let access = &target.access;
    if access.password.is_some() && !local && access.trust.is_none() {
        let host = &target.host;
        tracing::warn!(
            host,
            "the password is weakly protected, and nothing is encrypted"
        );
    }
    let mut core = Core::with_login(login(access, local)?, Offer::new(target.encoding, local));
    core.want_continuous_updates(target.continuous.unwrap_or(!local));
    let greeting = greet(stream, core, access.trust.as_ref());
    match timeout(deadlines.handshake, greeting).await {
        Ok(greeted) => greeted,
        Err(_) => Err(timed_out("complete handshake", deadlines.handshake)),
    }
}

fn login(access: &Access, local: bool) -> Result<Login, RfbError> {
    let entropy = crate::desktop::secrets::entropy().map_err(|error| RfbError::io(&error))?;
    Ok(Login {
        user: access.user.clone(),
        password: access.password.clone(),
        verified_tls: access.trust.is_some(),
        clear: local || access.clear_password,
        entropy: Entropy(entropy),
    })
}

/// The handshake over a fresh connection, and over TLS from where it asks for it.
async fn greet(
    mut stream: TcpStream,
    mut core: Core,
    trust: Option<&Trust>,
) -> Result<Dialled, RfbError> {
    let anonymous = match converse(&mut stream, &mut core).await? {
        Event::StartTls { anonymous } => anonymous,
        event => {
            let (source, sink) = stream.into_split();
            return dialled(Box::new(source), Box::new(sink), core, event);
        }
    };
    // The core asks for TLS only if there is something to check the certificate with.
    let trust = trust.ok_or(RfbError::CertificateUnchecked)?;
    let mut stream = trust.connect(stream, anonymous).await?;
    core.tls_started();
    let event = converse(&mut stream, &mut core).await?;
    let (source, sink) = tokio::io::split(stream);
    dialled(Box::new(source), Box::new(sink), core, event)
}

fn dialled(source: Source, sink: Sink, core: Core, event: Event) -> Result<Dialled, RfbError> {
    let Event::Connected(init) = event else {
        let what = "TLS within TLS";
        return Err(RfbError::Malformed { what });
    };
    Ok(Dialled {
        source,
        sink,
        core,
        init,
    })
}

/// Lets the core talk until its first event.
async fn converse<S>(stream: &mut S, core: &mut Core) -> Result<Event, RfbError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let io = |error: std::io::Error| RfbError::io(&error);
    loop {
        let event = core.next_event()?;
        let output = core.take_output();
        if !output.is_empty() {
            stream.write_all(&output).await.map_err(io)?;
            stream.flush().await.map_err(io)?;
        }
        if let Some(event) = event {
            return Ok(event);
        }
        if stream.read_buf(core.input()).await.map_err(io)? == 0 {
            return Err(RfbError::Closed);
        }
    }
}
