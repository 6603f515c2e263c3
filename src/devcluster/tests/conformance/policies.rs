//! ValidatingAdmissionPolicies: the writes that they match, their refusals, and validation of the policies themselves.

use std::time::Duration;

use serde_json::{Value, json};

use crate::world::{Answer, World, claim};

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";

/// Matches all writes of labelled ConfigMaps and Deployments.
fn constraints() -> Value {
    json!({
        "resourceRules": [{
            "operations": ["CREATE", "UPDATE", "DELETE"], "apiGroups": ["", "apps"], "apiVersions": ["*"], "resources": ["*"],
        }],
        "objectSelector": {"matchLabels": {"policy": "1"}},
    })
}

/// The claim's policy; `fields` override the defaults.
fn policy(w: &World, fields: Value) -> Value {
    let mut spec = json!({"matchConstraints": constraints()});
    for (name, value) in fields.as_object().into_iter().flatten() {
        spec[name] = value.clone();
    }
    json!({"metadata": {"name": w.ns}, "spec": spec})
}

/// The policy's binding, which denies writes in the claim's namespace; `fields` override the defaults.
fn binding(w: &World, fields: Value) -> Value {
    let own = json!({"matchLabels": {"kubernetes.io/metadata.name": w.ns}});
    let mut spec = json!({
        "policyName": w.ns, "validationActions": ["Deny"], "matchResources": {"namespaceSelector": own},
    });
    for (name, value) in fields.as_object().into_iter().flatten() {
        spec[name] = value.clone();
    }
    json!({"metadata": {"name": format!("{}-b", w.ns)}, "spec": spec})
}

/// Creates a policy and its binding, and waits until the response for a ConfigMap `settling` shows their effect.
async fn configure(w: &World, fields: Value, bound: Value, settling: Value, counts: impl Fn(&Answer) -> bool) {
    w.forget_later(&format!("{BINDINGS}/{}-b", w.ns));
    w.forget_later(&format!("{POLICIES}/{}", w.ns));
    w.post(POLICIES, policy(w, fields)).await.code(201);
    w.post(BINDINGS, binding(w, bound)).await.code(201);
    until(w, settling, counts).await;
}

/// Creates a ConfigMap by a dry run until the response is as wanted.
async fn until(w: &World, data: Value, wanted: impl Fn(&Answer) -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    loop {
        let answer = w.post(&w.maps("?dryRun=All"), labelled("settling", data.clone())).await;
        if wanted(&answer) {
            return;
        }
        assert!(tokio::time::Instant::now() < deadline, "the policy counts: {} {}", answer.code, answer.text);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A ConfigMap that the claim's policies select.
fn labelled(name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"policy": "1"}}, "data": data})
}

/// Configures a policy with one validation: `data.k` must not be `bad`.
async fn refusing(w: &World, validation: Value) {
    let mut whole = json!({"expression": "request.operation == 'DELETE' || object.?data.?k.orValue('') != 'bad'"});
    for (name, value) in validation.as_object().into_iter().flatten() {
        whole[name] = value.clone();
    }
    let bad = json!({"k": "bad"});
    configure(w, json!({"validations": [whole]}), json!({}), bad, |a| a.code >= 400).await;
}

/// The prefix of a refusal's message.
fn by(w: &World) -> String {
    format!("ValidatingAdmissionPolicy '{0}' with binding '{0}-b' denied request:", w.ns)
}

#[test]
fn a_write_that_a_validation_does_not_hold_for_is_refused() {
    claim(async |w| {
        refusing(w, json!({"message": "it is bad"})).await;
        let refused = w.post(&w.maps(""), labelled("x", json!({"k": "bad"}))).await;
        let message = format!("configmaps \"x\" is forbidden: {} it is bad", by(w));
        let refused = refused.refused(422, "Invalid", &message);
        let cause = json!([{"message": format!("{} it is bad", by(w))}]);
        assert_eq!(refused.body["details"], json!({"name": "x", "kind": "configmaps", "causes": cause}));
        w.post(&w.maps(""), labelled("x", json!({"k": "good"}))).await.code(201);
        w.merge(&w.maps("x"), json!({"data": {"k": "bad"}})).await.refused(422, "Invalid", &message);
        w.force(&w.maps("x"), "m", labelled("x", json!({"k": "bad"}))).await.refused(422, "Invalid", &message);
        w.put(&w.maps("x"), labelled("x", json!({"k": "bad"}))).await.refused(422, "Invalid", &message);
        w.merge(&w.maps("x?dryRun=All"), json!({"data": {"k": "bad"}})).await.refused(422, "Invalid", &message);
        assert_eq!(w.get(&w.maps("x")).await.body["data"]["k"], "good");
        let unlabelled = json!({"metadata": {"name": "other"}, "data": {"k": "bad"}});
        w.post(&w.maps(""), unlabelled).await.code(201);
    });
}

