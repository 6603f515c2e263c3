//! Refusals word for word: the messages of invalid requests.

use reqwest::Method;
use serde_json::{Value, json};

use crate::world::{Answer, World, claim};

const MERGE: &str = "application/merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

async fn body(w: &World, method: Method, path: &str, kind: &str, body: &str) -> Answer {
    w.send(method, path, &[("Content-Type", kind)], body).await
}

#[test]
fn bodies_that_cannot_be_read_are_shown_from_their_beginning() {
    claim(async |w| {
        let start = "the object provided is unrecognized (must be of type ConfigMap): ";
        for (sent, why) in [
            ("", "couldn't get version/kind; json parse error: unexpected end of JSON input (<empty>)"),
            ("{", "couldn't get version/kind; json parse error: unexpected end of JSON input ({)"),
        ] {
            let answer = body(w, Method::POST, &w.maps(""), "application/json", sent).await;
            answer.refused(400, "BadRequest", &format!("{start}{why}"));
        }
        for (sent, kind) in [("[]", "array"), ("\"x\"", "string")] {
            let answer = body(w, Method::POST, &w.maps(""), "application/json", sent).await;
            let why = format!(
                "{start}couldn't get version/kind; json parse error: json: cannot unmarshal {kind} into Go value of type struct"
            );
            answer.refused_like(400, "BadRequest", &why);
        }
        // `null` is an object without a name.
        let answer = body(w, Method::POST, &w.maps(""), "application/json", "null").await;
        let message = "ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is required";
        answer.refused(422, "Invalid", message);
    });
}

#[test]
fn bodies_of_other_kinds_and_versions_are_named() {
    claim(async |w| {
        let named = |kind: &str, version: &str| json!({"kind": kind, "apiVersion": version, "metadata": {"name": "z"}});
        let message = "Secret in version \"v1\" cannot be handled as a ConfigMap: converting (v1.Secret) to (core.ConfigMap): unknown conversion";
        w.post(&w.maps(""), named("Secret", "v1")).await.refused(400, "BadRequest", message);
        let message = "ConfigMap in version \"v2\" cannot be handled as a ConfigMap: no kind \"ConfigMap\" is registered for version \"v2\" in scheme \"pkg/runtime/scheme.go:111\"";
        w.post(&w.maps(""), named("ConfigMap", "v2")).await.refused(400, "BadRequest", message);
        let path = w.path("apps/v1", "deployments");
        let message = "ReplicaSet in version \"v1\" cannot be handled as a Deployment: converting (v1.ReplicaSet) to (apps.Deployment): unknown conversion";
        w.post(&path, named("ReplicaSet", "apps/v1")).await.refused(400, "BadRequest", message);
        let message =
            "the API version in the data (extensions/v1beta1) does not match the expected API version (apps/v1)";
        w.post(&path, named("Deployment", "extensions/v1beta1")).await.refused(400, "BadRequest", message);
        let message = "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: json: cannot unmarshal string into Go struct field ConfigMap.metadata of type v1.ObjectMeta";
        w.post(&w.maps(""), json!({"metadata": "x"})).await.refused(400, "BadRequest", message);
    });
}

#[test]
fn a_version_of_a_new_object_is_looked_at_last() {
    claim(async |w| {
        let versioned = |name: &str, version: &str| json!({"metadata": {"name": name, "resourceVersion": version}});
        w.post(&w.maps(""), versioned("b", "0")).await.code(201);
        w.post(&w.maps(""), versioned("c", "x")).await.code(201);
        let message = "resourceVersion should not be set on objects to be created";
        let answer = w.post(&w.maps(""), versioned("d", "1")).await;
        assert_eq!((answer.code, answer.message()), (500, message), "{}", answer.text);
        w.post(&w.maps("?dryRun=All"), versioned("d", "1")).await.code(201);
        let message = "namespaces \"nope\" not found";
        let path = "/api/v1/namespaces/nope/configmaps";
        w.post(path, versioned("d", "1")).await.refused(404, "NotFound", message);
    });
}

