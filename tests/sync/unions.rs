//! Unions of Kubernetes' own kinds: a commit that sets another member is applied, even if the server defaulted fields
//! beside the previous one.

use serde_json::{Value, json};

use devcluster::{Action, Call, verbs::patch::Form};
use mainstay_testkit::world::{NAMESPACE, World, definition};

/// Returns a workload with these fields in its spec and in its pods.
fn workload(kind: &str, spec: &Value, pods: &Value) -> Value {
    let mut template = json!({"containers": [{"name": "web", "image": "nginx:1"}]});
    extend(&mut template, pods);
    let template = json!({"metadata": {"labels": {"app": "x"}}, "spec": template});
    let mut all = json!({"selector": {"matchLabels": {"app": "x"}}, "template": template});
    if kind == "StatefulSet" {
        all["serviceName"] = "x".into();
    }
    extend(&mut all, spec);
    json!({"apiVersion": "apps/v1", "kind": kind, "spec": all})
}

fn extend(object: &mut Value, more: &Value) {
    object.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
}

fn deployment(spec: Value) -> Value {
    workload("Deployment", &spec, &json!({}))
}

fn pods(pods: Value) -> Value {
    workload("Deployment", &json!({}), &pods)
}

fn container(more: Value) -> Value {
    let mut container = json!({"name": "web", "image": "nginx:1"});
    extend(&mut container, &more);
    pods(json!({"containers": [container]}))
}

fn volume(source: Value) -> Value {
    let mut volume = json!({"name": "v"});
    extend(&mut volume, &source);
    pods(json!({"volumes": [volume]}))
}

fn of(api_version: &str, kind: &str, spec: Value) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "spec": spec})
}

fn service(spec: Value) -> Value {
    let mut all = json!({"ports": [{"port": 80}]});
    extend(&mut all, &spec);
    of("v1", "Service", all)
}

fn policy(spec: Value) -> Value {
    let mut all = json!({"podSelector": {"matchLabels": {"app": "nobody"}}});
    extend(&mut all, &spec);
    of("networking.k8s.io/v1", "NetworkPolicy", all)
}

fn ingress(backend: Value) -> Value {
    of("networking.k8s.io/v1", "Ingress", json!({"defaultBackend": backend}))
}

