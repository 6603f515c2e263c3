//! Explains changes that ended late: the agents that were responsible, their deaths, and the Leases that show who took over.
//!
//! Not here: the bounds (`bounds`). A change is explained if it was late since the first death, so also if the time since the
//! last death is within its bound.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{
    audit::Log,
    bounds::Bounds,
    changes::{Cause, Change, Changes, Responsible, Since},
    deaths::Death,
    history::{History, relative},
    load::{Place, sync_name},
};
use crate::table::duration;

/// Deaths in this time before a change, and later ones, are listed.
const BEFORE: Duration = Duration::from_mins(1);
/// Maximum number of explained changes.
const EXPLAINED: usize = 20;

/// The sources of explanations.
pub(super) struct Sources<'s> {
    pub bounds: Bounds,
    pub history: &'s History,
    /// The audit log, if there is one.
    pub log: Option<&'s Log>,
    /// Whether the agent of a Lease has published a set of agents in which it owns a GitSync.
    pub claims: &'s dyn Fn(&Value, Place) -> bool,
}

/// Explains the late changes, the slowest since their last death first.
pub(super) fn explain(changes: &Changes, sources: &Sources<'_>) -> Vec<String> {
    let mut late: Vec<&Change> = changes.all().filter(|change| sources.is_late(change)).collect();
    // A change that did not end is the slowest.
    late.sort_by_key(|change| Reverse(change.took(Since::Last).unwrap_or(Duration::MAX)));
    let mut explained: Vec<String> = late.iter().take(EXPLAINED).map(|change| sources.explain(change)).collect();
    let others = late.len().saturating_sub(EXPLAINED);
    if others > 0 {
        explained.push(format!("- {others} more\n"));
    }
    explained
}

impl Sources<'_> {
    fn bound(&self, change: &Change) -> Duration {
        self.bounds.after(change.lost())
    }

    fn is_late(&self, change: &Change) -> bool {
        change.took(Since::First).is_none_or(|took| took > self.bound(change))
    }

    /// Returns a list item with one item for each event.
    fn explain(&self, change: &Change) -> String {
        let mut events = self.deaths(change);
        events.extend(self.takings(change));
        events.sort_by_key(|(at, _)| *at);
        events.push((change.start, self.end(change)));
        let mut text = format!("- {}\n", self.title(change));
        for (_, event) in events {
            text.push_str(&format!("  - {event}\n"));
        }
        text
    }

    fn title(&self, change: &Change) -> String {
        let what = match change.cause {
            Cause::Edit => "edit",
            Cause::Commit => "commit",
        };
        let took = |since| change.took(since).map_or_else(|| "never".to_owned(), duration);
        let (first, last) = (took(Since::First), took(Since::Last));
        let times = match &change.deaths[..] {
            [] => format!("{first} since the change"),
            [_] => format!("{first} since the death"),
            _ => format!("{first} since the first death, {last} since the last one"),
        };
        format!(
            "{what} of `{}` at {}: {times}, bound {}; responsible then: {}",
            change.place.name(),
            self.history.clock(change.start),
            duration(self.bound(change)),
            named(&change.responsible)
        )
    }

    /// Returns the deaths in the minute before the change, and until its end.
    fn deaths(&self, change: &Change) -> Vec<(Instant, String)> {
        let from = change.start.checked_sub(BEFORE).unwrap_or(change.start);
        let listed = self.history.deaths.iter().filter(|death| death.at >= from && !is_after_end(change, death.at));
        let text = |death: &Death| {
            let part = if change.deaths.contains(death) { "was responsible" } else { "was not responsible" };
            let time = relative(death.at, change.start);
            format!("{time}: the {} of {} dies, and {part}", death.lost.name(), death.agent)
        };
        listed.map(|death| (death.at, text(death))).collect()
    }

    /// Returns the states of Leases that show another holder, or that an agent owns the GitSync, or does not any more.
    fn takings(&self, change: &Change) -> Vec<(Instant, String)> {
        let first = change.deaths.iter().map(|death| death.at).min().unwrap_or(change.start).min(change.start);
        let mut known: HashMap<&str, (&str, bool)> = HashMap::new();
        let mut found = Vec::new();
        for shown in self.history.leases.iter().filter(|shown| !is_after_end(change, shown.at)) {
            let (name, holder, claims) = (shown.name(), shown.holder(), (self.claims)(&shown.lease, change.place));
            let (before, claimed) = known.insert(name, (holder, claims)).unwrap_or_default();
            if shown.at < first {
                continue;
            }
            let time = relative(shown.at, change.start);
            if holder.is_empty() && !before.is_empty() {
                found.push((shown.at, format!("{time}: the Lease `{name}` is released")));
            } else if holder != before {
                found.push((shown.at, format!("{time}: {holder} holds the Lease `{name}`")));
            }
            let sync = sync_name(change.place.sync);
            if claims && (!claimed || holder != before) {
                found.push((shown.at, format!("{time}: {holder} publishes that it owns `{sync}`")));
            } else if claimed && !claims && holder == before && !shown.has_view() {
                found.push((shown.at, format!("{time}: {holder} publishes no set, as after a start")));
            } else if claimed && !claims && holder == before {
                found.push((shown.at, format!("{time}: {holder} publishes that it does not own `{sync}` any more")));
            }
        }
        found
    }

    fn end(&self, change: &Change) -> String {
        let Some((at, version)) = change.end else { return "the object was never as committed".to_owned() };
        let time = relative(at, change.start);
        let Some(log) = self.log else { return format!("{time}: as committed; no audit log shows the agent") };
        let (name, agents) = (change.place.name(), log.writers(&change.place.name(), version));
        match agents[..] {
            [] => format!("{time}: as committed; the audit log has no write of `{name}` with version {version}"),
            [agent] => format!("{time}: as committed by {agent}"),
            [agent, ..] => format!("{time}: as committed by {agent}; then applied without an effect"),
        }
    }
}

