//! Admission webhooks: the matching requests, the content of calls, and the effect of responses.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::hooks::{configure, labelled, settled};
use crate::webhook::{Hooks, Reply, allow, patch, respond};
use crate::world::{World, claim, fields, managers, rv};

/// Hooks that add `data.<last part of the path>: yes`, or allow below `/v…`.
fn adding() -> Hooks {
    Hooks::start(|path, review| {
        let name = path.trim_start_matches('/');
        if name.starts_with('v') || review["request"]["object"].is_null() {
            return allow(review, json!({}));
        }
        let at = format!("/data/{name}");
        if review["request"]["object"]["data"].is_null() {
            return patch(review, json!([{"op": "add", "path": "/data", "value": {name: "yes"}}]));
        }
        patch(review, json!([{"op": "add", "path": at, "value": "yes"}]))
    })
}

#[test]
fn webhooks_see_what_is_created_and_change_it() {
    claim(async |w| {
        let hooks = adding();
        configure(w, "mutating", "m", json!([hooks.hook(w, "m")])).await;
        configure(w, "validating", "v", json!([hooks.hook(w, "v")])).await;
        settled(w, &hooks, |a| a.body["data"]["m"] == "yes" && !hooks.asked_at("/v").is_empty()).await;
        let made = w.post(&w.maps(""), labelled("wa", json!({"a": "1"}))).await.code(201).body;
        assert_eq!(made["data"], json!({"a": "1", "m": "yes"}));
        // No manager owns a field that a webhook adds.
        assert_eq!(fields(&made, "conformance", "Update")["f:data"], json!({".": {}, "f:a": {}}));
        let asked = hooks.asked_at("/m");
        assert_eq!(asked.len(), 1, "{asked:?}");
        assert_eq!((asked[0].path.as_str(), asked[0].agent.as_str()), ("/m?timeout=2s", "kube-apiserver-admission"));
        let review = &asked[0].review;
        assert_eq!(
            (&review["kind"], &review["apiVersion"]),
            (&json!("AdmissionReview"), &json!("admission.k8s.io/v1"))
        );
        let request = asked[0].request();
        let kind = json!({"group": "", "version": "v1", "kind": "ConfigMap"});
        let resource = json!({"group": "", "version": "v1", "resource": "configmaps"});
        assert!(request["uid"].is_string());
        assert_eq!((&request["kind"], &request["requestKind"]), (&kind, &kind));
        assert_eq!((&request["resource"], &request["requestResource"]), (&resource, &resource));
        assert_eq!((&request["name"], &request["namespace"]), (&json!("wa"), &json!(w.ns)));
        assert_eq!((&request["operation"], &request["dryRun"]), (&json!("CREATE"), &json!(false)));
        assert_eq!(request["oldObject"], Value::Null);
        assert!(request["userInfo"]["username"].is_string());
        assert_eq!(request["options"], json!({"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"}));
        assert_eq!(request.get("subResource"), None);
        let object = &request["object"];
        assert_eq!((&object["kind"], &object["apiVersion"]), (&json!("ConfigMap"), &json!("v1")));
        assert_eq!(object["metadata"]["uid"], Value::Null, "{object}");
        assert_eq!(object["metadata"]["creationTimestamp"], Value::Null);
        assert_eq!(object["metadata"]["managedFields"][0]["manager"], "conformance");
        assert_eq!(object["data"], json!({"a": "1"}));
        let asked = hooks.asked_at("/v");
        assert_eq!(asked.len(), 1);
        let object = &asked[0].request()["object"];
        assert_eq!(object["metadata"]["uid"], made["metadata"]["uid"]);
        assert_eq!(object["data"], made["data"]);
    });
}

