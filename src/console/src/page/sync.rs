//! Parts of the page that asks before a sync: the deviations now, the window that holds a commit back, and the decisions
//! that the repository and the guards leave to the user.

use maud::{Markup, html};

use super::parts;
use crate::action::Action;
use crate::address;
use crate::asked::Asked;
use crate::command::{Command, Holder};
use crate::deviation::Why;
use crate::objects_cluster::ObjectsCluster;
use crate::sync_options::{OVERRIDE, SyncOptions};
use crate::sync_preview::{Frozen, Immutable, SyncPreview};
use crate::text::short_id;
use mainstay_object::{Key, counted};

/// Deletions that a guard holds.
#[derive(Clone, Copy)]
pub(super) struct Held<'h> {
    pub(super) objects: &'h [String],
    /// Number of further objects.
    pub(super) more: i64,
    /// The commit that deletes them.
    pub(super) commit: &'h str,
}

/// Returns the object for which the user asks.
pub(super) fn object(asked: &Asked) -> Markup {
    let SyncOptions { object, .. } = &asked.options;
    // The page of an object shows this cluster, and only such a page has the button.
    let name = parts::named_object(object, ObjectsCluster::This);
    html! {
        @if !object.is_empty() {
            @if asked.action == Action::RunAgain { p { "The object: " strong { (name) } } }
            @else {
                p { "The agent applies " strong { (name) } " again without waiting for its next attempt. A request is for the whole GitSync, so other failed objects are tried, too." }
            }
        }
    }
}

/// Returns the deviations that a sync of this GitSync meets.
pub(super) fn preview(preview: &SyncPreview, git_sync: &Key, cluster: ObjectsCluster) -> Markup {
    let namespace = git_sync.namespace.as_deref().unwrap_or_default();
    html! {
        @if preview.is_suspended { p.note { "The GitSync is suspended, so the agent applies nothing until it is resumed." } }
        section aria-labelledby="deviations" {
            h2 #deviations { "Deviations now" }
            p.quiet {
                "Compared with the commit that the agent has read last. The agent looks up the repository first, and a newer commit may change more."
                @if let Some(command) = Command::dry_run(git_sync) { " To see all changes without a write, run: " (parts::command(&command)) }
            }
            @for note in &preview.notes { (parts::note(note)) }
            @if preview.counts.is_empty() { p { "No deviation is known among the objects that were checked." } }
            @else {
                ul { @for (why, count) in &preview.counts { li { b { (count) " " (why.word()) } ": " (effect(*why, &preview.drift)) } } }
                (listed(preview, cluster))
            }
            @if preview.not_checked > 0 { p.note { (counted(preview.not_checked, "object")) " not checked: you may not read them, or they could not be read." } }
            @if preview.unlisted > 0 { p.note { "The status of the GitSync does not name all objects: up to " (preview.unlisted) " more deviate." } }
            p { a href=(address::of_differences(namespace, &git_sync.name)) { "All differences" } ", with the values" }
        }
        (immutable(&preview.immutable, cluster))
    }
}

fn listed(preview: &SyncPreview, cluster: ObjectsCluster) -> Markup {
    html! {
        ul {
            @for one in &preview.listed {
                li {
                    (parts::named_object(&one.object, cluster))
                    @for why in &one.why { " " (parts::deviation(why.word())) }
                    @if let Some(text) = one.texts.first() { ": " span.text { (text) } }
                }
            }
            @if preview.more > 0 { li { "and " (preview.more) " more" } }
        }
    }
}

/// Returns the effect of a sync on objects with this deviation.
fn effect(why: Why, drift: &str) -> &'static str {
    let reverts = matches!(drift, "" | "Revert");
    match why {
        Why::Failed => "the agent tries the refused ones again, without waiting for their next attempt",
        Why::Missing if reverts => "the agent creates them",
        Why::Drifted if reverts => "the agent undoes the hand edits, unless the differences name a reason against it",
        Why::Missing | Why::Drifted => "they stay as they are, because spec.drift is not Revert",
        Why::Held => "a guard keeps them, and a sync does not delete them",
        Why::Paused => "they stay as they are until the pause ends",
    }
}

