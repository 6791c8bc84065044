//! Settings, properties, services and the log.

use dart_core::Device;

use super::Output;
use crate::simulator::phone::Phone;

/// Commands that wait for nothing; `None` if `name` is none of them.
pub(super) fn basic<D>(phone: &Phone<D>, name: &str, words: &[&str]) -> Option<Output> {
    Some(match name {
        "true" | "sleep" => Output::default(),
        "false" => Output {
            code: 1,
            ..Output::default()
        },
        "echo" => match words {
            ["-n", rest @ ..] => Output::say(rest.join(" ")),
            words => Output::say(format!("{}\n", words.join(" "))),
        },
        "id" => Output::say("uid=2000(shell) gid=2000(shell)\n"),
        "date" => Output::say("Sun Oct 15 15:34:00 UTC 2023\n"),
        "getprop" => getprop(phone, words),
        "log" => log(phone, words),
        "logcat" => logcat(phone, words),
        "settings" => settings(phone, words),
        _ => return None,
    })
}

fn getprop<D>(phone: &Phone<D>, words: &[&str]) -> Output {
    let model = phone.options.model.as_str();
    let value = match words.first().copied() {
        Some("ro.serialno" | "ro.boot.serialno") => &phone.state().serial_number.clone(),
        Some("ro.product.model" | "ro.product.name" | "ro.product.device") => model,
        Some("sys.boot_completed") => "1",
        Some("ro.build.version.release") if phone.options.screencap_header == 12 => "8.0.0",
        Some("ro.build.version.release") => "13",
        Some("ro.build.version.sdk") if phone.options.screencap_header == 12 => "26",
        Some("ro.build.version.sdk") => "33",
        _ => "",
    };
    Output::say(format!("{value}\n"))
}

fn log<D>(phone: &Phone<D>, words: &[&str]) -> Output {
    let (tag, message) = match words {
        ["-t", tag, message @ ..] => (*tag, message),
        message => ("log", message),
    };
    phone.state().log(tag, &message.join(" "));
    Output::default()
}

fn logcat<D>(phone: &Phone<D>, words: &[&str]) -> Output {
    if words.contains(&"-c") {
        phone.state().clear_log();
        return Output::default();
    }
    if !words.contains(&"-d") {
        return Output::fail(1, "only `logcat -d` and `logcat -c` end by themselves");
    }
    // After `-s` come the tags that are wanted, perhaps with a level.
    let tags = words.iter().skip_while(|word| **word != "-s").skip(1);
    let tags: Vec<String> = tags
        .map(|tag| format!("I/{}:", tag.split(':').next().unwrap_or(tag)))
        .collect();
    let wanted = |line: &&String| tags.is_empty() || tags.iter().any(|tag| line.starts_with(tag));
    let state = phone.state();
    let lines = state.log_lines().filter(wanted);
    let lines: Vec<_> = lines.map(|line| format!("{line}\n")).collect();
    Output::say(lines.concat())
}

fn settings<D>(phone: &Phone<D>, words: &[&str]) -> Output {
    let name = |space: &str, key: &str| format!("{space}/{key}");
    match words {
        ["get", "secure", "default_input_method"] => {
            Output::say(format!("{}\n", phone.state().keyboard))
        }
        ["get", space, key] => {
            let state = phone.state();
            let value = state.kept.settings.get(&name(space, key));
            Output::say(format!("{}\n", value.map_or("null", String::as_str)))
        }
        ["put", space, key, value] => {
            let value = (*value).to_owned();
            phone.state().kept.settings.insert(name(space, key), value);
            Output::default()
        }
        ["delete", space, key] => {
            let removed = phone.state().kept.settings.remove(&name(space, key));
            Output::say(format!("Deleted {} rows\n", u8::from(removed.is_some())))
        }
        ["list", space] => {
            let state = phone.state();
            let inside = format!("{space}/");
            let all = state.kept.settings.iter();
            let lines = all.filter_map(|(key, value)| {
                let key = key.strip_prefix(&inside)?;
                Some(format!("{key}={value}\n"))
            });
            Output::say(lines.collect::<String>())
        }
        _ => Output::fail(255, "Invalid command"),
    }
}

pub(super) async fn dumpsys<D: Device>(phone: &Phone<D>, words: &[&str]) -> Output {
    let (natural, size) = (phone.natural_size().await, phone.size().await);
    let turned = phone.faults().rotated;
    match words {
        ["window", ..] => {
            let (density, front) = (phone.options.density, phone.state().front.clone());
            Output::say(format!(
                "WINDOW MANAGER DISPLAY CONTENTS (dumpsys window displays)\n  Display: mDisplayId=0\n    init={natural} {density}dpi cur={size} app={size} rng={natural}-{size}\n  mCurrentRotation=ROTATION_{}\n  mCurrentFocus=Window{{1 u0 {front}/.Main}}\n",
                if turned { 90 } else { 0 },
            ))
        }
        ["input", ..] => Output::say(format!("    SurfaceOrientation: {}\n", u8::from(turned))),
        ["activity", ..] => {
            let state = phone.state();
            Output::say(format!(
                "  mResumedActivity: ActivityRecord{{1 u0 {}/{} t1}}\n",
                state.front, state.activity
            ))
        }
        [service, ..] => Output::fail(1, format!("Can't find service: {service}")),
        [] => Output::fail(1, "dumpsys needs a service"),
    }
}