#[test]
fn a_reason_has_its_code() {
    for (reason, code) in [("Forbidden", 403), ("RequestEntityTooLarge", 413), ("Invalid", 422)] {
        claim(async |w| {
            refusing(w, json!({"message": "no", "reason": reason})).await;
            let message = format!("configmaps \"x\" is forbidden: {} no", by(w));
            w.post(&w.maps(""), labelled("x", json!({"k": "bad"}))).await.refused(code, reason, &message);
        });
    }
}

#[test]
fn a_message_is_what_its_expression_says_or_the_message_or_the_expression() {
    let expression = "request.operation == 'DELETE' || object.?data.?k.orValue('') != 'bad'";
    for (validation, says) in [
        (json!({"messageExpression": "' not ' + object.data.k + ' '", "message": "plain"}), "not bad".to_owned()),
        (json!({"messageExpression": "string(object.data.absent)", "message": "plain"}), "plain".to_owned()),
        (json!({"messageExpression": "'a\\nb'", "message": "plain"}), "plain".to_owned()),
        (json!({"messageExpression": "'  '"}), format!("failed expression: {expression}")),
        (json!({}), format!("failed expression: {expression}")),
    ] {
        claim(async |w| {
            refusing(w, validation.clone()).await;
            let refused = w.post(&w.maps(""), labelled("x", json!({"k": "bad"}))).await;
            assert_eq!(refused.message(), format!("configmaps \"x\" is forbidden: {} {says}", by(w)));
        });
    }
}

#[test]
fn a_binding_that_warns_or_audits_refuses_nothing() {
    let validations = json!([{"expression": "object.?data.?k.orValue('') != 'bad'", "message": "it is bad"}]);
    claim(async |w| {
        let warns = json!({"validationActions": ["Warn", "Audit"]});
        let bad = json!({"k": "bad"});
        configure(w, json!({"validations": validations}), warns, bad, |a| !a.warnings().is_empty()).await;
        let made = w.post(&w.maps(""), labelled("x", json!({"k": "bad"}))).await.code(201);
        let text =
            format!("Validation failed for ValidatingAdmissionPolicy '{0}' with binding '{0}-b': it is bad", w.ns);
        assert_eq!(made.warnings(), [format!("299 - \"{text}\"")]);
    });
}

#[test]
fn conditions_say_what_a_policy_judges() {
    claim(async |w| {
        let fields = json!({
            "matchConditions": [
                {"name": "fails", "expression": "object.data.number == 1"},
                {"name": "judged", "expression": "object.data.?judged.orValue('') == 'yes'"},
            ],
            "validations": [{"expression": "false", "message": "no"}],
        });
        configure(w, fields, json!({}), json!({"judged": "yes"}), |a| a.code >= 400).await;
        // A false condition takes precedence over a failing one.
        w.post(&w.maps("?dryRun=All"), labelled("x", json!({"judged": "no"}))).await.code(201);
        let refused = w.post(&w.maps("?dryRun=All"), labelled("x", json!({"judged": "yes"}))).await;
        let why = "expression 'object.data.number == 1' resulted in error: no such key: number";
        let message = format!("configmaps \"x\" is forbidden: {} {why}", by(w));
        refused.refused(422, "Invalid", &message);
    });
    claim(async |w| {
        let fields = json!({
            "failurePolicy": "Ignore",
            "matchConditions": [{"name": "fails", "expression": "object.data.there != 'absent'"}],
            "validations": [
                {"expression": "object.data.also == 'yes'"}, {"expression": "object.data.there != 'yes'", "message": "no"},
            ],
        });
        configure(w, fields, json!({}), json!({"there": "yes"}), |a| a.code >= 400).await;
        w.post(&w.maps("?dryRun=All"), labelled("x", json!({}))).await.code(201);
        let refused = w.post(&w.maps("?dryRun=All"), labelled("x", json!({"there": "yes"}))).await;
        assert_eq!(refused.message(), format!("configmaps \"x\" is forbidden: {} no", by(w)));
    });
}

