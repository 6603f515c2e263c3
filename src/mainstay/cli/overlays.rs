//! Detects a base and its overlays below one directory. Without a choice, base and overlays would all be built and
//! would contain the same objects.
//!
//! Not here: directories that a link refers to, or that are in another repository.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{self, Write as _},
    io::{IsTerminal as _, Write as _},
};

use serde_json::Value;

use mainstay_object::printable;

/// Maximum number of directories in a message.
const SHOWN: usize = 20;
/// File names of kustomizations.
const NAMES: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "Kustomization"];

/// Returns whether the file at a path defines a kustomization.
pub(super) fn is_kustomization(path: &str) -> bool {
    NAMES.contains(&path.rsplit('/').next().unwrap_or_default())
}

/// The directories to choose from. Directories on which no other directory builds come first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Overlays {
    base_dir: String,
    choices: Vec<String>,
}

impl Overlays {
    /// Returns a hint about how to choose a directory without a terminal.
    pub(super) fn hint(&self) -> String {
        let first = self.choices.first().map(String::as_str).unwrap_or_default();
        format!("--base-dir {first} applies only this directory; --base-dir {} applies all of them", self.base_dir)
    }
}

impl fmt::Display for Overlays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named: Vec<_> = self.choices.iter().take(SHOWN).map(|choice| printable(choice).to_string()).collect();
        let more = self.choices.len().saturating_sub(SHOWN);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let base_dir = printable(&self.base_dir);
        write!(
            f,
            "{base_dir} contains kustomizations that build on one another: {}{more}; select one of them",
            named.join(", ")
        )
    }
}

/// Returns the choices if kustomizations below a directory build on one another; `None` if all of them can be built
/// side by side, or if the directory itself is a kustomization. `files` contains the kustomization files by path.
pub(super) fn among(base_dir: &str, files: &BTreeMap<String, Vec<u8>>) -> Option<Overlays> {
    let directories: BTreeMap<&str, Value> = files
        .iter()
        .filter_map(|(path, content)| {
            let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
            let fields = is_kustomization(path).then(|| serde_yaml::from_slice(content).unwrap_or_default())?;
            Some((directory, fields))
        })
        .collect();
    let base = base_dir.trim_matches('/');
    if directories.contains_key(base) {
        return None;
    }
    // A kustomization below another one is not built separately.
    let is_below = |inner: &str, outer: &str| inner.strip_prefix(outer).is_some_and(|rest| rest.starts_with('/'));
    let is_outermost = |directory: &str| !directories.keys().any(|outer| is_below(directory, outer));
    let built = || directories.iter().filter(|(directory, _)| is_outermost(directory));
    let used: BTreeSet<String> = directories.iter().flat_map(|(directory, fields)| named(directory, fields)).collect();
    let is_used = |directory: &&str| used.contains(*directory);
    if !built().any(|(directory, _)| is_used(directory)) {
        return None;
    }
    let path = |(directory, _): (&&str, &Value)| format!("/{directory}");
    let first = built().filter(|(directory, _)| !is_used(directory)).map(path);
    let last = built().filter(|(directory, fields)| is_used(directory) && fields["kind"] != "Component").map(path);
    Some(Overlays { base_dir: base_dir.to_owned(), choices: first.chain(last).collect() })
}

/// Returns the directories that a kustomization builds on.
fn named(directory: &str, fields: &Value) -> Vec<String> {
    let lists = ["resources", "bases", "components"].into_iter().filter_map(|list| fields[list].as_array());
    lists.flatten().filter_map(Value::as_str).filter_map(|path| resolved(directory, path)).collect()
}

/// Resolves a path relative to a directory; `None` if it is outside of the repository.
fn resolved(directory: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = directory.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

/// Asks the user on the terminal. Returns `None` without a terminal or without an answer.
pub(super) fn ask(overlays: &Overlays) -> Option<String> {
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return None;
    }
    let mut prompt = format!("{overlays}\n");
    for (number, choice) in overlays.choices.iter().enumerate() {
        let _ = writeln!(prompt, "  {}  {}", number + 1, printable(choice));
    }
    let _ = write!(prompt, "Which one [1-{}]? ", overlays.choices.len());
    let mut terminal = std::io::stderr();
    terminal.write_all(prompt.as_bytes()).and_then(|()| terminal.flush()).ok()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).ok()?;
    chosen(overlays, answer.trim())
}

/// Interprets an answer: a number of the list, or one of its directories.
fn chosen(overlays: &Overlays, answer: &str) -> Option<String> {
    let by_number = answer.parse::<usize>().ok().and_then(|number| overlays.choices.get(number.checked_sub(1)?));
    let by_name = || overlays.choices.iter().find(|choice| choice.trim_matches('/') == answer.trim_matches('/'));
    by_number.or_else(by_name).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choices(base_dir: &str, files: &[(&str, &str)]) -> Option<Vec<String>> {
        let files = files.iter().map(|(path, text)| ((*path).to_owned(), text.as_bytes().to_vec())).collect();
        among(base_dir, &files).map(|overlays| overlays.choices)
    }

    const BASE: (&str, &str) = ("base/kustomization.yaml", "resources: [web.yaml]\n");

    #[test]
    fn a_base_and_its_overlays_are_choices() {
        let all = [
            BASE,
            ("overlays/dev/kustomization.yaml", "resources: [../../base]\n"),
            ("overlays/prod/kustomization.yml", "bases: [../../base/]\ncomponents: [../../tls]\n"),
            ("tls/Kustomization", "kind: Component\n"),
        ];
        assert_eq!(choices("/", &all).unwrap(), ["/overlays/dev", "/overlays/prod", "/base"]);
        let beside = &all[1..3];
        assert_eq!(choices("/overlays", beside), None, "overlays beside each other do not build on one another");
        assert_eq!(choices("/base", &all[..1]), None);
    }

    #[test]
    fn kustomizations_that_can_be_built_beside_each_other_are_no_choice() {
        assert_eq!(choices("/", &[]), None);
        assert_eq!(choices("/", &[BASE]), None);
        assert_eq!(
            choices("/", &[BASE, ("other/kustomization.yaml", "resources: [https://example.com/base]\n")]),
            None
        );
        let root = ("kustomization.yaml", "resources: [base]\n");
        assert_eq!(choices("/", &[BASE, root]), None, "the root says what is built");
        let nested = [
            ("app/kustomization.yaml", "resources: [base]\n"),
            ("app/base/kustomization.yaml", "resources: []\n"),
            ("broken/kustomization.yaml", "resources: [\n"),
        ];
        assert_eq!(choices("/", &nested), None, "nothing below a kustomization is built by itself");
        assert_eq!(choices("/", &[BASE, ("a/kustomization.yaml", "resources: [../../../base]\n")]), None);
    }

    #[test]
    fn an_answer_is_a_number_or_a_name() {
        let overlays = Overlays { base_dir: "/".into(), choices: vec!["/overlays/dev".into(), "/base".into()] };
        for (answer, choice) in [
            ("1", Some("/overlays/dev")),
            ("2", Some("/base")),
            ("base", Some("/base")),
            ("/overlays/dev/", Some("/overlays/dev")),
            ("0", None),
            ("3", None),
            ("", None),
            ("prod", None),
        ] {
            assert_eq!(chosen(&overlays, answer).as_deref(), choice, "{answer}");
        }
        assert_eq!(
            overlays.to_string(),
            "/ contains kustomizations that build on one another: /overlays/dev, /base; select one of them"
        );
        assert_eq!(
            overlays.hint(),
            "--base-dir /overlays/dev applies only this directory; --base-dir / applies all of them"
        );
    }
}
