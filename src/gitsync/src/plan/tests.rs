//! Plans with random claims of other GitSyncs: how a confined GitSync influences the plan of another GitSync.

use serde_json::json;

use super::*;
use crate::registry::{CannotRead, Registry, Row};
use mainstay_cluster::Scope;
use mainstay_engine::managed::Mark;
use mainstay_engine::managed::inventory::uid_bytes;
use mainstay_object::{Object, Owner, Place};

const LABEL: &str = "platform.own";
const COMMITS: [&str; 2] = ["c1", "c2"];
const BRANCHES: [&str; 2] = ["main", "release"];
const NAMESPACES: [Option<&str>; 4] = [None, Some("a"), Some("b"), Some("c")];
/// Number of random cases of each property.
const CASES: u64 = 1000;

/// All possible objects: a few ConfigMaps in each namespace, and ClusterRoles.
fn objects() -> Vec<Arc<Desired>> {
    let object = |namespace: Option<&str>, number: usize| {
        let (version, kind, plural, scope) = match namespace {
            Some(_) => ("v1", "ConfigMap", "configmaps", Scope::Namespaced),
            None => ("rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles", Scope::Cluster),
        };
        let kind = Arc::new(mainstay_cluster::Kind::fixed(version, kind, plural, scope));
        let name = format!("o{number}");
        let document = json!({"apiVersion": version, "kind": &*kind.kind, "metadata": {"name": name}});
        let object = Arc::new(Object::from_value(&document, Place::file("a.yaml")).unwrap());
        Arc::new(Desired {
            key: kind.key(namespace, &name),
            kind,
            object,
            mark: Mark::Label(LABEL.into()),
            ignored: None,
        })
    };
    NAMESPACES.iter().flat_map(|namespace| (0..5).map(|number| object(*namespace, number))).collect()
}

/// A case: the plan of GitSync `own`, and all other GitSyncs.
struct Case {
    own: Owner,
    rows: Vec<(Owner, Row)>,
    desired: Vec<Arc<Desired>>,
    observed: Observed,
    prune: bool,
    allows_prune: bool,
}

struct Chance {
    random: fastrand::Rng,
    all: Vec<Arc<Desired>>,
}

impl Chance {
    fn one_in(&mut self, times: u8) -> bool {
        self.random.u8(..times) == 0
    }

    fn some(&mut self) -> Vec<Arc<Desired>> {
        let share = self.random.u8(1..5);
        let all = self.all.clone();
        all.into_iter().filter(|_| self.one_in(share)).collect()
    }

    fn keys(&mut self) -> HashSet<Key> {
        self.some().into_iter().map(|one| one.key.clone()).collect()
    }

    fn text(&mut self, texts: [&str; 2]) -> String {
        texts[self.random.usize(..2)].to_owned()
    }

    fn row(&mut self, label: &str, confined_to: Option<&str>) -> Row {
        let mut maybe = |one_in| (!self.one_in(one_in)).then(|| Arc::new(self.keys()));
        let (managed, taken, desired, readable) = (maybe(5), maybe(3), maybe(4), maybe(2));
        let cannot_read = readable.filter(|_| self.one_in(2)).map(|readable| {
            let commit = self.one_in(2).then(|| self.text(COMMITS));
            CannotRead { commit, readable }
        });
        Row {
            label: label.into(),
            branch: (!self.one_in(5)).then(|| self.text(BRANCHES)),
            managed,
            taken,
            planned: desired.is_some().then(|| self.text(COMMITS)),
            desired,
            confined_to: confined_to.map(Into::into),
            by_account: confined_to.is_some() && self.one_in(2),
            suspended: self.one_in(5),
            tried: !self.one_in(5),
            spec: None,
            changed_syncs: HashMap::new(),
            cannot_read,
            outranked: self.keys(),
            has_lost: self.one_in(2),
            reads_by: self.keys().into_iter().collect(),
            takes_objects: self.one_in(2),
            // No agent takes an object from a GitSync of another one, confined or not.
            is_of_other_agent: confined_to.is_none() && self.one_in(4),
            wants_more: self.one_in(9),
            given_up: self.keys().iter().cloned().collect(),
            failing: HashSet::new(),
        }
    }