#[test]
fn an_expression_that_fails_refuses() {
    claim(async |w| {
        let fields =
            json!({"validations": [{"expression": "object.data.k != 'bad'", "message": "no", "reason": "Forbidden"}]});
        configure(w, fields, json!({}), json!({"k": "bad"}), |a| a.code >= 400).await;
        let refused = w.post(&w.maps("?dryRun=All"), labelled("x", json!({"other": "1"}))).await;
        let why = "expression 'object.data.k != 'bad'' resulted in error: no such key: k";
        refused.refused(422, "Invalid", &format!("configmaps \"x\" is forbidden: {} {why}", by(w)));
    });
}

#[test]
fn variables_are_evaluated_where_they_are_needed() {
    claim(async |w| {
        let fields = json!({
            "variables": [
                {"name": "broken", "expression": "object.data.absent"},
                {"name": "k", "expression": "object.data.?k.orValue('')"},
                {"name": "isBad", "expression": "variables.k.startsWith('bad')"},
            ],
            "validations": [
                {"expression": "!variables.isBad || variables.k == 'bad fails' && variables.broken == 1",
                 "messageExpression": "'not ' + variables.k"},
            ],
        });
        configure(w, fields, json!({}), json!({"k": "bad"}), |a| a.code >= 400).await;
        w.post(&w.maps("?dryRun=All"), labelled("x", json!({"k": "good"}))).await.code(201);
        let refused = w.post(&w.maps("?dryRun=All"), labelled("x", json!({"k": "bad one"}))).await;
        assert_eq!(refused.message(), format!("configmaps \"x\" is forbidden: {} not bad one", by(w)));
        let refused = w.post(&w.maps("?dryRun=All"), labelled("x", json!({"k": "bad fails"}))).await;
        let source = "!variables.isBad || variables.k == 'bad fails' && variables.broken == 1";
        let why = format!(
            "expression '{source}' resulted in error: composited variable \"broken\" fails to evaluate: no such key: absent"
        );
        assert_eq!(refused.message(), format!("configmaps \"x\" is forbidden: {} {why}", by(w)));
    });
}

#[test]
fn expressions_see_the_write_and_who_makes_it() {
    claim(async |w| {
        let seen = [
            "request.userInfo.username != '' && request.userInfo.groups.exists(g, g == 'system:authenticated')",
            "request.operation == 'UPDATE' && request.kind.kind == 'ConfigMap' && request.kind.group == ''",
            "request.resource.resource == 'configmaps' && request.name == object.metadata.name",
            "request.?options.?fieldManager.orValue('') == 'm'",
            "oldObject.data.k == '1' && object.data.k == '2'",
            "oldObject.metadata.?labels[?'policy'].orValue('') == '1'",
            "oldObject.metadata.managedFields.exists(f, f.manager == 'm' && f.operation == 'Apply')",
            "[object, oldObject].map(o, o.metadata.managedFields.filter(f, f.manager == 'm'))[0].size() == 1",
            "object.all(k, k in ['metadata', 'data'] || object[k] == oldObject[k])",
            "object.map(k, k).exists(k, k == 'data')",
            "namespaceObject.metadata.name == request.namespace && namespaceObject.status.phase == 'Active'",
            "'policy' in object.metadata.labels && !('other' in object.metadata.labels)",
        ];
        let as_seen: Vec<Value> = seen
            .iter()
            .map(|source| json!({"expression": format!("request.operation == 'CREATE' || {source}")}))
            .collect();
        let settles = json!({"expression": "request.operation != 'CREATE' || !has(object.data.settling)"});
        let validations: Vec<Value> = std::iter::once(settles).chain(as_seen).collect();
        configure(w, json!({"validations": validations}), json!({}), json!({"settling": "1"}), |a| a.code >= 400).await;
        w.force(&w.maps("x"), "m", labelled("x", json!({"k": "1"}))).await.code(201);
        w.force(&w.maps("x"), "m", labelled("x", json!({"k": "2"}))).await.code(200);
    });
}

