//! The backward loop, end to end: values of other clients in place of Mainstay's, where the API server refuses both
//! together.

use devcluster::{Action, Call, verbs::patch::Form};
use serde_json::{Value, json};

use mainstay_testkit::{
    drift::{fence, patch_as, revert_of, synced, version},
    world::{NAMESPACE, World},
};

const WEB: (&str, &str, &str) = ("apps/v1", "deployments", "web");
const SERVICE: (&str, &str, &str) = ("v1", "services", "web");

/// Returns the number of requests of one kind.
fn asked(world: &World, what: &str) -> u64 {
    world.requests().into_iter().filter(|(asked, _)| asked == what).map(|(_, count)| count).sum()
}

/// Asserts that there was one more apply of this kind than `before`, so that no apply was refused.
#[track_caller]
fn one_apply(world: &World, what: &str, before: u64, edit: &str) {
    assert_eq!(asked(world, what), before + 1, "{edit}: no apply is refused: {:?}", world.requests());
}

fn live(world: &World, of: (&str, &str, &str)) -> Value {
    (*world.get(of.0, of.1, of.2).unwrap()).clone()
}

/// Returns the spec of an object without fields that the server or its controllers write.
fn spec(world: &World, of: (&str, &str, &str)) -> Value {
    live(world, of)["spec"].clone()
}

fn service(ports: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: web}}\nspec: {{selector: {{app: web}}, ports: {ports}}}\n"
    )
}

