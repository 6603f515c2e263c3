//! Objects that refer to a Function: Triggers, Subscriptions and APIRules. Converts them from a configuration and
//! back.
//!
//! Invariant: defaults are filled in on the way to the cluster and omitted on the way back. Invariant: both versions of
//! a Trigger have the same meaning, so either version is written and read.

use kube::Resource as _;
use serde_json::{Map, Value, json};

use super::config::{
    AccessConfig, AccessStrategy, ApiRule, Config, Filter, Rule, Schema, Service, Subscription, Trigger,
};
use super::fields::text_at;
use mainstay_api::Function;

/// A kind of objects that refer to a Function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Companion {
    pub(super) api_version: &'static str,
    pub(super) kind: &'static str,
}

const TRIGGER: Companion = Companion { api_version: "eventing.knative.dev/v1alpha1", kind: "Trigger" };
const NEWER_TRIGGER: Companion = Companion { api_version: "eventing.knative.dev/v1", kind: "Trigger" };
const SUBSCRIPTION: Companion = Companion { api_version: "eventing.kyma-project.io/v1alpha1", kind: "Subscription" };
const NEWER_SUBSCRIPTION: Companion =
    Companion { api_version: "eventing.kyma-project.io/v1alpha2", kind: "Subscription" };
const API_RULE: Companion = Companion { api_version: "gateway.kyma-project.io/v1alpha1", kind: "APIRule" };

const BROKER: &str = "default";
const GATEWAY: &str = "kyma-gateway.kyma-system.svc.cluster.local";
const PORT: u32 = 80;
const PATH: &str = "/.*";
/// The handler without authentication.
const ALLOW: &str = "allow";

/// Returns all kinds. If several versions of a kind are served, the first of them is used. `schema` determines the
/// order for Subscriptions.
pub(super) fn all(schema: Schema) -> [Companion; 5] {
    let [first, second] = match schema {
        Schema::V0 => [SUBSCRIPTION, NEWER_SUBSCRIPTION],
        Schema::V1 => [NEWER_SUBSCRIPTION, SUBSCRIPTION],
    };
    [TRIGGER, NEWER_TRIGGER, first, second, API_RULE]
}

/// Returns the section of a configuration with objects of a kind.
pub(super) fn section(kind: &str) -> Option<&'static str> {
    match kind {
        "Trigger" => Some("triggers"),
        "Subscription" => Some("subscriptions"),
        "APIRule" => Some("apiRules"),
        _ => None,
    }
}

/// Returns the equivalent `apiVersion` of an object, for clusters that do not serve the object's own version.
pub(super) fn other_version(api_version: &str, kind: &str) -> Option<&'static str> {
    (api_version == TRIGGER.api_version && kind == TRIGGER.kind).then_some(NEWER_TRIGGER.api_version)
}

/// Returns the message for a kind that is served in no known version.
pub(super) fn not_served(api_version: &str, kind: &str) -> String {
    let place = section(kind).map(|section| format!("{section}: ")).unwrap_or_default();
    let other = other_version(api_version, kind).and_then(|other| other.rsplit_once('/'));
    let other = other.map(|(_, version)| format!(" or {version}")).unwrap_or_default();
    format!("{place}the cluster does not serve {kind} ({api_version}{other})")
}

/// Returns the objects of a configuration.
pub(super) fn of(config: &Config) -> Vec<Value> {
    let object = |companion: Companion, name: String, spec: Value| {
        let mut metadata = json!({ "name": name, "namespace": config.namespace });
        if !config.labels.is_empty() {
            metadata["labels"] = json!(config.labels);
        }
        json!({ "apiVersion": companion.api_version, "kind": companion.kind, "metadata": metadata, "spec": spec })
    };
    let mut all = Vec::new();
    for trigger in &config.triggers {
        let name = trigger.name.clone().unwrap_or_else(|| trigger_name(&config.name, &trigger.source));
        all.push(object(TRIGGER, name, trigger_spec(config, trigger)));
    }
    let schema = config.schema_version.unwrap_or_default();
    for (at, subscription) in config.subscriptions.iter().enumerate() {
        let companion = if schema == Schema::V0 { SUBSCRIPTION } else { NEWER_SUBSCRIPTION };
        let name = subscription.name.clone().unwrap_or_else(|| subscription_name(&config.name, subscription, at));
        all.push(object(companion, name, subscription_spec(config, subscription, schema)));
    }
    for rule in &config.api_rules {
        let name = rule.name.clone().unwrap_or_else(|| config.name.clone());
        all.push(object(API_RULE, name, api_rule_spec(config, rule)));
    }
    all
}

