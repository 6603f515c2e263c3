//! The differences of all objects of a GitSync that deviate from its branch.

use jiff::Timestamp;
use maud::{Markup, html};
use serde_json::Value;

use super::origin::{edit_of, lines_of};
use super::parts;
use crate::address;
use crate::command::Holder;
use crate::deviation::{Deviation, NotChecked, Shown, Why};
use crate::edits::{Edit, End};
use crate::field::text_at;
use crate::objects_cluster::ObjectsCluster;
use crate::row::conditions_of;
use crate::text::SHORT;
use mainstay_object::Key;

/// Contents of the page.
pub(crate) struct DifferencesPage<'p> {
    pub(crate) key: &'p Key,
    pub(crate) live: &'p Value,
    pub(crate) shown: &'p [(Deviation, Shown)],
    /// Number of objects beyond those on the page.
    pub(crate) more: usize,
    /// Number of objects that the status counts and does not list.
    pub(crate) unlisted: u64,
    pub(crate) not_checked: &'p [NotChecked],
    pub(crate) edits: &'p [Edit],
    pub(crate) notes: &'p [String],
    pub(crate) now: Timestamp,
}

/// Returns the page.
pub(crate) fn differences(page: &DifferencesPage<'_>) -> Markup {
    let DifferencesPage { key, live, shown, more, unlisted, not_checked, notes, .. } = page;
    let namespace = key.namespace.as_deref().unwrap_or_default();
    html! {
        (parts::place(key, Some(html! { a href=(address::of_git_sync(namespace, &key.name)) { (key.name) } })))
        h1 { "Differences of GitSync " (key.name) }
        p.quiet { "Objects that deviate from the branch: failed, missing, drifted, held from deletion, or paused." }
        @for note in *notes { (parts::note(note)) }
        @for one in *not_checked { (left_out(one, ObjectsCluster::of(live))) }
        @if shown.is_empty() { p { (nothing(live, notes.is_empty() && not_checked.is_empty())) } }
        @else {
            p.quiet role="status" {
                (shown.len() + more) @if shown.len() + more == 1 { " object" } @else { " objects" } ". "
                span.bad { "− in the cluster" } ", " span.good { "+ in the repository" }
            }
            @for (number, (deviation, shown)) in shown.iter().enumerate() { (object(page, number, deviation, shown)) }
        }
        @if *more > 0 { p.note { "and " (more) " more" } }
        @if *unlisted > 0 { p.note { "The status of the GitSync does not name all objects: up to " (unlisted) " more deviate." } }
    }
}

/// Returns the objects that were not checked for the same reason.
fn left_out(one: &NotChecked, cluster: ObjectsCluster) -> Markup {
    html! {
        p.note {
            "Not checked: "
            @for (at, name) in one.objects.iter().enumerate() { @if at > 0 { ", " } (parts::named_object(name, cluster)) }
            @if one.more > 0 { " and " (one.more) " more" }
            ": " (one.why)
        }
    }
}

/// Returns what is known if no object is listed.
fn nothing(live: &Value, is_whole: bool) -> String {
    let conditions = conditions_of(live);
    match conditions.iter().find(|one| one.kind == "Drifted") {
        None => "Not known: the agent has not compared the objects yet.".to_owned(),
        Some(one) if one.status == "Unknown" => format!("Not known: {}", one.message),
        Some(_) if !is_whole => "No difference is known among the objects that were checked.".to_owned(),
        Some(_) => "None. Each object has the state of the repository.".to_owned(),
    }
}

fn why(why: Why) -> Markup {
    let (class, symbol) = match why {
        Why::Failed | Why::Missing => ("bad", "✖"),
        Why::Drifted => ("warn", "▲"),
        Why::Held => ("wait", "◆"),
        Why::Paused => ("off", "◼"),
    };
    parts::sign(class, symbol, why.word())
}

