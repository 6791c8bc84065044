//! [`LocalGuest`]: tasks on a desktop of this machine, without OSWorld's server, with its semantics.
//!
//! Each episode has a home of its own that stands for `/home/user`; what it starts ends with it.
//! Windows are found and closed with wmctrl (EWMH), the browser's pages with its DevTools.

mod confine;
mod policy;
pub(super) mod run;
mod user;

use std::{collections::BTreeSet, net::SocketAddr, time::Duration};

use async_trait::async_trait;
use dart_core::Result;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{
    chrome,
    config::LocalConfig,
    error::Fault,
    guest::{Guest, Output, Query},
    http::{Http, percent},
    step::{GuestCommand, SetupStep, WindowQuery},
    task::{Evaluator, OsworldTask},
};
use crate::desktop::bare::{self, BareDesktop, Session};

use confine::Confined;
pub(crate) use policy::Policy;
use user::User;

/// Where the browser keeps its profile, below the home: where OSWorld's tasks look for it.
const PROFILE: &str = ".config/google-chrome";

/// Time between two looks at the windows.
const POLL: Duration = Duration::from_millis(100);

/// A desktop of this machine.
#[derive(Debug)]
pub(crate) struct LocalGuest {
    config: LocalConfig,
    policy: Policy,
    session: Session,
    confined: Confined,
    user: User,
}

impl LocalGuest {
    /// Begins an episode on `desktop`.
    pub(crate) async fn begin(
        config: &LocalConfig,
        policy: Policy,
        desktop: &BareDesktop,
    ) -> Result<Self> {
        let mut session = desktop.session().await?;
        let user = User::choose(desktop.display(), session.home()).await;
        session.confine(user.wrapper(), user.owner())?;
        let home = session.home().to_owned();
        let confined = Confined::new(home, session.temporary(), user.owner());
        for folder in ["Desktop", "Documents", "Downloads", PROFILE] {
            // Makes what the named file would be in.
            confined.make_folders(&format!("~/{folder}/file"))?;
        }
        Ok(Self {
            config: config.clone(),
            policy,
            session,
            confined,
            user,
        })
    }

    fn denied(reason: String) -> Fault {
        Fault::Unsupported(reason)
    }

    async fn launch(&mut self, command: &GuestCommand) -> Result<(), Fault> {
        self.policy.launches(command).map_err(Self::denied)?;
        let words = command.words().map_err(|why| Fault::Setting(why.into()))?;
        if policy::is_forwarder(&words) {
            return Ok(());
        }
        let mut words: Vec<String> = words.iter().map(|word| self.word(word)).collect();
        if command.shell {
            words.splice(0..0, ["sh", "-c"].map(str::to_owned));
        }
        let browser = policy::BROWSERS.contains(&words[0].as_str());
        if browser {
            words = self.browser(&words[1..])?;
        }
        let before = self.windows().await?.len();
        self.session.launch(&words).await?;
        if self.policy.is_application(command) {
            self.wait_for_another(before).await?;
        }
        if browser {
            self.wait_for_page().await?;
        }
        Ok(())
    }

    /// Waits until the browser has a page: its window is there long before.
    async fn wait_for_page(&self) -> Result<(), Fault> {
        let end = Instant::now() + Duration::from_millis(self.config.window_timeout_ms);
        while Instant::now() < end {
            if self
                .tabs()
                .await?
                .as_array()
                .is_some_and(|tabs| !tabs.is_empty())
            {
                return Ok(());
            }
            sleep(POLL).await;
        }
        Err(Fault::Deadline {
            what: "the browser's first page".into(),
            within: Duration::from_millis(self.config.window_timeout_ms),
        })
    }