#[test]
fn names_are_refused_in_their_own_words() {
    claim(async |w| {
        let refused = async |path: &str, metadata: Value, causes: &[&str]| {
            let answer = w.post(path, json!({"metadata": metadata, "spec": {"ports": [{"port": 1}]}})).await;
            let found = answer.code(422).causes();
            assert_eq!(found.len(), causes.len(), "{found:?}");
            found.iter().zip(causes).for_each(|(found, start)| assert!(found.starts_with(start), "{found}"));
        };
        let services = w.path("v1", "services");
        let long = "a".repeat(254);
        let why =
            format!("FieldValueInvalid metadata.name: Invalid value: \"{long}\": must be no more than 253 characters");
        refused(&w.maps(""), json!({"name": long}), &[&why]).await;
        let dots = "FieldValueInvalid metadata.name: Invalid value: \"a.b\": must not contain dots";
        refused(&services, json!({"name": "a.b"}), &[dots]).await;
        refused("/api/v1/namespaces", json!({"name": "a.b"}), &[dots]).await;
        let long = "a".repeat(64);
        let why =
            format!("FieldValueInvalid metadata.name: Invalid value: \"{long}\": must be no more than 63 characters");
        refused(&services, json!({"name": long}), &[&why]).await;
        let generated =
            "FieldValueInvalid metadata.generateName: Invalid value: \"A_\": a lowercase RFC 1123 subdomain";
        let name = "FieldValueInvalid metadata.name: Invalid value: \"A_";
        refused(&w.maps(""), json!({"generateName": "A_"}), &[generated, name]).await;
        let label = "FieldValueInvalid metadata.labels: Invalid value: \"a/b/c\": a valid label key must consist of";
        refused(&w.maps(""), json!({"name": "x", "labels": {"a/b/c": "x"}}), &[label]).await;
    });
}

#[test]
fn owners_and_finalizers_are_checked() {
    claim(async |w| {
        let refused = async |metadata: Value, causes: &[&str]| {
            let mut metadata = metadata;
            metadata["name"] = "x".into();
            let found = w.post(&w.maps(""), json!({"metadata": metadata})).await.code(422).causes();
            assert_eq!(found, causes);
        };
        let at = "FieldValueInvalid metadata.ownerReferences";
        refused(
            json!({"ownerReferences": [{}]}),
            &[
                &format!("{at}.apiVersion: Invalid value: \"\": version must not be empty"),
                &format!("{at}.kind: Invalid value: \"\": must not be empty"),
                &format!("{at}.name: Invalid value: \"\": must not be empty"),
                &format!("{at}.uid: Invalid value: \"\": must not be empty"),
            ],
        )
        .await;
        let owner = |version: &str, kind: &str| json!({"apiVersion": version, "kind": kind, "name": "x", "uid": "u"});
        let why = format!(
            "{at}: Invalid value: {{\"apiVersion\":\"v1\",\"kind\":\"Event\",\"name\":\"x\",\"uid\":\"u\"}}: /v1, Kind=Event is disallowed from being an owner"
        );
        refused(json!({"ownerReferences": [owner("v1", "Event")]}), &[&why]).await;
        let why = format!("{at}.apiVersion: Invalid value: \"a/b/c\": version must not be empty");
        refused(json!({"ownerReferences": [owner("a/b/c", "X")]}), &[&why]).await;
        let both = "FieldValueInvalid metadata.finalizers: Invalid value: [\"foregroundDeletion\",\"orphan\"]: finalizer orphan and foregroundDeletion cannot be both set";
        refused(json!({"finalizers": ["foregroundDeletion", "orphan"]}), &[both]).await;
    });
}

