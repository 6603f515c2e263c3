//! Decides how each path of an APIRule is guarded in a cluster, and which paths must not be routed.
//!
//! Invariant: a path whose check the cluster cannot perform is not routed, and neither are paths that may match the
//! same requests. Invariant: a path whose Service is not a valid target is not routed. If the path has a check, paths
//! that may match the same requests are not routed either.

use super::backtracking::{self, Total};
use super::checks::is_empty;
use super::no_target::NoTargets;
use super::paths::may_overlap;
use super::resolve::{Resolved, Rule};
use super::served::Means;
use super::token;
use super::workload::Workloads;

/// The guard of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Guard {
    /// No guard: all requests reach the Service.
    Open,
    /// Only requests with one of the path's methods reach the Service.
    Methods,
    /// Istio's proxies check the methods and a token.
    Token,
    /// Oathkeeper checks requests.
    Oathkeeper,
}

/// The guards of all paths.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Expressed {
    /// The guard of each path; `None` if the path is not routed.
    pub(super) guards: Vec<Option<Guard>>,
    /// Why some paths are not routed.
    pub(super) problem: Option<String>,
}

/// Decides about every path.
pub(super) fn express(resolved: &Resolved, means: Means, workloads: &Workloads, no_targets: &NoTargets) -> Expressed {
    let rules = &resolved.rules;
    let mut total = Total::default();
    let decided: Vec<Result<Guard, String>> = rules
        .iter()
        .map(|rule| match guard(resolved, rule, means, workloads)? {
            Guard::Oathkeeper => total.add(&rule.path).map_or(Ok(Guard::Oathkeeper), |why| Err(format!(": {why}"))),
            other => Ok(other),
        })
        .collect();
    let is_target = |at: usize| !no_targets.contains_key(rules[at].service());
    let mut guards: Vec<Option<Guard>> =
        decided.iter().enumerate().map(|(at, guard)| guard.as_ref().ok().copied().filter(|_| is_target(at))).collect();
    let refused: Vec<usize> = (0..rules.len()).filter(|at| decided[*at].is_err()).collect();
    let absent: Vec<usize> = (0..rules.len()).filter(|at| !is_target(*at) && has_check(&rules[*at])).collect();
    let asking: Vec<usize> = (0..rules.len()).filter(|at| guards[*at] == Some(Guard::Token)).collect();
    let shadows = |at: usize| {
        let guard = guards[at]?;
        // If both paths check a token, the policies of both apply, so they may overlap.
        let asking = asking.iter().filter(|_| guard != Guard::Token);
        refused.iter().chain(&absent).chain(asking).copied().find(|other| meets(&rules[at], guard, &rules[*other]))
    };
    let shadowed: Vec<(usize, usize)> = (0..rules.len()).filter_map(|at| Some((at, shadows(at)?))).collect();
    for (at, _) in &shadowed {
        guards[*at] = None;
    }
    let also = |shadowed: &[(usize, usize)]| match shadowed {
        [] => String::new(),
        [(one, _), ..] => format!(
            "; {} more, such as .spec.rules[{one}], may match the same requests, so they are not routed either",
            shadowed.len()
        ),
    };
    let problem = match (refused.first(), shadowed.as_slice()) {
        (None, []) => None,
        (Some(first), _) => {
            let others = match refused.len() - 1 {
                0 => String::new(),
                others => format!(", nor can {others} more"),
            };
            let why = decided[*first].as_ref().err().map_or("", String::as_str);
            let (name, checks) = (means.name(), checks(&rules[*first]));
            Some(format!(
                ".spec.rules[{first}] is not routed: {name} cannot check what it asks for ({checks}){why}{others}{}",
                also(&shadowed)
            ))
        }
        (None, [(one, other), rest @ ..]) => {
            let what = if is_target(*other) { "which asks for a token" } else { "whose Service cannot be routed to" };
            Some(format!(
                ".spec.rules[{one}] is not routed: it may match the same requests as .spec.rules[{other}], {what}{}",
                also(rest)
            ))
        }
    };
    Expressed { guards, problem }
}

/// Whether a path checks more than the method.
fn has_check(rule: &Rule) -> bool {
    let is_open = |handler: &str| matches!(handler, "allow" | "noop");
    !rule.mutators.is_empty() || !rule.strategies.iter().all(|strategy| is_open(&strategy.handler))
}

