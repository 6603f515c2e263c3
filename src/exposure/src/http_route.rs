//! Builds the Gateway API's `HTTPRoute`s of an APIRule. The number of HTTPRoutes depends on paths and methods.

use serde_json::{Value, json};

use super::child::{Child, ChildKind, Names};
use super::express::Guard;
use super::paths::{Shape, shape};
use super::resolve::{Resolved, Rule};
use super::served::RouteFeatures;

/// The methods that an HTTPRoute supports.
const METHODS: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];
/// Maximum number of rules in an HTTPRoute, and of matches in all of them.
const MOST_RULES: usize = 16;
const MOST_MATCHES: usize = 128;

/// Returns the HTTPRoutes, with a rule for each path that has a guard.
pub(super) fn build(resolved: &Resolved, guards: &[Option<Guard>], features: RouteFeatures) -> Vec<Child> {
    let mut parts: Vec<(Vec<Value>, usize)> = Vec::new();
    for (rule, guard) in resolved.rules.iter().zip(guards) {
        let Some(guard) = guard else { continue };
        let matches = matches(rule, *guard);
        // HTTPRoutes support none of the path's methods.
        if matches.is_empty() {
            continue;
        }
        let count = matches.len();
        match parts.last_mut() {
            Some((rules, all)) if rules.len() < MOST_RULES && *all + count <= MOST_MATCHES => {
                rules.push(route(resolved, rule, matches, features));
                *all += count;
            }
            _ => parts.push((vec![route(resolved, rule, matches, features)], count)),
        }
    }
    let mut names = Names::new(&resolved.identity);
    let (name, namespace) = (resolved.gateway.name(), resolved.gateway.namespace());
    let parent = json!({"group": "gateway.networking.k8s.io", "kind": "Gateway", "namespace": namespace, "name": name});
    let child = |(at, (rules, _)): (usize, (Vec<Value>, usize))| {
        let name = if at == 0 { names.of_uid() } else { names.next(&format!("{} {at}", resolved.identity.uid)) };
        let spec = json!({"parentRefs": [parent], "hostnames": [resolved.host.as_str()], "rules": rules});
        Child::new(ChildKind::HttpRoute, name, &resolved.identity, spec)
    };
    parts.into_iter().enumerate().map(child).collect()
}

fn matches(rule: &Rule, guard: Guard) -> Vec<Value> {
    let path = match shape(&rule.path) {
        Shape::All => json!({"type": "PathPrefix", "value": "/"}),
        Shape::Exact(path) if may_be_exact(path) => json!({"type": "Exact", "value": path}),
        // A prefix match would also match shorter paths.
        Shape::Exact(path) | Shape::Expression(path) => json!({"type": "RegularExpression", "value": path}),
    };
    if guard == Guard::Open {
        return vec![json!({"path": path})];
    }
    let known = METHODS.into_iter().filter(|known| rule.methods.iter().any(|method| method == known));
    known.map(|method| json!({"path": path, "method": method})).collect()
}

/// Whether a literal path is valid as an exact match. The Gateway API refuses paths that gateways may normalise.
fn may_be_exact(path: &str) -> bool {
    let is_escape = |rest: &str| {
        let digits = rest.as_bytes().get(..2).unwrap_or_default();
        digits.len() == 2 && digits.iter().all(u8::is_ascii_hexdigit) && !digits.eq_ignore_ascii_case(b"2f")
    };
    !path.contains("//") && path.split('%').skip(1).all(is_escape)
}