#[test]
fn replacing_is_refused_in_this_order() {
    claim(async |w| {
        let with_uid = json!({"metadata": {"name": "none", "uid": "u"}});
        let message = "configmaps \"none\" not found";
        w.put(&w.maps("none"), with_uid.clone()).await.refused(404, "NotFound", message);
        let live = w.map("a", json!({"k": "v"})).await;
        let message = format!(
            "Operation cannot be fulfilled on configmaps \"a\": StorageError: invalid object, Code: 4, Key: /registry/configmaps/{}/a, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: u, UID in object meta: {}",
            w.ns,
            live["metadata"]["uid"].as_str().unwrap()
        );
        let other = json!({"metadata": {"name": "a", "uid": "u"}});
        w.put(&w.maps("a"), other).await.refused(409, "Conflict", &message);
    });
}

#[test]
fn only_a_deletion_marks_an_object_for_deletion() {
    claim(async |w| {
        w.map("a", json!({"k": "v"})).await;
        let marked = json!({"metadata": {"name": "a", "deletionTimestamp": "2020-01-01T00:00:00Z"}});
        let why =
            "FieldValueInvalid metadata.deletionTimestamp: Invalid value: \"2020-01-01T00:00:00Z\": field is immutable";
        for answer in [w.put(&w.maps("a"), marked.clone()).await, w.merge(&w.maps("a"), marked.clone()).await] {
            assert_eq!(answer.code(422).causes(), [why, why]);
        }
        let made = json!({"metadata": {"name": "b", "deletionTimestamp": "2020-01-01T00:00:00Z"}});
        let made = w.post(&w.maps(""), made).await.code(201).body;
        assert_eq!(made["metadata"].get("deletionTimestamp"), None);
    });
}

#[test]
fn options_of_deletions_are_checked() {
    claim(async |w| {
        w.map("a", json!({"k": "v"})).await;
        let path = w.maps("a");
        let start = "DeleteOptions.meta.k8s.io \"\" is invalid: ";
        let both = json!({"propagationPolicy": "Orphan", "orphanDependents": true});
        let why =
            "propagationPolicy: Invalid value: \"Orphan\": orphanDependents and deletionPropagation cannot be both set";
        w.delete(&path, both).await.refused(422, "Invalid", &format!("{start}{why}"));
        let why = "dryRun: Unsupported value: [\"x\"]: supported values: \"All\"";
        w.delete(&path, json!({"dryRun": ["x"]})).await.refused(422, "Invalid", &format!("{start}{why}"));
        let answer = w.send(Method::DELETE, &format!("{path}?dryRun=x"), &[], "").await;
        answer.refused(422, "Invalid", &format!("{start}{why}"));
        let answer = w.send(Method::DELETE, &format!("{path}?gracePeriodSeconds=x"), &[], "").await;
        answer.refused(400, "BadRequest", "strconv.ParseInt: parsing \"x\": invalid syntax");
        let why = "no kind \"ConfigMap\" is registered for version \"v1\" in scheme \"pkg/runtime/scheme.go:111\"";
        w.delete(&path, json!({"kind": "ConfigMap", "apiVersion": "v1"})).await.refused(400, "BadRequest", why);
        let why =
            "couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value of type struct";
        w.delete(&path, json!([])).await.refused_like(400, "BadRequest", why);
        w.get(&path).await.code(200);
    });
}

#[test]
fn options_of_writes_are_named_as_they_were_given() {
    claim(async |w| {
        w.map("a", json!({"k": "v"})).await;
        let dry = "dryRun: Unsupported value: [\"x\"]: supported values: \"All\"";
        let answer = w.post(&w.maps("?dryRun=x"), json!({})).await;
        answer.refused(422, "Invalid", &format!("CreateOptions.meta.k8s.io \"\" is invalid: {dry}"));
        let answer = w.put(&w.maps("a?dryRun=x"), json!({"metadata": {"name": "a"}})).await;
        answer.refused(422, "Invalid", &format!("UpdateOptions.meta.k8s.io \"\" is invalid: {dry}"));
        let why = "fieldValidation: Unsupported value: \"x\": supported values: \"\", \"Ignore\", \"Strict\", \"Warn\"";
        let answer = w.merge(&w.maps("a?fieldValidation=x"), json!({})).await;
        answer.refused(422, "Invalid", &format!("PatchOptions.meta.k8s.io \"\" is invalid: {why}"));
        let why = "fieldManager: Invalid value: \"\\x01\": invalid character U+0001 (at position 0)";
        let answer = w.merge(&w.maps("a?fieldManager=%01"), json!({})).await;
        answer.refused(422, "Invalid", &format!("PatchOptions.meta.k8s.io \"\" is invalid: {why}"));
    });
}

