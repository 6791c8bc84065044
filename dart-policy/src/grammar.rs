//! [`ActionGrammar`]: which tokens may follow which, as a deterministic automaton.
//!
//! A response is a verb, its arguments and the end token; a click is `[click(] [cell] [end]`.
//! Only what the automaton allows can be sampled, so every finished response is an action, and
//! a token that is the only one allowed needs no forward pass: its probability is 1.

use dart_core::{Action, Direction, Key, NamedKey, ParsedAction, Viewport};
use serde::{Deserialize, Serialize};

use crate::{
    action_parse,
    action_text::{Call, Verb},
    config::ModelConfig,
    error::{PolicyError, Result},
    tokenizer::{END, Tokenizer},
};

/// What is operated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceKind {
    /// Mouse and keyboard.
    #[default]
    Desktop,
    /// Touch.
    Phone,
}

/// Which characters can be typed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Charset {
    /// Printable ASCII and newline: the fewer choices, the sooner typing is learnt.
    #[default]
    Ascii,
    /// Every character of Unicode, byte by byte outside ASCII.
    Unicode,
}

/// What the policy can say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GrammarConfig {
    /// What is operated. Default desktop.
    pub device: DeviceKind,
    /// Allowed verbs; empty (the default) allows all that the device kind has.
    pub allowed: Vec<Verb>,
    /// Which characters can be typed. Default ASCII.
    pub charset: Charset,
    /// Longest typed text, in characters. Default 24: longer than any text of the simulator.
    pub max_characters: usize,
    /// Most keys pressed together. Default 3.
    pub max_keys: usize,
    /// Wheel notches that one `scroll` stands for, 1 to 50. Default 5, as in UI-TARS' own tools.
    pub scroll_notches: u8,
    /// Milliseconds that one `wait` stands for, at most 60,000. Default 1000.
    pub wait_millis: u32,
}

impl Default for GrammarConfig {
    fn default() -> Self {
        Self {
            device: DeviceKind::Desktop,
            allowed: Vec::new(),
            charset: Charset::Ascii,
            max_characters: 24,
            max_keys: 3,
            scroll_notches: 5,
            wait_millis: 1000,
        }
    }
}

impl GrammarConfig {
    /// The verbs of the device kind.
    pub const fn device_verbs(device: DeviceKind) -> &'static [Verb] {
        use Verb::{
            CallUser, Click, Drag, Finished, Hotkey, LeftDouble, LongPress, OpenApp, PressBack,
            PressHome, RightSingle, Scroll, Type, Wait,
        };
        match device {
            DeviceKind::Desktop => &[
                CallUser,
                Click,
                Drag,
                Finished,
                Hotkey,
                LeftDouble,
                RightSingle,
                Scroll,
                Type,
                Wait,
            ],
            DeviceKind::Phone => &[
                CallUser, Click, Drag, Finished, LongPress, OpenApp, PressBack, PressHome, Scroll,
                Type, Wait,
            ],
        }
    }

    /// The verbs that may be said.
    pub fn verbs(&self) -> &[Verb] {
        if self.allowed.is_empty() {
            Self::device_verbs(self.device)
        } else {
            &self.allowed
        }
    }

    /// Most tokens of one response, end token included.
    pub const fn max_response(&self) -> usize {
        let text = self.max_characters * 4 + 2;
        if text > self.max_keys + 2 {
            text
        } else {
            self.max_keys + 2
        }
    }

    pub(crate) fn validate(&self) -> dart_core::Result<()> {
        let of_device = Self::device_verbs(self.device);
        let fault = if self.allowed.iter().any(|verb| !of_device.contains(verb)) {
            "grammar.allowed"
        } else if !(1..=512).contains(&self.max_characters) {
            "grammar.max_characters"
        } else if !(1..=6).contains(&self.max_keys) {
            "grammar.max_keys"
        } else if !(1..=50).contains(&self.scroll_notches) {
            "grammar.scroll_notches"
        } else if self.wait_millis > 60_000 {
            "grammar.wait_millis"
        } else {
            return Ok(());
        };
        Err(PolicyError::Config(fault).into())
    }
}

/// Where a response stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    next: Next,
    verb: Verb,
    /// Points, keys or characters so far.
    count: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Verb,
    Cell,
    Direction,
    FirstKey,
    Key,
    FirstCharacter,
    Character,
    /// A continuation byte; which ones are allowed depends on the first byte (RFC 3629 §4).
    Byte {
        left: u8,
        low: u8,
        high: u8,
    },
    End,
    Nothing,
}

/// Places of the static token lists.
const LISTS: usize = 9;

/// Says which tokens may come next, and turns responses into actions and back.
#[derive(Clone, Debug)]
pub struct ActionGrammar {
    config: GrammarConfig,
    tokenizer: Tokenizer,
    lists: [Vec<u32>; LISTS],
    bytes: Vec<u32>,
}

