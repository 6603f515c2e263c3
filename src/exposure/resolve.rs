//! An APIRule becomes what is to be served, or all reasons why not: the checks and the words of Kyma's controller, in its order.
//!
//! A domain is allowed if the host ends with a dot and the domain; Kyma's looks for the text only, so that `evilkyma.local` passed.
//!
//! Invariant: no text has a value of a strategy's configuration in it.

use std::fmt;

use jiff::Timestamp;
use serde_json::Value;

use super::anchored;
use crate::api::ApiRule;
use crate::api::api_rule::{ApiRuleHandler, ApiRulePath, ApiRuleService};

/// The strategies that Kyma knows.
const STRATEGIES: [&str; 8] = [
    "allow",
    "noop",
    "unauthorized",
    "anonymous",
    "cookie_session",
    "oauth2_client_credentials",
    "oauth2_introspection",
    "jwt",
];
/// Those of them that have no configuration.
const PLAIN: usize = 5;
/// Services that nobody may expose: the API server, and what guards the others.
const BLOCKED: [(&str, &str); 3] =
    [("default", "kubernetes"), ("kyma-system", "apiserver-proxy"), ("kyma-system", "apiserver-proxy-ssl")];
/// Namespace of which nobody may expose any Service.
const BLOCKED_NAMESPACE: &str = "istio-system";
/// Paths of one APIRule: each may become an object.
const MOST_RULES: usize = 500;
/// Failures that are shown.
const SHOWN: usize = 3;

/// What the operator of the agent decides about hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// What follows a host without a dot; `None`: such hosts are not valid.
    pub default_domain: Option<String>,
    /// The domains in which hosts may be; with none, all are.
    pub allowed_domains: Vec<String>,
}

/// Why a text is no domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotADomain;

impl fmt::Display for NotADomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("write a domain such as example.com: lower case letters, digits, - and dots between them")
    }
}

impl std::error::Error for NotADomain {}

impl Settings {
    /// Reads a domain, which may be one word.
    ///
    /// # Errors
    /// It is none.
    pub fn domain(text: &str) -> Result<String, NotADomain> {
        if crate::object::syntax::subdomain(text).is_none() { Ok(text.to_owned()) } else { Err(NotADomain) }
    }
}

/// What is to be served.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Resolved {
    /// Whose it is.
    pub(super) identity: Identity,
    /// The gateway, as written.
    pub(super) gateway: String,
    /// The whole host.
    pub(super) host: String,
    /// The paths, in their order.
    pub(super) rules: Vec<Rule>,
}

/// The APIRule itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) created: Option<Timestamp>,
    /// Whether it is written as in `v1beta1`.
    pub(super) is_newer: bool,
}

/// One path.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Rule {
    pub(super) path: String,
    pub(super) methods: Vec<String>,
    pub(super) service: String,
    pub(super) port: i64,
    pub(super) strategies: Vec<ApiRuleHandler>,
    pub(super) mutators: Vec<ApiRuleHandler>,
}

/// A check that an APIRule did not pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    attribute: String,
    message: String,
}

impl Failure {
    fn new(attribute: impl Into<String>, message: impl Into<String>) -> Self {
        Self { attribute: attribute.into(), message: message.into() }
    }

    /// The host is served for another APIRule or by somebody else.
    pub(super) fn occupied(is_newer: bool) -> Self {
        Self::new(host_attribute(is_newer), "This host is occupied by another Virtual Service")
    }
}

fn host_attribute(is_newer: bool) -> &'static str {
    if is_newer { ".spec.host" } else { ".spec.service.host" }
}

/// Failures as one text.
pub(super) fn text(failures: &[Failure]) -> String {
    let line = |failure: &Failure| format!("Attribute \"{}\": {}", failure.attribute, failure.message);
    if let [one] = failures {
        return format!("Validation error: {}", line(one));
    }
    let mut text = "Multiple validation errors: ".to_owned();
    for failure in failures.iter().take(SHOWN) {
        text.push('\n');
        text.push_str(&line(failure));
    }
    if failures.len() > SHOWN {
        text.push_str(&format!("\n{} more error(s)...", failures.len() - SHOWN));
    }
    text
}

/// Who an APIRule is.
pub(super) fn identity(rule: &ApiRule) -> Identity {
    let metadata = &rule.metadata;
    Identity {
        namespace: metadata.namespace.clone().unwrap_or_default(),
        name: metadata.name.clone().unwrap_or_default(),
        uid: metadata.uid.clone().unwrap_or_default(),
        created: metadata.creation_timestamp.as_ref().map(|at| at.0),
        is_newer: rule.spec.host.is_some(),
    }
}

