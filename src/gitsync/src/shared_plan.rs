//! The plan of a GitSync as its status shows it to agents of other GitSyncs, and the objects in statuses.
//!
//! Invariant: equal rows give equal plans, of a bounded size. A plan that does not list all wanted objects says so.
//!
//! Not here: the consequences for other GitSyncs (`other_agents`).

use std::collections::{HashMap, HashSet};

use super::prune::HANDOVER;
use super::registry::{ChangedSync, Row};
use mainstay_api::git_sync::{SharedPlan, WANTED_BYTES, WANTED_OBJECTS};
use mainstay_engine::managed::SHOWN;
use mainstay_object::Key;

/// The end of a text about a handover that other agents act on.
pub(super) const OFFERED: &str = " is pending: another agent applies it";

/// The objects that a GitSync gives up for GitSyncs of other agents.
#[derive(Debug, Default)]
pub(super) struct Handovers {
    /// The objects; `None` until they are restored from the status.
    pub(super) given: Option<HashSet<Key>>,
    /// The objects that the written status may show; `None` until this agent has written one.
    pub(super) offered: Option<HashSet<Key>>,
    /// The objects that another GitSync could not apply.
    pub(super) failed: HashMap<Key, NotTaken>,
}

/// A GitSync of another agent that could not apply an object. Its status shows no failure of an object that is not
/// offered any more, so the failure is kept until it plans another commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NotTaken {
    /// Its namespace and name.
    pub(super) taker: String,
    /// The commit that it has planned.
    pub(super) planned: Option<String>,
}

/// Returns the plan of a row; `None` until a commit is planned. `conflicts` are desired objects of other GitSyncs. While a GitSync
/// of the commit is not applied, the commit is not shown: agents of other GitSyncs must see that GitSync first.
pub(super) fn of(row: &Row, conflicts: &HashSet<&Key>, carried_out: Option<&str>) -> Option<SharedPlan> {
    let (commit, desired) = (row.planned.clone()?, row.desired.as_deref()?);
    let is_taken = |key: &Key| row.taken.as_deref().is_some_and(|taken| taken.contains(key));
    let mut wanted: Vec<&Key> = desired.iter().filter(|&key| conflicts.contains(key) || !is_taken(key)).collect();
    // Objects of other GitSyncs come first, so that these hand over the rest once the first ones are applied.
    wanted.sort_by_key(|key| (!conflicts.contains(*key), *key));
    let (count, mut bytes) = (wanted.len(), 0);
    let listed = wanted.into_iter().take(WANTED_OBJECTS).map(ToString::to_string).take_while(|object| {
        bytes += object.len();
        bytes <= WANTED_BYTES
    });
    let commit =
        if row.changed_syncs.values().any(|sync| *sync == ChangedSync::Unapplied) { String::new() } else { commit };
    Some(SharedPlan {
        carried_out: carried_out == Some(&*commit),
        wanted: listed.collect(),
        wanted_objects: i64::try_from(count).unwrap_or(i64::MAX),
        commit,
    })
}

/// Returns the objects that a plan lists, and whether the GitSync wants no others. A list that another client has made
/// longer is read in part.
pub(super) fn wanted(plan: &SharedPlan) -> (HashSet<Key>, bool) {
    let listed: HashSet<Key> = plan.wanted.iter().take(WANTED_OBJECTS).filter_map(|shown| key_of(shown)).collect();
    let is_whole = usize::try_from(plan.wanted_objects).is_ok_and(|count| count == listed.len());
    (listed, is_whole)
}

/// Returns the objects that a GitSync hands over to GitSyncs of other agents, from `status.held`.
pub(super) fn given_up(held: &[String]) -> HashSet<Key> {
    let offered = held.iter().take(SHOWN).filter_map(|held| held.strip_suffix(OFFERED));
    offered.filter_map(|offered| key_of(offered.split_once(HANDOVER)?.0)).collect()
}