impl ActionGrammar {
    /// The grammar of a model of this shape.
    pub fn new(config: &ModelConfig) -> Self {
        let tokenizer = Tokenizer::new(config);
        let grammar = config.grammar.clone();
        let cells = tokenizer.ordinary() as u32..tokenizer.vocabulary() as u32;
        let mut keys: Vec<u32> = NamedKey::ALL.iter().map(|k| tokenizer.key(*k)).collect();
        let printable = (b'!'..=b'~').filter_map(|c| tokenizer.character(c.into()));
        keys.extend(printable);
        let mut characters: Vec<u32> = std::iter::once(b'\n')
            .chain(b' '..=b'~')
            .filter_map(|c| tokenizer.character(c.into()))
            .collect();
        if grammar.charset == Charset::Unicode {
            characters.extend((0xc2..=0xf4).map(|byte| tokenizer.byte(byte)));
        }
        let with_end = |list: &[u32]| {
            let mut list = list.to_vec();
            list.insert(0, END);
            list
        };
        let mut lists = [
            grammar.verbs().iter().map(|v| tokenizer.verb(*v)).collect(),
            cells.collect(),
            (0..4).map(|i| tokenizer.direction(i)).collect(),
            with_end(&keys),
            keys,
            with_end(&characters),
            characters,
            vec![END],
            Vec::new(),
        ];
        for list in &mut lists {
            list.sort_unstable();
        }
        let bytes = (0x80..=0xbf).map(|byte| tokenizer.byte(byte)).collect();
        Self {
            config: grammar,
            tokenizer,
            lists,
            bytes,
        }
    }

    /// The tokenizer that it speaks.
    pub const fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Before the first token.
    pub const fn start(&self) -> State {
        State {
            next: Next::Verb,
            verb: Verb::Wait,
            count: 0,
        }
    }

    /// Tokens that may come next, ascending; none after the end token.
    pub fn allowed(&self, state: State) -> &[u32] {
        let index = match state.next {
            Next::Verb => 0,
            Next::Cell => 1,
            Next::Direction => 2,
            Next::Key => 3,
            Next::FirstKey => 4,
            Next::Character => 5,
            Next::FirstCharacter => 6,
            Next::End => 7,
            Next::Nothing => 8,
            Next::Byte { low, high, .. } => {
                return &self.bytes[usize::from(low - 0x80)..=usize::from(high - 0x80)];
            }
        };
        &self.lists[index]
    }

    /// The next token, if there is only one.
    pub fn forced(&self, state: State) -> Option<u32> {
        match self.allowed(state) {
            [token] => Some(*token),
            _ => None,
        }
    }

    /// Whether the response is complete.
    pub const fn is_complete(&self, state: State) -> bool {
        matches!(state.next, Next::Nothing)
    }

    /// The state after `token`, or `None` if it may not come next.
    pub fn advance(&self, state: State, token: u32) -> Option<State> {
        self.allowed(state).binary_search(&token).ok()?;
        let verb = match state.next {
            Next::Verb => *Verb::ALL
                .iter()
                .find(|v| self.tokenizer.verb(**v) == token)?,
            _ => state.verb,
        };
        let count = state.count + 1;
        let next = match state.next {
            _ if token == END => Next::Nothing,
            Next::Verb => {
                let next = first_argument(verb);
                return Some(State {
                    next,
                    verb,
                    count: 0,
                });
            }
            Next::Cell if verb == Verb::Drag && count < 2 => Next::Cell,
            Next::Cell if verb == Verb::Scroll => Next::Direction,
            Next::FirstKey | Next::Key if usize::from(count) < self.config.max_keys => Next::Key,
            Next::FirstCharacter | Next::Character => match self.tokenizer.byte_of(token) {
                Some(byte) => first_byte(byte),
                None => self.character(count),
            },
            Next::Byte { left: 1, .. } => {
                let next = self.character(state.count);
                return Some(State { next, ..state });
            }
            Next::Byte { left, .. } => {
                let next = Next::Byte {
                    left: left - 1,
                    low: 0x80,
                    high: 0xbf,
                };
                return Some(State { next, ..state });
            }
            _ => Next::End,
        };
        Some(State { next, verb, count })
    }

    fn character(&self, count: u16) -> Next {
        if usize::from(count) < self.config.max_characters {
            Next::Character
        } else {
            Next::End
        }
    }

    /// The states before each token of a response.
    ///
    /// # Errors
    /// [`Protocol`](dart_core::ErrorKind::Protocol) at the first token that may not stand where it
    /// does, or if the end token is missing.
    pub fn states(&self, response: &[u32]) -> dart_core::Result<Vec<State>> {
        Ok(self.walk(response)?)
    }

    pub(crate) fn walk(&self, response: &[u32]) -> Result<Vec<State>> {
        let mut states = Vec::with_capacity(response.len());
        let mut state = self.start();
        for (index, &token) in response.iter().enumerate() {
            states.push(state);
            state = self.advance(state, token).ok_or_else(|| {
                PolicyError::Ungrammatical(format!("token {token} at place {index}"))
            })?;
        }
        if self.is_complete(state) {
            Ok(states)
        } else {
            Err(PolicyError::Ungrammatical("it has no end".to_owned()))
        }
    }

