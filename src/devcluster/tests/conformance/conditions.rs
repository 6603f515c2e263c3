//! Match conditions of webhooks: accepted expressions, and the requests that they exclude.

use serde_json::{Value, json};

use crate::hooks::{configure, labelled, settled};
use crate::webhook::{Hooks, allow};
use crate::world::{Answer, World, claim};

const PATH: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations?dryRun=All";

fn conditions(expressions: &[&str]) -> Value {
    let one = |(index, expression)| json!({"name": format!("c{index}"), "expression": expression});
    expressions.iter().enumerate().map(one).collect()
}

/// Configures a validating webhook with these conditions and waits until the unconditional webhook `/v` is called.
async fn conditioned(w: &World, policy: &str, expressions: &[&str]) -> Hooks {
    let hooks = Hooks::start(|_, review| allow(review, json!({})));
    let mut hook = hooks.hook(w, "c");
    hook["failurePolicy"] = policy.into();
    hook["matchConditions"] = conditions(expressions);
    configure(w, "validating", "c", json!([hook, hooks.hook(w, "v")])).await;
    settled(w, &hooks, |a| a.code == 403 || !hooks.asked_at("/v").is_empty()).await;
    hooks
}

/// Creates a ConfigMap `x` by a dry run. Returns the response and the number of webhook calls.
async fn tried(w: &World, hooks: &Hooks, data: Value) -> (Answer, usize) {
    hooks.forget();
    let answer = w.post(&w.maps("?dryRun=All"), labelled("x", data)).await;
    (answer, hooks.asked_at("/c").len())
}

#[test]
fn a_webhook_is_asked_where_all_its_conditions_hold() {
    claim(async |w| {
        let hooks =
            conditioned(w, "Fail", &["object.data.k == 'v'", "request.operation == 'CREATE' && oldObject == null"])
                .await;
        let (answer, asked) = tried(w, &hooks, json!({"k": "v"})).await;
        assert_eq!((answer.code, asked), (201, 1), "{}", answer.text);
        let (answer, asked) = tried(w, &hooks, json!({"k": "other"})).await;
        assert_eq!((answer.code, asked), (201, 0), "{}", answer.text);
    });
}

#[test]
fn conditions_see_the_request() {
    claim(async |w| {
        let expression = [
            "request.name == 'x'",
            &format!("request.namespace == '{}'", w.ns),
            "request.kind.kind == 'ConfigMap' && request.requestKind.version == 'v1' && request.kind.group == ''",
            "request.resource.resource == 'configmaps' && !has(request.subResource)",
            "request.dryRun && request.options.dryRun == ['All']",
            "request.userInfo.username != '' && request.userInfo.groups.exists(g, g == 'system:authenticated')",
            "has(object.metadata.uid) && object.metadata.labels.?wh.orValue('') == '1'",
            "object.metadata.managedFields.all(f, f.operation in ['Apply', 'Update'])",
        ]
        .join(" && ");
        let hooks = conditioned(w, "Fail", &[&expression]).await;
        let (answer, asked) = tried(w, &hooks, json!({"k": "v"})).await;
        assert_eq!((answer.code, asked), (201, 1), "{}", answer.text);
    });
}

#[test]
fn a_condition_that_is_false_outweighs_one_that_fails() {
    claim(async |w| {
        let hooks = conditioned(w, "Fail", &["object.data.absent == 'x'", "object.data.k == 'v'"]).await;
        let (answer, asked) = tried(w, &hooks, json!({"k": "other"})).await;
        assert_eq!((answer.code, asked), (201, 0), "{}", answer.text);
    });
}

#[test]
fn a_condition_that_fails_is_a_403_or_passes_the_webhook_over() {
    claim(async |w| {
        let failing = ["object.data.absent == 'x'", "object.data.n < 3"];
        let hooks = conditioned(w, "Fail", &failing).await;
        let (answer, asked) = tried(w, &hooks, json!({"n": "5"})).await;
        let message = "configmaps \"x\" is forbidden: [expression 'object.data.absent == 'x'' resulted in error: no such key: absent, expression 'object.data.n < 3' resulted in error: no such overload]";
        assert_eq!(asked, 0);
        let refused = answer.refused(403, "Forbidden", message);
        assert_eq!(refused.body["details"], json!({"name": "x", "kind": "configmaps"}));
    });
    claim(async |w| {
        let hooks = conditioned(w, "Ignore", &["object.data.absent == 'x'"]).await;
        let (answer, asked) = tried(w, &hooks, json!({"n": "5"})).await;
        assert_eq!((answer.code, asked), (201, 0), "{}", answer.text);
    });
}

#[test]
fn failures_of_conditions_have_their_words() {
    claim(async |w| {
        for (expression, why) in [
            ("oldObject.metadata.name == 'x'", "no such key: metadata"),
            ("namespaceObject.metadata.name == 'x'", "no such key: metadata"),
            ("[1, 2][5] == 1", "index out of bounds: 5"),
            ("1 / 0 == 1", "division by zero"),
            ("!object.data.k", "no such overload"),
        ] {
            let _hooks = conditioned(w, "Fail", &[expression]).await;
            let refused = w.post(&w.maps("?dryRun=All"), labelled("x", json!({"k": "v"}))).await;
            let message = format!("configmaps \"x\" is forbidden: expression '{expression}' resulted in error: {why}");
            refused.refused(403, "Forbidden", &message);
            let path = format!("/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/{}-c", w.ns);
            w.delete(&path, json!({})).await.code(200);
            let gone = |a: &Answer| a.code == 201;
            settled_without(w, gone).await;
        }
    });
}