/// Validates an APIRule. `is_occupied` says whether a host is served for somebody else.
pub(super) fn resolve(
    rule: &ApiRule,
    settings: &Settings,
    is_occupied: impl FnOnce(&str) -> bool,
) -> Result<Resolved, Vec<Failure>> {
    let (spec, identity) = (&rule.spec, identity(rule));
    let mut failures = Vec::new();
    let written = spec.host.as_deref().or_else(|| spec.service.as_ref()?.host.as_deref()).unwrap_or_default();
    let host = resolve_host(written, settings).map_err(|why| Failure::new(host_attribute(identity.is_newer), why));
    match &host {
        Err(failure) => failures.push(failure.clone()),
        Ok(host) if is_occupied(host) => failures.push(Failure::occupied(identity.is_newer)),
        Ok(_) => {}
    }
    if let Some(service) = &spec.service {
        check_service(service, ".spec.service", &identity, &mut failures);
    }
    if spec.rules.is_empty() {
        failures.push(Failure::new(".spec.rules", "No rules defined"));
    }
    if spec.rules.len() > MOST_RULES {
        failures.push(Failure::new(".spec.rules", format!("more than {MOST_RULES} rules")));
        return Err(failures);
    }
    check_duplicates(&spec.rules, identity.is_newer, &mut failures);
    let mut rules = Vec::with_capacity(spec.rules.len());
    for (at, rule) in spec.rules.iter().enumerate() {
        let attribute = format!(".spec.rules[{at}]");
        if let Some(service) = &rule.service {
            check_service(service, &format!("{attribute}.service"), &identity, &mut failures);
        }
        check_strategies(&rule.access_strategies, &format!("{attribute}.accessStrategies"), &mut failures);
        if let Some(why) = anchored::why_not(&rule.path) {
            failures.push(Failure::new(format!("{attribute}.path"), format!("not a path of this host: {why}")));
        }
        let Some(service) = rule.service.as_ref().or(spec.service.as_ref()) else {
            let why = "No service defined with no main service on spec level";
            failures.push(Failure::new(format!("{attribute}.service"), why));
            continue;
        };
        rules.push(Rule {
            path: rule.path.clone(),
            methods: rule.methods.clone(),
            service: service.name.clone(),
            port: service.port,
            strategies: rule.access_strategies.clone(),
            mutators: rule.mutators.clone().unwrap_or_default(),
        });
    }
    match host {
        Ok(host) if failures.is_empty() => Ok(Resolved { identity, gateway: spec.gateway.clone(), host, rules }),
        _ => Err(failures),
    }
}

fn resolve_host(written: &str, settings: &Settings) -> Result<String, &'static str> {
    if !written.contains('.') {
        let none = "Host does not contain a domain name and no default domain name is configured";
        return settings.default_domain.as_ref().map(|domain| format!("{written}.{domain}")).ok_or(none);
    }
    let lower = written.to_ascii_lowercase();
    let is_in = |domain: &String| {
        lower
            .strip_suffix(domain.to_ascii_lowercase().as_str())
            .is_some_and(|rest| rest.ends_with('.') && rest.len() > 1)
    };
    if settings.allowed_domains.is_empty() || settings.allowed_domains.iter().any(is_in) {
        Ok(written.to_owned())
    } else {
        Err("Host is not whitelisted")
    }
}

fn check_service(service: &ApiRuleService, attribute: &str, identity: &Identity, failures: &mut Vec<Failure>) {
    let (name, own) = (service.name.as_str(), identity.namespace.as_str());
    let namespace = service.namespace.as_deref().unwrap_or(own);
    if BLOCKED.contains(&(namespace, name)) || namespace == BLOCKED_NAMESPACE {
        let why = format!("Service {name} in namespace {namespace} is blacklisted");
        failures.push(Failure::new(format!("{attribute}.name"), why));
    } else if namespace != own {
        // Whoever may write an APIRule here need have no right there.
        let why = format!("only Services of the namespace {own}, which the APIRule is in, can be exposed by it");
        failures.push(Failure::new(format!("{attribute}.namespace"), why));
    }
}

fn check_duplicates(rules: &[ApiRulePath], is_newer: bool, failures: &mut Vec<Failure>) {
    let mut seen = std::collections::HashSet::new();
    let is_again = if is_newer {
        rules.iter().any(|rule| rule.methods.iter().any(|method| !seen.insert((rule.path.as_str(), method.as_str()))))
    } else {
        rules.iter().any(|rule| !seen.insert((rule.path.as_str(), "")))
    };
    if is_again {
        let what = if is_newer { "path and method" } else { "path" };
        failures.push(Failure::new(".spec.rules", format!("multiple rules defined for the same {what}")));
    }
}

