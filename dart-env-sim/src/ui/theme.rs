//! Colours. Text is dark on light everywhere except on the default button and on selections, so
//! that one way of reading serves all widgets.

use crate::canvas::Rgb;

/// Behind everything.
pub(super) const DESK: Rgb = [214, 223, 232];
/// The face of what can be pressed or filled in.
pub(super) const FACE: Rgb = [255, 255, 255];
/// A less prominent face: hidden tabs, tracks.
pub(super) const SHADE: Rgb = [184, 194, 206];
/// Title bars.
pub(super) const TITLE: Rgb = [168, 204, 240];
/// Thin borders.
pub(super) const EDGE: Rgb = [84, 98, 116];
/// Text, thick frames.
pub(super) const INK: Rgb = [12, 16, 24];
/// The default button, ticks, selections.
pub(super) const ACCENT: Rgb = [24, 84, 200];
/// What has been pressed.
pub(super) const PRESSED: Rgb = [12, 40, 104];
/// Close boxes.
pub(super) const CLOSE: Rgb = [232, 96, 84];
/// App icons.
pub(super) const HUES: [Rgb; 6] = [
    [224, 88, 72],
    [232, 156, 40],
    [76, 168, 80],
    [40, 152, 176],
    [84, 104, 208],
    [160, 84, 176],
];

/// A tick mark, 8 wide.
pub(super) const TICK: [u8; 6] = [
    0b0000_0011,
    0b0000_0110,
    0b1000_1100,
    0b1101_1000,
    0b0111_0000,
    0b0010_0000,
];
/// A cross, 8 wide.
pub(super) const CROSS: [u8; 8] = [
    0b1100_0011,
    0b1110_0111,
    0b0111_1110,
    0b0011_1100,
    0b0011_1100,
    0b0111_1110,
    0b1110_0111,
    0b1100_0011,
];
/// An arrow down, 7 wide.
pub(super) const ARROW: [u8; 4] = [0b111_1111, 0b011_1110, 0b001_1100, 0b000_1000];
/// A disc, 10 wide.
pub(super) const DISC: [u16; 10] = [
    0b00_0111_1000,
    0b01_1111_1110,
    0b01_1111_1110,
    0b11_1111_1111,
    0b11_1111_1111,
    0b11_1111_1111,
    0b11_1111_1111,
    0b01_1111_1110,
    0b01_1111_1110,
    0b00_0111_1000,
];
/// A small disc, 4 wide.
pub(super) const DOT: [u8; 4] = [0b0110, 0b1111, 0b1111, 0b0110];
/// What an empty disc shows inside its rim, 8 wide.
pub(super) const HOLE: [u8; 8] = [
    0b0011_1100,
    0b0111_1110,
    0b1111_1111,
    0b1111_1111,
    0b1111_1111,
    0b1111_1111,
    0b0111_1110,
    0b0011_1100,
];