    /// Tokens of an action, points moved to the middle of their cell.
    ///
    /// # Errors
    /// [`Unsupported`](dart_core::ErrorKind::Unsupported) if the grammar cannot say it.
    pub fn encode(&self, action: &Action, viewport: Viewport) -> dart_core::Result<Vec<u32>> {
        let call = Call::of(action, viewport)?;
        let mut tokens = vec![self.tokenizer.verb(call.verb)];
        let cells = call.points.iter().map(|p| self.tokenizer.cell_at(*p));
        tokens.extend(cells);
        if let Some(direction) = call.direction {
            tokens.push(self.tokenizer.direction(direction as u32));
        }
        for key in &call.keys {
            let token = match key {
                Key::Named(key) => Some(self.tokenizer.key(*key)),
                Key::Char(c) => self.tokenizer.character(*c),
            };
            tokens.push(token.ok_or_else(|| PolicyError::Unsayable(format!("key {key}")))?);
        }
        tokens.extend(self.tokenizer.spell(&call.text));
        tokens.push(END);
        match self.walk(&tokens) {
            Ok(_) => Ok(tokens),
            Err(fault) => Err(PolicyError::Unsayable(format!("{call}: {fault}")).into()),
        }
    }

    /// The action that a response stands for, and its text.
    pub fn decode(&self, response: &[u32], viewport: Viewport) -> (ParsedAction, String) {
        match self.call(response) {
            Ok(call) => {
                let action = match call.to_action(&self.config, viewport) {
                    Ok(action) => ParsedAction::Valid(action),
                    Err(fault) => ParsedAction::Invalid(fault),
                };
                (action, call.to_string())
            }
            Err(fault) => {
                let text = self.tokenizer.decode(response);
                (ParsedAction::Invalid(fault.to_string()), text)
            }
        }
    }

    fn call(&self, response: &[u32]) -> Result<Call> {
        self.walk(response)?;
        let missing = || PolicyError::Ungrammatical("no verb".to_owned());
        let (&first, rest) = response.split_first().ok_or_else(missing)?;
        let is_verb = |verb: &&Verb| self.tokenizer.verb(**verb) == first;
        let verb = *Verb::ALL.iter().find(is_verb).ok_or_else(missing)?;
        let mut call = Call::new(verb);
        let mut bytes = Vec::new();
        for &token in rest.iter().filter(|token| **token != END) {
            if let Some(point) = self.tokenizer.cell_center(token) {
                call.points.push(point);
            } else if verb == Verb::Scroll {
                call.direction = self.direction_of(token);
            } else if let Some(c) = self.tokenizer.character_of(token) {
                if verb == Verb::Hotkey {
                    call.keys.push(Key::Char(c));
                } else {
                    bytes.push(c as u8);
                }
            } else if let Some(key) = self.tokenizer.key_of(token) {
                call.keys.push(Key::Named(key));
            } else if let Some(byte) = self.tokenizer.byte_of(token) {
                bytes.push(byte);
            }
        }
        call.text = String::from_utf8_lossy(&bytes).into_owned();
        Ok(call)
    }

    fn direction_of(&self, token: u32) -> Option<Direction> {
        use Direction::{Down, Left, Right, Up};
        [Down, Left, Right, Up]
            .into_iter()
            .find(|d| self.tokenizer.direction(*d as u32) == token)
    }

    /// Reads free action text, such as a remote model's, with an optional thought before it.
    pub fn parse(&self, text: &str, viewport: Viewport) -> ParsedAction {
        let action =
            action_parse::parse(text).and_then(|call| call.to_action(&self.config, viewport));
        match action {
            Ok(action) => ParsedAction::Valid(action),
            Err(fault) => ParsedAction::Invalid(fault),
        }
    }
}

const fn first_argument(verb: Verb) -> Next {
    match verb {
        Verb::Click
        | Verb::Drag
        | Verb::LeftDouble
        | Verb::LongPress
        | Verb::RightSingle
        | Verb::Scroll => Next::Cell,
        Verb::Hotkey => Next::FirstKey,
        Verb::Type | Verb::OpenApp => Next::FirstCharacter,
        Verb::CallUser | Verb::Finished | Verb::PressBack | Verb::PressHome | Verb::Wait => {
            Next::End
        }
    }
}

const fn first_byte(byte: u8) -> Next {
    let (left, low, high) = match byte {
        0xe0 => (2, 0xa0, 0xbf),
        0xed => (2, 0x80, 0x9f),
        0xf0 => (3, 0x90, 0xbf),
        0xf4 => (3, 0x80, 0x8f),
        0xe1..=0xef => (2, 0x80, 0xbf),
        0xf1..=0xf3 => (3, 0x80, 0xbf),
        _ => (1, 0x80, 0xbf),
    };
    Next::Byte { left, low, high }
}