/// Returns the guard of a path. If there is none, returns the reason as a suffix for the description of the path's
/// checks.
fn guard(resolved: &Resolved, rule: &Rule, means: Means, workloads: &Workloads) -> Result<Guard, String> {
    let only = |handler: &str| rule.strategies.iter().all(|strategy| strategy.handler == handler);
    if rule.is_open() {
        return Ok(Guard::Open);
    }
    if means == Means::Oathkeeper {
        if let Some(why) = backtracking::why_slow(&rule.path) {
            return Err(format!(": {why}"));
        }
        return Ok(Guard::Oathkeeper);
    }
    let is_plain = rule.mutators.iter().all(|mutator| mutator.handler == "noop" && is_empty(mutator.config.as_ref()));
    if is_plain && only("noop") {
        return Ok(Guard::Methods);
    }
    if means != Means::IstioPolicies || !token::is_wanted(rule) {
        return Err(String::new());
    }
    let why = match token::token(rule) {
        Err(why) => why,
        Ok(token) if !goes_with_others(resolved, &token) => {
            "all paths must use the same jwks_urls and the same token_from for an issuer"
        }
        Ok(_) if !workloads.have_proxies => {
            "pods of this namespace get no proxy of Istio (label it istio-injection=enabled, or istio.io/rev)"
        }
        Ok(_) if !workloads.labels.contains_key(rule.service()) => "its Service does not exist, or selects no pods",
        Ok(_) => return Ok(Guard::Token),
    };
    Err(format!(": {why}"))
}

/// Whether Istio can check this token together with those of all other paths.
fn goes_with_others(resolved: &Resolved, token: &token::Token) -> bool {
    let asking = resolved.rules.iter().filter(|rule| token::is_wanted(rule));
    asking.filter_map(|rule| token::token(rule).ok()).all(|other| token::go_together(token, &other))
}

/// Whether a routed path may match requests for a path that must not be routed.
fn meets(routed: &Rule, guard: Guard, refused: &Rule) -> bool {
    let same_methods = guard == Guard::Open || routed.methods.iter().any(|method| refused.methods.contains(method));
    same_methods && may_overlap(&routed.path, &refused.path)
}

