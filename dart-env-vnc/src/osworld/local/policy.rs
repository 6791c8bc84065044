//! What a task may start on this machine.
//!
//! A task file is downloaded data. Without `--allow-host-exec` it starts only known applications,
//! with files of the episode and addresses as arguments: an application's options can name programs
//! and files too. Arguments are words; none is interpreted by a shell.

use crate::osworld::{
    config::{HostExec, LocalConfig},
    step::GuestCommand,
};

use super::confine;

/// What is allowed on a local desktop.
#[derive(Clone, Debug)]
pub(crate) struct Policy {
    programs: Vec<String>,
    network: bool,
    host_exec: HostExec,
}

/// Options that name neither a program nor a file.
const PLAIN_OPTIONS: [&str; 14] = [
    "--calc",
    "--force-renderer-accessibility",
    "--impress",
    "--incognito",
    "--new-tab",
    "--new-window",
    "--nodefault",
    "--nologo",
    "--norestore",
    "--start-maximized",
    "--writer",
    "-n",
    "-s",
    "--no-first-start-wizard",
];

/// Programs that are the browser.
pub(super) const BROWSERS: [&str; 4] = [
    "google-chrome",
    "google-chrome-stable",
    "chromium",
    "chromium-browser",
];

/// What opens a file, by the end of its name.
const OPENERS: [(&str, &[&str]); 5] = [
    (
        "mousepad",
        &[
            "c", "conf", "css", "ini", "js", "json", "log", "md", "py", "sh", "srt", "txt", "xml",
            "yaml",
        ],
    ),
    (
        "libreoffice",
        &[
            "csv", "doc", "docx", "odp", "ods", "odt", "ppt", "pptx", "xls", "xlsx",
        ],
    ),
    ("gimp", &["bmp", "gif", "jpeg", "jpg", "png", "webp", "xcf"]),
    (
        "vlc",
        &["avi", "mkv", "mov", "mp3", "mp4", "ogg", "wav", "webm"],
    ),
    ("google-chrome", &["htm", "html", "pdf", "svg"]),
];

/// The program that opens a file of this name.
pub(super) fn opener(path: &str) -> Option<&'static str> {
    let end = path
        .rsplit('/')
        .next()?
        .rsplit_once('.')?
        .1
        .to_ascii_lowercase();
    let opens =
        |(program, ends): &(&'static str, &[&str])| ends.contains(&&*end).then_some(*program);
    OPENERS.iter().find_map(opens)
}

/// The Debian package of one of the known applications.
pub(super) fn package(program: &str) -> Option<&'static str> {
    Some(match program {
        browser if BROWSERS.contains(&browser) => "chromium",
        "libreoffice" | "soffice" => "libreoffice-calc libreoffice-writer",
        "localc" => "libreoffice-calc",
        "loimpress" => "libreoffice-impress",
        "lowriter" => "libreoffice-writer",
        "galculator" => "galculator",
        "gedit" => "gedit",
        "gimp" => "gimp",
        "l3afpad" => "l3afpad",
        "mousepad" => "mousepad",
        "nautilus" => "nautilus",
        "thunderbird" => "thunderbird",
        "vlc" => "vlc",
        _ => return None,
    })
}

/// Whether a command is the forwarder of OSWorld's browser port, which a local desktop does without.
pub(super) fn is_forwarder(words: &[String]) -> bool {
    words.first().is_some_and(|word| word == "socat")
        && words.iter().any(|word| word.starts_with("tcp-listen:9222"))
}

/// Whether an address is on this machine. Of `user:password@host` the user is not the host.
fn is_here(url: &str) -> bool {
    let host = |url: &str| {
        let rest = url.split(['/', '?', '#']).next().unwrap_or_default();
        let (host, port) = rest.rsplit_once(':').unwrap_or((rest, "0"));
        matches!(host, "localhost" | "127.0.0.1") && port.bytes().all(|b| b.is_ascii_digit())
    };
    url.starts_with("about:")
        || url.starts_with("chrome://")
        || url.strip_prefix("http://").is_some_and(host)
        || url.strip_prefix("https://").is_some_and(host)
}

fn is_web(url: &str) -> bool {
    url.starts_with("http://") || url.starts_with("https://")
}

/// The path of a file's address, and its query and fragment. The path is without percent-encoding:
/// a browser takes `%2e%2e` for `..`. An empty path is one that makes no sense.
pub(super) fn file_url(url: &str) -> Option<(String, &str)> {
    let rest = url.strip_prefix("file://")?;
    let (path, end) = rest.split_at(rest.find(['?', '#']).unwrap_or(rest.len()));
    // A host, even this one, is of no use.
    let path = if path.starts_with('/') {
        decoded(path)
    } else {
        None
    };
    Some((path.unwrap_or_default(), end))
}

fn decoded(path: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        let byte = if *first == b'%' {
            let digits = std::str::from_utf8(after.get(..2)?).ok()?;
            rest = &after[2..];
            // Not from_str_radix alone, which takes a sign.
            let hex = digits.bytes().all(|b| b.is_ascii_hexdigit());
            hex.then(|| u8::from_str_radix(digits, 16).ok()).flatten()?
        } else {
            *first
        };
        bytes.push(byte);
    }
    String::from_utf8(bytes).ok()
}

impl Policy {
    pub(crate) fn new(config: &LocalConfig, host_exec: HostExec) -> Self {
        Self {
            programs: config.programs.clone(),
            network: config.network,
            host_exec,
        }
    }

    /// Whether a path stays in the episode's home.
    pub(crate) fn path(path: &str) -> Result<(), String> {
        confine::check(path).map_err(|fault| fault.to_string())
    }

