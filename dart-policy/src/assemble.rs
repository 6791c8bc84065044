//! Prompts and responses to the packed rows that the network runs.
//!
//! Here images meet the token spans that stand for them, and a mismatch is an error: training on
//! the wrong picture would go unnoticed.

use dart_core::{Frame, ImageSpan, Rect, UiElement};

use crate::{
    config::STRIDE,
    error::{PolicyError, Result},
    images::{Picture, Windows},
    nn::{
        Net,
        attention::Sequence,
        layout::GLYPHS,
        prefix::{Parts, PrefixInput, UNUSED},
        reading::{NO_LETTER, Targets, UNREADABLE},
        response::{ResponseInput, ResponseRows},
        stem::ImageRow,
    },
    tokenizer::{BEGIN, CELL_MARK, IMAGE, PAST, Tokenizer},
};

/// Text positions up to here belong to the instruction; the past actions come after, each at a
/// place of its own, however long the instruction is.
const PAST_POSITION: usize = 96;
/// Positions of one past action.
const PAST_LEN: usize = 8;

/// Packs prompts.
#[derive(Debug)]
pub(crate) struct Assembler<'a> {
    net: &'a Net,
    tokenizer: &'a Tokenizer,
    windows: Windows,
    input: PrefixInput,
}

impl<'a> Assembler<'a> {
    /// Nothing packed yet; with `reading`, targets of the reading loss are collected.
    pub(crate) fn new(net: &'a Net, tokenizer: &'a Tokenizer, reading: bool) -> Self {
        Self {
            net,
            tokenizer,
            windows: Windows::default(),
            input: PrefixInput {
                reading: reading.then(Targets::default),
                ..PrefixInput::default()
            },
        }
    }

