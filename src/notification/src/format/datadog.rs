//! Events of Datadog.
//!
//! Invariant: a string of a notice ends no block of Markdown and mentions no one. Tags have only characters that Datadog
//! permits, so no string adds a tag.

use std::collections::BTreeMap;

use serde_json::json;

use super::Target;
use super::markup::{Data, Datadog, Marked};
use crate::request::{REPORTER, Request};

/// Maximum length of a title and of a text, in bytes. Datadog counts characters.
const TITLE: usize = 100;
const TEXT: usize = 4000;
/// Maximum length of a message within the text, and of name and value of a field, in bytes.
const MESSAGE: usize = 2000;
const NAME: usize = 128;
const VALUE: usize = 512;
/// Maximum length of a tag in characters, and maximum number of tags.
const TAG: usize = 200;
const TAGS: usize = 64;
/// The lines around Markdown.
const BEGIN: &str = "%%%\n";
const END: &str = "\n%%%";

/// Returns the request that posts an event.
pub(super) fn event(target: &Target, notice: &Marked<'_, Datadog>) -> Request {
    let body = json!({
        "title": notice.subject(TITLE), "text": text(notice), "tags": tags(&notice.with::<Data>()),
        "alert_type": notice.severity(), "source_type_name": REPORTER, "date_happened": notice.time().as_second(),
    });
    // As in Flux, only scheme, host and port of the address have an effect.
    Request::post(format!("{}/api/v1/events", target.origin()), &body).header("dd-api-key", target.secret_token())
}

/// Returns the message and a list of the fields as Markdown.
fn text(notice: &Marked<'_, Datadog>) -> String {
    let mut text = format!("{BEGIN}{}\n", notice.message(MESSAGE).as_str());
    for (name, value) in notice.fields(NAME, VALUE) {
        let line = format!("{}: {}", name.as_str(), value.as_str()).replace('\n', " ");
        if text.len() + line.len() + END.len() + 3 > TEXT {
            break;
        }
        text.push_str(&format!("\n- {line}"));
    }
    text + END
}

/// Returns the tags of Flux for the resource, and one for each field. A field replaces no tag of the resource.
fn tags(notice: &Marked<'_, Data>) -> Vec<String> {
    let own = [
        ("flux_reporting_controller", REPORTER.to_owned()),
        ("flux_reason", notice.reason().as_str().to_owned()),
        ("kube_kind", notice.kind().as_str().to_owned()),
        ("kube_name", notice.name().as_str().to_owned()),
        ("kube_namespace", notice.namespace().as_str().to_owned()),
    ];
    let mut all = BTreeMap::from(own.map(|(name, value)| (name.to_owned(), value)));
    for (name, value) in notice.fields(NAME, VALUE).filter(|(name, value)| !name.is_empty() && !value.is_empty()) {
        if all.len() < TAGS {
            all.entry(key(name.as_str())).or_insert_with(|| value.as_str().to_owned());
        }
    }
    let tag = |(name, value): (String, String)| clean(&format!("{name}:{value}")).chars().take(TAG).collect::<String>();
    all.into_iter().map(tag).collect()
}

/// Returns a valid key of a tag, which begins with a letter and has no colon.
fn key(name: &str) -> String {
    let name = clean(name).replace(':', "_");
    if name.starts_with(char::is_alphabetic) { name } else { format!("field_{name}") }
}

/// Replaces characters that Datadog does not permit. A URL becomes no link.
fn clean(text: &str) -> String {
    let valid = |c: char| if c.is_alphanumeric() || "_-:./".contains(c) { c } else { '_' };
    let text: String = text.to_lowercase().chars().map(valid).collect();
    text.replace("//", "_/")
}

#[cfg(test)]
mod tests;
