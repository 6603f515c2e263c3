//! Lists, pages and selectors.

use serde_json::{Value, json};

use crate::world::{World, claim, rv};

fn names(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().expect("a list has items");
    items.iter().map(|item| item["metadata"]["name"].as_str().expect("an item has a name").to_owned()).collect()
}

/// Creates three ConfigMaps. Their label `mine` excludes the namespace's `kube-root-ca.crt`.
async fn three(w: &World) {
    for (name, tier) in [("c", "front"), ("a", "back"), ("b", "front")] {
        w.post(&w.maps(""), json!({"metadata": {"name": name, "labels": {"tier": tier, "mine": "1"}}})).await.code(201);
    }
}

#[test]
fn an_empty_list_has_items_and_the_version_of_the_store() {
    claim(async |w| {
        let list = w.get(&w.path("v1", "secrets?labelSelector=never%3Dever")).await.ok();
        assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("SecretList"), &json!("v1")));
        assert_eq!(list["items"], json!([]));
        let made = w.map("a", json!({})).await;
        let later = w.get(&w.path("v1", "secrets?labelSelector=never%3Dever")).await.ok();
        assert!(rv(&list) > 0);
        assert!(rv(&later) >= rv(&made), "the version of a list is the store's, not that of its items");
    });
}

#[test]
fn items_of_built_in_lists_have_no_kind_and_those_of_custom_resources_have() {
    claim(async |w| {
        w.map("a", json!({})).await;
        let list = w.get(&w.maps("")).await.ok();
        assert_eq!((&list["items"][0]["kind"], &list["items"][0]["apiVersion"]), (&Value::Null, &Value::Null));
        let custom = w.custom(json!({"type": "object"}), json!({})).await;
        w.post(&custom.path, custom.widget("a", json!({}))).await.code(201);
        let list = w.get(&custom.path).await.ok();
        assert_eq!(list["kind"], "WidgetList");
        assert_eq!(list["items"][0]["kind"], "Widget");
        assert_eq!(list["items"][0]["apiVersion"], custom.api_version.as_str());
    });
}

#[test]
fn lists_are_ordered_by_name() {
    claim(async |w| {
        three(w).await;
        assert_eq!(names(&w.get(&w.maps("?labelSelector=mine")).await.ok()), ["a", "b", "c"]);
    });
}

#[test]
fn pages_are_one_snapshot() {
    claim(async |w| {
        three(w).await;
        let first = w.get(&w.maps("?labelSelector=mine&limit=1")).await.ok();
        assert_eq!(names(&first), ["a"]);
        let token = first["metadata"]["continue"].as_str().unwrap().to_owned();
        w.delete(&w.maps("b"), json!({})).await.code(200);
        w.post(&w.maps(""), json!({"metadata": {"name": "bb", "labels": {"mine": "1"}}})).await.code(201);
        let rest = w.get(&w.maps(&format!("?labelSelector=mine&limit=10&continue={token}"))).await.ok();
        assert_eq!(names(&rest), ["b", "c"], "the deleted one still shows, the new one does not");
        assert_eq!(rv(&rest), rv(&first));
        assert_eq!(rest["metadata"]["continue"], Value::Null);
    });
}

#[test]
fn remaining_items_are_counted_only_without_selectors() {
    claim(async |w| {
        let path = w.path("v1", "resourcequotas");
        for name in ["a", "b", "c"] {
            w.post(&path, json!({"metadata": {"name": name}, "spec": {"hard": {"pods": "9"}}})).await.code(201);
        }
        let page = w.get(&format!("{path}?limit=1")).await.ok();
        assert_eq!(page["metadata"]["remainingItemCount"], 2);
        let page = w.get(&format!("{path}?limit=1&fieldSelector=metadata.name%21%3Db")).await.ok();
        assert_eq!(page["metadata"]["remainingItemCount"], Value::Null);
        assert!(page["metadata"]["continue"].is_string());
    });
}

#[test]
fn a_nonsense_continue_token_is_a_400() {
    claim(async |w| {
        w.get(&w.maps("?limit=1&continue=nonsense")).await.refused_like(400, "BadRequest", "");
    });
}

