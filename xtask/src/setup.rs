//! `setup`: installs what real desktops and their tests need, when it may.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::process;

/// A program, and the Debian or Ubuntu package that has it.
const PROGRAMS: &[(&str, &str)] = &[
    ("Xtigervnc", "tigervnc-standalone-server"),
    ("openbox", "openbox"),
    ("chromium", "chromium"),
    ("wmctrl", "wmctrl"),
    ("mousepad", "mousepad"),
    ("xev", "x11-utils"),
    ("x11vnc", "x11vnc"),
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("wayvnc", "wayvnc"),
    ("sway", "sway"),
    ("pip3", "python3-pip"),
    ("g++", "g++"),
    ("adb", "adb"),
];

/// Where the MiniWoB++ pages lie after `setup`; the default of the `miniwob` environment.
pub(crate) fn miniwob_pages() -> PathBuf {
    process::root().join("target/miniwob/html")
}

/// Installs programs and pages. Errors name what is missing and the command that gets it.
pub(crate) fn run() -> Result<()> {
    let missing = missing_packages();
    let installed = if missing.is_empty() {
        Ok(())
    } else {
        install(&missing)
    };
    // The pages may be had without the packages.
    installed.and(fetch_miniwob())
}

/// Like [`run`], but a failure is printed instead of ending the command.
pub(crate) fn run_or_explain() {
    if let Err(error) = run() {
        println!("not everything could be set up: {error:#}");
    }
}

fn missing_packages() -> Vec<&'static str> {
    let absent = PROGRAMS
        .iter()
        .filter(|(program, _)| process::find(program).is_none());
    absent.map(|(_, package)| *package).collect()
}

fn install(packages: &[&str]) -> Result<()> {
    let manual = format!("apt-get install {}", packages.join(" "));
    if process::find("apt-get").is_none() {
        bail!(
            "missing packages, and this system has no apt-get: {}",
            packages.join(" ")
        );
    }
    let is_root = process::output("id", &["-u"]).as_deref() == Some("0");
    if !is_root && process::output("sudo", &["-n", "true"]).is_none() {
        bail!("run `sudo {manual}`, then try again");
    }
    let apt = |arguments: &[&str]| {
        let mut command = process::command(if is_root { "env" } else { "sudo" });
        if !is_root {
            command.arg("env");
        }
        command
            .args(["DEBIAN_FRONTEND=noninteractive", "apt-get"])
            .args(arguments);
        process::run(&mut command)
    };
    apt(&["update", "-qq"]).and_then(|()| {
        apt(&[
            &["install", "-y", "-qq", "--no-install-recommends"],
            packages,
        ]
        .concat())
    })
}

/// Downloads the MiniWoB++ pages (MIT) as the Python package that carries them; nothing is
/// installed into Python.
pub(crate) fn fetch_miniwob() -> Result<()> {
    if miniwob_pages().join("core/core.js").is_file() {
        return Ok(());
    }
    let target = process::root().join("target/miniwob");
    std::fs::create_dir_all(&target).context("cannot make target/miniwob")?;
    let mut pip = process::command("python3");
    pip.args(["-m", "pip", "download", "--quiet", "--no-deps", "--dest"])
        .arg(&target);
    process::run(pip.arg("miniwob==1.1.0"))?;
    let wheel = std::fs::read_dir(&target)?
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|extension| extension == "whl"))
        .context("pip downloaded no wheel of miniwob")?;
    let mut unzip = process::command("python3");
    process::run(unzip.args(["-m", "zipfile", "-e"]).arg(wheel).arg(&target))?;
    std::fs::rename(target.join("miniwob/html"), miniwob_pages())
        .context("the wheel of miniwob holds no folder miniwob/html")
}
