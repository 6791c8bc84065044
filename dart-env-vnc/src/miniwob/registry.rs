//! The tasks of MiniWoB++, and what is known of each.
//!
//! The names are those that the Python package `miniwob` 1.1.0 registers (125 pages, and three
//! imitations of an airline's site under `flight.`), and the pages it carries without registering
//! them. Deviations from that package: a step limit for each task instead of a time limit; where a
//! page also pays for work that is half done or wrong, only the mark in this table is a success.

use dart_core::Size;

/// The size of all pages but the `flight.` ones, pixels.
const TASK: Size = Size::new(160, 208);
/// The size of the `flight.` pages, pixels.
const FLIGHT: Size = Size::new(375, 667);

/// What is known of a task.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "independent facts about a page"
)]
pub struct TaskInfo {
    /// The name, as in `environment.tasks`.
    pub name: &'static str,
    /// Step limit of an episode: what an expert needs in the longest instances, and some more.
    pub horizon: u32,
    /// A scripted expert solves it.
    pub expert: bool,
    /// A seed does not fix the pixels: the page moves by itself, shows the date or draws numbers
    /// after the start.
    pub moves: bool,
    /// The page has a distribution of its own for tests, which [`Split::Words`] draws from.
    ///
    /// [`Split::Words`]: dart_core::Split::Words
    pub has_test_words: bool,
    /// The package registers it.
    pub registered: bool,
    /// The least reward of the page, which lies in -1 to 1, that is a success; `0.0` stands for any
    /// positive one.
    pub(super) pass: f64,
    /// Episodes leave nothing behind, so that the loaded page serves many.
    pub(super) keep: bool,
    /// What the task needs to be seen whole.
    pub(super) size: Size,
}

const fn page(name: &'static str, horizon: u32) -> TaskInfo {
    TaskInfo {
        name,
        horizon,
        expert: false,
        moves: false,
        has_test_words: false,
        registered: true,
        pass: 0.0,
        keep: false,
        size: TASK,
    }
}

/// The pages of the airlines load parts of themselves at any time, and pay for each right field.
const fn flight(name: &'static str) -> TaskInfo {
    TaskInfo {
        size: FLIGHT,
        ..page(name, 40).moves().pass(1.0)
    }
}

impl TaskInfo {
    const fn expert(self) -> Self {
        Self {
            expert: true,
            ..self
        }
    }

    const fn kept(self) -> Self {
        Self { keep: true, ..self }
    }

    const fn moves(self) -> Self {
        Self {
            moves: true,
            ..self
        }
    }

    const fn split(self) -> Self {
        Self {
            has_test_words: true,
            ..self
        }
    }

    const fn pass(self, pass: f64) -> Self {
        Self { pass, ..self }
    }

    const fn extra(self) -> Self {
        Self {
            registered: false,
            ..self
        }
    }

    /// Whether the page's reward is a success.
    pub(super) fn passes(&self, raw: f64) -> bool {
        // Sums of thirds and the like miss 1 by a little.
        raw > 0.0 && raw >= self.pass - 1e-9
    }

    /// Where the page lies on the server.
    pub(super) fn path(&self) -> String {
        match self.name.strip_prefix("flight.") {
            Some(site) => format!("/flight/{site}/wrapper.html"),
            None => format!("/miniwob/{}.html", self.name),
        }
    }
}

/// A page of the user's own in the folder of the pages: nothing is known of it.
pub(super) const UNKNOWN: TaskInfo = page("", 10).moves();

