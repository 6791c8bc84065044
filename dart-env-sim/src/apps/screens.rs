//! What is on each page.

use dart_core::Size;

use super::{
    catalog::{
        ALARMS, APPS, CALLS, CONTACTS, DOWNLOADS, MESSAGES, NOTES, PICTURES, Page, RECORDINGS,
        TASKS,
    },
    form::{Binding, Deed, Entry, Form},
    platform::{Platform, Row, Table},
};

/// What a slider goes to: one digit below each tick.
const LOUDEST: i32 = 9;

/// The page as things stand.
pub(super) fn build(page: &Page, platform: &dyn Platform, size: Size) -> Form {
    let mut form = Form::new(size);
    let f = &mut form;
    match page {
        Page::Home => {
            let apps = APPS.iter().map(|app| {
                let tap = Some(Deed::Go(app.page.clone()));
                Entry {
                    tap,
                    ..Entry::plain(app.name)
                }
            });
            f.list(apps.collect());
        }
        Page::Settings => settings(f, platform),
        Page::About => {
            f.label("About");
            let name = platform.setting("global", "device_name");
            f.label(name.unwrap_or_else(|| "dart phone".into()));
            f.label("Android 13");
        }
        Page::Contacts | Page::Contact(_) | Page::NewContact => contacts(f, page, platform),
        Page::Messages | Page::NewMessage => messages(f, page, platform),
        Page::Notes | Page::NewNote => notes(f, page, platform),
        Page::Files | Page::File(_) => files(f, page, platform),
        Page::Clock | Page::NewAlarm | Page::Timer => clock(f, page, platform),
        Page::Phone | Page::Calling(_) => phone(f, page, platform),
        Page::Camera | Page::Recorder => recordings(f, page, platform),
        Page::Tasks => {
            f.field("New task");
            f.button("Add", Deed::AddTask);
            f.list(ticks(platform, TASKS));
        }
    }
    form
}

/// The rows of a table.
pub(super) fn rows(platform: &dyn Platform, table: &Table) -> Vec<Row> {
    let mut all = Vec::new();
    platform.edit_table(table, &mut |rows| all.clone_from(rows));
    all
}

fn cell(row: &Row, column: usize) -> &str {
    row.get(column).map(String::as_str).unwrap_or_default()
}

/// Rows with a tick for the second column.
fn ticks(platform: &dyn Platform, table: Table) -> Vec<Entry> {
    let rows = rows(platform, &table);
    let entry = |(number, row): (usize, &Row)| Entry {
        tick: Some((cell(row, 1) == "1", Binding::Cell(table, number, 1))),
        ..Entry::plain(cell(row, 0))
    };
    rows.iter().enumerate().map(entry).collect()
}

fn settings(f: &mut Form, platform: &dyn Platform) {
    f.label("Settings");
    for (text, space, key) in [
        ("Wi-Fi", "global", "wifi_on"),
        ("Bluetooth", "global", "bluetooth_on"),
        ("Rotate", "system", "accelerometer_rotation"),
        ("Dark mode", "secure", "ui_night_mode"),
    ] {
        let on = platform.setting(space, key).as_deref() == Some("1");
        f.switch(text, on, (space, key));
    }
    f.label("Volume");
    let (space, key) = ("system", "volume_music");
    let volume = platform
        .setting(space, key)
        .and_then(|value| value.parse().ok());
    let volume: i32 = volume.unwrap_or(0);
    f.slider(
        volume.clamp(0, LOUDEST),
        LOUDEST,
        Binding::Setting(space, key),
    );
    f.link("About", Deed::Go(Page::About));
}

