//! The numbers of the encodings (RFC 6143 §7.7, §7.8; the others as registered with rfbproto).

/// Raw pixels.
pub(crate) const RAW: i32 = 0;
/// A copy within the framebuffer.
pub(crate) const COPY_RECT: i32 = 1;
/// Rise-and-run-length: a background and rectangles on it.
pub(crate) const RRE: i32 = 2;
/// RRE with coordinates of one byte.
pub(crate) const CORRE: i32 = 4;
/// Tiles of 16x16.
pub(crate) const HEXTILE: i32 = 5;
/// Raw pixels through zlib.
pub(crate) const ZLIB: i32 = 6;
/// Filters, palettes and JPEG, most of it through zlib.
pub(crate) const TIGHT: i32 = 7;
/// Run lengths and palettes in tiles of 16x16.
pub(crate) const TRLE: i32 = 15;
/// Run lengths and palettes in tiles of 64x64, through zlib.
pub(crate) const ZRLE: i32 = 16;
/// ZRLE with a lossy wavelet in the tiles of raw pixels.
pub(crate) const ZYWRLE: i32 = 17;
/// Tight with PNG instead of the filters.
pub(crate) const TIGHT_PNG: i32 = -260;

/// The size of the framebuffer changed.
pub(crate) const DESKTOP_SIZE: i32 = -223;
/// The update ends here.
pub(crate) const LAST_RECT: i32 = -224;
/// The shape of the cursor: pixels and a mask.
pub(crate) const CURSOR: i32 = -239;
/// The shape of the cursor: two colours and two masks.
pub(crate) const X_CURSOR: i32 = -240;
/// The shape of the cursor: pixels with opacity.
pub(crate) const CURSOR_WITH_ALPHA: i32 = -314;

/// JPEG quality 0; 1 to 9 follow.
pub(crate) const QUALITY_0: i32 = -32;
