//! The checks of one APIRule, and the message about its failures, with the messages of Kyma's controller.
//!
//! Invariant: no message contains a value from a strategy's configuration.

use std::num::NonZeroU16;

use serde_json::Value;

use super::template::{self, References};
use super::urls::{Inside, refused};
use mainstay_api::api_rule::{ApiRuleHandler, ApiRulePath, ApiRuleService};
use mainstay_object::names::{DnsLabel, Scheme, ServiceAddress, ServiceHost, ServiceName};

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
/// Number of strategies at the beginning of [`STRATEGIES`] that have no configuration.
const PLAIN: usize = 5;
/// Services that must not be exposed: the API server, and its proxies.
const BLOCKED: [(&str, &str); 3] =
    [("default", "kubernetes"), ("kyma-system", "apiserver-proxy"), ("kyma-system", "apiserver-proxy-ssl")];
/// Namespace whose Services must not be exposed.
const BLOCKED_NAMESPACE: &str = "istio-system";
/// Maximum number of refused URLs per handler.
const MOST_URLS: usize = 10;
/// Maximum number of mutators of one path.
const MOST_MUTATORS: usize = 10;
/// Maximum number of failures in the message.
const SHOWN: usize = 3;

/// A failed check of an APIRule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    attribute: String,
    message: String,
    /// Whether the target of the attribute is forbidden.
    is_forbidden: bool,
}

impl Failure {
    /// Returns a failure of an attribute.
    pub(super) fn new(attribute: impl Into<String>, message: impl Into<String>) -> Self {
        Self { attribute: attribute.into(), message: message.into(), is_forbidden: false }
    }

    /// Returns a failure of an attribute that refers to a forbidden host, gateway, Service or URL.
    pub(super) fn forbidden(attribute: impl Into<String>, message: impl Into<String>) -> Self {
        Self { is_forbidden: true, ..Self::new(attribute, message) }
    }

    /// Whether the target is forbidden.
    pub(super) fn is_forbidden(&self) -> bool {
        self.is_forbidden
    }

    /// Returns the failure for a host that another APIRule or another owner uses.
    pub(super) fn occupied(is_newer: bool) -> Self {
        Self::new(host_attribute(is_newer), "This host is occupied by another Virtual Service")
    }
}

/// Returns the attribute with the host.
pub(super) fn host_attribute(is_newer: bool) -> &'static str {
    if is_newer { ".spec.host" } else { ".spec.service.host" }
}

/// Formats failures as one message.
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

/// Returns the address of a Service if the Service may be exposed. `own` is the namespace of the APIRule.
pub(super) fn target(
    service: &ApiRuleService,
    attribute: &str,
    own: &str,
    failures: &mut Vec<Failure>,
) -> Option<ServiceAddress> {
    let name = service.name.as_str();
    let namespace = service.namespace.as_deref().unwrap_or(own);
    if BLOCKED.contains(&(namespace, name)) || namespace == BLOCKED_NAMESPACE {
        let why = format!("Service {name} in namespace {namespace} is blacklisted");
        failures.push(Failure::forbidden(format!("{attribute}.name"), why));
        return None;
    }
    if namespace != own {
        // The author of an APIRule may lack permissions in another namespace.
        let why = format!("only Services of the namespace {own}, which the APIRule is in, can be exposed by it");
        failures.push(Failure::forbidden(format!("{attribute}.namespace"), why));
        return None;
    }
    let name = ServiceName::parse(name).map_err(|why| Failure::forbidden(format!("{attribute}.name"), why.to_string()));
    let namespace =
        DnsLabel::parse(namespace).map_err(|why| Failure::new(format!("{attribute}.namespace"), why.to_string()));
    let port = u16::try_from(service.port).ok().and_then(NonZeroU16::new);
    let port = port.ok_or_else(|| Failure::new(format!("{attribute}.port"), "must be a port from 1 to 65535"));
    match (name, namespace, port) {
        (Ok(name), Ok(namespace), Ok(port)) => {
            Some(ServiceAddress { scheme: Scheme::Http, host: ServiceHost::new(name, namespace), port })
        }
        (name, namespace, port) => {
            failures.extend([name.err(), namespace.err(), port.err()].into_iter().flatten());
            None
        }
    }
}

