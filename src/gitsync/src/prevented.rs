//! The objects that a GitSync with `spec.prevent` protects.
//!
//! Invariant: a confined GitSync protects only namespaces that it may touch: its own, or those in which its
//! ServiceAccount has applied objects.
//!
//! Not here: the protection itself ([`prevention`](mainstay_engine::prevention)).

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;

use super::rights::Rights;
use mainstay_api::GitSync;
use mainstay_engine::managed::inventory::Inventory;
use mainstay_engine::prevention::{Limit, Protection, Wanted};
use mainstay_object::Owner;

/// Returns the protection for a GitSync whose objects carry `label`; `None` if the protection is unknown.
pub(super) fn wanted(
    sync: &GitSync,
    label: &str,
    rights: &Rights,
    inventory: Option<&Inventory>,
    now: Timestamp,
) -> Option<Wanted> {
    let (spec, namespace) = (&sync.spec, sync.metadata.namespace.as_deref().unwrap_or_default());
    // A policy applies only to its own cluster.
    if !spec.prevent || spec.kube_config.is_some() || spec.suspended(now).is_some() {
        return Some(Wanted::Nothing);
    }
    let account = rights.account(sync).ok()?;
    let limit = match &account {
        _ if rights.is_trusted(namespace) => Limit::None,
        None => Limit::Namespaces(BTreeSet::from([namespace.to_owned()])),
        Some(_) => {
            // For objects that were never applied, the permissions are unknown.
            let applied = inventory?.0.iter().filter(|(_, entry)| entry.uid.is_some());
            let namespaces: BTreeSet<String> =
                applied.filter_map(|(key, _)| key.namespace.as_deref().map(str::to_owned)).collect();
            if namespaces.is_empty() {
                return Some(Wanted::Nothing);
            }
            Limit::Namespaces(namespaces)
        }
    };
    let account = account.map(|account| format!("system:serviceaccount:{}:{}", account.namespace(), account.name()));
    Some(Wanted::Prevented(Arc::new(Protection {
        owner: Owner::git_sync(namespace, sync.metadata.name.as_deref().unwrap_or_default()),
        label: label.to_owned(),
        repository: format!("{} {namespace}/{}", spec.source().0, spec.source().1),
        reference: spec.followed_reference().into_owned(),
        base_dir: spec.base_dir.clone(),
        account,
        limit,
    })))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use mainstay_engine::managed::inventory::Entry;
    use mainstay_object::Key;

    fn check(namespace: &str, spec: Value, expected: &str) {
        let mut whole = json!({"gitRepository": "x", "prevent": true});
        json_patch::merge(&mut whole, &spec);
        let sync = json!({
            "apiVersion": "mainstay.dev/v1alpha1", "kind": "GitSync", "metadata": {"namespace": namespace, "name": "x"},
            "spec": whole,
        });
        let sync: GitSync = serde_json::from_value(sync).unwrap();
        let rights = Rights { trusted: vec!["mainstay-system".to_owned()], ..Rights::default() };
        let mut inventory = Inventory::default();
        for (place, uid) in
            [(Some("shop"), Some([1; 16])), (Some("db"), Some([2; 16])), (Some("none"), None), (None, Some([3; 16]))]
        {
            let entry = Entry { uid, ..Entry::default() };
            inventory.0.insert(Key::new("", "ConfigMap", place, "a"), entry);
        }
        let found = wanted(&sync, "shop.x", &rights, Some(&inventory), Timestamp::UNIX_EPOCH).unwrap();
        let found = match found {
            Wanted::Prevented(protection) => match &protection.limit {
                Limit::None => format!("everywhere {}", protection.account.as_deref().unwrap_or_default()),
                Limit::Namespaces(namespaces) => {
                    format!("in {namespaces:?} {}", protection.account.as_deref().unwrap_or_default())
                }
            },
            other => format!("{other:?}"),
        };
        assert_eq!(found.trim(), expected, "{namespace} {spec}");
    }

    #[test]
    fn a_git_sync_prevents_as_far_as_it_reaches() {
        let account = json!({"serviceAccountName": "deployer"});
        check("mainstay-system", json!({}), "everywhere");
        check("mainstay-system", account.clone(), "everywhere system:serviceaccount:mainstay-system:deployer");
        check("shop", json!({}), "in {\"shop\"}");
        check("shop", account, "in {\"db\", \"shop\"} system:serviceaccount:shop:deployer");
        check("shop", json!({"prevent": false}), "Nothing");
        check("mainstay-system", json!({"kubeConfig": {"secretRef": {"name": "staging"}}}), "Nothing");
        check("shop", json!({"suspend": true}), "Nothing");
        check("shop", json!({"suspendUntil": "2999-01-01T00:00:00Z"}), "Nothing");
    }
}
