//! AndroidEnv's ADB requests as steps.

use super::{
    super::format::Step,
    convert::literal,
    message::{Field, Message},
    tokens::mistake,
};
use crate::{
    error::{Adb, AdbError},
    quote,
};

/// The steps of an `AdbRequest`; `is_checked` says whether a condition follows.
pub(super) fn steps(field: &Field, is_checked: bool) -> Adb<Vec<Step>> {
    let message = field.message()?;
    // Every call has a deadline here.
    message.pass_over(&["timeout_sec"]);
    let mut commands = message.fields.iter().filter(|f| f.name != "timeout_sec");
    let (Some(command), None) = (commands.next(), commands.next()) else {
        return Err(mistake(
            field.line,
            format!("{} needs one command", field.name),
        ));
    };
    let Some(command) = message.get(&command.name) else {
        return Ok(Vec::new());
    };
    let inner = command.message()?;
    let package = || inner.text("package_name").map(|name| literal(&name));
    Ok(match command.name.as_str() {
        "install_apk" => {
            if !is_checked {
                let why = "install_apk is not supported without check_install: install the app beforehand and leave the step out";
                return Err(mistake(command.line, why));
            }
            message.pass_over(&["install_apk"]);
            Vec::new()
        }
        "start_activity" => vec![start_activity(inner)?],
        "force_stop" => vec![Step::ForceStop(package()?)],
        // So older files call `package_manager.clear`.
        "clear_cache" => vec![Step::ClearApp(package()?)],
        "uninstall_package" => vec![shell(&["pm", "uninstall", &inner.text("package_name")?])],
        "tap" => vec![Step::Tap {
            x: inner.number("x")? as i32,
            y: inner.number("y")? as i32,
        }],
        "press_button" => vec![press_button(inner)?],
        "input_text" => vec![Step::TypeText(literal(&inner.text("text")?))],
        "push" => vec![Step::PutFile {
            path: literal(&inner.text("path")?),
            content: literal(&inner.text("content")?),
        }],
        "settings" => vec![settings(command, inner)?],
        "generic" => vec![generic(command, inner)?],
        "package_manager" => package_manager(command, inner)?,
        "send_broadcast" => vec![send_broadcast(inner)?],
        "rotate" => rotate(command, inner)?,
        other => return Err(unsupported(command, other)),
    })
}

fn unsupported(field: &Field, name: &str) -> AdbError {
    mistake(
        field.line,
        format!("the ADB request {name} is not supported"),
    )
}

fn shell(words: &[&str]) -> Step {
    Step::Shell(literal(&quote::join(words)))
}

fn start_activity(message: &Message) -> Adb<Step> {
    let activity = quote::quote(&message.text("full_activity")?);
    let mut line = "am start".to_owned();
    if message.get("force_stop").map(Field::word).transpose()? == Some("true") {
        line.push_str(" -S");
    }
    line = format!("{line} -W -n {activity}");
    // The device's shell reads these, with the quotes that they bring.
    for argument in message.texts("extra_args")? {
        line = format!("{line} {argument}");
    }
    Ok(Step::Shell(literal(&line)))
}

fn press_button(message: &Message) -> Adb<Step> {
    let Some(button) = message.get("button") else {
        return Ok(Step::GoHome);
    };
    Ok(match button.word()? {
        "HOME" | "0" => Step::GoHome,
        "BACK" | "1" => Step::GoBack,
        "ENTER" | "2" => Step::PressEnter,
        other => return Err(unsupported(button, &format!("press_button.{other:.40}"))),
    })
}

fn settings(command: &Field, message: &Message) -> Adb<Step> {
    let space = message.get("name_space").map(Field::word).transpose()?;
    let namespace = match space {
        Some("SYSTEM" | "1") => "system",
        Some("SECURE" | "2") => "secure",
        Some("GLOBAL" | "3") => "global",
        _ => return Err(mistake(command.line, "settings.name_space is missing")),
    };
    if let Some(put) = message.get("put") {
        let put = put.message()?;
        return Ok(Step::Setting {
            namespace: namespace.into(),
            key: literal(&put.text("key")?),
            value: literal(&put.text("value")?),
        });
    }
    if let Some(delete) = message.get("delete_key") {
        let key = delete.message()?.text("key")?;
        return Ok(shell(&["settings", "delete", namespace, &key]));
    }
    Err(unsupported(command, "settings without put or delete_key"))
}

/// A command as `adb` takes it, of which only `shell` is one for the device alone.
fn generic(command: &Field, message: &Message) -> Adb<Step> {
    let arguments = message.texts("args")?;
    match arguments.split_first() {
        Some((first, rest)) if first == "shell" && !rest.is_empty() => {
            Ok(Step::Shell(literal(&rest.join(" "))))
        }
        Some((first, _)) => Err(unsupported(command, &format!("generic {first:.40}"))),
        None => Err(mistake(command.line, "generic.args is missing")),
    }
}

fn package_manager(command: &Field, message: &Message) -> Adb<Vec<Step>> {
    if let Some(clear) = message.get("clear") {
        let package = clear.message()?.text("package_name")?;
        return Ok(vec![Step::ClearApp(literal(&package))]);
    }
    let Some(grant) = message.get("grant") else {
        return Err(unsupported(
            command,
            "package_manager without clear or grant",
        ));
    };
    let grant = grant.message()?;
    let package = grant.text("package_name")?;
    let permissions = grant.texts("permissions")?;
    let one = |permission: &String| shell(&["pm", "grant", &package, permission]);
    Ok(permissions.iter().map(one).collect())
}

fn send_broadcast(message: &Message) -> Adb<Step> {
    let action = message.text("action")?;
    let component = message.text("component")?;
    let mut words = vec!["am", "broadcast", "-a", &action];
    if !component.is_empty() {
        words.extend(["-n", &component]);
    }
    Ok(shell(&words))
}

/// Of older files: how the screen is to be held.
fn rotate(command: &Field, message: &Message) -> Adb<Vec<Step>> {
    let orientation = message.get("orientation").map(Field::word).transpose()?;
    let turns = match orientation {
        None | Some("PORTRAIT_0" | "0") => "0",
        Some("LANDSCAPE_90" | "1") => "1",
        Some("PORTRAIT_180" | "2") => "2",
        Some("LANDSCAPE_270" | "3") => "3",
        Some(other) => return Err(unsupported(command, &format!("rotate.{other:.40}"))),
    };
    let put = |key: &str, value: &str| Step::Setting {
        namespace: "system".into(),
        key: key.into(),
        value: value.into(),
    };
    Ok(vec![
        put("accelerometer_rotation", "0"),
        put("user_rotation", turns),
    ])
}