    fn observed(&mut self, labels: &[String]) -> Observed {
        let mut observed = Observed::default();
        for one in self.some() {
            let mut entry = Entry { version: Arc::clone(&one.kind.version), ..Entry::default() };
            if !self.one_in(3) {
                entry.uid = Some(uid_bytes("u"));
                entry.digest = Some(one.source());
                entry.source = (!self.one_in(3)).then(|| one.source().as_bytes()[..8].try_into().unwrap());
            }
            observed.inventory.0.insert(one.key.clone(), entry);
        }
        (observed.kept, observed.waiting, observed.terminating) = (self.keys(), HashSet::new(), HashSet::new());
        if self.one_in(3) {
            observed.terminating = self.keys();
        }
        for one in self.some() {
            let label = self.random.choice(labels).filter(|label| !label.is_empty()).cloned();
            let live = Live { label, terminating: self.one_in(9), controlled: self.one_in(9), ..Live::default() };
            observed.live.insert(one.key.clone(), live);
        }
        observed
    }

    /// Returns GitSync `own`, unconfined GitSyncs, and tenants of two namespaces.
    fn case(&mut self, own_confined_to: Option<&str>) -> Case {
        let own = Owner::git_sync("platform", "own");
        let mut own_row = self.row(LABEL, own_confined_to);
        own_row.outranked.clear();
        let mut rows = vec![(own.clone(), own_row)];
        for number in 0..self.random.usize(..3) {
            let row = self.row(&format!("platform.peer-{number}"), None);
            rows.push((Owner::git_sync("platform", &format!("peer-{number}")), row));
        }
        for number in 0..self.random.usize(1..4) {
            let namespace = if self.one_in(2) { "a" } else { "b" };
            let row = self.row(&format!("{namespace}.tenant-{number}"), Some(namespace));
            rows.push((Owner::git_sync(namespace, &format!("tenant-{number}")), row));
        }
        let labels = rows.iter().map(|(_, row)| row.label.to_string()).chain([String::new()]).collect::<Vec<_>>();
        let mut observed = self.observed(&labels);
        // Inventory entries that are out of reach are removed before planning.
        let in_reach = |key: &Key| own_confined_to.is_none() || key.namespace.as_deref() == own_confined_to;
        observed.inventory.0.retain(|key, _| in_reach(key));
        let desired = self.some().into_iter().filter(|one| in_reach(&one.key)).collect();
        Case { own, rows, desired, observed, prune: !self.one_in(5), allows_prune: self.one_in(5) }
    }
}

impl Case {
    /// Returns the plan with those other GitSyncs that are `there`.
    fn plan(&self, there: impl Fn(&Row) -> bool) -> Plan {
        let registry = Registry::default();
        for (owner, row) in self.rows.iter().filter(|(owner, row)| *owner == self.own || there(row)) {
            registry.update(owner, |own| *own = row.clone());
        }
        let facts = Facts {
            commit: "c2",
            branch: "main",
            desired: &self.desired,
            observed: &self.observed,
            prune: self.prune,
            allows_prune: self.allows_prune,
            former: &Appliers::default(),
            left: &Appliers::default(),
            takes_over_known: true,
        };
        registry.with(&self.own, |view| plan(view, &facts))
    }

    /// Whether a tenant of the object's own namespace wants it.
    fn is_wanted_by_tenant(&self, key: &Key) -> bool {
        let of_namespace = |row: &&Row| row.confined_to.is_some() && row.confined_to == key.namespace;
        let mut tenants = self.rows.iter().map(|(_, row)| row).filter(of_namespace);
        tenants.any(|row| row.desired.as_ref().is_some_and(|desired| desired.contains(key)))
    }
}

