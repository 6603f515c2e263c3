//! How each path of an APIRule can be guarded in a cluster, and which paths must not be routed.
//!
//! Invariant: a path with a check that cannot be made is not routed, nor is one that may lead to the same requests.

use super::paths::may_overlap;
use super::resolve::{Resolved, Rule, is_empty};
use super::served::Means;

/// How requests to a path are guarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Guard {
    /// All of them lead to the Service.
    Open,
    /// Those with the methods do.
    Methods,
    /// Oathkeeper decides.
    Oathkeeper,
}

/// What can be routed, and what cannot.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Expressed {
    /// The guard of each path; `None`: it is not routed.
    pub(super) guards: Vec<Option<Guard>>,
    /// Why not all are.
    pub(super) problem: Option<String>,
}

/// Decides for every path.
pub(super) fn express(resolved: &Resolved, means: Means) -> Expressed {
    let rules = &resolved.rules;
    let mut guards: Vec<Option<Guard>> = rules.iter().map(|rule| guard(rule, means)).collect();
    let refused: Vec<usize> = (0..rules.len()).filter(|at| guards[*at].is_none()).collect();
    let Some(first) = refused.first() else { return Expressed { guards, problem: None } };
    let mut shadowed = Vec::new();
    for at in 0..rules.len() {
        if guards[at].is_some_and(|guard| refused.iter().any(|refused| meets(&rules[at], guard, &rules[*refused]))) {
            shadowed.push(at);
        }
    }
    for at in &shadowed {
        guards[*at] = None;
    }
    let others = match refused.len() - 1 {
        0 => String::new(),
        others => format!(", nor can {others} more"),
    };
    let also = match shadowed.as_slice() {
        [] => String::new(),
        [one, ..] => format!(
            "; {} more, such as .spec.rules[{one}], may lead to the same requests and so are not routed either",
            shadowed.len()
        ),
    };
    let problem = format!(
        ".spec.rules[{first}] is not routed: {} cannot check what it asks for ({}){others}{also}",
        means.name(),
        checks(&rules[*first]),
    );
    Expressed { guards, problem: Some(problem) }
}

fn guard(rule: &Rule, means: Means) -> Option<Guard> {
    let only = |handler: &str| rule.strategies.iter().all(|strategy| strategy.handler == handler);
    if rule.mutators.is_empty() && only("allow") {
        return Some(Guard::Open);
    }
    if means == Means::Oathkeeper {
        return Some(Guard::Oathkeeper);
    }
    let is_plain = rule.mutators.iter().all(|mutator| mutator.handler == "noop" && is_empty(mutator.config.as_ref()));
    (is_plain && only("noop")).then_some(Guard::Methods)
}

/// Whether a routed path may take requests of one that must not be routed.
fn meets(routed: &Rule, guard: Guard, refused: &Rule) -> bool {
    let same_methods = guard == Guard::Open || routed.methods.iter().any(|method| refused.methods.contains(method));
    same_methods && may_overlap(&routed.path, &refused.path)
}

/// The words of what is asked for, without any configuration.
fn checks(rule: &Rule) -> String {
    let handlers = rule.strategies.iter().map(|strategy| strategy.handler.as_str());
    let mutators = rule.mutators.iter().map(|mutator| mutator.handler.as_str());
    let words: Vec<&str> = handlers.chain(mutators).take(5).map(|word| crate::api::conditions::cut(word, 50)).collect();
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::fixtures::{path, resolved};
    use super::*;

    #[track_caller]
    fn check(rules: &[Value], means: Means, expected: &str) {
        let expressed = express(&resolved(json!({"rules": rules})), means);
        let guards: Vec<String> = expressed.guards.iter().map(|g| g.map_or("-".into(), |g| format!("{g:?}"))).collect();
        assert_eq!(guards.join(" "), expected, "{:?}", expressed.problem);
        assert_eq!(expressed.problem.is_some(), expected.contains('-'));
    }

    #[test]
    fn what_is_open_needs_no_check_and_oathkeeper_makes_all() {
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
    fn several_strategies_and_mutators_are_oathkeepers_matter() {
        let mut both = path("/a", &["GET"], "noop");
        let jwt = json!({"handler": "jwt", "config": {"trusted_issuers": ["https://a"]}});
        both["accessStrategies"].as_array_mut().unwrap().push(jwt);
        check(&[both], Means::Istio, "-");
        let mut mutated = path("/a", &["GET"], "allow");
        mutated["mutators"] = json!([{"handler": "header", "config": {"headers": {"X": "secret"}}}]);
        check(&[mutated.clone()], Means::Istio, "-");
        check(&[mutated.clone()], Means::Oathkeeper, "Oathkeeper");
        let why = express(&resolved(json!({"rules": [mutated]})), Means::Istio).problem.unwrap();
        let text =
            ".spec.rules[0] is not routed: Istio without Oathkeeper cannot check what it asks for (allow, header)";
        assert_eq!(why, text);
        let mut plain = path("/a", &["GET"], "noop");
        plain["mutators"] = json!([{"handler": "noop"}]);
        check(&[plain], Means::Istio, "Methods");
    }
}
