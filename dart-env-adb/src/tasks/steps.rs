//! Doing the steps of a task.

use std::time::Duration;

use dart_core::{Action, Device, Result, ScreenPx};
use tokio::time::{Instant, sleep};

use super::{
    format::{Condition, Step},
    values::Values,
};
use crate::{client::AdbTarget, device::AdbDevice, error::AdbError, quote};

/// Pause between two looks at what is waited for.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Runs a command that has to succeed; gives what it prints.
pub(super) async fn run(target: &AdbTarget, line: &str) -> Result<String> {
    let output = target.shell(line).await?;
    if output.code == 0 {
        return Ok(output.text());
    }
    let error = AdbError::Command {
        command: line.chars().take(120).collect(),
        code: output.code,
        said: output.said(),
    };
    Err(error.at("task").with("device", target.serial()))
}

/// Does a step.
pub(super) async fn take(step: &Step, values: &Values, device: &mut AdbDevice) -> Result<()> {
    match step {
        Step::Attempt {
            step,
            until,
            timeout_ms,
            attempts,
        } => {
            let limit = Duration::from_millis(*timeout_ms);
            for left in (0..*attempts).rev() {
                let done = match once(step, values, device).await {
                    Ok(()) => wait(until, limit, values, device).await,
                    failed => failed,
                };
                match done {
                    Err(error) if left > 0 => tracing::debug!(%error, left, "a step is repeated"),
                    done => return done,
                }
            }
            Ok(())
        }
        Step::WaitFor {
            condition,
            timeout_ms,
        } => {
            wait(
                condition,
                Duration::from_millis(*timeout_ms),
                values,
                device,
            )
            .await
        }
        step => once(step, values, device).await,
    }
}

/// Does a step that is no attempt.
async fn once(step: &Step, values: &Values, device: &mut AdbDevice) -> Result<()> {
    if let Some(action) = action(step, values)? {
        return device.perform(&action).await;
    }
    match step {
        Step::PutFile { path, content } => {
            let fill = |text: &String| values.fill(text).map_err(|error| error.at("task"));
            let (path, content) = (fill(path)?, fill(content)?);
            device.target().push(content.as_bytes(), &path, 0o644).await
        }
        Step::SleepMs(millis) => {
            sleep(Duration::from_millis(*millis)).await;
            Ok(())
        }
        step => match command(step, values).map_err(|error| error.at("task"))? {
            Some(line) => run(device.target(), &line).await.map(drop),
            None => Ok(()),
        },
    }
}

/// The steps that are actions of a user.
fn action(step: &Step, values: &Values) -> Result<Option<Action>> {
    let fill = |text: &String| values.fill(text).map_err(|error| error.at("task"));
    Ok(Some(match step {
        Step::GoBack => Action::NavigateBack,
        Step::GoHome => Action::NavigateHome,
        Step::OpenApp(name) => Action::OpenApp { name: fill(name)? },
        Step::PressEnter => Action::KeyboardEnter,
        Step::Tap { x, y } => Action::Tap {
            at: ScreenPx::new(*x, *y),
        },
        Step::TypeText(text) => Action::Type { text: fill(text)? },
        _ => return Ok(None),
    }))
}

/// The steps that are commands.
fn command(step: &Step, values: &Values) -> Result<Option<String>, AdbError> {
    let fill = |text: &String| values.fill(text);
    Ok(Some(match step {
        Step::ClearApp(package) => quote::join(&["pm", "clear", &fill(package)?]),
        Step::ForceStop(package) => quote::join(&["am", "force-stop", &fill(package)?]),
        Step::Remove(path) => quote::join(&["rm", "-rf", &fill(path)?]),
        Step::Setting {
            namespace,
            key,
            value,
        } => {
            let (namespace, key) = (fill(namespace)?, fill(key)?);
            quote::join(&["settings", "put", &namespace, &key, &fill(value)?])
        }
        Step::Shell(line) => values.fill_command(line)?,
        Step::Sqlite {
            database,
            statement,
        } => sqlite(&fill(database)?, &values.fill_sql(statement)?),
        _ => return Ok(None),
    }))
}

/// The command that asks a database.
pub(super) fn sqlite(database: &str, statement: &str) -> String {
    quote::join(&["sqlite3", database, statement])
}

/// Waits until `condition` holds.
async fn wait(
    condition: &Condition,
    limit: Duration,
    values: &Values,
    device: &AdbDevice,
) -> Result<()> {
    let deadline = Instant::now() + limit;
    let wanted = values.fill(condition.name());
    let wanted = wanted.map_err(|error| error.at("task"))?;
    loop {
        let holds = match condition {
            Condition::Activity(_) => is_in_front(device.target(), &wanted).await?,
            Condition::Package(_) => is_installed(device.target(), &wanted).await?,
        };
        if holds {
            return Ok(());
        }
        if Instant::now() >= deadline {
            let what = match condition {
                Condition::Activity(_) => "is not in front",
                Condition::Package(_) => "is not installed: install it first",
            };
            let error = AdbError::Config(format!("{wanted} {what}"));
            return Err(error.at("task").with("device", device.target().serial()));
        }
        sleep(LOOK_AGAIN).await;
    }
}

async fn is_installed(target: &AdbTarget, package: &str) -> Result<bool> {
    let listed = run(target, "pm list packages").await?;
    let mut lines = listed.lines().map(str::trim);
    Ok(lines.any(|line| line.strip_prefix("package:") == Some(package)))
}

/// Whether this part of an app is what the user sees.
pub(super) async fn is_in_front(target: &AdbTarget, activity: &str) -> Result<bool> {
    let dump = run(target, "dumpsys activity activities").await?;
    let front = dump.lines().find_map(in_front);
    Ok(front.is_some_and(|front| whole(front) == whole(activity)))
}

/// The component that a line of the dump says is resumed. Names by Android's version.
fn in_front(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let names = ["mResumedActivity", "topResumedActivity", "ResumedActivity"];
    names.iter().find(|name| line.starts_with(**name))?;
    line.split_whitespace().find(|word| word.contains('/'))
}

/// A component with the package before the class spelled out.
fn whole(component: &str) -> String {
    let component = component.trim_matches(|c| matches!(c, '{' | '}'));
    match component.split_once('/') {
        Some((package, class)) if class.starts_with('.') => format!("{package}/{package}{class}"),
        _ => component.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_front_is_read_from_any_version() {
        for dump in [
            "    mResumedActivity: ActivityRecord{f5e u0 com.a/.Main t12}",
            "  topResumedActivity=ActivityRecord{f5e u0 com.a/com.a.Main t12}",
            "  ResumedActivity: ActivityRecord{f5e u0 com.a/.Main}",
        ] {
            assert_eq!(whole(in_front(dump).unwrap()), "com.a/com.a.Main", "{dump}");
        }
        assert_eq!(
            in_front("  mLastPausedActivity: ActivityRecord{1 u0 com.b/.Main t1}"),
            None
        );
        assert_eq!(in_front("  mResumedActivity: null"), None);
    }
}
