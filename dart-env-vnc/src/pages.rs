//! A small HTTP server on the loopback interface for the pages of MiniWoB++.
//!
//! The pages name no character set, so the server does (UTF-8). It answers `GET` for regular files
//! below one folder and nothing else; request size, connections and time are bounded.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use dart_core::{Error, ErrorKind, Result};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinHandle,
    time::timeout,
};

const MAX_HEAD: u64 = 8 << 10;
const MAX_FILE: u64 = 16 << 20;
const MAX_CONNECTIONS: usize = 32;
const DEADLINE: Duration = Duration::from_secs(10);

/// Files that the program brings along: path, which begins with `/`, and content.
pub type BuiltIn = &'static [(&'static str, &'static str)];

/// A running server; dropping it ends it.
#[derive(Debug)]
pub struct PageServer {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl PageServer {
    /// Serves the files below `folder` and the `built_in` ones (path and content) on a free port.
    ///
    /// # Errors
    /// [`Config`](ErrorKind::Config) if the folder does not exist.
    pub async fn start(folder: &Path, built_in: BuiltIn) -> Result<Self> {
        let root = folder
            .canonicalize()
            .map_err(|cause| error(ErrorKind::Config, "no such folder", folder, cause))?;
        let listen = async {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
            let address = listener.local_addr()?;
            Ok((listener, address))
        };
        let (listener, address) = listen
            .await
            .map_err(|cause| error(ErrorKind::Exhausted, "no free port", folder, cause))?;
        let task = tokio::spawn(accept(listener, root.into(), built_in));
        Ok(Self { address, task })
    }

    /// The address of `path`, which begins with `/`.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

impl Drop for PageServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn error(kind: ErrorKind, message: &'static str, folder: &Path, cause: io::Error) -> Error {
    Error::new(kind, "dart-env-vnc", "pages", message)
        .with("folder", folder.display())
        .caused_by(cause)
}

async fn accept(listener: TcpListener, root: Arc<Path>, built_in: BuiltIn) {
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    // Connections end with the server: dropping the set aborts them.
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else {
            return;
        };
        while connections.try_join_next().is_some() {}
        let Ok((stream, _)) = listener.accept().await else {
            // Out of descriptors, most likely: others may be given back.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let root = Arc::clone(&root);
        connections.spawn(async move {
            // A client that goes away or dawdles is its own affair.
            let _outcome = timeout(DEADLINE, serve(stream, &root, built_in)).await;
            drop(slot);
        });
    }
}

async fn serve(mut stream: TcpStream, root: &Path, built_in: BuiltIn) -> io::Result<()> {
    let (reader, mut writer) = stream.split();
    let mut head = Vec::new();
    let mut reader = reader.take(MAX_HEAD);
    while !head.windows(4).any(|four| four == b"\r\n\r\n") {
        if reader.read_buf(&mut head).await? == 0 {
            return writer.write_all(&plain("400 Bad Request")).await;
        }
    }
    let Some(path) = requested(&head) else {
        return writer.write_all(&plain("400 Bad Request")).await;
    };
    let (kind, body) = if let Some((name, text)) = built_in.iter().find(|file| file.0 == path) {
        (content_type(Path::new(name)), text.as_bytes().to_vec())
    } else if let Some(file) = locate(root, path) {
        (content_type(&file), tokio::fs::read(&file).await?)
    } else {
        return writer.write_all(&plain("404 Not Found")).await;
    };
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    writer.write_all(head.as_bytes()).await?;
    writer.write_all(&body).await?;
    writer.shutdown().await
}

fn plain(status: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").into_bytes()
}

/// The path of a GET request, without its query.
fn requested(head: &[u8]) -> Option<&str> {
    let line = head.split(|byte| *byte == b'\r').next()?;
    let rest = std::str::from_utf8(line).ok()?.strip_prefix("GET ")?;
    let (target, version) = rest.split_once(' ')?;
    let path = target.split('?').next()?;
    (version.starts_with("HTTP/1.") && path.starts_with('/')).then_some(path)
}

/// The regular file below `root` that `path` names.
///
/// Names are letters, digits, `.`, `_` and `-` and do not begin with a dot, so no path leads
/// upwards; links that lead out of the folder are refused too.
fn locate(root: &Path, path: &str) -> Option<PathBuf> {
    let mut file = root.to_path_buf();
    for name in path.strip_prefix('/')?.split('/') {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if name.is_empty() || name.starts_with('.') || !name.chars().all(plain) {
            return None;
        }
        file.push(name);
    }
    let file = file.canonicalize().ok()?;
    let meta = file.metadata().ok()?;
    (file.starts_with(root) && meta.is_file() && meta.len() <= MAX_FILE).then_some(file)
}

fn content_type(file: &Path) -> &'static str {
    match file.extension().and_then(|extension| extension.to_str()) {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("json") => "application/json; charset=utf-8",
        Some("txt") => "text/plain; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("gif") => "image/gif",
        Some("jpg" | "jpeg") => "image/jpeg",
        Some("woff") => "font/woff",
        Some("woff2") => "font/woff2",
        Some("ttf") => "font/ttf",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("html")).unwrap();
        std::fs::write(folder.path().join("html/a.html"), "pä").unwrap();
        std::fs::write(folder.path().join("secret"), "s").unwrap();
        std::os::unix::fs::symlink("../secret", folder.path().join("html/link")).unwrap();
        folder
    }

