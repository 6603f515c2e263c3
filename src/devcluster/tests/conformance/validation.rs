//! Validation across fields: invalid objects of each kind, with the server's messages.

use crate::world::{World, claim};
use serde_json::{Value, json};

/// Returns a minimal valid object of a kind.
fn base(kind: &str) -> (&'static str, &'static str, Value) {
    let selector = json!({"matchLabels": {"a": "b"}});
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let job = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    let backend = json!({"service": {"name": "s", "port": {"number": 80}}});
    match kind {
        "Deployment" => ("apps/v1", "deployments", json!({"selector": selector, "template": template})),
        "StatefulSet" => {
            ("apps/v1", "statefulsets", json!({"serviceName": "s", "selector": selector, "template": template}))
        }
        "DaemonSet" => ("apps/v1", "daemonsets", json!({"selector": selector, "template": template})),
        "Job" => ("batch/v1", "jobs", json!({"template": job})),
        "CronJob" => {
            ("batch/v1", "cronjobs", json!({"schedule": "* * * * *", "jobTemplate": {"spec": {"template": job}}}))
        }
        "Service" => ("v1", "services", json!({"ports": [{"port": 80}]})),
        "Ingress" => {
            let path = json!({"path": "/", "pathType": "Prefix", "backend": backend});
            let rules = json!([{"host": "a.b", "http": {"paths": [path]}}]);
            ("networking.k8s.io/v1", "ingresses", json!({"rules": rules}))
        }
        "NetworkPolicy" => ("networking.k8s.io/v1", "networkpolicies", json!({"podSelector": {}})),
        "HorizontalPodAutoscaler" => {
            let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"});
            ("autoscaling/v2", "horizontalpodautoscalers", json!({"maxReplicas": 3, "scaleTargetRef": target}))
        }
        _ => ("policy/v1", "poddisruptionbudgets", json!({"selector": selector, "minAvailable": 1})),
    }
}

/// Sets a nested field, for example `rules.0.host`.
fn set(object: &mut Value, path: &str, value: Value) {
    let mut at = object;
    for part in path.split('.') {
        at = match part.parse::<usize>() {
            Ok(index) => &mut at[index],
            Err(_) => &mut at[part],
        };
    }
    *at = value;
}

