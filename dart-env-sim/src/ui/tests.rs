use dart_core::{Direction, Modifier, Modifiers, MouseButton, NamedKey};

use super::*;
use crate::{canvas::Canvas, geom::cell_target};

const SCREEN: Size = Size::new(128, 96);

fn desktop() -> Ui {
    Ui::new(SCREEN, false)
}

fn line(y: i32) -> Rect {
    Rect::new(8, y, 56, 16)
}

fn field(ui: &mut Ui, y: i32, text: &str) -> Id {
    ui.add(line(y), Kind::Field(TextEdit::holding(text)))
}

fn click(ui: &mut Ui, id: Id, count: u8) {
    let at = ui.rect(id).center();
    ui.click(at, MouseButton::Left, count, Modifiers::NONE);
}

fn click_at(ui: &mut Ui, x: i32, y: i32) {
    ui.click(ScreenPx::new(x, y), MouseButton::Left, 1, Modifiers::NONE);
}

fn text(ui: &Ui, id: Id) -> String {
    match ui.kind(id) {
        Kind::Field(edit) => edit.text(),
        _ => panic!("{id} is no field"),
    }
}

fn is_on(ui: &Ui, id: Id) -> bool {
    match ui.kind(id) {
        Kind::Checkbox { on, .. } | Kind::Radio { on, .. } | Kind::Switch { on, .. } => *on,
        _ => panic!("{id} is not on or off"),
    }
}

fn value(ui: &Ui, id: Id) -> i32 {
    match ui.kind(id) {
        Kind::Slider { value, .. } => *value,
        _ => panic!("{id} is no slider"),
    }
}

fn offset(ui: &Ui, id: Id) -> i32 {
    match ui.kind(id) {
        Kind::Scroll { offset, .. } => *offset,
        _ => panic!("{id} does not scroll"),
    }
}

fn named(key: NamedKey) -> Key {
    Key::Named(key)
}

fn ctrl(ui: &mut Ui, letter: char) {
    ui.hotkey(&[named(NamedKey::Ctrl), Key::Char(letter)]);
}

/// A list of `rows` rows of which four are shown; the view and its first row.
fn list(ui: &mut Ui, rows: i32) -> (Id, Id) {
    let view = Kind::Scroll {
        offset: 0,
        content: rows * 16,
        row: 16,
    };
    let view = ui.add(Rect::new(8, 4, 64, 64), view);
    for row in 0..rows {
        let item = Kind::Item {
            text: format!("row{row}"),
            pickable: true,
            context: &["Copy", "Delete"],
            selected: false,
        };
        ui.add_to(view, 0, Rect::new(8, 4 + row * 16, 56, 16), item);
    }
    (view, view + 1)
}

fn texts(ui: &Ui) -> Vec<String> {
    let elements = ui.paint(&mut Canvas::new(ui.size));
    elements.into_iter().map(|element| element.text).collect()
}

#[test]
fn typing_goes_to_the_focused_field_only() {
    let mut ui = desktop();
    let (first, second) = (field(&mut ui, 4, ""), field(&mut ui, 28, "old"));
    ui.type_text("lost");
    assert_eq!(
        (text(&ui, first), text(&ui, second)),
        (String::new(), "old".into())
    );
    click(&mut ui, first, 1);
    ui.type_text("abc");
    assert_eq!(
        (text(&ui, first).as_str(), text(&ui, second).as_str()),
        ("abc", "old")
    );
    click_at(&mut ui, 120, 90);
    ui.type_text("lost");
    assert_eq!(text(&ui, first), "abc");
}

#[test]
fn a_click_places_the_caret_and_shift_extends() {
    let mut ui = desktop();
    let id = field(&mut ui, 4, "abcd");
    let column = |n: i32| ScreenPx::new(8 + 5 + 6 * n, 12);
    ui.click(column(1), MouseButton::Left, 1, Modifiers::NONE);
    ui.type_text("X");
    assert_eq!(text(&ui, id), "aXbcd");
    ui.click(
        column(5),
        MouseButton::Left,
        1,
        Modifiers::NONE.with(Modifier::Shift),
    );
    ui.hotkey(&[named(NamedKey::Backspace)]);
    assert_eq!(text(&ui, id), "aX");
    ui.drag(Some(column(0)), column(1));
    ui.type_text("Y");
    assert_eq!(text(&ui, id), "YX");
}

