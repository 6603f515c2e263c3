//! The frame of each page: its head, its navigation, and the user.

use jiff::Timestamp;
use maud::{DOCTYPE, Markup, html};

use super::parts;
use crate::text::ago;

/// The user of a page.
#[derive(Clone, Copy)]
pub(crate) struct Visitor<'p> {
    /// The user's name, as reported by the API server.
    pub(crate) user: &'p str,
    /// The name of the cluster; empty without a name.
    pub(crate) cluster: &'p str,
    /// The token of forms.
    pub(crate) csrf: &'p str,
    /// The end of the session; `None` if it has no page to sign in and out.
    pub(crate) end: Option<SessionEnd>,
    pub(crate) now: Timestamp,
}

/// The end of a session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionEnd {
    pub(crate) at: Timestamp,
    /// Whether an issuer can sign the user in again.
    pub(crate) is_renewable: bool,
}

/// The stream of a page.
pub(crate) struct Live {
    pub(crate) url: String,
    /// The number of changes before the page was read. The stream reports later ones.
    pub(crate) seen: u64,
}

/// A page.
pub(crate) struct Page<'p> {
    pub(crate) title: &'p str,
    /// The user; `None` without a session.
    pub(crate) visitor: Option<Visitor<'p>>,
    /// The stream that reports when the page has to be read again.
    pub(crate) live: Option<Live>,
    pub(crate) body: Markup,
}

/// The pages of the navigation: their path, label and title.
const PAGES: [(&str, &str, &str); 4] = [
    ("/", "Fleet", "Fleet"),
    ("/sources", "Sources", "Sources, images and alerts"),
    ("/served", "APIs and events", "APIRules, Triggers and Subscriptions"),
    ("/drift", "Drift", "Drift"),
];

/// Returns the head of a document, with these scripts in their order.
pub(super) fn head(title: &str, scripts: &[&str]) -> Markup {
    html! {
        head {
            meta charset="utf-8";
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta name="color-scheme" content="light dark";
            title { (title) " · Mainstay" }
            link rel="icon" href="/icon.svg" type="image/svg+xml";
            link rel="stylesheet" href="/style.css";
            @for script in scripts { script src=(script) defer {} }
        }
    }
}

/// Returns the title of a page with the name of the cluster.
fn full_title(title: &str, visitor: Option<Visitor<'_>>) -> String {
    match visitor {
        Some(visitor) if !visitor.cluster.is_empty() => format!("{title} · {}", visitor.cluster),
        _ => title.to_owned(),
    }
}

/// Returns the HTML of a page.
pub(crate) fn render(page: Page<'_>) -> String {
    let Page { title, visitor, live, body } = page;
    let mark = html! { @if live.is_some() { span.live #live role="status" aria-live="polite" {} } };
    let document = html! {
        (DOCTYPE)
        html lang="en" {
            (head(&full_title(title, visitor), &["/copy.js", "/live.js"]))
            body {
                a.skip href="#main" { "Skip to the content" }
                header {
                    a.brand href="/" { "Mainstay" }
                    @if let Some(visitor) = visitor {
                        @if !visitor.cluster.is_empty() {
                            span.cluster title={ "The cluster of this page: " (visitor.cluster) } { span.unseen { "Cluster " } (visitor.cluster) }
                        }
                        nav aria-label="Pages" {
                            @for (path, label, of) in PAGES {
                                a href=(path) aria-current=[(title == of).then_some("page")] { (label) }
                            }
                        }
                        (mark)
                        div.account {
                            span.who title={ "The user of this session, as the API server knows it: " (visitor.user) } { (visitor.user) }
                            @if let Some(end) = visitor.end { (session(end, visitor)) }
                        }
                    }
                    @else { (mark) }
                }
                main #main tabindex="-1" data-live=[live.as_ref().map(|live| &live.url)] data-seen=[live.as_ref().map(|live| live.seen)] {
                    (body)
                }
            }
        }
    };
    document.into_string()
}

/// Returns the time until a session ends, and the buttons that renew and close it. Without a field `next`, the page that
/// sends the form is opened afterwards.
fn session(end: SessionEnd, visitor: Visitor<'_>) -> Markup {
    let left = end.at.duration_since(visitor.now).as_secs().max(0);
    html! {
        span.left title={ "The session ends at " (end.at) } {
            "Session ends in " span #left data-left=(left) data-renewable[end.is_renewable] { (ago(left)) }
        }
        @if end.is_renewable {
            form method="post" action="/sign-in" { button type="submit" { "Renew" } }
        }
        form method="post" action="/sign-out" {
            input type="hidden" name="csrf" value=(visitor.csrf);
            button type="submit" { "Sign out" }
        }
    }
}

/// Returns a page with one message.
pub(crate) fn message(title: &str, text: &str) -> String {
    render(Page { title, visitor: None, live: None, body: html! { h1 { (title) } p { (parts::coded(text)) } } })
}
