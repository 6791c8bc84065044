//! Actions, tokens and text are three faces of the same thing.

use dart_core::{
    Action, Direction, ErrorKind, Key, Modifier, Modifiers, MouseButton, NamedKey, ParsedAction,
    ScreenPx, Size, Viewport,
};
use dart_policy::{ActionGrammar, Charset, DeviceKind, GrammarConfig, ModelConfig, Verb};
use proptest::prelude::*;

fn grammar(device: DeviceKind, charset: Charset) -> ActionGrammar {
    ActionGrammar::new(&ModelConfig {
        grammar: GrammarConfig {
            device,
            charset,
            ..GrammarConfig::default()
        },
        ..ModelConfig::default()
    })
}

fn viewport() -> Viewport {
    Viewport::new(Size::new(256, 192), Size::new(128, 96))
}

#[test]
#[allow(clippy::too_many_lines, reason = "a table of cases")]
fn desktop_actions_round_trip() {
    let grammar = grammar(DeviceKind::Desktop, Charset::Ascii);
    let at = ScreenPx::new(40, 120);
    let click = |button, count| Action::Click {
        at,
        button,
        count,
        modifiers: Modifiers::NONE,
    };
    let cases = [
        (Action::click(at), "click(start_box='(20,60)')"),
        (
            click(MouseButton::Left, 2),
            "left_double(start_box='(20,60)')",
        ),
        (
            click(MouseButton::Right, 1),
            "right_single(start_box='(20,60)')",
        ),
        (
            Action::DragTo {
                from: Some(at),
                to: ScreenPx::new(8, 8),
            },
            "drag(start_box='(20,60)', end_box='(4,4)')",
        ),
        (
            Action::Hotkey {
                keys: vec![Key::Named(NamedKey::Ctrl), Key::Char('c')],
            },
            "hotkey(key='ctrl c')",
        ),
        (
            Action::Press {
                key: Key::Named(NamedKey::Enter),
            },
            "hotkey(key='enter')",
        ),
        (
            Action::Type {
                text: "it's\nso".into(),
            },
            r"type(content='it\'s\nso')",
        ),
        (
            Action::Scroll {
                at: Some(at),
                direction: Direction::Down,
                notches: 5,
            },
            "scroll(start_box='(20,60)', direction='down')",
        ),
        (Action::Wait { millis: 1000 }, "wait()"),
        (Action::Done, "finished()"),
        (Action::Fail, "call_user()"),
    ];
    for (action, text) in cases {
        let tokens = grammar.encode(&action, viewport()).unwrap();
        let (decoded, written) = grammar.decode(&tokens, viewport());
        assert_eq!(written, text);
        assert_eq!(decoded, ParsedAction::Valid(action.clone()), "{text}");
        assert_eq!(grammar.parse(text, viewport()), ParsedAction::Valid(action));
    }
}

#[test]
fn a_click_is_three_tokens_and_two_choices() {
    let grammar = grammar(DeviceKind::Desktop, Charset::Ascii);
    let tokens = grammar.encode(&Action::click(ScreenPx::new(0, 0)), viewport());
    let states = grammar.states(&tokens.unwrap()).unwrap();
    let free: Vec<bool> = states
        .iter()
        .map(|state| grammar.forced(*state).is_none())
        .collect();
    assert_eq!(free, [true, true, false]);
    assert_eq!(grammar.allowed(states[1]).len(), 192);
}

#[test]
fn phone_actions_round_trip() {
    let grammar = grammar(DeviceKind::Phone, Charset::Unicode);
    let at = ScreenPx::new(40, 120);
    let cases = [
        Action::Tap { at },
        Action::LongPress { at },
        Action::Swipe {
            from: at,
            to: ScreenPx::new(8, 8),
        },
        Action::OpenApp {
            name: "Café 你好".into(),
        },
        Action::NavigateHome,
        Action::NavigateBack,
        Action::Type { text: "ok".into() },
    ];
    for action in cases {
        let tokens = grammar.encode(&action, viewport()).unwrap();
        let (decoded, text) = grammar.decode(&tokens, viewport());
        assert_eq!(decoded, ParsedAction::Valid(action.clone()));
        assert_eq!(
            grammar.parse(&text, viewport()),
            ParsedAction::Valid(action)
        );
    }
}

#[test]
fn what_cannot_be_said_is_unsupported() {
    let desktop = grammar(DeviceKind::Desktop, Charset::Ascii);
    let at = ScreenPx::new(1, 1);
    let modified = Action::Click {
        at,
        button: MouseButton::Left,
        count: 1,
        modifiers: Modifiers::NONE.with(Modifier::Ctrl),
    };
    let long = "x".repeat(25);
    let cases = [
        modified,
        Action::MoveTo { at },
        Action::Type { text: "é".into() },
        Action::Type {
            text: String::new(),
        },
        Action::Type { text: long },
        Action::NavigateHome,
        Action::DragTo { from: None, to: at },
    ];
    for action in cases {
        let fault = desktop.encode(&action, viewport()).unwrap_err();
        assert_eq!(fault.kind(), ErrorKind::Unsupported, "{action:?}");
    }
}

#[test]
fn only_allowed_verbs_can_be_said() {
    let config = ModelConfig {
        grammar: GrammarConfig {
            allowed: vec![Verb::Click, Verb::Type],
            ..GrammarConfig::default()
        },
        ..ModelConfig::default()
    };
    config.validate().unwrap();
    let grammar = ActionGrammar::new(&config);
    assert_eq!(grammar.allowed(grammar.start()).len(), 2);
    assert!(grammar.encode(&Action::Done, viewport()).is_err());
    let parsed = grammar.parse("finished()", viewport());
    assert!(matches!(parsed, ParsedAction::Invalid(_)));
}

proptest! {
    /// Whatever the automaton lets through ends in time, is an action, and is said the same way.
    #[test]
    fn every_walk_is_an_action(
        choices in prop::collection::vec(any::<u32>(), 120),
        phone in any::<bool>(),
        unicode in any::<bool>(),
    ) {
        let device = if phone { DeviceKind::Phone } else { DeviceKind::Desktop };
        let charset = if unicode { Charset::Unicode } else { Charset::Ascii };
        let grammar = grammar(device, charset);
        let mut state = grammar.start();
        let mut tokens = Vec::new();
        for choice in choices {
            let allowed = grammar.allowed(state);
            if allowed.is_empty() {
                break;
            }
            let token = allowed[choice as usize % allowed.len()];
            state = grammar.advance(state, token).unwrap();
            tokens.push(token);
        }
        prop_assert!(grammar.is_complete(state), "no end after {} tokens", tokens.len());
        prop_assert_eq!(grammar.states(&tokens).unwrap().len(), tokens.len());
        let (action, text) = grammar.decode(&tokens, viewport());
        let ParsedAction::Valid(action) = action else {
            panic!("{text}: {action:?}");
        };
        prop_assert_eq!(grammar.encode(&action, viewport()).unwrap(), tokens);
        // Keys are separated by spaces and signs in text, so a space key cannot be read back.
        let keys = matches!(action, Action::Hotkey { .. } | Action::Press { .. });
        if !(keys && text.contains('+')) {
            prop_assert_eq!(grammar.parse(&text, viewport()), ParsedAction::Valid(action));
        }
    }

    #[test]
    fn arbitrary_tokens_never_panic(tokens in prop::collection::vec(0u32..900, 0..12)) {
        let grammar = grammar(DeviceKind::Desktop, Charset::Unicode);
        let _ = grammar.decode(&tokens, viewport());
    }
}
