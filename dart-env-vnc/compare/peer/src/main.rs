//! vnc-rs as its users get it, in a process of its own: `dart-env-vnc-peer PORT ENCODING`. It
//! connects, says `ready`, and fetches a whole frame for each line that it reads; what it says then
//! is how long that took, in microseconds.

use std::time::Instant;

use anyhow::{Context, Result};
use dart_env_vnc_peer::{Peer, encodings};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, stdin, stdout};

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut argument = || arguments.next().context("PORT ENCODING");
    let port = argument()?.parse()?;
    let mut peer = Peer::connect(port, &encodings(&argument()?)?).await?;
    let (mut lines, mut out) = (BufReader::new(stdin()).lines(), stdout());
    out.write_all(b"ready\n").await?;
    out.flush().await?;
    while lines.next_line().await?.is_some() {
        let begun = Instant::now();
        peer.refresh().await?;
        let taken = begun.elapsed().as_micros();
        out.write_all(format!("{taken}\n").as_bytes()).await?;
        out.flush().await?;
    }
    Ok(())
}
