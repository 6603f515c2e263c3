//! The files of a Function with code in Git, and the content of one of them.

use maud::{Markup, html};

use super::{parts, source};
use crate::address;
use crate::files::Files;
use crate::highlight::Language;
use crate::source::CodeText;
use crate::text::{MESSAGE, SHORT, plain};
use mainstay_object::Key;

/// Contents of the page.
pub(crate) struct FilesPage<'p> {
    pub(crate) key: &'p Key,
    /// The path of the file to show; empty for none.
    pub(crate) wanted: &'p str,
    pub(crate) files: &'p Result<Files, String>,
    /// The address of the repository, if the user may read it.
    pub(crate) remote: Option<&'p str>,
}

/// Returns the page.
pub(crate) fn files(page: &FilesPage<'_>) -> Markup {
    let FilesPage { key, files, .. } = page;
    html! {
        (parts::place(key, Some(html! { a href=(address::of_object(key)) { (key.name) } })))
        h1 { "Files of the Function " (key.name) }
        @match files {
            Err(why) => p.note { (why) },
            Ok(files) => (of_commit(page, files)),
        }
    }
}

fn of_commit(page: &FilesPage<'_>, files: &Files) -> Markup {
    let FilesPage { key, wanted, remote, .. } = page;
    let place = address::path(&["function", key.namespace.as_deref().unwrap_or_default(), &key.name, "files"]);
    html! {
        dl.facts { div { dt { "Commit" } dd { (parts::commit(&plain(&files.commit, SHORT), *remote)) } } }
        @if !wanted.is_empty() { (content(wanted, files)) }
        section aria-labelledby="list" {
            h2 #list { "Files" }
            @if files.paths.is_empty() { p.quiet { "The directory of the Function has no files." } }
            @else {
                ul.tree {
                    @for (path, size) in &files.paths {
                        li {
                            a href=(address::with_query(&place, &[("file", path)])) aria-current=[(path == wanted).then_some("page")] { (plain(path, SHORT)) }
                            " " span.quiet { (bytes(*size)) }
                        }
                    }
                }
            }
            @if files.more > 0 { p.note { "and " (files.more) " more" } }
        }
    }
}

/// Returns the content of the wanted file.
fn content(wanted: &str, files: &Files) -> Markup {
    let name = plain(wanted, SHORT);
    html! {
        section aria-labelledby="file" {
            h2 #file { (name) }
            @match &files.file {
                None => p.note { "This commit has no such file below the directory of the Function." },
                Some(Err(why)) => p.note { (plain(why, MESSAGE)) },
                Some(Ok(text)) => (source::code(&CodeText::of(text, Language::of_file(wanted)), &name)),
            }
        }
    }
}

/// Formats a size.
fn bytes(size: u64) -> String {
    match size {
        0..1024 => format!("{size} bytes"),
        1024..1_048_576 => format!("{} KiB", size.div_ceil(1024)),
        _ => format!("{} MiB", size.div_ceil(1_048_576)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::FleetKind;

    fn shown(wanted: &str, files: Result<Files, String>) -> String {
        let key = FleetKind::Function.key("shop", "web");
        super::files(&FilesPage { key: &key, wanted, files: &files, remote: None }).into_string()
    }

    fn read(file: Option<Result<String, String>>) -> Files {
        let paths = vec![("f/handler.js".to_owned(), 12), ("f/\"><b>.js".to_owned(), 2048)];
        Files { commit: "a".repeat(40), paths, more: 3, file }
    }

    #[test]
    fn a_file_is_shown_with_colours_and_each_name_is_a_text() {
        let html = shown("f/handler.js", Ok(read(Some(Ok("const a = '<b>'".to_owned())))));
        for text in [
            "<span class=\"kw\">const</span> a = <span class=\"st\">'&lt;b&gt;'</span>",
            "<a href=\"/function/shop/web/files?file=f%2Fhandler.js\" aria-current=\"page\">f/handler.js</a>",
            "f/&quot;&gt;&lt;b&gt;.js</a> <span class=\"quiet\">2 KiB</span>",
            "12 bytes",
            "and 3 more",
        ] {
            assert!(html.contains(text), "{text}: {html}");
        }
        assert!(!html.contains("<b>"), "{html}");
        assert!(shown("none", Ok(read(None))).contains("no such file"));
        assert!(shown("a", Ok(read(Some(Err("It is large.".to_owned()))))).contains("It is large."));
        assert!(!shown("", Ok(read(None))).contains("no such file"));
        let failed = shown("", Err("Run `mainstay ui` <b>".to_owned()));
        assert!(failed.contains("Run `mainstay ui` &lt;b&gt;") && !failed.contains("data-copy"), "{failed}");
    }
}
