//! [`ModelConfig`]: shape of the model, of its prompts and of its actions.

use dart_core::Size;
use serde::{Deserialize, Serialize};

use crate::{error::PolicyError, grammar::GrammarConfig};

/// Pixels from one image token to the next.
pub const STRIDE: u32 = 16;
/// Side of the window of pixels that one image token sees; neighbours overlap by 8 pixels, so that
/// a glyph on a border is whole in one of them. Overlapping windows read far better than plain
/// 16x16 patches.
pub const WINDOW: u32 = 24;
/// Side of a cell, the unit of pointing: each image token answers for 2x2 cells.
pub const CELL: u32 = 8;

/// Shape of the model. Together with the weights it makes the policy; both sides must agree on it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelConfig {
    /// Width of the image that the model sees, in pixels, a multiple of 16. Frames of another size
    /// are resized. Default 128: the simulated desktop, pixel by pixel.
    pub image_width: u32,
    /// Height of that image, a multiple of 16. Default 96.
    pub image_height: u32,
    /// Numbers per token in the transformer. Default 96: enough to hold a label of five letters.
    pub width: usize,
    /// Attention heads; divides `width`. Default 3.
    pub heads: usize,
    /// Transformer blocks. Default 2: gather a label and the instruction's word, then compare.
    pub layers: usize,
    /// Hidden width of the SwiGLU networks. Default 192.
    pub mlp_width: usize,
    /// Hidden width of the window embedding. Default 192.
    pub stem_width: usize,
    /// Width of the pointer's keys and queries. Default 64.
    pub pointer_width: usize,
    /// Images in the prompt, the current one included, 1 to 5. Default 1: more cost time and the
    /// default tasks show all that matters in the current one. (The paper's agent uses 5.)
    pub history_images: usize,
    /// Earlier responses in the prompt, at most 35. Default 3: tells copy from paste.
    pub history_actions: usize,
    /// Longest label that the auxiliary reading loss spells, in letters. Default 5.
    pub read_letters: usize,
    /// What the policy can say.
    pub grammar: GrammarConfig,
}

impl Default for ModelConfig {
    fn default() -> Self {
        Self {
            image_width: 128,
            image_height: 96,
            width: 96,
            heads: 3,
            layers: 2,
            mlp_width: 192,
            stem_width: 192,
            pointer_width: 64,
            history_images: 1,
            history_actions: 3,
            read_letters: 5,
            grammar: GrammarConfig::default(),
        }
    }
}

impl ModelConfig {
    /// The image that the model sees.
    pub const fn image(&self) -> Size {
        Size::new(self.image_width, self.image_height)
    }

    /// Image tokens per row and per column.
    pub const fn grid(&self) -> (usize, usize) {
        (
            (self.image_width / STRIDE) as usize,
            (self.image_height / STRIDE) as usize,
        )
    }

    /// Tokens of one image.
    pub const fn image_tokens(&self) -> usize {
        let (columns, rows) = self.grid();
        columns * rows
    }

    /// Cells that the pointer chooses from, row by row.
    pub const fn cells(&self) -> usize {
        self.image_tokens() * 4
    }

    /// Cells per row.
    pub const fn cell_columns(&self) -> usize {
        (self.image_width / CELL) as usize
    }

    /// Checks all bounds.
    ///
    /// # Errors
    /// [`Config`](dart_core::ErrorKind::Config), naming the field.
    pub fn validate(&self) -> dart_core::Result<()> {
        let checks = [
            (
                "image_width",
                self.image_width.is_multiple_of(STRIDE)
                    && (STRIDE..=4096).contains(&self.image_width),
            ),
            (
                "image_height",
                self.image_height.is_multiple_of(STRIDE)
                    && (STRIDE..=4096).contains(&self.image_height),
            ),
            ("width", (8..=4096).contains(&self.width)),
            (
                "heads",
                (1..=self.width).contains(&self.heads) && self.width.is_multiple_of(self.heads),
            ),
            ("layers", (1..=64).contains(&self.layers)),
            ("mlp_width", (1..=16_384).contains(&self.mlp_width)),
            ("stem_width", (1..=16_384).contains(&self.stem_width)),
            ("pointer_width", (1..=4096).contains(&self.pointer_width)),
            ("history_images", (1..=5).contains(&self.history_images)),
            ("history_actions", self.history_actions <= 35),
            ("read_letters", (1..=16).contains(&self.read_letters)),
        ];
        if let Some((name, _)) = checks.iter().find(|(_, good)| !good) {
            return Err(PolicyError::Config(name).into());
        }
        self.grammar.validate()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_shapes_are_named() {
        assert!(ModelConfig::default().validate().is_ok());
        let bad = ModelConfig {
            image_width: 130,
            ..ModelConfig::default()
        };
        assert!(
            bad.validate()
                .unwrap_err()
                .to_string()
                .contains("image_width")
        );
        let bad = ModelConfig {
            heads: 5,
            ..ModelConfig::default()
        };
        assert!(bad.validate().unwrap_err().to_string().contains("heads"));
    }
}
