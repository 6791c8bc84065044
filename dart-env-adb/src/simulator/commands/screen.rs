//! `screencap`, `wm` and `uiautomator`.

use std::{fmt::Write, io::Cursor, sync::Arc};

use dart_core::{Device, Frame, UiElement, UiRole};
use image::{
    ExtendedColorType, ImageEncoder,
    codecs::png::{CompressionType, FilterType, PngEncoder},
};

use super::Output;
use crate::simulator::{files::File, options::UiFault, phone::Phone, services::rgba};

const WARNING: &[u8] = b"[Warning] Multiple displays were found, but no display id was specified! Defaulting to the first display found, however this default is not guaranteed to be consistent across captures. A display id should be specified.\nA display id can be specified with the [-d display-id] option.\nSee \"dumpsys SurfaceFlinger --display-id\" for valid display IDs.\n";

pub(super) async fn screencap<D: Device>(phone: &Phone<D>, words: &[&str]) -> Output {
    let (mut as_png, mut display, mut path) = (false, false, None);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match *word {
            "-p" => as_png = true,
            "-d" => display = words.next().is_some(),
            word if word.starts_with('-') => return Output::fail(1, "usage: screencap [-hp]"),
            word => path = Some(word),
        }
    }
    let frame = match phone.screen().await {
        Ok(observation) => observation.frame,
        Err(error) => return Output::fail(1, error.to_string()),
    };
    let warned = phone.faults().display_warning && !display;
    let start = if warned { WARNING } else { b"" };
    let picture = if as_png {
        match png(&frame) {
            Ok(png) => Arc::new([start, &png].concat()),
            Err(error) => return Output::fail(1, error.to_string()),
        }
    } else if warned {
        Arc::new(raw(&frame, phone.options.screencap_header, start.to_vec()))
    } else {
        phone.printed(&frame, || {
            raw(&frame, phone.options.screencap_header, Vec::new())
        })
    };
    let Some(path) = path else {
        return Output::show(picture);
    };
    let (content, mode) = (picture, 0o100_644);
    match phone.state().kept.files.put(
        path,
        File {
            content,
            mode,
            time: 0,
        },
    ) {
        Ok(()) => Output::default(),
        Err(reason) => Output::fail(1, reason),
    }
}

fn raw(frame: &Frame, header: usize, start: Vec<u8>) -> Vec<u8> {
    let size = frame.size();
    let mut bytes = start;
    bytes.reserve(header + size.area() * 4);
    for number in [size.width, size.height, 1, 1].iter().take(header / 4) {
        bytes.extend(number.to_le_bytes());
    }
    rgba(frame, bytes)
}

fn png(frame: &Frame) -> Result<Vec<u8>, image::ImageError> {
    let mut bytes = Cursor::new(Vec::new());
    let encoder = PngEncoder::new_with_quality(&mut bytes, CompressionType::Fast, FilterType::Sub);
    let (width, height) = (frame.size().width, frame.size().height);
    encoder.write_image(frame.rgb(), width, height, ExtendedColorType::Rgb8)?;
    Ok(bytes.into_inner())
}

pub(super) async fn wm<D: Device>(phone: &Phone<D>, words: &[&str]) -> Output {
    match words {
        ["size"] => Output::say(format!("Physical size: {}\n", phone.natural_size().await)),
        ["density"] => Output::say(format!("Physical density: {}\n", phone.options.density)),
        _ => Output::fail(255, "Unknown command"),
    }
}

pub(super) async fn uiautomator<D: Device>(phone: &Phone<D>, words: &[&str]) -> Output {
    let ["dump", rest @ ..] = words else {
        return Output::fail(1, "Usage: uiautomator <subcommand> [options]");
    };
    let path = rest.iter().find(|word| !word.starts_with("--"));
    let path = path.copied().unwrap_or("/sdcard/window_dump.xml");
    let fault = phone.faults().ui;
    match fault {
        // The exit code of a failed dump is 0.
        Some(UiFault::Idle) => Output::say("ERROR: could not get idle state.\n"),
        Some(UiFault::NullRoot) => {
            Output::say("ERROR: null root node returned by UiTestAutomationBridge.\n")
        }
        Some(UiFault::Empty) => dumped(phone, path, EMPTY),
        None => match phone.screen().await {
            Ok(screen) => {
                let size = screen.frame.size();
                let elements = screen.ui.as_deref().unwrap_or_default();
                dumped(phone, path, &xml((size.width, size.height), elements))
            }
            Err(error) => Output::fail(1, error.to_string()),
        },
    }
}

const EMPTY: &str = "<?xml version='1.0' encoding='UTF-8' standalone='yes' ?><hierarchy rotation=\"0\"></hierarchy>";

fn dumped<D>(phone: &Phone<D>, path: &str, xml: &str) -> Output {
    let words = format!("UI hierchary dumped to: {path}\n");
    if path == "/dev/tty" {
        return Output::say(format!("{xml}{words}"));
    }
    let (content, mode) = (xml.as_bytes().to_vec().into(), 0o100_644);
    match phone.state().kept.files.put(
        path,
        File {
            content,
            mode,
            time: 0,
        },
    ) {
        Ok(()) => Output::say(words),
        Err(reason) => Output::fail(1, reason),
    }
}

fn xml((width, height): (u32, u32), elements: &[UiElement]) -> String {
    let mut xml = String::from("<?xml version='1.0' encoding='UTF-8' standalone='yes' ?>");
    let root = format!(
        "<hierarchy rotation=\"0\"><node index=\"0\" text=\"\" resource-id=\"\" class=\"android.widget.FrameLayout\" package=\"dart.sim\" content-desc=\"\" clickable=\"false\" bounds=\"[0,0][{width},{height}]\">"
    );
    xml.push_str(&root);
    for (index, element) in elements.iter().enumerate() {
        let b = element.bounds;
        let (right, bottom) = (b.x + b.width as i32, b.y + b.height as i32);
        // Writing into a string cannot fail.
        let _ = write!(
            xml,
            "<node index=\"{index}\" text=\"{}\" resource-id=\"\" class=\"{}\" package=\"dart.sim\" content-desc=\"\" clickable=\"true\" bounds=\"[{},{}][{right},{bottom}]\" />",
            escaped(&element.text),
            class(element.role),
            b.x,
            b.y,
        );
    }
    xml.push_str("</node></hierarchy>");
    xml
}

const fn class(role: UiRole) -> &'static str {
    match role {
        UiRole::Button => "android.widget.Button",
        UiRole::Checkbox => "android.widget.CheckBox",
        UiRole::Radio => "android.widget.RadioButton",
        UiRole::Slider => "android.widget.SeekBar",
        UiRole::Switch => "android.widget.Switch",
        UiRole::TextField => "android.widget.EditText",
        UiRole::Icon => "android.widget.ImageView",
        UiRole::Label => "android.widget.TextView",
        _ => "android.view.View",
    }
}

fn escaped(text: &str) -> String {
    let mut all = String::new();
    for c in text.chars() {
        match c {
            '&' => all.push_str("&amp;"),
            '<' => all.push_str("&lt;"),
            '>' => all.push_str("&gt;"),
            '"' => all.push_str("&quot;"),
            c if c.is_control() => {
                let _ = write!(all, "&#{};", u32::from(c));
            }
            c => all.push(c),
        }
    }
    all
}