/// Parses an object as statuses show it: `Deployment.apps shop/web`, `Namespace shop`.
pub(super) fn key_of(shown: &str) -> Option<Key> {
    let (kind, name) = shown.split_once(' ')?;
    let (kind, group) = kind.split_once('.').unwrap_or((kind, ""));
    let (namespace, name) = name.split_once('/').map_or((None, name), |(namespace, name)| (Some(namespace), name));
    Some(Key::new(group, kind, namespace, name))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn key(number: usize) -> Key {
        Key::new("apps", "Deployment", Some("shop"), format!("web-{number:03}"))
    }

    fn row(desired: usize, taken: usize) -> Row {
        Row {
            planned: Some("c2".to_owned()),
            desired: Some(Arc::new((0..desired).map(key).collect())),
            taken: Some(Arc::new((0..taken).map(key).collect())),
            ..Row::default()
        }
    }

    #[test]
    fn an_object_of_a_status_is_read_as_it_was_written() {
        for key in [key(1), Key::new("", "ConfigMap", Some("a"), "b"), Key::new("", "Namespace", None, "shop")] {
            assert_eq!(key_of(&key.to_string()), Some(key));
        }
        let cluster_wide = Key::new("rbac.authorization.k8s.io", "ClusterRole", None, "system:a:b");
        assert_eq!(key_of(&cluster_wide.to_string()), Some(cluster_wide));
        assert_eq!(key_of("Secret"), None);
    }

    #[test]
    fn a_plan_lists_the_objects_that_are_not_applied() {
        let plan = of(&row(5, 3), &HashSet::new(), Some("c2")).unwrap();
        assert_eq!((&*plan.commit, plan.carried_out, plan.wanted_objects), ("c2", true, 2));
        assert_eq!(wanted(&plan), (HashSet::from([key(3), key(4)]), true));
        assert!(!of(&row(5, 3), &HashSet::new(), Some("c1")).unwrap().carried_out);
        assert_eq!(of(&Row::default(), &HashSet::new(), None), None);
    }

    #[test]
    fn a_plan_that_does_not_list_all_objects_lists_those_of_other_git_syncs_first() {
        let conflict = key(99);
        let plan = of(&row(100, 0), &HashSet::from([&conflict]), None).unwrap();
        assert_eq!((plan.wanted.len(), plan.wanted_objects), (WANTED_OBJECTS, 100));
        let (listed, is_whole) = wanted(&plan);
        assert!(listed.contains(&conflict) && !is_whole);
        let long = Row {
            desired: Some(Arc::new((0..9).map(|n| Key::new("", "A", None, "é".repeat(900 + n))).collect())),
            ..row(0, 0)
        };
        let plan = of(&long, &HashSet::new(), None).unwrap();
        assert!(plan.wanted.iter().map(String::len).sum::<usize>() <= WANTED_BYTES && !wanted(&plan).1);
    }

    #[test]
    fn a_list_that_is_too_long_is_read_in_part() {
        let listed: Vec<String> = (0..1000).map(|number| key(number).to_string()).collect();
        let plan = SharedPlan { wanted: listed.clone(), wanted_objects: 1000, ..SharedPlan::default() };
        let (objects, is_whole) = wanted(&plan);
        assert_eq!((objects.len(), is_whole), (WANTED_OBJECTS, false));
        let held: Vec<String> = listed.iter().map(|object| format!("{object}{HANDOVER}x/other{OFFERED}")).collect();
        assert_eq!(given_up(&held).len(), SHOWN);
    }

    #[test]
    fn a_plan_with_an_unknown_object_is_not_whole() {
        let plan = SharedPlan { wanted: vec!["Secret".to_owned()], wanted_objects: 1, ..SharedPlan::default() };
        assert_eq!(wanted(&plan), (HashSet::new(), false));
        assert_eq!(wanted(&SharedPlan::default()), (HashSet::new(), true));
    }
}
