//! The fields of a GitRepository in its form.

use maud::{Markup, html};

use super::form::{FormFields, FormPage, name_field, suggesting_field};
use crate::git_place::LOGINS;
use crate::repository_form::{PUBLIC, RepositoryFields};

/// Maximum length of an address that the agent parses.
const ADDRESS: usize = 4096;

impl FormFields for RepositoryFields {
    const TITLE: &'static str = "Connect a repository";
    const WRITTEN: &'static str = "The page of the GitRepository shows the result of its next lookup.";

    fn fields(page: &FormPage<'_, Self>) -> Markup {
        let fields = page.fields;
        html! {
            div.filter {
                (name_field(page))
                label.wide { "URL" input type="text" name="url" value=(fields.url) maxlength=(ADDRESS) autocomplete="off" spellcheck="false"; }
            }
            div.filter {
                label { "Authentication"
                    select name="auth" {
                        option value=(PUBLIC) selected[fields.auth == PUBLIC] { "none: the repository is public" }
                        @for (word, label) in LOGINS { option value=(word) selected[fields.auth == word] { (label) } }
                    }
                }
                (suggesting_field("Secret with the login", "secret", &fields.secret, page.suggestions))
            }
            p.quiet {
                "The Secret exists in the same namespace: " code { "username" } " and " code { "password" } " for a password or token, "
                code { "key" } " for an SSH key. Its values are not read."
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::Query;
    use crate::form::ObjectForm;
    use crate::page::form::form;

    #[test]
    fn the_fields_and_the_suggestions_are_escaped() {
        let hostile = "\"><script>x</script>";
        let (right, suggestions) = (Ok(()), [hostile.to_owned()]);
        let blank = RepositoryFields::blank(&Query::default());
        let fields = RepositoryFields { url: hostile.into(), secret: hostile.into(), name: hostile.into(), ..blank };
        let page = FormPage {
            key: None,
            live: None,
            namespace: hostile,
            keeper: None,
            right: &right,
            csrf: "t",
            fields: &fields,
            generation: "",
            runtimes: &[],
            suggestions: &suggestions,
            problem: hostile,
            review: None,
        };
        let html = form(&page).into_string();
        assert!(!html.contains("<script>") && html.matches("&lt;script&gt;").count() >= 5, "{html}");
        assert!(html.contains("action=\"/connect\"") && html.contains("<option value=\"public\" selected>"), "{html}");
    }
}
