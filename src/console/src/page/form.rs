//! The form that changes or creates a Function, and the review of its change.

use maud::{Markup, html};

use super::parts::{self, Right};
use crate::address;
use crate::difference::Side;
use crate::filter::Query;
use crate::form::{AMOUNTS, FIELD, Fields, Keeper, MountRow, ORIGINS, VariableRow};
use crate::git_place::{GIT, GitPlace, LOGINS, PLACES};
use crate::row::FleetKind;
use crate::text::{MESSAGE, SHORT, plain};
use mainstay_object::Key;

/// The presets of an installation without settings. The operator may set others.
const PRESETS: [&str; 5] = ["XS", "S", "M", "L", "XL"];
/// Maximum size of the manifest on the page, in bytes.
const MANIFEST: usize = 256 << 10;
/// The ID of the form, to which the button below the review belongs.
const FORM: &str = "fields";

/// The change of a form.
pub(crate) struct Review {
    pub(crate) manifest: String,
    /// The lines that differ from the live object; empty for a new Function.
    pub(crate) lines: Vec<(Side, String)>,
    pub(crate) is_changed: bool,
    /// The inputs of the image that change.
    pub(crate) builds: Result<Vec<&'static str>, String>,
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

/// Contents of the page.
pub(crate) struct FormPage<'p> {
    /// The Function; `None` for a new one.
    pub(crate) key: Option<&'p Key>,
    pub(crate) namespace: &'p str,
    pub(crate) keeper: Option<&'p Keeper>,
    pub(crate) right: &'p Right,
    pub(crate) csrf: &'p str,
    pub(crate) fields: &'p Fields,
    pub(crate) is_git: bool,
    /// The generation of the live object that the form is about.
    pub(crate) generation: &'p str,
    pub(crate) runtimes: &'p [&'static str],
    /// The names of the GitRepositories of the namespace, for a new Function.
    pub(crate) repositories: &'p [String],
    pub(crate) problem: &'p str,
    pub(crate) review: Option<&'p Review>,
}

/// Returns the page.
pub(crate) fn form(page: &FormPage<'_>) -> Markup {
    let FormPage { key, namespace, keeper, right, problem, review, .. } = page;
    html! {
        @match key {
            Some(key) => (parts::place(key, Some(html! { a href=(address::of_object(key)) { (key.name) } }))),
            None => (parts::place(&FleetKind::Function.key(namespace, ""), None)),
        }
        @match key {
            Some(key) => h1 { "Edit the Function " (key.name) },
            None => {
                h1 { "Create a Function" }
                form.filter method="get" action="/create" {
                    label { "Namespace" input type="text" name="namespace" value=(namespace) required maxlength="63" spellcheck="false"; }
                    button type="submit" { "Select" }
                }
            }
        }
        @if let Some(keeper) = keeper { (kept(keeper)) }
        @if let Err(why) = right { p.note { (parts::coded(why)) " The form writes a manifest to copy." } }
        @if !problem.is_empty() { p.note role="alert" { (plain(problem, MESSAGE)) } }
        (fields(page))
        @if let Some(review) = review { (reviewed(page, review)) }
    }
}

/// Returns the note about the GitSync of the Function.
fn kept(keeper: &Keeper) -> Markup {
    html! {
        p.note {
            @match &keeper.git_sync {
                Some(sync) => { "The GitSync " a href=(address::of_object(sync)) { (plain(&format!("{}/{}", sync.namespace.as_deref().unwrap_or_default(), sync.name), SHORT)) } },
                None => "A GitSync",
            }
            " manages this Function, and reverts changes in the cluster. The form writes a manifest to copy. "
            @if keeper.file.is_empty() { "Change its file in Git." } @else { "Change its file in Git: " code { (plain(&keeper.file, SHORT)) } }
        }
    }
}

fn text_field(label: &str, name: &str, value: &str) -> Markup {
    html! { label { (label) input type="text" name=(name) value=(value) maxlength="512" autocomplete="off" spellcheck="false"; } }
}

fn code_field(label: &str, name: &str, value: &str, rows: u32) -> Markup {
    // Browsers remove the first line break of a text area.
    html! { label.code { (label) textarea name=(name) rows=(rows) spellcheck="false" { "\n" (value) } } }
}

