//! The pages. A template escapes every text; only `DOCTYPE` is written as it is.

mod act;
mod drift;
mod fleet;
mod function;
mod git_sync;
mod object;
mod parts;

pub(crate) use act::{Confirmation, confirmation, outcome};
pub(crate) use drift::drift;
pub(crate) use fleet::{Fleet, fleet};
pub(crate) use function::{FunctionPage, Log, Pod, function};
pub(crate) use git_sync::{GitSyncPage, git_sync};
pub(crate) use object::{ObjectPage, object};
pub(crate) use parts::Right;

use maud::{DOCTYPE, Markup, html};

/// A page.
pub(crate) struct Page<'p> {
    pub(crate) title: &'p str,
    /// The user, as the API server knows it.
    pub(crate) user: &'p str,
    /// The address of the stream that says when to read the page again.
    pub(crate) live: Option<String>,
    pub(crate) body: Markup,
}

/// Returns the HTML of a page.
pub(crate) fn render(page: Page<'_>) -> String {
    let Page { title, user, live, body } = page;
    let document = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · Mainstay" }
                link rel="icon" href="/icon.svg" type="image/svg+xml";
                link rel="stylesheet" href="/style.css";
                script src="/live.js" defer {}
            }
            body {
                a.skip href="#main" { "Skip to the content" }
                header {
                    a.brand href="/" { "Mainstay" }
                    @if !user.is_empty() {
                        nav aria-label="Pages" {
                            a href="/" { "Fleet" }
                            a href="/drift" { "Drift" }
                        }
                        span.who title="The user of this session, as the API server knows it" { (user) }
                    }
                    @if live.is_some() {
                        span.live #live role="status" aria-live="polite" {}
                    }
                }
                main #main tabindex="-1" data-live=[live] { (body) }
            }
        }
    };
    document.into_string()
}

/// Returns a page with one message.
pub(crate) fn message(title: &str, text: &str) -> String {
    render(Page { title, user: "", live: None, body: html! { h1 { (title) } p { (text) } } })
}
