//! Objects, owners and steps of schedules. Each step can be executed in each state, so a schedule without some of its
//! steps is valid, too. The text of a schedule is one line.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

/// The GitSyncs. Each follows the directory of its name.
pub(crate) const OWNERS: [&str; 3] = ["one", "two", "three"];
/// Namespace of most objects, and of the GitSyncs.
pub(crate) const HOME: &str = mainstay_testkit::world::NAMESPACE;
/// A namespace without GitSyncs.
pub(crate) const AWAY: &str = "mainstay-tests-away";

/// An object that repositories may have.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Object {
    pub(crate) name: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) version: &'static str,
    pub(crate) resource: &'static str,
    /// Empty for cluster-scoped objects.
    pub(crate) namespace: &'static str,
    /// The stage in which it is applied.
    pub(crate) stage: u8,
    /// Whether a commit needs permission to delete the object.
    pub(crate) is_protected: bool,
}

const fn config_map(name: &'static str, namespace: &'static str) -> Object {
    let (kind, version, resource) = ("ConfigMap", "v1", "configmaps");
    Object { name, kind, version, resource, namespace, stage: 3, is_protected: false }
}

/// All objects. The first ones are chosen more often than the others.
pub(crate) const OBJECTS: [Object; 17] = [
    config_map("c0", HOME),
    config_map("c1", HOME),
    Object {
        name: "w0",
        kind: "CronJob",
        version: "batch/v1",
        resource: "cronjobs",
        namespace: HOME,
        stage: 4,
        is_protected: false,
    },
    Object {
        name: "s0",
        kind: "Secret",
        version: "v1",
        resource: "secrets",
        namespace: HOME,
        stage: 3,
        is_protected: false,
    },
    config_map("away", AWAY),
    Object {
        name: "mainstay-tests-space",
        kind: "Namespace",
        version: "v1",
        resource: "namespaces",
        namespace: "",
        stage: 1,
        is_protected: true,
    },
    config_map("c2", HOME),
    Object {
        name: "w1",
        kind: "CronJob",
        version: "batch/v1",
        resource: "cronjobs",
        namespace: AWAY,
        stage: 4,
        is_protected: false,
    },
    config_map("c3", HOME),
    config_map("c4", HOME),
    config_map("c5", HOME),
    config_map("c6", HOME),
    config_map("c7", HOME),
    config_map("c8", HOME),
    config_map("c9", HOME),
    config_map("c10", HOME),
    config_map("c11", HOME),
];

/// One change of the next commit. Numbers name objects and owners.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Edit {
    /// This owner alone wants the object, with this value.
    Put(u8, u8, u16),
    /// This owner wants the object as well.
    Share(u8, u8, u16),
    /// The object moves to this owner unchanged.
    Move(u8, u8),
    /// Removes the object from all owners.
    Remove(u8),
    /// This owner wants all objects without an owner.
    Fill(u8),
    /// This owner wants nothing any more.
    Empty(u8),
}

/// A hand edit of a live object.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Hand {
    Edit,
    Delete,
    Unlabel,
    Relabel,
    AddLabel,
    WipeManagers,
    /// Deletes the object, and creates another object of the same name with Mainstay's label.
    Forge,
    /// Deletes the object while a finalizer keeps it. The finalizer is removed after so many seconds.
    Terminate(u16),
    /// Pauses the object for so many seconds.
    Pause(u16),
    Resume,
}

/// A field of a GitSync.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Spec {
    Suspend(bool),
    /// Stops reverting.
    Report(bool),
    Prune(bool),
    Additions(bool),
    /// Holds all commits.
    Freeze(bool),
}

/// A step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Step {
    Commit(Vec<Edit>),
    /// From the next commit on, a file that is not YAML is in an owner's directory.
    Break(u8, bool),
    /// Moves the branch back by so many commits.
    Rewind(u8),
    Hand(u8, Hand),
    /// A controller keeps changing the object for so many seconds.
    Fight(u8, u16),
    Spec(u8, Spec),
    /// Lifts the guards of the newest commit.
    Allow(u8),
    /// The server refuses writes of an object for so many seconds.
    Refuse(u8, u16, u16),
    /// The next requests of a verb are refused, or executed without a response.
    Fail(u8, u16, bool),
    /// The server answers 429 for so many seconds.
    Throttle(u8),
    /// Ends the watches; with `true` the server also drops its event log.
    CutWatches(bool),
    /// Kills the agent at its next requests: after so many of them, before or after the last one is executed.
    Kill(u8, bool),
    Start,
    /// Another agent holds the Lease for so many seconds.
    LoseLease(u8),
    /// Whether the remote can be read.
    Remote(bool),
    /// Asks a GitSync for a sync.
    Ask(u8),
    Nothing,
}

/// A schedule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Schedule {
    /// Seed of delays and other random values.
    pub(crate) seed: u32,
    /// How often requests meet random faults: 0 never, 3 often.
    pub(crate) noise: u8,
    /// Steps, and the time after each in milliseconds.
    pub(crate) steps: Vec<(Step, u32)>,
}