fn fields(page: &FormPage<'_>) -> Markup {
    let FormPage { key, csrf, fields, is_git, generation, review, .. } = page;
    html! {
        form.function id=(FORM) method="post" action="#review" {
            input type="hidden" name="csrf" value=(csrf);
            input type="hidden" name="generation" value=(generation);
            @if let Some(review) = review { input type="hidden" name="reviewed" value=(review.digest); }
            div.filter {
                @if key.is_none() { (text_field("Name", "name", &fields.name)) }
                (runtime(page))
                (text_field("Minimum pods", "least", &fields.least))
                (text_field("Maximum pods", "most", &fields.most))
                label { "Preset of CPU and memory" input type="text" name="preset" value=(fields.preset) list="presets" maxlength="63" autocomplete="off" spellcheck="false"; }
                datalist #presets { @for preset in PRESETS { option value=(preset) {} } }
            }
            @if key.is_none() { (places(&fields.git)) }
            @if !is_git {
                div.function.of-inline {
                    (code_field("Code", "source", &fields.source, 16))
                    (code_field("Dependencies: package.json or requirements.txt", "deps", &fields.dependencies, 6))
                }
            }
            @if *is_git || key.is_none() {
                div.function.of-git {
                    @if key.is_none() { (repository(page)) }
                    div.filter {
                        (text_field("Branch, tag or commit", "reference", &fields.reference))
                        (text_field("Directory", "directory", &fields.directory))
                    }
                }
            }
            fieldset {
                legend { "Variables. A variable without name and value is removed. A key of an object is written as NAME/KEY." }
                @for (at, row) in fields.rows().iter().enumerate() { (variable(at + 1, row)) }
            }
            (pod_fields(fields))
            p { button.primary[review.is_none()] type="submit" name="step" value="review" { "Review" } }
        }
    }
}

/// Returns the choice between code in the form and code in Git. The style sheet hides the fields of the other one.
fn places(git: &GitPlace) -> Markup {
    html! {
        fieldset {
            legend { "Place of the code" }
            div.filter {
                @for (word, label) in PLACES {
                    label.choice { input type="radio" name="place" value=(word) checked[git.is_chosen == (word == GIT)]; span { (label) } }
                }
            }
        }
    }
}

/// Returns the fields of the repository of a new Function.
fn repository(page: &FormPage<'_>) -> Markup {
    let FormPage { fields, repositories, .. } = page;
    let git = &fields.git;
    html! {
        div.filter {
            label { "GitRepository" input type="text" name="repository" value=(git.repository) list="repositories" maxlength="253" autocomplete="off" spellcheck="false"; }
            datalist #repositories { @for name in *repositories { option value=(name) {} } }
            (text_field("or the URL of a repository", "url", &git.url))
        }
        div.filter {
            (text_field("Secret with the login for the URL", "secret", &git.secret))
            label { "Type of the login"
                select name="login" { @for (word, label) in LOGINS { option value=(word) selected[word == git.login] { (label) } } }
            }
        }
    }
}

/// Returns the fields that few Functions have.
fn pod_fields(fields: &Fields) -> Markup {
    html! {
        details data-name="pods" open[fields.has_pod_fields()] {
            summary { "CPU, memory, Secrets as files, and labels of the pods" }
            div.function {
                fieldset {
                    legend { "CPU and memory of each pod. The preset determines the empty ones." }
                    div.filter {
                        @for ((name, label, _), amount) in AMOUNTS.iter().zip(&fields.amounts) { (text_field(label, name, amount)) }
                    }
                }
                fieldset {
                    legend { "Secrets as files. A row without a Secret and a directory is removed." }
                    @for (at, row) in fields.mount_rows().iter().enumerate() { (mount(at + 1, row)) }
                }
                (code_field("Labels of the pods: one KEY=VALUE in a line", "labels", &fields.labels, 3))
            }
        }
    }
}

fn mount(number: usize, row: &MountRow) -> Markup {
    html! {
        div.variable.mount {
            input type="text" name="mount-secret" value=(row.secret) aria-label={ "Secret " (number) } placeholder="SECRET" maxlength="253" autocomplete="off" spellcheck="false";
            input type="text" name="mount-directory" value=(row.directory) aria-label={ "Directory of Secret " (number) } placeholder="/DIRECTORY" maxlength="1024" autocomplete="off" spellcheck="false";
        }
    }
}