fn check_strategies(strategies: &[ApiRuleHandler], attribute: &str, failures: &mut Vec<Failure>) {
    if strategies.is_empty() {
        failures.push(Failure::new(attribute, "No accessStrategies defined"));
    }
    for (at, strategy) in strategies.iter().enumerate() {
        let (attribute, handler) = (format!("{attribute}[{at}]"), strategy.handler.as_str());
        let Some(known) = STRATEGIES.iter().position(|known| *known == handler) else {
            let shown = crate::api::conditions::cut(handler, 100);
            failures.push(Failure::new(format!("{attribute}.handler"), format!("Unsupported accessStrategy: {shown}")));
            continue;
        };
        let is_empty = is_empty(strategy.config.as_ref());
        if known < PLAIN && !is_empty {
            let why = format!("strategy: {handler} does not support configuration");
            failures.push(Failure::new(format!("{attribute}.config"), why));
        } else if handler == "jwt" {
            match &strategy.config {
                Some(config) if !is_empty => check_jwt(config, &format!("{attribute}.config"), failures),
                _ => failures.push(Failure::new(format!("{attribute}.config"), "supplied config cannot be empty")),
            }
        }
    }
}

/// Whether there is no configuration.
pub(super) fn is_empty(config: Option<&Value>) -> bool {
    config.is_none_or(|config| config.is_null() || config.as_object().is_some_and(serde_json::Map::is_empty))
}

fn check_jwt(config: &Value, attribute: &str, failures: &mut Vec<Failure>) {
    for field in ["trusted_issuers", "jwks_urls"] {
        let list = match &config[field] {
            Value::Null => continue,
            Value::Array(items) if items.iter().all(Value::is_string) => items,
            _ => {
                failures.push(Failure::new(attribute, format!("Can't read json: {field} is not a list of strings")));
                continue;
            }
        };
        for (at, url) in list.iter().enumerate() {
            if !url.as_str().is_some_and(is_url) {
                let attribute = format!("{attribute}.{field}[{at}]");
                failures.push(Failure::new(attribute, "value is empty or not a valid url"));
            }
        }
    }
}