    /// Waits until there are more windows than `before`. An application that shows none is no fault,
    /// nor one that ends because it has joined a running one.
    async fn wait_for_another(&self, before: usize) -> Result<(), Fault> {
        let end = Instant::now() + Duration::from_millis(self.config.window_timeout_ms);
        while Instant::now() < end {
            if self.windows().await?.len() > before {
                return Ok(());
            }
            if let Some(fault) = self.session.ended() {
                return if before == 0 {
                    Err(fault.into())
                } else {
                    Ok(())
                };
            }
            sleep(POLL).await;
        }
        tracing::debug!("a program was started and no window came");
        Ok(())
    }

    /// A word of a command line, with paths of the guest made those of this machine.
    fn word(&self, word: &str) -> String {
        let page = policy::file_url(word);
        let page = page.and_then(|(path, end)| Some((self.confined.path(&path).ok()?, end)));
        let Some((path, end)) = page else {
            return self.confined.text(word);
        };
        // Names as they are, whatever a browser would make of them.
        let parts = path.iter().skip(1);
        let parts = parts.map(|part| format!("/{}", percent(&part.display().to_string())));
        format!("file://{}{end}", parts.collect::<String>())
    }

    /// The command line of the browser: a profile in the episode's home, DevTools on a free port.
    fn browser(&self, arguments: &[String]) -> Result<Vec<String>, Fault> {
        let program = bare::browser_program()?;
        let profile = self.session.home().join(PROFILE);
        let fixed = [
            "--no-sandbox",
            "--test-type",
            "--no-first-run",
            "--no-default-browser-check",
            "--password-store=basic",
            "--disable-gpu",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--remote-debugging-port=0",
            "--start-maximized",
            "--proxy-server=direct://",
        ];
        let own = |word: &&String| !word.starts_with("--remote-debugging-port=");
        let mut words = vec![program];
        words.extend(fixed.map(str::to_owned));
        words.push(format!("--user-data-dir={}", profile.display()));
        if !self.config.network {
            // Names lead nowhere, and addresses beside the loopback's are not names.
            words.push(
                "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1"
                    .into(),
            );
        }
        words.extend(arguments.iter().filter(own).cloned());
        Ok(words)
    }

    async fn open(&mut self, path: &str) -> Result<(), Fault> {
        Policy::opens(path).map_err(Self::denied)?;
        let program = policy::opener(path)
            .ok_or_else(|| Fault::Unsupported(format!("no program to open {path}")))?;
        let real = self.confined.path(path)?.display().to_string();
        let mut words = vec![program.to_owned(), real];
        if policy::BROWSERS.contains(&program) {
            words = self.browser(&words[1..])?;
        }
        self.session.launch(&words).await?;
        let name = super::support::file_name(path).to_owned();
        let shown = WindowQuery {
            window_name: name,
            strict: false,
            by_class: false,
        };
        self.wait_for_window(&shown).await
    }

    /// The windows' lines: `id desktop class host title`.
    async fn windows(&self) -> Result<Vec<String>, Fault> {
        let words = ["wmctrl", "-l", "-x"].map(str::to_owned);
        let listed = self.run_words(&words).await?;
        // It fails, saying nothing, while the window manager has not listed any window yet.
        Ok(listed.stdout.lines().map(str::to_owned).collect())
    }

    async fn wait_for_window(&self, query: &WindowQuery) -> Result<(), Fault> {
        let deadline = Duration::from_millis(self.config.window_timeout_ms);
        let end = Instant::now() + deadline;
        loop {
            if self.windows().await?.iter().any(|line| shows(line, query)) {
                return Ok(());
            }
            if Instant::now() >= end {
                return Err(Fault::Deadline {
                    what: format!("the window {}", super::error::bounded(&query.window_name)),
                    within: deadline,
                });
            }
            sleep(POLL).await;
        }
    }

    /// `-a` brings to the front, `-c` closes.
    async fn window(&self, action: &str, query: &WindowQuery) -> Result<(), Fault> {
        self.wait_for_window(query).await?;
        let windows = self.windows().await?;
        let line = windows.iter().find(|line| shows(line, query));
        let id = line.and_then(|line| line.split_whitespace().next());
        let Some(id) = id else { return Ok(()) };
        let words = ["wmctrl", "-i", action, id].map(str::to_owned);
        self.run_words(&words).await?;
        Ok(())
    }

