//! The page that asks before an action, and the page that shows the result.

use maud::{Markup, html};

use super::asking::{self, Asking, head, in_cluster};
use super::parts::{self, Right};
use super::sync::{self, Held};
use crate::address;
use crate::asked::Asked;
use crate::command::Holder;
use crate::objects_cluster::ObjectsCluster;
use crate::sync_preview::SyncPreview;

/// Contents of the page.
pub(crate) struct Confirmation<'c> {
    pub(crate) asked: &'c Asked,
    pub(crate) right: &'c Right,
    pub(crate) csrf: &'c str,
    /// The name of the cluster; empty without a name.
    pub(crate) cluster: &'c str,
    /// The deviations before a sync.
    pub(crate) preview: Option<&'c SyncPreview>,
    /// Objects whose deletion is to be approved, or that a sync does not delete; `more` is the number of further objects.
    pub(crate) held: &'c [String],
    pub(crate) more: i64,
    /// The cluster of these objects.
    pub(crate) objects: ObjectsCluster,
    /// The problem of the input.
    pub(crate) problem: &'c str,
}

/// Returns the page.
pub(crate) fn confirmation(page: &Confirmation<'_>) -> Markup {
    let Confirmation { asked, right, csrf, cluster, problem, .. } = page;
    let values = [("commit", asked.commit.as_str())];
    let asking = Asking { asked, right, csrf, values: &values, back: &back(asked) };
    html! {
        (head(asked))
        (in_cluster(cluster))
        p { (asked.action.effect(&asked.key)) }
        (sync::object(asked))
        (objects(page))
        @if !problem.is_empty() { p.note role="alert" { (problem) } }
        (asking::form(&asking, &fields(page)))
    }
}

/// Returns the fields that the user fills in.
fn fields(page: &Confirmation<'_>) -> Markup {
    let Confirmation { asked, preview, .. } = page;
    html! {
        @if asked.action.has_length(&asked.key) {
            label { "For how long, such as 30m or 2h; empty for no limit" input type="text" name="for" value=(asked.length) maxlength="20"; }
        }
        @if let Some(frozen) = preview.and_then(|preview| preview.frozen.as_ref()) { (sync::window(frozen, &asked.options)) }
    }
}

/// Returns the objects that the action affects.
fn objects(page: &Confirmation<'_>) -> Markup {
    let Confirmation { asked, preview, held, more, objects, .. } = page;
    let holder = Holder { git_sync: &asked.key, attempted: &asked.commit };
    html! {
        @if let Some(preview) = preview {
            (sync::preview(preview, &asked.key, *objects))
            (sync::remaining(Held { objects: held, more: *more, commit: &asked.commit }, &asked.key, *objects))
        } @else if !held.is_empty() {
            p { "Commit " code { (asked.commit) } " deletes:" }
            ul { @for one in *held { li { (parts::held_object(one, holder, *objects)) } } @if *more > 0 { li { "and " (more) " more" } } }
        }
    }
}

/// Returns the page from which the user comes.
fn back(asked: &Asked) -> String {
    let object = address::key_of(&asked.options.object);
    address::of_object(object.as_ref().unwrap_or(&asked.key))
}

/// Returns the page about the result. An error says whether something was changed.
pub(crate) fn outcome(asked: &Asked, result: &Result<(), String>) -> Markup {
    html! {
        (head(asked))
        @match result {
            Ok(()) => p role="status" { (asked.action.result(&asked.key)) },
            Err(why) => p.note role="alert" { (why) },
        }
        p { a href=(back(asked)) { "Back to the object" } }
    }
}