#[test]
fn continue_with_a_resource_version_is_a_400() {
    claim(async |w| {
        three(w).await;
        let first = w.get(&w.maps("?limit=1")).await.ok();
        let token = first["metadata"]["continue"].as_str().unwrap().to_owned();
        let answer = w.get(&w.maps(&format!("?limit=1&continue={token}&resourceVersion=5"))).await;
        let message = "specifying resource version is not allowed when using continue";
        assert_eq!((answer.code, answer.message().contains(message)), (400, true), "{}", answer.text);
    });
}

#[test]
fn label_selectors_select() {
    claim(async |w| {
        three(w).await;
        w.post(&w.maps(""), json!({"metadata": {"name": "d", "labels": {"mine": "1"}}})).await.code(201);
        for (selector, expected) in [
            ("tier=front", vec!["b", "c"]),
            ("tier==back", vec!["a"]),
            ("tier!=front", vec!["a", "d"]),
            ("tier in (front,back)", vec!["a", "b", "c"]),
            ("tier notin (front)", vec!["a", "d"]),
            ("tier", vec!["a", "b", "c"]),
            ("!tier", vec!["d"]),
            ("tier=front,tier!=back", vec!["b", "c"]),
        ] {
            let encoded: String =
                selector.replace('!', "%21").replace('=', "%3D").replace(',', "%2C").replace(' ', "%20");
            let list = w.get(&w.maps(&format!("?labelSelector=mine%2C{encoded}"))).await.ok();
            assert_eq!(names(&list), expected, "{selector}");
        }
    });
}

#[test]
fn a_nonsense_label_selector_is_a_400() {
    claim(async |w| {
        w.get(&w.maps("?labelSelector=a%3D%3D%3D%21")).await.refused_like(400, "BadRequest", "");
    });
}

#[test]
fn field_selectors_know_name_and_namespace() {
    claim(async |w| {
        three(w).await;
        let list = w.get(&w.maps("?fieldSelector=metadata.name%3Db")).await.ok();
        assert_eq!(names(&list), ["b"]);
        let across = format!(
            "/api/v1/configmaps?fieldSelector=metadata.namespace%3D{},metadata.name%21%3Db&labelSelector=mine",
            w.ns
        );
        assert_eq!(names(&w.get(&across).await.ok()), ["a", "c"]);
    });
}

#[test]
fn an_unknown_field_selector_is_a_400() {
    claim(async |w| {
        let message = "\"data.i\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"";
        w.get(&w.maps("?fieldSelector=data.i%3D1")).await.refused(400, "BadRequest", message);
        let message = "field label not supported: foo";
        w.get(&w.path("v1", "pods?fieldSelector=foo%3D1")).await.refused(400, "BadRequest", message);
    });
}

#[test]
fn kinds_have_field_selectors_of_their_own() {
    claim(async |w| {
        let secrets = w.path("v1", "secrets");
        w.post(&secrets, json!({"metadata": {"name": "o"}})).await.code(201);
        w.post(&secrets, json!({"metadata": {"name": "t"}, "type": "example.com/t"})).await.code(201);
        let list = w.get(&format!("{secrets}?fieldSelector=type%3Dexample.com%2Ft")).await.ok();
        assert_eq!(names(&list), ["t"]);
        let own = format!("/api/v1/namespaces?fieldSelector=status.phase%3DActive,metadata.name%3D{}", w.ns);
        assert_eq!(names(&w.get(&own).await.ok()), [w.ns.as_str()]);
    });
}

#[test]
fn a_list_not_older_than_the_future_times_out() {
    claim(async |w| {
        let answer = w.get(&w.maps("?resourceVersion=900000000000&resourceVersionMatch=NotOlderThan")).await;
        assert_eq!((answer.code, answer.reason()), (504, "Timeout"), "{}", answer.text);
        assert!(answer.causes().iter().any(|c| c.starts_with("ResourceVersionTooLarge")), "{}", answer.text);
    });
}

