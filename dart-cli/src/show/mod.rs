//! A stored trajectory as pictures: PNG frames with the actions drawn in, and one HTML page.

mod draw;
mod html;
pub(crate) mod words;

use std::{fs, path::Path};

use anyhow::{Context, Result};
use dart_core::Trajectory;

/// Writes `step-000.png`, … and `index.html` (with the pictures inside) into `folder`.
///
/// # Errors
/// If the folder cannot be made or written.
pub fn write(trajectory: &Trajectory, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let mut pictures = Vec::with_capacity(trajectory.steps.len());
    for (index, step) in trajectory.steps.iter().enumerate() {
        let picture = draw::png(&step.observation.frame, step.decision.action.valid())?;
        let file = folder.join(format!("step-{index:03}.png"));
        fs::write(&file, &picture).with_context(|| format!("cannot write {}", file.display()))?;
        pictures.push(picture);
    }
    let page = folder.join("index.html");
    fs::write(&page, html::page(trajectory, &pictures))
        .with_context(|| format!("cannot write {}", page.display()))
}