/// Returns the fields that permit the replacement of objects with an immutable field.
fn immutable(all: &[Immutable], cluster: ObjectsCluster) -> Markup {
    html! {
        @if !all.is_empty() {
            section aria-labelledby="immutable" {
                h2 #immutable { "Immutable fields" }
                p { "The API server refuses to change these objects. A sync fails again until the repository permits their replacement, or you delete them." }
                ul {
                    @for one in all {
                        li {
                            (parts::named_object(&one.object, cluster))
                            @if one.fields.is_empty() { ": Mainstay does not replace it; its message says why" }
                            @for (at, (field, place)) in one.fields.iter().enumerate() {
                                @if at == 0 { ": set " } @else { ", or " }
                                code { (field) } " in " (place)
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Returns the deletions that remain held after the sync, and the link to their approval.
pub(super) fn remaining(held: Held<'_>, git_sync: &Key, cluster: ObjectsCluster) -> Markup {
    let holder = Holder { git_sync, attempted: held.commit };
    let approval = Asked::plain(Action::AllowPrune, git_sync.clone());
    html! {
        @if !held.objects.is_empty() {
            section aria-labelledby="held" {
                h2 #held { "Deletions that remain held" }
                ul {
                    @for one in held.objects { li { (parts::held_object(one, holder, cluster)) } }
                    @if held.more > 0 { li { "and " (held.more) " more" } }
                }
                p { a href=(address::with_query("/act", &approval.pairs())) { (Action::AllowPrune.label()) } }
            }
        }
    }
}

/// Returns the field that applies a commit although a window holds it back.
pub(super) fn window(frozen: &Frozen, options: &SyncOptions) -> Markup {
    html! {
        label.choice {
            input type="checkbox" name=(OVERRIDE) value=(frozen.commit) checked[options.overridden == frozen.commit];
            span {
                "Apply commit " code title=(frozen.commit) { (short_id(&frozen.commit)) } " although a window holds it back: " (frozen.by)
                @if !frozen.until.is_empty() { ", until " (frozen.until) }
                ". The status and an Event record it."
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn git_sync() -> Key {
        Key::new("mainstay.dev", "GitSync", Some("team"), "shop")
    }

    fn page(live: &Value) -> String {
        let of = SyncPreview::of(live, &[], vec!["<b>a note".to_owned()]);
        preview(&of, &git_sync(), ObjectsCluster::of(live)).into_string()
    }

    #[test]
    fn a_preview_has_counts_reasons_and_links_and_escapes_messages() {
        let status = json!({
            "failures": [{"object": "Service shop/web", "reason": "ApplyFailed", "message": "<script>"}],
            "held": ["ConfigMap shop/old: kept"], "paused": [{"object": "ConfigMap shop/a"}], "pausedObjects": 4,
        });
        let text = page(&json!({"spec": {}, "status": status}));
        for part in [
            "1 failed",
            "1 held",
            "1 paused",
            "ApplyFailed: &lt;script&gt;",
            "&lt;b&gt;a note",
            "up to 3 more deviate",
            "/gitsync/team/shop/differences",
            "mainstay sync shop --dry-run -n team",
            "<a href=\"/object?",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let remote = page(&json!({"spec": {"kubeConfig": {"secretRef": {"name": "far"}}}, "status": status}));
        assert!(remote.contains("Service shop/web") && !remote.contains("/object?"), "{remote}");
        assert!(page(&json!({})).contains("No deviation is known"));
    }

    #[test]
    fn the_drift_policy_decides_about_hand_edits() {
        let of = |drift: &str| {
            let status = json!({"drifted": [{"object": "ConfigMap shop/a"}]});
            page(&json!({"spec": {"drift": drift}, "status": status}))
        };
        assert!(of("").contains("undoes the hand edits") && of("Revert").contains("undoes the hand edits"));
        assert!(of("Report").contains("spec.drift is not Revert"));
    }

    #[test]
    fn an_immutable_object_names_the_field_to_set() {
        let message = "allow it: `annotations: {mainstay.dev/replace: enabled}`, or `replace: [Job.batch]`";
        let failure = json!({"object": "Job.batch shop/migrate", "reason": "Immutable", "message": message});
        let text = page(&json!({"status": {"failures": [failure]}}));
        for part in ["<code>annotations: {mainstay.dev/replace: enabled}</code>", "<code>replace: [Job.batch]</code>"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!page(&json!({})).contains("Immutable fields"));
    }

    #[test]
    fn held_deletions_link_to_their_approval() {
        let objects = ["ConfigMap shop/old: kept".to_owned()];
        let held = Held { objects: &objects, more: 2, commit: "" };
        let text = remaining(held, &git_sync(), ObjectsCluster::This).into_string();
        assert!(text.contains("action=allow-prune") && text.contains("and 2 more"), "{text}");
        let none = Held { objects: &[], more: 0, commit: "" };
        assert_eq!(remaining(none, &git_sync(), ObjectsCluster::This).into_string(), "");
    }

    #[test]
    fn a_window_has_a_field_that_is_not_chosen() {
        let frozen = Frozen { commit: "a".repeat(40), by: "the window <x> is active".to_owned(), until: String::new() };
        let text = window(&frozen, &SyncOptions::default()).into_string();
        assert!(text.contains("&lt;x&gt;") && !text.contains("checked"), "{text}");
        let chosen = SyncOptions { overridden: "a".repeat(40), ..SyncOptions::default() };
        assert!(window(&frozen, &chosen).into_string().contains(" checked"));
    }
}