/// Waits until the configuration has no effect any more.
async fn settled_without(w: &World, done: impl Fn(&Answer) -> bool) {
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(30);
    while !done(&w.post(&w.maps("?dryRun=All"), labelled("settling", json!({"k": "v"}))).await) {
        assert!(tokio::time::Instant::now() < deadline, "the configuration is gone");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

#[test]
fn conditions_can_ask_what_somebody_may_do() {
    claim(async |w| {
        let expressions = [
            "authorizer.group('').resource('configmaps').namespace('default').check('create').allowed()",
            "authorizer.requestResource.check('delete').allowed()",
            "authorizer.path('/healthz').check('get').allowed()",
            "!authorizer.serviceAccount('default', 'nobody').group('').resource('secrets').check('list').allowed()",
            "authorizer.group('apps').resource('deployments').subresource('scale').name('d').check('get').errored() == false",
        ];
        // The cost of each expression is high: a real server would refuse three of them in one expression.
        let hooks = conditioned(w, "Fail", &expressions).await;
        let (answer, asked) = tried(w, &hooks, json!({"k": "v"})).await;
        assert_eq!((answer.code, asked), (201, 1), "{}", answer.text);
    });
}

#[test]
fn expressions_are_checked_when_they_are_configured() {
    claim(async |w| {
        let hooks = Hooks::start(|_, review| allow(review, json!({})));
        let ask = async |expression: &str| {
            let mut hook = hooks.hook(w, "v");
            hook["matchConditions"] = conditions(&[expression]);
            w.post(PATH, json!({"metadata": {"name": w.ns}, "webhooks": [hook]})).await
        };
        for fine in [
            "true",
            "object.x ? true : false",
            "!object.x",
            "object.a < object.b",
            "object.x.exists(y, y)",
            "request.operation in ['CREATE']",
            "request.userInfo.extra['x'].exists(e, e == 'y')",
            "authorizer.serviceAccount('ns', 'sa').path('/x').check('get').allowed()",
        ] {
            ask(fine).await.code(201);
        }
        for (expression, why) in [
            ("object.spec", "must evaluate to bool but got dyn"),
            ("1", "must evaluate to bool but got int"),
            ("null", "must evaluate to bool but got null_type"),
            ("size(object.x)", "must evaluate to bool but got int"),
            ("object.list.map(x, x)", "must evaluate to bool but got list(dyn)"),
            ("request.userInfo.groups", "must evaluate to bool but got list(string)"),
            (
                "authorizer.requestResource.check('create')",
                "must evaluate to bool but got kubernetes.authorization.Decision",
            ),
            (
                "obj.x",
                "compilation failed: ERROR: <input>:1:1: undeclared reference to 'obj' (in container '')\n | obj.x\n | ^",
            ),
            (
                "foo(object)",
                "compilation failed: ERROR: <input>:1:4: undeclared reference to 'foo' (in container '')\n | foo(object)\n | ...^",
            ),
            (
                "params.x == 1",
                "compilation failed: ERROR: <input>:1:1: undeclared reference to 'params' (in container '')\n | params.x == 1\n | ^",
            ),
            (
                "request.object == null",
                "compilation failed: ERROR: <input>:1:8: undefined field 'object'\n | request.object == null\n | .......^",
            ),
            (
                "has(request.bogus)",
                "compilation failed: ERROR: <input>:1:4: undefined field 'bogus'\n | has(request.bogus)\n | ...^",
            ),
            (
                "true && 1",
                "compilation failed: ERROR: <input>:1:9: expected type 'bool' but found 'int'\n | true && 1\n | ........^",
            ),
            (
                "request.name == 1",
                "compilation failed: ERROR: <input>:1:14: found no matching overload for '_==_' applied to '(string, int)'\n | request.name == 1\n | .............^",
            ),
        ] {
            let causes = ask(expression).await.code(422).causes();
            let field = "webhooks[0].matchConditions[0].expression";
            let value = Value::from(expression);
            assert_eq!(causes, [format!("FieldValueInvalid {field}: Invalid value: {value}: {why}")]);
        }
        ask("object.x +").await.invalid("FieldValueInvalid", "webhooks[0].matchConditions[0].expression");
    });
}

#[test]
fn conditions_need_names_of_their_own_and_are_not_too_many() {
    claim(async |w| {
        let hooks = Hooks::start(|_, review| allow(review, json!({})));
        let causes = async |conditions: Value| {
            let mut hook = hooks.hook(w, "v");
            hook["matchConditions"] = conditions;
            w.post(PATH, json!({"metadata": {"name": w.ns}, "webhooks": [hook]})).await.code(422).causes()
        };
        let field = "webhooks[0].matchConditions";
        assert_eq!(
            causes(json!([{"name": "a"}])).await,
            [format!("FieldValueRequired {field}[0].expression: Required value")]
        );
        assert_eq!(
            causes(json!([{"expression": "true"}])).await,
            [format!("FieldValueRequired {field}[0].name: Required value")]
        );
        let twice = json!([{"name": "a", "expression": "true"}, {"name": "a", "expression": "true"}]);
        assert_eq!(causes(twice).await, [format!("FieldValueDuplicate {field}[1].name: Duplicate value: \"a\"")]);
        let named = causes(json!([{"name": "A b", "expression": "true"}])).await;
        let start = format!("FieldValueInvalid {field}[0].name: Invalid value: \"A b\": name part must consist of");
        assert!(named.len() == 1 && named[0].starts_with(&start), "{named:?}");
        let many: Value = (0..65).map(|n| json!({"name": format!("c{n}"), "expression": "true"})).collect();
        assert_eq!(
            causes(many).await,
            [format!("FieldValueTooMany {field}: Too many: 65: must have at most 64 items")]
        );
    });
}