fn route(resolved: &Resolved, rule: &Rule, matches: Vec<Value>, features: RouteFeatures) -> Value {
    let set = json!([{"name": "x-forwarded-host", "value": resolved.host.as_str()}]);
    let mut filters = vec![json!({"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": set}})];
    if features.cors {
        let methods = ["GET", "POST", "PUT", "DELETE"];
        let cors = json!({"allowOrigins": ["*"], "allowMethods": methods, "allowHeaders": ["*"]});
        filters.push(json!({"type": "CORS", "cors": cors}));
    }
    let backend =
        json!({"group": "", "kind": "Service", "name": rule.service(), "port": rule.target.port, "weight": 1});
    let mut route = json!({"matches": matches, "filters": filters, "backendRefs": [backend]});
    if features.timeouts {
        route["timeouts"] = json!({"request": "180s"});
    }
    route
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{path, resolved};
    use super::*;

    const ALL: RouteFeatures = RouteFeatures { timeouts: true, cors: true };

    #[test]
    fn has_the_shape_of_the_gateway_api() {
        let rules = [path("/.*", &["GET", "POST", "BREW"], "noop")];
        let all = build(&resolved(json!({"rules": rules})), &[Some(Guard::Methods)], ALL);
        let prefix = json!({"type": "PathPrefix", "value": "/"});
        let filters = json!([
            {"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": [{"name": "x-forwarded-host", "value": "web.kyma.local"}]}},
            {"type": "CORS", "cors": {"allowOrigins": ["*"], "allowMethods": ["GET", "POST", "PUT", "DELETE"], "allowHeaders": ["*"]}},
        ]);
        let parent = json!({
            "group": "gateway.networking.k8s.io", "kind": "Gateway", "namespace": "kyma-system", "name": "kyma-gateway",
        });
        let rule = json!({
            "matches": [{"path": prefix, "method": "GET"}, {"path": prefix, "method": "POST"}],
            "filters": filters, "timeouts": {"request": "180s"},
            "backendRefs": [{"group": "", "kind": "Service", "name": "web", "port": 80, "weight": 1}],
        });
        let expected = json!({"parentRefs": [parent], "hostnames": ["web.kyma.local"], "rules": [rule]});
        assert_eq!((all.len(), &all[0].body["spec"]), (1, &expected));
        assert_eq!(all[0].name, "web-0a1b2");
    }

    #[test]
    fn features_that_the_cluster_lacks_are_left_out_and_paths_keep_their_meaning() {
        let rules =
            [path("/x/.*", &["GET"], "allow"), path("/post", &["POST"], "noop"), path("/odd", &["BREW"], "noop")];
        let guards = [Some(Guard::Open), Some(Guard::Methods), Some(Guard::Methods)];
        let all = build(&resolved(json!({"rules": rules})), &guards, RouteFeatures::default());
        let rules = all[0].body["spec"]["rules"].as_array().unwrap();
        let expression = json!([{"path": {"type": "RegularExpression", "value": "/x/.*"}}]);
        let exact = json!([{"path": {"type": "Exact", "value": "/post"}, "method": "POST"}]);
        assert_eq!(rules.iter().map(|rule| &rule["matches"]).collect::<Vec<_>>(), [&expression, &exact]);
        assert!(rules[0].get("timeouts").is_none() && rules[0]["filters"].as_array().unwrap().len() == 1);
    }

    #[test]
    fn an_exact_path_that_is_not_allowed_is_an_expression() {
        let exact = ["/a", "/", "/a%20b/", "/a:b@c,d=e&f!~_-"];
        let others = ["/a//b", "//", "/a%2fb", "/a%2Fb", "/a%", "/a%1", "/a%zz"];
        assert!(exact.iter().all(|path| may_be_exact(path)) && !others.iter().any(|path| may_be_exact(path)));
        let rules = [path("/a%2Fb", &["GET"], "noop")];
        let all = build(&resolved(json!({"rules": rules})), &[Some(Guard::Methods)], ALL);
        let expected = json!({"type": "RegularExpression", "value": "/a%2Fb"});
        assert_eq!(all[0].body["spec"]["rules"][0]["matches"][0]["path"], expected);
    }

    #[test]
    fn many_paths_are_several_routes() {
        let rules: Vec<Value> = (0..40).map(|at| path(&format!("/{at}"), &METHODS, "noop")).collect();
        let all = build(&resolved(json!({"rules": rules})), &[Some(Guard::Methods); 40], ALL);
        let sizes = all.iter().map(|child| child.body["spec"]["rules"].as_array().unwrap().len());
        assert_eq!(sizes.collect::<Vec<_>>(), [14, 14, 12], "128 matches are 14 rules of nine");
        assert_eq!(all.iter().map(|child| &child.name).collect::<std::collections::HashSet<_>>().len(), 3);
    }
}
