//! The form that calls a Function, and the response.

use maud::{Markup, html};

use super::field::Need;
use super::parts;
use crate::address;
use crate::call::{LONGEST, METHODS, Shown, Written};
use mainstay_object::Key;

/// The methods that the user may call, or the reason why there are none.
pub(crate) type Methods = Result<Vec<&'static str>, String>;

/// Contents of the page.
pub(crate) struct CallPage<'p> {
    pub(crate) key: &'p Key,
    pub(crate) methods: &'p Methods,
    pub(crate) csrf: &'p str,
    pub(crate) written: &'p Written,
    /// The response, or the reason why there is none. `None` before a call.
    pub(crate) answer: Option<&'p Result<Shown, String>>,
}

/// Returns the page.
pub(crate) fn call(page: &CallPage<'_>) -> Markup {
    let CallPage { key, methods, answer, .. } = page;
    let here = address::of_object(key);
    html! {
        (parts::place(key, Some(html! { a href=(here) { (key.name) } })))
        h1 { "Call the Function " (key.name) }
        p { "The API server forwards the call to the Service of the Function, with your permissions." }
        @match methods {
            Err(why) => p.note { (parts::coded(why)) },
            Ok(methods) => (form(page, methods)),
        }
        @match answer {
            None => {},
            Some(Err(why)) => p.note role="alert" { (why) },
            Some(Ok(answer)) => (answer_of(answer)),
        }
    }
}

fn form(page: &CallPage<'_>, methods: &[&'static str]) -> Markup {
    let CallPage { csrf, written, .. } = page;
    html! {
        form.call method="post" {
            input type="hidden" name="csrf" value=(csrf);
            div.filter {
                label { "Method"
                    select name="method" {
                        @for (method, _) in METHODS.iter().filter(|(method, _)| methods.contains(&method.as_str())) {
                            option value=(method) selected[method.as_str() == written.method] { (method) }
                        }
                    }
                }
                label.wide { "Path and query" (Need::Always.mark()) input type="text" name="path" value=(written.path) required maxlength="4096" spellcheck="false"; }
                label { "Content type of the body" input type="text" name="type" value=(written.content_type) maxlength="200"; }
            }
            label { "Body (not sent with GET)" textarea name="body" rows="6" maxlength="60000" spellcheck="false" { "\n" (written.body) } }
            p { button.primary type="submit" { "Call" } }
        }
    }
}

fn answer_of(answer: &Shown) -> Markup {
    let class = match answer.status {
        200..=299 => "good",
        300..=399 => "wait",
        _ => "bad",
    };
    html! {
        section aria-labelledby="answer" {
            h2 #answer { "Response: " span.state.(class) { (answer.status) } }
            @if let Some(refusal) = &answer.refusal {
                p.note { "This response has the format of the API server's own errors: " (refusal) }
            }
            @match &answer.body {
                Ok(body) if body.is_empty() => p.quiet { "The body is empty." },
                Ok(body) => pre tabindex="0" aria-label="Body of the response" { (body) },
                Err(length) => p.quiet { "The body has " (length) " bytes, and is not UTF-8." },
            }
            @if answer.is_cut { p.note { "The body is longer. Only its first " (LONGEST >> 10) " KiB were read." } }
            h3 { "Headers" }
            dl.headers { @for (name, value) in &answer.headers { div { dt { code { (name) } } dd { code { (value) } } } } }
        }
    }
}
