//! The user interface as `uiautomator dump` writes it.
//!
//! The command ends with code 0 whatever happens, so what it says is read, and a dump without a node is
//! an error: an empty screen has at least its root.

use dart_core::{Rect, Result, UiElement, UiRole};

use crate::error::{Adb, AdbError, excerpt};

/// Longest dump, bytes.
const MAX_DUMP: usize = 16 << 20;
/// What a dump begins with.
const START: &[u8] = b"<?xml";
const MAX_NODES: usize = 50_000;
const MAX_DEPTH: usize = 1000;

/// One element.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UiNode {
    /// Number of elements around it.
    pub depth: usize,
    /// Its class, such as `android.widget.Button`.
    pub class: String,
    /// The app's package.
    pub package: String,
    /// The app's name for it, such as `com.example:id/send`.
    pub resource_id: String,
    /// The text that it shows.
    pub text: String,
    /// What it is, for people who cannot see it.
    pub description: String,
    /// Where it is, in pixels of the screen as it is held; `None` if it has no area.
    pub bounds: Option<Rect>,
    /// Those of `checkable`, `checked`, `clickable`, `enabled`, `focusable`, `focused`,
    /// `scrollable`, `long-clickable`, `password` and `selected` that hold.
    pub flags: Vec<String>,
}

impl UiNode {
    /// Whether a flag holds.
    pub fn is(&self, flag: &str) -> bool {
        self.flags.iter().any(|held| held == flag)
    }

    /// The element of an observation; `None` if there is nothing to see or touch.
    pub fn element(&self) -> Option<UiElement> {
        let text = if self.text.is_empty() {
            &self.description
        } else {
            &self.text
        };
        let shown = !text.is_empty() || self.is("clickable") || self.is("checkable");
        Some(UiElement {
            role: role(&self.class),
            text: text.clone(),
            bounds: self.bounds.filter(|_| shown)?,
        })
    }
}

fn role(class: &str) -> UiRole {
    match class.rsplit('.').next().unwrap_or_default() {
        "Button" | "ImageButton" => UiRole::Button,
        "CheckBox" | "CheckedTextView" => UiRole::Checkbox,
        "EditText" | "AutoCompleteTextView" => UiRole::TextField,
        "ImageView" => UiRole::Icon,
        "RadioButton" => UiRole::Radio,
        "SeekBar" => UiRole::Slider,
        "Switch" | "ToggleButton" => UiRole::Switch,
        "TextView" => UiRole::Label,
        _ => UiRole::Other,
    }
}

/// Reads a dump, in the order in which elements are drawn.
///
/// # Errors
/// [`Protocol`](dart_core::ErrorKind::Protocol) if it is none, or has no element.
pub fn parse_dump(xml: &[u8]) -> Result<Vec<UiNode>> {
    parse(xml).map_err(|error| error.at("ui tree"))
}

/// The dump that was printed after the words of the command that made it; `None` if these do not say
/// that it has worked.
pub(crate) fn after_words<'a>(printed: &'a [u8], complaints: &[u8]) -> Option<&'a [u8]> {
    let start = printed.windows(START.len()).position(|at| at == START)?;
    let (words, dump) = printed.split_at(start);
    let said = |bytes: &[u8], what: &str| String::from_utf8_lossy(bytes).contains(what);
    let failed = said(words, "ERROR") || said(complaints, "ERROR");
    (said(words, "dumped to") && !failed).then_some(dump)
}

fn parse(xml: &[u8]) -> Adb<Vec<UiNode>> {
    let bad = |what| AdbError::malformed(what, excerpt(xml, 120));
    if xml.len() > MAX_DUMP {
        let (what, limit) = ("a dump of the user interface", MAX_DUMP);
        return Err(AdbError::TooLong { what, limit });
    }
    let text = std::str::from_utf8(xml).map_err(|_| bad("the dump is not UTF-8"))?;
    let mut rest = text.find("<hierarchy").map(|at| &text[at..]);
    let mut nodes = Vec::new();
    let mut depth = 0_usize;
    while let Some(tag) = rest.take() {
        let end = tag_end(tag).ok_or_else(|| bad("the dump is cut"))?;
        let (inside, after) = (&tag[1..end], &tag[end + 1..]);
        if inside.starts_with("/hierarchy") {
            break;
        } else if inside.starts_with("/node") {
            depth = depth.saturating_sub(1);
        } else if let Some(attributes) = inside.strip_prefix("node") {
            nodes.push(node(attributes, depth).ok_or_else(|| bad("a bad element"))?);
            depth += usize::from(!inside.ends_with('/'));
        }
        if nodes.len() > MAX_NODES || depth > MAX_DEPTH {
            return Err(bad("too many elements"));
        }
        rest = after.find('<').map(|at| &after[at..]);
        if rest.is_none() {
            return Err(bad("the dump is cut"));
        }
    }
    if nodes.is_empty() {
        return Err(bad("the dump of the user interface has no element"));
    }
    Ok(nodes)
}

