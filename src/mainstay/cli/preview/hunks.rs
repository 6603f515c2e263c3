//! Compares two states of an object as YAML lines, like `diff -u`. A header with the field precedes each part.
//!
//! Not here: line numbers. The lines are not those of a file.

use std::time::Duration;

use serde_json::Value;
use similar::{ChangeTag, TextDiff};

/// Number of equal lines around differences.
const AROUND: usize = 3;
/// Extra depth of an item's keys.
const KEY_OF_ITEM: usize = 3;
/// Maximum time to search for the shortest difference. Afterwards, any difference is used.
const WITHIN: Duration = Duration::from_secs(2);

/// Returns the lines. Each line begins with ` `, `-` or `+`, or has the form `@@ the.field @@`. The list is empty
/// without a difference.
pub(super) fn hunks(before: Option<&Value>, after: Option<&Value>) -> Vec<String> {
    let text = |value: Option<&Value>| {
        let Some(value) = value else { return String::new() };
        // A value has string keys, so it is always valid YAML.
        serde_yaml::to_string(value).unwrap_or_else(|_| format!("{value:#}\n"))
    };
    let (old, new) = (text(before), text(after));
    let difference = TextDiff::configure().timeout(WITHIN).diff_lines(&old, &new);
    let (old_lines, new_lines): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let mut lines = Vec::new();
    for group in difference.grouped_ops(AROUND) {
        let mut shown = Vec::new();
        let mut field = None;
        for change in group.iter().flat_map(|op| difference.iter_changes(op)) {
            let sign = match change.tag() {
                ChangeTag::Equal => ' ',
                ChangeTag::Delete => '-',
                ChangeTag::Insert => '+',
            };
            if sign != ' ' && field.is_none() {
                let (of, at) = match (change.old_index(), change.new_index()) {
                    (Some(at), _) => (&old_lines, at),
                    (None, at) => (&new_lines, at.unwrap_or_default()),
                };
                field = Some(field_of(of, at));
            }
            shown.push(format!("{sign}{}", change.value().trim_end_matches('\n')));
        }
        if let Some(field) = field.filter(|field| !field.is_empty()) {
            lines.push(format!("@@ {field} @@"));
        }
        lines.append(&mut shown);
    }
    lines
}

/// Returns the field of a YAML line, such as `spec.containers[0]`: the keys and items above the line that have less
/// depth.
fn field_of(lines: &[&str], at: usize) -> String {
    let mut within = lines.get(at).map_or(0, |line| depth(line));
    let mut steps = Vec::new();
    for (number, line) in lines[..at.min(lines.len())].iter().enumerate().rev() {
        if within == 0 {
            break;
        }
        let (depth_here, text) = (depth(line), line.trim_start_matches(' '));
        if depth_here >= within || text.is_empty() {
            continue;
        }
        if let Some(first) = text.strip_prefix("- ") {
            // The first key of an item is on the item's line, with the depth of its other keys.
            if let Some(key) = first.strip_suffix(':').filter(|_| depth_here + KEY_OF_ITEM < within) {
                steps.push(format!(".{key}"));
            }
            let before = lines[..number].iter().rev().map(|line| depth(line));
            let index = before.take_while(|other| *other >= depth_here).filter(|other| *other == depth_here).count();
            steps.push(format!("[{index}]"));
        } else if let Some(key) = text.strip_suffix(':') {
            steps.push(format!(".{key}"));
        }
        within = depth_here;
    }
    steps.reverse();
    steps.concat().trim_start_matches('.').to_owned()
}

/// Returns the depth of a line. A list item is deeper than the list's key, which has the same indentation.
fn depth(line: &str) -> usize {
    let text = line.trim_start_matches(' ');
    let indentation = line.len() - text.len();
    indentation * 2 + usize::from(text.starts_with("- "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(before: Option<Value>, after: Option<Value>, expected: &str) {
        assert_eq!(hunks(before.as_ref(), after.as_ref()).join("\n"), expected);
    }

    #[test]
    fn shows_what_differs_with_the_field_that_it_is_in() {
        let of = |image: &str, more: Value| {
            let containers = json!([{"name": "web", "image": image, "a": 1, "b": 2, "c": 3}, {"name": "log"}]);
            json!({"kind": "Deployment", "spec": {"template": {"spec": {"containers": containers}}}, "z": more})
        };
        let lines = "\
@@ spec.template.spec.containers[0] @@
       - a: 1
         b: 2
         c: 3
-        image: web:1
+        image: web:2
         name: web
       - name: log
 z: 1";
        check(Some(of("web:1", json!(1))), Some(of("web:2", json!(1))), lines);
        check(Some(of("a", json!(1))), Some(of("a", json!(1))), "");
    }

    #[test]
    fn a_field_is_named_by_its_keys_and_items() {
        let text = "a:\n  b:\n  - c:\n    - d: 1\n    - e: 2\n      f: 3\n  - 4\n";
        let lines: Vec<&str> = text.lines().collect();
        let fields: Vec<String> = (0..lines.len()).map(|at| field_of(&lines, at)).collect();
        assert_eq!(fields, ["", "a", "a.b", "a.b[0].c", "a.b[0].c", "a.b[0].c[1]", "a.b"]);
    }

    #[test]
    fn shows_all_of_what_is_only_on_one_side() {
        check(None, Some(json!({"a": 1, "b": [2]})), "+a: 1\n+b:\n+- 2");
        check(Some(json!({"a": "x\ny\n"})), None, "-a: |\n-  x\n-  y");
    }
}
