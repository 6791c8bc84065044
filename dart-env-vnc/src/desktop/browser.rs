//! How Chromium is started, and how it says where its DevTools listen.

use std::{net::SocketAddr, path::Path};

/// Features that cost processor time or connect to somewhere.
const WITHOUT: &str = "--disable-features=Translate,MediaRouter,OptimizationHints,\
    AutofillServerCommunication,CalculateNativeWinOcclusion,GlobalMediaControls,\
    InterestFeedContentSuggestions,DialMediaRouteProvider,CertificateTransparencyComponentUpdater";

const FLAGS: &[&str] = &[
    // Without a sandbox Chromium shows a warning bar, which `--test-type` hides. Root, the usual
    // user in a container, cannot have the sandbox.
    "--no-sandbox",
    "--test-type",
    // Puts the page at the top left of the screen.
    "--kiosk",
    "--no-first-run",
    "--no-default-browser-check",
    "--password-store=basic",
    // The operating system chooses the port; `DevToolsActivePort` names it.
    "--remote-debugging-port=0",
    // One pixel of the page is one pixel of the screen, in the same colours everywhere.
    "--force-device-scale-factor=1",
    "--force-color-profile=srgb",
    "--disable-lcd-text",
    // A tile drawn anew in part can differ by one grey level from one drawn at once.
    "--disable-partial-raster",
    // Software drawing inside the browser process: no second process, no copies.
    "--disable-gpu",
    "--disable-gpu-rasterization",
    "--disable-software-rasterizer",
    "--in-process-gpu",
    "--no-zygote",
    "--renderer-process-limit=1",
    // A frame is drawn as soon as there is something to draw, not at the next sixtieth of a second.
    "--disable-gpu-vsync",
    "--disable-frame-rate-limit",
    "--disable-smooth-scrolling",
    // Never throttled, whatever Chromium thinks of a window that nobody looks at.
    "--disable-backgrounding-occluded-windows",
    "--disable-renderer-backgrounding",
    "--disable-background-timer-throttling",
    "--disable-hang-monitor",
    // Nothing is sent anywhere, nothing is updated, nothing pops up.
    "--disable-background-networking",
    "--disable-breakpad",
    "--disable-client-side-phishing-detection",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-domain-reliability",
    "--disable-extensions",
    "--disable-notifications",
    "--disable-popup-blocking",
    "--disable-prompt-on-repost",
    "--disable-sync",
    "--metrics-recording-only",
    "--mute-audio",
    "--no-pings",
    "--proxy-server=direct://",
    WITHOUT,
];

/// The command line for a profile in `directory` that opens `url`.
pub(super) fn arguments(directory: &Path, url: &str) -> Vec<String> {
    let profile = format!("--user-data-dir={}", directory.join("profile").display());
    FLAGS
        .iter()
        .map(|flag| (*flag).to_owned())
        .chain([profile, url.to_owned()])
        .collect()
}

/// Where the DevTools listen, once Chromium has written it down.
pub(super) fn devtools(directory: &Path) -> Option<SocketAddr> {
    let text = std::fs::read_to_string(directory.join("profile/DevToolsActivePort")).ok()?;
    // The second line, the browser's own target, is written last.
    let (port, _target) = text.split_once('\n')?;
    let port: u16 = port.trim().parse().ok()?;
    Some(([127, 0, 0, 1], port).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_is_read_only_when_it_is_complete() {
        let home = tempfile::tempdir().unwrap();
        let profile = home.path().join("profile");
        std::fs::create_dir(&profile).unwrap();
        assert_eq!(devtools(home.path()), None);
        let file = profile.join("DevToolsActivePort");
        std::fs::write(&file, "4321").unwrap();
        assert_eq!(devtools(home.path()), None);
        std::fs::write(&file, "43210\n/devtools/browser/x").unwrap();
        assert_eq!(devtools(home.path()), Some(([127, 0, 0, 1], 43210).into()));
    }
}
