//! Resolves an APIRule, or returns all failures. Checks and messages are those of Kyma's controller, in its order.

use jiff::Timestamp;

use super::anchored;
use super::checks::{Failure, check_duplicates, check_mutators, check_strategies, host_attribute, target};
use super::expression;
use super::settings::Settings;
use super::urls::Inside;
use mainstay_api::ApiRule;
use mainstay_api::api_rule::ApiRuleHandler;
use mainstay_object::names::{GatewayRef, HostName, ServiceAddress};

/// Maximum number of paths of an APIRule. Each path may result in an object.
const MOST_RULES: usize = 500;

/// A valid APIRule.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Resolved {
    /// The APIRule's identity.
    pub(super) identity: Identity,
    /// The gateway.
    pub(super) gateway: GatewayRef,
    /// The complete host.
    pub(super) host: HostName,
    /// The paths in their order.
    pub(super) rules: Vec<Rule>,
}

/// The identity of an APIRule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) created: Option<Timestamp>,
    /// Whether the APIRule was written as `v1beta1`.
    pub(super) is_newer: bool,
}

/// One path.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Rule {
    pub(super) path: String,
    pub(super) methods: Vec<String>,
    /// The target: a Service in the namespace, and its port.
    pub(super) target: ServiceAddress,
    pub(super) strategies: Vec<ApiRuleHandler>,
    pub(super) mutators: Vec<ApiRuleHandler>,
}

impl Rule {
    /// Returns the name of the Service.
    pub(super) fn service(&self) -> &str {
        self.target.host.service().as_str()
    }

    /// Whether all requests reach the Service without a check.
    pub(super) fn is_open(&self) -> bool {
        self.mutators.is_empty() && self.strategies.iter().all(|strategy| strategy.handler == "allow")
    }
}

/// Returns the identity of an APIRule.
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

/// Returns why a path is refused.
fn path_failure(path: &str, attribute: &str) -> Option<Failure> {
    if let Some(why) = anchored::why_not(path) {
        return Some(Failure::new(format!("{attribute}.path"), format!("not a path of this host: {why}")));
    }
    let why = expression::why_not(path)?;
    Some(Failure::forbidden(format!("{attribute}.path"), format!("not a valid path: {why}")))
}

/// Whether the URLs of a validated APIRule still point to permitted hosts. A namespace may have received its first
/// Service in the meantime.
pub(super) fn is_still_permitted(
    resolved: &Resolved,
    settings: &Settings,
    is_namespace: &dyn Fn(&str) -> bool,
) -> bool {
    let inside = Inside { allowed: &settings.allowed_issuers, is_namespace };
    let mut failures = Vec::new();
    for rule in &resolved.rules {
        check_strategies(&rule.strategies, "", inside, &mut failures);
        check_mutators(&rule.mutators, "", inside, &mut failures);
    }
    !failures.iter().any(Failure::is_forbidden)
}

