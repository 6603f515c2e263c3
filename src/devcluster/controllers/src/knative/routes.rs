//! Routes: creates the Ingress, the placeholder Service with the address, and a Service per tag.
//!
//! Not here: gradual rollouts and certificates.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::children::{self, Missing, controls};
use super::conditions::{Conditions, is_current, ready};
use super::kinds::{CONFIGURATIONS, INGRESSES, MANAGER, REVISIONS};
use super::settings::Settings;
use super::traffic::{self, Target};
use super::{labeler, names};
use crate::controller::Queue;
use devcluster_apiserver::client::{Client, Subject};
use devcluster_apiserver::object::{finalizers_without, has_finalizer, is_terminating, text};

const SOURCE: &str = "route-controller";
pub(super) const ALL_TRAFFIC: &str = "AllTrafficAssigned";
const CERTIFICATE: &str = "CertificateProvisioned";
const INGRESS: &str = "IngressReady";
const FINALIZER: &str = "routes.serving.knative.dev";
/// Label of Endpoints that the endpoints controller manages.
const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
/// Delay before a retry while an object of the same name terminates.
const SOON: Duration = Duration::from_millis(100);
/// First and longest delay before a retry after a name conflict.
const AGAIN: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];

/// Updates the addresses of a Route.
pub(super) fn reconcile(client: &Client, subject: &Subject, route: &Value, queue: &mut Queue<'_>) {
    if is_terminating(route) {
        if has_finalizer(route, FINALIZER) {
            labeler::released(client, route);
            let patch = json!({"metadata": {"finalizers": finalizers_without(route, FINALIZER)}});
            client.merge(MANAGER, subject, patch);
        }
    } else if has_finalizer(route, FINALIZER) {
        assign(client, subject, route, queue);
    } else {
        let mut finalizers = route["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        finalizers.push(FINALIZER.into());
        client.merge(MANAGER, subject, json!({"metadata": {"finalizers": finalizers}}));
        let message = format!("Updated \"{}\" finalizers", subject.key.name());
        client.report(route, SOURCE, "Normal", "FinalizerUpdate", &message);
        if let Some(route) = client.get(subject) {
            assign(client, subject, &route, queue);
        }
    }
}

/// Resolves the targets of a Route, writes its children and its status.
fn assign(client: &Client, subject: &Subject, route: &Value, queue: &mut Queue<'_>) {
    let settings = Settings::read(client);
    let mut conditions = Conditions::of(route, &[ALL_TRAFFIC, CERTIFICATE, INGRESS], client.stamp());
    conditions.is_true_because(CERTIFICATE, "TLSNotEnabled", "external-domain-tls is not enabled");
    let mut status = route["status"].as_object().cloned().unwrap_or_default();
    status.insert("observedGeneration".to_owned(), route["metadata"]["generation"].clone());
    let own = host(route, "");
    status.insert("address".to_owned(), json!({"url": format!("http://{own}.svc.cluster.local")}));
    status.insert("url".to_owned(), url(route, "", &settings).into());
    let namespace = subject.key.namespace();
    let configuration = |name: &str| client.get(&Subject::new(CONFIGURATIONS, namespace, name));
    let revision =
        |name: &str| client.get(&Subject::new(REVISIONS, namespace, name)).filter(|revision| !is_terminating(revision));
    match traffic::targets(route, &configuration, &revision) {
        Err(blocked) if blocked.status == "False" => {
            conditions.is_false(ALL_TRAFFIC, blocked.reason, &blocked.message);
        }
        Err(blocked) => conditions.is_unknown(ALL_TRAFFIC, blocked.reason, &blocked.message),
        Ok(targets) => {
            conditions.is_true(ALL_TRAFFIC);
            let mut again = None;
            if let Err(missing) = program(client, route, &targets, &settings, &mut conditions) {
                again = Some(in_the_way(client, route, &mut conditions, &missing));
            }
            if again.is_none() {
                status.insert("traffic".to_owned(), traffic::reported(&targets, &|tag| url(route, tag, &settings)));
                labeler::label(client, route, &targets);
            }
            if let Some(delay) = again {
                queue.add_after(subject.clone(), delay);
            }
        }
    }
    status.insert("conditions".to_owned(), conditions.list());
    client.set_status(MANAGER, subject, route, status.into());
}

/// A name conflict that blocks a Route.
struct InTheWay {
    kind: &'static str,
    name: String,
    missing: Missing,
}

fn in_the_way(client: &Client, route: &Value, conditions: &mut Conditions, it: &InTheWay) -> Duration {
    let InTheWay { kind, name, missing } = it;
    let why = match missing {
        Missing::NotOwned => format!("There is an existing placeholder {kind} \"{name}\" that we do not own."),
        Missing::Refused(why) => why.clone(),
        Missing::Leaving => format!("{kind} \"{name}\" is being deleted."),
    };
    if *missing == Missing::NotOwned {
        conditions.is_false(INGRESS, "NotOwned", &why);
        client.report(route, SOURCE, "Warning", "InternalError", &why);
    } else {
        conditions.is_unknown(INGRESS, "IngressNotConfigured", "Ingress has not yet been reconciled.");
    }
    if *missing == Missing::Leaving {
        return SOON;
    }
    let since = conditions.get(INGRESS).map_or("", |condition| text(condition, "/lastTransitionTime"));
    let since: Option<jiff::Timestamp> = since.parse().ok();
    let waited = since.map_or(0, |since| client.now().as_second() - since.as_second());
    Duration::from_secs(u64::try_from(waited).unwrap_or(0)).clamp(AGAIN[0], AGAIN[1])
}

/// Creates placeholder and Ingress, and turns the placeholder into a cluster IP once the Ingress is ready.
fn program(
    client: &Client,
    route: &Value,
    targets: &[Target],
    settings: &Settings,
    conditions: &mut Conditions,
) -> Result<(), InTheWay> {
    let tags = || targets.iter().map(|target| &*target.tag).filter(|tag| !tag.is_empty());
    for tag in [""].into_iter().chain(tags()) {
        placeholder(client, route, tag, None)?;
    }
    let desired = ingress(route, targets, settings);
    let name = text(route, "/metadata/name").to_owned();
    let made = children::ensure(client, INGRESSES, route, desired, &[]);
    let made = made.map_err(|missing| InTheWay { kind: "Ingress", name: name.clone(), missing })?;
    if made.is_new {
        client.report(route, SOURCE, "Normal", "Created", &format!("Created Ingress \"{name}\""));
    }
    let ingress = &made.object;
    if !is_current(ingress) {
        conditions.is_unknown(INGRESS, "IngressNotConfigured", "Ingress has not yet been reconciled.");
        return Ok(());
    }
    conditions.mirror(INGRESS, ready(ingress));
    if conditions.is(INGRESS, "True") {
        for tag in [""].into_iter().chain(tags()) {
            placeholder(client, route, tag, Some(()))?;
        }
        forget_tags(client, route, &tags().collect::<Vec<_>>());
    }
    Ok(())
}

/// Name of an address in its namespace.
fn address(route: &Value, tag: &str) -> String {
    let name = text(route, "/metadata/name");
    if tag.is_empty() { name.to_owned() } else { names::child(&format!("{tag}-{name}"), "") }
}

fn host(route: &Value, tag: &str) -> String {
    format!("{}.{}", address(route, tag), text(route, "/metadata/namespace"))
}

fn is_private(route: &Value) -> bool {
    route["metadata"]["labels"][names::VISIBILITY] == "cluster-local"
}

fn url(route: &Value, tag: &str, settings: &Settings) -> String {
    let host = host(route, tag);
    if is_private(route) {
        format!("http://{host}.svc.cluster.local")
    } else {
        format!("http://{host}.{}", settings.domain)
    }
}

/// Labels of a Route's children.
fn labels(route: &Value) -> Map<String, Value> {
    names::labels(route, &[(names::ROUTE, text(route, "/metadata/name"))])
}

/// Creates the placeholder Service of an address. The Service begins as an ExternalName of itself. After the Ingress is
/// ready, the Service becomes a ClusterIP Service without a selector.
fn placeholder(client: &Client, route: &Value, tag: &str, programmed: Option<()>) -> Result<(), InTheWay> {
    let (name, namespace) = (address(route, tag), text(route, "/metadata/namespace"));
    let failed = |kind: &'static str| {
        let name = name.clone();
        move |missing| InTheWay { kind, name, missing }
    };
    let mut labels = labels(route);
    labels.remove(names::VISIBILITY);
    let known = client.get(&Subject::new("services", namespace, &name));
    let endpoints = client.get(&Subject::new("endpoints", namespace, &name));
    let foreign = endpoints.filter(|endpoints| !controls(route, endpoints));
    let Some(known) = known else {
        // Endpoints of a deleted Service disappear soon; others are a name conflict.
        if let Some(foreign) = foreign {
            let is_leaving = foreign["metadata"]["labels"][MANAGED_BY] == "endpoint-controller";
            return Err(failed("Endpoint")(if is_leaving { Missing::Leaving } else { Missing::NotOwned }));
        }
        let mut desired = children::built(route, "v1", "Service", &name);
        desired["metadata"]["labels"] = labels.into();
        desired["metadata"]["annotations"] = names::annotations(route).into();
        let outside = format!("{name}.{namespace}.svc.cluster.local");
        let port = json!({"name": "http", "port": 80, "targetPort": 80});
        desired["spec"] =
            json!({"type": "ExternalName", "externalName": outside, "sessionAffinity": "None", "ports": [port]});
        let made = children::create(client, "services", route, &desired).map_err(failed("Service"))?;
        if made.is_new {
            let message = format!("Created placeholder service \"{name}\"");
            client.report(route, SOURCE, "Normal", "Created", &message);
        }
        return Ok(());
    };
    if !controls(route, &known) {
        return Err(failed("Service")(Missing::NotOwned));
    }
    if is_terminating(&known) {
        return Err(failed("Service")(Missing::Leaving));
    }
    if foreign.is_some() {
        return Err(failed("Endpoint")(Missing::NotOwned));
    }
    if programmed.is_none() {
        return Ok(());
    }
    let mut next = (*known).clone();
    next["metadata"]["labels"] = labels.into();
    let spec = &mut next["spec"];
    spec["type"] = "ClusterIP".into();
    spec["ports"] = json!([{"name": "http", "port": 80, "targetPort": 80, "protocol": "TCP"}]);
    if let Some(spec) = spec.as_object_mut() {
        spec.remove("externalName");
        spec.remove("selector");
    }
    if next != *known {
        client.update(MANAGER, &Subject::new("services", namespace, &name), next);
    }
    Ok(())
}