#[test]
fn deletions_are_judged_by_what_is_deleted() {
    claim(async |w| {
        let fields = json!({"validations": [{
            "expression": "request.operation != 'DELETE' || object == null && oldObject.data.?keep.orValue('') != 'yes'",
            "messageExpression": "'keep ' + oldObject.metadata.name", "reason": "Forbidden",
        }, {"expression": "request.operation != 'CREATE' || !has(object.data.settling)"}]});
        configure(w, fields, json!({}), json!({"settling": "1"}), |a| a.code >= 400).await;
        for (name, keep) in [("a", "yes"), ("b", "no")] {
            w.post(&w.maps(""), labelled(name, json!({"keep": keep}))).await.code(201);
        }
        let message = format!("configmaps \"a\" is forbidden: {} keep a", by(w));
        w.delete(&w.maps("a"), json!({})).await.refused(403, "Forbidden", &message);
        w.delete(&w.maps("b"), json!({})).await.code(200);
        let collection = w.delete(&w.maps("?labelSelector=policy"), json!({})).await;
        assert_eq!((collection.code, collection.reason()), (403, "Forbidden"), "{}", collection.text);
        assert_eq!(w.get(&w.maps("a")).await.code, 200);
        // Remove the policy, so that the ConfigMap can be deleted.
        w.delete(&format!("{BINDINGS}/{}-b", w.ns), json!({})).await.code(200);
        until(w, json!({"settling": "1"}), |a| a.code == 201).await;
        w.delete(&w.maps("a"), json!({})).await.code(200);
    });
}

#[test]
fn a_wildcard_is_about_objects_and_not_about_their_parts() {
    claim(async |w| {
        let fields = json!({"validations": [{"expression": "request.operation == 'DELETE'
            || !has(object.spec) && !has(object.data) || has(object.spec) && object.spec.replicas == 1"}]});
        configure(w, fields, json!({}), json!({"k": "v"}), |a| a.code >= 400).await;
        let path = w.path("apps/v1", "deployments");
        let template = json!({
            "metadata": {"labels": {"app": "d"}}, "spec": {"containers": [{"name": "c", "image": "example.io/none"}]},
        });
        let deployment = json!({
            "metadata": {"name": "d", "labels": {"policy": "1"}},
            "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "d"}}, "template": template},
        });
        w.post(&path, deployment).await.code(201);
        let one = format!("{path}/d");
        w.merge(&one, json!({"spec": {"replicas": 0}})).await.code(422);
        w.merge(&format!("{one}/scale"), json!({"spec": {"replicas": 0}})).await.code(200);
        // An update validates the whole stored object.
        w.merge(&one, json!({"metadata": {"annotations": {"a": "1"}}})).await.code(422);
        w.merge(&format!("{one}/status"), json!({"status": {"observedGeneration": 1}})).await.code(200);
    });
}

#[test]
fn an_object_is_selected_by_its_old_labels_too() {
    claim(async |w| {
        let fields = json!({"validations": [{"expression": "request.operation == 'DELETE' || request.operation == 'CREATE' && !has(object.data)", "message": "no"}]});
        configure(w, fields, json!({}), json!({"settling": "1"}), |a| a.code >= 400).await;
        w.post(&w.maps(""), labelled("x", json!({}))).await.code(201);
        let refused = w.merge(&w.maps("x"), json!({"metadata": {"labels": {"policy": null}}})).await;
        refused.refused(422, "Invalid", &format!("configmaps \"x\" is forbidden: {} no", by(w)));
        w.map("y", json!({})).await;
        let refused = w.merge(&w.maps("y"), json!({"metadata": {"labels": {"policy": "1"}}})).await;
        refused.refused(422, "Invalid", &format!("configmaps \"y\" is forbidden: {} no", by(w)));
    });
}

#[test]
fn rules_can_be_excluded_and_name_objects() {
    claim(async |w| {
        let mut about = constraints();
        about["excludeResourceRules"] = json!([{
            "operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"],
            "resourceNames": ["spared"],
        }]);
        let fields = json!({"matchConstraints": about, "validations": [{"expression": "false", "message": "no"}]});
        configure(w, fields, json!({}), json!({}), |a| a.code >= 400).await;
        w.post(&w.maps("?dryRun=All"), labelled("spared", json!({}))).await.code(201);
        w.post(&w.maps("?dryRun=All"), labelled("other", json!({}))).await.code(422);
    });
}

#[test]
fn a_policy_counts_where_a_binding_says_so() {
    claim(async |w| {
        let rules = json!([{
            "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"],
            "scope": "Namespaced",
        }]);
        let own =
            json!({"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": [w.ns]}]});
        let bound = json!({"matchResources": {"namespaceSelector": own, "resourceRules": rules}});
        let fields = json!({"validations": [{"expression": "has(object.data.fine)"}]});
        configure(w, fields, bound, json!({"k": "v"}), |a| a.code >= 400).await;
        w.post(&w.maps(""), labelled("x", json!({"fine": "1"}))).await.code(201);
        // The binding matches creation in this namespace only.
        w.merge(&w.maps("x"), json!({"data": {"fine": null}})).await.code(200);
        w.post("/api/v1/namespaces/default/configmaps?dryRun=All", labelled(&w.ns, json!({}))).await.code(201);
        w.delete(&format!("{BINDINGS}/{}-b", w.ns), json!({})).await.code(200);
        until(w, json!({"k": "v"}), |a| a.code == 201).await;
    });
}

