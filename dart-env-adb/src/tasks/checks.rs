//! Whether what has to hold does.

use dart_core::{EpisodeEnd, Result};

use super::{
    format::{Check, Expect},
    steps::{run, sqlite},
    values::Values,
};
use crate::{device::AdbDevice, error::AdbError, quote};

/// Longest file that is compared, bytes.
const MAX_CONTENT: usize = 1 << 20;

impl Check {
    /// What a text has to be, if it is about a text.
    pub(super) const fn expected(&self) -> Option<&Expect> {
        Some(match self {
            Self::Answer(expected) | Self::Log(expected) | Self::Ui(expected) => expected,
            Self::File { content, .. } => content,
            Self::Setting { value, .. } => value,
            Self::Shell { output, .. } | Self::Sqlite { output, .. } => output,
            Self::FileExists { .. } => return None,
        })
    }
}

/// Whether a check holds.
pub(super) async fn holds(
    check: &Check,
    values: &Values,
    device: &AdbDevice,
    end: &EpisodeEnd,
) -> Result<bool> {
    let at = |error: AdbError| error.at("task");
    if let Check::FileExists { path, exists } = check {
        let path = values.fill(path).map_err(at)?;
        return Ok(device.target().stat(&path).await?.exists() == *exists);
    }
    let Some(expected) = check.expected() else {
        return Ok(false);
    };
    let filled = values.expected(expected).map_err(at)?;
    let texts = found(check, values, device, end).await?;
    let mut holding = texts.iter().map(|text| filled.holds(text));
    Ok(match (check, expected) {
        // What is lacking must not be anywhere.
        (Check::Log(_) | Check::Ui(_), Expect::Lacks(_)) => holding.all(|holds| holds),
        _ => holding.any(|holds| holds),
    })
}

/// The texts of which one has to be as expected.
async fn found(
    check: &Check,
    values: &Values,
    device: &AdbDevice,
    end: &EpisodeEnd,
) -> Result<Vec<String>> {
    let target = device.target();
    let fill = |text: &String| values.fill(text).map_err(|error| error.at("task"));
    let line = match check {
        Check::Answer(_) => return Ok(end.answer.iter().cloned().collect()),
        Check::File { path, .. } => {
            let path = fill(path)?;
            let stat = target.stat(&path).await?;
            // Longer than any that a task asks for: a wrong content, not a fault of the device.
            if !stat.exists() || stat.size as usize > MAX_CONTENT {
                return Ok(Vec::new());
            }
            let bytes = target.pull(&path, MAX_CONTENT).await?;
            return Ok(vec![String::from_utf8_lossy(&bytes).into_owned()]);
        }
        Check::FileExists { .. } => return Ok(Vec::new()),
        Check::Log(_) => {
            let log = run(target, "logcat -d").await?;
            return Ok(log.lines().map(str::to_owned).collect());
        }
        Check::Setting { namespace, key, .. } => {
            quote::join(&["settings", "get", &fill(namespace)?, &fill(key)?])
        }
        Check::Shell { command, .. } => {
            let line = values.fill_command(command);
            line.map_err(|error| error.at("task"))?
        }
        Check::Sqlite {
            database, query, ..
        } => {
            let query = values.fill_sql(query);
            sqlite(&fill(database)?, &query.map_err(|error| error.at("task"))?)
        }
        Check::Ui(_) => {
            let nodes = device.ui_tree().await?.into_iter();
            let texts = nodes.flat_map(|node| [node.text, node.description]);
            return Ok(texts.filter(|text| !text.is_empty()).collect());
        }
    };
    Ok(vec![run(target, &line).await?])
}
