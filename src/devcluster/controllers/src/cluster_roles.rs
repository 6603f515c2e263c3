//! Aggregated ClusterRoles: copies the rules of the selected ClusterRoles.

use serde_json::{Value, json};

use super::controller::{Controller, Queue};
use devcluster_apiserver::client::{Client, Subject};
use devcluster_apiserver::history::Event;
use devcluster_apiserver::object::is_terminating;
use devcluster_apiserver::selector::selects;
use devcluster_apiserver::store::Key;

const CLUSTER_ROLES: &str = "clusterroles.rbac.authorization.k8s.io";
const MANAGER: &str = "clusterrole-aggregation-controller";

/// The controller of aggregated ClusterRoles.
pub(super) struct ClusterRoles;

impl Controller for ClusterRoles {
    fn enqueue(&mut self, event: &Event, queue: &mut Queue<'_>) {
        if &*event.storage == CLUSTER_ROLES {
            // Any ClusterRole may select any other ClusterRole, so one reconcile covers all.
            queue.add(Subject { storage: event.storage.clone(), key: Key::new("", "") });
        }
    }

    fn reconcile(&mut self, client: &Client, _: &Subject, _: &mut Queue<'_>) {
        let roles = client.list(CLUSTER_ROLES, "");
        for role in &roles {
            let Some(selectors) = role["aggregationRule"]["clusterRoleSelectors"].as_array() else { continue };
            if is_terminating(role) {
                continue;
            }
            let mut rules: Vec<&Value> = Vec::new();
            for selector in selectors {
                for other in roles.iter().filter(|other| other["metadata"]["name"] != role["metadata"]["name"]) {
                    if selects(selector, &other["metadata"]["labels"]) {
                        let new = other["rules"].as_array().into_iter().flatten();
                        let new: Vec<&Value> = new.filter(|rule| !rules.contains(rule)).collect();
                        rules.extend(new);
                    }
                }
            }
            if role["rules"].as_array().is_none_or(|old| !old.iter().eq(rules.iter().copied())) {
                let name = role["metadata"]["name"].as_str().unwrap_or_default();
                client.merge(MANAGER, &Subject::new(CLUSTER_ROLES, "", name), json!({"rules": rules}));
            }
        }
    }
}