fn contacts(f: &mut Form, page: &Page, platform: &dyn Platform) {
    match page {
        Page::NewContact => {
            f.field("Name");
            f.field("Number");
            f.button("Save", Deed::AddContact);
        }
        Page::Contact(number) => {
            let rows = rows(platform, &CONTACTS);
            // Somebody may have deleted it.
            let empty = Row::new();
            let row = rows.get(*number).unwrap_or(&empty);
            f.label(cell(row, 0));
            f.label(cell(row, 1));
            f.button("Call", Deed::Call(cell(row, 1).to_owned()));
        }
        _ => {
            f.label("Contacts");
            f.button("New contact", Deed::Go(Page::NewContact));
            let rows = rows(platform, &CONTACTS);
            let entry = |(number, row): (usize, &Row)| Entry {
                tap: Some(Deed::Go(Page::Contact(number))),
                delete: Some(Deed::DeleteRow(CONTACTS, number)),
                ..Entry::plain(cell(row, 0))
            };
            f.list(rows.iter().enumerate().map(entry).collect());
        }
    }
}

fn messages(f: &mut Form, page: &Page, platform: &dyn Platform) {
    if *page == Page::NewMessage {
        f.field("To");
        f.field("Text");
        f.button("Send", Deed::Send);
        return;
    }
    f.label("Messages");
    f.button("New message", Deed::Go(Page::NewMessage));
    let rows = rows(platform, &MESSAGES);
    let entry = |(number, row): (usize, &Row)| Entry {
        delete: Some(Deed::DeleteRow(MESSAGES, number)),
        ..Entry::plain(cell(row, 1))
    };
    f.list(rows.iter().enumerate().map(entry).collect());
}

fn notes(f: &mut Form, page: &Page, platform: &dyn Platform) {
    if *page == Page::NewNote {
        f.field("Title");
        f.field("Text");
        f.button("Save", Deed::SaveNote);
        return;
    }
    f.label("Notes");
    f.button("New note", Deed::Go(Page::NewNote));
    let names = platform.file_names(NOTES).into_iter();
    let entry = |name: String| Entry {
        delete: Some(Deed::DeleteFile(format!("{NOTES}/{name}"))),
        ..Entry::plain(name.trim_end_matches(".txt"))
    };
    f.list(names.map(entry).collect());
}

fn files(f: &mut Form, page: &Page, platform: &dyn Platform) {
    if let Page::File(name) = page {
        f.label(name.clone());
        f.field("New name");
        f.button("Rename", Deed::Rename(name.clone()));
        f.button("Delete", Deed::DeleteFile(format!("{DOWNLOADS}/{name}")));
        return;
    }
    f.label("Files");
    let names = platform.file_names(DOWNLOADS).into_iter();
    let entry = |name: String| Entry {
        tap: Some(Deed::Go(Page::File(name.clone()))),
        delete: Some(Deed::DeleteFile(format!("{DOWNLOADS}/{name}"))),
        ..Entry::plain(name)
    };
    f.list(names.map(entry).collect());
}

fn clock(f: &mut Form, page: &Page, platform: &dyn Platform) {
    match page {
        Page::NewAlarm => {
            f.field("Time");
            f.button("Add", Deed::AddAlarm);
        }
        Page::Timer => {
            f.field("Minutes");
            f.button("Start", Deed::StartTimer);
        }
        _ => {
            f.label("Clock");
            f.button("New alarm", Deed::Go(Page::NewAlarm));
            f.button("Timer", Deed::Go(Page::Timer));
            f.list(ticks(platform, ALARMS));
        }
    }
}

fn phone(f: &mut Form, page: &Page, platform: &dyn Platform) {
    if let Page::Calling(number) = page {
        f.label("Calling");
        f.label(number.clone());
        f.button("End call", Deed::Go(Page::Phone));
        return;
    }
    f.field("Number");
    f.button("Call", Deed::CallTyped);
    let rows = rows(platform, &CALLS);
    let calls = rows.iter().rev();
    f.list(calls.map(|row| Entry::plain(cell(row, 0))).collect());
}

fn recordings(f: &mut Form, page: &Page, platform: &dyn Platform) {
    let folder = if *page == Page::Camera {
        f.label("Camera");
        f.button("Take picture", Deed::TakePicture);
        PICTURES
    } else {
        f.field("Name");
        f.button("Record", Deed::Record);
        RECORDINGS
    };
    let names = platform.file_names(folder);
    f.list(names.into_iter().map(Entry::plain).collect());
}
