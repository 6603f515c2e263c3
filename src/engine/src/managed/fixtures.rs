//! Stores with an object, for tests.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::account::{History, Policy};
use super::desired::{Desired, Mark};
use super::object::Answered;
use super::pending::Next;
use super::store::Store;
use mainstay_api::DriftPolicy;
use mainstay_cluster::{Kind, Scope};
use mainstay_object::{Object, Owner, Place};

pub(crate) const POLICY: Policy =
    Policy { drift: DriftPolicy::Revert, additions: false, suspended: false, confined: false, acts_as: None };

pub(crate) fn desired() -> Arc<Desired> {
    let kind = Kind::fixed("v1", "ConfigMap", "configmaps", Scope::Namespaced);
    desired_of(kind, &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}))
}

/// Returns the desired state from a manifest in the namespace `shop`.
pub(super) fn desired_of(kind: Kind, document: &Value) -> Arc<Desired> {
    let (kind, object) = (Arc::new(kind), Object::from_value(document, Place::file("a.yaml")).unwrap());
    Arc::new(Desired {
        key: kind.key(Some("shop"), &object.key.name),
        kind,
        object: Arc::new(object),
        mark: Mark::Label("shop.demo".into()),
        ignored: None,
    })
}

pub(crate) fn live(version: u64, value: &str) -> Value {
    json!({"metadata": {"name": "a", "uid": "u", "resourceVersion": version.to_string(), "managedFields": [
        {"manager": "mainstay", "operation": "Apply", "fieldsV1": {"f:data": {"f:a": {}}}}]}, "data": {"a": value}})
}

pub(super) fn verify(store: &mut Store, desired: &Arc<Desired>, answer: &Value, sent: &Value) {
    store.answered(desired, Answered::of(desired, answer, sent, None), Timestamp::UNIX_EPOCH);
}

/// Returns a store during the first apply of an object.
pub(super) fn applying() -> (Store, Arc<Desired>) {
    let (mut store, desired, owner) = (Store::default(), desired(), Owner::git_sync("shop", "demo"));
    store.set_policy(&owner, POLICY, History::default());
    assert!(store.begin_put(&owner, &desired).is_some());
    (store, desired)
}

/// Returns a store with an object that was applied at version 5.
pub(super) fn applied() -> (Store, Arc<Desired>) {
    let (mut store, desired) = applying();
    verify(&mut store, &desired, &live(5, "1"), &desired.body());
    assert_eq!(store.end(&desired.key, Timestamp::UNIX_EPOCH), Next::Nothing);
    (store, desired)
}
