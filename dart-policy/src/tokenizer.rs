//! [`Tokenizer`]: text and cells as tokens.
//!
//! Common words of instructions are one token each; everything else is spelled, one token for
//! each character, so that words never seen in training are made of parts that were (word tokens
//! do not carry over to unseen words). Characters outside ASCII become their UTF-8 bytes. Words
//! inside quotation marks are labels and always spelled. The last tokens are cells of the image.

use std::collections::BTreeMap;

use dart_core::{ModelPx, NamedKey};

use crate::{
    action_text::Verb,
    config::{CELL, ModelConfig},
};

/// Stands for a patch of an image.
pub const IMAGE: u32 = 0;
/// Asks for an action; the last token of every prompt.
pub const BEGIN: u32 = 1;
/// Ends an action; the last token of every response.
pub const END: u32 = 2;
/// Stands before each earlier action in a prompt.
pub const PAST: u32 = 3;
/// What all cells have in common (an embedding; never appears in a sequence).
pub(crate) const CELL_MARK: u32 = 4;
/// Stands in a prompt for an error that the last action caused.
pub const ERROR: u32 = 5;

const FIRST_VERB: u32 = 6;
const DIRECTIONS: [&str; 4] = ["down", "left", "right", "up"];

/// Words of instructions that are one token each.
const WORDS: &str = "a above all an and app apps at below bottom box button buttons cancel check \
    checkbox checkboxes choose clear click close copy country date day delete dialog do done \
    double down drag dropdown email enter entry execute field fields file find finish first focus \
    following folder form from go hit hold home horizontal icon if image in input into is it item \
    items label labeled labelled last launcher left letter letters level link list log long \
    manage mark menu message middle month move name named newest next no not number of off ok on \
    one open option options or page panel password paste phone pick place press previous radio \
    read remove reply right row save say screen scroll second section select send set setting \
    settings should show side slider source store submit switch tab tabs tap target task text \
    textarea textbox that the them then third this tick time title to toggle top turn type under \
    untick until up use user username using value view volume while widget window with word words \
    write yes you your";

/// Text to tokens and back. Cheap to build, deterministic: two tokenizers of one model shape agree.
#[derive(Clone, Debug)]
pub struct Tokenizer {
    words: BTreeMap<&'static str, u32>,
    names: Vec<String>,
    keys: u32,
    directions: u32,
    characters: u32,
    bytes: u32,
    first_word: u32,
    columns: usize,
    cells: usize,
}

impl Tokenizer {
    /// The tokenizer of a model of this shape.
    pub fn new(config: &ModelConfig) -> Self {
        let mut names: Vec<String> = ["<image>", "<begin>", "<end>", "<past>", "<cell>", "<error>"]
            .map(str::to_owned)
            .into();
        names.extend(Verb::ALL.iter().map(|verb| format!("{}(", verb.name())));
        let directions = names.len() as u32;
        names.extend(DIRECTIONS.map(|name| format!("<{name}>")));
        let keys = names.len() as u32;
        names.extend(NamedKey::ALL.iter().map(|key| format!("<{}>", key.name())));
        let characters = names.len() as u32;
        names.push("\n".to_owned());
        names.extend((b' '..=b'~').map(|c| char::from(c).to_string()));
        let bytes = names.len() as u32;
        names.extend((0..=255u8).map(|byte| format!("<0x{byte:02x}>")));
        let first_word = names.len() as u32;
        let mut words = BTreeMap::new();
        for word in WORDS.split_whitespace() {
            words.insert(word, names.len() as u32);
            names.push(word.to_owned());
        }
        Self {
            words,
            names,
            keys,
            directions,
            characters,
            bytes,
            first_word,
            columns: config.grid().0,
            cells: config.cells(),
        }
    }

    /// Tokens that are no cell.
    pub fn ordinary(&self) -> usize {
        self.names.len()
    }

    /// All tokens.
    pub fn vocabulary(&self) -> usize {
        self.names.len() + self.cells
    }