#[test]
fn the_clipboard_copies_cuts_and_pastes() {
    let mut ui = desktop();
    let (from, to) = (field(&mut ui, 4, "lamp"), field(&mut ui, 28, ""));
    ctrl(&mut ui, 'v');
    click(&mut ui, from, 1);
    ctrl(&mut ui, 'c');
    assert_eq!((ui.clipboard.as_str(), ui.notice), ("", None));
    click(&mut ui, from, 2);
    ctrl(&mut ui, 'c');
    assert_eq!((ui.clipboard.as_str(), ui.notice), ("lamp", Some("copied")));
    assert!(texts(&ui).contains(&"copied".to_owned()));
    click(&mut ui, to, 1);
    ctrl(&mut ui, 'v');
    ctrl(&mut ui, 'V');
    assert_eq!(text(&ui, to), "lamplamp");
    ctrl(&mut ui, 'a');
    ctrl(&mut ui, 'x');
    assert_eq!(
        (text(&ui, to).as_str(), ui.clipboard.as_str()),
        ("", "lamplamp")
    );
    assert_eq!(text(&ui, from), "lamp");
}

#[test]
fn held_keys_act_until_released() {
    let mut ui = desktop();
    let id = field(&mut ui, 4, "lamp");
    click(&mut ui, id, 1);
    ui.key_down(named(NamedKey::Ctrl));
    ui.hotkey(&[Key::Char('a')]);
    assert_eq!(ui.held(), 1);
    ui.key_up(named(NamedKey::Ctrl));
    ui.hotkey(&[Key::Char('a')]);
    assert_eq!(text(&ui, id), "a");
    ui.mouse_down(MouseButton::Left);
    ui.key_down(Key::Char('z'));
    assert_eq!(ui.held(), 2);
    ui.release_all();
    assert_eq!(ui.held(), 0);
}

#[test]
fn boxes_toggle_and_radios_exclude_each_other() {
    let mut ui = desktop();
    let on = false;
    let text = || "word".to_owned();
    let tick = ui.add(line(4), Kind::Checkbox { text: text(), on });
    let radios = [28, 52].map(|y| ui.add(line(y), Kind::Radio { text: text(), on }));
    click(&mut ui, tick, 1);
    assert!(is_on(&ui, tick));
    click(&mut ui, tick, 2);
    assert!(is_on(&ui, tick));
    click(&mut ui, tick, 1);
    for chosen in [0, 1, 1, 0] {
        click(&mut ui, radios[chosen], 1);
        assert!(is_on(&ui, radios[chosen]) && !is_on(&ui, radios[1 - chosen]));
    }
    assert!(!is_on(&ui, tick) && ui.commands.is_empty());
}

#[test]
fn a_button_is_pressed_by_release_inside() {
    let mut ui = desktop();
    let (text, primary) = ("ok".to_owned(), false);
    let id = ui.add(line(4), Kind::Button { text, primary });
    ui.move_to(ui.rect(id).center());
    ui.mouse_down(MouseButton::Left);
    assert!(ui.commands.is_empty());
    ui.move_to(ScreenPx::new(100, 90));
    ui.mouse_up(MouseButton::Left);
    ui.click(ui.rect(id).center(), MouseButton::Right, 1, Modifiers::NONE);
    ui.drag(Some(ScreenPx::new(100, 90)), ui.rect(id).center());
    assert!(ui.commands.is_empty());
    click(&mut ui, id, 1);
    assert_eq!(ui.commands, [Command::Pressed(id)]);
}