    /// Adds one prompt; `picture` finds the picture of a span. Returns the prompt's number.
    pub(crate) fn prompt<'p>(
        &mut self,
        tokens: &[u32],
        spans: &[ImageSpan],
        picture: impl Fn(u32) -> Option<&'p Seen>,
    ) -> Result<usize> {
        let body = check(tokens, spans, self.net)?;
        let start = self.input.parts.len();
        let mut at = 0;
        let mut query_start = start;
        let number = self.input.sequences.len();
        for (index, span) in spans.iter().enumerate() {
            self.text(&body[at..span.start as usize]);
            query_start = self.input.parts.len();
            let seen = picture(span.image)
                .ok_or_else(|| PolicyError::Mismatch(format!("no image {}", span.image)))?;
            let age = spans.len() - 1 - index;
            let windows = self.image(&seen.picture, age);
            if age == 0 {
                self.read(number, &windows, seen);
            }
            at = (span.start + span.len) as usize;
        }
        self.text(&body[at..]);
        self.input.sequences.push(Sequence {
            start,
            len: self.input.parts.len() - start,
            query_start,
            query_len: self.net.config.image_tokens(),
        });
        Ok(number)
    }

    /// The packed prompts.
    pub(crate) fn finish(mut self) -> PrefixInput {
        self.input.windows = self.windows.inputs();
        if let Some(reading) = &mut self.input.reading {
            reading
                .glyphs
                .resize(self.windows.len() * GLYPHS, NO_LETTER);
        }
        if self.input.reading.as_ref().is_some_and(Targets::is_empty) {
            self.input.reading = None;
        }
        self.input
    }

    fn image(&mut self, picture: &Picture, age: usize) -> Vec<usize> {
        let layout = &self.net.layout;
        let d = self.net.config.width;
        let (columns, _) = self.net.config.grid();
        let windows = self.windows.add(picture);
        for (index, &window) in windows.iter().enumerate() {
            let (column, row) = (index % columns, index / columns);
            self.input.images.push(ImageRow {
                row: self.input.parts.len(),
                window,
                left: (column > 0).then(|| windows[index - 1]),
                right: (column + 1 < columns).then(|| windows[index + 1]),
            });
            self.input.parts.push([
                layout.rows.row(row, d),
                layout.columns.row(column, d),
                layout.ages.map_or(UNUSED, |ages| ages.row(age, d)),
                UNUSED,
                UNUSED,
            ]);
        }
        windows
    }

    fn text(&mut self, tokens: &[u32]) {
        let past = tokens.iter().filter(|token| **token == PAST).count();
        let (mut position, mut limit, mut seen) = (0, PAST_POSITION - 1, 0);
        let mut place = 0;
        for &token in tokens {
            if token == PAST {
                position = PAST_POSITION + (past - 1 - seen).min(3) * PAST_LEN;
                limit = position + PAST_LEN - 1;
                seen += 1;
            }
            let at = self.net.layout.text.row(position, self.net.config.width);
            let parts = token_parts(self.net, self.tokenizer, token, &mut place);
            self.input
                .parts
                .push([parts[0], parts[1], parts[2], parts[3], at]);
            position = (position + 1).min(limit);
        }
    }

    fn read(&mut self, prompt: usize, windows: &[usize], seen: &Seen) {
        let config = &self.net.config;
        let (columns, rows) = config.grid();
        let Some(targets) = &mut self.input.reading else {
            return;
        };
        targets
            .glyphs
            .resize(self.windows.len() * GLYPHS, NO_LETTER);
        let stride = STRIDE as f32;
        let token_at = |x: f32, y: f32| {
            let inside = x >= 0.0 && y >= 0.0;
            let (column, row) = ((x / stride) as usize, (y / stride) as usize);
            (inside && column < columns && row < rows).then_some(row * columns + column)
        };
        for label in &seen.labels {
            let y = label.top + label.height / 2.0;
            for (index, &class) in label.classes.iter().enumerate() {
                let x = label.left + (index as f32 + 0.5) * label.advance;
                if let Some(token) = token_at(x, y) {
                    let place =
                        (y % stride / 8.0) as usize * 3 + (x % stride * 3.0 / stride) as usize;
                    targets.glyphs[windows[token] * GLYPHS + place] = class;
                }
            }
            let spelled = label.classes.len() <= config.read_letters
                && label.classes.iter().all(|class| *class < NO_LETTER);
            let middle = label.left + label.classes.len() as f32 * label.advance / 2.0;
            if let (true, Some(token)) = (spelled, token_at(middle, y)) {
                targets
                    .label_rows
                    .push(prompt * config.image_tokens() + token);
                let fill = config.read_letters - label.classes.len();
                targets.labels.extend(&label.classes);
                targets.labels.extend(std::iter::repeat_n(NO_LETTER, fill));
            }
        }
    }
}

/// The prompt without its begin token, if images and tokens belong together.
fn check<'t>(tokens: &'t [u32], spans: &[ImageSpan], net: &Net) -> Result<&'t [u32]> {
    let mismatch = |what: &str| Err(PolicyError::Mismatch(what.to_owned()));
    let Some((&BEGIN, body)) = tokens.split_last() else {
        return mismatch("the prompt does not end with the begin token");
    };
    if spans.is_empty() || spans.len() > net.config.history_images {
        return mismatch("the prompt has too few or too many images");
    }
    let mut images = 0;
    let mut free = 0;
    for span in spans {
        let (start, end) = (span.start as usize, span.start as usize + span.len as usize);
        if span.len as usize != net.config.image_tokens() || start < free || end > body.len() {
            return mismatch("a span does not fit the image's tokens");
        }
        if body[start..end].iter().any(|token| *token != IMAGE) {
            return mismatch("a span holds tokens that stand for no image");
        }
        free = end;
        images += span.len as usize;
    }
    if body.iter().filter(|token| **token == IMAGE).count() != images {
        return mismatch("an image token belongs to no span");
    }
    if body.iter().any(|token| *token as usize >= net.vocabulary) {
        return mismatch("a token is not in the vocabulary");
    }
    Ok(body)
}