/// Describes the checks of a path without their configuration.
fn checks(rule: &Rule) -> String {
    let handlers = rule.strategies.iter().map(|strategy| strategy.handler.as_str());
    let mutators = rule.mutators.iter().map(|mutator| mutator.handler.as_str());
    let words: Vec<&str> =
        handlers.chain(mutators).take(5).map(|word| mainstay_api::conditions::cut(word, 50)).collect();
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::fixtures::{path, resolved};
    use super::*;

    #[track_caller]
    fn check(rules: &[Value], means: Means, expected: &str) {
        let expressed = express(&resolved(json!({"rules": rules})), means, &workloads(), &NoTargets::new());
        let guards: Vec<String> = expressed.guards.iter().map(|g| g.map_or("-".into(), |g| format!("{g:?}"))).collect();
        assert_eq!(guards.join(" "), expected, "{:?}", expressed.problem);
        assert_eq!(expressed.problem.is_some(), expected.contains('-'));
    }

    fn workloads() -> Workloads {
        Workloads { have_proxies: true, labels: [("web".to_owned(), json!({"app": "web"}))].into() }
    }

    #[test]
    fn a_token_is_istios_matter_where_its_proxies_are() {
        let (closed, open) = (path("/closed", &["GET"], "jwt"), path("/open", &["GET"], "noop"));
        check(&[closed.clone(), open.clone()], Means::IstioPolicies, "Token Methods");
        check(&[path("/c.*", &["GET"], "jwt"), open.clone()], Means::IstioPolicies, "- Methods");
        check(
            &[closed.clone(), path("/closed/.*", &["GET"], "jwt"), path("/.*", &["GET"], "jwt")],
            Means::IstioPolicies,
            "Token Token Token",
        );
        // The Service may decode an escaped path to the guarded one.
        check(&[closed.clone(), path("/.*", &["GET"], "noop")], Means::IstioPolicies, "Token -");
        check(&[closed.clone(), path("/.*", &["POST"], "noop")], Means::IstioPolicies, "Token Methods");
        check(&[closed.clone(), path("/.*", &["POST"], "allow")], Means::IstioPolicies, "Token -");
        check(&[closed.clone(), path("/closed.*", &["GET"], "unauthorized")], Means::IstioPolicies, "- -");
        let said = |workloads: &Workloads| {
            express(&resolved(json!({"rules": [closed]})), Means::IstioPolicies, workloads, &NoTargets::new())
                .problem
                .unwrap()
        };
        let says = ".spec.rules[0] is not routed: Istio without Oathkeeper cannot check what it asks for (jwt): ";
        let bare = Workloads { have_proxies: false, ..workloads() };
        assert_eq!(
            said(&bare).strip_prefix(says).unwrap().split(" (").next(),
            Some("pods of this namespace get no proxy of Istio")
        );
        let mut forged = path("/other", &["GET"], "jwt");
        forged["accessStrategies"][0]["config"]["jwks_urls"] = json!(["https://keys.example.com"]);
        check(&[closed.clone(), forged], Means::IstioPolicies, "- -");
        let gone = Workloads { have_proxies: true, ..Workloads::default() };
        assert_eq!(said(&gone).strip_prefix(says), Some("its Service does not exist, or selects no pods"));
    }

    #[test]
    fn open_paths_need_no_check_and_oathkeeper_makes_all_others() {
        let all = [
            path("/a", &["GET"], "allow"),
            path("/b", &["GET"], "noop"),
            path("/c", &["GET"], "jwt"),
            path("/d", &["GET"], "unauthorized"),
        ];
        check(&all, Means::Oathkeeper, "Open Oathkeeper Oathkeeper Oathkeeper");
        check(&all, Means::Istio, "Open Methods - -");
        check(&all, Means::Gateway, "Open Methods - -");
    }

    #[test]
    fn an_open_path_does_not_take_what_is_guarded() {
        let open = |handler| path("/.*", &["GET"], handler);
        check(&[open("noop"), path("/closed", &["GET"], "jwt")], Means::Gateway, "- -");
        check(&[path("/closed", &["GET"], "jwt"), open("noop")], Means::Istio, "- -");
        check(&[open("noop"), path("/closed", &["POST"], "jwt")], Means::Istio, "Methods -");
        check(&[open("allow"), path("/closed", &["POST"], "jwt")], Means::Istio, "- -");
        check(&[path("/open", &["GET"], "noop"), path("/closed", &["GET"], "jwt")], Means::Gateway, "Methods -");
    }

    #[test]
    fn a_path_is_routed_only_to_a_service_that_is_a_target() {
        use crate::no_target::NoTarget;
        let of = |path: Value, service: &str| {
            let mut path = path;
            path["service"] = json!({"name": service, "port": 80});
            path
        };
        let all = [of(path("/.*", &["GET"], "noop"), "web"), of(path("/closed", &["GET"], "jwt"), "gone")];
        for why in [NoTarget::NotFound, NoTarget::Type, NoTarget::NoSelector] {
            for means in [Means::Oathkeeper, Means::IstioPolicies, Means::Istio, Means::Gateway] {
                let built = |rules: &[Value], no_targets: &[(&str, NoTarget)]| {
                    let no_targets = no_targets.iter().map(|(name, why)| ((*name).to_owned(), why.clone())).collect();
                    let rules = json!({"rules": rules});
                    express(&resolved(rules), means, &workloads(), &no_targets).guards
                };
                let why = || why.clone();
                assert_eq!(built(&all, &[("web", why()), ("gone", why())]), [None, None], "{means:?}");
                assert_eq!(built(&all, &[("gone", why())]), [None, None], "what is closed does not open: {means:?}");
                let open = [of(path("/.*", &["GET"], "noop"), "web"), of(path("/open", &["GET"], "noop"), "gone")];
                let guards = built(&open, &[("gone", why())]);
                assert!(guards[0].is_some() && guards[1].is_none(), "{means:?}");
            }
        }
    }

    #[test]
    fn several_strategies_and_mutators_are_oathkeepers_matter() {
        let mut both = path("/a", &["GET"], "noop");
        let jwt = json!({"handler": "jwt", "config": {"trusted_issuers": ["https://a"]}});
        both["accessStrategies"].as_array_mut().unwrap().push(jwt);
        check(&[both], Means::Istio, "-");
        let mut mutated = path("/a", &["GET"], "allow");
        mutated["mutators"] = json!([{"handler": "header", "config": {"headers": {"X": "secret"}}}]);
        check(&[mutated.clone()], Means::Istio, "-");
        check(&[mutated.clone()], Means::Oathkeeper, "Oathkeeper");
        let why = express(&resolved(json!({"rules": [mutated]})), Means::Istio, &workloads(), &NoTargets::new())
            .problem
            .unwrap();
        let text =
            ".spec.rules[0] is not routed: Istio without Oathkeeper cannot check what it asks for (allow, header)";
        assert_eq!(why, text);
        let mut plain = path("/a", &["GET"], "noop");
        plain["mutators"] = json!([{"handler": "noop"}]);
        check(&[plain], Means::Istio, "Methods");
    }

    #[test]
    fn paths_that_oathkeeper_compares_slowly_are_not_routed() {
        check(&[path("/a+a+", &["GET"], "noop"), path("/b", &["GET"], "noop")], Means::Oathkeeper, "- Oathkeeper");
        check(&[path("/a+a+", &["GET"], "allow")], Means::Oathkeeper, "Open");
        let many: Vec<Value> = (0..500).map(|at| path(&format!("/.*x{at}"), &["GET"], "noop")).collect();
        let resolved = resolved(json!({"rules": many}));
        let expressed = express(&resolved, Means::Oathkeeper, &workloads(), &NoTargets::new());
        // The refused paths may match the same requests as all others.
        assert!(expressed.guards.iter().all(Option::is_none), "{:?}", expressed.guards);
        assert!(expressed.problem.unwrap().contains("(the limit is 240)"));
    }
}