/// Where the tag that `text` begins with ends; `>` may be in a quoted value.
fn tag_end(text: &str) -> Option<usize> {
    let mut quoted = false;
    text.bytes().position(|byte| {
        quoted ^= byte == b'"';
        byte == b'>' && !quoted
    })
}

fn node(attributes: &str, depth: usize) -> Option<UiNode> {
    let mut node = UiNode {
        depth,
        ..UiNode::default()
    };
    let mut rest = attributes.trim_start();
    while let Some((name, after)) = rest.split_once("=\"") {
        let (value, after) = after.split_once('"')?;
        let value = unescaped(value)?;
        match name {
            "class" => node.class = value,
            "package" => node.package = value,
            "resource-id" => node.resource_id = value,
            "text" => node.text = value,
            "content-desc" => node.description = value,
            "bounds" => node.bounds = bounds(&value),
            flag if value == "true" => node.flags.push(flag.to_owned()),
            _ => {}
        }
        rest = after.trim_start();
    }
    Some(node)
}

/// `[left,top][right,bottom]`; `None` without area.
fn bounds(text: &str) -> Option<Rect> {
    let inside = text.strip_prefix('[')?.strip_suffix(']')?;
    let (first, second) = inside.split_once("][")?;
    let point = |text: &str| {
        let (x, y) = text.split_once(',')?;
        Some((x.parse::<i32>().ok()?, y.parse::<i32>().ok()?))
    };
    let ((left, top), (right, bottom)) = (point(first)?, point(second)?);
    let width = u32::try_from(right.checked_sub(left)?).ok()?;
    let height = u32::try_from(bottom.checked_sub(top)?).ok()?;
    (width > 0 && height > 0).then(|| Rect::new(left, top, width, height))
}

/// `text` with characters in place of their names.
fn unescaped(text: &str) -> Option<String> {
    let mut all = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('&') {
        all.push_str(before);
        let (name, after) = after.split_once(';')?;
        all.push(match name {
            "amp" => '&',
            "apos" => '\'',
            "gt" => '>',
            "lt" => '<',
            "quot" => '"',
            number => {
                let number = number.strip_prefix('#')?;
                let code = match number.strip_prefix('x') {
                    Some(hex) => u32::from_str_radix(hex, 16).ok()?,
                    None => number.parse().ok()?,
                };
                // Half of a surrogate pair, which some versions write, is no character.
                char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
            }
        });
        rest = after;
    }
    all.push_str(rest);
    Some(all)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DUMP: &str = r#"<?xml version='1.0' encoding='UTF-8' standalone='yes' ?><hierarchy rotation="0"><node index="0" text="" class="android.widget.FrameLayout" package="com.a" content-desc="" clickable="false" bounds="[0,0][1080,2400]"><node index="0" text="A &gt; B &#10;&amp;&quot;&#x4f60;" resource-id="com.a:id/ok" class="android.widget.Button" package="com.a" content-desc="ok" clickable="true" enabled="true" bounds="[10,20][110,70]" /></node></hierarchy>"#;

    #[test]
    fn a_dump_is_read() {
        let nodes = parse_dump(DUMP.as_bytes()).unwrap();
        assert_eq!(nodes.len(), 2);
        assert_eq!((nodes[0].depth, nodes[1].depth), (0, 1));
        assert_eq!(nodes[1].text, "A > B \n&\"\u{4f60}");
        assert!(nodes[1].is("clickable") && !nodes[1].is("checked"));
        let element = nodes[1].element().unwrap();
        assert_eq!(element.role, UiRole::Button);
        assert_eq!(element.bounds, Rect::new(10, 20, 100, 50));
        assert!(nodes[0].element().is_none());
    }

    #[test]
    fn failures_are_errors_and_never_an_empty_screen() {
        let empty = r#"<?xml version='1.0'?><hierarchy rotation="0"></hierarchy>"#;
        let cut = &DUMP[..DUMP.len() - 20];
        for text in ["", "ERROR: null root node", "<hierarchy", empty, cut] {
            assert!(parse_dump(text.as_bytes()).is_err(), "{text}");
        }
        let dump = |words: &str, complaints: &str| {
            let printed = format!("{words}{DUMP}");
            after_words(printed.as_bytes(), complaints.as_bytes()) == Some(DUMP.as_bytes())
        };
        let words = "UI hierchary dumped to: /sdcard/x.xml\n";
        assert!(dump(words, ""));
        assert!(!dump(words, "ERROR: null root node"));
        assert!(!dump("ERROR: could not get idle state.\n", ""));
        assert!(!dump("Killed", ""));
        assert_eq!(after_words(words.as_bytes(), b""), None);
    }

    proptest! {
        #[test]
        fn no_dump_makes_it_panic(middle in "(<node|</node>|/>|>| text=\"|\"|&#[x0-9];|bounds=\"\\[-?[0-9]{1,10},|\\]){0,12}") {
            let _ = parse_dump(format!("<hierarchy>{middle}</hierarchy>").as_bytes());
        }
    }
}
