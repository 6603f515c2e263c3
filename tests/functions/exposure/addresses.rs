//! Forbidden targets of an APIRule: hosts, gateways, Services and URLs, as an attacker writes them.

use std::collections::BTreeSet;

use mainstay_object::names::{DomainName, GatewayRef};

use super::*;

const NEWER: &str = "gateway.kyma-project.io/v1beta1";
/// The kinds of children of APIRules.
const MADE: [(&str, &str); 3] = [SERVICES, RULES, ROUTES];
const INVALID: (&str, &str) = ("ERROR SKIPPED SKIPPED", "False Invalid");

/// Returns a world in which these kinds route, and the CRD of APIRules has no patterns, like an older one.
async fn world_without_patterns(kinds: &[(&str, &str)]) -> World {
    let mut world = World::new().await;
    let mut own = serde_json::to_value(mainstay_api::api_rule::definition()).unwrap();
    remove_patterns(&mut own);
    world.define_only(std::iter::once(own).chain(kinds.iter().map(|kind| definition(*kind))).collect());
    world.service(NAMESPACE, "my-function", loopback());
    world.start();
    world
}

fn remove_patterns(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|field, value| !(field == "pattern" && value.is_string()));
            fields.values_mut().for_each(remove_patterns);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_patterns),
        _ => {}
    }
}

