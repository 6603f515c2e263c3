//! Tests of claims between GitSyncs.

use std::collections::HashMap;

use super::*;

fn key(name: &str) -> Key {
    Key::new("", "ConfigMap", Some("a"), name)
}

fn set(names: &[&str]) -> Arc<HashSet<Key>> {
    Arc::new(names.iter().map(|n| key(n)).collect())
}

fn row(managed: &[&str], desired: &[&str], planned: &str) -> Row {
    Row {
        label: "x.other".into(),
        branch: Some("main".into()),
        managed: Some(set(managed)),
        desired: Some(set(desired)),
        planned: Some(planned.into()),
        tried: true,
        ..Row::default()
    }
}

fn claim(other: Row, branch: &str) -> Claim {
    let registry = Registry::default();
    registry.update(&Owner::git_sync("x", "other"), |r| *r = other);
    registry.with(&Owner::git_sync("x", "own"), |view| view.claim(&key("a"), None, branch, "c2"))
}

#[test]
fn spellings_of_one_branch_are_one_branch() {
    let at =
        |url: &str, reference: &str, found: Option<&str>| branch(&RemoteUrl::parse(url).unwrap(), reference, found);
    let (ssh, https) = ("git@git.example.org:team/shop.git", "https://git.example.org/team/shop");
    let main = at(ssh, "main", None);
    for (url, reference, found) in [
        (https, "main", Some("refs/heads/main")),
        (https, "refs/heads/main", Some("refs/heads/main")),
        (ssh, "refs/heads/main", None),
        (ssh, "HEAD", Some("refs/heads/main")),
    ] {
        assert_eq!(at(url, reference, found), main, "{url} {reference}");
    }
    for (reference, found) in [
        ("main", Some("refs/tags/main")),
        ("HEAD", Some("refs/heads/release")),
        ("HEAD", None),
        ("release", Some("refs/heads/main")),
        ("semver:1.x", Some("refs/tags/1.2.0")),
    ] {
        assert_ne!(at(ssh, reference, found), main, "{reference}");
    }
    let chart =
        |owner: &str| branch(&RemoteUrl::of_artifact("oci://r.example.org/web", owner.to_owned()), "HEAD", None);
    assert_ne!(chart("shop/web-staging/1"), chart("shop/web-prod/2"), "each follows its own version");
}

#[test]
fn an_object_of_another_git_sync_is_held_until_that_one_gives_it_up() {
    assert_eq!(claim(row(&["a"], &["a"], "c2"), "main"), Claim::Held("x/other".into()));
    assert_eq!(claim(row(&["a"], &["a"], "c1"), "main"), Claim::Undecided("x/other".into()));
    assert_eq!(claim(row(&["a"], &["a"], "c1"), "release"), Claim::Held("x/other".into()));
    assert_eq!(claim(row(&["a"], &[], "c2"), "main"), Claim::Free);
    assert_eq!(claim(row(&[], &["a"], "c2"), "main"), Claim::Free);
}

#[test]
fn a_git_sync_that_reads_with_an_object_holds_it_unless_it_is_deleted_too_or_a_tenant() {
    let secret = Key::new("", "Secret", Some("a"), "login");
    let own = Owner::git_sync("x", "own");
    let reader = |confined_to: Option<&str>, takes_objects| {
        let registry = Registry::default();
        let reads_by = [secret.clone()].into();
        let confined_to = confined_to.map(Into::into);
        registry.update(&Owner::git_sync("a", "other"), |r| {
            *r = Row { confined_to, reads_by, takes_objects, ..Row::default() }
        });
        registry
    };
    let check = |registry: &Registry, going: &[Key]| {
        registry.with(&own, |view| view.reader_of(&secret, &going.iter().cloned().collect()))
    };
    let other = [Owner::git_sync("a", "other").key()];
    assert_eq!(check(&reader(None, false), &[]), Some("a/other".to_owned()));
    assert_eq!(check(&reader(None, false), &other), None, "it goes, too");
    assert_eq!(
        check(&reader(None, true), &other),
        Some("a/other".to_owned()),
        "it is kept, for its objects would go with it"
    );
    assert_eq!(check(&reader(Some("a"), false), &[]), None, "whoever may create a GitSync could hold everything");
    let registry = reader(None, false);
    let another = registry.with(&own, |view| view.reader_of(&key("login"), &HashSet::new()));
    assert_eq!(another, None, "a ConfigMap of that name");
}

