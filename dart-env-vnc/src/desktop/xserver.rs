//! The X server of a desktop, which is the VNC server too, and its window manager.

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::Path,
};

use super::{
    DesktopConfig,
    fault::Fault,
    place::{Base, private_directory},
    secrets::{self, Secret},
    supervisor::Supervised,
    wait_for,
};

/// A running X server.
pub(super) struct Server {
    pub(super) process: Supervised,
    pub(super) display: String,
    pub(super) address: SocketAddr,
    pub(super) password: Secret,
}

/// Starts the X server, which is the VNC server too.
pub(super) async fn start_server(
    config: &DesktopConfig,
    program: &str,
    base: &Base,
) -> Result<Server, Fault> {
    let directory = base.path.join("server");
    private_directory(&directory)?;
    let password = Secret::fresh::<4>().map_err(Fault::Directory)?;
    secrets::write_cookie(&directory.join("authority")).map_err(Fault::Directory)?;
    secrets::write_password(&directory.join("password"), password.text())
        .map_err(Fault::Directory)?;
    // Free now; should another program take it first, the server ends and the caller tries again.
    let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map_err(Fault::Port)?;
    let arguments = server_arguments(config, address.port(), &directory);
    let program = base.program("server", program, arguments, "")?;
    let process = Supervised::start(program).await?;
    let number = wait_for(config.start_timeout(), &process, || {
        let text = std::fs::read_to_string(directory.join("stdout")).ok()?;
        text.strip_suffix('\n')?.trim().parse::<u32>().ok()
    });
    let number = number
        .await
        .ok_or_else(|| process.failed("did not open a display"))?;
    Ok(Server {
        process,
        display: format!(":{number}"),
        address,
        password,
    })
}

fn server_arguments(config: &DesktopConfig, port: u16, directory: &Path) -> Vec<String> {
    let file = |name: &str| directory.join(name).display().to_string();
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    [
        // A free display, its number written to standard output.
        words("-displayfd 1 -depth 24 -geometry"),
        vec![format!("{}x{}", config.width, config.height)],
        // Only this machine, only with the password; X clients come through the abstract socket, which
        // leaves no file behind even if the server is killed. Ports that are probed count as failed
        // handshakes, so the blacklist would lock the owner out.
        words("-nolisten tcp -nolisten unix -localhost -SecurityTypes VncAuth -UseBlacklist=0 -rfbauth"),
        vec![file("password"), "-auth".to_owned(), file("authority")],
        words("-AlwaysShared -AcceptSetDesktopSize=0 -FrameRate=240 -desktop dart -rfbport"),
        vec![port.to_string()],
    ]
    .concat()
}

/// Starts a window manager, without which a browser is never full screen.
pub(super) async fn start_window_manager(
    base: &Base,
    display: &str,
    settings: &str,
) -> Result<Supervised, Fault> {
    let file = base.path.join("manager/rc.xml");
    let arguments = ["--sm-disable", "--config-file"].map(str::to_owned);
    let arguments = arguments
        .into_iter()
        .chain([file.display().to_string()])
        .collect();
    let program = base.program("manager", "openbox", arguments, display)?;
    std::fs::write(&file, settings).map_err(Fault::Directory)?;
    Supervised::start(program).await
}