impl Schedule {
    pub(crate) fn text(&self) -> String {
        serde_json::to_string(self).unwrap()
    }
}

pub(crate) fn object_of(number: u8) -> usize {
    usize::from(number) % OBJECTS.len()
}

pub(crate) fn owner_of(number: u8) -> usize {
    usize::from(number) % OWNERS.len()
}

pub(crate) fn seconds(number: impl Into<u64>) -> Duration {
    Duration::from_secs(number.into())
}

fn object() -> impl Strategy<Value = u8> {
    let all = u8::try_from(OBJECTS.len()).unwrap();
    prop_oneof![6 => 0..3_u8, 3 => 0..7_u8, 1 => 0..all]
}

fn owner() -> impl Strategy<Value = u8> {
    prop_oneof![4 => 0..2_u8, 1 => 2..3_u8]
}

fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        8 => (object(), owner(), 0..999_u16).prop_map(|(object, owner, value)| Edit::Put(object, owner, value)),
        1 => (object(), owner(), 0..999_u16).prop_map(|(object, owner, value)| Edit::Share(object, owner, value)),
        4 => (object(), owner()).prop_map(|(object, owner)| Edit::Move(object, owner)),
        4 => object().prop_map(Edit::Remove),
        1 => owner().prop_map(Edit::Fill),
        1 => owner().prop_map(Edit::Empty),
    ]
}

fn hand() -> impl Strategy<Value = Hand> {
    let lasts = || prop_oneof![2 => 1..10_u16, 1 => 10..400_u16];
    prop_oneof![
        5 => Just(Hand::Edit),
        5 => Just(Hand::Delete),
        2 => Just(Hand::Unlabel),
        1 => Just(Hand::Relabel),
        1 => Just(Hand::AddLabel),
        1 => Just(Hand::WipeManagers),
        1 => Just(Hand::Forge),
        2 => lasts().prop_map(Hand::Terminate),
        2 => lasts().prop_map(Hand::Pause),
        1 => Just(Hand::Resume),
    ]
}

fn spec() -> impl Strategy<Value = Spec> {
    prop_oneof![
        3 => any::<bool>().prop_map(Spec::Suspend),
        1 => any::<bool>().prop_map(Spec::Report),
        1 => any::<bool>().prop_map(Spec::Prune),
        1 => any::<bool>().prop_map(Spec::Additions),
        1 => any::<bool>().prop_map(Spec::Freeze),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let code = || prop::sample::select(vec![403_u16, 409, 422, 429, 500, 503, 504]);
    prop_oneof![
        14 => vec(edit(), 1..5).prop_map(Step::Commit),
        1 => (owner(), any::<bool>()).prop_map(|(owner, is_broken)| Step::Break(owner, is_broken)),
        1 => (1..3_u8).prop_map(Step::Rewind),
        12 => (object(), hand()).prop_map(|(object, hand)| Step::Hand(object, hand)),
        1 => (object(), 5..60_u16).prop_map(|(object, lasts)| Step::Fight(object, lasts)),
        4 => (owner(), spec()).prop_map(|(owner, spec)| Step::Spec(owner, spec)),
        1 => owner().prop_map(Step::Allow),
        2 => (object(), code(), 1..200_u16).prop_map(|(object, code, lasts)| Step::Refuse(object, code, lasts)),
        3 => (any::<u8>(), code(), any::<bool>()).prop_map(|(verb, code, done)| Step::Fail(verb, code, done)),
        1 => (1..20_u8).prop_map(Step::Throttle),
        2 => any::<bool>().prop_map(Step::CutWatches),
        4 => (0..12_u8, any::<bool>()).prop_map(|(requests, done)| Step::Kill(requests, done)),
        3 => Just(Step::Start),
        1 => (1..40_u8).prop_map(Step::LoseLease),
        2 => any::<bool>().prop_map(Step::Remote),
        1 => owner().prop_map(Step::Ask),
        1 => Just(Step::Nothing),
    ]
}

fn pause() -> impl Strategy<Value = u32> {
    prop_oneof![4 => Just(0_u32), 4 => 1..200_u32, 3 => 200..5_000_u32, 3 => Just(30_000_u32), 1 => Just(400_000_u32)]
}

/// Returns schedules of up to so many steps.
pub(crate) fn schedules(steps: usize) -> impl Strategy<Value = Schedule> {
    let noise = prop_oneof![3 => Just(0_u8), 1 => Just(1_u8), 1 => Just(2_u8), 1 => Just(3_u8)];
    // A smaller seed does not make a schedule shorter.
    let seed = any::<u32>().no_shrink();
    let steps = vec((step(), pause()), 1..=steps);
    (seed, noise, steps).prop_map(|(seed, noise, steps)| Schedule { seed, noise, steps })
}