/// Returns whether an object refers to the Function.
pub(super) fn refers_to(object: &Value, namespace: &str, name: &str) -> bool {
    match text_at(object, "/kind") {
        "Trigger" => {
            let own = |pointer: &str| text_at(object, pointer);
            own("/spec/subscriber/ref/kind") == "Service" && own("/spec/subscriber/ref/name") == name
        }
        "Subscription" => text_at(object, "/spec/sink") == sink(namespace, name),
        "APIRule" => text_at(object, "/spec/service/name") == name,
        _ => false,
    }
}

/// Adds an owner reference, so that the object is deleted with its Function.
pub(super) fn owned(mut object: Value, function_uid: &str) -> Value {
    let function = json!({
        "apiVersion": Function::api_version(&()), "kind": Function::kind(&()),
        "name": owner_name(&object), "uid": function_uid,
    });
    object["metadata"]["ownerReferences"] = json!([function]);
    object
}

fn owner_name(object: &Value) -> String {
    let sink = text_at(object, "/spec/sink").strip_prefix("http://").and_then(|sink| sink.split('.').next());
    let named = [text_at(object, "/spec/subscriber/ref/name"), text_at(object, "/spec/service/name")];
    sink.unwrap_or_else(|| named.into_iter().find(|name| !name.is_empty()).unwrap_or_default()).to_owned()
}

/// Adds a live object to a configuration.
///
/// # Errors
/// Fails with the part that a configuration cannot express.
pub(super) fn add(config: &mut Config, live: &Value) -> Result<(), &'static str> {
    match text_at(live, "/kind") {
        "Trigger" => config.triggers.push(trigger(config, live)?),
        "Subscription" => {
            let is_newer = text_at(live, "/apiVersion") == NEWER_SUBSCRIPTION.api_version;
            let schema = if is_newer { Schema::V1 } else { Schema::V0 };
            if !config.subscriptions.is_empty() && config.schema_version.unwrap_or_default() != schema {
                return Err("its version differs from that of the others");
            }
            let subscription = subscription(config, live, schema)?;
            config.subscriptions.push(subscription);
            if is_newer {
                config.schema_version = Some(schema);
            }
        }
        _ => config.api_rules.push(api_rule(config, live)?),
    }
    Ok(())
}

fn sink(namespace: &str, name: &str) -> String {
    format!("http://{name}.{namespace}.svc.cluster.local")
}

fn trigger_name(function: &str, source: &str) -> String {
    format!("{function}-{source}")
}

fn trigger_spec(config: &Config, trigger: &Trigger) -> Value {
    let attributes =
        [("eventtypeversion", &trigger.event_type_version), ("source", &trigger.source), ("type", &trigger.kind)];
    let attributes = attributes.into_iter().filter(|(_, value)| !value.is_empty());
    json!({
        "broker": BROKER,
        "filter": { "attributes": attributes.map(|(name, value)| (name.to_owned(), json!(value))).collect::<Map<_, _>>() },
        "subscriber": {
            "ref": { "apiVersion": "v1", "kind": "Service", "name": config.name, "namespace": config.namespace },
        },
    })
}

/// Returns the name, unless it is the default.
fn own_name(live: &Value, default: &str) -> Option<String> {
    let name = text_at(live, "/metadata/name");
    (name != default).then(|| name.to_owned())
}

