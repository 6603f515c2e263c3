//! Discovery, health, OpenAPI.

use serde_json::{Value, json};

use crate::world::claim;

#[test]
fn health_and_version_answer() {
    claim(async |w| {
        for path in ["/healthz", "/readyz", "/livez"] {
            assert_eq!(w.get(path).await.code(200).text, "ok", "{path}");
        }
        let version = w.get("/version").await.ok();
        assert_eq!(version["major"], "1");
        assert!(version["gitVersion"].as_str().unwrap().starts_with("v1."), "{version}");
    });
}

#[test]
fn legacy_discovery_lists_groups_and_resources() {
    claim(async |w| {
        let api = w.get("/api").await.ok();
        assert_eq!((&api["kind"], &api["versions"]), (&json!("APIVersions"), &json!(["v1"])));
        let groups = w.get("/apis").await.ok();
        assert_eq!(groups["kind"], "APIGroupList");
        let apps = groups["groups"].as_array().unwrap().iter().find(|g| g["name"] == "apps").unwrap();
        assert_eq!(apps["preferredVersion"], json!({"groupVersion": "apps/v1", "version": "v1"}));
        let list = w.get("/apis/apps/v1").await.ok();
        assert_eq!((&list["kind"], &list["groupVersion"]), (&json!("APIResourceList"), &json!("apps/v1")));
        let resources = list["resources"].as_array().unwrap();
        let by_name = |name: &str| resources.iter().find(|r| r["name"] == name).unwrap();
        let deployments = by_name("deployments");
        assert_eq!(deployments["singularName"], "deployment");
        assert_eq!((&deployments["namespaced"], &deployments["kind"]), (&json!(true), &json!("Deployment")));
        assert_eq!(deployments["shortNames"], json!(["deploy"]));
        assert_eq!(deployments.get("group"), None, "an empty group would be taken as it is");
        let scale = by_name("deployments/scale");
        assert_eq!(
            (&scale["group"], &scale["version"], &scale["kind"]),
            (&json!("autoscaling"), &json!("v1"), &json!("Scale"))
        );
    });
}

#[test]
fn aggregated_discovery_answers_in_one_call() {
    claim(async |w| {
        let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
        let answer = w.get_as("/apis", accept).await.code(200);
        let kind = answer.headers["content-type"].to_str().unwrap();
        assert!(kind.contains("as=APIGroupDiscoveryList") && kind.contains("v=v2"), "{kind}");
        assert_eq!(answer.body["kind"], "APIGroupDiscoveryList");
        assert_eq!(answer.body["apiVersion"], "apidiscovery.k8s.io/v2");
        let items = answer.body["items"].as_array().unwrap();
        let apps = items.iter().find(|i| i["metadata"]["name"] == "apps").unwrap();
        let resources = apps["versions"][0]["resources"].as_array().unwrap();
        let deployments = resources.iter().find(|r| r["resource"] == "deployments").unwrap();
        assert_eq!(
            (&deployments["scope"], &deployments["singularResource"]),
            (&json!("Namespaced"), &json!("deployment"))
        );
        assert_eq!(deployments["responseKind"]["kind"], "Deployment");
        let older = "application/json;g=apidiscovery.k8s.io;v=v9;as=APIGroupDiscoveryList,application/json";
        assert_eq!(w.get_as("/apis", older).await.ok()["kind"], "APIGroupList", "an unknown version is passed over");
        let core = w.get_as("/api", accept).await.ok();
        assert_eq!(core["items"][0]["metadata"].get("name"), None);
        // Other claims create CRDs concurrently, so the response may change between two requests, but not every time.
        let mut etag = answer.headers["etag"].to_str().unwrap().to_owned();
        let mut codes = Vec::new();
        while codes.last() != Some(&304) && codes.len() < 20 {
            let known = [("Accept", accept), ("If-None-Match", etag.as_str())];
            let again = w.send(reqwest::Method::GET, "/apis", &known, "").await;
            codes.push(again.code);
            etag = again.headers["etag"].to_str().unwrap().to_owned();
        }
        assert_eq!(codes.last(), Some(&304), "{codes:?}");
    });
}

#[test]
fn a_custom_resource_is_discovered_in_both_forms() {
    claim(async |w| {
        let custom = w.custom(json!({"type": "object"}), json!({"subresources": {"status": {}}})).await;
        let path = format!("/apis/{}", custom.api_version);
        let list = w.until(&path, "the group version is listed", |a| a.code == 200).await.body;
        let names: Vec<&Value> = list["resources"].as_array().unwrap().iter().map(|r| &r["name"]).collect();
        assert_eq!(names, [&json!("widgets"), &json!("widgets/status")]);
        let groups = w.get("/apis").await.ok();
        assert!(groups["groups"].as_array().unwrap().iter().any(|g| g["name"] == custom.group.as_str()));
    });
}

#[test]
fn openapi_lets_kubectl_validate_on_the_server() {
    claim(async |w| {
        let index = w.get("/openapi/v3").await.ok();
        let relative = index["paths"]["apis/apps/v1"]["serverRelativeURL"].as_str().unwrap();
        let document = w.get(relative).await.ok();
        let patches = document["paths"].as_object().unwrap().values().filter_map(|p| p.get("patch"));
        let deployment = patches
            .filter(|p| p["x-kubernetes-group-version-kind"]["kind"] == "Deployment")
            .find(|p| p["parameters"].as_array().is_some_and(|l| l.iter().any(|q| q["name"] == "fieldValidation")));
        assert!(deployment.is_some());
    });
}

#[test]
fn a_wrong_verb_is_a_405() {
    claim(async |w| {
        w.put(&w.maps(""), json!({})).await.refused_like(405, "MethodNotAllowed", "");
    });
}

#[test]
fn one_may_ask_what_one_may_do() {
    claim(async |w| {
        let body = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {"verb": "get", "resource": "pods", "namespace": w.ns}},
        });
        let answer = w.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body).await.code(201);
        assert_eq!(answer.body["status"]["allowed"], true);
    });
}

#[test]
fn resources_tell_in_which_version_they_are_stored() {
    claim(async |w| {
        let hash = |list: &Value, name: &str| {
            let found = list["resources"].as_array().unwrap().iter().find(|r| r["name"] == name).unwrap();
            found["storageVersionHash"].clone()
        };
        let core = w.get("/api/v1").await.ok();
        assert_eq!((core.get("apiVersion"), &core["groupVersion"]), (None, &json!("v1")));
        assert_eq!(hash(&core, "configmaps"), "qFsyl6wFWjQ=");
        let apps = w.get("/apis/apps/v1").await.ok();
        assert_eq!((&apps["apiVersion"], hash(&apps, "deployments")), (&json!("v1"), json!("8aSe+NMegvE=")));
        assert_eq!(hash(&apps, "deployments/scale"), Value::Null);
        let scaled = w.get("/apis/autoscaling/v1").await.ok();
        assert_eq!(hash(&scaled, "horizontalpodautoscalers"), "qwQve8ut294=");
    });
}

#[test]
fn custom_resources_are_listed_with_their_verbs_in_this_order() {
    claim(async |w| {
        let custom = w.custom(json!({"type": "object"}), json!({})).await;
        let served = |a: &crate::world::Answer| a.body["resources"][0]["verbs"].is_array();
        let list = w.until(&format!("/apis/{}", custom.api_version), "it is discovered", served).await.body;
        let verbs = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];
        assert_eq!(list["resources"][0]["verbs"], json!(verbs));
        let list = w.get(&custom.path).await.ok();
        assert_eq!(list["metadata"]["continue"], "");
    });
}