#[test]
fn a_generated_name_is_not_known_before_it_is_generated() {
    claim(async |w| {
        let hooks = adding();
        configure(w, "mutating", "m", json!([hooks.hook(w, "m")])).await;
        configure(w, "validating", "v", json!([hooks.hook(w, "v")])).await;
        settled(w, &hooks, |a| a.body["data"]["m"] == "yes" && !hooks.asked_at("/v").is_empty()).await;
        let body = json!({"metadata": {"generateName": "g-", "labels": {"wh": "1"}}});
        let made = w.post(&w.maps(""), body).await.code(201).body;
        let first = hooks.asked_at("/m");
        assert_eq!(first[0].request()["object"]["metadata"]["generateName"], "g-");
        let last = hooks.asked_at("/v");
        assert_eq!(last[0].request()["object"]["metadata"]["name"], made["metadata"]["name"]);
        assert_eq!(made["data"]["m"], "yes");
    });
}

#[test]
fn webhooks_are_called_by_name_then_in_their_order_and_again_if_needed() {
    claim(async |w| {
        let hooks = adding();
        let mut first = hooks.hook(w, "a2");
        first["reinvocationPolicy"] = "IfNeeded".into();
        configure(w, "mutating", "z", json!([hooks.hook(w, "z1")])).await;
        configure(w, "mutating", "a", json!([first, hooks.hook(w, "a1")])).await;
        settled(w, &hooks, |a| a.body["data"]["a1"] == "yes" && a.body["data"]["z1"] == "yes").await;
        let made = w.post(&w.maps(""), labelled("o", json!({"own": "1"}))).await.code(201).body;
        assert_eq!(made["data"], json!({"own": "1", "a1": "yes", "a2": "yes", "z1": "yes"}));
        let asked = hooks.asked();
        let order: Vec<&str> = asked.iter().map(|asked| asked.path.split('?').next().unwrap()).collect();
        assert_eq!(order, ["/a2", "/a1", "/z1", "/a2"]);
        assert_eq!(asked[1].request()["object"]["data"], json!({"own": "1", "a2": "yes"}));
        assert_eq!(asked[2].request()["object"]["data"], json!({"own": "1", "a1": "yes", "a2": "yes"}));
        assert_eq!(asked[3].request()["object"]["data"], made["data"]);
        assert_ne!(asked[0].request()["uid"], asked[3].request()["uid"]);
    });
}

/// Configures a validating webhook whose response depends on the object's `data`.
async fn judged(w: &World, policy: &str) -> Hooks {
    let hooks = Hooks::start(|_, review| {
        let object = &review["request"]["object"];
        let uid = &review["request"]["uid"];
        match object["data"]["answer"].as_str().unwrap_or_default() {
            "deny" => respond(
                &json!({"uid": uid, "allowed": false, "status": {"code": 418, "reason": "Teapot", "message": "no tea"}}),
            ),
            "message" => respond(&json!({"uid": uid, "allowed": false, "status": {"message": "no"}})),
            "silent" => respond(&json!({"uid": uid, "allowed": false})),
            "uid" => respond(&json!({"uid": "other", "allowed": true})),
            "none" => respond(&Value::Null),
            "garbage" => {
                Reply { code: 200, body: "<html>".to_owned(), delay: Duration::ZERO, held: None, closes: false }
            }
            "broken" => Reply { code: 500, body: "boom".to_owned(), delay: Duration::ZERO, held: None, closes: false },
            "slow" => Reply { delay: Duration::from_secs(5), ..allow(review, json!({})) },
            "warn" => allow(review, json!({"warnings": ["mind \"this\"", "and that"]})),
            _ => allow(review, json!({})),
        }
    });
    let mut hook = hooks.hook(w, "v");
    hook["failurePolicy"] = policy.into();
    hook["timeoutSeconds"] = 1.into();
    configure(w, "validating", "v", json!([hook])).await;
    settled(w, &hooks, |_| !hooks.asked().is_empty()).await;
    hooks
}