/// Returns the managers of an object, except for subresources.
fn managers(object: &Value) -> Vec<String> {
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    let main = entries.iter().filter(|entry| entry.get("subresource").is_none());
    main.map(|entry| format!("{} {}", entry["manager"].as_str().unwrap(), entry["operation"].as_str().unwrap()))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_of_a_service_that_was_edited_is_reverted_in_one_apply() {
    for (ports, op) in [
        (
            "[{name: http, port: 80}, {name: https, port: 443}]",
            json!({"op": "replace", "path": "/spec/ports/0/port", "value": 8080}),
        ),
        (
            "[{name: http, port: 80, targetPort: web}]",
            json!({"op": "replace", "path": "/spec/ports/0/protocol", "value": "UDP"}),
        ),
    ] {
        let mut world = synced(&[("web.yaml", service(ports))]).await;
        let before = spec(&world, SERVICE);
        let applies = asked(&world, "apply services");
        patch_as(&world, "kubectl-edit", SERVICE, Form::Json, json!([op]));
        let (who, fields) = revert_of(&mut world, "web").await;
        assert_eq!(who, "kubectl-edit");
        assert!(fields.iter().all(|field| field.starts_with("spec.ports")), "{fields:?}");
        assert_eq!(spec(&world, SERVICE), before);
        assert_eq!(managers(&live(&world, SERVICE)), ["mainstay Apply"]);
        one_apply(&world, "apply services", applies, ports);
        world.condition_is("demo", "Ready", "True").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_without_a_name_that_was_edited_is_reverted_at_once() {
    let mut world = synced(&[("web.yaml", service("[{port: 80}]"))]).await;
    let before = spec(&world, SERVICE);
    let edit = json!([{"op": "replace", "path": "/spec/ports/0/port", "value": 8080}]);
    patch_as(&world, "kubectl-edit", SERVICE, Form::Json, edit);
    assert_eq!(revert_of(&mut world, "web").await.0, "kubectl-edit");
    assert_eq!(spec(&world, SERVICE), before);
    assert_eq!(managers(&live(&world, SERVICE)), ["mainstay Apply"]);
    let failures = |w: &World| w.status("demo")["failures"].clone();
    world.until("the revert is told", |w| w.status("demo")["reverted"] == 1).await;
    assert_eq!(failures(&world), Value::Null, "it was not tried later, but at once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conflicting_port_of_a_person_is_removed_and_that_of_an_applier_is_reported() {
    let mut world = synced(&[("web.yaml", service("[{name: http, port: 80}]"))]).await;
    let before = spec(&world, SERVICE);
    let apply = |manager: &str| {
        let mut object = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": NAMESPACE},
            "spec": {"ports": [{"name": "http", "port": 8080}]},
        });
        // Replaces Git's port by another. An edit by hand is a JSON patch, because an apply only adds.
        let swap = json!([{"op": "replace", "path": "/spec/ports", "value": [{"name": "http", "port": 8080}]}]);
        patch_as(&world, manager, SERVICE, Form::Json, swap);
        object["spec"]["ports"][0]["protocol"] = "TCP".into();
        object
    };
    let object = apply("kubectl");
    let call = Call::new(SERVICE.0, SERVICE.1, NAMESPACE, "web", Action::Patch(Form::Apply, object));
    // The agent may already be reverting the edit. The apply then conflicts with the agent's and is refused.
    let _ = world.try_as("kubectl", call);
    world.until("it is reverted", |w| spec(w, SERVICE)["ports"] == before["ports"]).await;
    assert_eq!(revert_of(&mut world, "web").await.0, "kubectl");
}

/// A Deployment in which every keyed list has an item that Mainstay applied.
const LISTS: &str = r"apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  strategy: {type: Recreate}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: web
        image: nginx:1
        command: [run]
        env: [{name: A, value: one}]
        ports: [{name: http, containerPort: 80}]
        volumeMounts: [{name: data, mountPath: /data}]
        livenessProbe: {httpGet: {port: 80}, periodSeconds: 7}
      initContainers: [{name: first, image: 'busybox:1'}]
      volumes: [{name: data, emptyDir: {}}]
      hostAliases: [{ip: 10.1.2.3, hostnames: [one]}]
      imagePullSecrets: [{name: pull}]
      topologySpreadConstraints:
      - {maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {app: web}}}
";

/// Hand edits of list keys in the pod template.
const EDITS: [(&str, &str); 9] = [
    ("containers/0/name", r#""other""#),
    ("containers/0/env/0/name", r#""OTHER""#),
    ("containers/0/ports/0/containerPort", "81"),
    ("containers/0/volumeMounts/0/mountPath", r#""/other""#),
    ("initContainers/0/name", r#""other""#),
    ("hostAliases/0/ip", r#""10.3.2.1""#),
    ("topologySpreadConstraints/0/topologyKey", r#""other""#),
    ("containers/0/env/0", r#"{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}"#),
    ("volumes/0", r#"{"name": "data", "hostPath": {"path": "/"}}"#),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_item_of_any_list_whose_key_was_edited_is_reverted_in_one_apply() {
    let mut world = synced(&[("web.yaml", LISTS.to_owned())]).await;
    let before = spec(&world, WEB);
    for (path, value) in EDITS {
        let applies = asked(&world, "apply deployments.apps");
        let value: Value = serde_json::from_str(value).unwrap();
        let path = format!("/spec/template/spec/{path}");
        patch_as(&world, "kubectl-edit", WEB, Form::Json, json!([{"op": "replace", "path": path, "value": value}]));
        let (who, fields) = revert_of(&mut world, "web").await;
        assert_eq!(spec(&world, WEB), before, "{path}: {fields:?}");
        assert_eq!(who, "kubectl-edit", "{path}: {fields:?}");
        assert_eq!(managers(&live(&world, WEB)), ["mainstay Apply"], "{path}");
        one_apply(&world, "apply deployments.apps", applies, &path);
        // Prevents the edits from counting as a fight.
        world.kill().await;
        world.start();
        // The agent applies again the state that it had not recorded before the kill. After that, it answers the
        // request.
        world.ask("demo").await;
        fence(&world).await;
    }
    world.condition_is("demo", "Ready", "").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conflicting_union_member_is_replaced_in_one_apply() {
    let mut world = synced(&[("web.yaml", LISTS.to_owned())]).await;
    let before = spec(&world, WEB);
    let container = "/spec/template/spec/containers/0";
    for edit in [
        json!([{"op": "replace", "path": format!("{container}/livenessProbe"), "value": {"tcpSocket": {"port": 80}, "periodSeconds": 7}}]),
        json!([{"op": "replace", "path": "/spec/strategy", "value": {"type": "RollingUpdate"}}]),
    ] {
        let applies = asked(&world, "apply deployments.apps");
        patch_as(&world, "kubectl-edit", WEB, Form::Json, edit.clone());
        let (who, fields) = revert_of(&mut world, "web").await;
        assert_eq!(spec(&world, WEB), before, "{edit}: {fields:?}");
        assert_eq!(who, "kubectl-edit", "{edit}: {fields:?}");
        assert_eq!(managers(&live(&world, WEB)), ["mainstay Apply"], "{edit}");
        one_apply(&world, "apply deployments.apps", applies, &edit.to_string());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn additions_without_conflict_stay_when_an_item_is_restored() {
    let mut world = synced(&[
        ("web.yaml", LISTS.to_owned()),
        ("s.yaml", service("[{name: http, port: 80}, {name: more, port: 81}]")),
    ])
    .await;
    let theirs = json!({"spec": {"template": {"spec": {
        "containers": [
            {"name": "web", "env": [{"name": "THEIRS", "value": "one"}, {"name": "THEIRS_TOO", "value": "one"}], "volumeMounts": [{"name": "theirs", "mountPath": "/theirs"}]},
            {"name": "sidecar", "image": "sidecar:1"},
        ],
        "volumes": [{"name": "theirs", "emptyDir": {}}], "imagePullSecrets": [{"name": "theirs"}],
    }}}});
    patch_as(&world, "injector", WEB, Form::Strategic, theirs);
    patch_as(
        &world,
        "injector",
        SERVICE,
        Form::Strategic,
        json!({"spec": {"ports": [{"name": "theirs", "port": 99}]}}),
    );
    let template = |w: &World| spec(w, WEB)["template"]["spec"].clone();
    let position =
        |list: &Value, name: &str| list.as_array().unwrap().iter().position(|item| item["name"] == name).unwrap();
    for list in
        ["containers/@/env:A", "containers/@/ports:http", "containers/@/volumeMounts:data", "imagePullSecrets:pull"]
    {
        let found = template(&world);
        let list = list.replace('@', &position(&found["containers"], "web").to_string());
        let (list, name) = list.split_once(':').unwrap();
        let at = position(found.pointer(&format!("/{list}")).unwrap(), name);
        let remove = json!([{"op": "remove", "path": format!("/spec/template/spec/{list}/{at}")}]);
        patch_as(&world, "kubectl-edit", WEB, Form::Json, remove);
        revert_of(&mut world, "web").await;
        position(template(&world).pointer(&format!("/{list}")).unwrap(), name);
    }
    let found = template(&world);
    let web = &found["containers"][position(&found["containers"], "web")];
    position(&found["containers"], "sidecar");
    position(&web["env"], "THEIRS");
    position(&web["env"], "THEIRS_TOO");
    position(&web["volumeMounts"], "theirs");
    position(&found["volumes"], "theirs");
    position(&found["imagePullSecrets"], "theirs");
    let at = position(&spec(&world, SERVICE)["ports"], "http");
    patch_as(
        &world,
        "kubectl-edit",
        SERVICE,
        Form::Json,
        json!([{"op": "remove", "path": format!("/spec/ports/{at}")}]),
    );
    revert_of(&mut world, "web").await;
    for name in ["http", "more", "theirs"] {
        position(&spec(&world, SERVICE)["ports"], name);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_is_written_meanwhile_is_reverted_all_the_same() {
    let mut world = synced(&[("web.yaml", service("[{name: http, port: 80}]"))]).await;
    let before = spec(&world, SERVICE);
    world.fail_next("patch", "services", "web", 409, 2);
    let edit = json!([{"op": "replace", "path": "/spec/ports/0/port", "value": 8080}]);
    patch_as(&world, "kubectl-edit", SERVICE, Form::Json, edit);
    revert_of(&mut world, "web").await;
    assert_eq!(spec(&world, SERVICE), before);
    world.until("it is told", |w| w.status("demo")["reverted"] == 1).await;
    assert_eq!(world.status("demo")["failures"], Value::Null);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_collides_with_what_somebody_added_is_applied() {
    let mut world = synced(&[("web.yaml", service("[{name: http, port: 80}]"))]).await;
    let theirs = json!({"spec": {"ports": [{"name": "metrics", "port": 9090}, {"name": "theirs", "port": 99}]}});
    patch_as(&world, "kubectl-edit", SERVICE, Form::Strategic, theirs);
    world.remote.file("web.yaml", service("[{name: http, port: 80}, {name: metrics, port: 9091}]"));
    world.commit("demo", "metrics of our own").await;
    let ports = spec(&world, SERVICE)["ports"].clone();
    let mut ports = ports.as_array().unwrap().iter().map(|port| port["port"].as_i64().unwrap()).collect::<Vec<_>>();
    ports.sort_unstable();
    assert_eq!(ports[..2], [80, 9091]);
    assert!(!ports.contains(&9090), "{ports:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webhook_and_an_item_of_a_custom_resource_under_another_name_make_way() {
    let definition = r"apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.org}
spec:
  group: example.org
  scope: Namespaced
  names: {kind: Widget, plural: widgets, singular: widget}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              parts:
                type: array
                maxItems: 2
                items: {type: object, required: [id], properties: {id: {type: string}, size: {type: integer}}}
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [id]
";
    let widget = "apiVersion: example.org/v1\nkind: Widget\nmetadata: {name: w}\nspec: {parts: [{id: a, size: 1}, {id: b, size: 2}]}\n";
    let hooks = r#"apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: hooks}
webhooks:
- name: one.example.org
  clientConfig: {url: "https://127.0.0.1:1/one"}
  rules: [{apiGroups: [example.net], apiVersions: [v1], operations: [CREATE], resources: [nothing]}]
  sideEffects: None
  admissionReviewVersions: [v1]
  failurePolicy: Ignore
"#;
    let files = [("crd.yaml", definition.to_owned()), ("w.yaml", widget.to_owned()), ("hooks.yaml", hooks.to_owned())];
    let mut world = synced(&files).await;
    let of = ("example.org/v1", "widgets", "w");
    let before = spec(&world, of);
    // One item resembles the item in Git. The other item only takes the last free position in the list.
    for part in [json!({"id": "c", "size": 1}), json!({"id": "c", "size": 9})] {
        let edit = json!([{"op": "replace", "path": "/spec/parts/0", "value": part}]);
        patch_as(&world, "kubectl-edit", of, Form::Json, edit);
        assert_eq!(revert_of(&mut world, "w").await.0, "kubectl-edit");
        let mut parts = spec(&world, of)["parts"].as_array().unwrap().clone();
        parts.sort_by_key(|part| part["id"].to_string());
        assert_eq!(json!(parts), before["parts"]);
    }
    let hooks = ("admissionregistration.k8s.io/v1", "validatingwebhookconfigurations");
    let names = |w: &World| {
        let found = w.server.object(hooks.0, hooks.1, "", "hooks").unwrap();
        found["webhooks"]
            .as_array()
            .unwrap()
            .iter()
            .map(|hook| hook["name"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let edit = json!([{"op": "replace", "path": "/webhooks/0/name", "value": "two.example.org"}]);
    world.try_as("kubectl-edit", Call::new(hooks.0, hooks.1, "", "hooks", Action::Patch(Form::Json, edit))).unwrap();
    revert_of(&mut world, "hooks").await;
    assert_eq!(names(&world), ["one.example.org"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conflicts_are_only_reported_under_the_policy_report() {
    let mut world = World::new().await;
    world.remote.file("web.yaml", service("[{name: http, port: 80}]")).commit("one");
    world.synced(json!({"drift": "Report"})).await;
    let edit = json!([{"op": "replace", "path": "/spec/ports/0/port", "value": 8080}]);
    let edited = patch_as(&world, "kubectl-edit", SERVICE, Form::Json, edit);
    let seen = async {
        loop {
            if let mainstay_engine::notification::Message::DriftSeen { fields, .. } =
                world.messages.recv().await.unwrap()
            {
                return fields;
            }
        }
    };
    assert_eq!(tokio::time::timeout(world.patience, seen).await.unwrap(), ["spec.ports"]);
    assert_eq!(version(&live(&world, SERVICE)), version(&edited));
}

/// Returns the Events with a reason about one kind of object in the namespace.
fn events(world: &World, reason: &str, kind: &str) -> Vec<Value> {
    let all = world.server.objects("v1", "events", Some(NAMESPACE));
    let about = all.into_iter().filter(|event| event["reason"] == reason && event["involvedObject"]["kind"] == kind);
    about.map(|event| (*event).clone()).collect()
}

/// Refuses the next applies of the Service.
fn refuse(world: &World, times: u32) {
    world.levers().fail_next(devcluster::fault_injection::Fault {
        verb: "apply".into(),
        resource: "services".into(),
        name: "web".into(),
        code: 422,
        message: "Service \"web\" is invalid: spec.ports[1].name: Duplicate value: \"http\"".into(),
        times,
        ..Default::default()
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revert_that_fails_twice_makes_the_git_sync_not_ready_until_it_succeeds() {
    let mut world = synced(&[("web.yaml", service("[{name: http, port: 80}]"))]).await;
    let before = spec(&world, SERVICE);
    // Only the first attempt is refused.
    refuse(&world, 1);
    let edit = json!([{"op": "replace", "path": "/spec/ports/0/port", "value": 8080}]);
    patch_as(&world, "kubectl-edit", SERVICE, Form::Json, edit.clone());
    revert_of(&mut world, "web").await;
    assert_eq!(events(&world, "RevertFailed", "Service"), Vec::<Value>::new(), "one failure is no news");
    refuse(&world, 1000);
    patch_as(&world, "kubectl-edit", SERVICE, Form::Json, edit);
    let said = "False RevertFailed: 1 of the objects cannot be reverted: ";
    world.condition_is("demo", "Ready", &format!("{said}Service {NAMESPACE}/web: spec.ports: ")).await;
    let ready = world.condition("demo", "Ready");
    assert!(ready.contains(": web.yaml:1 (document 1): the API server answered 422 Invalid: spec.ports[1].name: Duplicate value: \"http\""), "{ready}");
    for kind in ["Service", "GitSync"] {
        world.until("it is told", |w| !events(w, "RevertFailed", kind).is_empty()).await;
        let told = events(&world, "RevertFailed", kind);
        assert_eq!(told.len(), 1, "it is aggregated");
        let text = told[0]["message"].as_str().unwrap();
        assert!(text.contains("cannot revert spec.ports: web.yaml:1 (document 1): "), "{text}");
        // An Event about the Service need not name it.
        let names = text.contains(&format!("Service {NAMESPACE}/web"));
        assert_eq!((&told[0]["type"], names), (&json!("Warning"), kind == "GitSync"), "{text}");
    }
    world.levers().clear_faults();
    world.until("it is back", |w| spec(w, SERVICE) == before).await;
    world.condition_is("demo", "Ready", "True").await;
}

/// Edits the port of a Service whose applies are always refused, with a new message each time.
async fn refused_for_ever(code: u16) {
    let world = synced(&[("web.yaml", service("[{name: http, port: 80}]"))]).await;
    let before = spec(&world, SERVICE);
    world.levers().fail_next(devcluster::fault_injection::Fault {
        verb: "apply".into(),
        resource: "services".into(),
        name: "web".into(),
        code,
        message: "admission webhook \"no.example.org\" denied the request: request {nth}".into(),
        times: 1000,
        ..Default::default()
    });
    world.levers().reset_counts();
    let edit = json!([{"op": "replace", "path": "/spec/ports/0/port", "value": 8080}]);
    patch_as(&world, "kubectl-edit", SERVICE, Form::Json, edit);
    world.until("it is tried again and again", |w| asked(w, "apply services") > 3).await;
    // The conflicting item was removed in the first attempt, but not again.
    let (writes, reads) = (asked(&world, "patch services"), asked(&world, "get services"));
    assert!(writes <= 2 && reads <= 1, "{code}: {writes} patches and {reads} GETs");
    assert_eq!(managers(&live(&world, SERVICE)), ["mainstay Apply", "kubectl-edit Update"]);
    // The refusals end.
    world.levers().clear_faults();
    world.until("it is back", |w| spec(w, SERVICE) == before).await;
    assert_eq!(managers(&live(&world, SERVICE)), ["mainstay Apply"]);
}

/// Retries do not rewrite `managedFields` again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conflicting_items_are_not_removed_again_for_a_revert_that_is_always_refused() {
    tokio::join!(refused_for_ever(422), refused_for_ever(403));
}