#[test]
fn patches_are_refused_before_the_object_is_judged() {
    claim(async |w| {
        w.map("a", json!({"k": "v"})).await;
        let path = w.maps("a");
        for (kind, sent, message) in [
            (
                MERGE,
                "1",
                "error decoding patch: json: cannot unmarshal number into Go value of type map[string]interface {}",
            ),
            (
                MERGE,
                "[]",
                "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}",
            ),
            (MERGE, "null", "Invalid JSON Patch"),
            (
                JSON_PATCH,
                "{}",
                "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
            ),
            (STRATEGIC, "[]", "json: cannot unmarshal array into Go value of type map[string]interface {}"),
            (
                APPLY,
                "[]",
                "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal array into Go value of type map[string]interface {}",
            ),
            (APPLY, "{}", "invalid object type: /, Kind="),
            (APPLY, "null", "invalid object type: /, Kind="),
            (APPLY, "{\"kind\": \"ConfigMap\"}", "invalid object type: /, Kind=ConfigMap"),
            (APPLY, "{\"apiVersion\": \"v1\"}", "invalid object type: /v1, Kind="),
        ] {
            let answer = body(w, Method::PATCH, &format!("{path}?fieldManager=m"), kind, sent).await;
            answer.refused(400, "BadRequest", message);
        }
        let operations: Vec<Value> = vec![json!({"op": "test", "path": "/data/k", "value": "v"}); 10_001];
        let message = "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001";
        w.json_patch(&path, operations.into()).await.refused(413, "RequestEntityTooLarge", message);
    });
}

#[test]
fn a_patch_whose_result_is_no_object_of_the_kind_does_not_name_it() {
    claim(async |w| {
        w.map("a", json!({"k": "v"})).await;
        for patch in [json!({"data": {"k": 1}}), json!({"kind": "Secret"}), json!({"apiVersion": "v2"})] {
            let answer = w.merge(&w.maps("a"), patch).await;
            answer.invalid_of_nothing();
        }
        w.merge(&w.maps("a?fieldValidation=Strict"), json!({"bogus": 1})).await.invalid_of_nothing();
    });
}

impl Answer {
    /// Checks a 422 about a patch without kind and name.
    fn invalid_of_nothing(self) {
        assert_eq!((self.code, self.reason()), (422, "Invalid"), "{}", self.text);
        assert!(self.message().starts_with(" \"\" is invalid: patch: Invalid value: \""), "{}", self.text);
        let details = &self.body["details"];
        assert_eq!((details.get("name"), details.get("kind")), (None, None), "{}", self.text);
        assert_eq!(details["causes"][0]["field"], "patch");
    }
}

#[test]
fn causes_about_metadata_are_repeated_for_changes() {
    claim(async |w| {
        w.map("a", json!({"k": "v"})).await;
        for (patch, start) in [
            (json!({"metadata": {"labels": {"-x": "y"}}}), "FieldValueInvalid metadata.labels: Invalid value: \"-x\""),
            (json!({"metadata": {"uid": "x"}}), "FieldValueInvalid metadata.uid: Invalid value: \"x\""),
        ] {
            let causes = w.merge(&w.maps("a"), patch).await.code(422).causes();
            assert!(causes.len() > 1 && causes.iter().all(|cause| cause.starts_with(start)), "{causes:?}");
        }
    });
}