fn trigger(config: &Config, live: &Value) -> Result<Trigger, &'static str> {
    let broker = text_at(live, "/spec/broker");
    if !broker.is_empty() && broker != BROKER {
        return Err("its broker is not default");
    }
    // In version `v1` of Triggers, these filters replace the attribute filter.
    if live.pointer("/spec/filters").and_then(Value::as_array).is_some_and(|filters| !filters.is_empty()) {
        return Err("it has filters, which are more than a filter by attributes");
    }
    let attributes = live.pointer("/spec/filter/attributes").and_then(Value::as_object);
    let attributes = attributes.ok_or("it has no filter by attributes")?;
    if attributes.keys().any(|name| !["eventtypeversion", "source", "type"].contains(&name.as_str())) {
        return Err("it filters by attributes other than eventtypeversion, source and type");
    }
    let text = |name: &str| attributes.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let source = text("source");
    let name = own_name(live, &trigger_name(&config.name, &source));
    Ok(Trigger { name, event_type_version: text("eventtypeversion"), source, kind: text("type") })
}

fn subscription_name(function: &str, subscription: &Subscription, at: usize) -> String {
    let Some(filter) = &subscription.filter else { return format!("{function}-{at}") };
    let sources =
        filter.filters.iter().map(|filter| filter.event_source.value.as_str()).filter(|value| !value.is_empty());
    std::iter::once(function).chain(sources).collect::<Vec<_>>().join("-")
}

fn subscription_spec(config: &Config, subscription: &Subscription, schema: Schema) -> Value {
    let sink = sink(&config.namespace, &config.name);
    if schema == Schema::V0 {
        return json!({
            "filter": subscription.filter, "protocol": subscription.protocol.clone().unwrap_or_default(),
            "protocolsettings": {}, "sink": sink,
        });
    }
    let mut spec = json!({ "sink": sink, "source": subscription.source, "types": subscription.types });
    if let Some(matching) = &subscription.type_matching {
        spec["typeMatching"] = json!(matching);
    }
    spec
}

fn subscription(config: &Config, live: &Value, schema: Schema) -> Result<Subscription, &'static str> {
    let optional = |name: &str| live["spec"][name].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let mut found = Subscription::default();
    if schema == Schema::V0 {
        found.protocol = optional("protocol");
        let filter: Option<Filter> = serde_json::from_value(live["spec"]["filter"].clone()).ok();
        found.filter = Some(filter.ok_or("it has no filter")?);
    } else {
        let texts = live["spec"]["types"].as_array().into_iter().flatten();
        found.types = texts.filter_map(Value::as_str).map(str::to_owned).collect();
        found.source = Some(text_at(live, "/spec/source").to_owned());
        found.type_matching = optional("typeMatching");
    }
    found.name = own_name(live, &subscription_name(&config.name, &found, config.subscriptions.len()));
    Ok(found)
}

fn api_rule_spec(config: &Config, rule: &ApiRule) -> Value {
    let everybody = || vec![AccessStrategy { handler: ALLOW.to_owned(), ..AccessStrategy::default() }];
    let strategy = |strategy: AccessStrategy| {
        let AccessStrategy { handler, config } = strategy;
        let mut settings = Map::new();
        let lists = [
            ("jwks_urls", config.jwks_urls),
            ("trusted_issuers", config.trusted_issuers),
            ("required_scope", config.required_scope),
        ];
        settings.extend(
            lists.into_iter().filter(|(_, list)| !list.is_empty()).map(|(name, list)| (name.to_owned(), json!(list))),
        );
        if settings.is_empty() {
            json!({ "handler": handler })
        } else {
            json!({ "handler": handler, "config": settings })
        }
    };
    let path = |rule: &Rule| {
        let strategies = if rule.access_strategies.is_empty() { everybody() } else { rule.access_strategies.clone() };
        json!({
            "path": rule.path.as_deref().unwrap_or(PATH), "methods": rule.methods,
            "accessStrategies": strategies.into_iter().map(strategy).collect::<Vec<_>>(),
        })
    };
    json!({
        "gateway": rule.gateway.as_deref().unwrap_or(GATEWAY),
        "service": {
            "name": config.name, "host": rule.service.host.as_ref().unwrap_or(&config.name),
            "port": rule.service.port.unwrap_or(PORT),
        },
        "rules": rule.rules.iter().map(path).collect::<Vec<_>>(),
    })
}

