//! What the user's commands change.

use super::{
    catalog::{
        ALARMS, CALLS, CONTACTS, DOWNLOADS, MESSAGES, NOTES, PICTURES, Page, RECORDINGS, TASKS,
    },
    form::Deed,
    platform::{Platform, Table},
};

/// What the fields hold, and whether the switch that was moved is on.
#[derive(Debug)]
pub(super) struct Input {
    pub(super) fields: Vec<String>,
    pub(super) on: bool,
}

impl Input {
    fn field(&self, number: usize) -> &str {
        let field = self.fields.get(number).map(String::as_str);
        field.unwrap_or_default().trim()
    }

    /// The fields, if none of them is empty.
    fn all(&self) -> Option<Vec<&str>> {
        let all: Vec<_> = (0..self.fields.len()).map(|n| self.field(n)).collect();
        (!all.contains(&"")).then_some(all)
    }

    /// The fields, if they can be names of files.
    fn name(&self, number: usize) -> Option<&str> {
        let name = Some(self.field(number));
        name.filter(|name| !name.is_empty() && !name.contains('/') && !name.starts_with('.'))
    }
}

/// Does it; gives the page to go to.
pub(super) fn perform(deed: &Deed, input: &Input, platform: &dyn Platform) -> Option<Page> {
    match deed {
        Deed::Go(page) => Some(page.clone()),
        Deed::Switch(space, key) => {
            platform.put_setting(space, key, if input.on { "1" } else { "0" });
            None
        }
        Deed::DeleteRow(table, number) => {
            platform.edit_table(table, &mut |rows| {
                if *number < rows.len() {
                    rows.remove(*number);
                }
            });
            None
        }
        Deed::DeleteFile(path) => {
            platform.remove_file(path);
            path.starts_with(DOWNLOADS).then_some(Page::Files)
        }
        Deed::Call(number) => Some(call(number, platform)),
        Deed::CallTyped => input.all().map(|_| call(input.field(0), platform)),
        Deed::Rename(old) => rename(old, input, platform),
        Deed::TakePicture => {
            take_picture(platform);
            None
        }
        Deed::Record | Deed::SaveNote => write(deed, input, platform),
        _ => add(deed, input, platform),
    }
}

fn insert(platform: &dyn Platform, table: &Table, row: &[&str]) {
    let row: Vec<String> = row.iter().map(|text| (*text).to_owned()).collect();
    platform.edit_table(table, &mut |rows| rows.push(row.clone()));
}

/// Forms that add a row.
fn add(deed: &Deed, input: &Input, platform: &dyn Platform) -> Option<Page> {
    let fields = input.all()?;
    match deed {
        Deed::AddAlarm => {
            insert(platform, &ALARMS, &[fields[0], "1"]);
            platform.log("AlarmClock", &format!("alarm set time={}", fields[0]));
            Some(Page::Clock)
        }
        Deed::AddContact => {
            insert(platform, &CONTACTS, &fields);
            Some(Page::Contacts)
        }
        Deed::AddTask => {
            insert(platform, &TASKS, &[fields[0], "0"]);
            Some(Page::Tasks)
        }
        Deed::Send => {
            insert(platform, &MESSAGES, &fields);
            platform.log("Messaging", &format!("sent to={}", fields[0]));
            Some(Page::Messages)
        }
        Deed::StartTimer => {
            platform.log("Timer", &format!("started minutes={}", fields[0]));
            Some(Page::Clock)
        }
        _ => None,
    }
}

fn call(number: &str, platform: &dyn Platform) -> Page {
    insert(platform, &CALLS, &[number]);
    platform.log("Telecom", &format!("call placed number={number}"));
    Page::Calling(number.to_owned())
}

fn rename(old: &str, input: &Input, platform: &dyn Platform) -> Option<Page> {
    let new = input.name(0)?;
    let content = platform.read_file(&format!("{DOWNLOADS}/{old}"))?;
    if new != old && platform.write_file(&format!("{DOWNLOADS}/{new}"), content) {
        platform.remove_file(&format!("{DOWNLOADS}/{old}"));
    }
    Some(Page::Files)
}

fn take_picture(platform: &dyn Platform) {
    let taken = platform.file_names(PICTURES).len();
    let path = format!("{PICTURES}/IMG_{:04}.jpg", taken + 1);
    if platform.write_file(&path, vec![0xff, 0xd8, 0xff, 0xd9]) {
        platform.log("CameraApp", &format!("picture saved path={path}"));
    }
}

/// Forms that write a file.
fn write(deed: &Deed, input: &Input, platform: &dyn Platform) -> Option<Page> {
    let name = input.name(0)?;
    if *deed == Deed::Record {
        let path = format!("{RECORDINGS}/{name}.wav");
        if platform.write_file(&path, b"RIFF".to_vec()) {
            platform.log("Recorder", &format!("recording saved path={path}"));
        }
        return Some(Page::Recorder);
    }
    let text = input.field(1).as_bytes().to_vec();
    platform.write_file(&format!("{NOTES}/{name}.txt"), text);
    Some(Page::Notes)
}
