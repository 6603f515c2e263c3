//! The frame of each page: its head, its navigation, and the user.

use maud::{DOCTYPE, Markup, html};

/// The user of a page.
#[derive(Clone, Copy)]
pub(crate) struct Visitor<'p> {
    /// The user's name, as reported by the API server.
    pub(crate) user: &'p str,
    /// The token of forms.
    pub(crate) csrf: &'p str,
    pub(crate) has_sign_out: bool,
}

/// A page.
pub(crate) struct Page<'p> {
    pub(crate) title: &'p str,
    /// The user; `None` without a session.
    pub(crate) visitor: Option<Visitor<'p>>,
    /// The URL of the stream that reports when the page has to be read again.
    pub(crate) live: Option<String>,
    pub(crate) body: Markup,
}

/// Returns the head of a document.
pub(super) fn head(title: &str, script: &str) -> Markup {
    html! {
        head {
            meta charset="utf-8";
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta name="color-scheme" content="light dark";
            title { (title) " · Mainstay" }
            link rel="icon" href="/icon.svg" type="image/svg+xml";
            link rel="stylesheet" href="/style.css";
            script src=(script) defer {}
        }
    }
}

/// Returns the HTML of a page.
pub(crate) fn render(page: Page<'_>) -> String {
    let Page { title, visitor, live, body } = page;
    let document = html! {
        (DOCTYPE)
        html lang="en" {
            (head(title, "/live.js"))
            body {
                a.skip href="#main" { "Skip to the content" }
                header {
                    a.brand href="/" { "Mainstay" }
                    @if let Some(visitor) = visitor {
                        nav aria-label="Pages" {
                            a href="/" { "Fleet" }
                            a href="/drift" { "Drift" }
                        }
                        span.who title="The user of this session, as the API server knows it" { (visitor.user) }
                        @if visitor.has_sign_out {
                            form method="post" action="/sign-out" {
                                input type="hidden" name="csrf" value=(visitor.csrf);
                                button type="submit" { "Sign out" }
                            }
                        }
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
    render(Page { title, visitor: None, live: None, body: html! { h1 { (title) } p { (text) } } })
}