    async fn run_words(&self, words: &[String]) -> Result<Output, Fault> {
        let program = words.first().map_or("", String::as_str);
        bare::require(program, "the package that has it")?;
        let wrapper = self.session.wrapper().iter();
        let words: Vec<String> = wrapper.chain(words).cloned().collect();
        run::to_end(run::Job {
            words: &words,
            environment: &self.session.environment(),
            folder: self.session.home(),
            input: Vec::new(),
            deadline: Duration::from_millis(self.config.command_timeout_ms),
            limit: self.config.max_answer_bytes,
            talkative: false,
        })
        .await
    }

    async fn devtools(&self) -> Result<Http, Fault> {
        let deadline = Duration::from_millis(self.config.window_timeout_ms);
        let end = Instant::now() + deadline;
        loop {
            if let Some(http) = self.devtools_now() {
                return Ok(http);
            }
            if Instant::now() >= end {
                return Err(Fault::Deadline {
                    what: "the browser's DevTools".into(),
                    within: deadline,
                });
            }
            sleep(POLL).await;
        }
    }

    /// The DevTools of a browser that was started.
    fn devtools_now(&self) -> Option<Http> {
        let file = format!("~/{PROFILE}/DevToolsActivePort");
        let written = self.confined.read(&file, 4096).ok()??;
        let address = devtools_address(&String::from_utf8_lossy(&written))?;
        let patience = Duration::from_millis(self.config.window_timeout_ms);
        Some(Http::new(address.to_string(), patience, chrome::MAX_LIST))
    }

    /// Its pages: none where it was not started, or where the agent has closed it.
    async fn tabs(&self) -> Result<Value, Fault> {
        let Some(devtools) = self.devtools_now() else {
            return Ok(json!([]));
        };
        match chrome::tabs(&devtools).await {
            Err(Fault::Unreachable { .. }) => Ok(json!([])),
            tabs => tabs,
        }
    }

    async fn take(&mut self, step: &SetupStep) -> Result<(), Fault> {
        match step {
            SetupStep::Launch(command) => self.launch(command).await,
            SetupStep::Open { path } => self.open(path).await,
            SetupStep::ActivateWindow(query) => self.window("-a", query).await,
            SetupStep::CloseWindow(query) => self.window("-c", query).await,
            SetupStep::ChromeOpenTabs(urls) => {
                for url in urls {
                    self.policy.page(url).map_err(Self::denied)?;
                }
                let urls: Vec<String> = urls.iter().map(|url| self.word(url)).collect();
                chrome::open_tabs(&self.devtools().await?, &urls).await
            }
            SetupStep::ChromeCloseTabs(urls) => {
                chrome::close_tabs(&self.devtools().await?, urls).await
            }
            other => Err(Fault::Unsupported(format!("step {}", other.kind()))),
        }
    }
}

/// The programs that a task starts or opens files with and that are not installed, as reasons.
pub(crate) fn absent(task: &OsworldTask) -> BTreeSet<String> {
    let later = match &task.evaluator {
        Evaluator::Checks { postconfig, .. } => &**postconfig,
        Evaluator::Infeasible => &[],
    };
    let steps = task.config.iter().chain(later);
    let programs = steps.filter_map(|step| match step {
        SetupStep::Launch(command) if !command.shell => command.words().ok()?.into_iter().next(),
        SetupStep::Open { path } => policy::opener(path).map(str::to_owned),
        _ => None,
    });
    let installed = |program: &String| match program.as_str() {
        "socat" => true,
        browser if policy::BROWSERS.contains(&browser) => bare::browser_program().is_ok(),
        other => bare::require(other, "").is_ok(),
    };
    let absent = programs.filter(|program| !installed(program));
    absent
        .map(|program| match policy::package(&program) {
            Some(package) => format!("{program} is not installed: apt-get install {package}"),
            None => format!("{program} is not installed"),
        })
        .collect()
}

