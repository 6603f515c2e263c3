//! Formats trees as lines or as JSON.

use serde_json::{Value, json};

use super::node::{Node, State};
use mainstay_object::{Health, Key, printable};

/// Maximum number of children to show per parent and kind. A Deployment may have many old ReplicaSets.
const SHOWN: usize = 10;

/// Formats all trees and their notes.
pub(super) fn text(trees: &[Node], notes: &[String]) -> String {
    let mut lines = Vec::new();
    for tree in trees {
        collect(tree, String::new(), String::new(), Cut::Nothing, &mut lines);
    }
    let widest = lines.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0).min(70);
    let mut text = String::new();
    for (name, state) in lines {
        text.push_str(format!("{name:<widest$}  {state}").trim_end());
        text.push('\n');
    }
    for note in notes {
        text.push_str(&format!("{}\n", printable(note)));
    }
    text
}

/// Whether long lists are cut.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cut {
    /// Nothing is cut: all objects of a GitSync are shown.
    Nothing,
    /// Only the first children of each kind are shown.
    Children,
}

fn collect(node: &Node, first: String, others: String, cut: Cut, lines: &mut Vec<(String, String)>) {
    lines.push((format!("{first}{}", printable(&node.key.to_string())), state(&node.state)));
    let mut shown: Vec<Result<&Node, String>> = Vec::new();
    let mut of_kind: Option<(&Key, usize)> = None;
    for child in &node.children {
        let count = match of_kind {
            Some((key, count)) if key.kind == child.key.kind && key.group == child.key.group => count + 1,
            _ => 1,
        };
        of_kind = Some((&child.key, count));
        if cut == Cut::Nothing || count <= SHOWN {
            shown.push(Ok(child));
        } else {
            let more = format!("and {} more {}", count - SHOWN, child.key.kind);
            match shown.last_mut() {
                Some(last @ Err(_)) => *last = Err(more),
                _ => shown.push(Err(more)),
            }
        }
    }
    let last = shown.len().saturating_sub(1);
    for (number, child) in shown.into_iter().enumerate() {
        let (branch, below) = if number == last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        let (first, next) = (format!("{others}{branch}"), format!("{others}{below}"));
        match child {
            Ok(child) => collect(child, first, next, Cut::Children, lines),
            Err(more) => lines.push((format!("{first}{}", printable(&more)), String::new())),
        }
    }
}

fn state(state: &State) -> String {
    let (word, why) = words(state);
    let why = why.split('\n').next().unwrap_or_default();
    if why.is_empty() { word.to_owned() } else { format!("{word}: {}", printable(why)) }
}

fn words(state: &State) -> (&'static str, &str) {
    match state {
        State::There(Health::Healthy) => ("Healthy", ""),
        State::There(Health::Progressing(why)) => ("Progressing", why),
        State::There(Health::Failed(why)) => ("Failed", why),
        State::Terminating => ("Terminating", ""),
        State::Absent => ("Absent", ""),
        State::Ended => ("Ended", "it ran to its end and is gone"),
        State::Unknown(why) => ("Unknown", why),
    }
}

/// Returns a tree for JSON and YAML, with all children.
pub(super) fn facts(node: &Node) -> Value {
    let (health, why) = words(&node.state);
    json!({
        "group": &*node.key.group, "kind": &*node.key.kind,
        "namespace": node.key.namespace.as_deref(), "name": &*node.key.name,
        "health": health, "message": why,
        "children": node.children.iter().map(facts).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(kind: &str, name: &str, children: Vec<Node>) -> Node {
        Node {
            key: Key::new("", kind, Some("shop"), name),
            state: State::There(Health::Healthy),
            created: None,
            facts: mainstay_console::Facts::default(),
            children,
        }
    }

    #[test]
    fn shows_every_managed_object_and_the_first_of_many_children() {
        let pods = (10..22).map(|number| node("Pod", &format!("web-{number}"), vec![])).collect();
        let mut job = node("Job", "a\nb", vec![]);
        job.state = State::There(Health::Failed("it failed\nfor ever".into()));
        let text = text(&[node("GitSync", "demo", vec![node("Thing", "web", pods), job])], &["a note".into()]);
        let lines: Vec<&str> = text.lines().collect();
        let row = |name: &str| format!("{name:<21}  Healthy");
        assert_eq!(lines[0], row("GitSync shop/demo"));
        assert_eq!(lines[1], row("├─ Thing shop/web"));
        assert_eq!(lines[2], row("│  ├─ Pod shop/web-10"));
        assert_eq!(lines[12], "│  └─ and 2 more Pod");
        assert!(lines[13].starts_with("└─ Job shop/a\\nb ") && lines[13].ends_with("  Failed: it failed"), "{text}");
        assert_eq!((lines[14], lines.len()), ("a note", 15));
    }
}