#[test]
fn a_list_can_be_of_an_exact_version() {
    claim(async |w| {
        three(w).await;
        let then = w.get(&w.maps("?labelSelector=mine")).await.ok();
        w.delete(&w.maps("a"), json!({})).await.code(200);
        let exact = format!("?labelSelector=mine&resourceVersion={}&resourceVersionMatch=Exact", rv(&then));
        let list = w.get(&w.maps(&exact)).await.ok();
        assert_eq!(names(&list), ["a", "b", "c"]);
        assert_eq!(rv(&list), rv(&then));
    });
}

#[test]
fn a_match_without_a_version_is_refused() {
    claim(async |w| {
        for query in ["Exact", "Exact&resourceVersion=0", "Nonsense&resourceVersion=1"] {
            let answer = w.get(&w.maps(&format!("?resourceVersionMatch={query}"))).await;
            answer.refused_like(422, "Invalid", "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: ");
        }
    });
}

#[test]
fn metadata_lists_carry_partial_objects() {
    claim(async |w| {
        w.map("a", json!({"k": "v"})).await;
        let accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
        let list = w.get_as(&w.maps("?fieldSelector=metadata.name%3Da"), accept).await.ok();
        assert_eq!(
            (&list["kind"], &list["apiVersion"]),
            (&json!("PartialObjectMetadataList"), &json!("meta.k8s.io/v1"))
        );
        let item = &list["items"][0];
        assert_eq!((&item["kind"], &item["apiVersion"]), (&json!("PartialObjectMetadata"), &json!("meta.k8s.io/v1")));
        assert_eq!((&item["metadata"]["name"], &item["data"]), (&json!("a"), &Value::Null));
    });
}

