//! Replaces values that differ between runs and clusters by names.

use regex::Regex;

/// Replacements, in order.
#[derive(Default)]
pub(crate) struct Normaliser {
    texts: Vec<(String, &'static str)>,
    patterns: Vec<(Regex, &'static str)>,
}

/// Patterns and their replacements.
const PATTERNS: &[(&str, &str)] = &[
    // A log message of kubectl if a stream's last, empty message arrives after it was closed.
    (r"(?m)^E\d{4} .* websocket\.go:\d+\] Unknown stream id \d+, discarding message\n", ""),
    // UIDs and resource versions.
    (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "UID"),
    (r#"(resourceVersion"?: ?)"\d+""#, r#"$1"RV""#),
    // Times and ages.
    (r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z| ?[+-]\d\d:?\d\d)", "TIME"),
    (r"\b(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d \w{3} \d{4} \d\d:\d\d:\d\d [+-]\d{4}", "DATE"),
    (AGE, "${before}AGE${after}"),
    // Repeated, because adjacent matches share the space between them.
    (AGE, "${before}AGE${after}"),
    // Generated names of ReplicaSets, their pods, and the pods of Jobs.
    (r"\b([a-z0-9-]+)-[bcdfghjklmnpqrstvwxz2456789]{6,10}-[bcdfghjklmnpqrstvwxz2456789]{5}\b", "$1-HASH-RAND"),
    (r"\b([a-z0-9-]+)-[bcdfghjklmnpqrstvwxz2456789]{6,10}\b", "$1-HASH"),
    (r"(pod-template-hash[=:] ?)[bcdfghjklmnpqrstvwxz2456789]{6,10}\b", "${1}HASH"),
    (r"\b([a-z0-9-]+)-[bcdfghjklmnpqrstvwxz2456789]{5}\b", "$1-RAND"),
    // Containers.
    (r"\b[a-z]+://[0-9a-f]{64}\b", "CONTAINER"),
    // Addresses and temporary files.
    (r"\b(10|127|172|192|169)\.\d{1,3}\.\d{1,3}\.\d{1,3}\b", "IP"),
    (r"/tmp/(LIVE|MERGED)-\d+", "$1"),
];

/// A duration in its own column.
const AGE: &str = r"(?m)(?P<before> {2,}|^)(\d+[smhd]){1,2}( ago)?( \(x\d+ over (\d+[smhd]){1,2}\))?(?P<after> {2,}|$)";

impl Normaliser {
    /// Builds the replacements for a namespace of a cluster.
    pub(crate) fn new<'a>(namespace: &str, server: &str, nodes: impl Iterator<Item = &'a str>, port: u16) -> Self {
        let texts = vec![(namespace.to_owned(), "NS"), (server.to_owned(), "SERVER"), (port.to_string(), "PORT")];
        // The node of the recorded cluster has this name.
        let nodes = nodes.map(|node| (format!(r"\b{}\b", regex::escape(node)), "node"));
        let compile = |pattern: &str| Regex::new(pattern).expect("the patterns above compile");
        let known = PATTERNS.iter().map(|(pattern, name)| (compile(pattern), *name));
        let mut patterns: Vec<_> = known.collect();
        patterns.extend(nodes.map(|(pattern, name)| (compile(&pattern), name)));
        Self { texts, patterns }
    }

    /// Replaces all run-specific values.
    pub(crate) fn apply(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (from, to) in &self.texts {
            text = text.replace(from, to);
        }
        for (pattern, to) in &self.patterns {
            text = pattern.replace_all(&text, *to).into_owned();
        }
        text.lines().map(unaligned).collect()
    }
}

/// Collapses runs of spaces in a line. Indentation and lines of a diff are kept.
fn unaligned(line: &str) -> String {
    let text = line.trim_start();
    if text.is_empty() {
        return "\n".to_owned();
    }
    let mut out = line[..line.len() - text.len()].to_owned();
    if text.starts_with(['+', '-']) && !text.starts_with("---") {
        return format!("{}\n", line.trim_end());
    }
    let mut spaces = 0;
    for character in text.trim_end().chars() {
        if character == ' ' {
            spaces += 1;
        } else {
            out.push_str(&" ".repeat(spaces.min(2)));
            spaces = 0;
            out.push(character);
        }
    }
    out.push('\n');
    out
}
