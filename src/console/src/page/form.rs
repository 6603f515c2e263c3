//! The form that changes or creates an object, and the review of its change. The fields of each kind have a file of their own.

use maud::{Markup, html};
use serde_json::Value;

use super::field::{Need, text_field};
use super::parts::{self, Right};
use crate::address;
use crate::difference::Side;
use crate::filter::Query;
use crate::form::{Keeper, ObjectForm};
use crate::row::FleetKind;
use crate::text::{MESSAGE, SHORT, plain};
use mainstay_object::Key;

/// Maximum size of the manifest on the page, in bytes.
pub(super) const MANIFEST: usize = 256 << 10;
/// The ID of the form, to which the button below the review belongs.
const FORM: &str = "fields";

/// The change of a form.
pub(crate) struct Review {
    pub(crate) manifest: String,
    /// Whether the manifest has a mark instead of a login.
    pub(crate) is_hidden: bool,
    /// The lines that differ from the live object; empty for a new one.
    pub(crate) lines: Vec<(Side, String)>,
    pub(crate) is_changed: bool,
    /// The effect of the change, or why the agent would refuse the object.
    pub(crate) effect: Result<String, String>,
    /// The outcome of the dry run; `None` without one.
    pub(crate) dry_run: Option<Result<(), String>>,
    /// The digest of the change, which the form sends back.
    pub(crate) digest: String,
}

/// Returns the page about a form that was not read, with a button that sends the same fields again.
pub(crate) fn unsent(path: &str, form: &Query, why: &str) -> Markup {
    html! {
        h1 { "The form was not read" }
        p.note role="alert" { (why) " Nothing was changed." }
        form method="post" action=(path) {
            @for (name, value) in form.pairs() { input type="hidden" name=(name) value=(value); }
            button type="submit" { "Send the form again" }
        }
    }
}

/// The fields of a kind on its page.
pub(crate) trait FormFields: ObjectForm {
    /// The title of the form for a new object.
    const TITLE: &'static str;
    /// The sentence about a written object.
    const WRITTEN: &'static str;

    /// Returns the fields.
    fn fields(page: &FormPage<'_, Self>) -> Markup;
}

/// Contents of the page.
pub(crate) struct FormPage<'p, F> {
    /// The object; `None` for a new one.
    pub(crate) key: Option<&'p Key>,
    pub(crate) live: Option<&'p Value>,
    pub(crate) namespace: &'p str,
    pub(crate) keeper: Option<&'p Keeper>,
    pub(crate) right: &'p Right,
    pub(crate) csrf: &'p str,
    pub(crate) fields: &'p F,
    /// The identity and the generation of the live object that the form is about; empty for a new one.
    pub(crate) generation: &'p str,
    pub(crate) runtimes: &'p [&'static str],
    /// The names that the form suggests.
    pub(crate) suggestions: &'p [String],
    pub(crate) problem: &'p str,
    pub(crate) review: Option<&'p Review>,
}

/// Returns the page.
pub(crate) fn form<F: FormFields>(page: &FormPage<'_, F>) -> Markup {
    let FormPage { key, namespace, keeper, right, problem, review, .. } = page;
    html! {
        @match key {
            Some(key) => (parts::place(key, Some(html! { a href=(address::of_object(key)) { (key.name) } }))),
            None => (parts::place(&F::KIND.key(namespace, ""), None)),
        }
        @match key {
            Some(key) => h1 { "Edit the " (F::KIND.name()) " " (key.name) },
            None => {
                h1 { (F::TITLE) }
                form.filter method="get" action=(F::PATH) {
                    label { "Namespace" (Need::Always.mark()) input type="text" name="namespace" value=(namespace) required maxlength="63" spellcheck="false"; }
                    button type="submit" { "Select" }
                }
            }
        }
        @if let Some(keeper) = keeper { (kept(keeper, F::KIND)) }
        @if let Err(why) = right { p.note { (parts::coded(why)) " The form writes a manifest to copy." } }
        @if !problem.is_empty() { p.note role="alert" { (plain(problem, MESSAGE)) } }
        (fields(page))
        @if let Some(review) = review { (reviewed(page, review)) }
    }
}

/// Returns the note about the GitSync of the object.
fn kept(keeper: &Keeper, kind: FleetKind) -> Markup {
    html! {
        p.note {
            (parts::named_keeper(keeper.git_sync.as_ref()))
            " manages this " (kind.name()) ", and reverts changes in the cluster. The form writes a manifest to copy. "
            @if keeper.file.is_empty() { "Change its file in Git." } @else { "Change its file in Git: " code { (plain(&keeper.file, SHORT)) } }
        }
        @if !keeper.note.is_empty() { p.quiet { (keeper.note) } }
    }
}

/// Returns the field for the name of a new object.
pub(super) fn name_field<F: ObjectForm>(page: &FormPage<'_, F>) -> Markup {
    html! { @if page.key.is_none() { (text_field("Name", "name", page.fields.name(), Need::Always)) } }
}