#[test]
fn a_table_is_what_kubectl_prints() {
    claim(async |w| {
        w.map("a", json!({"k": "v", "l": "w"})).await;
        let accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
        let table = w.get_as(&w.maps("?fieldSelector=metadata.name%3Da"), accept).await.ok();
        assert_eq!((&table["kind"], &table["apiVersion"]), (&json!("Table"), &json!("meta.k8s.io/v1")));
        let columns: Vec<&str> =
            table["columnDefinitions"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect();
        assert_eq!(columns, ["Name", "Data", "Age"]);
        assert_eq!(table["rows"][0]["cells"][0], "a");
        assert_eq!(table["rows"][0]["cells"][1], 2);
        assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    });
}

#[test]
fn an_unacceptable_accept_is_a_406() {
    claim(async |w| {
        let answer = w.get_as(&w.maps(""), "application/xml").await;
        let only = "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/vnd.kubernetes.protobuf";
        let streams = ", application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";
        answer.refused(406, "NotAcceptable", &format!("{only}{streams}"));
        let headers = [("Content-Type", "application/json"), ("Accept", "application/xml")];
        let body = json!({"metadata": {"name": "a"}}).to_string();
        let answer = w.send(reqwest::Method::POST, &w.maps(""), &headers, &body).await;
        answer.refused(406, "NotAcceptable", only);
        w.get(&w.maps("a")).await.code(404);
        w.get_as(&w.maps(""), "application/*").await.code(406);
        let message = "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf";
        let unknown = "application/json;as=Unknown;g=meta.k8s.io;v=v1";
        w.get_as(&w.maps(""), unknown).await.refused(406, "NotAcceptable", message);
        let custom = w.custom(json!({"type": "object"}), json!({})).await;
        w.get_as(&custom.path, "application/xml").await.refused(406, "NotAcceptable", message);
    });
}

#[test]
fn contradictory_parameters_of_a_list_are_all_named() {
    claim(async |w| {
        three(w).await;
        let first = w.get(&w.maps("?limit=1")).await.ok();
        let token = first["metadata"]["continue"].as_str().unwrap().to_owned();
        let without = "FieldValueForbidden resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided";
        let continued = "FieldValueForbidden resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided";
        let zero = "FieldValueForbidden resourceVersionMatch: Forbidden: resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
        let initial =
            "FieldValueForbidden sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list".to_owned();
        for (query, causes) in [
            ("resourceVersionMatch=Exact".to_owned(), vec![without.to_owned()]),
            (
                format!("limit=1&continue={token}&resourceVersionMatch=NotOlderThan"),
                vec![without.to_owned(), continued.to_owned()],
            ),
            (
                format!("limit=1&continue={token}&resourceVersion=5&resourceVersionMatch=Exact"),
                vec![continued.to_owned()],
            ),
            ("resourceVersion=0&resourceVersionMatch=Exact".to_owned(), vec![zero.to_owned()]),
            ("sendInitialEvents=false".to_owned(), vec![initial.clone()]),
            ("sendInitialEvents=true&resourceVersionMatch=Exact".to_owned(), vec![without.to_owned(), initial]),
        ] {
            let answer = w.get(&w.maps(&format!("?{query}"))).await;
            assert_eq!((answer.code, answer.reason()), (422, "Invalid"), "{query}: {}", answer.text);
            assert_eq!(answer.causes(), causes, "{query}");
            assert_eq!(answer.body["details"]["kind"], "ListOptions");
            assert_eq!(answer.body["details"]["group"], "meta.k8s.io");
            let start = "ListOptions.meta.k8s.io \"\" is invalid: ";
            assert!(answer.message().starts_with(start), "{}", answer.text);
        }
    });
}

#[test]
fn contradictory_parameters_of_a_watch_are_refused() {
    claim(async |w| {
        let initial = "FieldValueForbidden resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
        let alone = "FieldValueForbidden resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
        let continued = "FieldValueForbidden resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided";
        let unsupported = "FieldValueNotSupported resourceVersionMatch: Unsupported value: \"Exact\": supported values: \"NotOlderThan\"";
        for (query, causes) in [
            ("sendInitialEvents=true", vec![initial]),
            ("sendInitialEvents=true&resourceVersionMatch=Exact", vec![initial, unsupported]),
            ("resourceVersion=1&resourceVersionMatch=NotOlderThan", vec![alone]),
            ("resourceVersion=1&resourceVersionMatch=Exact", vec![alone, unsupported]),
            ("continue=x", vec![continued]),
        ] {
            let answer = w.get(&w.maps(&format!("?watch=1&{query}"))).await;
            assert_eq!((answer.code, answer.reason()), (422, "Invalid"), "{query}: {}", answer.text);
            assert_eq!(answer.causes(), causes, "{query}");
        }
    });
}

#[test]
fn contradictory_parameters_of_a_deletion_of_many_are_refused() {
    claim(async |w| {
        three(w).await;
        let path = w.maps("?resourceVersionMatch=Exact");
        let answer = w.delete(&path, json!({})).await;
        answer.refused_like(422, "Invalid", "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: ");
        assert_eq!(names(&w.get(&w.maps("?labelSelector=mine")).await.ok()), ["a", "b", "c"]);
    });
}

#[test]
fn the_columns_of_a_table_say_what_they_mean() {
    claim(async |w| {
        let accept = "application/json;as=Table;v=v1;g=meta.k8s.io";
        let told = |table: &Value| -> Vec<String> {
            let columns = table["columnDefinitions"].as_array().cloned().unwrap_or_default();
            columns.iter().map(|c| c["description"].as_str().unwrap_or_default().to_owned()).collect()
        };
        let pods = told(&w.get_as(&w.path("v1", "pods"), accept).await.ok());
        assert!(pods[0].starts_with("Name must be unique within a namespace."), "{pods:?}");
        assert_eq!(pods[1], "The aggregate readiness state of this pod for accepting traffic.");
        assert!(pods.iter().all(|text| !text.is_empty()), "{pods:?}");
        let columns = json!([
            {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
            {"name": "Colour", "type": "string", "jsonPath": ".spec.colour", "description": "How it looks"},
        ]);
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let widgets = w.custom(schema, json!({"additionalPrinterColumns": columns})).await;
        let custom = told(&w.get_as(&widgets.path, accept).await.ok());
        assert_eq!(custom[0], pods[0]);
        assert_eq!(custom[1..], ["Custom resource definition column (in JSONPath format): .spec.size", "How it looks"]);
    });
}
