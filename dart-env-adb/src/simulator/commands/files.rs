//! `cat`, `ls`, `rm`, `mkdir`, `test`, `sqlite3`.

use super::Output;
use crate::simulator::phone::Phone;

/// A command on files; `None` if `name` is none of them.
pub(super) fn command<D>(phone: &Phone<D>, name: &str, words: &[&str]) -> Option<Output> {
    let flags = |word: &&&str| !word.starts_with('-');
    let paths: Vec<&str> = words.iter().filter(flags).copied().collect();
    Some(match name {
        "cat" => cat(phone, &paths),
        "ls" => ls(phone, &paths),
        "rm" => rm(phone, &paths, words),
        "mkdir" => {
            for path in &paths {
                phone.state().kept.files.make_folder(path);
            }
            Output::default()
        }
        "test" => test(phone, words),
        "sqlite3" => sqlite3(phone, &paths),
        _ => return None,
    })
}

fn missing(command: &str, path: &str) -> Output {
    Output::fail(1, format!("{command}: {path}: No such file or directory"))
}

fn cat<D>(phone: &Phone<D>, paths: &[&str]) -> Output {
    let mut all = Vec::new();
    for path in paths {
        match phone.state().kept.files.get(path) {
            Some(file) => all.extend_from_slice(&file.content),
            None => return missing("cat", path),
        }
    }
    Output::say(all)
}

fn ls<D>(phone: &Phone<D>, paths: &[&str]) -> Output {
    let path = paths.first().copied().unwrap_or("/");
    let state = phone.state();
    if state.kept.files.get(path).is_some() {
        return Output::say(format!("{path}\n"));
    }
    if !state.kept.files.is_folder(path) {
        return missing("ls", path);
    }
    let entries = state.kept.files.list(path).into_iter();
    let lines: Vec<_> = entries.map(|(name, _)| format!("{name}\n")).collect();
    Output::say(lines.concat())
}

fn rm<D>(phone: &Phone<D>, paths: &[&str], words: &[&str]) -> Output {
    let forced = words.iter().any(|w| w.starts_with('-') && w.contains('f'));
    for path in paths {
        if !phone.state().kept.remove(path) && !forced {
            return missing("rm", path);
        }
    }
    Output::default()
}

fn test<D>(phone: &Phone<D>, words: &[&str]) -> Output {
    let state = phone.state();
    let holds = match words {
        ["-f", path] => state.kept.files.get(path).is_some(),
        ["-d", path] => state.kept.files.is_folder(path),
        ["-e", path] => state.kept.files.get(path).is_some() || state.kept.files.is_folder(path),
        _ => false,
    };
    Output {
        code: u8::from(!holds),
        ..Output::default()
    }
}

/// Columns stand with bars between them, as the program prints them.
fn sqlite3<D>(phone: &Phone<D>, words: &[&str]) -> Output {
    let [database, statement] = words else {
        return Output::fail(1, "usage: sqlite3 [OPTIONS] FILENAME SQL");
    };
    let rows = phone.state().kept.database(database).run(statement);
    match rows {
        Ok(rows) => {
            let lines: Vec<_> = rows.iter().map(|row| row.join("|") + "\n").collect();
            Output::say(lines.concat())
        }
        Err(reason) => Output::fail(1, format!("Error: {reason}")),
    }
}
