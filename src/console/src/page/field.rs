//! The fields of a form: their labels, and the marks of those that need a value.

use maud::{Markup, html};

/// Whether a field needs a value. Its label says so in words, which screen readers read, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    Optional,
    /// Each form needs the value, so the browser checks it, too.
    Always,
    /// The value is needed in this case. The browser does not check it: it would also keep other forms back, and the field
    /// may be hidden.
    Case(&'static str),
}

impl Need {
    /// Returns the words after the label.
    pub(super) fn mark(self) -> Markup {
        html! {
            @match self {
                Self::Optional => "",
                Self::Always => " (required)",
                Self::Case(case) => { " (required " (case) ")" },
            }
        }
    }

    pub(super) fn is_always(self) -> bool {
        self == Self::Always
    }
}

/// Returns a field of one line.
pub(super) fn text_field(label: &str, name: &str, value: &str, need: Need) -> Markup {
    // The style sheet recognises an empty field by its placeholder.
    html! {
        label {
            (label) (need.mark())
            input type="text" name=(name) value=(value) placeholder=" " required[need.is_always()] maxlength="512" autocomplete="off" spellcheck="false";
        }
    }
}

/// Returns a field for code.
pub(super) fn code_field(label: &str, name: &str, value: &str, rows: u32, need: Need) -> Markup {
    // Browsers remove the first line break of a text area.
    html! {
        label.code {
            (label) (need.mark())
            textarea name=(name) rows=(rows) required[need.is_always()] spellcheck="false" { "\n" (value) }
        }
    }
}

/// Returns a field of one line with suggestions.
pub(super) fn suggesting_field(label: &str, name: &str, value: &str, suggestions: &[String], need: Need) -> Markup {
    let list = format!("suggested-{name}");
    html! {
        label {
            (label) (need.mark())
            input type="text" name=(name) value=(value) list=(list) placeholder=" " required[need.is_always()] maxlength="253" autocomplete="off" spellcheck="false";
        }
        datalist id=(list) { @for one in suggestions { option value=(one) {} } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_says_in_words_that_it_is_required_and_the_browser_checks_only_those_of_each_form() {
        let check = |need: Need, label: &str, is_checked: bool| {
            for html in [
                text_field("Host", "host", "", need),
                code_field("Host", "host", "", 3, need),
                suggesting_field("Host", "host", "", &[], need),
            ] {
                let html = html.into_string();
                assert!(html.contains(&format!(">{label}<")), "{html}");
                assert_eq!(html.contains(" required "), is_checked, "{html}");
            }
        };
        check(Need::Optional, "Host", false);
        check(Need::Always, "Host (required)", true);
        check(Need::Case("with Git"), "Host (required with Git)", false);
    }
}