#[test]
fn numbers_and_versions_of_reads_must_be_some() {
    claim(async |w| {
        w.map("a", json!({"k": "v"})).await;
        let number = "strconv.ParseInt: parsing \"x\": invalid syntax";
        for query in ["limit=x", "timeoutSeconds=x"] {
            w.get(&w.maps(&format!("?{query}"))).await.refused(400, "BadRequest", number);
        }
        let version = "resourceVersion: Invalid value: \"x\": strconv.ParseUint: parsing \"x\": invalid syntax";
        let answer = w.get(&w.maps("?resourceVersion=x")).await;
        answer.refused(400, "BadRequest", &format!("invalid resource version: {version}"));
        for path in [w.maps("a?resourceVersion=x"), w.maps("?watch=1&resourceVersion=x")] {
            let answer = w.get(&path).await;
            assert_eq!((answer.code, answer.message()), (500, version), "{}", answer.text);
        }
        let token = "invalid continue token: continue key is not valid: illegal base64 data at input byte 0";
        for query in ["continue=x", "continue=x&resourceVersion=1"] {
            w.get(&w.maps(&format!("?{query}"))).await.refused(400, "BadRequest", token);
        }
    });
}

#[test]
fn field_selectors_are_refused_in_their_words() {
    claim(async |w| {
        let events = w.path("v1", "events");
        let newer = w.path("events.k8s.io/v1", "events");
        for (path, selector, message) in [
            (w.maps(""), "foo", "invalid selector: 'foo'; can't understand 'foo'"),
            (w.maps(""), "metadata.name", "invalid selector: 'metadata.name'; can't understand 'metadata.name'"),
            (events.clone(), "reportingController=x", "field label not supported: reportingController"),
            (events, "regarding.kind=x", "field label not supported: regarding.kind"),
            (newer, "involvedObject.kind=x", "field label not supported: involvedObject.kind"),
            (
                w.path("apps/v1", "replicasets"),
                "status.replicas=1",
                "\"status.replicas\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
            ),
        ] {
            w.get(&format!("{path}?fieldSelector={selector}")).await.refused(400, "BadRequest", message);
        }
        let none = w.get(&w.maps("?fieldSelector=metadata.name%3Da%5C%2Cb")).await.code(200);
        assert_eq!(none.body["items"], json!([]));
    });
}

#[test]
fn forms_that_do_not_fit_are_406_with_the_reason() {
    claim(async |w| {
        w.map("a", json!({"k": "v"})).await;
        let accept = |form: &str, version: &str| format!("application/json;as={form};v={version};g=meta.k8s.io");
        let message = "you requested PartialObjectMetadata, but the requested object is a list (*core.ConfigMapList)";
        let answer = w.get_as(&w.maps(""), &accept("PartialObjectMetadata", "v1")).await;
        answer.refused(406, "NotAcceptable", message);
        let message =
            "you requested PartialObjectMetadataList, but the requested object is not a list (*core.ConfigMap)";
        let answer = w.get_as(&w.maps("a"), &accept("PartialObjectMetadataList", "v1")).await;
        answer.refused(406, "NotAcceptable", message);
        // An unknown version is ignored.
        let whole = w.get_as(&w.maps("a"), &format!("{},application/json", accept("Table", "v2"))).await.code(200);
        assert_eq!(whole.body["kind"], "ConfigMap");
    });
}