fn api_rule(config: &Config, live: &Value) -> Result<ApiRule, &'static str> {
    let spec = &live["spec"];
    let other = |value: &Value, default: &str| value.as_str().filter(|text| *text != default).map(str::to_owned);
    let texts =
        |value: &Value| value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
    let mut rules = Vec::new();
    for rule in spec["rules"].as_array().into_iter().flatten() {
        if rule["mutators"].as_array().is_some_and(|mutators| !mutators.is_empty()) {
            return Err("it has mutators");
        }
        let mut strategies = Vec::new();
        for strategy in rule["accessStrategies"].as_array().into_iter().flatten() {
            let settings = &strategy["config"];
            let known = ["jwks_urls", "trusted_issuers", "required_scope"];
            if settings.as_object().into_iter().flatten().any(|(name, _)| !known.contains(&name.as_str())) {
                return Err("a strategy has settings other than jwks_urls, trusted_issuers and required_scope");
            }
            let [jwks_urls, trusted_issuers, required_scope] = known.map(|name| texts(&settings[name]));
            let config = AccessConfig { jwks_urls, trusted_issuers, required_scope };
            strategies.push(AccessStrategy { handler: text_at(strategy, "/handler").to_owned(), config });
        }
        if matches!(&strategies[..], [one] if one.handler == ALLOW && one.config.is_empty()) {
            strategies.clear();
        }
        rules.push(Rule {
            path: other(&rule["path"], PATH),
            methods: texts(&rule["methods"]),
            access_strategies: strategies,
        });
    }
    let port = spec["service"]["port"].as_u64().and_then(|port| u32::try_from(port).ok()).filter(|port| *port != PORT);
    let service = Service { host: other(&spec["service"]["host"], &config.name), port };
    Ok(ApiRule { name: own_name(live, &config.name), gateway: other(&spec["gateway"], GATEWAY), service, rules })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the objects of a configuration with these fields, and checks that they convert back to the same
    /// configuration.
    fn check(fields: &str, expected: &str) {
        let head = "name: fn\nnamespace: ns\nsource:\n    sourceType: inline\n";
        let config = Config::read(&format!("{head}{fields}"), None).unwrap();
        let objects = of(&config);
        let specs = objects.iter().map(|object| {
            format!("{} {} {}\n", text_at(object, "/apiVersion"), text_at(object, "/metadata/name"), object["spec"])
        });
        assert_eq!(specs.collect::<String>(), expected);
        let mut back = Config { triggers: vec![], subscriptions: vec![], api_rules: vec![], ..config.clone() };
        for object in &objects {
            assert!(refers_to(object, "ns", "fn") && !refers_to(object, "ns", "other"));
            assert_eq!(owned(object.clone(), "u")["metadata"]["ownerReferences"][0]["name"], "fn");
            add(&mut back, object).unwrap();
        }
        assert_eq!(back, config);
    }

    #[test]
    fn a_trigger_is_read_in_either_version_unless_it_says_more() {
        let read = |api_version: &str, more: Value| {
            let mut config = Config { name: "fn".into(), namespace: "ns".into(), ..Config::default() };
            let mut live = json!({
                "apiVersion": api_version, "kind": "Trigger", "metadata": {"name": "fn-s"},
                "spec": {"broker": "default", "filter": {"attributes": {"source": "s", "type": "t"}}},
            });
            json_patch::merge(&mut live["spec"], &more);
            add(&mut config, &live).map(|()| config.triggers)
        };
        let plain = Trigger { source: "s".into(), kind: "t".into(), ..Trigger::default() };
        for version in [TRIGGER, NEWER_TRIGGER] {
            assert_eq!(read(version.api_version, json!({})), Ok(vec![plain.clone()]));
            let other = read(version.api_version, json!({"broker": "other"}));
            assert_eq!(other, Err("its broker is not default"));
        }
        let filters = json!({"filters": [{"prefix": {"type": "t"}}]});
        let more = read(NEWER_TRIGGER.api_version, filters);
        assert_eq!(more, Err("it has filters, which are more than a filter by attributes"));
    }

    #[test]
    fn subscriptions_of_both_schemas() {
        check(
            "subscriptions:\n- filter: {filters: [{eventSource: {property: source, type: exact, value: kyma}, eventType: \
             {property: type, type: exact, value: t}}]}\n",
            "eventing.kyma-project.io/v1alpha1 fn-kyma {\"filter\":{\"filters\":[{\"eventSource\":{\"property\":\"source\",\
             \"type\":\"exact\",\"value\":\"kyma\"},\"eventType\":{\"property\":\"type\",\"type\":\"exact\",\"value\":\"t\"}}]},\
             \"protocol\":\"\",\"protocolsettings\":{},\"sink\":\"http://fn.ns.svc.cluster.local\"}\n",
        );
        check(
            "schemaVersion: v1\nsubscriptions:\n- {source: app, types: [order.created.v1]}\n- {name: other, source: app, types: \
             [a.b], typeMatching: exact}\n",
            "eventing.kyma-project.io/v1alpha2 fn-0 {\"sink\":\"http://fn.ns.svc.cluster.local\",\"source\":\"app\",\"types\":\
             [\"order.created.v1\"]}\neventing.kyma-project.io/v1alpha2 other {\"sink\":\"http://fn.ns.svc.cluster.local\",\
             \"source\":\"app\",\"typeMatching\":\"exact\",\"types\":[\"a.b\"]}\n",
        );
    }

    #[test]
    fn triggers_and_api_rules() {
        check(
            "triggers:\n- {name: mine, source: s, type: t}\n",
            "eventing.knative.dev/v1alpha1 mine {\"broker\":\"default\",\"filter\":{\"attributes\":{\"source\":\"s\",\"type\":\"t\"}},\
             \"subscriber\":{\"ref\":{\"apiVersion\":\"v1\",\"kind\":\"Service\",\"name\":\"fn\",\"namespace\":\"ns\"}}}\n",
        );
        check(
            "apiRules:\n- rules: [{methods: [GET]}]\n- name: b\n  service: {host: h.example.org, port: 8080}\n  rules: [{path: /x, \
             methods: [PUT], accessStrategies: [{handler: jwt, config: {jwksUrls: [u]}}]}]\n",
            "gateway.kyma-project.io/v1alpha1 fn {\"gateway\":\"kyma-gateway.kyma-system.svc.cluster.local\",\"rules\":\
             [{\"accessStrategies\":[{\"handler\":\"allow\"}],\"methods\":[\"GET\"],\"path\":\"/.*\"}],\"service\":{\"host\":\"fn\",\
             \"name\":\"fn\",\"port\":80}}\n\
             gateway.kyma-project.io/v1alpha1 b {\"gateway\":\"kyma-gateway.kyma-system.svc.cluster.local\",\"rules\":\
             [{\"accessStrategies\":[{\"config\":{\"jwks_urls\":[\"u\"]},\"handler\":\"jwt\"}],\"methods\":[\"PUT\"],\"path\":\"/x\"}],\
             \"service\":{\"host\":\"h.example.org\",\"name\":\"fn\",\"port\":8080}}\n",
        );
    }

    #[test]
    fn a_configuration_is_refused_when_it_cannot_hold_the_object_in_full() {
        let mut config = Config { name: "fn".into(), namespace: "ns".into(), ..Config::default() };
        let trigger = json!({"kind": "Trigger", "spec": {"filter": {"attributes": {"subject": "x"}}}});
        assert!(add(&mut config, &trigger).is_err());
        let rule = json!({"kind": "APIRule", "spec": {"rules": [{"mutators": [{"handler": "header"}]}]}});
        assert!(add(&mut config, &rule).is_err());
        assert_eq!(config, Config { name: "fn".into(), namespace: "ns".into(), ..Config::default() });
    }
}
