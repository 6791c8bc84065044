//! Security types beyond None and VncAuth: a fake server with a real TLS stack, and Xtigervnc with
//! certificates made on the spot.

#![allow(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::{path::PathBuf, sync::Arc};

use dart_core::{Device, ErrorKind, Result};
use dart_env_vnc::{
    VncConfig, VncDevice,
    rfb::{Core, Event, Login, Offer, Password, RfbError, TlsConfig},
};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use sha2::{Digest, Sha256};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpListener,
    sync::mpsc,
};
use tokio_rustls::TlsAcceptor;

use crate::{
    rfb_stream::{Stream, run},
    rfb_xserver::{Server, skipped},
};

/// A certificate authority, and certificates that it signed.
struct Authority {
    folder: tempfile::TempDir,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, as files.
struct Identity {
    certificate: PathBuf,
    key: PathBuf,
}

impl Authority {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::default();
        // An issuer is looked up by its name: two authorities need two.
        let name = folder.path().display().to_string();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        std::fs::write(folder.path().join("ca.pem"), certificate.pem()).unwrap();
        let issuer = Issuer::new(params, key);
        Self { folder, issuer }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    fn sign(&self, name: &str, until: i32) -> Identity {
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(until, 1, 1);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let file = |suffix: &str| self.folder.path().join(format!("{name}-{until}.{suffix}"));
        let identity = Identity {
            certificate: file("crt"),
            key: file("key"),
        };
        std::fs::write(&identity.certificate, certificate.pem()).unwrap();
        std::fs::write(&identity.key, key.serialize_pem()).unwrap();
        identity
    }
}

impl Identity {
    fn fingerprint(&self) -> String {
        let certificate = CertificateDer::from_pem_file(&self.certificate).unwrap();
        let digest = Sha256::digest(&certificate);
        digest
            .iter()
            .map(|byte| format!("{byte:02X}"))
            .collect::<Vec<_>>()
            .join(":")
    }

    fn acceptor(&self) -> TlsAcceptor {
        let certificate = CertificateDer::from_pem_file(&self.certificate).unwrap();
        let key = PrivateKeyDer::from_pem_file(&self.key).unwrap();
        let provider = Arc::new(ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .unwrap();
        TlsAcceptor::from(Arc::new(config))
    }

    /// The arguments that give it to Xtigervnc.
    fn arguments(&self) -> [String; 4] {
        let text = |path: &PathBuf| path.display().to_string();
        let (certificate, key) = (text(&self.certificate), text(&self.key));
        [
            "-X509Cert".to_owned(),
            certificate,
            "-X509Key".to_owned(),
            key,
        ]
    }
}

fn of_tls(ca_file: Option<PathBuf>, pin: Option<String>) -> TlsConfig {
    TlsConfig {
        ca_file,
        certificate_sha256: pin,
        server_name: None,
    }
}

/// Serves VeNCrypt X509Plain, and tells what it heard inside TLS.
async fn x509_plain(identity: &Identity) -> (String, mpsc::UnboundedReceiver<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("localhost:{}", listener.local_addr().unwrap().port());
    let acceptor = identity.acceptor();
    let (sender, heard) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (acceptor, sender) = (acceptor.clone(), sender.clone());
            tokio::spawn(async move {
                vencrypt(&mut stream, 262).await?;
                let mut stream = acceptor.accept(stream).await?;
                let mut lengths = [0; 8];
                stream.read_exact(&mut lengths).await?;
                let mut words = vec![0; usize::from(lengths[3] + lengths[7])];
                stream.read_exact(&mut words).await?;
                let _ = sender.send(words);
                rest(&mut stream).await
            });
        }
    });
    (endpoint, heard)
}

/// The server's side up to where TLS begins.
async fn vencrypt<S>(stream: &mut S, subtype: u32) -> std::io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    for (said, answer) in [
        (&b"RFB 003.008\n"[..], 12),
        (&[1, 19], 1),
        (&[0, 2], 2),
        (&[&[0, 1][..], &subtype.to_be_bytes()].concat(), 4),
    ] {
        stream.write_all(said).await?;
        stream.read_exact(&mut vec![0; answer]).await?;
    }
    stream.write_all(&[1]).await
}

/// The server's side from the result on: a screen of 4x4 that answers every request.
async fn rest<S>(stream: &mut S) -> std::io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    stream.write_all(&[0; 4]).await?;
    let mut sink = [0; 4096];
    stream.read_exact(&mut sink[..1]).await?;
    stream
        .write_all(&Stream::new().init(4, 4, b"tls").0)
        .await?;
    while stream.read(&mut sink).await? > 0 {
        let update = Stream::new().update(1).fill([0, 0, 4, 4], [1, 2, 3]);
        stream.write_all(&update.0).await?;
        stream.flush().await?;
    }
    Ok(())
}

async fn connect(endpoint: &str, tls: Option<TlsConfig>, user: &str) -> Result<VncDevice> {
    let config = VncConfig {
        tls,
        user: Some(user.to_owned()),
        settle_quiet_ms: 0,
        ..VncConfig::new(endpoint)
    };
    VncDevice::connect_with(config, Some(Password::new("s3cret word"))).await
}