fn fields<F: FormFields>(page: &FormPage<'_, F>) -> Markup {
    let FormPage { csrf, generation, review, .. } = page;
    html! {
        form.function id=(FORM) method="post" action="#review" {
            input type="hidden" name="csrf" value=(csrf);
            input type="hidden" name="generation" value=(generation);
            @if let Some(review) = review { input type="hidden" name="reviewed" value=(review.digest); }
            (F::fields(page))
            p { button.primary[review.is_none()] type="submit" name="step" value="review" { "Review" } }
        }
    }
}

fn reviewed<F: ObjectForm>(page: &FormPage<'_, F>, review: &Review) -> Markup {
    let shown = plain(&review.manifest, review.manifest.len().saturating_mul(8).min(MANIFEST));
    let is_cut = shown.len() >= MANIFEST && shown != review.manifest;
    html! {
        section #review aria-labelledby="reviewed" {
            h2 #reviewed { "Review" }
            (effect(review))
            @if !review.lines.is_empty() {
                p.quiet { span.bad { "− now" } ", " span.good { "+ afterwards" } }
                pre.lines tabindex="0" aria-label="Difference as YAML" {
                    @for (side, line) in &review.lines {
                        @match side {
                            Side::Both => span { "  " (plain(line, MESSAGE)) },
                            Side::Cluster => del { "− " (plain(line, MESSAGE)) },
                            Side::Repository => ins { "+ " (plain(line, MESSAGE)) },
                            Side::Gap => span.quiet { (line) },
                        }
                        "\n"
                    }
                }
            }
            (apply(page, review))
            h3 { "Manifest" }
            @if review.is_hidden { p.note { "A login in an address is hidden. The manifest has a mark in its place, so it is not copied." } }
            @if is_cut { p.note { "The manifest is too large for this page, which shows its beginning." } }
            @else if shown != review.manifest { p.note { "Some characters are shown escaped. A copy of this manifest differs there." } }
            pre tabindex="0" aria-label="Manifest" data-copy=[(!is_cut && !review.is_hidden).then_some("the manifest")] { (shown) }
        }
    }
}

/// Returns the effect of the change, and the outcome of the dry run.
fn effect(review: &Review) -> Markup {
    html! {
        @if !review.is_changed { p { "Nothing changes." } }
        @else {
            @match &review.effect {
                Err(why) => p.note role="alert" { (plain(why, MESSAGE)) },
                Ok(effect) => p { (plain(effect, MESSAGE)) },
            }
            @match &review.dry_run {
                None => p.quiet { "The API server has not checked the change." },
                Some(Ok(())) => p { "The API server accepts the change (dry run)." },
                Some(Err(why)) => p.note role="alert" { "The API server refuses the change: " (why) },
            }
        }
    }
}

fn apply<F: ObjectForm>(page: &FormPage<'_, F>, review: &Review) -> Markup {
    let word = if page.key.is_some() { "Apply" } else { "Create" };
    let is_accepted = review.is_changed && matches!(review.dry_run, Some(Ok(()))) && review.effect.is_ok();
    html! {
        @if page.keeper.is_none() {
            p {
                @if is_accepted && page.right.is_ok() { button.primary type="submit" form=(FORM) name="step" value="apply" { (word) } }
                @else { button type="button" disabled { (word) } }
                @if let Err(why) = page.right { " " span.quiet { (parts::coded(why)) } }
            }
        }
    }
}

/// Returns the page after a write.
pub(crate) fn written<F: FormFields>(key: &Key, is_new: bool) -> Markup {
    let kind = F::KIND.name();
    html! {
        h1 { (if is_new { "Created" } else { "Applied" }) ": " (kind) " " (key.name) }
        p role="status" { (F::WRITTEN) }
        p { a href=(address::of_object(key)) { "Open the " (kind) } }
    }
}

/// Returns the links to the forms of new objects that belong to a list of these kinds.
pub(super) fn create_links(kinds: &[FleetKind]) -> Markup {
    let links = [
        (FleetKind::Function, "/create", "Create a Function"),
        (FleetKind::GitRepository, "/connect", "Connect a repository"),
        (FleetKind::OciRepository, "/connect", "Connect a repository"),
        (FleetKind::ApiRule, "/expose", "Expose a Service"),
    ];
    let own = links.iter().filter(|(kind, ..)| kinds.contains(kind));
    html! { div.actions { @for (_, path, label) in own { a.button href=(path) { (label) } } } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_that_was_not_read_keeps_its_fields() {
        let form = Query::parse(b"csrf=t&source=a%0Ab%22%3E%3Cb%3E&label=1&label=2");
        let html = unsent("/function/shop/web/edit", &form, "The server is busy.").into_string();
        for part in [
            "action=\"/function/shop/web/edit\"",
            "name=\"csrf\" value=\"t\"",
            "name=\"source\" value=\"a\nb&quot;&gt;&lt;b&gt;\"",
            "name=\"label\" value=\"1\"",
            "name=\"label\" value=\"2\"",
            "The server is busy. Nothing was changed.",
        ] {
            assert!(html.contains(part), "{part}: {html}");
        }
    }
}
