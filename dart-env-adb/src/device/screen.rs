//! Where pictures of the screen come from.

use async_trait::async_trait;
use dart_core::{Frame, Result};

use super::config::{AdbConfig, ScreenKind};
use crate::{
    client::AdbTarget,
    quote::quote,
    wire::{
        raw_reader::{MAX_OUTPUT, RawReader},
        screencap,
    },
};

/// A source of pictures. The seam for faster ones, such as a stream of video.
///
/// # Contract
/// 1. `frame` gives what is on the screen when it is called, not an earlier picture.
/// 2. It ends within the deadlines of the target.
/// 3. After an error the next call starts anew.
#[async_trait]
pub trait ScreenSource: std::fmt::Debug + Send + Sync {
    /// Takes a picture.
    async fn frame(&mut self, target: &AdbTarget) -> Result<Frame>;
}

/// The source that the settings name.
pub(crate) fn source(config: &AdbConfig) -> Box<dyn ScreenSource> {
    let display = config.display.as_deref();
    match config.screen {
        ScreenKind::Framebuffer => Box::new(FramebufferScreen),
        ScreenKind::Png => Box::new(PngScreen::new(display)),
        ScreenKind::Raw => Box::new(RawScreen::new(display)),
    }
}

fn command(start: &str, display: Option<&str>) -> String {
    match display {
        Some(id) => format!("{start} -d {}", quote(id)),
        None => start.to_owned(),
    }
}

/// Pictures by `screencap`, without compression.
#[derive(Debug)]
pub struct RawScreen {
    command: String,
    reader: RawReader,
}

impl RawScreen {
    /// Pictures of the main display, or of the display with this number.
    pub fn new(display: Option<&str>) -> Self {
        Self {
            command: command("screencap", display),
            reader: RawReader::default(),
        }
    }
}

#[async_trait]
impl ScreenSource for RawScreen {
    async fn frame(&mut self, target: &AdbTarget) -> Result<Frame> {
        self.reader.restart();
        let took = target.exec_with(&self.command, |bytes| self.reader.take(bytes));
        took.await?;
        self.reader.finish()
    }
}

/// Pictures by `screencap -p`.
#[derive(Debug)]
pub struct PngScreen {
    command: String,
}

impl PngScreen {
    /// Pictures of the main display, or of the display with this number.
    pub fn new(display: Option<&str>) -> Self {
        Self {
            command: command("screencap -p", display),
        }
    }
}

#[async_trait]
impl ScreenSource for PngScreen {
    async fn frame(&mut self, target: &AdbTarget) -> Result<Frame> {
        let mut output = Vec::new();
        target.exec(&self.command, &mut output, MAX_OUTPUT).await?;
        screencap::png(&output)
    }
}

/// Pictures by the framebuffer service.
#[derive(Clone, Copy, Debug)]
pub struct FramebufferScreen;

#[async_trait]
impl ScreenSource for FramebufferScreen {
    async fn frame(&mut self, target: &AdbTarget) -> Result<Frame> {
        target.framebuffer().await
    }
}