    /// The token that begins an action.
    pub const fn verb(&self, verb: Verb) -> u32 {
        FIRST_VERB + verb as u32
    }

    /// The token of a direction: 0 down, 1 left, 2 right, 3 up.
    pub(crate) const fn direction(&self, index: u32) -> u32 {
        self.directions + index
    }

    /// The token of a named key.
    pub fn key(&self, key: NamedKey) -> u32 {
        let index = NamedKey::ALL.iter().position(|k| *k == key);
        self.keys + index.unwrap_or_default() as u32
    }

    /// The named key of a token.
    pub(crate) fn key_of(&self, token: u32) -> Option<NamedKey> {
        let index = token.checked_sub(self.keys)?;
        NamedKey::ALL.get(index as usize).copied()
    }

    /// The token of a printable ASCII character or newline.
    pub fn character(&self, c: char) -> Option<u32> {
        match c {
            '\n' => Some(self.characters),
            ' '..='~' => Some(self.characters + 1 + (c as u32 - ' ' as u32)),
            _ => None,
        }
    }

    /// The character of a token.
    pub(crate) fn character_of(&self, token: u32) -> Option<char> {
        let index = token.checked_sub(self.characters)?;
        match index {
            0 => Some('\n'),
            1..96 => char::from_u32(' ' as u32 + index - 1),
            _ => None,
        }
    }

    /// The token of one byte of a character outside ASCII.
    pub const fn byte(&self, byte: u8) -> u32 {
        self.bytes + byte as u32
    }

    /// The byte of a token.
    pub(crate) fn byte_of(&self, token: u32) -> Option<u8> {
        let index = token.checked_sub(self.bytes)?;
        u8::try_from(index).ok()
    }

    /// Whether a token is one letter or digit of a spelled word.
    pub(crate) fn spells(&self, token: u32) -> bool {
        self.character_of(token)
            .is_some_and(|c| c.is_ascii_alphanumeric())
    }

    /// The token of the cell in column `x` and row `y`, both counted in cells.
    pub const fn cell(&self, x: usize, y: usize) -> u32 {
        let token = (y / 2) * self.columns + x / 2;
        (self.names.len() + token * 4 + (y % 2) * 2 + x % 2) as u32
    }

    /// Column and row of a cell's token.
    pub const fn cell_of(&self, token: u32) -> Option<(usize, usize)> {
        let Some(index) = (token as usize).checked_sub(self.names.len()) else {
            return None;
        };
        if index >= self.cells {
            return None;
        }
        let (token, quarter) = (index / 4, index % 4);
        let x = (token % self.columns) * 2 + quarter % 2;
        let y = (token / self.columns) * 2 + quarter / 2;
        Some((x, y))
    }

    /// The cell that holds a point, the nearest one if none does.
    pub fn cell_at(&self, point: ModelPx) -> u32 {
        let columns = self.columns * 2;
        let rows = self.cells / columns;
        let index = |value: f32, count: usize| {
            // A cast from float saturates, and NaN becomes 0.
            ((value / CELL as f32).floor().max(0.0) as usize).min(count - 1)
        };
        self.cell(index(point.x, columns), index(point.y, rows))
    }

    /// The middle of a cell.
    pub fn cell_center(&self, token: u32) -> Option<ModelPx> {
        let (x, y) = self.cell_of(token)?;
        let middle = |index: usize| (index as u32 * CELL + CELL / 2) as f32;
        Some(ModelPx {
            x: middle(x),
            y: middle(y),
        })
    }

    /// Tokens of a text, character by character.
    pub fn spell(&self, text: &str) -> Vec<u32> {
        let mut tokens = Vec::with_capacity(text.len());
        for c in text.chars() {
            self.push_char(c, &mut tokens);
        }
        tokens
    }

    fn push_char(&self, c: char, tokens: &mut Vec<u32>) {
        if let Some(token) = self.character(c) {
            tokens.push(token);
        } else {
            let mut buffer = [0; 4];
            let bytes = c.encode_utf8(&mut buffer).bytes();
            tokens.extend(bytes.map(|byte| self.byte(byte)));
        }
    }

