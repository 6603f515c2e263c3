//! The source of a Function: its code, or its place in Git.

use serde_json::Value;

use crate::field::text_at;
use crate::highlight::Language;
use crate::remote::shown;
use crate::text::{SHORT, plain};

/// Maximum size of code on the page, in bytes.
pub(crate) const LONGEST: usize = 128 << 10;

/// Code as a page shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CodeText {
    pub(crate) text: String,
    /// `None` without colours.
    pub(crate) language: Option<Language>,
    pub(crate) is_cut: bool,
}

impl CodeText {
    /// Returns code cut to the size of a page.
    pub(crate) fn of(text: &str, language: Option<Language>) -> Self {
        Self { text: plain(text, LONGEST), language, is_cut: text.len() > LONGEST }
    }
}

/// The source of a Function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Inline {
        source: CodeText,
        /// `None` without dependencies.
        dependencies: Option<CodeText>,
    },
    Git {
        /// The name of the GitRepository; empty if the Function has a repository of its own.
        repository: String,
        /// The URL of the Function's own repository, without a login.
        url: String,
        reference: String,
        directory: String,
        /// The commit that was built, or is being built.
        commit: String,
    },
}

/// Returns whether the code of a Function is in Git.
pub(crate) fn is_git(function: &Value) -> bool {
    function.pointer("/spec/type").is_some_and(|kind| kind == "git")
}

/// Returns the runtime in the spec, or else the one in the status.
pub(crate) fn runtime(function: &Value) -> String {
    let all = ["/spec/runtime", "/status/runtime"].map(|pointer| text_at(function, pointer, SHORT));
    all.into_iter().find(|text| !text.is_empty()).unwrap_or_default()
}

/// Reads the source of a Function.
pub(crate) fn source(function: &Value) -> Source {
    let text = |pointer: &str| text_at(function, pointer, SHORT);
    if is_git(function) {
        let url = function.pointer("/spec/gitRepository/url").and_then(Value::as_str);
        return Source::Git {
            repository: if url.is_some() { String::new() } else { text("/spec/source") },
            url: url.map(|url| plain(&shown(url), SHORT)).unwrap_or_default(),
            reference: text("/spec/reference"),
            directory: text("/spec/baseDir"),
            commit: text("/status/commit"),
        };
    }
    let [of_source, of_dependencies] = Language::of_runtime(&runtime(function));
    let code = |pointer: &str, language: Language| {
        CodeText::of(function.pointer(pointer).and_then(Value::as_str).unwrap_or_default(), Some(language))
    };
    let dependencies = code("/spec/deps", of_dependencies);
    Source::Inline {
        source: code("/spec/source", of_source),
        dependencies: (!dependencies.text.trim().is_empty()).then_some(dependencies),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn long_code_is_cut_and_says_so() {
        let function = json!({"spec": {"runtime": "python312", "source": "x".repeat(LONGEST + 1), "deps": " \n"}});
        let Source::Inline { source, dependencies } = source(&function) else { panic!("it is inline") };
        assert!(source.is_cut && source.text.len() < LONGEST + 10 && source.language == Some(Language::Python));
        assert_eq!(dependencies, None);
    }

    #[test]
    fn a_function_of_git_names_its_repository_or_its_url() {
        let of = |spec: Value| source(&json!({"spec": spec, "status": {"commit": "c0ffee"}}));
        let named = of(json!({"type": "git", "source": "shop", "reference": "main", "baseDir": "/f"}));
        let own = of(json!({"type": "git", "source": "", "gitRepository": {"url": "https://a:b@example.com/x"}}));
        let Source::Git { repository, reference, directory, commit, .. } = named else { panic!("it is of Git") };
        assert_eq!([repository, reference, directory, commit], ["shop", "main", "/f", "c0ffee"]);
        let Source::Git { repository, url, .. } = own else { panic!("it is of Git") };
        assert_eq!([repository, url], ["", "https://example.com/x"]);
    }
}