#[test]
fn an_object_taken_from_a_tenant_stays_known_to_it_until_it_is_given_up() {
    let registry = Registry::default();
    let (platform, tenant) = (Owner::git_sync("x", "platform"), Owner::git_sync("a", "tenant"));
    registry.update(&tenant, |r| *r = Row { confined_to: Some("a".into()), ..row(&["a", "b"], &["a", "b"], "c2") });
    registry.update(&platform, |r| *r = row(&[], &["a"], "c2"));
    registry.with(&platform, |view| {
        assert_eq!(view.claim(&key("a"), Some("x.other"), "main", "c2"), Claim::Free);
        assert!(view.reserve([key("a"), key("c")].into_iter()));
        assert!(!view.reserve([key("c")].into_iter()));
    });
    registry.with(&tenant, |view| {
        assert!(view.own().has_lost && view.is_outranked(&key("a")) && !view.is_outranked(&key("b")));
        assert_eq!(view.claim(&key("a"), None, "main", "c2"), Claim::Held("x/platform".into()));
        view.regain(&[]);
        assert!(!view.own().has_lost && view.is_outranked(&key("a")));
        view.regain(&[key("a")]);
        assert!(!view.is_outranked(&key("a")));
    });
}

#[test]
fn waits_with_pruning_for_the_siblings_of_its_branch_only() {
    let registry = Registry::default();
    registry.update(&Owner::git_sync("x", "other"), |r| *r = row(&[], &["a"], "c1"));
    registry.with(&Owner::git_sync("x", "own"), |view| {
        assert!(view.sibling_pending("main", "c2").is_some());
        assert!(view.sibling_pending("main", "c1").is_none());
        assert!(view.sibling_pending("release", "c2").is_none());
    });
    registry.update(&Owner::git_sync("x", "other"), |row| row.confined_to = Some("a".into()));
    for (confined_to, waits) in [(None, false), (Some("b".into()), false), (Some("a".into()), true)] {
        registry.with(&Owner::git_sync("x", "own"), |view| {
            view.own().confined_to = confined_to;
            assert_eq!(view.sibling_pending("main", "c2").is_some(), waits);
            let elsewhere = if waits { Elsewhere::Peer } else { Elsewhere::Tenant };
            assert_eq!(view.desired_elsewhere(&key("a")), elsewhere);
            assert_eq!(view.desired_elsewhere(&key("b")), Elsewhere::Nobody);
        });
    }
    registry.update(&Owner::git_sync("x", "other"), |r| r.tried = false);
    registry.with(&Owner::git_sync("x", "own"), |view| assert!(view.sibling_pending("release", "c2").is_some()));
}

#[test]
fn a_sibling_that_cannot_read_a_commit_is_waited_for_by_name_as_long_as_its_inventory_is_unknown() {
    let registry = Registry::default();
    let other = Owner::git_sync("x", "other");
    registry.update(&other, |r| *r = row(&["b"], &["b"], "c1"));
    let pending =
        |commit: &str| registry.with(&Owner::git_sync("x", "own"), |view| view.sibling_pending("main", commit));
    let text = pending("c2").unwrap().to_string();
    assert_eq!(text, "GitSync x/other, which follows the same branch and has not planned this commit yet");
    let cannot_read = |commit: Option<&str>| Some(CannotRead { commit: commit.map(Into::into), readable: set(&["a"]) });
    registry.update(&other, |row| row.cannot_read = cannot_read(Some("c2")));
    assert_eq!(pending("c2"), None);
    assert!(pending("c3").is_some(), "it may be able to read the next one");
    registry.with(&Owner::git_sync("x", "own"), |view| {
        let elsewhere = ["a", "b", "c"].map(|name| view.desired_elsewhere(&key(name)));
        assert_eq!(elsewhere, [Elsewhere::Peer, Elsewhere::Peer, Elsewhere::Nobody]);
    });
    registry.update(&other, |row| row.cannot_read = cannot_read(None));
    assert!(pending("c3").unwrap().to_string().contains("cannot read the repository"), "what it wants is not known");
    registry.update(&other, |row| row.confined_to = Some("a".into()));
    assert_eq!(pending("c3").map(|one| one.to_string()), None, "a tenant keeps nobody waiting who is none");
    registry.update(&Owner::git_sync("x", "own"), |row| row.confined_to = Some("a".into()));
    registry.update(&other, |row| row.confined_to = Some("a".into()));
    assert!(pending("c3").is_some());
    registry.update(&other, |row| {
        row.cannot_read = cannot_read(Some("c3"));
        row.managed = None;
    });
    assert!(pending("c3").unwrap().to_string().ends_with("can read neither the commit nor its own inventory"));
}

/// Returns how many rows are read to find the claims on an object, among `number` GitSyncs.
fn looked_at(number: usize) -> usize {
    let registry = Registry::default();
    for number in 0..number {
        let name = format!("object-{number}");
        let own = Row { label: format!("x.{number}").into(), ..row(&[&name], &[&name], "c1") };
        registry.update(&Owner::git_sync("x", &number.to_string()), |row| *row = own);
    }
    registry.with(&Owner::git_sync("x", "own"), |view| {
        assert_eq!(view.claim(&key("new"), Some("x.7"), "main", "c2"), Claim::Free);
        assert_eq!(view.desired_elsewhere(&key("new")), Elsewhere::Nobody);
        assert!(!view.taken_elsewhere(&key("new")) && !view.reserve([key("new")].into_iter()));
        assert_eq!(view.claim(&key("object-3"), None, "release", "c2"), Claim::Held("x/3".into()));
        view.looked_at.get()
    })
}