/// Deletes the Services of removed tags.
fn forget_tags(client: &Client, route: &Value, tags: &[&str]) {
    let namespace = text(route, "/metadata/namespace");
    let wanted: Vec<String> = [""].iter().chain(tags).map(|tag| address(route, tag)).collect();
    for service in client.controlled("services", namespace, route) {
        let name = text(&service, "/metadata/name");
        if !wanted.iter().any(|known| known == name) && !is_terminating(&service) {
            client.delete(&Subject::new("services", namespace, name), &service, None, None);
        }
    }
}

/// Builds the Ingress of a Route.
fn ingress(route: &Value, targets: &[Target], settings: &Settings) -> Value {
    let (namespace, name) = super::kinds::place(route);
    let mut object = children::built(route, "networking.internal.knative.dev/v1alpha1", "Ingress", name);
    let mut labels = labels(route);
    labels.insert(names::ROUTE_NAMESPACE.to_owned(), namespace.into());
    object["metadata"]["labels"] = labels.into();
    object["metadata"]["annotations"] = names::annotations(route).into();
    let mut rules = Vec::new();
    let mut tags: Vec<&str> = vec![""];
    tags.extend(targets.iter().map(|target| &*target.tag).filter(|tag| !tag.is_empty()));
    for tag in tags {
        let host = host(route, tag);
        let http = json!({"paths": [{"splits": traffic::splits(targets, tag, namespace)}]});
        let inside = ["", ".svc", ".svc.cluster.local"].map(|end| format!("{host}{end}"));
        rules.push(json!({"hosts": inside, "visibility": "ClusterLocal", "http": http}));
        if !is_private(route) {
            let outside = format!("{host}.{}", settings.domain);
            rules.push(json!({"hosts": [outside], "visibility": "ExternalIP", "http": http}));
        }
    }
    object["spec"] = json!({"httpOption": "Enabled", "rules": rules});
    object
}
