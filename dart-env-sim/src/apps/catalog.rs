//! Which apps there are, where they keep what they hold, and their pages.

use super::platform::Table;

/// What the phone shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Page {
    Home,
    About,
    Calling(String),
    Camera,
    Clock,
    Contact(usize),
    Contacts,
    File(String),
    Files,
    Messages,
    NewAlarm,
    NewContact,
    NewMessage,
    NewNote,
    Notes,
    Phone,
    Recorder,
    Settings,
    Tasks,
    Timer,
}

impl Page {
    /// Where the back key leads.
    pub(super) fn back(&self) -> Self {
        match self {
            Self::About => Self::Settings,
            Self::Calling(_) => Self::Phone,
            Self::Contact(_) | Self::NewContact => Self::Contacts,
            Self::File(_) => Self::Files,
            Self::NewAlarm | Self::Timer => Self::Clock,
            Self::NewMessage => Self::Messages,
            Self::NewNote => Self::Notes,
            _ => Self::Home,
        }
    }

    /// The app that it belongs to; `None` for the home screen.
    pub(super) fn app(&self) -> Option<&'static App> {
        let mut page = self.clone();
        while page != Self::Home {
            if let Some(app) = APPS.iter().find(|app| app.page == page) {
                return Some(app);
            }
            page = page.back();
        }
        None
    }
}

/// An app, named as on the home screen.
#[derive(Debug)]
pub(super) struct App {
    pub(super) name: &'static str,
    pub(super) package: &'static str,
    /// Where it begins.
    pub(super) page: Page,
}

const fn app(name: &'static str, package: &'static str, page: Page) -> App {
    App {
        name,
        package,
        page,
    }
}

/// All apps; packages as on Android where there is such an app.
pub(super) static APPS: [App; 10] = [
    app("Camera", "com.android.camera2", Page::Camera),
    app("Clock", "com.android.deskclock", Page::Clock),
    app("Contacts", "com.android.contacts", Page::Contacts),
    app("Files", "com.android.documentsui", Page::Files),
    app("Messages", "com.android.messaging", Page::Messages),
    app("Notes", "dart.sim.notes", Page::Notes),
    app("Phone", "com.android.dialer", Page::Phone),
    app("Recorder", "dart.sim.recorder", Page::Recorder),
    app("Settings", "com.android.settings", Page::Settings),
    app("Tasks", "dart.sim.tasks", Page::Tasks),
];

/// The package of the home screen.
pub(super) const LAUNCHER: &str = "com.android.launcher3";

/// The app called `name`, on the home screen or as the last part of its package.
pub(super) fn find(name: &str) -> Option<&'static App> {
    let last = |app: &App| app.package.rsplit('.').next().unwrap_or_default();
    let named = |app: &&App| {
        app.name.eq_ignore_ascii_case(name)
            || last(app).eq_ignore_ascii_case(name)
            || app.package == name
    };
    APPS.iter().find(named)
}

/// The folder that Files shows.
pub(super) const DOWNLOADS: &str = "/sdcard/Download";
/// Where notes are kept, one file each.
pub(super) const NOTES: &str = "/sdcard/Notes";
/// Where pictures are kept.
pub(super) const PICTURES: &str = "/sdcard/DCIM";
/// Where recordings are kept.
pub(super) const RECORDINGS: &str = "/sdcard/Recordings";

pub(super) const ALARMS: Table = Table {
    database: "/data/data/com.android.deskclock/databases/alarms.db",
    name: "alarms",
    columns: &["time", "enabled"],
};
pub(super) const CALLS: Table = Table {
    database: "/data/data/com.android.dialer/databases/calls.db",
    name: "calls",
    columns: &["number"],
};
pub(super) const CONTACTS: Table = Table {
    database: "/data/data/com.android.contacts/databases/contacts.db",
    name: "contacts",
    columns: &["name", "number"],
};
pub(super) const MESSAGES: Table = Table {
    database: "/data/data/com.android.messaging/databases/messages.db",
    name: "messages",
    columns: &["number", "body"],
};
pub(super) const TASKS: Table = Table {
    database: "/data/data/dart.sim.tasks/databases/tasks.db",
    name: "tasks",
    columns: &["title", "done"],
};
