//! The page that asks before a sync of several GitSyncs, and the page that shows the result of each.

use maud::{Markup, html};

use super::asking::in_cluster;
use super::parts::{self, Right};
use crate::address;
use crate::batch::{Batch, FIELD, MOST, Requested, field_of};
use crate::text::{SHORT, plain};
use mainstay_object::{Key, counted};

/// Contents of the page that asks.
pub(crate) struct BatchPage<'p> {
    /// The GitSyncs of the filter, without those to sync.
    pub(crate) batch: &'p Batch,
    /// The GitSyncs to sync, with the permission of the user for each.
    pub(crate) rights: &'p [(Key, Right)],
    /// The address of the fleet with the filter.
    pub(crate) fleet: &'p str,
    pub(crate) csrf: &'p str,
    /// The name of the cluster; empty without a name.
    pub(crate) cluster: &'p str,
    /// GitSyncs that cannot be shown, with the reason.
    pub(crate) notes: &'p [String],
}

fn name(key: &Key) -> Markup {
    html! { a href=(address::of_object(key)) { (plain(key.namespace.as_deref().unwrap_or_default(), SHORT)) "/" wbr; (plain(&key.name, SHORT)) } }
}

fn place(fleet: &str) -> Markup {
    html! { nav aria-label="Place" { a href=(fleet) { "Fleet" } } }
}

/// Returns the page that asks.
pub(crate) fn batch(page: &BatchPage<'_>) -> Markup {
    let BatchPage { batch, rights, fleet, csrf, cluster, notes } = page;
    let permitted = || rights.iter().filter(|(_, right)| right.is_ok()).map(|(key, _)| key);
    let count = permitted().count();
    html! {
        (place(fleet))
        h1 { "Sync all shown" }
        (in_cluster(cluster))
        @if count > 0 { p { "The agent looks up the repositories of these GitSyncs immediately and applies what differs." } }
        @for note in *notes { (parts::note(note)) }
        @if count > 0 {
            h2 { (counted(count, "GitSync")) }
            ul { @for key in permitted() { li { (name(key)) } } }
        }
        (left_out(batch, rights))
        form.confirm method="post" action="/sync" {
            input type="hidden" name="csrf" value=(csrf);
            @for key in permitted() { input type="hidden" name=(FIELD) value=(field_of(key)); }
            @if count > 0 { button.primary type="submit" { "Sync " (counted(count, "GitSync")) } }
            @else { p.note { "You may sync none of the GitSyncs that the filter shows." } }
            a href=(fleet) { @if count > 0 { "Cancel" } @else { "Back to the fleet" } }
        }
    }
}

/// Returns the GitSyncs that are not synced, with the reasons.
fn left_out(batch: &Batch, rights: &[(Key, Right)]) -> Markup {
    let denied = || rights.iter().filter_map(|(key, right)| Some((key, right.as_ref().err()?)));
    let has_any = !batch.suspended.is_empty() || batch.more > 0 || denied().next().is_some();
    html! {
        @if has_any {
            h2 { "Left out" }
            ul {
                @for (key, why) in denied() { li { (name(key)) ": " (parts::coded(&plain(why, SHORT))) } }
                @for key in &batch.suspended { li { (name(key)) ": it is suspended" } }
                @if batch.more_suspended > 0 { li { "and " (batch.more_suspended) " more suspended ones" } }
                @if batch.more > 0 { li { (counted(batch.more, "GitSync")) " beyond the first " (MOST) ", or with names that are too long for one form. Filter the fleet." } }
            }
        }
    }
}

/// Returns the page with the result of each GitSync.
pub(crate) fn requested(results: &[(Key, Requested)]) -> Markup {
    let done = || results.iter().filter(|(_, result)| *result == Requested::Done);
    let unknown = || results.iter().filter(|(_, result)| *result == Requested::Unknown);
    let failed = || results.iter().filter(|(_, result)| !matches!(result, Requested::Done | Requested::Unknown));
    html! {
        (place("/"))
        h1 { "Sync all shown" }
        p role="status" { "Requested for " (done().count()) " of " (counted(results.len(), "GitSync")) ". Their pages show the results." }
        @if failed().next().is_some() {
            h2 { "Not requested" }
            ul { @for (key, result) in failed() { li { (name(key)) ": " (reason(result)) } } }
        }
        @if unknown().next().is_some() {
            h2 { "Outcome unknown" }
            ul { @for (key, result) in unknown() { li { (name(key)) ": " (reason(result)) } } }
        }
        @if done().next().is_some() {
            h2 { "Requested" }
            ul { @for (key, _) in done() { li { (name(key)) } } }
        }
        p { a href="/?kind=GitSync" { "Back to the GitSyncs" } }
    }
}

fn reason(result: &Requested) -> Markup {
    html! {
        @match result {
            Requested::Done => "requested",
            Requested::Suspended => "it is suspended",
            Requested::Refused(why) => (parts::coded(why)),
            Requested::Unknown => "no response of the API server arrived in time, so the request may have been written; its page shows whether it was handled",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::FleetKind;

    fn page(batch: &Batch, rights: &[(Key, Right)]) -> String {
        let page = BatchPage { batch, rights, fleet: "/?q=a%22", csrf: "token", cluster: "", notes: &[] };
        super::batch(&page).into_string()
    }

    fn key(name: &str) -> Key {
        FleetKind::GitSync.key("team", name)
    }

    #[test]
    fn the_form_has_the_permitted_git_syncs_and_the_page_names_the_others() {
        let batch = Batch { suspended: vec![key("asleep")], more_suspended: 2, more: 3, ..Batch::default() };
        let rights = [(key("a"), Ok(())), (key("b<c"), Ok(())), (key("d"), Err("needs `patch` on <x>".to_owned()))];
        let text = page(&batch, &rights);
        for part in [
            "name=\"sync\" value=\"team/a\"",
            "name=\"sync\" value=\"team/b&lt;c\"",
            "Sync 2 GitSyncs",
            "needs <code>patch</code> on &lt;x&gt;",
            "asleep</a>: it is suspended",
            "and 2 more suspended ones",
            "3 GitSyncs beyond the first 200",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("value=\"team/d\"") && !text.contains("value=\"team/asleep\""), "{text}");
    }

    #[test]
    fn a_user_without_permission_has_no_button() {
        let text = page(&Batch::default(), &[(key("a"), Err("no".to_owned()))]);
        assert!(!text.contains("<button") && !text.contains("name=\"sync\""), "{text}");
    }

    #[test]
    fn each_git_sync_has_its_result() {
        let refused = Requested::Refused("patch <b> `gitsyncs`: refused".to_owned());
        let results = [
            (key("a"), Requested::Done),
            (key("b"), refused),
            (key("c"), Requested::Suspended),
            (key("d"), Requested::Unknown),
        ];
        let text = requested(&results).into_string();
        for part in ["Requested for 1 of 4 GitSyncs", "&lt;b&gt; <code>gitsyncs</code>", "it is suspended", "in time"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!requested(&results[..1]).into_string().contains("Not requested"));
        let unknown = requested(&results[3..]).into_string();
        assert!(unknown.contains("Outcome unknown") && !unknown.contains("Not requested"), "{unknown}");
    }
}
