//! Our RFB client beside vnc-rs.
//!
//! ```text
//! cargo run --release -- [same|speed]
//! ```
//!
//! | file | what |
//! |---|---|
//! | `same` | both clients follow a screen that changes; a pixel that differs is an error |
//! | `speed` | time for a full frame, live and from a recording; a missed bar is an error |
//! | `screen`, `content` | Xtigervnc, and what it shows |
//! | `replay` | a server that sends again what Xtigervnc sent |
//! | `ours`, the crate `peer` | the two clients |

mod content;
mod ours;
mod replay;
mod same;
mod screen;
mod speed;

use anyhow::{Result, bail};

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<()> {
    match std::env::args().nth(1).as_deref() {
        Some("same") => same::run().await,
        Some("speed") => speed::run().await,
        None => {
            same::run().await?;
            speed::run().await
        }
        Some(other) => bail!("`{other}` is neither `same` nor `speed`"),
    }
}