/// Checks that no path occurs twice.
pub(super) fn check_duplicates(rules: &[ApiRulePath], is_newer: bool, failures: &mut Vec<Failure>) {
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

/// Checks the strategies of a path.
pub(super) fn check_strategies(
    strategies: &[ApiRuleHandler],
    attribute: &str,
    inside: Inside<'_>,
    failures: &mut Vec<Failure>,
) {
    if strategies.is_empty() {
        failures.push(Failure::new(attribute, "No accessStrategies defined"));
    }
    for (at, strategy) in strategies.iter().enumerate() {
        let (attribute, handler) = (format!("{attribute}[{at}]"), strategy.handler.as_str());
        let Some(known) = STRATEGIES.iter().position(|known| *known == handler) else {
            let shown = mainstay_api::conditions::cut(handler, 100);
            failures.push(Failure::new(format!("{attribute}.handler"), format!("Unsupported accessStrategy: {shown}")));
            continue;
        };
        let is_empty = is_empty(strategy.config.as_ref());
        let first = failures.len();
        if known < PLAIN && !is_empty {
            let why = format!("strategy: {handler} does not support configuration");
            failures.push(Failure::new(format!("{attribute}.config"), why));
        } else if handler == "jwt" {
            match &strategy.config {
                Some(config) if !is_empty => check_jwt(config, &format!("{attribute}.config"), failures),
                _ => failures.push(Failure::new(format!("{attribute}.config"), "supplied config cannot be empty")),
            }
        }
        let is_readable = !failures[first..].iter().any(|known| known.attribute.ends_with(".config"));
        if is_readable {
            check_urls(strategy, &attribute, inside, failures);
        }
    }
}

/// Checks the mutators of a path.
pub(super) fn check_mutators(
    mutators: &[ApiRuleHandler],
    attribute: &str,
    inside: Inside<'_>,
    failures: &mut Vec<Failure>,
) {
    if mutators.len() > MOST_MUTATORS {
        let why = format!("must have at most {MOST_MUTATORS} items; write the headers into one mutator");
        failures.push(Failure::forbidden(attribute, why));
        return;
    }
    let mut left = References::of(mutators);
    for (at, mutator) in mutators.iter().enumerate() {
        let attribute = format!("{attribute}[{at}]");
        check_urls(mutator, &attribute, inside, failures);
        let refused = mutator.config.as_ref();
        let refused = refused.and_then(|config| template::refused(config, &format!("{attribute}.config"), &mut left));
        failures.extend(refused.map(|(attribute, why)| Failure::forbidden(attribute, why)));
    }
}

/// Checks the URLs in a handler's configuration.
fn check_urls(handler: &ApiRuleHandler, attribute: &str, inside: Inside<'_>, failures: &mut Vec<Failure>) {
    let Some(config) = &handler.config else { return };
    let refused = refused(config, &format!("{attribute}.config"), inside, MOST_URLS);
    failures.extend(refused.into_iter().map(|(attribute, why)| Failure::forbidden(attribute, why)));
}

/// Whether the configuration is missing or empty.
pub(super) fn is_empty(config: Option<&Value>) -> bool {
    config.is_none_or(|config| config.is_null() || config.as_object().is_some_and(serde_json::Map::is_empty))
}

fn check_jwt(config: &Value, attribute: &str, failures: &mut Vec<Failure>) {
    for field in ["trusted_issuers", "jwks_urls"] {
        let list = &config[field];
        let is_list = list.as_array().is_some_and(|items| items.iter().all(Value::is_string));
        if !list.is_null() && !is_list {
            failures.push(Failure::new(attribute, format!("Can't read json: {field} is not a list of strings")));
        }
    }
}
