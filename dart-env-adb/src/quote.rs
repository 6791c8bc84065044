//! Quoting for the device's shell.

/// `word` as one word of a POSIX shell, whatever is in it. Nothing inside is expanded.
///
/// ```
/// use dart_env_adb::quote::quote;
///
/// assert_eq!(quote("it's $HOME"), r"'it'\''s $HOME'");
/// ```
pub fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// A command line of `words`, each quoted.
pub fn join(words: &[&str]) -> String {
    let quoted: Vec<_> = words.iter().map(|word| quote(word)).collect();
    quoted.join(" ")
}
