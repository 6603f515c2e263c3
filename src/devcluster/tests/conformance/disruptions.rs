//! PodDisruptionBudgets, and the evictions that they allow and refuse.

use serde_json::{Value, json};

use crate::patches::deployment;
use crate::world::{Answer, World, claim, condition, timeless};

fn budget(name: &str, limit: Value) -> Value {
    let mut body = json!({"metadata": {"name": name}, "spec": {"selector": {"matchLabels": {"app": "d"}}}});
    for (field, value) in limit.as_object().into_iter().flatten() {
        body["spec"][field] = value.clone();
    }
    body
}

/// Creates a Deployment with two pods and waits until they are ready.
async fn two_pods(w: &World) -> Vec<String> {
    let mut body = deployment("d");
    body["spec"]["replicas"] = 2.into();
    w.post(&w.path("apps/v1", "deployments"), body).await.code(201);
    let ready = |a: &Answer| a.body["status"]["readyReplicas"] == 2;
    w.until(&w.path("apps/v1", "deployments/d"), "the pods are ready", ready).await;
    let pods = w.get(&w.path("v1", "pods?labelSelector=app%3Dd")).await.ok();
    let names = pods["items"].as_array().unwrap().iter().map(|pod| pod["metadata"]["name"].as_str().unwrap());
    names.map(ToOwned::to_owned).collect()
}

/// Waits until a budget has observed its generation and counts this many healthy pods. Returns the status without
/// times.
async fn status(w: &World, name: &str, healthy: i64) -> Value {
    let path = w.path("policy/v1", &format!("poddisruptionbudgets/{name}"));
    let seen = |a: &Answer| {
        let status = &a.body["status"];
        status["observedGeneration"] == a.body["metadata"]["generation"]
            && status["currentHealthy"] == healthy
            && !condition(&a.body, "DisruptionAllowed").is_empty()
    };
    timeless(&w.until(&path, "the budget has been counted", seen).await.body["status"])
}

fn counted(healthy: i64, wanted: i64, allowed: i64, expected: i64) -> Value {
    let (status, reason) = if allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
    json!({
        "observedGeneration": 1, "currentHealthy": healthy, "desiredHealthy": wanted, "disruptionsAllowed": allowed,
        "expectedPods": expected,
        "conditions": [{
            "type": "DisruptionAllowed", "status": status, "reason": reason, "message": "",
            "observedGeneration": 1, "lastTransitionTime": "TIME",
        }],
    })
}

#[test]
fn a_budget_counts_its_pods() {
    claim(async |w| {
        two_pods(w).await;
        let path = w.path("policy/v1", "poddisruptionbudgets");
        for (name, limit, expected) in [
            ("least", json!({"minAvailable": 1}), counted(2, 1, 1, 2)),
            ("all", json!({"minAvailable": 2}), counted(2, 2, 0, 2)),
            ("more", json!({"minAvailable": 5}), counted(2, 5, 0, 2)),
            ("part", json!({"minAvailable": "30%"}), counted(2, 1, 1, 2)),
            ("most", json!({"maxUnavailable": 2}), counted(2, 0, 2, 2)),
            ("some", json!({"maxUnavailable": "60%"}), counted(2, 0, 2, 2)),
        ] {
            w.post(&path, budget(name, limit)).await.code(201);
            assert_eq!(status(w, name, 2).await, expected, "{name}");
        }
    });
}

#[test]
fn a_budget_without_pods_allows_nothing() {
    claim(async |w| {
        w.post(&w.path("policy/v1", "poddisruptionbudgets"), budget("b", json!({"maxUnavailable": 1}))).await.code(201);
        assert_eq!(status(w, "b", 0).await, counted(0, 0, 0, 0));
        let event = w.event("PodDisruptionBudget", "b", "NoPods").await;
        assert_eq!((&event["message"], &event["type"]), (&json!("No matching pods found"), &json!("Normal")));
    });
}

#[test]
fn a_budget_of_a_single_pod_needs_whole_numbers() {
    claim(async |w| {
        let pod = json!({"metadata": {"name": "p", "labels": {"app": "d"}}, "spec": {"containers": [{"name": "c", "image": "busybox:1"}]}});
        w.post(&w.path("v1", "pods"), pod).await.code(201);
        w.until(&w.path("v1", "pods/p"), "the pod is ready", |a| condition(&a.body, "Ready") == "True").await;
        let path = w.path("policy/v1", "poddisruptionbudgets");
        w.post(&path, budget("whole", json!({"minAvailable": 0}))).await.code(201);
        assert_eq!(status(w, "whole", 1).await, counted(1, 0, 1, 1));
        w.post(&path, budget("part", json!({"minAvailable": "50%"}))).await.code(201);
        assert_eq!(status(w, "part", 1).await, counted(1, 0, 0, 0));
        w.event("PodDisruptionBudget", "part", "UnmanagedPods").await;
    });
}

