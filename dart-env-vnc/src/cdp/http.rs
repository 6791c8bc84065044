//! One bounded HTTP GET, for the list of DevTools targets.

use std::net::SocketAddr;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::CdpFault;

/// The list of a browser with one page is about 1 KiB.
const MAX_ANSWER: u64 = 1 << 20;

/// Fetches `path` and returns the body of a 200 answer.
pub(super) async fn get(address: SocketAddr, path: &str) -> Result<Vec<u8>, CdpFault> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    let mut stream = stream.take(MAX_ANSWER);
    // Chromium keeps the connection open whatever the request says, so the length decides.
    loop {
        if let Some(body) = complete_body(&answer)? {
            return Ok(body.to_vec());
        }
        if stream.read_buf(&mut answer).await? == 0 {
            return Err(CdpFault::Answer("the list of targets is cut short"));
        }
    }
}

/// The body, once it is complete.
fn complete_body(answer: &[u8]) -> Result<Option<&[u8]>, CdpFault> {
    let Some(end) = answer.windows(4).position(|four| four == b"\r\n\r\n") else {
        return Ok(None);
    };
    let head = std::str::from_utf8(&answer[..end])
        .map_err(|_| CdpFault::Answer("the head of an answer is not text"))?;
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1));
    if status != Some("200") {
        return Err(CdpFault::Answer("the list of targets was refused"));
    }
    let length = lines
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, value)| value.trim().parse::<usize>().ok())
        .ok_or(CdpFault::Answer("an answer has no length"))?;
    Ok(answer[end + 4..].get(..length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_given_when_it_is_complete() {
        let whole = b"HTTP/1.1 200 OK\r\nContent-Length:2\r\n\r\n[]rest";
        for cut in 0..whole.len() {
            let body = complete_body(&whole[..cut]).unwrap();
            assert_eq!(
                body,
                (cut >= whole.len() - 4).then_some(b"[]" as &[u8]),
                "{cut}"
            );
        }
    }

    #[test]
    fn bad_answers_are_errors() {
        for bad in [
            "HTTP/1.1 404 Not Found\r\nContent-Length:0\r\n\r\n",
            "HTTP/1.1 200 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
            "\r\n\r\n",
        ] {
            assert!(complete_body(bad.as_bytes()).is_err(), "{bad:?}");
        }
    }
}
