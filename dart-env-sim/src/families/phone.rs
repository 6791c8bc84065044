//! Task families of the phone.

use dart_core::Rect;

use super::{Family, Scene, quoted};
use crate::{
    config::SimDeviceKind,
    goal::Goal,
    layout::Builder,
    ui::{Command, Kind, SCROLL_BAR},
};

const fn family(
    name: &'static str,
    horizon: u32,
    build: fn(Builder<'_>) -> Option<Scene>,
) -> Family {
    Family {
        name,
        device: SimDeviceKind::Phone,
        horizon,
        build,
    }
}

pub(super) const FAMILIES: &[Family] = &[
    family("open-app", 4, open_app),
    family("toggle-setting", 4, toggle_setting),
    family("delete-item", 6, delete_item),
    family("find-item", 7, find_item),
];

/// Height of a row under a finger, px.
const ROW: u32 = 24;
/// What a long press on an item offers.
const CONTEXT: &[&str] = &["Copy", "Delete"];

fn scene(b: Builder<'_>, instruction: String, finish: Command) -> Scene {
    let goal = Goal {
        needs: Vec::new(),
        finish,
    };
    Scene {
        instruction,
        ui: b.ui,
        goal,
    }
}

/// The launcher: six apps, one of them named.
fn open_app(mut b: Builder<'_>) -> Option<Scene> {
    let names = b.words.take(6);
    for text in names.clone() {
        let hue = b.words.below(6);
        b.add((32, 32), Kind::Icon { text, hue })?;
    }
    let target = b.words.below(names.len());
    let instruction = format!("open {}", quoted(&names[target..=target]));
    Some(scene(b, instruction, Command::Opened(target)))
}

/// Four switches, one of them named.
fn toggle_setting(mut b: Builder<'_>) -> Option<Scene> {
    let names = b.words.take(4);
    for text in names.clone() {
        let on = b.words.below(2) == 0;
        let rect = b.place(b.ui.screen(), (80, ROW))?;
        b.ui.add(rect, Kind::Switch { text, on });
    }
    let target = b.words.below(names.len());
    let instruction = format!("toggle {}", quoted(&names[target..=target]));
    Some(scene(b, instruction, Command::Switched(target)))
}

/// Four items; one is to be deleted by the menu that a long press opens.
fn delete_item(mut b: Builder<'_>) -> Option<Scene> {
    let names = b.words.take(4);
    for text in names.clone() {
        let rect = b.place(b.ui.screen(), (80, ROW))?;
        let item = Kind::Item {
            text,
            pickable: false,
            context: CONTEXT,
            selected: false,
        };
        b.ui.add(rect, item);
    }
    let owner = b.words.below(names.len());
    let instruction = format!("delete {}", quoted(&names[owner..=owner]));
    let entry = CONTEXT.iter().position(|entry| *entry == "Delete")?;
    Some(scene(b, instruction, Command::Chose { owner, entry }))
}

/// A list, half of which is out of view; one row is to be tapped.
fn find_item(mut b: Builder<'_>) -> Option<Scene> {
    let shown = b.vary(3..=5);
    let width = b.vary(7..=10) * 8;
    let screen = b.ui.screen();
    let area = Rect::new(8, 8, screen.width - 8, screen.height - 8);
    let rect = b.place(area, (width, shown * ROW))?;
    let names = b.words.take(2 * shown as usize);
    let view = b.ui.add(
        rect,
        Kind::Scroll {
            offset: 0,
            content: (2 * shown * ROW) as i32,
            row: ROW as i32,
        },
    );
    for (index, text) in (0..).zip(names.clone()) {
        let y = rect.y + index * ROW as i32;
        let row = Rect::new(rect.x, y, width - SCROLL_BAR, ROW);
        let item = Kind::Item {
            text,
            pickable: true,
            context: &[],
            selected: false,
        };
        b.ui.add_to(view, 0, row, item);
    }
    let target = b.words.below(names.len());
    let instruction = format!("find {}", quoted(&names[target..=target]));
    let finish = Command::Picked(view + 1 + target);
    Some(scene(b, instruction, finish))
}
