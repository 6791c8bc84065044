//! `doctor`: says what this machine has and lacks, and what that means.

use crate::{process, setup};

pub(crate) fn run() {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    println!("cores: {cores}");
    println!(
        "rustc: {}",
        process::output("rustc", &["--version"]).unwrap_or("missing".into())
    );
    for (program, use_) in [
        ("Xtigervnc", "own VNC desktops"),
        ("openbox", "own VNC desktops"),
        ("chromium", "MiniWoB++"),
        ("xev", "tests of input on real servers"),
        ("x11vnc", "tests on a second VNC server"),
        ("python3", "fetching the MiniWoB++ pages"),
        ("adb", "Android devices and their tests"),
        ("nvidia-smi", "NVIDIA GPUs (not used yet)"),
        ("cargo-deny", "licence check of `cargo xtask ci`"),
    ] {
        let place = process::find(program).map(|path| path.display().to_string());
        println!(
            "{program}: {} — {use_}",
            place.as_deref().unwrap_or("missing")
        );
    }
    let pages = setup::miniwob_pages();
    let state = if pages.is_dir() {
        "present"
    } else {
        "missing: run `cargo xtask setup`"
    };
    println!("MiniWoB++ pages: {state}");
    println!("`cargo xtask train` needs nothing of the above but rustc, and a C compiler.");
}