    /// Tokens of an instruction: known words whole, without regard to case, the rest spelled.
    /// Runs of white space count as one space; a space stands before every spelled word.
    pub fn encode(&self, text: &str) -> Vec<u32> {
        let mut tokens = Vec::new();
        let mut quoted = false;
        for (index, chunk) in text.split_whitespace().enumerate() {
            let mut rest = chunk;
            let mut spaced = index == 0;
            while let Some(first) = rest.chars().next() {
                let end = rest
                    .find(|c: char| !c.is_ascii_alphanumeric())
                    .unwrap_or(rest.len());
                let word = &rest[..end];
                let known = (!quoted && end > 0).then(|| self.word(word)).flatten();
                if let (Some(token), true) = (known, rest.len() == chunk.len()) {
                    tokens.push(token);
                    rest = &rest[end..];
                    spaced = true;
                    continue;
                }
                if !std::mem::replace(&mut spaced, true) {
                    tokens.extend(self.character(' '));
                }
                let taken = if end > 0 { end } else { first.len_utf8() };
                tokens.extend(self.spell(&rest[..taken]));
                quoted ^= first == '"';
                rest = &rest[taken..];
            }
        }
        tokens
    }

    fn word(&self, word: &str) -> Option<u32> {
        self.words.get(word.to_ascii_lowercase().as_str()).copied()
    }

    /// What tokens say, for people: the inverse of [`Self::encode`] up to case and white space.
    pub fn decode(&self, tokens: &[u32]) -> String {
        let mut bytes = Vec::new();
        for &token in tokens {
            if let Some(byte) = self.byte_of(token) {
                bytes.push(byte);
            } else if let Some((x, y)) = self.cell_of(token) {
                bytes.extend(format!("<{x},{y}>").bytes());
            } else if let Some(name) = self.names.get(token as usize) {
                if token >= self.first_word && !bytes.is_empty() {
                    bytes.push(b' ');
                }
                bytes.extend(name.bytes());
            }
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tokenizer() -> Tokenizer {
        Tokenizer::new(&ModelConfig::default())
    }

    #[test]
    fn words_are_whole_and_labels_are_spelled() {
        let t = tokenizer();
        let tokens = t.encode("Click the button \"open\" zqx.");
        assert_eq!(t.decode(&tokens), "click the button \"open\" zqx.");
        // click the button ␣ " o p e n " ␣ z q x .
        assert_eq!(tokens.len(), 3 + 1 + 6 + 1 + 4);
        assert_eq!(
            t.encode("CLICK  the\n button"),
            t.encode("click the button")
        );
    }

    #[test]
    fn cells_round_trip() {
        let t = tokenizer();
        let config = ModelConfig::default();
        for y in 0..12 {
            for x in 0..16 {
                let token = t.cell(x, y);
                assert_eq!(t.cell_of(token), Some((x, y)));
                assert_eq!(t.cell_at(t.cell_center(token).unwrap()), token);
            }
        }
        assert_eq!(t.cell_of(t.vocabulary() as u32), None);
        assert_eq!(t.vocabulary() - t.ordinary(), config.cells());
        let nan = ModelPx {
            x: f32::NAN,
            y: 1e9,
        };
        assert_eq!(t.cell_of(t.cell_at(nan)), Some((0, 11)));
    }

    proptest! {
        #[test]
        fn any_text_has_tokens_and_spelling_is_exact(text in "\\PC{0,40}") {
            let t = tokenizer();
            prop_assert_eq!(t.decode(&t.spell(&text)), text.clone());
            for token in t.encode(&text) {
                prop_assert!((token as usize) < t.ordinary());
            }
            let squeeze = |s: &str| s.split_whitespace().collect::<String>().to_ascii_lowercase();
            prop_assert_eq!(squeeze(&t.decode(&t.encode(&text))), squeeze(&text));
        }
    }
}
