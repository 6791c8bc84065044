//! What serde says, in words for whoever writes configs.

/// The message without the words of the library. What is not recognised stays as it is.
pub(super) fn plain(message: &str) -> String {
    let message = without_place(message);
    None.or_else(|| wrong_type(message))
        .or_else(|| unknown(message))
        .or_else(|| missing(message))
        .unwrap_or_else(|| message.to_owned())
}

/// The key that the library names at the end, if it does: "in `a.b`".
pub(super) fn place(message: &str) -> Option<&str> {
    let (_, rest) = message.rsplit_once(" in `")?;
    let place = rest.strip_suffix('`')?;
    (!place.contains(['`', ' '])).then_some(place)
}

/// Without that key: it is named elsewhere.
fn without_place(message: &str) -> &str {
    place(message).map_or(message, |place| {
        &message[..message.len() - place.len() - " in ``".len()]
    })
}

fn wrong_type(message: &str) -> Option<String> {
    let kinds = ["invalid type: ", "invalid value: "];
    let rest = kinds.iter().find_map(|kind| message.split_once(kind))?.1;
    let (given, wanted) = rest.split_once(", expected ")?;
    Some(format!("{} is needed, not {}", needed(wanted), what(given)))
}

fn needed(wanted: &str) -> String {
    let number = wanted.trim_start_matches("a value of type ");
    let known = match number {
        "f64" | "f32" | "floating point" | "floating point number" => "a number",
        "u64" | "u32" | "u16" | "u8" | "usize" => "a whole number of 0 or more",
        "i64" | "i32" | "integer" | "an integer" => "a whole number",
        "a nonzero u64" | "a nonzero usize" | "a nonzero u32" => "a whole number of 1 or more",
        "a boolean" | "bool" => "true or false",
        "a string" | "string" => "a text",
        "a sequence" | "an array" => "a list",
        other
            if [
                "a map",
                "struct ",
                "map",
                "internally tagged enum",
                "a table",
            ]
            .iter()
            .any(|table| other.starts_with(table)) =>
        {
            "a table"
        }
        other => return other.to_owned(),
    };
    known.to_owned()
}

fn what(given: &str) -> String {
    let kinds = [
        ("string ", "the text "),
        ("floating point ", ""),
        ("integer ", ""),
        ("boolean ", ""),
    ];
    for (kind, word) in kinds {
        if let Some(value) = given.strip_prefix(kind) {
            return format!("{word}`{}`", value.trim_matches(['"', '`']));
        }
    }
    match given {
        "map" => "a table".to_owned(),
        "sequence" => "a list".to_owned(),
        "null" | "unit value" => "nothing".to_owned(),
        other => other.to_owned(),
    }
}

fn unknown(message: &str) -> Option<String> {
    let field = message.split_once("unknown field `");
    let variant = message.split_once("unknown variant `");
    let (_, rest) = field.or(variant)?;
    let (name, known) = rest.split_once('`')?;
    let known = known.trim_start_matches(", ");
    let known = ["expected one of ", "expected "]
        .iter()
        .find_map(|word| known.strip_prefix(word));
    let list = known.unwrap_or("none here");
    Some(match field {
        Some(_) if known.is_none() => format!("there is no key `{name}` here"),
        Some(_) => format!("there is no key `{name}`; there is {list}"),
        None => format!("`{name}` is none of {list}"),
    })
}

fn missing(message: &str) -> Option<String> {
    let (_, rest) = message.split_once("missing field `")?;
    let (name, _) = rest.split_once('`')?;
    Some(format!("`{name}` is missing"))
}

/// The known key closest to the unknown one in serde's message, if it is close.
pub(super) fn nearest_key(message: &str) -> Option<&str> {
    let wrong_kind = ["unknown field `", "unknown variant `"];
    let start = wrong_kind
        .iter()
        .find_map(|kind| message.find(kind).map(|at| at + kind.len()))?;
    let mut quoted = message[start..].split('`').step_by(2);
    let unknown = quoted.next()?;
    quoted
        .filter(|known| !known.is_empty() && !known.contains(' '))
        .map(|known| (strsim::jaro_winkler(unknown, known), known))
        .filter(|(similarity, _)| *similarity > 0.7)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_the_library_are_replaced() {
        let cases = [
            (
                "invalid type: string \"fast\", expected f64 in `a.b`",
                "a number is needed, not the text `fast`",
            ),
            (
                "invalid type: map, expected u64",
                "a whole number of 0 or more is needed, not a table",
            ),
            (
                "invalid value: integer `-1`, expected usize",
                "a whole number of 0 or more is needed, not `-1`",
            ),
            (
                "unknown field `x`, expected `y`",
                "there is no key `x`; there is `y`",
            ),
            (
                "unknown field `x`, there are no fields",
                "there is no key `x` here",
            ),
            (
                "unknown variant `x`, expected `y` or `z`",
                "`x` is none of `y` or `z`",
            ),
            ("missing field `cap`", "`cap` is missing"),
            ("something else", "something else"),
        ];
        for (said, expected) in cases {
            assert_eq!(plain(said), expected);
        }
    }
}