#[test]
fn a_claim_looks_at_those_alone_that_name_the_object_however_many_there_are() {
    assert_eq!((looked_at(10), looked_at(1000)), (looked_at(10), looked_at(10)));
    assert!(looked_at(10) <= 2, "{}", looked_at(10));
}

#[test]
fn a_git_sync_is_not_found_by_objects_that_its_row_names_no_longer() {
    let registry = Registry::default();
    let other = Owner::git_sync("x", "other");
    let found = |name: &str| registry.rows.lock().naming(&key(name)).count();
    registry.update(&other, |r| *r = row(&["a"], &["a", "b"], "c1"));
    assert_eq!((found("a"), found("b")), (1, 1));
    registry.update(&other, |r| r.desired = Some(set(&["c"])));
    assert_eq!((found("a"), found("b"), found("c")), (1, 0, 1));
    registry.update(&other, |r| r.label = "x.another".into());
    let labelled = |label: &str| registry.rows.lock().labelled(label).count();
    assert_eq!((labelled("x.other"), labelled("x.another")), (0, 1));
    registry.remove(&other);
    assert_eq!((found("a"), found("c"), labelled("x.another")), (0, 0, 0));
    assert!(registry.rows.lock().is_empty());
}

#[test]
fn a_deletion_waits_by_name_for_a_git_sync_that_wants_more_than_its_status_lists() {
    let (registry, other) = (Registry::default(), Owner::git_sync("x", "other"));
    registry.update(&other, |r| *r = Row { wants_more: true, ..row(&[], &[], "c1") });
    let pending = || registry.with(&Owner::git_sync("x", "own"), |view| view.others_want_more());
    let text = pending().map(|pending| pending.to_string());
    assert_eq!(text.as_deref(), Some("GitSync x/other, which wants more objects than its status lists"));
    registry.update(&other, |r| r.suspended = true);
    assert_eq!(pending(), None);
}

#[test]
fn a_deletion_does_not_wait_for_a_suspended_git_sync_of_another_agent_that_shows_no_plan() {
    let (registry, other) = (Registry::default(), Owner::git_sync("x", "other"));
    let is_pending = |is_of_other_agent: bool, suspended: bool| {
        registry.update(&other, |r| {
            *r = Row { tried: false, is_of_other_agent, suspended, ..row(&[], &[], "c1") };
        });
        registry.with(&Owner::git_sync("x", "own"), |view| view.others_untried().is_some())
    };
    assert!(is_pending(true, false) && is_pending(false, false) && is_pending(false, true));
    assert!(!is_pending(true, true));
}

/// Returns whether the deletions of a GitSync wait for `child`, whose spec its commit changes.
fn awaits(registry: &Registry) -> bool {
    registry.with(&Owner::git_sync("x", "own"), |view| view.sibling_pending("main", "c2").is_some())
}

/// Returns the rows of a GitSync whose commit changes the spec of `child`, which is a tenant.
fn with_changed(state: ChangedSync) -> (Registry, Owner) {
    let (registry, child) = (Registry::default(), Owner::git_sync("a", "child"));
    let changed_syncs = HashMap::from([(child.clone(), state)]);
    registry.update(&Owner::git_sync("x", "own"), |own| *own = Row { changed_syncs, ..row(&[], &[], "c2") });
    (registry, child)
}

fn spec(generation: i64) -> Spec {
    Spec { uid: "u".to_owned(), generation }
}

#[test]
fn a_changed_git_sync_is_awaited_until_its_attempt_with_that_spec_and_never_again() {
    let (registry, child) = with_changed(ChangedSync::Applied(spec(2)));
    assert!(awaits(&registry), "it has no row");
    registry.enter(&child, "a.child".into(), Some("a".into()));
    for (generation, is_awaited) in [(1, true), (2, false), (3, false)] {
        registry.update(&child, |own| own.begin_attempt(spec(generation)));
        assert!(awaits(&registry) || generation == 3, "{generation}");
        registry.update(&child, |own| own.tried = true);
        assert_eq!(awaits(&registry), is_awaited, "{generation}");
    }
    registry.remove(&child);
    assert!(!awaits(&registry));
    let (registry, child) = with_changed(ChangedSync::Applied(spec(2)));
    registry.enter(&child, "a.child".into(), None);
    registry.remove(&child);
    assert!(!awaits(&registry), "it was deleted, or its objects are in another cluster");
}

#[test]
fn a_changed_git_sync_that_is_paused_or_of_another_owner_is_not_awaited() {
    let (registry, child) = with_changed(ChangedSync::Unapplied);
    assert!(awaits(&registry));
    let leave =
        |keys: &[Key]| registry.with(&Owner::git_sync("x", "own"), |view| view.leave_syncs(&keys.iter().collect()));
    assert!(!leave(&[key("child")]), "another kind");
    assert!(leave(&[child.key()]) && !leave(&[child.key()]), "others are told once");
    assert!(!awaits(&registry));
}