/// Every task, sorted by name.
pub const TASKS: &[TaskInfo] = &[
    page("ascending-numbers", 6).expert().pass(1.0),
    page("bisect-angle", 4).expert(),
    page("book-flight", 24).moves(),
    page("book-flight-nodelay", 24).moves(),
    page("button-delay", 4).expert().moves().pass(0.5).extra(),
    page("buy-ticket", 6).expert(),
    page("chase-circle", 8).moves().pass(0.5).extra(),
    page("choose-date", 16).expert().moves(),
    page("choose-date-easy", 16).expert().moves(),
    page("choose-date-medium", 16).expert().moves(),
    page("choose-date-nodelay", 16).expert().moves(),
    page("choose-list", 6).expert(),
    page("circle-center", 4).expert(),
    page("click-button", 3).expert().kept(),
    page("click-button-sequence", 4).expert(),
    page("click-checkboxes", 8).expert().pass(1.0),
    page("click-checkboxes-large", 16).expert().pass(1.0),
    page("click-checkboxes-soft", 8).expert().pass(1.0),
    page("click-checkboxes-transfer", 8)
        .expert()
        .split()
        .pass(1.0),
    page("click-collapsible", 4).expert(),
    page("click-collapsible-2", 6),
    page("click-collapsible-2-nodelay", 6).expert(),
    page("click-collapsible-nodelay", 4).expert(),
    page("click-color", 3).expert(),
    page("click-dialog", 3).expert().kept(),
    page("click-dialog-2", 3).expert(),
    page("click-link", 3).expert(),
    page("click-menu", 8).expert(),
    page("click-menu-2", 6).expert(),
    page("click-option", 4).expert().kept(),
    page("click-pie", 6).expert().moves(),
    page("click-pie-nodelay", 6).expert().moves(),
    page("click-scroll-list", 8).expert(),
    page("click-shades", 12).expert(),
    page("click-shape", 3).expert(),
    page("click-tab", 3).expert().kept(),
    page("click-tab-2", 6).expert(),
    page("click-tab-2-easy", 6).expert(),
    page("click-tab-2-hard", 8).expert(),
    page("click-tab-2-medium", 6).expert(),
    page("click-test", 3).expert().kept(),
    page("click-test-2", 3).expert().kept(),
    page("click-test-transfer", 3).expert().split(),
    page("click-widget", 3).expert().kept(),
    page("copy-paste", 12).expert(),
    page("copy-paste-2", 12).expert(),
    page("count-shape", 3).expert(),
    page("count-sides", 3),
    page("daily-calendar", 12),
    page("drag-box", 6).expert(),
    page("drag-circle", 6).expert(),
    page("drag-cube", 12).moves(),
    page("drag-items", 6),
    page("drag-items-grid", 6),
    page("drag-shapes", 12),
    page("drag-shapes-2", 12),
    page("drag-single-shape", 6).expert(),
    page("drag-sort-numbers", 12),
    page("draw-circle", 4),
    page("draw-line", 4),
    page("email-inbox", 12).expert(),
    page("email-inbox-delete", 8).expert(),
    page("email-inbox-forward", 12).expert(),
    page("email-inbox-forward-nl", 12).expert().split(),
    page("email-inbox-forward-nl-turk", 12).expert().split(),
    page("email-inbox-important", 8).expert(),
    page("email-inbox-nl-turk", 12).expert().split(),
    page("email-inbox-noscroll", 12).expert(),
    page("email-inbox-reply", 12).expert(),
    page("email-inbox-star-reply", 12).expert(),
    page("enter-date", 6).expert(),
    page("enter-password", 8).expert(),
    page("enter-text", 6).expert(),
    page("enter-text-2", 6).expert(),
    page("enter-text-dynamic", 6).expert(),
    page("enter-time", 6).expert(),
    page("find-greatest", 4).expert().pass(1.0),
    page("find-midpoint", 4).expert(),
    page("find-word", 6).expert(),
    flight("flight.AA").split(),
    flight("flight.Alaska").split(),
    flight("flight.Alaska-auto"),
    flight("flight.Alaska-auto-medium").extra(),
    page("focus-text", 3).expert().kept(),
    page("focus-text-2", 3).expert(),
    page("form-sequence", 12).expert(),
    page("form-sequence-2", 8).expert(),
    page("form-sequence-3", 8).expert(),
    page("generate-number", 16).expert(),
    page("grid-coordinate", 3).expert(),
    page("guess-number", 16).expert(),
    page("highlight-text", 4),
    page("highlight-text-2", 4),
    page("hot-cold", 3).pass(1.0),
    page("hover-shape", 8).moves().extra(),
    page("identify-shape", 3).expert(),
    page("login-user", 8).expert(),
    page("login-user-popup", 12).expert(),
    page("moving-items", 8).moves().extra(),
    page("multi-layouts", 12).expert(),
    page("multi-orderings", 12).expert(),
    page("navigate-tree", 12).expert(),
    page("number-checkboxes", 24).expert(),
    page("odd-or-even", 6).expert().pass(1.0),
    page("order-food", 16).expert(),
    page("phone-book", 8).expert().pass(1.0),
    page("read-table", 6).expert(),
    page("read-table-2", 12).expert(),
    page("resize-textarea", 6).expert(),
    page("right-angle", 4).expert(),
    page("scroll-text", 12).expert(),
    page("scroll-text-2", 6).expert(),
    page("search-engine", 12).expert(),
    page("sign-agreement", 12).expert(),
    page("simon-says", 6).moves().extra(),
    page("simple-algebra", 6).expert(),
    page("simple-arithmetic", 6).expert(),
    page("social-media", 6).expert(),
    page("social-media-all", 12).expert(),
    page("social-media-some", 12).expert(),
    page("stock-market", 6).moves(),
    page("terminal", 12).expert().moves(),
    page("text-editor", 12),
    page("text-transform", 6).expert(),
    page("tic-tac-toe", 6).moves(),
    page("unicode-test", 3).expert(),
    page("use-autocomplete", 8).expert(),
    page("use-autocomplete-nodelay", 8).expert(),
    page("use-colorwheel", 12).pass(0.9),
    page("use-colorwheel-2", 12).pass(0.9),
    page("use-slider", 12).expert(),
    page("use-slider-2", 16).expert(),
    page("use-spinner", 16).expert(),
    page("visual-addition", 6).expert(),
];