/// Embedding rows of a token, all but its position. `place` counts letters of a spelled word.
fn token_parts(net: &Net, tokenizer: &Tokenizer, token: u32, place: &mut usize) -> [u32; 4] {
    let (layout, d) = (&net.layout, net.config.width);
    if let Some((x, y)) = tokenizer.cell_of(token) {
        *place = 0;
        return [
            layout.tokens.row(CELL_MARK as usize, d),
            layout.rows.row(y / 2, d),
            layout.columns.row(x / 2, d),
            layout.quarters.row((y % 2) * 2 + x % 2, d),
        ];
    }
    let mut parts = [layout.tokens.row(token as usize, d), UNUSED, UNUSED, UNUSED];
    if tokenizer.spells(token) {
        parts[1] = layout.chars.row(*place, d);
        *place += 1;
    } else {
        *place = 0;
    }
    parts
}

/// Packs the begin token and the first `rows - 1` tokens of a response.
pub(crate) fn push_response(
    (net, tokenizer): (&Net, &Tokenizer),
    input: &mut ResponseInput,
    prompt: usize,
    response: &[u32],
    rows: usize,
) {
    let start = input.parts.len();
    let mut place = 0;
    let tokens = std::iter::once(BEGIN).chain(response.iter().copied());
    for (position, token) in tokens.take(rows).enumerate() {
        let parts = response_parts(net, tokenizer, (position, token), &mut place);
        input.parts.push(parts);
    }
    input.responses.push(ResponseRows {
        prompt,
        start,
        len: rows,
    });
}

/// Embedding rows of a token at a position of a response; position 0 is the begin token.
pub(crate) fn response_parts(
    net: &Net,
    tokenizer: &Tokenizer,
    (position, token): (usize, u32),
    place: &mut usize,
) -> Parts {
    let [a, mut b, c, e] = token_parts(net, tokenizer, token, place);
    let d = net.config.width;
    if tokenizer.cell_of(token).is_none() {
        // Where the next letter stands in its word: the prompt's letters carry the same
        // embedding, which makes copying a word a matter of looking it up.
        b = net.layout.chars.row(*place, d);
    }
    [a, b, c, e, net.layout.response.row(position, d)]
}

/// A frame as the model sees it, with the texts on it.
#[derive(Debug)]
pub(crate) struct Seen {
    picture: Picture,
    labels: Vec<Label>,
}

/// A text on the model's image.
#[derive(Debug)]
struct Label {
    left: f32,
    top: f32,
    height: f32,
    /// Pixels from letter to letter.
    advance: f32,
    /// A letter's class for each character.
    classes: Vec<u8>,
}

impl Seen {
    /// Prepares a frame; `ui` lists its texts, for the reading loss.
    pub(crate) fn new(net: &Net, frame: &Frame, ui: Option<&[UiElement]>) -> Self {
        let image = net.config.image();
        let scale = (
            image.width as f32 / frame.size().width as f32,
            image.height as f32 / frame.size().height as f32,
        );
        let labels = ui.unwrap_or_default().iter();
        Self {
            picture: Picture::new(&net.config, frame),
            labels: labels
                .filter_map(|element| label(&element.text, element.bounds, scale))
                .collect(),
        }
    }
}

fn label(text: &str, bounds: Rect, (scale_x, scale_y): (f32, f32)) -> Option<Label> {
    let class = |c: char| match c {
        'a'..='z' => c as u8 - b'a',
        'A'..='Z' => c as u8 - b'A',
        ' ' => NO_LETTER,
        _ => UNREADABLE,
    };
    let classes: Vec<u8> = text.chars().map(class).collect();
    let count = classes.len() as f32;
    (!classes.is_empty()).then(|| Label {
        left: bounds.x as f32 * scale_x,
        top: bounds.y as f32 * scale_y,
        height: bounds.height as f32 * scale_y,
        advance: bounds.width as f32 * scale_x / count,
        classes,
    })
}
