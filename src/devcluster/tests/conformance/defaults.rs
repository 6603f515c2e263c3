//! Defaults of every built-in kind: compares minimal objects with recordings of a real server.

use serde_json::{Value, json};

use crate::world::{World, claim, timeless};

fn recorded() -> serde_json::Map<String, Value> {
    serde_json::from_str(include_str!("../../apiserver/tests/data/defaults.json")).expect("the recording is JSON")
}

/// Returns the path of a kind's collection for a dry run.
async fn collection(w: &World, api_version: &str, kind: &str) -> String {
    let root = if api_version.contains('/') { "apis" } else { "api" };
    let list = w.get(&format!("/{root}/{api_version}")).await.ok();
    let resources = list["resources"].as_array().unwrap();
    let is_kind = |r: &&Value| r["kind"] == kind && !r["name"].as_str().unwrap_or_default().contains('/');
    let resource = resources.iter().find(is_kind).expect("the kind is served");
    let plural = resource["name"].as_str().unwrap();
    let path = if resource["namespaced"] == true {
        w.path(api_version, plural)
    } else {
        format!("/{root}/{api_version}/{plural}")
    };
    format!("{path}?dryRun=All")
}

/// Removes run-specific values from an object.
fn comparable(object: &Value, ns: &str) -> Value {
    let uid = object["metadata"]["uid"].as_str().unwrap_or("69a29baf-51d9-4970-9c53-b2a215701e85").to_owned();
    let text = object.to_string().replace(&uid, "UID").replace(ns, "NS").replace("\"t1\"", "\"NS\"");
    let mut object: Value = serde_json::from_str(&text).unwrap();
    let metadata = object["metadata"].as_object_mut().unwrap();
    for field in ["uid", "creationTimestamp", "resourceVersion", "managedFields"] {
        metadata.remove(field);
    }
    if object["kind"] == "Service" {
        object["spec"]["clusterIP"] = "IP".into();
        object["spec"]["clusterIPs"] = json!(["IP"]);
    }
    let tokens = |name: &Value| name.as_str().is_some_and(|name| name.starts_with("kube-api-access-"));
    if object["kind"] == "Pod" {
        for volume in object["spec"]["volumes"].as_array_mut().into_iter().flatten().filter(|v| tokens(&v["name"])) {
            volume["name"] = "kube-api-access".into();
            // The recorded server adds a non-standard source.
            volume["projected"]["sources"].as_array_mut().unwrap().truncate(3);
        }
        for container in object["spec"]["containers"].as_array_mut().into_iter().flatten() {
            for mount in container["volumeMounts"].as_array_mut().into_iter().flatten().filter(|m| tokens(&m["name"])) {
                mount["name"] = "kube-api-access".into();
            }
        }
    }
    object
}

#[test]
fn every_kind_gets_its_defaults() {
    claim(async |w| {
        w.until(&w.path("v1", "serviceaccounts/default"), "the account is there", |a| a.code == 200).await;
        for (name, case) in &recorded() {
            let mut sent: Value = case["sent"].clone();
            if sent["involvedObject"]["namespace"].is_string() {
                sent["involvedObject"]["namespace"] = w.ns.clone().into();
            }
            let (api_version, kind) = (sent["apiVersion"].as_str().unwrap(), sent["kind"].as_str().unwrap());
            let path = collection(w, api_version, kind).await;
            let made = w.post(&path, sent.clone()).await.code(201).body;
            let (made, wanted) = (comparable(&made, &w.ns), comparable(&case["created"], &w.ns));
            assert_eq!(timeless(&made), timeless(&wanted), "{name}");
        }
    });
}