fn is_url(text: &str) -> bool {
    reqwest::Url::parse(text).is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::fixtures::{path, resolved, rule};
    use super::*;

    #[track_caller]
    fn check(spec: Value, expected: &str) {
        let settings = Settings {
            default_domain: Some("kyma.local".to_owned()),
            allowed_domains: vec!["kyma.local".to_owned(), "example.com".to_owned()],
        };
        let got = match resolve(&rule(spec), &settings, |host| host == "taken.kyma.local") {
            Ok(resolved) => resolved.host,
            Err(failures) => text(&failures),
        };
        assert_eq!(got, expected);
    }

    fn host(host: &str) -> Value {
        json!({"service": {"host": host}})
    }

    #[test]
    fn a_host_is_in_a_domain_after_a_dot() {
        check(host("web"), "web.kyma.local");
        check(host("web.kyma.local"), "web.kyma.local");
        check(host("a.b.EXAMPLE.com"), "a.b.EXAMPLE.com");
        let attribute = "Validation error: Attribute \".spec.service.host\": ";
        for bad in ["evilkyma.local", "kyma.local", "web.kyma.local.evil.org", ".kyma.local"] {
            check(host(bad), &format!("{attribute}Host is not whitelisted"));
        }
        let occupied = format!("{attribute}This host is occupied by another Virtual Service");
        check(host("taken"), &occupied);
        let none = resolve(&rule(host("web")), &Settings::default(), |_| false).unwrap_err();
        let why = "Host does not contain a domain name and no default domain name is configured";
        assert_eq!(text(&none), format!("{attribute}{why}"));
        let newer = json!({"host": "web.evil.org", "service": {"host": null}});
        check(newer, "Validation error: Attribute \".spec.host\": Host is not whitelisted");
    }

    #[test]
    fn says_what_kymas_controller_says() {
        let strategy =
            |strategy: Value| json!({"rules": [{"path": "/", "methods": ["GET"], "accessStrategies": [strategy]}]});
        let at = "Validation error: Attribute \".spec.rules[0].accessStrategies[0]";
        check(strategy(json!({"handler": "foo"})), &format!("{at}.handler\": Unsupported accessStrategy: foo"));
        let config = "strategy: noop does not support configuration";
        check(strategy(json!({"handler": "noop", "config": null})), "web.kyma.local");
        check(strategy(json!({"handler": "noop", "config": {"a": null}})), &format!("{at}.config\": {config}"));
        check(strategy(json!({"handler": "noop", "config": {"a": 1}})), &format!("{at}.config\": {config}"));
        check(strategy(json!({"handler": "jwt"})), &format!("{at}.config\": supplied config cannot be empty"));
        let unreadable = format!("{at}.config\": Can't read json: trusted_issuers is not a list of strings");
        check(strategy(json!({"handler": "jwt", "config": {"trusted_issuers": "hunter2"}})), &unreadable);
        let url = format!("{at}.config.trusted_issuers[1]\": value is empty or not a valid url");
        let issuers = json!({"trusted_issuers": ["https://a", "hunter2"]});
        check(strategy(json!({"handler": "jwt", "config": issuers})), &url);
        let blocked = "Service kubernetes in namespace default is blacklisted";
        let service = json!({"service": {"name": "kubernetes", "namespace": "default"}});
        check(service, &format!("Validation error: Attribute \".spec.service.name\": {blocked}"));
        let other = "only Services of the namespace shop, which the APIRule is in, can be exposed by it";
        let service = json!({"service": {"namespace": "prod"}});
        check(service, &format!("Validation error: Attribute \".spec.service.namespace\": {other}"));
        check(json!({"rules": []}), "Validation error: Attribute \".spec.rules\": No rules defined");
        let none = json!({"rules": [{"path": "/", "methods": ["GET"], "accessStrategies": []}]});
        check(none, "Validation error: Attribute \".spec.rules[0].accessStrategies\": No accessStrategies defined");
    }

    #[test]
    fn a_path_does_not_reach_another_host() {
        let at = "Validation error: Attribute \".spec.rules[0].path\": not a path of this host: ";
        let why = "every alternative must begin with /, or it would match the rest of another host's name";
        for bad in ["ample.com/.*", "/a|.*"] {
            check(json!({"rules": [path(bad, &["GET"], "noop")]}), &format!("{at}{why}"));
        }
        check(json!({"rules": [path("/a|/b.*", &["GET"], "noop")]}), "web.kyma.local");
    }

    #[test]
    fn more_failures_are_counted_after_three() {
        let twice = path("/a", &["GET"], "noop");
        let again = "multiple rules defined for the same path";
        let both = json!({"rules": [twice, path("/a", &["POST"], "noop")]});
        check(both, &format!("Validation error: Attribute \".spec.rules\": {again}"));
        let rules: Vec<Value> = (0..3).map(|at| path(&format!("/{at}"), &["GET"], "foo")).collect();
        let at = |at: usize| {
            format!("\nAttribute \".spec.rules[{at}].accessStrategies[0].handler\": Unsupported accessStrategy: foo")
        };
        let host_is = "\nAttribute \".spec.service.host\": Host is not whitelisted";
        let all = json!({"service": {"host": "a.b"}, "rules": rules});
        check(all, &format!("Multiple validation errors: {host_is}{}{}\n1 more error(s)...", at(0), at(1)));
    }

    #[test]
    fn the_newer_form_has_services_of_paths_and_methods() {
        let mut get = path("/a", &["GET"], "noop");
        let (mut post, other) = (path("/a", &["POST"], "noop"), json!({"name": "other", "port": 8080}));
        post["service"] = other;
        let spec = json!({"host": "web", "service": {"host": null}, "rules": [get, post]});
        let resolved = resolved(spec.clone());
        assert_eq!((resolved.rules[1].service.as_str(), resolved.rules[1].port), ("other", 8080));
        get["methods"] = json!(["GET", "POST"]);
        let mut again = spec;
        again["rules"][0] = get;
        let why = "multiple rules defined for the same path and method";
        check(again.clone(), &format!("Validation error: Attribute \".spec.rules\": {why}"));
        again["rules"] = json!([path("/b", &["GET"], "noop")]);
        again["service"] = Value::Null;
        let why = "No service defined with no main service on spec level";
        check(again, &format!("Validation error: Attribute \".spec.rules[0].service\": {why}"));
    }

    #[test]
    fn very_many_rules_and_huge_configurations_cost_little() {
        let many: Vec<Value> = (0..10_000).map(|at| path(&format!("/{at}"), &["GET"], "foo")).collect();
        check(json!({"rules": many}), "Validation error: Attribute \".spec.rules\": more than 500 rules");
        let huge = json!({"trusted_issuers": vec![Value::Null; 100_000]});
        let rules =
            json!([{"path": "/", "methods": ["GET"], "accessStrategies": [{"handler": "jwt", "config": huge}]}]);
        let at = "Validation error: Attribute \".spec.rules[0].accessStrategies[0].config\": ";
        check(json!({"rules": rules}), &format!("{at}Can't read json: trusted_issuers is not a list of strings"));
    }
}
