//! The page that asks before an action, and the page that shows the result.

use maud::{Markup, html};

use super::parts::{self, Right};
use crate::action::Action;
use crate::address;
use crate::asked::Asked;
use crate::command::Holder;
use crate::objects_cluster::ObjectsCluster;
use crate::text::{SHORT, plain};
use mainstay_object::Key;

/// Returns an object without its group.
fn name(key: &Key) -> String {
    let namespace = key.namespace.as_ref().map(|namespace| format!("{namespace}/")).unwrap_or_default();
    plain(&format!("{} {namespace}{}", key.kind, key.name), SHORT)
}

/// Returns the place of the page: below its object.
fn place(key: &Key) -> Markup {
    parts::place(key, Some(html! { a href=(address::of_object(key)) { (plain(&key.name, SHORT)) } }))
}

/// Contents of the page.
pub(crate) struct Confirmation<'c> {
    pub(crate) asked: &'c Asked,
    pub(crate) right: &'c Right,
    pub(crate) csrf: &'c str,
    /// The name of the cluster; empty without a name.
    pub(crate) cluster: &'c str,
    /// Objects whose deletion is to be approved; `more` is the number of further objects.
    pub(crate) held: &'c [String],
    pub(crate) more: i64,
    /// The cluster of these objects.
    pub(crate) objects: ObjectsCluster,
    /// The problem of the input.
    pub(crate) problem: &'c str,
}

/// Returns the page.
pub(crate) fn confirmation(page: &Confirmation<'_>) -> Markup {
    let Confirmation { asked, right, csrf, cluster, held, more, objects, problem } = page;
    let holder = Holder { git_sync: &asked.key, attempted: &asked.commit };
    html! {
        (place(&asked.key))
        h1 { (asked.action.label()) ": " (name(&asked.key)) }
        @if !cluster.is_empty() { p { "In the cluster " strong { (cluster) } "." } }
        p { (asked.action.effect(&asked.key)) }
        @if !held.is_empty() {
            p { "Commit " code { (asked.commit) } " deletes:" }
            ul { @for one in *held { li { (parts::held_object(one, holder, *objects)) } } @if *more > 0 { li { "and " (more) " more" } } }
        }
        @if !problem.is_empty() { p.note role="alert" { (problem) } }
        form.confirm method="post" action="/act" {
            @for (name, value) in asked.pairs() { input type="hidden" name=(name) value=(value); }
            input type="hidden" name="csrf" value=(csrf);
            input type="hidden" name="commit" value=(asked.commit);
            @if asked.action.has_length(&asked.key) {
                label { "For how long, such as 30m or 2h; empty for no limit" input type="text" name="for" value=(asked.length) maxlength="20"; }
            }
            @match right {
                Ok(()) => button.primary.danger[asked.action == Action::AllowPrune] type="submit" { (asked.action.label()) },
                Err(why) => { button type="submit" disabled { (asked.action.label()) } p.note { (parts::coded(why)) } },
            }
            a href=(address::of_object(&asked.key)) { "Cancel" }
        }
    }
}

/// Returns the page about the result.
pub(crate) fn outcome(asked: &Asked, result: &Result<(), String>) -> Markup {
    html! {
        (place(&asked.key))
        h1 { (asked.action.label()) ": " (name(&asked.key)) }
        @match result {
            Ok(()) => p role="status" { (asked.action.result(&asked.key)) },
            Err(why) => p.note role="alert" { "Nothing was changed: " (why) },
        }
        p { a href=(address::of_object(&asked.key)) { "Back to the object" } }
    }
}
