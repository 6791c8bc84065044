//! Our client, as a trainer uses it.

use anyhow::Result;
use dart_env_vnc::{VncConfig, VncDevice, rfb::EncodingChoice};

/// Connects to a server of this machine.
pub async fn connect(port: u16, encoding: EncodingChoice) -> Result<VncDevice> {
    let config = VncConfig {
        encoding,
        settle_quiet_ms: 0,
        settle_max_ms: 0,
        ..VncConfig::new(format!("127.0.0.1:{port}"))
    };
    Ok(VncDevice::connect(config).await?)
}