fn is_after_end(change: &Change, at: Instant) -> bool {
    change.end.is_some_and(|(end, _)| at > end)
}

/// Names the responsible agents.
fn named(responsible: &Responsible) -> String {
    let holder = responsible.holder.as_deref().unwrap_or("no agent");
    match &responsible.claimants[..] {
        [] => format!("{holder} by the Leases, no agent by a published set"),
        claimants => format!("{holder} by the Leases, {} by a published set", claimants.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::shards::{deaths::Lost, leases::Shown, watch::Watched};

    const PLACE: Place = Place { sync: 3, number: 1 };

    fn changes(start: Instant, deaths: &[Death], end: Option<Instant>) -> Changes {
        let mut change = Change::new(PLACE, Cause::Edit, 5, "0".to_owned(), start);
        let responsible = Responsible { holder: Some("one".to_owned()), claimants: vec!["one".to_owned()] };
        change.entrust(responsible, |_| None);
        let mut changes = Changes::default();
        changes.begin(change);
        for death in deaths {
            changes.orphan(death, |_| crate::shards::changes::Part::Claimant);
        }
        if let Some(at) = end {
            changes.see(&Watched { name: PLACE.name(), version: 6, revision: Some("0".to_owned()), at });
        }
        changes
    }

    fn explained(changes: &Changes, history: &History, log: Option<&Log>) -> String {
        let claims = |lease: &Value, _: Place| lease["claims"] == true;
        explain(changes, &Sources { bounds: Bounds::of(300), history, log, claims: &claims }).concat()
    }

    #[test]
    fn a_change_within_its_bound_is_not_explained() {
        let start = Instant::now();
        let history = History::new(start, jiff::Timestamp::UNIX_EPOCH);
        let (container, pod) = (Some(Lost::Container), Some(Lost::Pod));
        for (lost, seconds, is_late) in [
            (None, 14, false),
            (None, 16, true),
            (container, 14, false),
            (container, 16, true),
            (pod, 21, false),
            (pod, 23, true),
        ] {
            let death = lost.map(|lost| Death { at: start, agent: "one".to_owned(), lost });
            let deaths: Vec<Death> = death.into_iter().collect();
            let changes = changes(start, &deaths, Some(start + Duration::from_secs(seconds)));
            assert_eq!(!explained(&changes, &history, None).is_empty(), is_late, "{seconds} s after {deaths:?}");
        }
        let text = explained(&changes(start, &[], None), &history, None);
        assert!(
            text.contains("never since the change") && text.contains("the object was never as committed"),
            "{text}"
        );
    }

    #[test]
    fn a_late_revert_is_explained_by_the_deaths_and_the_leases() {
        let start = Instant::now() + Duration::from_mins(2);
        let at = |seconds| start + Duration::from_secs(seconds);
        let death = |at, agent: &str| Death { at, agent: agent.to_owned(), lost: Lost::Pod };
        let shown = |at, shard: &str, holder: &str, claims: bool| {
            let name = format!("mainstay-{shard}");
            let lease = json!({"metadata": {"name": name}, "spec": {"holderIdentity": holder}, "claims": claims});
            Shown { at, lease }
        };
        let mut history = History::new(start, jiff::Timestamp::UNIX_EPOCH);
        let (first, second) = (death(at(1), "one"), death(at(21), "two"));
        history.deaths = vec![death(start.checked_sub(BEFORE * 3 / 2).unwrap(), "zero"), first.clone(), second.clone()];
        history.leases = vec![
            shown(start.checked_sub(BEFORE).unwrap(), "shard-0", "one", true),
            shown(start.checked_sub(BEFORE).unwrap(), "shard-1", "two", false),
            shown(at(16), "shard-1", "two", true),
            shown(at(19), "shard-0", "three", false),
            shown(at(35), "shard-0", "three", true),
            shown(at(40), "shard-1", "four", false),
        ];
        let changes = changes(start, &[first, second], Some(at(36)));
        let text = explained(&changes, &history, None);
        let expected = "\
            - edit of `shared-00003-1` at 00:00:00.000Z: 35.00 s since the first death, 15.00 s since the last one, bound 21.50 s; \
            responsible then: one by the Leases, one by a published set\n\
            \x20 - +1.0 s: the pod of one dies, and was responsible\n\
            \x20 - +16.0 s: two publishes that it owns `shared-00003`\n\
            \x20 - +19.0 s: three holds the Lease `mainstay-shard-0`\n\
            \x20 - +21.0 s: the pod of two dies, and was responsible\n\
            \x20 - +35.0 s: three publishes that it owns `shared-00003`\n\
            \x20 - +36.0 s: as committed; no audit log shows the agent\n";
        assert_eq!(text, expected);
        let text = explained(&changes, &history, Some(&Log::default()));
        assert!(text.contains("the audit log has no write of `shared-00003-1` with version 6"), "{text}");
    }

    #[test]
    fn a_late_revert_after_a_restart_shows_when_the_agent_published_again() {
        let start = Instant::now() + Duration::from_mins(2);
        let at = |seconds| start + Duration::from_secs(seconds);
        let shown = |at, annotations: Value, claims: bool| {
            let metadata = json!({"name": "mainstay-shard-0", "annotations": annotations});
            let lease = json!({"metadata": metadata, "spec": {"holderIdentity": "one"}, "claims": claims});
            Shown { at, lease }
        };
        let mut history = History::new(start, jiff::Timestamp::UNIX_EPOCH);
        let death = Death { at: at(1), agent: "one".to_owned(), lost: Lost::Container };
        history.deaths = vec![death.clone()];
        history.leases = vec![
            shown(start, json!({"mainstay.dev/shard-view": "0"}), true),
            shown(at(2), json!({}), false),
            shown(at(15), json!({"mainstay.dev/shard-view": "0"}), true),
        ];
        let text = explained(&changes(start, &[death], Some(at(17))), &history, None);
        let expected = "\
            - edit of `shared-00003-1` at 00:00:00.000Z: 16.00 s since the death, bound 15.00 s; \
            responsible then: one by the Leases, one by a published set\n\
            \x20 - +0.0 s: one holds the Lease `mainstay-shard-0`\n\
            \x20 - +0.0 s: one publishes that it owns `shared-00003`\n\
            \x20 - +1.0 s: the container of one dies, and was responsible\n\
            \x20 - +2.0 s: one publishes no set, as after a start\n\
            \x20 - +15.0 s: one publishes that it owns `shared-00003`\n\
            \x20 - +17.0 s: as committed; no audit log shows the agent\n";
        assert_eq!(text, expected);
    }
}