#[test]
fn unserved_kinds_get_a_status_and_unserved_custom_groups_a_plain_text() {
    claim(async |w| {
        let status = "the server could not find the requested resource";
        for path in ["/api/v2/configmaps", "/apis/apps/v2/deployments", "/apis/apps/v1/nothing", "/api/v1/nothing"] {
            w.get(path).await.refused(404, "NotFound", status);
        }
        let custom = w.custom(json!({"type": "object"}), json!({})).await;
        let plain = async |path: &str| {
            let answer = w.get(path).await.code(404);
            assert_eq!(answer.text.trim(), "404 page not found", "{path}");
        };
        plain(&w.path(&custom.api_version, "nothing")).await;
        plain(&w.path(&format!("{}/v9", custom.group), "widgets")).await;
        plain("/apis/foo.example.com/v1/bars").await;
        w.post(&custom.path, custom.widget("a", json!({}))).await.code(201);
        let message = format!("widgets.{} \"a\" not found", custom.group);
        w.get(&format!("{}/scale", custom.at("a"))).await.refused(404, "NotFound", &message);
        // An unauthorized user must not learn whether the kind exists.
        let message = "bars.foo.example.com is forbidden: User \"alice\" cannot list resource \"bars\" in API group \"foo.example.com\" at the cluster scope";
        let answer = w.send(Method::GET, "/apis/foo.example.com/v1/bars", &[("Impersonate-User", "alice")], "").await;
        answer.refused(403, "Forbidden", message);
        w.send(Method::HEAD, &w.maps("kube-root-ca.crt"), &[], "").await.code(405);
        w.send(Method::DELETE, "/api/v1/configmaps?labelSelector=none%3D1", &[], "").await.code(405);
    });
}

#[test]
fn a_scale_is_checked_like_any_other_body() {
    claim(async |w| {
        let mut deployment = crate::patches::deployment("d");
        deployment["spec"]["paused"] = true.into();
        w.post(&w.path("apps/v1", "deployments"), deployment).await.code(201);
        let path = w.path("apps/v1", "deployments/d/scale");
        let message = "the name of the object (x) does not match the name on the URL (d)";
        let other = json!({"metadata": {"name": "x"}, "spec": {"replicas": 1}});
        w.put(&path, other).await.refused(400, "BadRequest", message);
        let message = "Deployment in version \"v1\" cannot be handled as a Scale: converting (v1.Deployment) to (autoscaling.Scale): unknown conversion";
        let other = json!({"kind": "Deployment", "apiVersion": "apps/v1", "metadata": {"name": "d"}});
        w.put(&path, other).await.refused(400, "BadRequest", message);
        let scaled = w.strategic(&path, json!({"spec": {"replicas": 0}})).await.code(200).body;
        assert_eq!((&scaled["kind"], &scaled["spec"]), (&json!("Scale"), &json!({})));
    });
}

#[test]
fn the_phase_of_a_namespace_follows_its_deletion() {
    claim(async |w| {
        let path = format!("/api/v1/namespaces/{}/status", w.ns);
        let answer = w.merge(&path, json!({"status": {"phase": "Terminating"}})).await.code(422);
        let why = "FieldValueInvalid status.Phase: Invalid value: \"Terminating\": may only be 'Active' if `deletionTimestamp` is empty";
        assert_eq!(answer.causes(), [why]);
        let gone = w.delete(&format!("/api/v1/namespaces/{}?dryRun=All", w.ns), json!({})).await.code(200).body;
        assert!(gone["metadata"]["deletionTimestamp"].is_string());
        assert_eq!(gone["metadata"].get("deletionGracePeriodSeconds"), None);
    });
}

