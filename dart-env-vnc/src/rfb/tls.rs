//! How a server's certificate is checked: against certificate authorities from a file, or against
//! the fingerprint of the one certificate that is expected. There is no way to accept any.

use std::{path::PathBuf, sync::Arc};

use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::error::RfbError;

/// What a server's certificate has to be. One of `ca_file` and `certificate_sha256` is needed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TlsConfig {
    /// A PEM file with the certificate authorities that may have signed it. The certificate has to
    /// name the server and to be within its dates. Default none.
    pub ca_file: Option<PathBuf>,
    /// The SHA-256 of the certificate (its DER form) as 64 hexadecimal digits, colons allowed:
    /// `openssl x509 -in FILE -noout -fingerprint -sha256` prints it. Exactly this certificate is
    /// accepted, whatever its names and dates. The way for self-signed ones. Default none.
    pub certificate_sha256: Option<String>,
    /// The name that the certificate has to carry. Default: the host of the endpoint.
    pub server_name: Option<String>,
}

type Fingerprint = [u8; 32];

fn fingerprint(text: &str) -> Option<Fingerprint> {
    let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b':').collect();
    let mut bytes = [0; 32];
    if digits.len() != 64 {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let pair = std::str::from_utf8(pair).ok()?;
        let digit = |c: char| c.to_digit(16);
        let mut pair = pair.chars().map(digit);
        *byte = (pair.next()?? * 16 + pair.next()??) as u8;
    }
    Some(bytes)
}

/// Accepts one certificate, whose key the server has to have.
#[derive(Debug)]
struct Pinned {
    expected: Fingerprint,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let shown: Fingerprint = Sha256::digest(end_entity).into();
        if shown == self.expected {
            return Ok(ServerCertVerified::assertion());
        }
        Err(CertificateError::ApplicationVerificationFailure.into())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = &self.provider.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}

/// A loaded [`TlsConfig`].
#[derive(Clone, Debug)]
pub(crate) struct Trust {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl Trust {
    /// Loads the configuration for a server at `host`. The error says what is wrong with it.
    pub(crate) fn load(config: &TlsConfig, host: &str) -> Result<Self, String> {
        let name = config.server_name.as_deref().unwrap_or(host);
        let name = ServerName::try_from(name.to_owned()).map_err(|_| {
            format!("{name:?} is no name of a server: set environment.tls.server_name")
        })?;
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone());
        let builder = builder
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        let config = match (&config.ca_file, &config.certificate_sha256) {
            (Some(path), None) => {
                let roots = roots(path)?;
                builder.with_root_certificates(roots).with_no_client_auth()
            }
            (None, Some(text)) => {
                let expected = fingerprint(text).ok_or_else(|| {
                    format!(
                        "environment.tls.certificate_sha256 {text:?} is not 64 hexadecimal digits"
                    )
                })?;
                let verifier = Arc::new(Pinned { expected, provider });
                let builder = builder
                    .dangerous()
                    .with_custom_certificate_verifier(verifier);
                builder.with_no_client_auth()
            }
            _ => {
                return Err(
                    "environment.tls needs one of ca_file and certificate_sha256".to_owned(),
                );
            }
        };
        Ok(Self {
            config: Arc::new(config),
            name,
        })
    }

    /// Begins TLS. `anonymous`: the server announced to show no certificate.
    pub(crate) async fn connect(
        &self,
        stream: TcpStream,
        anonymous: bool,
    ) -> Result<TlsStream<TcpStream>, RfbError> {
        let connector = TlsConnector::from(self.config.clone());
        let connected = connector.connect(self.name.clone(), stream).await;
        connected.map_err(|error| explain(&error, anonymous))
    }
}

fn roots(path: &PathBuf) -> Result<RootCertStore, String> {
    let unreadable = |why: String| format!("environment.tls.ca_file {}: {why}", path.display());
    let certificates = CertificateDer::pem_file_iter(path);
    let certificates = certificates.map_err(|error| unreadable(error.to_string()))?;
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        let certificate = certificate.map_err(|error| unreadable(error.to_string()))?;
        let added = roots.add(certificate);
        added.map_err(|error| unreadable(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(unreadable("no certificate in it".to_owned()));
    }
    Ok(roots)
}

fn explain(error: &std::io::Error, anonymous: bool) -> RfbError {
    let inner = error.get_ref();
    let inner = inner.and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match inner {
        Some(rustls::Error::InvalidCertificate(
            CertificateError::ApplicationVerificationFailure,
        )) => RfbError::Certificate {
            message: "it is not the one that environment.tls.certificate_sha256 names".to_owned(),
        },
        Some(rustls::Error::InvalidCertificate(CertificateError::Other(other)))
            if other.to_string().contains("CaUsedAsEndEntity") =>
        {
            RfbError::Certificate {
                message: "it is self-signed: use certificate_sha256 in place of ca_file".to_owned(),
            }
        }
        Some(rustls::Error::InvalidCertificate(error)) => RfbError::Certificate {
            message: error.to_string(),
        },
        _ if anonymous => RfbError::AnonymousTls,
        _ => RfbError::Tls {
            message: error.to_string(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_are_read_as_openssl_prints_them() {
        let plain = "0aff".repeat(16);
        let colons = vec!["0A:FF"; 16].join(":");
        assert_eq!(fingerprint(&plain), fingerprint(&colons));
        assert_eq!(fingerprint(&plain).unwrap()[..2], [10, 255]);
        for bad in [
            "",
            "0a",
            &"0g".repeat(32),
            &"0a".repeat(33),
            &"é".repeat(32),
        ] {
            assert_eq!(fingerprint(bad), None, "{bad}");
        }
    }

    #[test]
    fn settings_that_check_nothing_are_refused() {
        let refused = |config: TlsConfig| Trust::load(&config, "localhost").unwrap_err();
        assert!(refused(TlsConfig::default()).contains("needs one of"));
        let missing = TlsConfig {
            ca_file: Some("/nonexistent/ca.pem".into()),
            ..TlsConfig::default()
        };
        assert!(refused(missing).contains("/nonexistent/ca.pem"));
        let file = tempfile::NamedTempFile::new().unwrap();
        let empty = TlsConfig {
            ca_file: Some(file.path().to_owned()),
            ..TlsConfig::default()
        };
        assert!(refused(empty).contains("no certificate in it"));
        let short = TlsConfig {
            certificate_sha256: Some("abc".to_owned()),
            ..TlsConfig::default()
        };
        assert!(refused(short).contains("64 hexadecimal digits"));
    }
}
