//! From the name of an app to its package.

use std::collections::BTreeMap;

/// Names that people use, and packages that go by them; the first that is installed is meant.
const KNOWN: &[(&str, &[&str])] = &[
    ("browser", &["com.android.chrome", "org.chromium.chrome"]),
    (
        "calculator",
        &["com.google.android.calculator", "com.android.calculator2"],
    ),
    (
        "camera",
        &["com.android.camera2", "com.google.android.GoogleCamera"],
    ),
    ("chrome", &["com.android.chrome", "org.chromium.chrome"]),
    (
        "clock",
        &["com.google.android.deskclock", "com.android.deskclock"],
    ),
    (
        "contacts",
        &["com.google.android.contacts", "com.android.contacts"],
    ),
    (
        "files",
        &["com.google.android.documentsui", "com.android.documentsui"],
    ),
    (
        "gallery",
        &["com.simplemobiletools.gallery.pro", "com.android.gallery3d"],
    ),
    (
        "messages",
        &["com.google.android.apps.messaging", "com.android.messaging"],
    ),
    (
        "phone",
        &["com.google.android.dialer", "com.android.dialer"],
    ),
    ("play store", &["com.android.vending"]),
];

/// The package (or component) of the app `name`, if it can be told: one that the settings name, a
/// well-known one, a package name, or the only package whose last part is the name.
pub(crate) fn resolve(
    name: &str,
    configured: &BTreeMap<String, String>,
    installed: &[String],
) -> Option<String> {
    let same = |a: &str, b: &str| simple(a) == simple(b);
    let configured = configured.iter().find(|(known, _)| same(known, name));
    if let Some((_, package)) = configured {
        return Some(package.clone());
    }
    let is_installed = |package: &&str| installed.iter().any(|other| other == package);
    if is_installed(&name) {
        return Some(name.to_owned());
    }
    let known = KNOWN.iter().find(|(known, _)| same(known, name));
    let known = known.and_then(|(_, all)| all.iter().copied().find(is_installed));
    if let Some(package) = known {
        return Some(package.to_owned());
    }
    let last = |package: &&String| {
        package
            .rsplit('.')
            .next()
            .is_some_and(|last| same(last, name))
    };
    let mut matching = installed.iter().filter(last);
    match (matching.next(), matching.next()) {
        (Some(only), None) => Some(only.clone()),
        _ => None,
    }
}

/// Letters and digits in small letters.
fn simple(name: &str) -> String {
    let kept = name.chars().filter(|c| c.is_alphanumeric());
    kept.flat_map(char::to_lowercase).collect()
}

/// The packages in the output of `pm list packages`.
pub(crate) fn packages(output: &str) -> Vec<String> {
    let lines = output
        .lines()
        .filter_map(|line| line.trim().strip_prefix("package:"));
    lines.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_to_packages() {
        let installed = packages(
            "package:com.android.settings\npackage:com.android.chrome\npackage:a.notes\npackage:b.notes\nrubbish\n",
        );
        let mut apps = BTreeMap::new();
        apps.insert("My Notes".to_owned(), "a.notes/.Main".to_owned());
        let found = |name| resolve(name, &apps, &installed);
        assert_eq!(found("Settings").as_deref(), Some("com.android.settings"));
        assert_eq!(found("browser").as_deref(), Some("com.android.chrome"));
        assert_eq!(found("b.notes").as_deref(), Some("b.notes"));
        assert_eq!(found("my notes").as_deref(), Some("a.notes/.Main"));
        assert_eq!(found("Notes"), None, "two packages are called that");
        assert_eq!(found("clock"), None);
    }
}
