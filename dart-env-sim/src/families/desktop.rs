//! Task families of the desktop.

use dart_core::Rect;

use super::{Family, Scene, quoted};
use crate::{
    config::SimDeviceKind,
    geom::bottom,
    goal::{Goal, Need},
    layout::Builder,
    ui::{BAR, Command, Id, Kind, SCROLL_BAR, SLIDER_HEIGHT, TAB, TICK, TextEdit},
};

const fn family(
    name: &'static str,
    horizon: u32,
    build: fn(Builder<'_>) -> Option<Scene>,
) -> Family {
    Family {
        name,
        device: SimDeviceKind::Desktop,
        horizon,
        build,
    }
}

pub(super) const FAMILIES: &[Family] = &[
    family("click-button", 4, click_button),
    family("tick-boxes", 7, tick_boxes),
    family("enter-text", 7, enter_text),
    family("menu", 6, menu),
    family("dialog", 4, dialog),
    family("slider", 5, slider),
    family("scroll-list", 7, scroll_list),
    family("form", 10, form),
    family("copy-text", 10, copy_text),
    family("tabs", 6, tabs),
];

/// A button; also what a tab or a menu entry measures.
const BUTTON: (u32, u32) = (40, 16);
/// A widget with a mark in front of its text, or a text field.
const LINE: (u32, u32) = (56, 16);

fn button(text: String) -> Kind {
    Kind::Button {
        text,
        primary: false,
    }
}

/// Four buttons, one of them named.
fn click_button(mut b: Builder<'_>) -> Option<Scene> {
    let labels = b.words.take(4);
    for label in &labels {
        b.add(BUTTON, button(label.clone()))?;
    }
    let target = b.words.below(labels.len());
    Some(Scene {
        instruction: format!("click {}", quoted(&labels[target..=target])),
        ui: b.ui,
        goal: Goal {
            needs: Vec::new(),
            finish: Command::Pressed(target),
        },
    })
}

/// Three checkboxes, one or two of them named, then Submit.
fn tick_boxes(mut b: Builder<'_>) -> Option<Scene> {
    let labels = b.words.take(3);
    for text in labels.clone() {
        b.add(LINE, Kind::Checkbox { text, on: false })?;
    }
    let submit = b.add_submit()?;
    let first = b.words.below(3);
    let second = match b.words.below(2) {
        0 => None,
        _ => Some((first + 1 + b.words.below(2)) % 3),
    };
    let wanted = |id: Id| id == first || Some(id) == second;
    let named: Vec<_> = [Some(first), second].into_iter().flatten().collect();
    let named: Vec<_> = named.into_iter().map(|id| &labels[id]).collect();
    Some(Scene {
        instruction: format!("tick {}", quoted(&named)),
        ui: b.ui,
        goal: Goal {
            needs: (0..3).map(|id| Need::On(id, wanted(id))).collect(),
            finish: Command::Pressed(submit),
        },
    })
}

/// An empty field to fill, then Submit.
fn enter_text(mut b: Builder<'_>) -> Option<Scene> {
    let word = b.words.next();
    let field = b.add(LINE, Kind::Field(TextEdit::default()))?;
    let submit = b.add_submit()?;
    Some(Scene {
        instruction: format!("type \"{word}\" in the field"),
        ui: b.ui,
        goal: Goal {
            needs: vec![Need::Text(field, word)],
            finish: Command::Pressed(submit),
        },
    })
}

/// Two menus of three entries each.
fn menu(mut b: Builder<'_>) -> Option<Scene> {
    const ENTRIES: usize = 3;
    let labels = b.words.take(2 + 2 * ENTRIES);
    for menu in 0..2 {
        let text = labels[menu].clone();
        let entries = labels[2 + menu * ENTRIES..][..ENTRIES].to_vec();
        let id = b.add((48, 16), Kind::Menu { text, entries })?;
        let (rect, room) = (b.ui.rect(id), ENTRIES as i32 * BAR as i32);
        if rect.y < room && bottom(rect) + room > bottom(b.ui.screen()) {
            return None;
        }
    }
    let (owner, entry) = (b.words.below(2), b.words.below(ENTRIES));
    let way = [&labels[owner], &labels[2 + owner * ENTRIES + entry]];
    Some(Scene {
        instruction: format!("menu {}", quoted(&way)),
        ui: b.ui,
        goal: Goal {
            needs: Vec::new(),
            finish: Command::Chose { owner, entry },
        },
    })
}

/// Two windows, one of them to be closed.
fn dialog(mut b: Builder<'_>) -> Option<Scene> {
    let titles = b.words.take(2);
    for text in titles.clone() {
        b.add((56, 32), Kind::Window { text })?;
    }
    let target = b.words.below(2);
    Some(Scene {
        instruction: format!("close {}", quoted(&titles[target..=target])),
        ui: b.ui,
        goal: Goal {
            needs: Vec::new(),
            finish: Command::Closed(target),
        },
    })
}

/// A slider from 0 to 8, then Submit.
fn slider(mut b: Builder<'_>) -> Option<Scene> {
    const MAX: i32 = 8;
    let wanted = b.words.below(MAX as usize + 1) as i32;
    let value = (wanted + 1 + b.words.below(MAX as usize) as i32) % (MAX + 1);
    // Half a step to the right puts every tick in the middle of an 8-px cell.
    let half = b.half();
    let area = b.area();
    let area = Rect::new(half, area.y, area.width - half as u32, area.height);
    let width = ((MAX + 2) * TICK) as u32;
    let rect = b.place(area, (width, SLIDER_HEIGHT))?;
    let slider = b.ui.add(rect, Kind::Slider { value, max: MAX });
    let submit = b.add_submit()?;
    Some(Scene {
        instruction: format!("set {wanted}"),
        ui: b.ui,
        goal: Goal {
            needs: vec![Need::Value(slider, wanted)],
            finish: Command::Pressed(submit),
        },
    })
}

/// A list, half of which is out of view; one row is to be picked.
fn scroll_list(mut b: Builder<'_>) -> Option<Scene> {
    let shown = b.vary(3..=4);
    let width = b.vary(6..=9) * 8;
    let area = b.area();
    let area = Rect::new(8, area.y, area.width - 16, area.height);
    let rect = b.place(area, (width, shown * BAR))?;
    let labels = b.words.take(2 * shown as usize);
    let view = b.ui.add(
        rect,
        Kind::Scroll {
            offset: 0,
            content: (2 * shown * BAR) as i32,
            row: BAR as i32,
        },
    );
    for (index, text) in (0..).zip(labels.clone()) {
        let y = rect.y + index * BAR as i32;
        let row = Rect::new(rect.x, y, width - SCROLL_BAR, BAR);
        let item = Kind::Item {
            text,
            pickable: true,
            context: &[],
            selected: false,
        };
        b.ui.add_to(view, 0, row, item);
    }
    let target = b.words.below(labels.len());
    Some(Scene {
        instruction: format!("pick {}", quoted(&labels[target..=target])),
        ui: b.ui,
        goal: Goal {
            needs: Vec::new(),
            finish: Command::Picked(view + 1 + target),
        },
    })
}

/// A checkbox, a field and two radios, then Submit.
fn form(mut b: Builder<'_>) -> Option<Scene> {
    let labels = b.words.take(4);
    let [tick, word, left, right] = <[String; 4]>::try_from(labels).ok()?;
    let text = tick.clone();
    let checkbox = b.add(LINE, Kind::Checkbox { text, on: false })?;
    let field = b.add(LINE, Kind::Field(TextEdit::default()))?;
    let mut radio = |text: &String| {
        let text = text.clone();
        b.add(LINE, Kind::Radio { text, on: false })
    };
    let radios = [radio(&left)?, radio(&right)?];
    let submit = b.add_submit()?;
    let choice = b.words.below(2);
    let chosen = [left, right][choice].clone();
    Some(Scene {
        instruction: format!("check \"{tick}\" type \"{word}\" choose \"{chosen}\""),
        ui: b.ui,
        goal: Goal {
            needs: vec![
                Need::On(checkbox, true),
                Need::Text(field, word),
                Need::On(radios[choice], true),
            ],
            finish: Command::Pressed(submit),
        },
    })
}

/// A full field and an empty one: copy and paste, then Submit.
fn copy_text(mut b: Builder<'_>) -> Option<Scene> {
    let text = b.words.next();
    // The last line stays free for the notice "copied", without which the screen would not show
    // what is in the clipboard.
    let area = b.area();
    let area = Rect::new(area.x, area.y, area.width, area.height - 8);
    let mut field = |edit| {
        let rect = b.place(area, LINE)?;
        Some(b.ui.add(rect, Kind::Field(edit)))
    };
    let from = field(TextEdit::holding(&text))?;
    let to = field(TextEdit::default())?;
    let rect = b.place(area, (48, 16))?;
    let submit = Kind::Button {
        text: "Submit".to_owned(),
        primary: true,
    };
    let submit = b.ui.add(rect, submit);
    Some(Scene {
        instruction: "copy the text".to_owned(),
        ui: b.ui,
        goal: Goal {
            needs: vec![Need::Copied { from, to, text }],
            finish: Command::Pressed(submit),
        },
    })
}

/// Three tabs with two buttons each; one button of one tab is to be pressed.
fn tabs(mut b: Builder<'_>) -> Option<Scene> {
    const PAGES: usize = 3;
    let titles = b.words.take(PAGES);
    let labels = b.words.take(2 * PAGES);
    let current = b.words.below(PAGES);
    let rect = b.place(b.area(), (PAGES as u32 * TAB, 64))?;
    let book = Kind::Tabs {
        titles: titles.clone(),
        current,
    };
    let book = b.ui.add(rect, book);
    let inside = Rect::new(rect.x + 8, rect.y + 24, rect.width - 16, 36);
    for (index, text) in labels.iter().enumerate() {
        if index % 2 == 0 {
            b.new_page();
        }
        let place = b.place(inside, BUTTON)?;
        b.ui.add_to(book, index / 2, place, button(text.clone()));
    }
    let target = b.words.below(labels.len());
    let (title, label) = (&titles[target / 2], &labels[target]);
    Some(Scene {
        instruction: format!("open \"{title}\" press \"{label}\""),
        ui: b.ui,
        goal: Goal {
            needs: Vec::new(),
            finish: Command::Pressed(book + 1 + target),
        },
    })
}
