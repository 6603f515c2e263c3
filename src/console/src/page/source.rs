//! The source of a Function on its page.

use maud::{Markup, html};

use super::parts;
use crate::address;
use crate::highlight::{Colour, parts as coloured};
use crate::row::FleetKind;
use crate::source::{CodeText, LONGEST, Source};

/// Returns the section about the source. `remote` is the address of the repository, if the user may read it. `files` is the
/// page of the files in Git, if there is one.
pub(super) fn source(namespace: &str, source: &Source, remote: Option<&str>, files: Option<&str>) -> Markup {
    html! {
        section aria-labelledby="source" {
            h2 #source { "Source" }
            @match source {
                Source::Inline { source, dependencies } => {
                    div.pair {
                        div { h3 { "Code" } (code(source, "Source code")) }
                        @if let Some(dependencies) = dependencies {
                            div { h3 { "Dependencies" } (code(dependencies, "Dependencies")) }
                        }
                    }
                }
                Source::Git { repository, url, reference, directory, commit } => {
                    dl.facts {
                        @if url.is_empty() {
                            div { dt { "GitRepository" } dd { a href=(address::of_object(&FleetKind::GitRepository.key(namespace, repository))) { (repository) } } }
                        } @else {
                            div { dt { "Repository" } dd { (url) } }
                        }
                        div { dt { "Follows" } dd { (if reference.is_empty() { "no reference is set" } else { reference }) } }
                        div { dt { "Directory" } dd { (if directory.is_empty() { "/" } else { directory }) } }
                        @if !commit.is_empty() { div { dt { "Commit" } dd { (parts::commit(commit, remote)) } } }
                    }
                    @match files {
                        Some(files) => p { a href=(files) { "Files of this commit" } },
                        None => p.quiet { (parts::with_code("The page of `mainstay ui` shows the files of the commit, too.")) },
                    }
                }
            }
        }
    }
}

/// Returns code with its colours.
pub(super) fn code(code: &CodeText, label: &str) -> Markup {
    html! {
        @if code.text.is_empty() { p.quiet { "It is empty." } }
        @else {
            pre tabindex="0" aria-label=(label) {
                @match code.language {
                    None => (code.text),
                    Some(language) => {
                        @for (colour, text) in coloured(&code.text, language) {
                            @if colour == Colour::Plain { (text) } @else { span.(colour.class()) { (text) } }
                        }
                    }
                }
            }
        }
        @if code.is_cut { p.note { "The text is longer. Only its first " (LONGEST >> 10) " KiB are shown." } }
    }
}