#[test]
fn a_refusal_of_a_webhook_is_passed_on() {
    claim(async |w| {
        let _hooks = judged(w, "Fail").await;
        let ask = async |answer: &str| w.post(&w.maps(""), labelled("x", json!({"answer": answer}))).await;
        let denied = "admission webhook \"v.example.io\" denied the request";
        ask("deny").await.refused(418, "Teapot", &format!("{denied}: no tea"));
        let answer = ask("message").await;
        assert_eq!((answer.code, answer.message()), (400, format!("{denied}: no").as_str()), "{}", answer.text);
        let answer = ask("silent").await;
        assert_eq!((answer.code, answer.message()), (400, format!("{denied} without explanation").as_str()));
        w.get(&w.maps("x")).await.code(404);
    });
}

#[test]
fn a_webhook_that_fails_is_a_500() {
    claim(async |w| {
        let _hooks = judged(w, "Fail").await;
        for (answer, why) in [
            ("uid", "received invalid webhook response: expected response.uid=\""),
            ("none", "received invalid webhook response: webhook response was absent"),
            ("garbage", "failed to call webhook: "),
            (
                "broken",
                "failed to call webhook: an error on the server (\"unknown\") has prevented the request from succeeding",
            ),
            ("slow", "failed to call webhook: Post \"https://127.0.0.1:"),
        ] {
            let refused = w.post(&w.maps(""), labelled("x", json!({"answer": answer}))).await;
            let start = format!("Internal error occurred: failed calling webhook \"v.example.io\": {why}");
            if answer == "slow" {
                assert!(refused.message().ends_with("/v?timeout=1s\": context deadline exceeded"), "{}", refused.text);
            }
            let cause = &refused.body["details"]["causes"][0]["message"];
            assert!(cause.as_str().is_some_and(|text| text.starts_with("failed calling webhook")), "{}", refused.text);
            refused.refused_like(500, "InternalError", &start);
        }
        w.get(&w.maps("x")).await.code(404);
    });
}

#[test]
fn a_webhook_that_may_fail_is_passed_over_but_not_its_refusal() {
    claim(async |w| {
        let _hooks = judged(w, "Ignore").await;
        for answer in ["uid", "none", "garbage", "broken", "slow"] {
            w.post(&w.maps(""), labelled(answer, json!({"answer": answer}))).await.code(201);
        }
        w.post(&w.maps(""), labelled("x", json!({"answer": "deny"}))).await.code(418);
    });
}

#[test]
fn a_webhook_that_is_not_there_is_a_500_with_the_address() {
    claim(async |w| {
        let hooks = adding();
        let mut hook = hooks.hook(w, "gone");
        hook["clientConfig"]["url"] = "https://127.0.0.1:1/gone".into();
        configure(w, "mutating", "m", json!([hook])).await;
        settled(w, &hooks, |a| a.code == 500).await;
        let message = "Internal error occurred: failed calling webhook \"gone.example.io\": failed to call webhook: Post \"https://127.0.0.1:1/gone?timeout=2s\": dial tcp 127.0.0.1:1: connect: connection refused";
        w.post(&w.maps(""), labelled("x", json!({}))).await.refused(500, "InternalError", message);
        // Unselected objects are not affected.
        w.map("other", json!({})).await;
    });
}

#[test]
fn a_webhook_with_another_certificate_is_not_trusted() {
    claim(async |w| {
        let (hooks, other) = (adding(), adding());
        let mut hook = hooks.hook(w, "m");
        hook["clientConfig"]["caBundle"] = other.hook(w, "m")["clientConfig"]["caBundle"].clone();
        configure(w, "mutating", "m", json!([hook])).await;
        settled(w, &hooks, |a| a.code == 500).await;
        let answer = w.post(&w.maps(""), labelled("x", json!({}))).await;
        assert!(answer.message().contains("tls: failed to verify certificate: x509: "), "{}", answer.text);
        assert!(hooks.asked().is_empty());
    });
}

