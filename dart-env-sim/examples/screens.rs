//! Writes a contact sheet: for each task family a row of frames, the expert at work.
//!
//! `cargo run -p dart-env-sim --example screens -- [desktop|phone] [FILE.ppm] [WIDTHxHEIGHT]`

use std::{error::Error, fs, io::Write};

use dart_core::{Demonstrate, Environment, Frame, Size, Split, StepStatus, Task};
use dart_env_sim::{SimConfig, SimEnvironment, SimFactory};

const ROWS_PER_FAMILY: u64 = 2;
const FRAMES: usize = 6;
const GAP: usize = 4;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let mut config = match args.next().as_deref() {
        Some("phone") => SimConfig::phone(),
        _ => SimConfig::default(),
    };
    let path = args.next().unwrap_or_else(|| "screens.ppm".to_owned());
    if let Some((width, height)) = args.next().as_deref().and_then(|size| size.split_once('x')) {
        config.screen = Size::new(width.parse()?, height.parse()?);
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()?;
    let rows = runtime.block_on(all_rows(config.clone()))?;
    write_sheet(&path, config.screen, &rows)?;
    writeln!(std::io::stdout(), "{path}: {} rows", rows.len())?;
    Ok(())
}

async fn all_rows(config: SimConfig) -> dart_core::Result<Vec<Vec<Frame>>> {
    let tasks = config.tasks(Split::Train)?;
    let mut environment = SimFactory::new(config)?.environment()?;
    let mut rows = Vec::new();
    for task in &tasks {
        for seed in 0..ROWS_PER_FAMILY {
            rows.push(row(&mut environment, task, seed).await?);
        }
    }
    Ok(rows)
}

async fn row(
    environment: &mut SimEnvironment,
    task: &Task,
    seed: u64,
) -> dart_core::Result<Vec<Frame>> {
    let reset = environment.reset(task, seed).await?;
    let mut frames = vec![reset.observation.frame];
    let _ = writeln!(
        std::io::stdout(),
        "{} {seed}: {}",
        task.id,
        reset.instruction
    );
    while let Some(action) = environment.expert_action().await? {
        let outcome = environment.step(&action).await?;
        frames.push(outcome.observation.frame);
        if outcome.status != StepStatus::Running {
            break;
        }
    }
    Ok(frames)
}

fn write_sheet(path: &str, screen: Size, rows: &[Vec<Frame>]) -> std::io::Result<()> {
    let (width, height) = (screen.width as usize, screen.height as usize);
    let sheet_width = FRAMES * (width + GAP) + GAP;
    let sheet_height = rows.len() * (height + GAP) + GAP;
    let mut sheet = vec![64u8; sheet_width * sheet_height * 3];
    for (y, row) in rows.iter().enumerate() {
        for (x, frame) in row.iter().take(FRAMES).enumerate() {
            for (line, pixels) in frame.rgb().chunks_exact(width * 3).enumerate() {
                let top = GAP + y * (height + GAP) + line;
                let at = (top * sheet_width + GAP + x * (width + GAP)) * 3;
                sheet[at..at + width * 3].copy_from_slice(pixels);
            }
        }
    }
    let mut file = fs::File::create(path)?;
    write!(file, "P6\n{sheet_width} {sheet_height}\n255\n")?;
    file.write_all(&sheet)
}