#[test]
fn an_eviction_that_breaks_a_budget_is_refused() {
    claim(async |w| {
        let pods = two_pods(w).await;
        w.post(&w.path("policy/v1", "poddisruptionbudgets"), budget("b", json!({"minAvailable": 2}))).await.code(201);
        status(w, "b", 2).await;
        let answer = evict(w, &pods[0], "").await;
        let message = "Cannot evict pod as it would violate the pod's disruption budget.";
        let answer = answer.refused(429, "TooManyRequests", message);
        assert_eq!(
            answer.causes(),
            ["DisruptionBudget : The disruption budget b needs 2 healthy pods and has 2 currently"]
        );
        w.get(&w.path("v1", &format!("pods/{}", pods[0]))).await.code(200);
    });
}

async fn evict(w: &World, pod: &str, query: &str) -> Answer {
    let body = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}});
    w.post(&w.path("v1", &format!("pods/{pod}/eviction{query}")), body).await
}

#[test]
fn an_eviction_takes_from_the_budget() {
    claim(async |w| {
        let pods = two_pods(w).await;
        w.post(&w.path("policy/v1", "poddisruptionbudgets"), budget("b", json!({"maxUnavailable": 1}))).await.code(201);
        assert_eq!(status(w, "b", 2).await, counted(2, 1, 1, 2));
        evict(w, &pods[0], "?dryRun=All").await.code(201);
        w.get(&w.path("v1", &format!("pods/{}", pods[0]))).await.code(200);
        let done = evict(w, &pods[0], "").await.code(201).body;
        assert_eq!(
            done,
            json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})
        );
        w.until(&w.path("v1", &format!("pods/{}", pods[0])), "the evicted pod is gone", |a| a.code == 404).await;
        assert_eq!(status(w, "b", 2).await, counted(2, 1, 1, 2));
    });
}

#[test]
fn a_pod_that_is_not_ready_may_go_when_enough_others_are_or_when_the_budget_says_so() {
    claim(async |w| {
        let pod = |name: &str, outcome: &str| {
            json!({
                "metadata": {"name": name, "labels": {"app": "d"}, "annotations": {"devcluster.dev/outcome": outcome}},
                "spec": {"containers": [{"name": "c", "image": "busybox:1"}]},
            })
        };
        for name in ["sick", "ill"] {
            w.post(&w.path("v1", "pods"), pod(name, "never-ready")).await.code(201);
            let runs = |a: &Answer| a.body["status"]["phase"] == "Running";
            w.until(&w.path("v1", &format!("pods/{name}")), "the pod runs", runs).await;
        }
        let budgets = w.path("policy/v1", "poddisruptionbudgets");
        w.post(&budgets, budget("b", json!({"minAvailable": 1}))).await.code(201);
        assert_eq!(status(w, "b", 0).await, counted(0, 1, 0, 2));
        let refused = evict(w, "sick", "").await.code(429);
        assert_eq!(
            refused.causes(),
            ["DisruptionBudget : The disruption budget b needs 1 healthy pods and has 0 currently"]
        );
        w.post(&w.path("v1", "pods"), pod("well", "")).await.code(201);
        status(w, "b", 1).await;
        evict(w, "sick", "").await.code(201);
        w.until(&w.path("v1", "pods/sick"), "the evicted pod is gone", |a| a.code == 404).await;
        let always = json!({"spec": {"minAvailable": 2, "unhealthyPodEvictionPolicy": "AlwaysAllow"}});
        w.merge(&format!("{budgets}/b"), always).await.code(200);
        status(w, "b", 1).await;
        evict(w, "well", "").await.code(429);
        evict(w, "ill", "").await.code(201);
    });
}

#[test]
fn an_evicted_pod_says_so_while_it_ends() {
    claim(async |w| {
        let pods = two_pods(w).await;
        let path = w.path("v1", &format!("pods/{}", pods[0]));
        w.merge(&path, json!({"metadata": {"finalizers": ["example.com/stay"]}})).await.code(200);
        evict(w, &pods[0], "").await.code(201);
        let going = w.get(&path).await.ok();
        let conditions = going["status"]["conditions"].as_array().unwrap();
        let target = conditions.iter().find(|c| c["type"] == "DisruptionTarget").expect("the pod says why it goes");
        assert_eq!(
            (&target["status"], &target["reason"], &target["message"]),
            (&json!("True"), &json!("EvictionByEvictionAPI"), &json!("Eviction API: evicting"))
        );
        w.merge(&path, json!({"metadata": {"finalizers": null}})).await.code(200);
    });
}

#[test]
fn an_eviction_must_name_its_pod() {
    claim(async |w| {
        let path = w.path("v1", "pods/none/eviction");
        let body = |name: &str| json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
        w.post(&path, body("none")).await.refused(404, "NotFound", "pods \"none\" not found");
        let message = "name in URL does not match name in Eviction object";
        w.post(&path, body("other")).await.refused(400, "BadRequest", message);
    });
}