#[test]
fn keys_reach_every_widget() {
    let mut ui = desktop();
    let id = field(&mut ui, 4, "x");
    let on = false;
    let tick = ui.add(
        line(28),
        Kind::Checkbox {
            text: "t".into(),
            on,
        },
    );
    let (text, primary) = ("ok".to_owned(), true);
    let ok = ui.add(line(52), Kind::Button { text, primary });
    ui.type_text("\tab\t ");
    assert_eq!(self::text(&ui, id), "ab");
    assert!(is_on(&ui, tick));
    ui.hotkey(&[named(NamedKey::Shift), named(NamedKey::Tab)]);
    assert_eq!(ui.focus, Some(id));
    ui.type_text("\n");
    ui.hotkey(&[named(NamedKey::Shift), named(NamedKey::Tab)]);
    assert_eq!(ui.focus, Some(ok));
    ui.type_text(" ");
    assert_eq!(ui.commands, [Command::Pressed(ok), Command::Pressed(ok)]);
}

#[test]
fn a_slider_clamps() {
    let mut ui = desktop();
    let rect = Rect::new(12, 4, 80, 24);
    let id = ui.add(rect, Kind::Slider { value: 4, max: 8 });
    for wanted in [0, 3, 8] {
        let at = tick(rect, wanted);
        assert_eq!(
            cell_target(Rect::new(at.x, at.y, 1, 1)),
            at,
            "ticks are cell centres"
        );
        ui.click(at, MouseButton::Left, 1, Modifiers::NONE);
        assert_eq!(value(&ui, id), wanted);
    }
    click_at(&mut ui, 12, 10);
    assert_eq!(value(&ui, id), 0);
    ui.drag(Some(tick(rect, 0)), ScreenPx::new(127, 90));
    assert_eq!(value(&ui, id), 8);
    ui.hotkey(&[named(NamedKey::Right)]);
    assert_eq!(value(&ui, id), 8);
    ui.hotkey(&[named(NamedKey::Left)]);
    assert_eq!(value(&ui, id), 7);
}

#[test]
fn scrolling_clamps_and_hides_rows() {
    let mut ui = desktop();
    let (view, first) = list(&mut ui, 9);
    let at = Some(ui.rect(view).center());
    ui.scroll(at, Direction::Up, 5);
    assert_eq!(offset(&ui, view), 0);
    ui.scroll(at, Direction::Down, 2);
    assert_eq!(offset(&ui, view), 32);
    assert_eq!(texts(&ui)[..4], ["row2", "row3", "row4", "row5"]);
    assert!(!ui.visible(first + 1) && ui.visible(first + 2));
    // Never more than a page less one row, so that no row is skipped.
    ui.scroll(at, Direction::Down, 50);
    assert_eq!(offset(&ui, view), 80);
    ui.scroll(at, Direction::Down, 50);
    assert_eq!(offset(&ui, view), 80);
    click_at(&mut ui, 20, 10);
    assert_eq!(ui.commands, [Command::Picked(first + 5)]);
    ui.scroll(Some(ScreenPx::new(120, 90)), Direction::Up, 5);
    assert_eq!(offset(&ui, view), 80);
}

#[test]
fn a_scroll_bar_can_be_dragged() {
    let mut ui = desktop();
    let (view, _) = list(&mut ui, 12);
    click_at(&mut ui, 68, 66);
    assert_eq!(offset(&ui, view), 128);
    ui.drag(Some(ScreenPx::new(68, 66)), ScreenPx::new(68, 5));
    assert_eq!(offset(&ui, view), 0);
    assert!(ui.commands.is_empty());
}

#[test]
fn a_menu_opens_chooses_and_closes() {
    let mut ui = desktop();
    let menu = |text: &str| Kind::Menu {
        text: text.into(),
        entries: vec!["one".into(), "two".into()],
    };
    let top = ui.add(Rect::new(8, 4, 48, 16), menu("top"));
    let low = ui.add(Rect::new(72, 76, 48, 16), menu("low"));
    let behind = ui.add(
        Rect::new(8, 20, 48, 16),
        Kind::Checkbox {
            text: "t".into(),
            on: false,
        },
    );
    click(&mut ui, top, 1);
    let popup = ui.popup.clone().unwrap();
    assert_eq!((popup.owner, popup.rect), (top, Rect::new(8, 20, 48, 32)));
    assert!(
        !texts(&ui).contains(&"t".to_owned()),
        "a covered text is not listed"
    );
    click_at(&mut ui, 100, 60);
    assert_eq!(ui.popup, None);
    click(&mut ui, top, 1);
    click(&mut ui, low, 1);
    let above = ui.popup.clone().unwrap();
    assert_eq!((above.owner, above.rect.y), (low, 44));
    ui.hotkey(&[named(NamedKey::Escape)]);
    assert_eq!(ui.popup, None);
    click(&mut ui, top, 1);
    ui.click(
        popup.entry_rect(1).center(),
        MouseButton::Left,
        1,
        Modifiers::NONE,
    );
    assert_eq!(
        ui.commands,
        [Command::Chose {
            owner: top,
            entry: 1
        }]
    );
    assert!(!is_on(&ui, behind) && ui.popup.is_none());
}