/// Where the DevTools listen, once the browser has written it down.
fn devtools_address(text: &str) -> Option<SocketAddr> {
    // The second line is written last.
    let (port, _target) = text.split_once('\n')?;
    Some(([127, 0, 0, 1], port.trim().parse::<u16>().ok()?).into())
}

/// Whether a line of `wmctrl -l -x` is the window that is meant.
fn shows(line: &str, query: &WindowQuery) -> bool {
    let mut fields = line.split_whitespace();
    let Some(class) = fields.nth(2) else {
        return false;
    };
    // The title begins after the host, which is the next word; titles hold spaces.
    let title = fields.next().and_then(|host| {
        let (_, rest) = line.split_once(class)?;
        Some(rest.split_once(host)?.1.trim())
    });
    let name = if query.by_class { Some(class) } else { title };
    name.is_some_and(|name| {
        if query.strict {
            name == query.window_name
        } else {
            name.to_lowercase()
                .contains(&query.window_name.to_lowercase())
        }
    })
}

#[async_trait]
impl Guest for LocalGuest {
    async fn set_up(&mut self, step: &SetupStep) -> Result<()> {
        Ok(self.take(step).await?)
    }

    async fn run(&mut self, command: &GuestCommand) -> Result<Output> {
        self.policy.executes(command).map_err(Self::denied)?;
        let words = command.words().map_err(|why| Fault::Setting(why.into()))?;
        let mut words: Vec<String> = words.iter().map(|word| self.word(word)).collect();
        if command.shell {
            words.splice(0..0, ["sh", "-c"].map(str::to_owned));
        }
        Ok(self.run_words(&words).await?)
    }

    async fn read_file(&mut self, path: &str) -> Result<Option<Vec<u8>>> {
        Ok(self.confined.read(path, self.config.max_answer_bytes)?)
    }

    async fn write_file(&mut self, path: &str, bytes: &[u8]) -> Result<()> {
        Ok(self.confined.write(path, bytes)?)
    }

    async fn ask(&mut self, query: &Query) -> Result<Value> {
        match query {
            Query::Terminal => Err(Fault::Unsupported("getter vm_terminal_output".into()).into()),
            Query::Accessibility => {
                Err(Fault::Unsupported("getter accessibility_tree".into()).into())
            }
            Query::Tabs => Ok(self.tabs().await?),
            Query::Directory(path) => {
                let name = super::support::file_name(path.trim_end_matches('/'));
                Ok(self.confined.tree(path, name)?.unwrap_or_default())
            }
        }
    }

    async fn close(&mut self) -> Result<()> {
        self.user.end().await;
        self.session.close().await;
        self.user.sweep(self.session.home());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(name: &str, strict: bool, by_class: bool) -> WindowQuery {
        WindowQuery {
            window_name: name.into(),
            strict,
            by_class,
        }
    }

    #[test]
    fn windows_are_found_by_title_or_class() {
        let line = "0x00c00003  0 mousepad.Mousepad     host ~/home/a b.txt - Mousepad";
        assert!(shows(line, &query("a B.txt", false, false)));
        assert!(shows(
            line,
            &query("~/home/a b.txt - Mousepad", true, false)
        ));
        assert!(!shows(line, &query("a b.txt", true, false)));
        assert!(shows(line, &query("mousepad.Mousepad", true, true)));
        assert!(!shows(line, &query("gimp", false, true)));
        assert!(!shows("", &query("", false, false)));
    }

    #[test]
    fn the_browsers_port_is_read_when_it_is_complete() {
        for partial in ["", "43210", "99999\n/", "x\n/"] {
            assert_eq!(devtools_address(partial), None, "{partial}");
        }
        let address = devtools_address("43210\n/devtools/browser/x");
        assert_eq!(address, Some(([127, 0, 0, 1], 43210).into()));
    }
}
