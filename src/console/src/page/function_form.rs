//! The fields of a Function in its form.

use maud::{Markup, html};

use super::field::{Need, code_field, suggesting_field, text_field};
use super::form::{FormFields, FormPage, name_field};
use crate::function_form::{AMOUNTS, FunctionFields};
use crate::function_rows::{FIELD, MountRow, ORIGINS, UNKNOWN, VariableRow};
use crate::git_place::{GIT, GitPlace, LOGINS, PLACES};
use crate::source::is_git;

/// The presets of an installation without settings. The operator may set others.
const PRESETS: [&str; 5] = ["XS", "S", "M", "L", "XL"];

impl FormFields for FunctionFields {
    const TITLE: &'static str = "Create a Function";
    const WRITTEN: &'static str = "The page of the Function shows its build and its rollout.";

    fn fields(page: &FormPage<'_, Self>) -> Markup {
        let FormPage { key, fields, live, .. } = page;
        let is_git = live.is_some_and(is_git);
        // The style sheet hides the code of a new Function, or its place in Git. A live one has only one of them.
        let of = |case| if key.is_none() { Need::Case(case) } else { Need::Always };
        let (of_code, of_git) = (of("without Git"), of("with Git"));
        html! {
            div.filter {
                (name_field(page))
                (runtime(page))
                (text_field("Minimum pods", "least", &fields.least, Need::Optional))
                (text_field("Maximum pods", "most", &fields.most, Need::Optional))
                label { "Preset of CPU and memory" input type="text" name="preset" value=(fields.preset) list="presets" maxlength="63" autocomplete="off" spellcheck="false"; }
                datalist #presets { @for preset in PRESETS { option value=(preset) {} } }
            }
            @if key.is_none() { (places(&fields.git)) }
            @if !is_git {
                div.function.of-inline {
                    (code_field("Code", "source", &fields.source, 16, of_code))
                    (code_field("Dependencies: package.json or requirements.txt", "deps", &fields.dependencies, 6, Need::Optional))
                }
            }
            @if is_git || key.is_none() {
                div.function.of-git {
                    @if key.is_none() { (repository(page)) }
                    div.filter {
                        (text_field("Branch, tag or commit", "reference", &fields.reference, of_git))
                        (text_field("Directory", "directory", &fields.directory, of_git))
                    }
                }
            }
            fieldset {
                legend { "Variables. A variable without name and value is removed. A key of an object is written as NAME/KEY." }
                @for (at, row) in fields.rows().iter().enumerate() { (variable(at + 1, row)) }
            }
            (pod_fields(fields))
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
fn repository(page: &FormPage<'_, FunctionFields>) -> Markup {
    let git = &page.fields.git;
    html! {
        div.filter {
            (suggesting_field("GitRepository", "repository", &git.repository, page.suggestions, Need::Case("without a URL")))
            (text_field("or the URL of a repository", "url", &git.url, Need::Case("without a GitRepository")))
        }
        div.filter {
            (text_field("Secret with the login for the URL", "secret", &git.secret, Need::Optional))
            label { "Type of the login"
                select name="login" { @for (word, label) in LOGINS { option value=(word) selected[word == git.login] { (label) } } }
            }
        }
    }
}

/// Returns the fields that few Functions have.
fn pod_fields(fields: &FunctionFields) -> Markup {
    html! {
        details data-name="pods" open[fields.has_pod_fields()] {
            summary { "CPU, memory, Secrets as files, and labels of the pods" }
            div.function {
                fieldset {
                    legend { "CPU and memory of each pod. The preset determines the empty ones." }
                    div.filter {
                        @for ((name, label, _), amount) in AMOUNTS.iter().zip(&fields.amounts) { (text_field(label, name, amount, Need::Optional)) }
                    }
                }
                fieldset {
                    legend { "Secrets as files. A row without a Secret and a directory is removed." }
                    @for (at, row) in fields.mount_rows().iter().enumerate() { (mount(at + 1, row)) }
                }
                (code_field("Labels of the pods: one KEY=VALUE in a line", "labels", &fields.labels, 3, Need::Optional))
            }
        }
    }
}

fn mount(number: usize, row: &MountRow) -> Markup {
    html! {
        div.variable.mount {
            (position("mount-at", row.at))
            input type="text" name="mount-secret" value=(row.secret) aria-label={ "Secret " (number) } placeholder="SECRET" maxlength="253" autocomplete="off" spellcheck="false";
            input type="text" name="mount-directory" value=(row.directory) aria-label={ "Directory of Secret " (number) } placeholder="/DIRECTORY" maxlength="1024" autocomplete="off" spellcheck="false";
        }
    }
}

/// Returns the hidden position of a row in the live object.
fn position(name: &str, at: Option<usize>) -> Markup {
    html! { input type="hidden" name=(name) value=(at.map(|at| at.to_string()).unwrap_or_default()); }
}

fn runtime(page: &FormPage<'_, FunctionFields>) -> Markup {
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
            (position("env-at", row.at))
            input type="text" name="env-name" value=(row.name) aria-label={ "Name of variable " (number) } placeholder="NAME" maxlength="512" autocomplete="off" spellcheck="false";
            select name="env-origin" aria-label={ "Origin of variable " (number) } {
                @for (word, label) in ORIGINS { option value=(word) selected[word == row.origin] { (label) } }
                @if row.origin == FIELD { option value=(FIELD) selected { "field of the pod" } }
                @if row.origin == UNKNOWN { option value=(UNKNOWN) selected { "unknown to this form" } }
            }
            textarea name="env-value" rows="1" aria-label={ "Value of variable " (number) } spellcheck="false" { "\n" (row.value) }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::form::EditForm as _;
    use crate::page::form::{MANIFEST, Review, form};
    use crate::row::FleetKind;

    /// Returns the form of a Function.
    fn page(live: Option<&Value>, review: Option<&Review>) -> String {
        let (fields, right) = (live.map(FunctionFields::of).unwrap_or_default(), Ok(()));
        let key = live.map(|_| FleetKind::Function.key("shop", "web"));
        let page = FormPage {
            key: key.as_ref(),
            live,
            namespace: "shop",
            keeper: None,
            right: &right,
            csrf: "",
            fields: &fields,
            generation: "",
            runtimes: &[],
            suggestions: &[],
            problem: "",
            review,
        };
        form(&page).into_string()
    }

    #[test]
    fn the_browser_checks_no_field_that_the_style_sheet_may_hide() {
        // The label of a field, and whether the browser checks it.
        let field = |html: &str, name: &str| {
            let (before, after) = html.split_once(&format!("name=\"{name}\"")).unwrap();
            let label = before.rsplit("<label").next().and_then(|label| label.split(['>', '<']).nth(1)).unwrap();
            (label.to_owned(), after.split('>').next().unwrap().contains(" required"))
        };
        let new = page(None, None);
        for (name, label) in [
            ("source", "Code (required without Git)"),
            ("reference", "Branch, tag or commit (required with Git)"),
            ("directory", "Directory (required with Git)"),
            ("repository", "GitRepository (required without a URL)"),
            ("url", "or the URL of a repository (required without a GitRepository)"),
        ] {
            assert_eq!(field(&new, name), (label.to_owned(), false));
        }
        assert!(new.contains("<label>Name (required)<input type=\"text\" name=\"name\""), "{new}");
        let inline = page(Some(&json!({"spec": {"source": "x"}})), None);
        assert_eq!(field(&inline, "source"), ("Code (required)".to_owned(), true));
        let of_git = page(Some(&json!({"spec": {"type": "git", "source": "shop"}})), None);
        assert_eq!(field(&of_git, "reference"), ("Branch, tag or commit (required)".to_owned(), true));
        assert_eq!(field(&of_git, "directory"), ("Directory (required)".to_owned(), true));
    }

    #[test]
    fn a_large_manifest_is_cut_and_not_copied() {
        for (size, is_whole) in [(MANIFEST - 1, true), (MANIFEST + 1, false)] {
            let review = Review {
                manifest: "x".repeat(size),
                is_hidden: false,
                lines: Vec::new(),
                is_changed: true,
                effect: Ok(String::new()),
                dry_run: None,
                digest: String::new(),
            };
            let html = page(None, Some(&review));
            assert_eq!(html.contains("data-copy"), is_whole, "{size}");
            assert_eq!(html.contains("shows its beginning"), !is_whole, "{size}");
        }
    }
}