#[test]
fn windows_close_and_tabs_switch() {
    let mut ui = desktop();
    let window = ui.add(
        Rect::new(8, 4, 56, 32),
        Kind::Window {
            text: "mail".into(),
        },
    );
    let titles = vec!["one".into(), "two".into()];
    let tabs = ui.add(Rect::new(8, 44, 80, 48), Kind::Tabs { titles, current: 0 });
    let inside = Rect::new(16, 68, 40, 16);
    let button = |text: &str| Kind::Button {
        text: text.into(),
        primary: false,
    };
    let pages = [0, 1].map(|page| ui.add_to(tabs, page, inside, button("b")));
    assert!(ui.visible(pages[0]) && !ui.visible(pages[1]));
    let second = tab_rect(ui.rect(tabs), 1).center();
    ui.click(second, MouseButton::Left, 1, Modifiers::NONE);
    assert!(!ui.visible(pages[0]) && ui.visible(pages[1]));
    click(&mut ui, window, 1);
    assert!(
        ui.commands.is_empty(),
        "a click into a window does not close it"
    );
    let close = close_box(ui.rect(window)).center();
    ui.click(close, MouseButton::Left, 1, Modifiers::NONE);
    click(&mut ui, pages[1], 1);
    assert_eq!(
        ui.commands,
        [Command::Closed(window), Command::Pressed(pages[1])]
    );
    assert!(!ui.visible(window));
}

#[test]
fn fingers_swipe_hold_and_open() {
    let mut ui = Ui::new(Size::new(96, 160), true);
    let (view, first) = list(&mut ui, 9);
    ui.swipe(ScreenPx::new(20, 60), ScreenPx::new(20, 27));
    assert_eq!(offset(&ui, view), 32);
    ui.swipe(ScreenPx::new(20, 10), ScreenPx::new(20, 159));
    assert_eq!(offset(&ui, view), 0);
    ui.long_press(ui.rect(first).center());
    let popup = ui.popup.clone().unwrap();
    ui.dismiss();
    assert_eq!(ui.popup, None);
    ui.long_press(ui.rect(first).center());
    ui.long_press(ScreenPx::new(90, 150));
    assert_eq!(ui.popup, None, "a press outside dismisses the menu");
    ui.long_press(ui.rect(first).center());
    ui.swipe(popup.entry_rect(1).center(), popup.entry_rect(1).center());
    assert_eq!(
        ui.commands,
        [Command::Chose {
            owner: first,
            entry: 1
        }]
    );
    assert!(!ui.visible(first), "what is deleted is gone");
    ui.open_app("maps");
    assert_eq!(ui.notice, Some("no app"));
    let icon = Kind::Icon {
        text: "maps".into(),
        hue: 1,
    };
    let icon = ui.add(Rect::new(8, 100, 32, 32), icon);
    ui.open_app("maps");
    assert_eq!(ui.commands[1..], [Command::Opened(icon)]);
    assert_eq!(texts(&ui), ["maps", "no app"]);
}

#[test]
fn a_long_text_shows_where_the_caret_is() {
    let mut ui = desktop();
    let id = field(&mut ui, 4, "");
    click(&mut ui, id, 1);
    ui.type_text("abcdefghijkl");
    assert_eq!(texts(&ui), ["fghijkl"]);
    ui.hotkey(&[named(NamedKey::Home)]);
    assert_eq!(texts(&ui), ["abcdefg"]);
}
