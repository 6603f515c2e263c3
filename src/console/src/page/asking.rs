//! The head and the form of a page that asks before an action.

use maud::{Markup, html};

use super::parts::{self, Right};
use crate::action::Action;
use crate::address;
use crate::asked::Asked;
use crate::text::{SHORT, plain};
use mainstay_object::Key;

/// Returns an object without its group.
fn name(key: &Key) -> String {
    let namespace = key.namespace.as_ref().map(|namespace| format!("{namespace}/")).unwrap_or_default();
    plain(&format!("{} {namespace}{}", key.kind, key.name), SHORT)
}

/// Returns the place of the page, which is below its object, and the title.
pub(super) fn head(asked: &Asked) -> Markup {
    let key = &asked.key;
    html! {
        (parts::place(key, Some(html! { a href=(address::of_object(key)) { (plain(&key.name, SHORT)) } })))
        h1 { (asked.action.label()) ": " (name(key)) }
    }
}

/// Returns the sentence that names the cluster. A cluster without a name has none.
pub(super) fn in_cluster(cluster: &str) -> Markup {
    html! { @if !cluster.is_empty() { p { "In the cluster " strong { (cluster) } "." } } }
}

/// The form of the page.
pub(super) struct Asking<'q> {
    pub(super) asked: &'q Asked,
    pub(super) right: &'q Right,
    pub(super) csrf: &'q str,
    /// Names and values that the user does not see.
    pub(super) values: &'q [(&'q str, &'q str)],
    /// The page from which the user comes.
    pub(super) back: &'q str,
}

/// Returns the form with these fields. Without the permission, its button is grey, and a note has the reason.
pub(super) fn form(asking: &Asking<'_>, fields: &Markup) -> Markup {
    let Asking { asked, right, csrf, values, back } = asking;
    let is_deletion = matches!(asked.action, Action::AllowPrune | Action::Delete);
    html! {
        form.confirm method="post" action="/act" {
            @for (name, value) in asked.pairs() { input type="hidden" name=(name) value=(value); }
            input type="hidden" name="csrf" value=(csrf);
            @for (name, value) in *values { input type="hidden" name=(name) value=(value); }
            (fields)
            @match right {
                Ok(()) => button.primary.danger[is_deletion] type="submit" { (asked.action.label()) },
                Err(_) => button type="submit" disabled { (asked.action.label()) },
            }
            a href=(back) { "Cancel" }
            @if let Err(why) = right { p.note { (parts::coded(why)) } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::FleetKind;

    const HOSTILE: &str = "\"><script>x</script>";

    fn page(action: Action, right: &Right) -> String {
        let asked = Asked::plain(action, FleetKind::GitSync.key("shop", HOSTILE));
        let values = [("commit", HOSTILE)];
        let asking = Asking { asked: &asked, right, csrf: "token", values: &values, back: "/?q=a&b" };
        let fields = html! { label { "Length" } };
        head(&asked).into_string() + &form(&asking, &fields).into_string()
    }

    #[test]
    fn a_form_sends_its_action_its_values_and_its_token() {
        let html = page(Action::Sync, &Ok(()));
        for part in [
            "name=\"action\" value=\"sync\"",
            "name=\"namespace\" value=\"shop\"",
            "name=\"csrf\" value=\"token\"",
            "name=\"commit\" value=\"&quot;&gt;&lt;script&gt;",
            "<label>Length</label><button class=\"primary\" type=\"submit\">",
            "href=\"/?q=a&amp;b\">Cancel<",
        ] {
            assert!(html.contains(part), "{part}: {html}");
        }
        assert!(!html.contains("<script>"), "{html}");
        for action in [Action::AllowPrune, Action::Delete] {
            assert!(page(action, &Ok(())).contains("class=\"primary danger\""), "{action:?}");
        }
    }

    #[test]
    fn a_user_without_the_permission_has_a_grey_button_and_the_reason() {
        let html = page(Action::Delete, &Err("needs `delete` on <b>".to_owned()));
        assert!(html.contains("<button type=\"submit\" disabled>") && !html.contains("primary"), "{html}");
        assert!(html.contains("needs <code>delete</code> on &lt;b&gt;"), "{html}");
    }

    #[test]
    fn only_a_cluster_with_a_name_is_named() {
        assert_eq!(in_cluster("").into_string(), "");
        assert_eq!(in_cluster("<a>").into_string(), "<p>In the cluster <strong>&lt;a&gt;</strong>.</p>");
    }
}