/// Checks that an object with these fields is refused for exactly these causes (`field: message`).
async fn refused(w: &World, kind: &str, fields: &[(&str, Value)], expected: &[&str]) {
    let (api_version, resource, mut spec) = base(kind);
    for (path, value) in fields {
        set(&mut spec, path, value.clone());
    }
    let object = json!({"metadata": {"name": "x"}, "spec": spec});
    let answer = w.post(&w.path(api_version, &format!("{resource}?dryRun=All")), object).await;
    assert_eq!((answer.code, answer.reason()), (422, "Invalid"), "{kind} {fields:?}: {}", answer.text);
    let causes = answer.body["details"]["causes"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let found: Vec<String> = causes.iter().map(|c| format!("{}: {}", text(&c["field"]), text(&c["message"]))).collect();
    let found: Vec<&str> = found.iter().map(|line| line.strip_prefix("spec.").unwrap_or(line)).collect();
    assert_eq!(found, expected, "{kind} {fields:?}");
}

const NEGATIVE: &str = "must be greater than or equal to 0";
const PERCENT: &str = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', \
                       regex used for validation is '[0-9]+%')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
                     and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
                     '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
                         and must start and end with an alphanumeric character (e.g. 'example.com', regex used for \
                         validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

#[test]
fn a_deployment_has_more_time_than_its_pods_need_to_be_available() {
    claim(async |w| {
        for (ready, deadline) in [(600, 600), (600, 500), (0, 0)] {
            let fields = [("minReadySeconds", json!(ready)), ("progressDeadlineSeconds", json!(deadline))];
            let why =
                format!("progressDeadlineSeconds: Invalid value: {deadline}: must be greater than minReadySeconds");
            refused(w, "Deployment", &fields, &[&why]).await;
        }
        let fields = [("minReadySeconds", json!(5)), ("progressDeadlineSeconds", json!(-1))];
        let first = format!("progressDeadlineSeconds: Invalid value: -1: {NEGATIVE}");
        let second = "progressDeadlineSeconds: Invalid value: -1: must be greater than minReadySeconds";
        refused(w, "Deployment", &fields, &[&first, second]).await;
    });
}

#[test]
fn the_numbers_of_a_rollout_make_sense() {
    claim(async |w| {
        let field = "strategy.rollingUpdate.maxUnavailable";
        for (value, why) in [
            (json!("101%"), "must not be greater than 100%"),
            (json!(-1), NEGATIVE),
            (json!("x"), PERCENT),
            (json!("1.5%"), PERCENT),
        ] {
            let rolling = json!({"maxUnavailable": value, "maxSurge": 1});
            let expected = format!("{field}: Invalid value: {value}: {why}");
            refused(w, "Deployment", &[("strategy", json!({"rollingUpdate": rolling}))], &[&expected]).await;
        }
        let expected = "strategy: Unsupported value: {\"Type\":\"Foo\",\"RollingUpdate\":null}: supported values: \
                        \"Recreate\", \"RollingUpdate\"";
        refused(w, "Deployment", &[("strategy", json!({"type": "Foo"}))], &[expected]).await;
        let update = |rolling: Value| [("updateStrategy", json!({"type": "RollingUpdate", "rollingUpdate": rolling}))];
        let path = "updateStrategy.rollingUpdate";
        let expected = format!("{path}.maxUnavailable: Required value: cannot be 0 when maxSurge is 0");
        refused(w, "DaemonSet", &update(json!({"maxUnavailable": 0})), &[&expected]).await;
        let expected = format!("{path}.maxSurge: Invalid value: 1: may not be set when maxUnavailable is non-zero");
        refused(w, "DaemonSet", &update(json!({"maxUnavailable": 1, "maxSurge": 1})), &[&expected]).await;
        let expected = format!("{path}.partition: Invalid value: -1: {NEGATIVE}");
        refused(w, "StatefulSet", &update(json!({"partition": -1})), &[&expected]).await;
    });
}

#[test]
fn a_selector_of_labels_makes_sense() {
    claim(async |w| {
        let select = |expression: &Value| json!({"matchExpressions": [expression]});
        for (expression, why) in [
            (
                json!({"key": "a", "operator": "Exists", "values": ["x"]}),
                "values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            ),
            (
                json!({"key": "a", "operator": "In"}),
                "values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
            ),
            (json!({"key": "a", "operator": "Foo"}), "operator: Invalid value: \"Foo\": not a valid selector operator"),
        ] {
            let first = format!("selector.matchExpressions[0].{why}");
            let second = "selector: Invalid value: {\"matchExpressions\":[";
            let (_, _, mut spec) = base("Deployment");
            spec["selector"] = select(&expression);
            let path = w.path("apps/v1", "deployments?dryRun=All");
            let answer = w.post(&path, json!({"metadata": {"name": "x"}, "spec": spec})).await;
            let causes = answer.causes();
            assert_eq!(answer.code, 422, "{}", answer.text);
            assert!(causes[0].ends_with(&format!("spec.{first}")), "{causes:?}");
            assert!(causes[1].contains(second) && causes[1].ends_with(": invalid label selector"), "{causes:?}");
            let expected = format!("podSelector.matchExpressions[0].{why}");
            refused(w, "NetworkPolicy", &[("podSelector", select(&expression))], &[&expected]).await;
        }
    });
}

#[test]
fn a_stateful_set_says_how_it_is_managed() {
    claim(async |w| {
        let check = async |field: &str, value: Value, expected: &str| {
            refused(w, "StatefulSet", &[(field, value)], &[expected]).await;
        };
        check("serviceName", json!("A_b"), &format!("serviceName: Invalid value: \"A_b\": {LABEL}")).await;
        let expected = "podManagementPolicy: Invalid value: \"Foo\": must be 'OrderedReady' or 'Parallel'";
        check("podManagementPolicy", json!("Foo"), expected).await;
        let expected = "updateStrategy: Invalid value: {\"Type\":\"Foo\",\"RollingUpdate\":null}: must be 'RollingUpdate' or 'OnDelete'";
        check("updateStrategy", json!({"type": "Foo"}), expected).await;
        check("ordinals", json!({"start": -1}), &format!("ordinals.start: Invalid value: -1: {NEGATIVE}")).await;
        let expected =
            "template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in StatefulSet is not Supported";
        check("template.spec.activeDeadlineSeconds", json!(5), expected).await;
        let claim = json!([{"metadata": {"name": "v"}, "spec": {}}]);
        let modes = "volumeClaimTemplates[0].spec.accessModes: Required value: at least 1 access mode is required";
        let size = "volumeClaimTemplates[0].spec.resources[storage]: Required value";
        refused(w, "StatefulSet", &[("volumeClaimTemplates", claim)], &[modes, size]).await;
    });
}

#[test]
fn a_job_counts_what_it_can_count() {
    claim(async |w| {
        let needs = "requires indexed completion mode";
        let expected = format!("backoffLimitPerIndex: Invalid value: 1: {needs}");
        refused(w, "Job", &[("backoffLimitPerIndex", json!(1))], &[&expected]).await;
        let first = "backoffLimitPerIndex: Required value: when maxFailedIndexes is specified";
        let second = format!("maxFailedIndexes: Invalid value: 1: {needs}");
        refused(w, "Job", &[("maxFailedIndexes", json!(1))], &[first, &second]).await;
        let expected = "completionMode: Unsupported value: \"Foo\": supported values: \"NonIndexed\", \"Indexed\"";
        refused(w, "Job", &[("completionMode", json!("Foo"))], &[expected]).await;
        let expected =
            "podReplacementPolicy: Unsupported value: \"Foo\": supported values: \"Failed\", \"TerminatingOrFailed\"";
        refused(w, "Job", &[("podReplacementPolicy", json!("Foo"))], &[expected]).await;
        let policy = |rule: Value| [("podFailurePolicy", json!({"rules": [rule]}))];
        let rule = "podFailurePolicy.rules[0]";
        let codes = |values: Value| json!({"action": "FailJob", "onExitCodes": {"operator": "In", "values": values}});
        let expected = format!("{rule}.onExitCodes.values[0]: Invalid value: 0: must not be 0 for the In operator");
        refused(w, "Job", &policy(codes(json!([0]))), &[&expected]).await;
        let expected = format!("{rule}.onExitCodes.values: Invalid value: [2,1]: must be ordered");
        refused(w, "Job", &policy(codes(json!([2, 1]))), &[&expected]).await;
        let first = format!(
            "{rule}.action: Unsupported value: \"Foo\": supported values: \"Count\", \"FailIndex\", \"FailJob\", \"Ignore\""
        );
        let second = format!("{rule}: Invalid value: specifying one of OnExitCodes and OnPodConditions is required");
        refused(w, "Job", &policy(json!({"action": "Foo"})), &[&first, &second]).await;
        let expected = "managedBy: Invalid value: \"a\": must be a domain-prefixed path (such as \"acme.io/foo\")";
        refused(w, "Job", &[("managedBy", json!("a"))], &[expected]).await;
    });
}

#[test]
fn a_cron_job_has_a_schedule_a_zone_and_no_selector() {
    claim(async |w| {
        let cases = [
            ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
            ("@every x", "failed to parse duration @every x: time: invalid duration \"x\""),
        ];
        for (schedule, why) in cases {
            let expected = format!("schedule: Invalid value: {schedule:?}: {why}");
            refused(w, "CronJob", &[("schedule", json!(schedule))], &[&expected]).await;
        }
        let expected = "timeZone: Invalid value: \"utc\": unknown time zone utc";
        refused(w, "CronJob", &[("timeZone", json!("utc"))], &[expected]).await;
        let first = "timeZone: Invalid value: \"local\": timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        let second = "timeZone: Invalid value: \"local\": unknown time zone local";
        refused(w, "CronJob", &[("timeZone", json!("local"))], &[first, second]).await;
        let expected = "jobTemplate.spec.manualSelector: Unsupported value: true: supported values: \"nil\", \"false\"";
        refused(w, "CronJob", &[("jobTemplate.spec.manualSelector", json!(true))], &[expected]).await;
    });
}

#[test]
fn the_fields_of_a_service_fit_its_type() {
    claim(async |w| {
        let only = "may only be used when `type` is 'LoadBalancer'";
        let local = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        let port = |more: (&str, Value)| json!([{"port": 80, more.0: more.1}]);
        let letters = "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)";
        let cases = [
            ("ports", port(("nodePort", json!(30000))), "ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'".to_owned()),
            ("ports", port(("targetPort", json!("A_b"))), format!("ports[0].targetPort: Invalid value: \"A_b\": {letters}")),
            ("clusterIP", json!("x"), "clusterIPs[0]: Invalid value: \"x\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)".to_owned()),
            ("externalIPs", json!(["127.0.0.1"]), "externalIPs[0]: Invalid value: \"127.0.0.1\": may not be in the loopback range (127.0.0.0/8, ::1/128)".to_owned()),
            ("ipFamilies", json!(["IPv4", "IPv4"]), "ipFamilies[1]: Duplicate value: \"IPv4\"".to_owned()),
            ("externalTrafficPolicy", json!("Local"), "externalTrafficPolicy: Invalid value: \"Local\": may only be set for externally-accessible services".to_owned()),
            ("internalTrafficPolicy", json!("Foo"), "internalTrafficPolicy: Unsupported value: \"Foo\": supported values: \"Cluster\", \"Local\"".to_owned()),
            ("healthCheckNodePort", json!(30001), format!("healthCheckNodePort: Invalid value: 30001: {local}")),
            ("allocateLoadBalancerNodePorts", json!(true), format!("allocateLoadBalancerNodePorts: Forbidden: {only}")),
            ("loadBalancerClass", json!("a"), format!("loadBalancerClass: Forbidden: {only}")),
            ("trafficDistribution", json!("Foo"), "trafficDistribution: Unsupported value: \"Foo\": supported values: \"PreferClose\", \"PreferSameZone\", \"PreferSameNode\"".to_owned()),
        ];
        for (field, value, expected) in &cases {
            refused(w, "Service", &[(field, value.clone())], &[expected]).await;
        }
        let name = [("type", json!("ExternalName")), ("externalName", json!("A_b"))];
        refused(w, "Service", &name, &[&format!("externalName: Invalid value: \"A_b\": {SUBDOMAIN}")]).await;
        let sticky = [
            ("sessionAffinity", json!("ClientIP")),
            ("sessionAffinityConfig", json!({"clientIP": {"timeoutSeconds": 0}})),
        ];
        let expected = "sessionAffinityConfig.clientIP.timeoutSeconds: Invalid value: 0: must be greater than 0 and less than 86400";
        refused(w, "Service", &sticky, &[expected]).await;
    });
}

#[test]
fn the_hosts_paths_and_backends_of_an_ingress_make_sense() {
    claim(async |w| {
        let path = "rules[0].http.paths[0]";
        for (route, why) in [
            ("/a//b", "must not contain '//'"),
            ("/a/../b", "must not contain '/../'"),
            ("/a%2fb", "must not contain '%2f'"),
            ("/a/..", "cannot end with '/..'"),
        ] {
            let expected = format!("{path}.path: Invalid value: {route:?}: {why}");
            refused(w, "Ingress", &[("rules.0.http.paths.0.path", json!(route))], &[&expected]).await;
        }
        let backends = [
            (json!({}), "backend: Invalid value: \"\": resource or service backend is required".to_owned()),
            (json!({"service": {"name": "a"}}), "backend: Required value: port name or number is required".to_owned()),
            (
                json!({"service": {"name": "A_", "port": {"number": 80}}}),
                format!("backend.service.name: Invalid value: \"A_\": {LABEL}"),
            ),
        ];
        for (backend, why) in &backends {
            let expected = format!("{path}.{why}");
            refused(w, "Ingress", &[("rules.0.http.paths.0.backend", backend.clone())], &[&expected]).await;
        }
        let expected = "rules[0].host: Invalid value: \"1.2.3.4\": must be a DNS name, not an IP address";
        refused(w, "Ingress", &[("rules.0.host", json!("1.2.3.4"))], &[expected]).await;
        let expected = format!("rules[0].host: Invalid value: \"A.b\": {SUBDOMAIN}");
        refused(w, "Ingress", &[("rules.0.host", json!("A.b"))], &[&expected]).await;
        let expected = "rules[0].http.paths: Required value";
        refused(w, "Ingress", &[("rules.0.http.paths", json!([]))], &[expected]).await;
    });
}

#[test]
fn the_ports_and_peers_of_a_network_policy_make_sense() {
    claim(async |w| {
        let check = async |what: &str, entry: Value, why: &str| {
            let expected = format!("ingress[0].{what}[0]{why}");
            refused(w, "NetworkPolicy", &[("ingress", json!([{what: [entry]}]))], &[&expected]).await;
        };
        check("ports", json!({"port": 0}), ".port: Invalid value: 0: must be between 1 and 65535, inclusive").await;
        let why = ".protocol: Unsupported value: \"FOO\": supported values: \"TCP\", \"UDP\", \"SCTP\"";
        check("ports", json!({"protocol": "FOO"}), why).await;
        let why = ".endPort: Invalid value: 70: may not be specified when `port` is not specified";
        check("ports", json!({"endPort": 70}), why).await;
        check("from", json!({}), ": Required value: must specify a peer").await;
        let block = |cidr: &str, except: Value| json!({"ipBlock": {"cidr": cidr, "except": except}});
        let why =
            ".ipBlock.cidr: Invalid value: \"x\": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
        check("from", block("x", json!([])), why).await;
        let why = ".ipBlock.cidr: Invalid value: \"10.0.0.1/8\": must not have bits set beyond the prefix length";
        check("from", block("10.0.0.1/8", json!([])), why).await;
        let why = ".ipBlock.except[0]: Invalid value: \"11.0.0.0/16\": must be a strict subset of `cidr`";
        check("from", block("10.0.0.0/8", json!(["11.0.0.0/16"])), why).await;
        let mut both = block("10.0.0.0/8", json!([]));
        both["podSelector"] = json!({});
        check("from", both, ": Forbidden: may not specify both ipBlock and another peer").await;
    });
}

#[test]
fn the_metrics_and_behavior_of_an_autoscaler_make_sense() {
    claim(async |w| {
        let kind = "HorizontalPodAutoscaler";
        let target =
            |target: Value| [("metrics", json!([{"type": "Resource", "resource": {"name": "cpu", "target": target}}]))];
        let path = "metrics[0].resource.target";
        let expected = format!("{path}.averageUtilization: Invalid value: 0: must be greater than 0");
        refused(w, kind, &target(json!({"type": "Utilization", "averageUtilization": 0})), &[&expected]).await;
        let expected = format!(
            "{path}.averageUtilization: Required value: must set either a target raw value or a target utilization"
        );
        refused(w, kind, &target(json!({"type": "Utilization"})), &[&expected]).await;
        let expected = format!("{path}.averageValue: Invalid value: \"0\": must be positive");
        refused(w, kind, &target(json!({"type": "AverageValue", "averageValue": "0"})), &[&expected]).await;
        let expected = "metrics[0].resource: Required value: must populate information for the given metric source";
        refused(w, kind, &[("metrics", json!([{"type": "Resource"}]))], &[expected]).await;
        let up = |rules: Value| [("behavior", json!({"scaleUp": rules}))];
        let expected =
            "behavior.scaleUp.stabilizationWindowSeconds: Invalid value: 3601: must be less than or equal to 3600";
        refused(w, kind, &up(json!({"stabilizationWindowSeconds": 3601})), &[expected]).await;
    });
}

#[test]
fn the_numbers_of_a_disruption_budget_make_sense() {
    claim(async |w| {
        let kind = "PodDisruptionBudget";
        for (value, why) in
            [(json!("x"), PERCENT), (json!("101%"), "must not be greater than 100%"), (json!(-1), NEGATIVE)]
        {
            let expected = format!("minAvailable: Invalid value: {value}: {why}");
            refused(w, kind, &[("minAvailable", value)], &[&expected]).await;
        }
        let expected = "unhealthyPodEvictionPolicy: Unsupported value: \"Foo\": supported values: \"AlwaysAllow\", \"IfHealthyBudget\"";
        refused(w, kind, &[("unhealthyPodEvictionPolicy", json!("Foo"))], &[expected]).await;
    });
}