/// Returns an object with its reasons, its remaining hand edit, and its difference.
fn object(page: &DifferencesPage<'_>, number: usize, deviation: &Deviation, shown: &Shown) -> Markup {
    let name = &deviation.object;
    let remaining =
        page.edits.iter().filter(|edit| edit.object == *name && matches!(edit.end, End::Remains(_))).take(1);
    let has_values = deviation.is_secret() || matches!(shown, Shown::Lines(_));
    let attempted = text_at(page.live, "/status/attemptedCommit", SHORT);
    let holder = Holder { git_sync: page.key, attempted: &attempted };
    html! {
        section aria-labelledby={ "object-" (number) } {
            h2 id={ "object-" (number) } {
                (parts::named_object(name, ObjectsCluster::of(page.live)))
                @for one in &deviation.why { " " (why(*one)) }
            }
            @for text in &deviation.texts { p.text { (text) } }
            @for text in &deviation.held { p.text { (parts::held_text(text, holder, deviation.key.as_ref())) } }
            @for edit in remaining { (edit_of(edit, page.now, has_values)) }
            @match shown {
                Shown::Text(text) => p.quiet { (text) },
                Shown::Lines(lines) => details open data-name=(name) {
                    summary { "Difference" span.unseen { " of " (name) } }
                    (lines_of(lines, &format!("Difference of {name}")))
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::deviation::deviations;
    use crate::difference::Side;
    use crate::edits::of_status;

    /// Returns the page of a status, with the same difference for each object.
    fn page(status: Value, difference: &Shown) -> String {
        partial(&json!({ "status": status }), difference, &[], &[])
    }

    fn page_of(live: &Value, difference: &Shown) -> String {
        partial(live, difference, &[], &[])
    }

    /// Returns the same page if some objects were not checked.
    fn partial(live: &Value, difference: &Shown, not_checked: &[NotChecked], notes: &[String]) -> String {
        let key = Key::new("mainstay.dev", "GitSync", Some("team"), "shop");
        let shown: Vec<_> = deviations(live, &[]).into_iter().map(|one| (one, difference.clone())).collect();
        let page = DifferencesPage {
            key: &key,
            live,
            shown: &shown,
            more: 0,
            unlisted: crate::deviation::unlisted(live),
            edits: &of_status(live),
            not_checked,
            notes,
            now: Timestamp::UNIX_EPOCH,
        };
        differences(&page).into_string()
    }

    #[test]
    fn an_object_has_its_reason_its_author_and_its_lines() {
        let status = json!({"driftedObjects": 3, "drifted": [{
            "object": "ConfigMap shop/a", "who": "<alice>", "reason": "Report", "fields": ["data.a"],
            "changes": [{"field": "data.a", "found": "\"live\"", "restored": "\"desired\""}],
        }]});
        let lines = vec![(Side::Cluster, "a: <b>".to_owned()), (Side::Repository, "a: c".to_owned())];
        let text = page(status.clone(), &Shown::Lines(lines));
        for part in [
            "</span> drifted</span>",
            "&lt;alice&gt;",
            "<del>− a: &lt;b&gt;</del>",
            "<ins>+ a: c</ins>",
            "<details open data-name=\"ConfigMap shop/a\">",
            "up to 2 more deviate",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("desired"), "{text}");
        let text = page(status, &Shown::Text("forbidden".to_owned()));
        assert!(text.contains("desired") && text.contains("forbidden") && !text.contains("<details"), "{text}");
    }

    #[test]
    fn a_forged_change_of_a_secret_shows_no_value() {
        let status = json!({"drifted": [{
            "object": "Secret shop/key", "who": "a", "reason": "Report",
            "changes": [{"field": "data.password", "found": "hunter2", "restored": "swordfish"}],
        }]});
        let text = page(status, &Shown::Text("x".to_owned()));
        assert!(text.contains("data.password") && !text.contains("hunter2") && !text.contains("swordfish"), "{text}");
    }

    #[test]
    fn a_command_of_a_failure_or_a_problem_is_a_text_and_that_of_a_held_object_can_be_copied() {
        let command = "kubectl annotate ConfigMap a -n team mainstay.dev/reconcile-";
        let of = |status: Value| page(status, &Shown::Text(String::new()));
        let failure = json!({"object": "ConfigMap team/a", "reason": "Unhealthy", "message": format!("run `{command}`; to delete it: {command}")});
        let paused = json!({"object": "ConfigMap team/b", "problem": format!("run: {command}")});
        let text = of(json!({"failures": [failure], "paused": [paused]}));
        assert!(text.contains(command) && !text.contains("data-copy"), "{text}");
        let text = of(json!({"held": [format!("ConfigMap team/a: it is paused; to delete it: {command}")]}));
        assert!(text.contains(&format!("<code data-copy=\"the command\">{command}</code>")), "{text}");
    }

    #[test]
    fn an_object_of_a_remote_cluster_is_no_link() {
        let status = json!({"held": ["ConfigMap shop/a: kept"]});
        let of = |spec: Value| page_of(&json!({"spec": spec, "status": status}), &Shown::Text(String::new()));
        assert!(of(json!({})).contains("<a href=\"/object?"));
        let remote = of(json!({"kubeConfig": {"secretRef": {"name": "far"}}}));
        assert!(remote.contains("ConfigMap shop/a") && !remote.contains("/object?"), "{remote}");
    }

    #[test]
    fn a_git_sync_without_differences_says_whether_it_was_compared() {
        let of = |conditions: Value| page(json!({ "conditions": conditions }), &Shown::Text(String::new()));
        assert!(of(json!([])).contains("has not compared"));
        assert!(of(json!([{"type": "Drifted", "status": "Unknown", "message": "a Lease is gone"}])).contains("Lease"));
        let compared = json!([{"type": "Drifted", "status": "False"}]);
        assert!(of(compared.clone()).contains("None. Each object"));
        let objects = vec!["Service shop/<web>".to_owned()];
        let not_checked = [NotChecked { why: "pods is <forbidden>".to_owned(), objects, more: 3 }];
        let notes = ["the inventory cannot be read".to_owned()];
        let cases: [(&[NotChecked], &[String]); 2] = [(&not_checked, &[]), (&[], &notes)];
        for (not_checked, notes) in cases {
            let text = partial(
                &json!({"status": {"conditions": compared.clone()}}),
                &Shown::Text(String::new()),
                not_checked,
                notes,
            );
            assert!(!text.contains("None. Each object") && text.contains("that were checked"), "{text}");
            let is_named =
                text.contains("Not checked: ") && text.contains("and 3 more") && text.contains("&lt;forbidden");
            assert!(is_named != not_checked.is_empty(), "{text}");
        }
    }
}