/// Returns a spec of each version with these parts.
fn specs(host: &str, gateway: &str, service: &str) -> [(&'static str, Value); 2] {
    let mut older = tutorial(service);
    (older["service"]["host"], older["gateway"]) = (json!(host), json!(gateway));
    let mut newer = older.clone();
    newer["host"] = newer["service"].as_object_mut().unwrap().remove("host").unwrap();
    [(API, older), (NEWER, newer)]
}

fn create(world: &World, version: &str, name: &str, spec: &Value) -> bool {
    let metadata = json!({"name": name, "namespace": NAMESPACE});
    let rule = json!({"apiVersion": version, "kind": "APIRule", "metadata": metadata, "spec": spec});
    world.try_as("test", Call::new(version, "apirules", NAMESPACE, "", Action::Create(rule))).is_ok()
}

/// Returns hosts, gateways and names of Services that an APIRule must not have.
fn hostile() -> Vec<(String, String, String)> {
    const GATEWAY: &str = "kyma-gateway.kyma-system.svc.cluster.local";
    let hosts = [
        "payments.prod.svc.cluster.local",
        "payments.prod.svc",
        "Payments.Prod.SVC.kyma.local",
        "x.cluster.local",
        "kubernetes.default.svc.",
        "127.0.0.1",
        "127.1",
        "169.254.169.254",
        "other.example.com",
        "evilkyma.local",
        "kyma.local",
        "*.kyma.local",
        "a_b.kyma.local",
        "web.kyma.local:80",
        "web.kyma.local/x",
        "user@web.kyma.local",
        "web.kyma.local..",
    ];
    let gateways = [
        "mesh",
        "mesh.",
        "MESH",
        "kyma-gateway",
        "other/gateway",
        "*",
        "kyma-system/*",
        "gateway.other.svc.cluster.local",
        "",
    ];
    let services = [
        "payments.prod.svc.cluster.local:80/?x=",
        "127.0.0.1:19999/admin/delete?all=yes&x=",
        "payments.prod",
        "a/b",
        "a@b",
        "a:80",
        "[::1]",
        "1a",
        "UPPER",
        "",
    ];
    let hosts = hosts.map(|host| (host, GATEWAY, "my-function"));
    let gateways = gateways.map(|gateway| (HOST, gateway, "my-function"));
    let services = services.map(|service| (HOST, GATEWAY, service));
    let all = hosts.into_iter().chain(gateways).chain(services);
    all.map(|(host, gateway, service)| (host.to_owned(), gateway.to_owned(), service.to_owned())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hosts_gateways_and_services_of_others_are_refused() {
    for kinds in [&[SERVICES, RULES][..], &[ROUTES]] {
        let world = world_without_patterns(kinds).await;
        let mut made = Vec::new();
        for (at, (host, gateway, service)) in hostile().into_iter().enumerate() {
            for (version, spec) in specs(&host, &gateway, &service) {
                let name =
                    format!("r{at}{}", &version[version.len() - 6..].replace(|c: char| !c.is_alphanumeric(), ""));
                if create(&world, version, &name, &spec) {
                    made.push((name, format!("{host} {gateway} {service}")));
                }
            }
        }
        assert!(made.len() > 50, "the agent itself refuses them: {}", made.len());
        for (name, _) in &made {
            world.says_of(NAMESPACE, name, INVALID.0, INVALID.1).await;
        }
        for kind in kinds {
            assert_eq!(world.all(*kind), Vec::<Arc<Value>>::new(), "{made:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_schema_refuses_the_word_mesh_and_names_that_are_no_service() {
    let world = world_with(&[SERVICES]).await;
    for (gateway, service) in
        [("mesh", "web"), ("mesh.", "web"), ("a/b/c", "web"), ("kyma-system/kyma-gateway", "a.b:80/?x=")]
    {
        for (version, spec) in specs(HOST, gateway, service) {
            assert!(!create(&world, version, "web", &spec), "{version} {gateway} {service}");
        }
    }
    let [(older, spec), _] = specs(HOST, "kyma-gateway.kyma-system.svc.cluster.local", "web");
    assert!(create(&world, older, "older", &spec));
    for gateway in ["kyma-system/kyma-gateway", "kyma-gateway.kyma-system.svc.cluster.local"] {
        let [_, (newer, spec)] = specs(HOST, gateway, "web");
        assert!(create(&world, newer, &format!("newer-{}", gateway.len()), &spec), "{gateway}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateways_and_domains_are_those_that_the_operator_permits() {
    let mut world = world_with(&[SERVICES, RULES]).await;
    world.service(NAMESPACE, "my-function", loopback());
    world.exposure.allowed_domains = vec![DomainName::parse("example.com").unwrap()];
    world.exposure.allowed_gateways = vec![GatewayRef::parse("edge/public").unwrap()];
    world.start();
    let [(older, spec), _] = specs("shop.example.com", "public.edge.svc.cluster.local", "my-function");
    assert!(create(&world, older, "permitted", &spec));
    world.says_of(NAMESPACE, "permitted", SERVED.0, SERVED.1).await;
    let [(older, spec), _] = specs("shop.example.org", "public.edge.svc.cluster.local", "my-function");
    assert!(create(&world, older, "refused", &spec));
    world.says_of(NAMESPACE, "refused", INVALID.0, INVALID.1).await;
    assert!(world.rule_said(NAMESPACE, "refused").1.contains("--allow-domain"));
}

/// Returns the names of all children of APIRules, of the served kinds.
fn made(world: &World, kinds: &[(&str, &str)]) -> BTreeSet<String> {
    let kinds = MADE.into_iter().filter(|kind| kinds.contains(kind));
    kinds.flat_map(|kind| world.all(kind)).map(|object| name(&object)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_are_written_only_for_a_service_that_leads_to_pods() {
    for kinds in [&[SERVICES, RULES][..], &[SERVICES], &[ROUTES]] {
        let mut world = world_with(kinds).await;
        world.start();
        world.api_rule(tutorial("my-function"));
        let missing = "False ServiceNotFound: Service my-function not found";
        world.rule_is("ERROR SKIPPED SKIPPED", missing).await;
        world.quiet().await;
        assert_eq!(made(&world, kinds), BTreeSet::new(), "{kinds:?}");

        let outside = json!({"type": "ExternalName", "externalName": "kubernetes.default.svc.cluster.local"});
        let metadata = json!({"name": "my-function", "namespace": NAMESPACE});
        world.create("v1", "services", NAMESPACE, json!({"metadata": metadata, "spec": outside}));
        let refused = "False ServiceNotAllowed: Service my-function cannot be exposed: its type is ExternalName";
        world.rule_is("ERROR SKIPPED SKIPPED", refused).await;
        world.quiet().await;
        assert_eq!(made(&world, kinds), BTreeSet::new(), "{kinds:?}");

        // A change of the Service causes another check.
        world.delete("v1", "services", "my-function");
        world.service(NAMESPACE, "my-function", loopback());
        world.until("there are routes", |w| !made(w, kinds).is_empty()).await;
        let change = json!({"spec": {"type": "ExternalName", "externalName": "payments.prod.svc.cluster.local", "clusterIP": "", "clusterIPs": null}});
        world.edit("v1", "services", "my-function", change);
        world.rule_is("ERROR SKIPPED SKIPPED", refused).await;
        world.until("the routes are gone", |w| made(w, kinds).is_empty()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_whose_endpoints_somebody_wrote_is_exposed_by_the_operators_word_only() {
    let kinds = &[SERVICES, RULES];
    for permitted in [None, Some(NAMESPACE)] {
        let mut world = world_with(kinds).await;
        world.exposure.written_endpoints = permitted.map(str::to_owned).into_iter().collect();
        world.service(NAMESPACE, "my-function", loopback());
        world.start();
        world.api_rule(tutorial("my-function"));
        if permitted.is_some() {
            world.rule_is("OK OK OK", "True Served").await;
            continue;
        }
        let refused = "False ServiceNotAllowed: Service my-function cannot be exposed: it has no selector";
        world.rule_is("ERROR SKIPPED SKIPPED", refused).await;
        world.quiet().await;
        assert_eq!(made(&world, kinds), BTreeSet::new());

        // With a selector, the endpoints of the Service are pods.
        world.delete("v1", "services", "my-function");
        let metadata = json!({"name": "my-function", "namespace": NAMESPACE});
        let spec = json!({"selector": {"app": "web"}, "ports": [{"port": 80}]});
        world.create("v1", "services", NAMESPACE, json!({"metadata": metadata, "spec": spec}));
        world.rule_is("OK OK OK", "True Served").await;
        let metadata =
            json!({"name": "mine", "namespace": NAMESPACE, "labels": {"kubernetes.io/service-name": "my-function"}});
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata, "addressType": "IPv4",
            "endpoints": [{"addresses": ["100.100.100.200"]}], "ports": [{"port": 80}],
        });
        world.create("discovery.k8s.io/v1", "endpointslices", NAMESPACE, slice);
        let refused = "False ServiceNotAllowed: Service my-function cannot be exposed: it has the EndpointSlice mine";
        world.rule_is("ERROR SKIPPED SKIPPED", refused).await;
        world.until("the routes are gone", |w| made(w, kinds).is_empty()).await;
        world.delete("discovery.k8s.io/v1", "endpointslices", "mine");
        world.rule_is("OK OK OK", "True Served").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn urls_of_handlers_do_not_lead_inside() {
    let (world, _gateway) = exposing().await;
    let hosts = [
        "127.0.0.1:19999",
        "169.254.169.254",
        "[::ffff:169.254.169.254]",
        "2130706433",
        "localhost",
        "web.mainstay-tests",
        "web-0.web.mainstay-tests",
        "kubernetes.default.svc",
        "payments.prod.svc.cluster.local",
        "metadata.google.internal",
        "vault",
        "10.96.0.1",
    ];
    let mut names = Vec::new();
    for (at, host) in hosts.into_iter().enumerate() {
        let url = format!("http://{host}/keys");
        let issuers = json!({"trusted_issuers": ["https://issuer.example.com"], "jwks_urls": [url]});
        let mut mutated = path("/.*", &["GET"], "noop", json!({}));
        mutated["mutators"] = json!([{"handler": "hydrator", "config": {"api": {"url": url}}}]);
        let all = [
            path("/.*", &["GET"], "jwt", issuers),
            path("/.*", &["GET"], "jwt", json!({"trusted_issuers": [url]})),
            path("/.*", &["GET"], "oauth2_introspection", json!({"introspection_url": url})),
            path("/.*", &["GET"], "oauth2_introspection", json!({"pre_authorization": {"token_url": url}})),
            mutated,
        ];
        for (of, rule) in all.into_iter().enumerate() {
            let mut spec = with_rules(json!([rule]));
            spec["service"]["host"] = json!(format!("h{at}-{of}.kyma.local"));
            names.push(format!("u{at}-{of}"));
            world.api_rule_in(NAMESPACE, names.last().unwrap(), spec);
        }
    }
    for name in &names {
        world.says_of(NAMESPACE, name, INVALID.0, INVALID.1).await;
        assert!(world.rule_said(NAMESPACE, name).1.contains("--allow-issuer"), "{name}");
    }
    assert_eq!(made(&world, &[SERVICES, RULES]), BTreeSet::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_that_aim_where_they_may_not_are_deleted_after_a_restart() {
    let mut world = world_with(&[SERVICES, RULES]).await;
    world.service(NAMESPACE, "my-function", loopback());
    world.exposure.allowed_domains = vec![DomainName::parse("example.com").unwrap()];
    world.start();
    let [(version, spec), _] = specs("shop.example.com", "kyma-gateway.kyma-system.svc.cluster.local", "my-function");
    assert!(create(&world, version, "shop", &spec));
    world.says_of(NAMESPACE, "shop", SERVED.0, SERVED.1).await;
    world.stop().await;
    world.exposure.allowed_domains.clear();
    world.start();
    world.says_of(NAMESPACE, "shop", INVALID.0, INVALID.1).await;
    world.until("its objects are gone", |w| made(w, &[SERVICES, RULES]).is_empty()).await;
    assert!(!world.rule_said(NAMESPACE, "shop").1.contains("still served"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn urls_into_a_namespace_are_withdrawn_when_it_gets_its_first_service() {
    let (world, _gateway) = exposing().await;
    let keys = |host: &str| json!({"trusted_issuers": ["https://issuer.example.com"], "jwks_urls": [format!("http://{host}/keys")]});
    for (name, host) in [("early", "admin.later"), ("public", "keys.example.com")] {
        let mut spec = with_rules(json!([path("/.*", &["GET"], "jwt", keys(host))]));
        spec["service"]["host"] = json!(format!("{name}.kyma.local"));
        world.api_rule_in(NAMESPACE, name, spec);
        world.says_of(NAMESPACE, name, SERVED.0, SERVED.1).await;
    }
    let written = made(&world, &[SERVICES, RULES]).len();
    let service = json!({"metadata": {"name": "admin", "namespace": "later"}, "spec": {"ports": [{"port": 80}]}});
    world.create("v1", "namespaces", "", json!({"metadata": {"name": "later"}}));
    world.create("v1", "services", "later", service);
    world.says_of(NAMESPACE, "early", INVALID.0, INVALID.1).await;
    world.until("its objects are gone", |w| made(w, &[SERVICES, RULES]).len() * 2 == written).await;
    assert!(!world.rule_said(NAMESPACE, "early").1.contains("still served"));
    assert_eq!(world.rule_said(NAMESPACE, "public").0, SERVED.0);
}