#[tokio::test]
async fn a_certificate_of_the_authority_is_accepted_and_the_password_goes_through_tls() {
    let authority = Authority::new();
    let identity = authority.sign("localhost", 2100);
    let (endpoint, mut heard) = x509_plain(&identity).await;
    for tls in [
        Some(of_tls(Some(authority.file()), None)),
        Some(of_tls(None, Some(identity.fingerprint()))),
    ] {
        let mut device = connect(&endpoint, tls, "ann").await.unwrap();
        let frame = device.screenshot().await.unwrap().frame;
        assert_eq!(frame.pixel(3, 3), Some([1, 2, 3]));
        assert_eq!(heard.recv().await.unwrap(), b"anns3cret word");
    }
}

#[tokio::test]
async fn other_certificates_are_refused_before_the_password_is_said() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let good = authority.sign("localhost", 2100);
    let pin = Some(good.fingerprint());
    let of_stranger = stranger.sign("localhost", 2100);
    for (identity, tls, word) in [
        (
            &of_stranger,
            Some(of_tls(Some(authority.file()), None)),
            "UnknownIssuer",
        ),
        (&of_stranger, Some(of_tls(None, pin)), "certificate_sha256"),
        (
            &authority.sign("localhost", 2021),
            Some(of_tls(Some(authority.file()), None)),
            "expired",
        ),
        (
            &authority.sign("elsewhere.example", 2100),
            Some(of_tls(Some(authority.file()), None)),
            "elsewhere.example",
        ),
    ] {
        let (endpoint, mut heard) = x509_plain(identity).await;
        let error = connect(&endpoint, tls, "ann").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unauthorized, "{error}");
        assert!(error.to_string().contains(word), "{word}: {error}");
        assert!(!error.to_string().contains("s3cret"), "{error}");
        assert!(heard.try_recv().is_err());
    }
}

#[tokio::test]
async fn another_name_can_be_expected() {
    let authority = Authority::new();
    let (endpoint, _heard) = x509_plain(&authority.sign("elsewhere.example", 2100)).await;
    let tls = TlsConfig {
        server_name: Some("elsewhere.example".to_owned()),
        ..of_tls(Some(authority.file()), None)
    };
    connect(&endpoint, Some(tls), "ann").await.unwrap();
}

#[tokio::test]
async fn without_a_way_to_check_there_is_no_tls() {
    let authority = Authority::new();
    let (endpoint, _heard) = x509_plain(&authority.sign("localhost", 2100)).await;
    let error = connect(&endpoint, None, "ann").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("certificate_sha256"), "{error}");
    let error = connect(&endpoint, Some(TlsConfig::default()), "ann").await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Config);
}

#[tokio::test]
async fn a_server_that_drops_tls_is_not_followed() {
    let server = crate::rfb_server::FakeServer::start(crate::rfb_server::Quirk::None).await;
    let tls = Some(of_tls(None, Some("00".repeat(32))));
    let error = connect(&server.config().endpoint, tls, "ann")
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(
        error.to_string().contains("drop environment.tls"),
        "{error}"
    );
}

fn login(verified_tls: bool, clear: bool) -> Login {
    Login {
        user: Some("ann".to_owned()),
        password: Some(Password::new("secret")),
        verified_tls,
        clear,
        ..Login::default()
    }
}

/// What the core says to a stream, its events and its error.
fn feed(login: Login, stream: &Stream) -> (Vec<u8>, Vec<Event>, Option<RfbError>) {
    let mut core = Core::with_login(login, Offer::default());
    core.input().extend_from_slice(&stream.0);
    let mut events = Vec::new();
    loop {
        match core.next_event() {
            Ok(Some(event)) => events.push(event),
            Ok(None) => return (core.take_output(), events, None),
            Err(error) => return (core.take_output(), events, Some(error)),
        }
    }
}

fn offering(subtype: u32) -> Stream {
    let greeting = Stream::new().bytes(b"RFB 003.008\n").bytes(&[1, 19]);
    greeting.bytes(&[0, 2]).bytes(&[0, 1]).u32(subtype)
}

#[test]
fn nothing_that_came_in_clear_is_taken_for_what_tls_carries() {
    let (output, events, error) = feed(login(true, false), &offering(261).bytes(&[1]));
    assert_eq!(output, b"RFB 003.008\n\x13\x00\x02\x00\x00\x01\x05");
    assert_eq!(
        (events, error),
        (vec![Event::StartTls { anonymous: false }], None)
    );
    let injected = offering(260).bytes(&[1]).u32(0);
    let (_, events, error) = feed(login(true, false), &injected);
    assert!(events.is_empty());
    assert!(error.unwrap().to_string().contains("before TLS begins"));
}

