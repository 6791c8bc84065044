//! `am`, `pm`, `monkey` and `ime`: apps, and the two that take any text.

use base64::{Engine, prelude::BASE64_STANDARD};
use dart_core::{Action, Device, UiRole};

use super::{Output, input::said};
use crate::simulator::{
    options::{CLIPBOARD, KEYBOARD},
    phone::Phone,
    system::LAUNCHER,
};

/// What apps on the screen are called: an icon `music` is the package `dart.sim.music`.
const ON_SCREEN: &str = "dart.sim.";

/// All packages: those installed, and one for each icon on the screen.
async fn packages<D: Device>(phone: &Phone<D>) -> Vec<String> {
    let mut all = phone.options.packages.clone();
    if let Ok(screen) = phone.screen().await {
        let elements = screen.ui.iter().flat_map(|all| all.iter());
        let icons = elements.filter(|element| element.role == UiRole::Icon);
        all.extend(icons.map(|icon| format!("{ON_SCREEN}{}", icon.text)));
    }
    all
}

pub(super) async fn pm<D: Device>(phone: &Phone<D>, words: &[&str]) -> Output {
    match words {
        ["list", "packages", filter @ ..] => {
            let filter = filter.iter().find(|word| !word.starts_with('-'));
            let filter = filter.copied().unwrap_or_default();
            let all = packages(phone).await;
            let matching = all.iter().filter(|package| package.contains(filter));
            let lines: Vec<_> = matching.map(|p| format!("package:{p}\n")).collect();
            Output::say(lines.concat())
        }
        ["clear", package] => match known(phone, package).await {
            Ok(()) => {
                let stopped = stop(phone, package).await;
                phone.state().kept.remove(&format!("/data/data/{package}"));
                match stopped.code {
                    0 => Output::say("Success\n"),
                    _ => stopped,
                }
            }
            Err(failed) => failed,
        },
        _ => Output::fail(255, "Unknown command"),
    }
}

/// Whether there is such a package; what a launch says if not.
async fn known<D: Device>(phone: &Phone<D>, package: &str) -> Result<(), Output> {
    if packages(phone).await.iter().any(|known| known == package) {
        return Ok(());
    }
    let words =
        format!("Error: Activity not started, unable to resolve Intent {{ pkg={package} }}");
    Err(Output::fail(1, words))
}

/// Ends an app: what shows instead of it is the home screen.
async fn stop<D: Device>(phone: &Phone<D>, package: &str) -> Output {
    if phone.state().front != package {
        return Output::default();
    }
    phone.state().show(LAUNCHER, ".Main");
    said(phone.perform(&[Action::NavigateHome]).await)
}

/// Starts an app; `component` is its package, and perhaps a slash and the part that is to show.
async fn launch<D: Device>(phone: &Phone<D>, component: &str) -> Output {
    let (package, activity) = component.split_once('/').unwrap_or((component, ".Main"));
    if let Err(failed) = known(phone, package).await {
        return failed;
    }
    let name = package.rsplit('.').next().unwrap_or(package).to_owned();
    let done = phone.perform(&[Action::OpenApp { name }]).await;
    phone.state().show(package, activity);
    phone.state().log(
        "ActivityTaskManager",
        &format!("START u0 {{pkg={package}}}"),
    );
    said(done)
}

pub(super) async fn monkey<D: Device>(phone: &Phone<D>, words: &[&str]) -> Output {
    let after_p = words.iter().position(|word| *word == "-p");
    let package = after_p.and_then(|at| words.get(at + 1));
    let Some(package) = package else {
        return Output::fail(255, "usage: monkey -p PACKAGE -c CATEGORY 1");
    };
    match known(phone, package).await {
        Ok(()) => {
            let launched = launch(phone, package).await;
            match launched.code {
                0 => Output::say("Events injected: 1\n"),
                _ => launched,
            }
        }
        Err(_) => Output::fail(252, "** No activities found to run, monkey aborted."),
    }
}

pub(super) async fn am<D: Device>(phone: &Phone<D>, words: &[&str]) -> Output {
    match words {
        ["start", rest @ ..] => {
            let component = option(rest, "-n").or_else(|| rest.last().copied());
            launch(phone, component.unwrap_or_default()).await
        }
        ["force-stop", package] => stop(phone, package).await,
        ["broadcast", rest @ ..] => broadcast(phone, rest).await,
        _ => Output::fail(255, "Unknown command"),
    }
}

fn option<'a>(words: &[&'a str], name: &str) -> Option<&'a str> {
    let at = words.iter().position(|word| *word == name)?;
    words.get(at + 1).copied()
}

/// The text in `--es NAME TEXT`.
fn extra<'a>(words: &[&'a str], name: &str) -> Option<&'a str> {
    let at = words.iter().position(|word| *word == name)?;
    words.get(at + 1).copied()
}

async fn broadcast<D: Device>(phone: &Phone<D>, words: &[&str]) -> Output {
    let installed = |package: &str| phone.options.packages.iter().any(|p| p == package);
    let nobody = Output::say("Broadcasting: Intent { }\nBroadcast completed: result=0\n");
    match option(words, "-a") {
        Some("ADB_INPUT_B64") if installed(KEYBOARD) => {
            let chosen = phone.state().keyboard.starts_with(KEYBOARD);
            let text = extra(words, "msg").and_then(|text| BASE64_STANDARD.decode(text).ok());
            let text = text.and_then(|bytes| String::from_utf8(bytes).ok());
            let (true, Some(text)) = (chosen, text) else {
                return nobody;
            };
            let done = said(phone.perform(&[Action::Type { text }]).await);
            match done.code {
                0 => nobody,
                _ => done,
            }
        }
        Some("clipper.set") if installed(CLIPBOARD) => {
            let text = extra(words, "text").unwrap_or_default();
            text.clone_into(&mut phone.state().kept.clipboard);
            Output::say(
                "Broadcasting: Intent { act=clipper.set }\nBroadcast completed: result=-1, data=\"Text is copied into clipboard.\"\n",
            )
        }
        _ => nobody,
    }
}

pub(super) fn ime<D>(phone: &Phone<D>, words: &[&str]) -> Output {
    let known = |keyboard: &str| {
        let package = keyboard.split('/').next().unwrap_or_default();
        let mut all = phone.options.packages.iter();
        keyboard.contains("inputmethod") || all.any(|installed| installed == package)
    };
    match words {
        ["list", ..] => Output::say(format!("{}\n", phone.state().keyboard)),
        ["enable" | "set", keyboard] if !known(keyboard) => {
            Output::fail(255, format!("Error: Unknown input method {keyboard}"))
        }
        ["enable", keyboard] => Output::say(format!(
            "Input method {keyboard}: now enabled for user #0\n"
        )),
        ["set", keyboard] => {
            (*keyboard).clone_into(&mut phone.state().keyboard);
            Output::say(format!("Input method {keyboard} selected for user #0\n"))
        }
        _ => Output::fail(255, "Unknown command"),
    }
}