#[test]
fn policies_judge_no_policies() {
    claim(async |w| {
        let label = json!({"own": w.ns});
        let mut about = constraints();
        about["resourceRules"][0]["apiGroups"] = json!(["*"]);
        about["objectSelector"] = json!({"matchLabels": label});
        w.forget_later(&format!("{BINDINGS}/{}-b", w.ns));
        w.forget_later(&format!("{POLICIES}/{}", w.ns));
        let judges = json!({"matchConstraints": about, "validations": [{"expression": "false", "message": "no"}]});
        w.post(POLICIES, policy(w, judges)).await.code(201);
        w.post(BINDINGS, binding(w, json!({"matchResources": null}))).await.code(201);
        let mut settling = labelled("settling", json!({}));
        settling["metadata"]["labels"] = label.clone();
        let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
        while w.post(&w.maps("?dryRun=All"), settling.clone()).await.code != 422 {
            assert!(tokio::time::Instant::now() < deadline, "the policy counts");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let labels = json!({"metadata": {"labels": label}});
        w.merge(&format!("{POLICIES}/{}", w.ns), labels.clone()).await.code(200);
        w.merge(&format!("{BINDINGS}/{}-b", w.ns), labels).await.code(200);
    });
}

#[test]
fn policies_and_bindings_get_defaults_and_generations() {
    claim(async |w| {
        w.forget_later(&format!("{POLICIES}/{}", w.ns));
        w.forget_later(&format!("{BINDINGS}/{}-b", w.ns));
        let made = w.post(POLICIES, policy(w, json!({"validations": [{"expression": "true"}]}))).await.code(201).body;
        assert_eq!(made["metadata"]["generation"], 1);
        assert_eq!(made["status"], json!({}));
        let spec = json!({
            "failurePolicy": "Fail", "validations": [{"expression": "true"}],
            "matchConstraints": {
                "matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {"matchLabels": {"policy": "1"}},
                "resourceRules": [{
                    "operations": ["CREATE", "UPDATE", "DELETE"], "apiGroups": ["", "apps"], "apiVersions": ["*"],
                    "resources": ["*"], "scope": "*",
                }],
            },
        });
        assert_eq!(made["spec"], spec);
        let path = format!("{POLICIES}/{}", w.ns);
        let changed = w.merge(&path, json!({"spec": {"failurePolicy": "Ignore"}})).await.code(200).body;
        assert_eq!(changed["metadata"]["generation"], 2);
        let made = w.post(BINDINGS, binding(w, json!({}))).await.code(201).body;
        assert_eq!(made["metadata"]["generation"], 1);
        let own = json!({"matchLabels": {"kubernetes.io/metadata.name": w.ns}});
        let spec = json!({
            "policyName": w.ns, "validationActions": ["Deny"],
            "matchResources": {"matchPolicy": "Equivalent", "namespaceSelector": own, "objectSelector": {}},
        });
        assert_eq!(made["spec"], spec);
        let unversioned = w.put(&path, policy(w, json!({"validations": [{"expression": "true"}]}))).await;
        unversioned.invalid("FieldValueInvalid", "metadata.resourceVersion");
    });
}

#[test]
fn policies_are_checked_when_they_are_written() {
    claim(async |w| {
        let ask = async |fields: Value| w.post(&format!("{POLICIES}?dryRun=All"), policy(w, fields)).await;
        let fine = json!([{"expression": "true"}]);
        ask(json!({
            "variables": [{"name": "a", "expression": "object.x"}, {"name": "b", "expression": "variables.a == 1"}],
            "validations": [{"expression": "variables.b", "messageExpression": "'a ' + string(variables.a)"}],
        }))
        .await
        .code(201);
        let causes = async |fields: Value| ask(fields).await.code(422).causes();
        assert_eq!(
            causes(json!({"matchConstraints": null, "validations": fine})).await,
            ["FieldValueRequired spec.matchConstraints: Required value"]
        );
        assert_eq!(
            causes(json!({"matchConstraints": {}, "validations": fine})).await,
            ["FieldValueRequired spec.matchConstraints.resourceRules: Required value"]
        );
        let none = "Required value: validations or auditAnnotations must contain at least one item";
        assert_eq!(
            causes(json!({})).await,
            [
                format!("FieldValueRequired spec.validations: {none}"),
                format!("FieldValueRequired spec.auditAnnotations: {none}")
            ]
        );
        assert_eq!(
            causes(json!({"failurePolicy": "Never", "validations": fine})).await,
            [
                "FieldValueNotSupported spec.failurePolicy: Unsupported value: \"Never\": supported values: \"Fail\", \"Ignore\""
            ]
        );
        let expression = "spec.validations[0].expression";
        for (source, why) in [
            ("object.spec", "must evaluate to bool but got dyn"),
            ("'text'", "must evaluate to bool but got string"),
            (
                "variables.absent",
                "compilation failed: ERROR: <input>:1:1: undeclared reference to 'variables' (in container '')\n | variables.absent\n | ^",
            ),
        ] {
            assert_eq!(
                causes(json!({"validations": [{"expression": source}]})).await,
                [format!("FieldValueInvalid {expression}: Invalid value: {}: {why}", Value::from(source))]
            );
        }
        let named = json!({"variables": [{"name": "a", "expression": "1"}], "validations": [{"expression": "variables.b == 1"}]});
        let why = "compilation failed: ERROR: <input>:1:10: undefined field 'b'\n | variables.b == 1\n | .........^";
        assert_eq!(
            causes(named).await,
            [format!("FieldValueInvalid {expression}: Invalid value: \"variables.b == 1\": {why}")]
        );
        assert_eq!(
            causes(json!({"validations": [{"expression": "true", "messageExpression": "1"}]})).await,
            [
                "FieldValueInvalid spec.validations[0].messageExpression: Invalid value: \"1\": must evaluate to string but got int"
            ]
        );
        assert_eq!(
            causes(json!({"validations": [{"expression": "true", "message": "a\nb"}]})).await,
            ["FieldValueInvalid spec.validations[0].message: Invalid value: \"a\\nb\": must not contain line breaks"]
        );
        assert_eq!(
            causes(json!({"validations": [{"expression": "true", "reason": "Because"}]})).await,
            [
                "FieldValueNotSupported spec.validations[0].reason: Unsupported value: \"Because\": supported values: \"Forbidden\", \"Invalid\", \"RequestEntityTooLarge\""
            ]
        );
        assert_eq!(
            causes(json!({"variables": [{"name": "a b", "expression": "1"}], "validations": fine})).await,
            ["FieldValueInvalid spec.variables[0].name: Invalid value: \"a b\": must be a valid CEL identifier"]
        );
        ask(json!({"matchConditions": [{"name": "c", "expression": "variables.a"}], "validations": fine}))
            .await
            .invalid("FieldValueInvalid", "spec.matchConditions[0].expression");
    });
}

#[test]
fn bindings_are_checked_when_they_are_written() {
    claim(async |w| {
        let causes = async |fields: Value| {
            w.post(&format!("{BINDINGS}?dryRun=All"), binding(w, fields)).await.code(422).causes()
        };
        assert_eq!(
            causes(json!({"policyName": "A b"})).await.iter().filter(|c| c.contains("spec.policyName")).count(),
            1
        );
        assert_eq!(
            causes(json!({"validationActions": ["Refuse"]})).await,
            [
                "FieldValueNotSupported spec.validationActions[0]: Unsupported value: \"Refuse\": supported values: \"Audit\", \"Deny\", \"Warn\""
            ]
        );
        let both = causes(json!({"validationActions": ["Deny", "Warn"]})).await;
        let start = "FieldValueInvalid spec.validationActions: Invalid value: [\"Deny\",\"Warn\"]: must not contain both Deny and Warn";
        assert!(both.len() == 1 && both[0].starts_with(start), "{both:?}");
        // A binding may refer to a policy that does not exist yet.
        w.post(&format!("{BINDINGS}?dryRun=All"), binding(w, json!({"policyName": "later"}))).await.code(201);
        assert!(w.get(GROUP).await.text.contains("validatingadmissionpolicies/status"));
    });
}
