//! The phone with apps.

use std::sync::Arc;

use async_trait::async_trait;
use dart_core::{Action, Device, ErrorKind, Result, ScreenPx};
use dart_env_sim::{
    SimConfig,
    apps::{AppPhone, MemoryPlatform, Platform, Table},
};
use dart_testkit::{Settings, device::DeviceHarness, device_conformance};

/// A function call can neither stall nor be cut off.
const IN_PROCESS: &[&str] = &["c04", "c05"];

struct Apps;

#[async_trait]
impl DeviceHarness for Apps {
    type Device = AppPhone;

    fn settings(&self) -> Settings {
        Settings {
            not_applicable: IN_PROCESS,
            ..Settings::default()
        }
    }

    async fn make(&self) -> Result<Box<AppPhone>> {
        let mut phone = phone(&Arc::default());
        let name = "Settings".into();
        phone.perform(&Action::OpenApp { name }).await?;
        Ok(Box::new(phone))
    }

    async fn visible_action(&self, device: &mut AppPhone) -> Result<Action> {
        // A switch changes with every tap.
        let at = place(device, "Bluetooth").await;
        Ok(Action::Tap { at })
    }
}

device_conformance!(mod app_phone, Apps);

fn phone(platform: &Arc<MemoryPlatform>) -> AppPhone {
    let platform = Arc::clone(platform) as Arc<dyn Platform>;
    AppPhone::new(&SimConfig::phone(), platform).unwrap()
}

async fn texts(phone: &mut AppPhone) -> Vec<String> {
    let shown = phone.screenshot().await.unwrap();
    let elements = shown.ui.iter().flat_map(|all| all.iter());
    elements.map(|element| element.text.clone()).collect()
}

async fn place(phone: &mut AppPhone, text: &str) -> ScreenPx {
    let shown = phone.screenshot().await.unwrap();
    let mut elements = shown.ui.iter().flat_map(|all| all.iter()).rev();
    let found = elements.find(|element| element.text == text);
    found
        .unwrap_or_else(|| panic!("no {text} on the screen"))
        .bounds
        .center()
}

async fn tap(phone: &mut AppPhone, text: &str) {
    let at = place(phone, text).await;
    phone.perform(&Action::Tap { at }).await.unwrap();
}

async fn type_text(phone: &mut AppPhone, text: &str) {
    let text = text.to_owned();
    phone.perform(&Action::Type { text }).await.unwrap();
}

const ALARMS: Table = Table {
    database: "/data/data/com.android.deskclock/databases/alarms.db",
    name: "alarms",
    columns: &["time", "enabled"],
};

fn alarms(platform: &MemoryPlatform) -> Vec<Vec<String>> {
    let mut all = Vec::new();
    platform.edit_table(&ALARMS, &mut |rows| all.clone_from(rows));
    all
}

#[tokio::test]
async fn forms_write_into_the_system_and_lists_show_it() {
    let platform = Arc::new(MemoryPlatform::default());
    let mut phone = phone(&platform);
    tap(&mut phone, "Clock").await;
    assert_eq!(platform.front(), "com.android.deskclock");
    tap(&mut phone, "New alarm").await;
    // An empty form does nothing.
    tap(&mut phone, "Add").await;
    assert!(alarms(&platform).is_empty());
    tap(&mut phone, "").await;
    type_text(&mut phone, "07:30").await;
    tap(&mut phone, "Add").await;
    assert_eq!(alarms(&platform), [["07:30", "1"]]);
    assert_eq!(platform.lines(), ["AlarmClock: alarm set time=07:30"]);
    tap(&mut phone, "07:30").await;
    assert_eq!(alarms(&platform), [["07:30", "0"]]);
    phone.perform(&Action::NavigateHome).await.unwrap();
    assert_eq!(platform.front(), "com.android.launcher3");
}

#[tokio::test]
async fn what_changes_outside_is_seen_and_what_was_typed_stays() {
    let platform = Arc::new(MemoryPlatform::default());
    let mut phone = phone(&platform);
    phone
        .perform(&Action::OpenApp {
            name: "Tasks".into(),
        })
        .await
        .unwrap();
    tap(&mut phone, "").await;
    type_text(&mut phone, "half").await;
    let tasks = Table {
        database: "/data/data/dart.sim.tasks/databases/tasks.db",
        name: "tasks",
        columns: &["title", "done"],
    };
    platform.edit_table(&tasks, &mut |rows| {
        rows.push(vec!["from outside".into(), "0".into()]);
    });
    let seen = texts(&mut phone).await;
    assert!(seen.iter().any(|text| text == "half"), "{seen:?}");
    assert!(
        seen.iter().any(|text| text.starts_with("from out")),
        "{seen:?}"
    );
    type_text(&mut phone, " done").await;
    assert!(
        texts(&mut phone)
            .await
            .iter()
            .any(|text| text == "half done")
    );
}

#[tokio::test]
async fn switches_sliders_and_menus_work() {
    let platform = Arc::new(MemoryPlatform::default());
    let mut phone = phone(&platform);
    tap(&mut phone, "Settings").await;
    tap(&mut phone, "Bluetooth").await;
    assert_eq!(
        platform.setting("global", "bluetooth_on").as_deref(),
        Some("1")
    );
    tap(&mut phone, "7").await;
    assert_eq!(
        platform.setting("system", "volume_music").as_deref(),
        Some("7")
    );
    platform.write_file("/sdcard/Download/a.txt", b"x".to_vec());
    phone
        .perform(&Action::OpenApp {
            name: "documentsui".into(),
        })
        .await
        .unwrap();
    let at = place(&mut phone, "a.txt").await;
    phone.perform(&Action::LongPress { at }).await.unwrap();
    // Back closes the menu alone.
    phone.perform(&Action::NavigateBack).await.unwrap();
    assert_eq!(platform.front(), "com.android.documentsui");
    phone.perform(&Action::LongPress { at }).await.unwrap();
    tap(&mut phone, "Delete").await;
    assert!(platform.file_names("/sdcard/Download").is_empty());
    assert!(!texts(&mut phone).await.iter().any(|text| text == "a.txt"));
    phone.perform(&Action::NavigateBack).await.unwrap();
    assert_eq!(platform.front(), "com.android.launcher3");
}

#[tokio::test]
async fn names_of_files_cannot_lead_elsewhere() {
    let platform = Arc::new(MemoryPlatform::default());
    let mut phone = phone(&platform);
    for name in ["../x", "", ".x"] {
        phone
            .perform(&Action::OpenApp {
                name: "Recorder".into(),
            })
            .await
            .unwrap();
        tap(&mut phone, "").await;
        type_text(&mut phone, name).await;
        tap(&mut phone, "Record").await;
    }
    assert!(platform.lines().is_empty());
}

#[test]
fn a_desktop_has_no_apps() {
    let platform: Arc<MemoryPlatform> = Arc::default();
    let error = AppPhone::new(&SimConfig::default(), platform).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(AppPhone::packages().len() > 10);
}
