//! The pages of a running Chromium, through the HTTP side of its DevTools.
//! <https://chromedevtools.github.io/devtools-protocol/#endpoints>

use hyper::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    error::Fault,
    http::{Http, Question, percent},
};

/// Largest list of pages, bytes.
pub(super) const MAX_LIST: usize = 4 << 20;

#[derive(Debug, Deserialize)]
struct Target {
    id: String,
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    title: String,
    #[serde(default)]
    url: String,
}

async fn pages(http: &Http) -> Result<Vec<Target>, Fault> {
    let list = http.get("/json/list").await?;
    let targets: Vec<Target> = http.json("/json/list", &list)?;
    Ok(targets.into_iter().filter(|t| t.kind == "page").collect())
}

/// Whether a page is one of those that a browser shows when it has just started.
fn is_blank(url: &str) -> bool {
    matches!(url, "" | "about:blank" | "chrome://newtab/")
        || url.starts_with("chrome://new-tab-page")
}

async fn close(http: &Http, id: &str) -> Result<(), Fault> {
    http.get(&format!("/json/close/{}", percent(id))).await?;
    Ok(())
}

/// Opens `urls` as pages and closes the blank page that was there before them.
pub(super) async fn open_tabs(http: &Http, urls: &[String]) -> Result<(), Fault> {
    let before = pages(http).await?;
    for url in urls {
        let path = format!("/json/new?{}", percent(url));
        let question = Question {
            // Chromium refuses GET here since version 111.
            method: Method::PUT,
            path: &path,
            content_type: "text/plain",
            body: Vec::new(),
        };
        http.expect(question).await?;
    }
    if let Some(blank) = before.iter().find(|page| is_blank(&page.url))
        && !urls.is_empty()
    {
        close(http, &blank.id).await?;
    }
    Ok(())
}

/// Whether two addresses are the same but for a slash at the end.
fn same(left: &str, right: &str) -> bool {
    left.trim_end_matches('/') == right.trim_end_matches('/')
}

/// Closes the pages at `urls`, one for each.
pub(super) async fn close_tabs(http: &Http, urls: &[String]) -> Result<(), Fault> {
    let mut open = pages(http).await?;
    for url in urls {
        if let Some(at) = open.iter().position(|page| same(&page.url, url)) {
            close(http, &open.remove(at).id).await?;
        }
    }
    Ok(())
}

/// Titles and addresses of the pages, the last used first.
pub(super) async fn tabs(http: &Http) -> Result<Value, Fault> {
    let pages = pages(http).await?;
    Ok(pages
        .iter()
        .map(|page| json!({ "title": page.title, "url": page.url }))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slash_at_the_end_makes_no_difference() {
        assert!(same("https://a.b/", "https://a.b"));
        assert!(!same("https://a.b/c", "https://a.b"));
        assert!(is_blank("about:blank") && !is_blank("https://a.b"));
    }
}
