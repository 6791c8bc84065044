//! Names, shapes, places and initial values of the parameters.
//!
//! All parameters live in one flat array, sorted by name; layers address it by [`Span`]s. That is
//! what lets one custom operation run the whole network and give all gradients at once.

use rand::Rng;
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};

use crate::{config::ModelConfig, tokenizer::Tokenizer};

/// Positions of prompt text that have an embedding of their own; later ones share the last.
pub(crate) const TEXT_POSITIONS: usize = 128;
/// Positions of a response that have an embedding of their own; later ones share the last.
pub(crate) const RESPONSE_POSITIONS: usize = 48;
/// Places within a spelled word that have an embedding of their own; later ones share the last.
pub(crate) const CHAR_POSITIONS: usize = 12;
/// Letters a glyph is read as: A to Z and none.
pub(crate) const LETTERS: usize = 27;
/// Places within an image token's own 16x16 pixels at which a glyph is read: 3 columns x 2 rows.
pub(crate) const GLYPHS: usize = 6;
/// Numbers that describe one window.
pub(crate) const WINDOW_AREA: usize = crate::images::INPUTS;

/// Where a parameter lies in the flat array.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Span {
    at: usize,
    len: usize,
}

impl Span {
    /// The parameter's numbers.
    pub(crate) fn of(self, flat: &[f32]) -> &[f32] {
        &flat[self.at..self.at + self.len]
    }

    /// The same of a gradient.
    pub(crate) fn of_mut(self, flat: &mut [f32]) -> &mut [f32] {
        &mut flat[self.at..self.at + self.len]
    }

    /// Offset of row `row`, each row of `width` numbers; the last row stands for all beyond it.
    pub(crate) fn row(self, row: usize, width: usize) -> u32 {
        (self.at + row.min(self.len / width - 1) * width) as u32
    }
}

#[derive(Clone, Copy, Debug)]
enum Init {
    Normal(f32),
    One,
    Zero,
}

/// One named parameter.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) shape: Vec<usize>,
    pub(crate) span: Span,
    init: Init,
}

/// One transformer block.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BlockSpans {
    pub(crate) norm_attention: Span,
    pub(crate) qkv: Span,
    pub(crate) out: Span,
    pub(crate) norm_mlp: Span,
    pub(crate) up: Span,
    pub(crate) down: Span,
}

/// All parameters.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layout {
    pub(crate) entries: Vec<Entry>,
    pub(crate) total: usize,
    pub(crate) tokens: Span,
    pub(crate) chars: Span,
    pub(crate) text: Span,
    pub(crate) response: Span,
    pub(crate) rows: Span,
    pub(crate) columns: Span,
    pub(crate) quarters: Span,
    pub(crate) ages: Option<Span>,
    pub(crate) stem_in: Span,
    pub(crate) stem_in_bias: Span,
    pub(crate) stem_out: Span,
    pub(crate) stem_out_bias: Span,
    pub(crate) stem_mix: Span,
    pub(crate) blocks: Vec<BlockSpans>,
    pub(crate) norm_image: Span,
    pub(crate) norm_response: Span,
    pub(crate) key: Span,
    pub(crate) query: Span,
    pub(crate) read_glyph: Span,
    pub(crate) read_glyph_bias: Span,
    pub(crate) read_label: Span,
    pub(crate) read_label_bias: Span,
}

impl Layout {
    /// The parameters of a model of this shape.
    pub(crate) fn new(config: &ModelConfig, tokenizer: &Tokenizer) -> Self {
        let mut entries = declare(config, tokenizer);
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        let mut total = 0;
        for entry in &mut entries {
            let len = entry.shape.iter().product();
            entry.span = Span { at: total, len };
            total += len;
        }
        let mut layout = Self {
            entries,
            total,
            ..Self::default()
        };
        layout.bind(config);
        layout
    }

    fn bind(&mut self, config: &ModelConfig) {
        self.tokens = self.span("embed.tokens");
        self.chars = self.span("embed.chars");
        self.text = self.span("embed.text");
        self.response = self.span("embed.response");
        self.rows = self.span("embed.rows");
        self.columns = self.span("embed.columns");
        self.quarters = self.span("embed.quarters");
        self.ages = (config.history_images > 1).then(|| self.span("embed.ages"));
        self.stem_in = self.span("stem.in");
        self.stem_in_bias = self.span("stem.in_bias");
        self.stem_out = self.span("stem.out");
        self.stem_out_bias = self.span("stem.out_bias");
        self.stem_mix = self.span("stem.mix");
        self.norm_image = self.span("head.norm_image");
        self.norm_response = self.span("head.norm_response");
        self.key = self.span("head.key");
        self.query = self.span("head.query");
        self.read_glyph = self.span("read.glyph");
        self.read_glyph_bias = self.span("read.glyph_bias");
        self.read_label = self.span("read.label");
        self.read_label_bias = self.span("read.label_bias");
        let block = |i: usize, name: &str| self.span(&format!("block{i:02}.{name}"));
        self.blocks = (0..config.layers)
            .map(|i| BlockSpans {
                norm_attention: block(i, "norm_attention"),
                qkv: block(i, "qkv"),
                out: block(i, "out"),
                norm_mlp: block(i, "norm_mlp"),
                up: block(i, "up"),
                down: block(i, "down"),
            })
            .collect();
    }

