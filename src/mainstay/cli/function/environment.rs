//! The environment of a Function that runs on this machine.
//!
//! Invariant: the environment equals that of the pod. From this machine, it contains only the variables that are needed
//! to find programs.

use std::collections::{BTreeMap, BTreeSet};

use super::config::{Config, KeyRef, Variable};
use super::document::{Mark, Problem};
use mainstay_object::syntax;

/// Parses a file with one `NAME=VALUE` per line. Blank lines and lines that begin with `#` are ignored. A value is the
/// unchanged string after the first `=`.
pub(super) fn parse(text: &str) -> Result<BTreeMap<String, String>, Vec<Problem>> {
    let mut all = BTreeMap::new();
    let mut problems = Vec::new();
    for (at, line) in text.lines().enumerate() {
        if line.trim().is_empty() || line.trim_start().starts_with('#') {
            continue;
        }
        let mark = Mark { line: at + 1, column: 1 };
        match line.split_once('=') {
            Some((name, value)) if syntax::env_name(name).is_empty() && !value.contains('\0') => {
                all.insert(name.to_owned(), value.to_owned());
            }
            // The line is not repeated, because it may contain a secret.
            _ => problems.push(Problem::new(mark, "the line must be NAME=VALUE")),
        }
    }
    if problems.is_empty() { Ok(all) } else { Err(problems) }
}

/// A ConfigMap or Secret: its kind and its name.
pub(super) type Holder = (&'static str, String);

/// The string entries of a cluster's ConfigMaps and Secrets.
pub(super) type Found = BTreeMap<Holder, BTreeMap<String, String>>;

/// Returns the location of a variable's value in the cluster: kind, name and key.
fn place(variable: &Variable) -> Option<(&'static str, &KeyRef)> {
    let from = variable.value_from.as_ref()?;
    let references = [("ConfigMap", &from.config_map_key_ref), ("Secret", &from.secret_key_ref)];
    references.into_iter().find_map(|(kind, reference)| Some((kind, reference.as_ref()?)))
}

/// Returns the ConfigMaps and Secrets that contain the values of variables that the file lacks.
pub(super) fn holders(config: &Config, file: &BTreeMap<String, String>) -> BTreeSet<Holder> {
    let wanted = config.env.iter().filter(|variable| !file.contains_key(&variable.name));
    wanted.filter_map(place).map(|(kind, at)| (kind, at.name.clone())).collect()
}

/// Returns the user's variables in order, and the missing ones. The values of the file take precedence over the values
/// of the configuration and the cluster.
pub(super) fn variables(
    config: &Config,
    file: &BTreeMap<String, String>,
    found: &Found,
) -> (Vec<(String, String)>, Vec<String>) {
    let mut all: Vec<(String, String)> = Vec::new();
    let mut missing = Vec::new();
    for variable in &config.env {
        let Variable { name, value, value_from } = variable;
        if file.contains_key(name) {
            continue;
        }
        if value_from.is_none() {
            all.push((name.clone(), expanded(value.as_deref().unwrap_or_default(), &all)));
            continue;
        }
        let Some((kind, at)) = place(variable) else { continue };
        match found.get(&(kind, at.name.clone())).and_then(|entries| entries.get(&at.key)) {
            Some(value) => all.push((name.clone(), value.clone())),
            None => missing.push(format!("{name} (key {} of {kind} {})", at.key, at.name)),
        }
    }
    all.extend(file.iter().map(|(name, value)| (name.clone(), value.clone())));
    (all, missing)
}

/// Replaces `$(NAME)` in a value by the values of preceding variables, as in a pod. `$$(NAME)` becomes `$(NAME)`;
/// unknown names are unchanged.
fn expanded(value: &str, before: &[(String, String)]) -> String {
    let mut text = String::with_capacity(value.len());
    let mut rest = value;
    while let Some(at) = rest.find('$') {
        text.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            text.push('$');
            rest = after;
            continue;
        }
        let named = rest.strip_prefix('(').and_then(|inside| inside.split_once(')'));
        let known =
            named.and_then(|(name, after)| Some((before.iter().rev().find(|(known, _)| known == name)?, after)));
        match known {
            Some(((_, value), after)) => {
                text.push_str(value);
                rest = after;
            }
            None => text.push('$'),
        }
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_value_as_it_stands_there_and_repeats_none() {
        let all = parse("# a comment\n\nA=1\nB=\"x=y\" \nC=\n").unwrap();
        assert_eq!(
            all.into_iter().map(|(name, value)| format!("{name}:{value}")).collect::<Vec<_>>(),
            ["A:1", "B:\"x=y\" ", "C:"]
        );
        let problems = parse("A=1\nhunter2\n1A=hunter2\n").unwrap_err();
        let said: Vec<_> = problems.iter().map(|problem| format!("{}: {}", problem.mark, problem.what)).collect();
        assert_eq!(said, ["2:1: the line must be NAME=VALUE", "3:1: the line must be NAME=VALUE"]);
    }

    #[test]
    fn a_file_stands_for_what_only_the_cluster_has() {
        let text = "name: a\nnamespace: b\nsource: {sourceType: inline}\nenv:\n- {name: HOST, value: h}\n- {name: URL, value: \
                    'http://$(HOST)/$$(HOST)$(X)$'}\n- {name: TOKEN, valueFrom: {secretKeyRef: {name: s, key: k}}}\n- {name: C, \
                    valueFrom: {configMapKeyRef: {name: m, key: c}}}\n";
        let config = Config::read(text, None).unwrap();
        let file = parse("TOKEN=t").unwrap();
        let of = |found: &Found| {
            let (all, missing) = variables(&config, &file, found);
            (all.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>(), missing)
        };
        let (all, missing) = of(&Found::new());
        assert_eq!(all, ["HOST=h", "URL=http://h/$(HOST)$(X)$", "TOKEN=t"]);
        assert_eq!(missing, ["C (key c of ConfigMap m)"]);
        // A value from the cluster keeps its place in the order; a value of the file takes precedence.
        assert_eq!(holders(&config, &file).into_iter().collect::<Vec<_>>(), [("ConfigMap", "m".to_owned())]);
        let entries = |key: &str| BTreeMap::from([(key.to_owned(), "$(HOST)".to_owned())]);
        let found =
            Found::from([(("ConfigMap", "m".to_owned()), entries("c")), (("Secret", "s".to_owned()), entries("k"))]);
        let (all, missing) = of(&found);
        assert_eq!(all, ["HOST=h", "URL=http://h/$(HOST)$(X)$", "C=$(HOST)", "TOKEN=t"]);
        assert_eq!(missing, Vec::<String>::new());
    }
}