/// Returns the applies of a plan as one string.
fn applies(plan: &Plan) -> String {
    let steps = plan.stages.values().flatten().map(|step| format!("apply {}: {:?}", step.desired.key, step.expect));
    let unchanged = plan.unchanged.iter().map(|one| format!("unchanged {}", one.key));
    let paused = plan.paused.iter().map(|(one, _)| format!("paused {}", one.key));
    let refused = plan.refused.iter().map(|one| format!("refused {}: {:?}", one.key, one.why));
    steps.chain(unchanged).chain(paused).chain(refused).collect::<Vec<_>>().join("\n")
}

fn check_seeds(check: impl Fn(&mut Chance, u64)) {
    let first = fastrand::u64(..u64::MAX - CASES);
    let all = objects();
    for seed in first..first + CASES {
        check(&mut Chance { random: fastrand::Rng::with_seed(seed), all: all.clone() }, seed);
    }
}

#[test]
fn no_confined_git_sync_changes_the_plan_of_one_that_is_not_but_by_taking_what_that_one_gives_up() {
    check_seeds(|chance, seed| {
        let case = chance.case(None);
        let (among, alone) = (case.plan(|_| true), case.plan(|row| row.confined_to.is_none()));
        assert_eq!(applies(&among), applies(&alone), "seed {seed}");
        let handed = |key: &&Key| !alone.leaving.handed_over.contains(key);
        let handed = among.leaving.handed_over.iter().filter(handed).collect::<HashSet<_>>();
        assert!(handed.iter().all(|key| case.is_wanted_by_tenant(key)), "seed {seed}: {handed:?}");
        let kept = alone.leaving.handed_over.iter().all(|key| among.leaving.handed_over.contains(key));
        assert!(kept, "seed {seed}: what goes to another one is not kept back");
        let mut prune = alone.leaving.prune.clone();
        prune.retain(|key| !handed.contains(key));
        assert_eq!(among.leaving.prune, prune, "seed {seed}");
        let mut held = alone.leaving.held.clone();
        held.retain(|(key, _)| !handed.contains(key));
        assert_eq!(among.leaving.held, held, "seed {seed}");
        if !held.is_empty() || !prune.is_empty() {
            assert_eq!(among.leaving.guard, alone.leaving.guard, "seed {seed}");
        }
        for failed in [false, true] {
            let applies = Applies { failed, rebuilt: false };
            assert_eq!(among.may_prune(applies), alone.may_prune(applies), "seed {seed}");
        }
    });
}

#[test]
fn git_syncs_of_different_namespaces_change_nothing_in_each_others_plans_but_by_a_label_that_needs_rights() {
    check_seeds(|chance, seed| {
        let mut case = chance.case(Some("a"));
        for live in case.observed.live.values_mut() {
            live.label.take_if(|label| label.starts_with("b."));
        }
        let (among, alone) = (case.plan(|_| true), case.plan(|row| row.confined_to.as_deref() != Some("b")));
        assert_eq!(applies(&among), applies(&alone), "seed {seed}");
        let leaving = |plan: &Plan| format!("{:?}", plan.leaving);
        assert_eq!(leaving(&among), leaving(&alone), "seed {seed}");
    });
}

#[test]
fn objects_that_an_account_labelled_elsewhere_are_its_own_for_tenants_and_not_for_the_platform() {
    let one = objects().into_iter().find(|one| one.key.namespace.as_deref() == Some("a")).unwrap();
    let check = |by_account: bool, label: Option<&str>, own_confined_to: Option<&str>, is_free: bool| {
        let registry = Registry::default();
        registry.update(&Owner::git_sync("b", "tenant"), |row| {
            *row = Row {
                label: "b.tenant".into(),
                confined_to: Some("b".into()),
                by_account,
                managed: Some(Arc::new(HashSet::from([one.key.clone()]))),
                ..Row::default()
            };
        });
        let own = Owner::git_sync("x", "own");
        registry.update(&own, |row| row.confined_to = own_confined_to.map(Into::into));
        let claim = registry.with(&own, |view| view.claim(&one.key, label, "main", "c2"));
        assert_eq!(claim == Claim::Free, is_free, "{by_account} {label:?} {own_confined_to:?}: {claim:?}");
    };
    check(true, Some("b.tenant"), Some("a"), false);
    // A claim needs more than an inventory: every user who can write ConfigMaps can forge one.
    check(true, None, Some("a"), true);
    check(true, Some("a.other"), Some("a"), true);
    check(false, Some("b.tenant"), Some("a"), true);
    check(true, Some("b.tenant"), None, true);
}