#[test]
fn an_immutable_object_is_forbidden_to_update_and_already_exists_to_create() {
    claim(async |w| {
        let pods = |name: &str| json!({"metadata": {"labels": {"app": name}}, "spec": {"restartPolicy": "Always", "containers": [{"name": "c", "image": "i"}]}});
        let job = |image: &str| {
            let spec = json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": image}]});
            json!({"spec": {"suspend": true, "template": {"spec": spec}}})
        };
        let workload = |name: &str| json!({"spec": {"replicas": 0, "selector": {"matchLabels": {"app": name}}, "template": pods(name)}});
        let claims = |name: &str| {
            let claim = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
            let mut set = workload("a");
            set["spec"]["serviceName"] = "a".into();
            set["spec"]["volumeClaimTemplates"] = json!([{"metadata": {"name": name}, "spec": claim}]);
            set
        };
        let volume = |mode: &str| json!({"spec": {"accessModes": [mode], "storageClassName": "none", "resources": {"requests": {"storage": "1Gi"}}}});
        let service = |address: Value| json!({"spec": {"clusterIP": address, "ports": [{"port": 80}]}});
        let binding =
            |name: &str| json!({"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}});
        let fixed = |value: &str| json!({"immutable": true, "data": {"k": value}});
        let class = |value: &str| json!({"provisioner": "a.b/c", "parameters": {"k": value}});
        let cases = [
            ("batch/v1", "jobs", job("i"), job("j"), "FieldValueInvalid spec.template"),
            ("v1", "services", service(Value::Null), service("None".into()), "FieldValueInvalid spec.clusterIPs[0]"),
            ("apps/v1", "deployments", workload("a"), workload("b"), "FieldValueInvalid spec.selector"),
            ("apps/v1", "daemonsets", workload("a"), workload("b"), "FieldValueInvalid spec.selector"),
            ("apps/v1", "statefulsets", claims("a"), claims("b"), "FieldValueForbidden spec"),
            ("v1", "configmaps", fixed("YQ=="), fixed("Yg=="), "FieldValueForbidden data"),
            ("v1", "secrets", fixed("YQ=="), fixed("Yg=="), "FieldValueForbidden data"),
            ("v1", "secrets", json!({"type": "a.b/c"}), json!({"type": "a.b/d"}), "FieldValueInvalid type"),
            (
                "v1",
                "persistentvolumeclaims",
                volume("ReadWriteOnce"),
                volume("ReadWriteMany"),
                "FieldValueForbidden spec",
            ),
            ("rbac.authorization.k8s.io/v1", "rolebindings", binding("a"), binding("b"), "FieldValueInvalid roleRef"),
            ("storage.k8s.io/v1", "storageclasses", class("a"), class("b"), "FieldValueInvalid parameters"),
        ];
        for (number, (version, resource, first, second, cause)) in cases.into_iter().enumerate() {
            let is_namespaced = resource != "storageclasses";
            let path = if is_namespaced { w.path(version, resource) } else { format!("/apis/{version}/{resource}") };
            let name = format!("{}-{number}", w.ns);
            let document = |mut object: Value, name: &str| {
                object["apiVersion"] = version.into();
                object["kind"] = kind_of(resource).into();
                object["metadata"] = json!({"name": name});
                if resource == "daemonsets" {
                    object["spec"].as_object_mut().map(|spec| spec.remove("replicas"));
                }
                object
            };
            if !is_namespaced {
                w.forget_later(&format!("{path}/{name}"));
            }
            w.force(&format!("{path}/{name}"), "m", document(first, &name)).await.ok();
            let changed = document(second.clone(), &name);
            let answer = w.force(&format!("{path}/{name}"), "m", changed.clone()).await.code(422);
            assert!(answer.causes().iter().any(|said| said.starts_with(cause)), "{resource}: {:?}", answer.causes());
            let mut new = changed;
            if resource == "services" {
                new["spec"].as_object_mut().map(|spec| spec.remove("clusterIP"));
            }
            let created = w.post(&format!("{path}?dryRun=All"), new).await;
            assert_eq!((created.code, created.reason()), (409, "AlreadyExists"), "{resource}: {}", created.text);
            let other = document(second, &format!("{name}-other"));
            w.post(&format!("{path}?dryRun=All"), other).await.code(201);
        }
    });
}

fn kind_of(resource: &str) -> &'static str {
    match resource {
        "jobs" => "Job",
        "services" => "Service",
        "deployments" => "Deployment",
        "daemonsets" => "DaemonSet",
        "statefulsets" => "StatefulSet",
        "configmaps" => "ConfigMap",
        "secrets" => "Secret",
        "persistentvolumeclaims" => "PersistentVolumeClaim",
        "rolebindings" => "RoleBinding",
        "storageclasses" => "StorageClass",
        _ => unreachable!("a case names its kind"),
    }
}