fn runtime(page: &FormPage<'_>) -> Markup {
    let own = page.fields.runtime.as_str();
    html! {
        label { "Runtime"
            select name="runtime" {
                option value="" selected[own.is_empty()] { "the default" }
                @if !own.is_empty() && !page.runtimes.contains(&own) { option value=(own) selected { (own) } }
                @for name in page.runtimes { option value=(name) selected[*name == own] { (name) } }
            }
        }
    }
}

fn variable(number: usize, row: &VariableRow) -> Markup {
    html! {
        div.variable {
            input type="text" name="env-name" value=(row.name) aria-label={ "Name of variable " (number) } placeholder="NAME" maxlength="512" autocomplete="off" spellcheck="false";
            select name="env-origin" aria-label={ "Origin of variable " (number) } {
                @for (word, label) in ORIGINS { option value=(word) selected[word == row.origin] { (label) } }
                @if row.origin == FIELD { option value=(FIELD) selected { "field of the pod" } }
            }
            textarea name="env-value" rows="1" aria-label={ "Value of variable " (number) } spellcheck="false" { "\n" (row.value) }
        }
    }
}

fn reviewed(page: &FormPage<'_>, review: &Review) -> Markup {
    let shown = plain(&review.manifest, review.manifest.len().saturating_mul(8).min(MANIFEST));
    let is_cut = shown.len() >= MANIFEST && shown != review.manifest;
    html! {
        section #review aria-labelledby="reviewed" {
            h2 #reviewed { "Review" }
            (effect(page, review))
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
            @if is_cut { p.note { "The manifest is too large for this page, which shows its beginning." } }
            @else if shown != review.manifest { p.note { "Some characters are shown escaped. A copy of this manifest differs there." } }
            pre tabindex="0" aria-label="Manifest" data-copy=[(!is_cut).then_some("the manifest")] { (shown) }
        }
    }
}

/// Returns what the change builds, and the outcome of the dry run.
fn effect(page: &FormPage<'_>, review: &Review) -> Markup {
    html! {
        @if !review.is_changed { p { "Nothing changes." } }
        @else {
            @match &review.builds {
                Err(why) => p.note role="alert" { (plain(why, MESSAGE)) },
                Ok(_) if page.key.is_none() => p { "Its image is built, and then its pods start." },
                Ok(inputs) if inputs.is_empty() => p { "No image is built: code, dependencies and runtime stay the same." },
                Ok(inputs) => p { "The image is rebuilt, because this changes: " (inputs.join(", ")) ". The present version serves until then." },
            }
            @match &review.dry_run {
                None => p.quiet { "The API server has not checked the change." },
                Some(Ok(())) => p { "The API server accepts the change (dry run)." },
                Some(Err(why)) => p.note role="alert" { "The API server refuses the change: " (why) },
            }
        }
    }
}

fn apply(page: &FormPage<'_>, review: &Review) -> Markup {
    let word = if page.key.is_some() { "Apply" } else { "Create" };
    let is_accepted = review.is_changed && matches!(review.dry_run, Some(Ok(()))) && review.builds.is_ok();
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
pub(crate) fn written(key: &Key, is_new: bool) -> Markup {
    html! {
        h1 { (if is_new { "Created" } else { "Applied" }) ": Function " (key.name) }
        p role="status" { "The page of the Function shows its build and its rollout." }
        p { a href=(address::of_object(key)) { "Open the Function" } }
    }
}

/// Returns the link to the form of a new Function.
pub(super) fn create_link() -> Markup {
    html! { div.actions { a.button href="/create" { "Create a Function" } } }
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

    #[test]
    fn a_large_manifest_is_cut_and_not_copied() {
        let (fields, right) = (Fields::default(), Ok(()));
        for (size, is_whole) in [(MANIFEST - 1, true), (MANIFEST + 1, false)] {
            let review = Review {
                manifest: "x".repeat(size),
                lines: Vec::new(),
                is_changed: true,
                builds: Ok(Vec::new()),
                dry_run: None,
                digest: String::new(),
            };
            let page = FormPage {
                key: None,
                namespace: "shop",
                keeper: None,
                right: &right,
                csrf: "",
                fields: &fields,
                is_git: false,
                generation: "",
                runtimes: &[],
                repositories: &[],
                problem: "",
                review: Some(&review),
            };
            let html = form(&page).into_string();
            assert_eq!(html.contains("data-copy"), is_whole, "{size}");
            assert_eq!(html.contains("shows its beginning"), !is_whole, "{size}");
        }
    }
}