#[test]
fn a_password_is_sent_in_clear_only_where_that_is_allowed() {
    let stream = offering(256).u32(0).init(4, 4, b"");
    let (output, _, error) = feed(login(false, false), &stream);
    assert_eq!(error, Some(RfbError::PasswordInClear));
    assert!(!output.windows(6).any(|said| said == b"secret"));
    let (output, events, error) = feed(login(false, true), &stream);
    assert_eq!(error, None);
    assert!(output.windows(9).any(|said| said == b"annsecret"));
    assert!(matches!(events[..], [Event::Connected(_)]));
}

#[test]
fn vencrypt_that_goes_wrong_is_a_typed_error() {
    let head = Stream::new().bytes(b"RFB 003.008\n").bytes(&[1, 19]);
    for (stream, word) in [
        (head.clone().bytes(&[0, 1]), "older than version 0.2"),
        (head.clone().bytes(&[0, 2, 1]), "refuses VeNCrypt"),
        (head.bytes(&[0, 2, 0, 0]), "security types"),
        (offering(257), "without a certificate"),
        (offering(260), "nothing is configured"),
    ] {
        let (_, _, error) = feed(login(false, true), &stream);
        assert!(
            error.as_ref().unwrap().to_string().contains(word),
            "{error:?}"
        );
    }
    let (_, _, error) = feed(login(true, true), &offering(261).bytes(&[0]));
    assert!(error.unwrap().to_string().contains("cannot begin TLS"));
}

/// Type 30: the lengths on the wire; the arithmetic has its own test.
#[test]
fn apple_s_type_is_spoken() {
    let head = Stream::new().bytes(b"RFB 003.889\n").bytes(&[2, 30, 35]);
    let prime = [&[0xff; 63][..], &[0xfd]].concat();
    let stream = head.u16(2).u16(64).bytes(&prime).bytes(&[0x5a; 64]);
    let stream = stream.u32(0).init(4, 4, b"mac");
    let (output, events, error) = feed(login(false, false), &stream);
    assert_eq!(error, None);
    assert!(matches!(events[..], [Event::Connected(_)]));
    assert_eq!(output[12], 30);
    assert!(!output.windows(6).any(|said| said == b"secret"));
    // Without a name, another type is looked for.
    assert!(matches!(run(&stream).error, Some(RfbError::UserMissing)));
}

macro_rules! or_skip {
    ($skipped:expr) => {
        if let Some(why) = $skipped {
            println!("skipped: {why}");
            return;
        }
    };
}

fn real(types: &str, identity: &Identity) -> Server {
    let arguments = identity.arguments();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    Server::secured(types, "hunter2", &arguments)
}

async fn enter(server: &Server, tls: Option<TlsConfig>, password: &str) -> Result<VncDevice> {
    let config = VncConfig {
        tls,
        ..server.config()
    };
    VncDevice::connect_with(config, Some(Password::new(password))).await
}

#[tokio::test]
async fn a_real_server_with_a_certificate() {
    or_skip!(skipped());
    let authority = Authority::new();
    let identity = authority.sign("127.0.0.1", 2100);
    let server = real("X509Vnc", &identity);
    let by_authority = || Some(of_tls(Some(authority.file()), None));
    let by_pin = || Some(of_tls(None, Some(identity.fingerprint())));
    for tls in [by_authority(), by_pin()] {
        let mut device = enter(&server, tls, "hunter2").await.unwrap();
        device.screenshot().await.unwrap();
    }
    let error = enter(&server, by_pin(), "hunter3").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthorized, "{error}");
    let stranger = Authority::new();
    let by_stranger = Some(of_tls(Some(stranger.file()), None));
    let error = enter(&server, by_stranger, "hunter2").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthorized, "{error}");
    assert!(error.to_string().contains("certificate"), "{error}");
    let error = enter(&server, None, "hunter2").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");

    let open = real("X509None", &identity);
    let mut device = enter(&open, by_pin(), "").await.unwrap();
    device.screenshot().await.unwrap();
}

#[tokio::test]
async fn a_real_server_refuses_a_user_that_it_does_not_know() {
    or_skip!(skipped());
    let authority = Authority::new();
    let identity = authority.sign("127.0.0.1", 2100);
    for (types, tls) in [
        (
            "X509Plain",
            Some(of_tls(None, Some(identity.fingerprint()))),
        ),
        ("Plain", None),
    ] {
        let server = real(types, &identity);
        let endpoint = server.config().endpoint;
        let error = connect(&endpoint, tls, "nobody-such").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unauthorized, "{types}: {error}");
        assert!(!error.to_string().contains("s3cret"), "{error}");
    }
}

#[tokio::test]
async fn anonymous_tls_of_a_real_server_is_refused_with_the_remedy() {
    or_skip!(skipped());
    let authority = Authority::new();
    let identity = authority.sign("127.0.0.1", 2100);
    let server = real("TLSVnc", &identity);
    for tls in [None, Some(of_tls(None, Some(identity.fingerprint())))] {
        let error = enter(&server, tls, "hunter2").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        assert!(error.to_string().contains("X509Vnc"), "{error}");
    }
    // What Xtigervnc offers unless told otherwise: without TLS configured, VncAuth is taken.
    let usual = real("TLSVnc,VncAuth", &identity);
    enter(&usual, None, "hunter2").await.unwrap();
}