    async fn ask(server: &PageServer, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(request).await.unwrap();
        let mut answer = String::new();
        // A refused request may be answered before it was read to its end.
        let _cut = stream.read_to_string(&mut answer).await;
        answer
    }

    #[tokio::test]
    async fn serves_a_page_with_its_character_set() {
        let folder = folder();
        let server = PageServer::start(&folder.path().join("html"), &[("/dart/x.js", "1")])
            .await
            .unwrap();
        let answer = ask(&server, b"GET /a.html?x=/.. HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.contains("Content-Type: text/html; charset=utf-8\r\n"));
        assert!(answer.contains("Content-Length: 3\r\n") && answer.ends_with("\r\n\r\npä"));
        let answer = ask(&server, b"GET /dart/x.js HTTP/1.1\r\n\r\n").await;
        assert!(answer.contains("text/javascript; charset=utf-8") && answer.ends_with("\n1"));
    }

    #[tokio::test]
    async fn refuses_what_is_outside_the_folder() {
        let folder = folder();
        let server = PageServer::start(&folder.path().join("html"), &[("/dart/x.js", "1")])
            .await
            .unwrap();
        for path in [
            "/../secret",
            "/..%2fsecret",
            "/%2e%2e/secret",
            "//secret",
            "/link",
            "/",
            "/.hidden",
            "/a.html/",
            "/none.html",
            "/a\\..\\secret",
        ] {
            let answer = ask(&server, format!("GET {path} HTTP/1.1\r\n\r\n").as_bytes()).await;
            assert!(answer.starts_with("HTTP/1.1 404"), "{path}: {answer}");
        }
        for bad in [
            "POST /a.html HTTP/1.1",
            "GET /a.html",
            "GET a.html HTTP/1.1",
            "\u{0}",
        ] {
            let answer = ask(&server, format!("{bad}\r\n\r\n").as_bytes()).await;
            assert!(answer.starts_with("HTTP/1.1 400"), "{bad}: {answer}");
        }
    }

    #[tokio::test]
    async fn a_request_is_bounded_in_size() {
        let folder = folder();
        let server = PageServer::start(&folder.path().join("html"), &[("/dart/x.js", "1")])
            .await
            .unwrap();
        let endless = format!("GET /{} HTTP/1.1\r\n", "a".repeat(MAX_HEAD as usize));
        let answer = ask(&server, endless.as_bytes()).await;
        assert!(!answer.contains("200 OK"), "{answer}");
    }

    #[tokio::test]
    async fn a_missing_folder_is_named() {
        let error = PageServer::start(Path::new("/nonexistent"), &[])
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains("/nonexistent"));
    }
}