#[test]
fn a_patch_that_does_not_apply_is_always_a_500() {
    claim(async |w| {
        let hooks = Hooks::start(|_, review| patch(review, json!([{"op": "remove", "path": "/data/absent"}])));
        let mut hook = hooks.hook(w, "m");
        hook["failurePolicy"] = "Ignore".into();
        configure(w, "mutating", "m", json!([hook])).await;
        settled(w, &hooks, |a| a.code == 500).await;
        let answer = w.post(&w.maps(""), labelled("x", json!({"a": "1"}))).await;
        answer.refused_like(500, "InternalError", "Internal error occurred: ");
        w.get(&w.maps("x")).await.code(404);
    });
}

#[test]
fn warnings_of_webhooks_reach_the_client() {
    claim(async |w| {
        let _hooks = judged(w, "Fail").await;
        let answer = w.post(&w.maps(""), labelled("x", json!({"answer": "warn"}))).await.code(201);
        assert_eq!(answer.warnings(), ["299 - \"mind \\\"this\\\"\"", "299 - \"and that\""]);
    });
}

#[test]
fn applying_the_same_again_is_nothing_where_a_webhook_changes_it_alike() {
    claim(async |w| {
        let hooks = adding();
        configure(w, "mutating", "m", json!([hooks.hook(w, "m")])).await;
        settled(w, &hooks, |a| a.body["data"]["m"] == "yes").await;
        let first = w.apply(&w.maps("a"), "m1", labelled("a", json!({"k": "v"}))).await.code(201).body;
        assert_eq!(first["data"], json!({"k": "v", "m": "yes"}));
        assert_eq!(managers(&first), ["m1/Apply"]);
        assert_eq!(fields(&first, "m1", "Apply")["f:data"], json!({"f:k": {}}));
        hooks.forget();
        let again = w.apply(&w.maps("a"), "m1", labelled("a", json!({"k": "v"}))).await.code(200).body;
        assert_eq!(again, first);
        let asked = hooks.asked();
        assert!(!asked.is_empty(), "it is asked all the same");
        let request = asked[0].request();
        assert_eq!(request["operation"], "UPDATE");
        assert_eq!(request["options"]["kind"], "UpdateOptions");
        assert_eq!(request["options"]["fieldManager"], "m1");
        assert_eq!(request["oldObject"]["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
        // The webhook adds its field to a replacement without it, so nothing changes.
        let mut body = labelled("a", json!({"k": "v"}));
        body["metadata"]["resourceVersion"] = rv(&first).to_string().into();
        let replaced = w.put(&w.maps("a?fieldManager=m1"), body).await.code(200).body;
        assert_eq!(replaced["data"], first["data"]);
    });
}

#[test]
fn deletions_are_judged_by_the_object_that_goes() {
    claim(async |w| {
        let hooks = Hooks::start(|_, review| {
            let request = &review["request"];
            let protected = request["operation"] == "DELETE" && request["oldObject"]["data"]["keep"] == "yes";
            if protected {
                respond(&json!({"uid": request["uid"], "allowed": false}))
            } else {
                allow(review, json!({}))
            }
        });
        configure(w, "validating", "v", json!([hooks.hook(w, "v")])).await;
        settled(w, &hooks, |_| !hooks.asked().is_empty()).await;
        w.post(&w.maps(""), labelled("kept", json!({"keep": "yes"}))).await.code(201);
        w.post(&w.maps(""), labelled("other", json!({}))).await.code(201);
        hooks.forget();
        let options = json!({"propagationPolicy": "Background"});
        w.delete(&w.maps("kept"), options).await.code(400);
        w.get(&w.maps("kept")).await.code(200);
        let request = hooks.asked()[0].request().clone();
        assert_eq!((&request["operation"], &request["object"]), (&json!("DELETE"), &Value::Null));
        assert_eq!((&request["name"], &request["options"]["kind"]), (&json!("kept"), &json!("DeleteOptions")));
        assert_eq!(request["options"]["propagationPolicy"], "Background");
        w.delete(&w.maps("other"), json!({})).await.code(200);
        w.merge(&w.maps("kept"), json!({"data": {"keep": null}})).await.code(200);
    });
}

#[test]
fn a_webhook_sees_a_dry_run_as_one() {
    claim(async |w| {
        let hooks = adding();
        configure(w, "mutating", "m", json!([hooks.hook(w, "m")])).await;
        settled(w, &hooks, |a| a.body["data"]["m"] == "yes").await;
        let shown = w.post(&w.maps("?dryRun=All"), labelled("d", json!({}))).await.code(201).body;
        assert_eq!(shown["data"], json!({"m": "yes"}));
        let request = hooks.asked()[0].request().clone();
        assert_eq!(request["dryRun"], true);
        assert_eq!(request["options"]["dryRun"], json!(["All"]));
        w.get(&w.maps("d")).await.code(404);
    });
}

#[test]
fn reviews_share_a_connection_until_it_is_closed() {
    claim(async |w| {
        let hooks = Hooks::start(|_, review| {
            let closes = review["request"]["object"]["data"]["last"] == "yes";
            Reply { closes, ..allow(review, json!({})) }
        });
        configure(w, "validating", "v", json!([hooks.hook(w, "v")])).await;
        settled(w, &hooks, |_| !hooks.asked_at("/v").is_empty()).await;
        for (name, last) in [("a", "no"), ("b", "no"), ("c", "yes"), ("d", "no"), ("e", "no")] {
            w.post(&w.maps(""), labelled(name, json!({"last": last}))).await.code(201);
        }
        let of: Vec<_> = hooks.asked().iter().map(|asked| asked.connection).collect();
        assert_eq!(of.len(), 5, "{of:?}");
        assert!(of[0] == of[1] && of[1] == of[2] && of[2] != of[3] && of[3] == of[4], "{of:?}");
    });
}

#[test]
fn rules_name_operations_and_subresources() {
    claim(async |w| {
        let hooks = adding();
        let rule = |operations: Value, groups: &str, resource: &str| json!({"operations": operations, "apiGroups": [groups], "apiVersions": ["*"], "resources": [resource]});
        let with = |name: &str, rule: Value| {
            let mut hook = hooks.hook(w, name);
            hook["rules"] = json!([rule]);
            hook["objectSelector"] = json!({});
            hook
        };
        let webhooks = json!([
            with("vcreate", rule(json!(["CREATE"]), "", "configmaps")),
            with("vstatus", rule(json!(["UPDATE"]), "apps", "deployments/status")),
            with("vdeployments", rule(json!(["UPDATE"]), "apps", "deployments")),
            with("vscale", rule(json!(["*"]), "*", "*/scale")),
            with("vall", rule(json!(["*"]), "apps", "*/*")),
        ]);
        configure(w, "validating", "v", webhooks).await;
        settled(w, &hooks, |_| !hooks.asked_at("/vcreate").is_empty()).await;
        w.map("a", json!({})).await;
        w.merge(&w.maps("a"), json!({"data": {"x": "y"}})).await.code(200);
        // The namespace's controller may create its own ConfigMap at any time.
        let created = hooks.asked_at("/vcreate");
        assert_eq!(created.iter().filter(|asked| asked.request()["name"] == "a").count(), 1);
        let mut deployment = crate::patches::deployment("d");
        deployment["spec"]["paused"] = true.into();
        let path = w.path("apps/v1", "deployments");
        w.post(&path, deployment).await.code(201);
        w.merge(&format!("{path}/d/scale"), json!({"spec": {"replicas": 0}})).await.code(200);
        let asked = hooks.asked_at("/vscale");
        let scale = asked.iter().find(|asked| asked.request()["name"] == "d").expect("the scale is judged").request();
        assert_eq!(scale["kind"], json!({"group": "autoscaling", "version": "v1", "kind": "Scale"}));
        assert_eq!((&scale["subResource"], &scale["object"]["kind"]), (&json!("scale"), &json!("Scale")));
        assert_eq!(scale["resource"]["resource"], "deployments");
        w.merge(&format!("{path}/d/status"), json!({"status": {"observedGeneration": 7}})).await.code(200);
        let status = hooks.asked_at("/vstatus");
        let mine = status.iter().find(|asked| asked.request()["object"]["status"]["observedGeneration"] == 7);
        assert_eq!(mine.expect("the status is judged").request()["subResource"], "status");
        assert!(hooks.asked_at("/vall").len() >= 3);
        let plain = hooks.asked_at("/vdeployments");
        assert!(plain.iter().all(|asked| asked.request().get("subResource").is_none()), "{plain:?}");
    });
}

#[test]
fn invalid_objects_are_refused_before_they_are_judged() {
    claim(async |w| {
        let hooks = Hooks::start(|path, review| {
            if path == "/m" && review["request"]["name"] == "spoilt" {
                return patch(review, json!([{"op": "add", "path": "/data", "value": {"no such key!": "x"}}]));
            }
            allow(review, json!({}))
        });
        configure(w, "mutating", "m", json!([hooks.hook(w, "m")])).await;
        configure(w, "validating", "v", json!([hooks.hook(w, "v")])).await;
        settled(w, &hooks, |_| !hooks.asked_at("/v").is_empty() && !hooks.asked_at("/m").is_empty()).await;
        w.post(&w.maps(""), labelled("spoilt", json!({}))).await.invalid("FieldValueInvalid", "data[no such key!]");
        assert!(hooks.asked_at("/v").is_empty());
        assert_eq!(hooks.asked_at("/m").len(), 1);
    });
}

#[test]
fn custom_resources_are_changed_before_they_are_validated() {
    claim(async |w| {
        let schema = json!({"type": "object", "properties": {"size": {"type": "integer", "maximum": 3}}});
        let custom = w.custom(schema, json!({})).await;
        let hooks = Hooks::start(|_, review| {
            let wanted = review["request"]["object"]["spec"]["size"].as_i64().unwrap_or(0).min(3);
            patch(review, json!([{"op": "replace", "path": "/spec/size", "value": wanted}]))
        });
        let mut hook = hooks.hook(w, "m");
        hook["rules"] = json!([{"operations": ["CREATE", "UPDATE"], "apiGroups": [custom.group], "apiVersions": ["v1"], "resources": ["widgets"], "scope": "Namespaced"}]);
        hook["objectSelector"] = json!({});
        configure(w, "mutating", "m", json!([hook])).await;
        let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
        while w.post(&format!("{}?dryRun=All", custom.path), custom.widget("t", json!({"size": 9}))).await.code != 201 {
            assert!(tokio::time::Instant::now() < deadline, "the configuration counts");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let made = w.post(&custom.path, custom.widget("a", json!({"size": 9}))).await.code(201).body;
        assert_eq!(made["spec"]["size"], 3);
        let changed = w.merge(&custom.at("a"), json!({"spec": {"size": 100}})).await.code(200).body;
        assert_eq!(changed["spec"]["size"], 3);
        assert_eq!((rv(&changed), &changed["metadata"]["generation"]), (rv(&made), &json!(1)));
    });
}

#[test]
fn a_write_that_somebody_overtakes_is_computed_and_judged_again() {
    claim(async |w| {
        static SLOW: AtomicBool = AtomicBool::new(true);
        let overtaken = Arc::new(Notify::new());
        let held = Arc::clone(&overtaken);
        let hooks = Hooks::start(move |_, review| {
            let mine = review["request"]["object"]["data"]["mine"].is_string();
            let mut reply = allow(review, json!({}));
            reply.held = (mine && SLOW.swap(false, Ordering::SeqCst)).then(|| Arc::clone(&held));
            reply
        });
        let mut hook = hooks.hook(w, "v");
        // Long enough for a busy machine.
        hook["timeoutSeconds"] = 30.into();
        configure(w, "validating", "v", json!([hook])).await;
        settled(w, &hooks, |_| !hooks.asked().is_empty()).await;
        w.post(&w.maps(""), labelled("a", json!({"k": "v"}))).await.code(201);
        hooks.forget();
        let path = w.maps("a");
        let slow = w.merge(&path, json!({"data": {"mine": "1"}}));
        let quick = async {
            while hooks.asked().is_empty() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            let answer = w.merge(&path, json!({"data": {"theirs": "1"}})).await;
            overtaken.notify_one();
            answer.code(200)
        };
        let (slow, _) = futures::join!(slow, quick);
        assert_eq!(slow.code(200).body["data"], json!({"k": "v", "mine": "1", "theirs": "1"}));
        let asked = hooks.asked();
        let last = asked.last().unwrap().request();
        assert_eq!(last["oldObject"]["data"], json!({"k": "v", "theirs": "1"}));
        assert_eq!(last["object"]["data"], json!({"k": "v", "mine": "1", "theirs": "1"}));
    });
}

#[test]
fn pods_of_controllers_are_changed_too() {
    claim(async |w| {
        let hooks = Hooks::start(|_, review| {
            patch(review, json!([{"op": "add", "path": "/metadata/labels/injected", "value": "yes"}]))
        });
        let mut hook = hooks.hook(w, "m");
        hook["rules"] = json!([{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods", "configmaps"]}]);
        hook["objectSelector"] = json!({"matchLabels": {"wh": "1"}});
        configure(w, "mutating", "m", json!([hook])).await;
        settled(w, &hooks, |_| !hooks.asked().is_empty()).await;
        let mut deployment = crate::patches::deployment("d");
        deployment["spec"]["replicas"] = 1.into();
        deployment["spec"]["template"]["metadata"]["labels"]["wh"] = "1".into();
        w.post(&w.path("apps/v1", "deployments"), deployment).await.code(201);
        let pods = format!("{}?labelSelector=injected%3Dyes", w.path("v1", "pods"));
        w.until(&pods, "the pod has the label", |a| a.body["items"].as_array().is_some_and(|items| !items.is_empty()))
            .await;
        let asked = hooks.asked();
        let pod = asked.iter().find(|asked| asked.request()["kind"]["kind"] == "Pod").expect("the pod was shown");
        assert!(pod.request()["userInfo"]["username"].as_str().is_some_and(|name| name.starts_with("system:")));
    });
}

#[test]
fn configurations_are_checked() {
    claim(async |w| {
        let hooks = adding();
        let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations?dryRun=All";
        let with = |field: &str, value: Value| {
            let mut hook = hooks.hook(w, "v");
            hook[field] = value;
            json!({"metadata": {"name": w.ns}, "webhooks": [hook]})
        };
        let refused = async |field: &str, value: Value, reason: &str, at: &str| {
            w.post(path, with(field, value)).await.invalid(reason, at);
        };
        refused("sideEffects", json!("Some"), "FieldValueNotSupported", "webhooks[0].sideEffects").await;
        refused("sideEffects", json!("Unknown"), "FieldValueNotSupported", "webhooks[0].sideEffects").await;
        refused("timeoutSeconds", json!(31), "FieldValueInvalid", "webhooks[0].timeoutSeconds").await;
        refused("name", json!("short"), "FieldValueInvalid", "webhooks[0].name").await;
        refused("clientConfig", json!({}), "FieldValueRequired", "webhooks[0].clientConfig").await;
        refused(
            "clientConfig",
            json!({"url": "http://127.0.0.1/"}),
            "FieldValueInvalid",
            "webhooks[0].clientConfig.url",
        )
        .await;
        refused("admissionReviewVersions", json!(["v7"]), "FieldValueInvalid", "webhooks[0].admissionReviewVersions")
            .await;
        refused("failurePolicy", json!("Perhaps"), "FieldValueNotSupported", "webhooks[0].failurePolicy").await;
    });
}