fn scaler(spec: Value) -> Value {
    let mut all =
        json!({"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "nobody"}});
    extend(&mut all, &spec);
    of("autoscaling/v2", "HorizontalPodAutoscaler", all)
}

/// Name, object before, object after, a path, and the expected value at that path.
type Case = (&'static str, Value, Value, &'static str, Value);

fn strategies() -> Vec<Case> {
    let rolling = |more: Value| json!({"type": "RollingUpdate", "rollingUpdate": more});
    let recreate = || deployment(json!({"strategy": {"type": "Recreate"}}));
    let on_delete = |kind: &str| workload(kind, &json!({"updateStrategy": {"type": "OnDelete"}}), &json!({}));
    let plain = |kind: &str| workload(kind, &json!({}), &json!({}));
    let named = |kind: &str| workload(kind, &json!({"updateStrategy": {"type": "RollingUpdate"}}), &json!({}));
    vec![
        ("recreate", deployment(json!({})), recreate(), "/spec/strategy", json!({"type": "Recreate"})),
        (
            "recreate-after-a-type",
            deployment(json!({"strategy": {"type": "RollingUpdate"}})),
            recreate(),
            "/spec/strategy",
            json!({"type": "Recreate"}),
        ),
        (
            "recreate-after-settings",
            deployment(json!({"strategy": rolling(json!({"maxSurge": 2}))})),
            recreate(),
            "/spec/strategy",
            json!({"type": "Recreate"}),
        ),
        (
            "rolling-after-recreate",
            recreate(),
            deployment(json!({})),
            "/spec/strategy",
            rolling(json!({"maxSurge": "25%", "maxUnavailable": "25%"})),
        ),
        ("set", plain("StatefulSet"), on_delete("StatefulSet"), "/spec/updateStrategy", json!({"type": "OnDelete"})),
        (
            "set-after-a-type",
            named("StatefulSet"),
            on_delete("StatefulSet"),
            "/spec/updateStrategy",
            json!({"type": "OnDelete"}),
        ),
        ("daemons", plain("DaemonSet"), on_delete("DaemonSet"), "/spec/updateStrategy", json!({"type": "OnDelete"})),
        (
            "daemons-after-a-type",
            named("DaemonSet"),
            on_delete("DaemonSet"),
            "/spec/updateStrategy",
            json!({"type": "OnDelete"}),
        ),
    ]
}

fn pod_parts() -> Vec<Case> {
    let (env, probe) = ("/spec/template/spec/containers/0/env/0", "/spec/template/spec/containers/0/livenessProbe");
    let (hook, source) = ("/spec/template/spec/containers/0/lifecycle/preStop", "/spec/template/spec/volumes/0");
    let variable = |more: Value| {
        let mut variable = json!({"name": "A"});
        extend(&mut variable, &more);
        container(json!({"env": [variable]}))
    };
    let from_map = || json!({"valueFrom": {"configMapKeyRef": {"name": "c", "key": "k", "optional": true}}});
    let from_secret = || json!({"valueFrom": {"secretKeyRef": {"name": "c", "key": "k", "optional": true}}});
    let named = |member: &Value| {
        let mut all = json!({"name": "A"});
        extend(&mut all, member);
        all
    };
    let probing = |handler: Value| container(json!({"livenessProbe": handler}));
    let timed = |handler: Value| {
        let mut all = json!({"failureThreshold": 3, "periodSeconds": 10, "successThreshold": 1, "timeoutSeconds": 1});
        extend(&mut all, &handler);
        all
    };
    let http = || json!({"httpGet": {"port": 80}});
    let exec = || json!({"exec": {"command": ["true"]}});
    let hooked = |handler: Value| container(json!({"lifecycle": {"preStop": handler}}));
    let map = json!({"configMap": {"name": "c", "optional": true}});
    let filled = json!({"name": "v", "configMap": {"name": "c", "optional": true, "defaultMode": 420}});
    vec![
        ("value-to-source", variable(json!({"value": "1"})), variable(from_map()), env, named(&from_map())),
        ("nothing-to-source", variable(json!({})), variable(from_map()), env, named(&from_map())),
        (
            "source-to-value",
            variable(from_map()),
            variable(json!({"value": "1"})),
            env,
            json!({"name": "A", "value": "1"}),
        ),
        ("source-to-source", variable(from_map()), variable(from_secret()), env, named(&from_secret())),
        ("http-to-exec", probing(http()), probing(exec()), probe, timed(exec())),
        (
            "exec-to-tcp",
            probing(exec()),
            probing(json!({"tcpSocket": {"port": 80}})),
            probe,
            timed(json!({"tcpSocket": {"port": 80}})),
        ),
        (
            "grpc-to-http",
            probing(json!({"grpc": {"port": 80}})),
            probing(http()),
            probe,
            timed(json!({"httpGet": {"port": 80, "path": "/", "scheme": "HTTP"}})),
        ),
        ("hook-http-to-exec", hooked(http()), hooked(exec()), hook, exec()),
        ("filled-to-map", volume(json!({})), volume(map.clone()), source, filled.clone()),
        ("empty-to-map", volume(json!({"emptyDir": {}})), volume(map.clone()), source, filled),
        (
            "map-to-secret",
            volume(map.clone()),
            volume(json!({"secret": {"secretName": "s", "optional": true}})),
            source,
            json!({"name": "v", "secret": {"secretName": "s", "optional": true, "defaultMode": 420}}),
        ),
        (
            "host-to-empty",
            volume(json!({"hostPath": {"path": "/x"}})),
            volume(json!({"emptyDir": {}})),
            source,
            json!({"name": "v", "emptyDir": {}}),
        ),
        ("map-to-filled", volume(map), volume(json!({})), source, json!({"name": "v", "emptyDir": {}})),
        (
            "profile",
            pods(json!({"securityContext": {"seccompProfile": {"type": "Localhost", "localhostProfile": "p.json"}}})),
            pods(json!({"securityContext": {"seccompProfile": {"type": "RuntimeDefault"}}})),
            "/spec/template/spec/securityContext",
            json!({"seccompProfile": {"type": "RuntimeDefault"}}),
        ),
    ]
}

fn network() -> Vec<Case> {
    let (all, types) = (json!([{}]), "/spec/policyTypes");
    let of_service = |port: Value| ingress(json!({"service": {"name": "web", "port": port}}));
    let of_bucket = || json!({"resource": {"apiGroup": "example.com", "kind": "Bucket", "name": "b"}});
    vec![
        (
            "ingress-to-egress",
            policy(json!({"ingress": all})),
            policy(json!({"egress": all})),
            types,
            json!(["Ingress", "Egress"]),
        ),
        (
            "and-egress",
            policy(json!({"ingress": all})),
            policy(json!({"ingress": all, "egress": all})),
            types,
            json!(["Ingress", "Egress"]),
        ),
        (
            "egress-to-ingress",
            policy(json!({"egress": all})),
            policy(json!({"ingress": all})),
            types,
            json!(["Ingress"]),
        ),
        (
            "types",
            policy(json!({"ingress": all})),
            policy(json!({"egress": all, "policyTypes": ["Egress"]})),
            types,
            json!(["Egress"]),
        ),
        (
            "port-number-to-name",
            of_service(json!({"number": 80})),
            of_service(json!({"name": "http"})),
            "/spec/defaultBackend/service/port",
            json!({"name": "http"}),
        ),
        (
            "port-name-to-number",
            of_service(json!({"name": "http"})),
            of_service(json!({"number": 80})),
            "/spec/defaultBackend/service/port",
            json!({"number": 80}),
        ),
        (
            "service-to-resource",
            of_service(json!({"number": 80})),
            ingress(of_bucket()),
            "/spec/defaultBackend",
            of_bucket(),
        ),
        (
            "affinity",
            service(json!({"sessionAffinity": "ClientIP"})),
            service(json!({"sessionAffinity": "None"})),
            "/spec/sessionAffinityConfig",
            Value::Null,
        ),
        (
            "affinity-left-out",
            service(json!({"sessionAffinity": "ClientIP"})),
            service(json!({})),
            "/spec/sessionAffinityConfig",
            Value::Null,
        ),
        ("node-port", service(json!({"type": "NodePort"})), service(json!({})), "/spec/ports/0/nodePort", Value::Null),
        (
            "node-port-policy",
            service(json!({"type": "NodePort"})),
            service(json!({"type": "ClusterIP"})),
            "/spec/externalTrafficPolicy",
            Value::Null,
        ),
        (
            "balancer",
            service(json!({"type": "LoadBalancer"})),
            service(json!({})),
            "/spec/allocateLoadBalancerNodePorts",
            Value::Null,
        ),
        (
            "external",
            service(json!({})),
            service(json!({"type": "ExternalName", "externalName": "example.com"})),
            "/spec/clusterIP",
            Value::Null,
        ),
    ]
}

fn others() -> Vec<Case> {
    let budget = |field: &str| {
        of("policy/v1", "PodDisruptionBudget", json!({"selector": {"matchLabels": {"app": "nobody"}}, field: 1}))
    };
    let metric =
        |name: &str, target: Value| json!([{"type": "Resource", "resource": {"name": name, "target": target}}]);
    let used = || json!({"type": "Utilization", "averageUtilization": 50});
    let amount = || json!({"type": "AverageValue", "averageValue": "100Mi"});
    vec![
        ("budget", budget("minAvailable"), budget("maxUnavailable"), "/spec/minAvailable", Value::Null),
        (
            "metrics-filled-in",
            scaler(json!({})),
            scaler(json!({"metrics": metric("memory", used())})),
            "/spec/metrics",
            metric("memory", used()),
        ),
        (
            "metric-target",
            scaler(json!({"metrics": metric("memory", used())})),
            scaler(json!({"metrics": metric("memory", amount())})),
            "/spec/metrics",
            metric("memory", amount()),
        ),
    ]
}

/// Applies all cases, and then their next commit.
async fn check(world: &mut World, cases: &[Case]) {
    let document = |name: &str, object: &Value| {
        let mut object = object.clone();
        object["metadata"] = json!({"name": name});
        object.to_string()
    };
    for (name, before, ..) in cases {
        world.remote.file(&format!("{name}.json"), document(name, before));
    }
    world.remote.commit("before");
    // Pods with these volumes and probes need not run.
    world.synced(json!({"wait": false})).await;
    for (name, _, after, ..) in cases {
        world.remote.file(&format!("{name}.json"), document(name, after));
    }
    world.commit("demo", "after").await;
    let mut wrong = Vec::new();
    for (name, _, after, path, expected) in cases {
        let (api_version, kind) = (after["apiVersion"].as_str().unwrap(), after["kind"].as_str().unwrap());
        let (resource, namespace) = match kind {
            "NetworkPolicy" => ("networkpolicies".to_owned(), NAMESPACE),
            "Ingress" => ("ingresses".to_owned(), NAMESPACE),
            "ValidatingWebhookConfiguration" | "CustomResourceDefinition" => (format!("{}s", kind.to_lowercase()), ""),
            kind => (format!("{}s", kind.to_lowercase()), NAMESPACE),
        };
        let live = world.server.object(api_version, &resource, namespace, name).unwrap();
        let found = live.pointer(path).cloned().unwrap_or_default();
        if found != *expected {
            wrong.push(format!("{name}: {path} is {found}, not {expected}"));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_commit_sets_any_other_member_of_a_union() {
    let mut world = World::new().await;
    check(&mut world, &[strategies(), pod_parts(), network(), others()].concat()).await;
}

/// Cases of kinds that are not in a namespace.
fn of_the_cluster() -> Vec<Case> {
    let definition = |conversion: Value| {
        let mut definition: Value = serde_json::from_str(&definition()).unwrap();
        definition["spec"]["conversion"] = conversion;
        definition
    };
    let webhooks = |client: Value| {
        let nothing = json!({"apiGroups": ["example.net"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["nothing"]});
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "webhooks": [{
            "name": "one.example.org", "clientConfig": client, "rules": [nothing], "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "failurePolicy": "Ignore",
        }]})
    };
    let service = || json!({"service": {"name": "hooks", "namespace": NAMESPACE}});
    let url = || json!({"url": "https://127.0.0.1:1/one"});
    let converted =
        json!({"strategy": "Webhook", "webhook": {"clientConfig": service(), "conversionReviewVersions": ["v1"]}});
    let client = "/webhooks/0/clientConfig";
    let filled = json!({"service": {"name": "hooks", "namespace": NAMESPACE, "port": 443}});
    vec![
        ("mainstay-tests-service-to-url", webhooks(service()), webhooks(url()), client, url()),
        ("mainstay-tests-url-to-service", webhooks(url()), webhooks(service()), client, filled),
        (
            "widgets.mainstay-tests.example.org",
            definition(converted),
            definition(json!({"strategy": "None"})),
            "/spec/conversion",
            json!({"strategy": "None"}),
        ),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_commit_sets_any_other_member_of_a_union_of_the_cluster() {
    let mut world = World::new().await;
    check(&mut world, &of_the_cluster()).await;
    // Cluster-scoped objects outlive the namespace.
    world.remote.clear().file("README.md", "nothing");
    let commit = world.try_commit("demo", "all go").await;
    world.allow_prune("demo", &commit).await;
    let hooks = ("admissionregistration.k8s.io/v1", "validatingwebhookconfigurations");
    let are_gone = |w: &World| {
        ["service-to-url", "url-to-service"]
            .iter()
            .all(|name| w.server.object(hooks.0, hooks.1, "", &format!("mainstay-tests-{name}")).is_none())
    };
    world.until("the webhooks are pruned", are_gone).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_another_applier_owns_stays_and_is_reported() {
    let mut world = World::new().await;
    let mut web = deployment(json!({"strategy": {"type": "RollingUpdate"}}));
    web["metadata"] = json!({"name": "web"});
    world.remote.file("web.json", web.to_string()).commit("one");
    world.synced(json!({})).await;
    let theirs = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"strategy": {"rollingUpdate": {"maxSurge": 3}}}});
    let apply = Action::Patch(Form::Apply, theirs);
    world.write_as("rollout-tuner", Call::new("apps/v1", "deployments", NAMESPACE, "web", apply));
    web["spec"]["strategy"] = json!({"type": "Recreate"});
    world.remote.file("web.json", web.to_string());
    world.try_commit("demo", "two").await;
    let said = world.condition("demo", "Ready");
    assert!(said.contains("spec.strategy.rollingUpdate"), "{said}");
    let strategy = world.get("apps/v1", "deployments", "web").unwrap()["spec"]["strategy"].clone();
    assert_eq!((&strategy["type"], &strategy["rollingUpdate"]["maxSurge"]), (&json!("RollingUpdate"), &json!(3)));
}