/// What is known of the task `name`.
pub fn task_info(name: &str) -> Option<&'static TaskInfo> {
    let found = TASKS.binary_search_by(|task| task.name.cmp(name));
    found.ok().map(|index| &TASKS[index])
}

/// The tasks whose names are most like `name`, the likest first; at most three.
pub(super) fn nearest(name: &str) -> Vec<&'static str> {
    let lower: String = name.chars().take(64).collect::<String>().to_lowercase();
    let far = |task: &&TaskInfo| distance(&lower, &task.name.to_lowercase());
    let mut near: Vec<_> = TASKS
        .iter()
        .map(|task| (far(&task), task.name))
        .filter(|(far, name)| *far <= name.len() / 2)
        .collect();
    near.sort_unstable();
    near.truncate(3);
    near.into_iter().map(|(_, name)| name).collect()
}

/// Levenshtein's distance: single insertions, removals and changes from `a` to `b`.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut corner = i;
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let changed = corner + usize::from(x != y);
            corner = row[j + 1];
            row[j + 1] = changed.min(corner + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_names_are_found_once() {
        assert!(TASKS.is_sorted_by(|a, b| a.name < b.name));
        for task in TASKS {
            assert_eq!(task_info(task.name), Some(task));
            assert!(task.horizon > 0, "{}", task.name);
        }
        let registered = |flight| {
            let named = TASKS.iter().filter(|task| task.registered);
            named
                .filter(|task| task.name.starts_with("flight.") == flight)
                .count()
        };
        assert_eq!((registered(false), registered(true)), (125, 3));
        assert_eq!(TASKS.len(), 134);
        assert_eq!(task_info("click-tset"), None);
    }

    #[test]
    fn a_slip_of_the_pen_finds_its_task() {
        assert_eq!(nearest("click-tset")[0], "click-test");
        assert_eq!(nearest("Click_Button")[0], "click-button");
        assert_eq!(nearest("flight.aa")[0], "flight.AA");
        assert_eq!(nearest("email-inbox-nl")[0], "email-inbox");
        assert!(nearest("zzzzzzzzzzzzzzzzzzzzzzzzzz").is_empty());
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
    }

    #[test]
    fn half_done_work_is_no_success() {
        let pass = |name, raw| task_info(name).unwrap().passes(raw);
        assert!(pass("click-test", 0.2) && !pass("click-test", 0.0) && !pass("click-test", -1.0));
        // A wrong card pays 0.1, two right boxes out of three a third, doing nothing a little.
        assert!(!pass("find-greatest", 0.1) && pass("find-greatest", 1.0));
        assert!(!pass("click-checkboxes", 1.0 / 3.0));
        assert!(!pass("chase-circle", 0.02) && pass("chase-circle", 0.8));
        assert!(pass("odd-or-even", 1.0 / 3.0 + 1.0 / 3.0 + 1.0 / 3.0));
        assert!(!pass("odd-or-even", f64::NAN));
    }
}