#[test]
fn an_object_that_returns_to_its_owner_is_not_adopted_again() {
    let (one, observed) = (Arc::clone(&objects()[5]), Observed::default());
    let (former, left) = (Appliers::former(Arc::default()), Appliers::left(Arc::default(), None));
    let facts = Facts {
        commit: "c2",
        branch: "main",
        desired: std::slice::from_ref(&one),
        observed: &observed,
        prune: true,
        allows_prune: false,
        former: &former,
        left: &left,
        takes_over_known: false,
    };
    let appliers = |expect: Expect| appliers(&facts, &one, Some(&Live::default()), &expect);
    let version = || "7".to_owned();
    assert_eq!(appliers(Expect::Withdrawn { version: version(), uid: String::new() }), left);
    assert_eq!(appliers(Expect::Version { version: version(), managed_fields: Value::Null }), former);
}

#[test]
fn an_object_that_was_offered_is_applied_at_the_version_that_was_read_once_the_status_does_not_offer_it() {
    let one = Arc::clone(&objects()[5]);
    let applied = |offered: bool, withdrawn: bool| {
        let key = || one.key.clone();
        let live = Live { label: Some(LABEL.into()), resource_version: "7".into(), ..Live::default() };
        let entry = Entry { version: Arc::clone(&one.kind.version), ..Entry::default() };
        let mut observed = Observed { live: [(key(), live)].into(), ..Observed::default() };
        observed.inventory.0.insert(key(), entry);
        observed.offered.extend(offered.then(key));
        observed.withdrawn.extend(withdrawn.then(key));
        let own = Owner::git_sync("platform", "own");
        let rows = vec![(own.clone(), Row { label: LABEL.into(), ..Row::default() })];
        let desired = vec![Arc::clone(&one)];
        applies(&Case { own, rows, desired, observed, prune: true, allows_prune: false }.plan(|_| true))
    };
    assert!(applied(false, false).ends_with(": Ours"));
    assert!(applied(true, false).ends_with(": Offered"));
    assert!(applied(false, true).ends_with(r#": Withdrawn { version: "7", uid: "" }"#));
}

#[test]
fn an_object_of_a_git_sync_of_another_agent_is_applied_only_if_its_status_offered_it_after_the_read() {
    let one = Arc::clone(&objects()[5]);
    let applied = |is_offered: bool, is_confirmed: bool| {
        let key = || one.key.clone();
        let (label, resource_version) = (Some("platform.other".into()), "7".into());
        let live = Live { label, resource_version, applied: true, ..Live::default() };
        let mut observed = Observed { live: [(key(), live)].into(), ..Observed::default() };
        observed.offers.extend(is_confirmed.then(key));
        let given_up = is_offered.then(key).into_iter().collect();
        let row = Row { label: "platform.other".into(), is_of_other_agent: true, given_up, ..Row::default() };
        let (own, other) = (Owner::git_sync("platform", "own"), Owner::git_sync("platform", "other"));
        let rows = vec![(own.clone(), Row { label: LABEL.into(), ..Row::default() }), (other, row)];
        let desired = vec![Arc::clone(&one)];
        applies(&Case { own, rows, desired, observed, prune: true, allows_prune: false }.plan(|_| true))
    };
    let claimed = r#": Claimed("platform/other")"#;
    assert!(applied(false, false).ends_with(claimed));
    assert!(applied(false, true).ends_with(claimed), "its owner has just withdrawn it");
    assert!(applied(true, false).ends_with(claimed), "the watch shows an offer that came after the read");
    assert!(applied(true, true).ends_with(r#": Offered { version: "7", managed_fields: Null }"#));
}