    fn span(&self, name: &str) -> Span {
        let found = self.entries.iter().find(|entry| entry.name == name);
        found.map(|entry| entry.span).unwrap_or_default()
    }

    /// Initial values, drawn in the order of the names.
    pub(crate) fn initial(&self, seed: u64) -> Vec<f32> {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut values = vec![0.0; self.total];
        for entry in &self.entries {
            let target = entry.span.of_mut(&mut values);
            match entry.init {
                Init::Normal(deviation) => normal(target, deviation, &mut random),
                Init::One => target.fill(1.0),
                Init::Zero => {}
            }
        }
        values
    }
}

/// Box-Muller: two uniform numbers give two normal ones.
fn normal(target: &mut [f32], deviation: f32, random: &mut ChaCha8Rng) {
    for pair in target.chunks_mut(2) {
        let (u, v): (f32, f32) = (1.0 - random.random::<f32>(), random.random());
        let radius = deviation * (-2.0 * u.ln()).sqrt();
        let angle = std::f32::consts::TAU * v;
        pair[0] = radius * angle.cos();
        if let Some(second) = pair.get_mut(1) {
            *second = radius * angle.sin();
        }
    }
}

fn declare(config: &ModelConfig, tokenizer: &Tokenizer) -> Vec<Entry> {
    let (d, hidden, mlp) = (config.width, config.stem_width, config.mlp_width);
    let (columns, rows) = config.grid();
    let mut entries = Vec::new();
    let mut add = |name: &str, shape: &[usize], init: Init| {
        entries.push(Entry {
            name: name.to_owned(),
            shape: shape.to_vec(),
            span: Span::default(),
            init,
        });
    };
    // Variance-preserving: each output has about the variance of its inputs.
    let fan = |inputs: usize| Init::Normal((1.0 / inputs as f32).sqrt());
    let embedding = Init::Normal(0.3);
    add("embed.tokens", &[tokenizer.ordinary(), d], embedding);
    add("embed.chars", &[CHAR_POSITIONS, d], embedding);
    add("embed.text", &[TEXT_POSITIONS, d], embedding);
    add("embed.response", &[RESPONSE_POSITIONS, d], embedding);
    add("embed.rows", &[rows, d], embedding);
    add("embed.columns", &[columns, d], embedding);
    add("embed.quarters", &[4, d], embedding);
    if config.history_images > 1 {
        add("embed.ages", &[config.history_images, d], embedding);
    }
    add("stem.in", &[WINDOW_AREA, hidden], fan(WINDOW_AREA / 4));
    add("stem.in_bias", &[hidden], Init::Zero);
    add("stem.out", &[hidden, d], fan(hidden));
    add("stem.out_bias", &[d], Init::Zero);
    add("stem.mix", &[d, 2 * d], fan(4 * d));
    // Each block adds to the residual stream; scaled so that the sum keeps its variance.
    let shrink = |inputs: usize| Init::Normal((0.5 / (inputs * config.layers) as f32).sqrt());
    for i in 0..config.layers {
        let name = |part: &str| format!("block{i:02}.{part}");
        add(&name("norm_attention"), &[d], Init::One);
        add(&name("qkv"), &[d, 3 * d], fan(d));
        add(&name("out"), &[d, d], shrink(d));
        add(&name("norm_mlp"), &[d], Init::One);
        add(&name("up"), &[d, 2 * mlp], fan(d));
        add(&name("down"), &[mlp, d], shrink(mlp));
    }
    add("head.norm_image", &[d], Init::One);
    add("head.norm_response", &[d], Init::One);
    add("head.key", &[d, 4 * config.pointer_width], fan(d));
    add("head.query", &[d, config.pointer_width], fan(d));
    add("read.glyph", &[hidden, GLYPHS * LETTERS], fan(hidden));
    add("read.glyph_bias", &[GLYPHS * LETTERS], Init::Zero);
    let label = config.read_letters * LETTERS;
    add("read.label", &[d, label], fan(d));
    add("read.label_bias", &[label], Init::Zero);
    entries
}