    /// Whether the browser may open an address.
    pub(crate) fn page(&self, url: &str) -> Result<(), String> {
        if let Some((path, _)) = file_url(url) {
            return Self::path(&path);
        }
        if is_here(url) || (self.network && is_web(url)) {
            return Ok(());
        }
        let shown: String = url.chars().take(80).collect();
        Err(format!("the page {shown} (guest.network is off)"))
    }

    /// Whether a file can be opened.
    pub(crate) fn opens(path: &str) -> Result<(), String> {
        Self::path(path)?;
        opener(path).map_or_else(|| Err(format!("no program to open {path}")), |_| Ok(()))
    }

    /// Whether a command may be run to its end.
    pub(crate) fn executes(&self, command: &GuestCommand) -> Result<(), String> {
        if self.host_exec == HostExec::Allowed {
            return Ok(());
        }
        let name = command
            .words()
            .ok()
            .and_then(|words| words.into_iter().next());
        let name: String = name.unwrap_or_default().chars().take(40).collect();
        Err(format!(
            "a command on this machine ({name}) without --allow-host-exec"
        ))
    }

    /// Whether a program may be started.
    pub(crate) fn launches(&self, command: &GuestCommand) -> Result<(), String> {
        if command.shell {
            return self.executes(command);
        }
        let words = command.words()?;
        if is_forwarder(&words) || self.host_exec == HostExec::Allowed {
            return Ok(());
        }
        let (program, arguments) = words.split_first().ok_or("the command is empty")?;
        if !self.programs.contains(program) {
            return self.executes(command);
        }
        arguments
            .iter()
            .try_for_each(|word| self.argument(program, word))
    }

    /// Whether a command starts one of the known applications, which show a window.
    pub(super) fn is_application(&self, command: &GuestCommand) -> bool {
        let words = command.words().unwrap_or_default();
        !command.shell
            && words
                .first()
                .is_some_and(|word| self.programs.contains(word))
    }

    fn argument(&self, program: &str, word: &str) -> Result<(), String> {
        let browser = BROWSERS.contains(&program);
        if word.starts_with('-') {
            let port = browser && word.starts_with("--remote-debugging-port=");
            if port || PLAIN_OPTIONS.contains(&word) {
                return Ok(());
            }
            let shown: String = word.chars().take(60).collect();
            return Err(format!(
                "option {shown} of {program} without --allow-host-exec"
            ));
        }
        // To a browser a word is an address unless it begins like a path.
        if browser && !word.starts_with(['/', '~']) {
            return self.page(word);
        }
        if word.contains(':') {
            let shown: String = word.chars().take(60).collect();
            return Err(format!(
                "argument {shown} of {program} without --allow-host-exec"
            ));
        }
        Self::path(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::osworld::step::CommandText;

    fn command(line: &str) -> GuestCommand {
        GuestCommand {
            command: CommandText::Line(line.into()),
            shell: false,
        }
    }

    #[test]
    fn applications_get_files_and_addresses_and_nothing_else() {
        let policy = Policy::new(&LocalConfig::default(), HostExec::Denied);
        for good in [
            "mousepad",
            "mousepad /home/user/a.txt",
            "google-chrome --remote-debugging-port=1337",
            "google-chrome http://127.0.0.1:8000/x",
            "google-chrome file:///home/user/a.html",
            "google-chrome file:///home/user/a%20b.html?q=..#x/../y",
            "google-chrome ~/a.html",
            "socat tcp-listen:9222,fork tcp:localhost:1337",
            "libreoffice --calc --norestore ~/a.xlsx",
        ] {
            assert_eq!(policy.launches(&command(good)), Ok(()), "{good}");
        }
        for bad in [
            "bash -c x",
            "/usr/bin/mousepad",
            "mousepad /etc/passwd",
            "mousepad ../x",
            "vlc --sout=file/ts:/x",
            "google-chrome --renderer-cmd-prefix=x",
            "google-chrome https://example.org",
            "google-chrome http://localhost.example.org",
            "google-chrome http://localhost:80@example.org",
            "google-chrome http://127.0.0.1@example.org/",
            "google-chrome http://localhost\\@example.org/",
            "google-chrome example.org",
            "google-chrome file:///home/user/%2e%2e/%2E./etc/passwd",
            "google-chrome file:///home/user/%2e%2e%2fx",
            "google-chrome file:///home/user/%00",
            "google-chrome file:///home/user/%+1",
            "google-chrome file:///home/user/%",
            "google-chrome file://example.org/home/user/x",
            "google-chrome FILE:///etc/passwd",
            "google-chrome view-source:file:///etc/passwd",
            "google-chrome file:///etc/passwd",
            "libreoffice macro:///x",
            "vlc file:///etc/passwd",
            "google-chrome javascript:x",
            "socat exec:sh tcp:localhost:1",
        ] {
            assert!(policy.launches(&command(bad)).is_err(), "{bad}");
        }
        let mut shell = command("mousepad");
        shell.shell = true;
        assert!(policy.launches(&shell).is_err());
        assert!(policy.executes(&command("true")).is_err());
    }

    #[test]
    fn the_flag_allows_the_rest() {
        let policy = Policy::new(&LocalConfig::default(), HostExec::Allowed);
        assert_eq!(policy.launches(&command("bash -c x")), Ok(()));
        assert_eq!(policy.executes(&command("true")), Ok(()));
        // Paths stay confined whoever asks.
        assert!(Policy::path("/etc/passwd").is_err());
        assert!(Policy::opens("~/a.unknown").is_err());
        assert_eq!(Policy::opens("~/A.TXT"), Ok(()));
    }
}
