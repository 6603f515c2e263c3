//! The fields of a GitRepository in its form.

use maud::{Markup, html};

use super::field::{Need, suggesting_field};
use super::form::{FormFields, FormPage, name_field};
use crate::git_place::LOGINS;
use crate::repository_form::{HiddenPart, PUBLIC, RepositoryFields};

/// Maximum length of an address that the agent parses.
const ADDRESS: usize = 4096;
/// The Secret of a repository that needs a login.
const OF_SECRET: Need = Need::Case("unless the repository is public");

impl FormFields for RepositoryFields {
    const TITLE: &'static str = "Connect a repository";
    const WRITTEN: &'static str = "The page of the GitRepository shows the result of its next lookup.";

    fn fields(page: &FormPage<'_, Self>) -> Markup {
        let (fields, hidden) = (page.fields, page.live.and_then(Self::hidden_part));
        let of_url = match hidden {
            Some(HiddenPart::Other) => Need::Case("unless the present address is kept"),
            Some(HiddenPart::Password) | None => Need::Always,
        };
        html! {
            div.filter {
                (name_field(page))
                label.wide {
                    "URL" (of_url.mark())
                    input type="text" name="url" value=(fields.url) required[of_url.is_always()] maxlength=(ADDRESS) autocomplete="off" spellcheck="false";
                }
            }
            @if let Some(hidden) = hidden { (hidden_note(hidden, fields.is_kept)) }
            div.filter {
                label { "Authentication"
                    select name="auth" {
                        option value=(PUBLIC) selected[fields.auth == PUBLIC] { "none: the repository is public" }
                        @for (word, label) in LOGINS { option value=(word) selected[fields.auth == word] { (label) } }
                    }
                }
            }
            // The style sheet hides an empty field if the repository is public.
            div.of-login {
                div.filter { (suggesting_field("Secret with the login", "secret", &fields.secret, page.suggestions, OF_SECRET)) }
                p.quiet {
                    "The Secret exists in the same namespace: " code { "username" } " and " code { "password" } " for a password or token, "
                    code { "key" } " for an SSH key. Its values are not read."
                }
            }
        }
    }
}

/// Returns the note about an address that is not in the form. An address without a password may be kept.
fn hidden_note(hidden: HiddenPart, is_kept: bool) -> Markup {
    html! {
        p.note { "The present address has a login or a query, which is not shown. Write the address without them." }
        @if hidden == HiddenPart::Other {
            div.filter {
                label.choice {
                    input type="checkbox" name="keep" value="1" checked[is_kept];
                    span { "Keep the present address with its hidden part while the field is empty" }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::filter::Query;
    use crate::form::{EditForm as _, ObjectForm as _};
    use crate::page::form::form;

    /// Returns the form of a repository.
    fn page(fields: &RepositoryFields, live: Option<&Value>, text: &str) -> String {
        let (right, suggestions) = (Ok(()), [text.to_owned()]);
        let page = FormPage {
            key: None,
            live,
            namespace: text,
            keeper: None,
            right: &right,
            csrf: "t",
            fields,
            generation: "",
            runtimes: &[],
            suggestions: &suggestions,
            problem: text,
            review: None,
        };
        form(&page).into_string()
    }

    #[test]
    fn the_fields_and_the_suggestions_are_escaped() {
        let hostile = "\"><script>x</script>";
        let blank = RepositoryFields::blank(&Query::default());
        let fields = RepositoryFields { url: hostile.into(), secret: hostile.into(), name: hostile.into(), ..blank };
        let html = page(&fields, None, hostile);
        assert!(!html.contains("<script>") && html.matches("&lt;script&gt;").count() >= 5, "{html}");
        assert!(html.contains("action=\"/connect\"") && html.contains("<option value=\"public\" selected>"), "{html}");
    }

    #[test]
    fn the_address_is_required_unless_a_box_keeps_the_present_one() {
        let of = |live: Option<&Value>| {
            let fields = live.map_or_else(|| RepositoryFields::blank(&Query::default()), RepositoryFields::of);
            let html = page(&fields, live, "");
            let field = html.split("name=\"url\"").nth(1).and_then(|rest| rest.split('>').next()).unwrap();
            let label = html.split("<label class=\"wide\">").nth(1).and_then(|rest| rest.split('<').next()).unwrap();
            (label.to_owned(), field.contains(" required"))
        };
        let always = ("URL (required)".to_owned(), true);
        assert_eq!(of(None), always);
        for url in ["https://git.example.com/shop", "https://user:hunter2@git.example.com/shop"] {
            assert_eq!(of(Some(&json!({"spec": {"url": url}}))), always, "{url}");
        }
        let kept = json!({"spec": {"url": "https://git.example.com/shop?a=b"}});
        assert_eq!(of(Some(&kept)), ("URL (required unless the present address is kept)".to_owned(), false));
    }

    #[test]
    fn the_secret_of_a_login_is_a_part_that_the_style_sheet_hides() {
        let html = page(&RepositoryFields::blank(&Query::default()), None, "");
        let part = html.split("<div class=\"of-login\">").nth(1).unwrap();
        assert!(part.contains("Secret with the login (required unless the repository is public)"), "{part}");
        let field = part.split("<input ").nth(1).and_then(|rest| rest.split('>').next()).unwrap();
        // The browser would refuse the form of a public repository. An empty field is known by its placeholder.
        assert!(field.contains("name=\"secret\"") && field.contains("placeholder=\" \""), "{field}");
        assert!(!field.contains("required"), "{field}");
    }

    #[test]
    fn a_note_says_that_an_address_is_not_shown_and_a_box_keeps_it() {
        let of = |url: &str| {
            let live = json!({"spec": {"url": url}});
            let html = page(&RepositoryFields::of(&live), Some(&live), "");
            assert!(!html.contains("hunter2"), "{html}");
            (html.contains("which is not shown"), html.contains("name=\"keep\" value=\"1\" checked"))
        };
        assert_eq!(of("https://git.example.com/shop"), (false, false));
        assert_eq!(of("https://user:hunter2@git.example.com/shop"), (true, false));
        assert_eq!(of("https://git.example.com/shop?token=hunter2"), (true, true));
    }
}