/// Validates an APIRule. `is_namespace` returns whether a namespace has Services, and `is_occupied` whether another
/// owner uses a host.
pub(super) fn resolve(
    rule: &ApiRule,
    settings: &Settings,
    is_namespace: &dyn Fn(&str) -> bool,
    is_occupied: impl FnOnce(&str) -> bool,
) -> Result<Resolved, Vec<Failure>> {
    let (spec, identity) = (&rule.spec, identity(rule));
    let mut failures = Vec::new();
    let written = spec.host.as_deref().or_else(|| spec.service.as_ref()?.host.as_deref()).unwrap_or_default();
    let host = settings.host(written).map_err(|why| Failure::forbidden(host_attribute(identity.is_newer), why));
    match &host {
        Err(failure) => failures.push(failure.clone()),
        Ok(host) if is_occupied(host.as_str()) => failures.push(Failure::occupied(identity.is_newer)),
        Ok(_) => {}
    }
    let gateway = settings.gateway(&spec.gateway).map_err(|why| Failure::forbidden(".spec.gateway", why));
    failures.extend(gateway.as_ref().err().cloned());
    let main = spec.service.as_ref();
    let main = main.map(|service| target(service, ".spec.service", &identity.namespace, &mut failures));
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
        let own = rule.service.as_ref();
        let own =
            own.map(|service| target(service, &format!("{attribute}.service"), &identity.namespace, &mut failures));
        let inside = Inside { allowed: &settings.allowed_issuers, is_namespace };
        check_strategies(&rule.access_strategies, &format!("{attribute}.accessStrategies"), inside, &mut failures);
        let mutators = rule.mutators.as_deref().unwrap_or_default();
        check_mutators(mutators, &format!("{attribute}.mutators"), inside, &mut failures);
        failures.extend(path_failure(&rule.path, &attribute));
        let Some(target) = own.or_else(|| main.clone()) else {
            let why = "No service defined with no main service on spec level";
            failures.push(Failure::new(format!("{attribute}.service"), why));
            continue;
        };
        rules.extend(target.map(|target| Rule {
            path: rule.path.clone(),
            methods: rule.methods.clone(),
            target,
            strategies: rule.access_strategies.clone(),
            mutators: rule.mutators.clone().unwrap_or_default(),
        }));
    }
    match (host, gateway) {
        (Ok(host), Ok(gateway)) if failures.is_empty() => Ok(Resolved { identity, gateway, host, rules }),
        _ => Err(failures),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::checks::text;
    use super::super::fixtures::{path, resolved, rule};
    use mainstay_object::names::{DomainName, InvalidName};

    use super::*;

    #[track_caller]
    fn check(spec: Value, expected: &str) {
        let settings = Settings {
            default_domain: DomainName::parse("kyma.local").ok(),
            allowed_domains: vec![DomainName::parse("example.com").unwrap()],
            allowed_gateways: vec![GatewayRef::parse("edge/public").unwrap()],
            ..Settings::default()
        };
        let got = match resolve(&rule(spec), &settings, &|_| false, |host| host == "taken.kyma.local") {
            Ok(resolved) => resolved.host.to_string(),
            Err(failures) => text(&failures),
        };
        assert_eq!(got, expected);
    }

    fn host(host: &str) -> Value {
        json!({"service": {"host": host}})
    }

    #[test]
    fn a_mutator_calls_no_function_of_a_template() {
        let with = |handler: &str, config: Value| {
            let mut path = path("/.*", &["GET"], "noop");
            path["mutators"] = json!([{"handler": "noop"}, {"handler": handler, "config": config}]);
            json!({"rules": [path]})
        };
        let env = "{{ env \"PATH\" }}";
        for (handler, config, field) in [
            ("header", json!({"headers": {"X": env}}), "headers.X"),
            ("cookie", json!({"cookies": {"X": env}}), "cookies.X"),
            ("id_token", json!({"claims": env}), "claims"),
        ] {
            let start = format!(
                "Validation error: Attribute \".spec.rules[0].mutators[1].config.{field}\": may have only references to \
                 fields in {{{{ }}}}, such as {{{{ print .Subject }}}}, "
            );
            check(
                with(handler, config),
                &format!(
                    "{start}{{{{ .Extra.email }}}}, {{{{ printIndex .MatchContext.RegexpCaptureGroups 0 }}}} or {{{{ \
                     .Extra | toJson }}}}"
                ),
            );
        }
        check(with("header", json!({"headers": {"X": "{{ print .Subject }}"}})), "web.kyma.local");
        check(
            with("hydrator", json!({"api": {"url": "http://{{ print .Subject }}10.0.0.5/"}})),
            "Validation error: Attribute \".spec.rules[0].mutators[1].config.api.url\": value is empty or not a valid url",
        );
    }

    #[test]
    fn the_number_of_mutators_is_bounded() {
        let with = |count: usize| {
            let mut path = path("/.*", &["GET"], "noop");
            path["mutators"] = json!(vec![json!({"handler": "header", "config": {"headers": {"X": "a"}}}); count]);
            json!({"rules": [path]})
        };
        check(with(10), "web.kyma.local");
        check(
            with(11),
            "Validation error: Attribute \".spec.rules[0].mutators\": must have at most 10 items; write the headers into \
             one mutator",
        );
    }

    #[test]
    fn a_host_is_in_a_domain_after_a_dot() {
        check(host("web"), "web.kyma.local");
        check(host("web.kyma.local"), "web.kyma.local");
        check(host("a.b.EXAMPLE.com"), "a.b.example.com");
        let attribute = "Validation error: Attribute \".spec.service.host\": ";
        let why = "Host is not whitelisted: the operator of the agent permits domains with --allow-domain";
        for bad in ["evilkyma.local", "kyma.local", "web.kyma.local.evil.org"] {
            check(host(bad), &format!("{attribute}{why}"));
        }
        let occupied = format!("{attribute}This host is occupied by another Virtual Service");
        check(host("taken"), &occupied);
        let none = resolve(&rule(host("web")), &Settings::default(), &|_| false, |_| false).unwrap_err();
        let unknown = "Host does not contain a domain name and no default domain name is configured";
        assert_eq!(text(&none), format!("{attribute}{unknown}"));
        let newer = json!({"host": "web.evil.org", "service": {"host": null}});
        check(newer, &format!("Validation error: Attribute \".spec.host\": {why}"));
    }

    #[test]
    fn hosts_of_the_cluster_and_addresses_are_refused() {
        let attribute = "Validation error: Attribute \".spec.service.host\": ";
        let of_cluster = "Host is not whitelisted: it is a host of the cluster itself";
        for bad in
            ["payments.prod.svc", "payments.prod.svc.cluster.local", "Payments.prod.SVC.kyma.local", "a.cluster.local"]
        {
            check(host(bad), &format!("{attribute}{of_cluster}"));
        }
        for (bad, why) in [
            ("127.0.0.1", InvalidName::IpAddress),
            ("127.1", InvalidName::IpAddress),
            ("a.b:80", InvalidName::Host),
            (".kyma.local", InvalidName::Host),
            ("we_b.kyma.local", InvalidName::Host),
            ("*.kyma.local", InvalidName::Host),
            ("a.kyma.local/x", InvalidName::Host),
            ("we[b", InvalidName::Label),
        ] {
            check(host(bad), &format!("{attribute}{why}"));
        }
        let none = resolve(&rule(json!({})), &Settings::default(), &|_| false, |_| false).unwrap_err();
        assert!(text(&none).contains("--allow-domain"), "without domains no host is permitted");
    }

    #[test]
    fn gateways_are_those_that_are_permitted() {
        let attribute = "Validation error: Attribute \".spec.gateway\": ";
        for good in
            ["kyma-system/kyma-gateway", "kyma-gateway.kyma-system.svc", "edge/public", "public.edge.svc.cluster.local"]
        {
            check(json!({"gateway": good}), "web.kyma.local");
        }
        for (bad, why) in [
            ("mesh", InvalidName::Mesh.to_string()),
            ("mesh.", InvalidName::Mesh.to_string()),
            ("gateway", InvalidName::Gateway.to_string()),
            ("*", InvalidName::Gateway.to_string()),
            (
                "shop/own",
                "shop/own is not permitted: the operator of the agent permits gateways besides \
                          kyma-system/kyma-gateway with --allow-gateway"
                    .to_owned(),
            ),
        ] {
            check(json!({"gateway": bad}), &format!("{attribute}{why}"));
        }
    }

    #[test]
    fn a_service_is_named_by_a_label() {
        let attribute = "Validation error: Attribute \".spec.service.name\": ";
        for bad in ["payments.prod.svc.cluster.local:80/?x=", "127.0.0.1:19999/admin?x=", "a.b", "a/b", "a@b", "A", ""]
        {
            check(json!({"service": {"name": bad}}), &format!("{attribute}{}", InvalidName::Service));
        }
        let mut of_path = path("/", &["GET"], "noop");
        of_path["service"] = json!({"name": "a:80", "port": 80});
        let attribute = "Validation error: Attribute \".spec.rules[0].service.name\": ";
        check(json!({"rules": [of_path]}), &format!("{attribute}{}", InvalidName::Service));
        let port = "Validation error: Attribute \".spec.service.port\": must be a port from 1 to 65535";
        check(json!({"service": {"port": 65_536}}), port);
    }

    #[test]
    fn urls_of_handlers_do_not_lead_inside() {
        let why = "points into the cluster, to this machine or to a private network; the operator of the agent \
                   permits it with --allow-issuer";
        let inside = "http://payments.prod.svc.cluster.local/keys";
        let of =
            |strategy: Value| json!({"rules": [{"path": "/", "methods": ["GET"], "accessStrategies": [strategy]}]});
        let at = "Validation error: Attribute \".spec.rules[0].accessStrategies[0].config";
        for (handler, field, shown) in [
            ("jwt", json!({"jwks_urls": [inside]}), "jwks_urls[0]"),
            ("jwt", json!({"trusted_issuers": [inside]}), "trusted_issuers[0]"),
            ("oauth2_introspection", json!({"introspection_url": inside}), "introspection_url"),
            ("oauth2_client_credentials", json!({"token_url": inside}), "token_url"),
        ] {
            check(of(json!({"handler": handler, "config": field})), &format!("{at}.{shown}\": {why}"));
        }
        let mut hydrated = path("/", &["GET"], "noop");
        hydrated["mutators"] = json!([{"handler": "hydrator", "config": {"api": {"url": inside}}}]);
        let at = "Validation error: Attribute \".spec.rules[0].mutators[0].config.api.url\": ";
        check(json!({"rules": [hydrated]}), &format!("{at}{why}"));
    }

    #[test]
    fn an_api_rule_has_a_host() {
        let why = "no host is given; write one here, or in spec.host";
        let expected = format!("Validation error: Attribute \".spec.service.host\": {why}");
        check(json!({"service": {"host": null}}), &expected);
        let of_path = json!({"name": "web", "port": 80});
        let mut rule = path("/", &["GET"], "noop");
        rule["service"] = of_path;
        check(json!({"service": null, "rules": [rule]}), &expected);
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
        let issuers = json!({"trusted_issuers": ["https://a.example.com", "hunter2"]});
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
        let host_is = "\nAttribute \".spec.service.host\": Host is not whitelisted: the operator of the agent permits domains with \
                       --allow-domain";
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
        assert_eq!(resolved.rules[1].target.origin(), "http://other.shop.svc.cluster.local:8080");
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
