//! Templates of `--output jsonpath=…`, in kubectl's form: text, and expressions in braces.
//!
//! Paths are translated to paths of RFC 9535, which a library evaluates.
//!
//! Not here: Go templates and `custom-columns`.

use jsonpath_rust::parser::{model::JpQuery, parse_json_path};
use jsonpath_rust::query::js_path_process;
use serde_json::Value;

/// A parsed template.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Template(Vec<Part>);

#[derive(Clone, Debug, PartialEq)]
enum Part {
    Text(String),
    Values(Path),
    Range(Path, Vec<Part>),
}

/// A path from the whole document, or from the current item of a range.
#[derive(Clone, Debug, PartialEq)]
struct Path {
    from_document: bool,
    query: JpQuery,
}

impl Template {
    /// Parses a template such as `{.metadata.name}{"\n"}`. A path alone needs no braces.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if text.starts_with(['.', '$', '[']) && !text.contains('{') {
            return Ok(Self(vec![Part::Values(Path::parse(text)?)]));
        }
        let (mut parts, mut open, mut rest) = (Vec::new(), Vec::new(), text);
        while let Some((before, after)) = rest.split_once('{') {
            if !before.is_empty() {
                parts.push(Part::Text(before.to_owned()));
            }
            let end = end_of(after, '{', '}').ok_or("a brace `{` is not closed")?;
            let inner = after[..end].trim();
            rest = &after[end + 1..];
            if inner == "end" {
                let (path, outer) = open.pop().ok_or("`{end}` ends no `{range …}`")?;
                let body = std::mem::replace(&mut parts, outer);
                parts.push(Part::Range(path, body));
            } else if let Some(path) = inner.strip_prefix("range ") {
                open.push((Path::parse(path.trim())?, std::mem::take(&mut parts)));
            } else if inner.starts_with(['"', '\'']) {
                parts.push(Part::Text(unquoted(inner)?));
            } else {
                parts.push(Part::Values(Path::parse(inner)?));
            }
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.to_owned()));
        }
        if open.is_empty() { Ok(Self(parts)) } else { Err("a `{range …}` has no `{end}`".to_owned()) }
    }

    /// Returns the text for a document. A path without a value results in an empty string.
    pub(super) fn render(&self, document: &Value) -> String {
        let mut text = String::new();
        render(&self.0, document, document, &mut text);
        text
    }
}

fn render(parts: &[Part], document: &Value, item: &Value, text: &mut String) {
    for part in parts {
        match part {
            Part::Text(fixed) => text.push_str(fixed),
            Part::Values(path) => {
                let values = path.values(document, item).into_iter().map(written);
                text.push_str(&values.collect::<Vec<_>>().join(" "));
            }
            Part::Range(path, body) => {
                for item in path.values(document, item) {
                    render(body, document, item, text);
                }
            }
        }
    }
}

fn written(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

impl Path {
    fn parse(text: &str) -> Result<Self, String> {
        let refused = |why: &str| format!("{text:?} is not a path: {why}");
        let (from_document, rest) = match text.strip_prefix('$') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('@').unwrap_or(text)),
        };
        if text.is_empty() {
            return Err("`{}` has no path".to_owned());
        }
        let query = format!("${}", segments(rest).ok_or_else(|| refused("a bracket is not closed"))?);
        let query = parse_json_path(&query).map_err(|_| refused("as in {.status.conditions[*].type}"))?;
        Ok(Self { from_document, query })
    }

    fn values<'v>(&self, document: &'v Value, item: &'v Value) -> Vec<&'v Value> {
        let start = if self.from_document { document } else { item };
        let found = js_path_process(&self.query, start).unwrap_or_default();
        found.into_iter().map(|found| found.val).collect()
    }
}

/// Translates the part of a path after its root. Every name is put in brackets, because shorthand names of the RFC
/// cannot contain a hyphen. Returns `None` if a bracket is not closed.
fn segments(path: &str) -> Option<String> {
    let (mut segments, mut rest) = (String::new(), path);
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('[') {
            let end = end_of(after, '[', ']')?;
            segments.push_str(&format!("[{}]", selector(after[..end].trim())?));
            rest = &after[end + 1..];
            continue;
        }
        let (dots, after) = match (rest.strip_prefix(".."), rest.strip_prefix('.')) {
            (Some(after), _) => ("..", after),
            (None, Some(after)) => ("", after),
            (None, None) => ("", rest),
        };
        segments.push_str(dots);
        let (name, after) = name(after);
        match name.as_str() {
            "" => {}
            "*" => segments.push_str("[*]"),
            name => segments.push_str(&format!("['{}']", name.replace('\\', "\\\\").replace('\'', "\\'"))),
        }
        rest = after;
    }
    Some(segments)
}

/// Returns the name at the beginning of a path, without escapes, and the rest of the path.
fn name(path: &str) -> (String, &str) {
    let (mut name, mut is_escaped) = (String::new(), false);
    for (at, c) in path.char_indices() {
        match c {
            '\\' if !is_escaped => is_escaped = true,
            '.' | '[' if !is_escaped => return (name, &path[at..]),
            c => {
                name.push(c);
                is_escaped = false;
            }
        }
    }
    (name, "")
}

/// Translates the text in brackets: a filter, names, or numbers.
fn selector(inner: &str) -> Option<String> {
    if !inner.starts_with('?') {
        // Dots in quoted names are escaped in kubectl's form only.
        return Some(inner.replace("\\.", "."));
    }
    let (mut filter, mut rest) = (String::new(), inner);
    while let Some(c) = rest.chars().next() {
        let length = match c {
            '@' | '$' => {
                let path = &rest[1..];
                let end = end_of_path(path);
                filter.push(c);
                filter.push_str(&segments(&path[..end])?);
                1 + end
            }
            '"' | '\'' => {
                let end = 1 + end_of_quotes(&rest[1..], c)? + 1;
                filter.push_str(&rest[..end]);
                end
            }
            c => {
                filter.push(c);
                c.len_utf8()
            }
        };
        rest = &rest[length..];
    }
    Some(filter)
}

/// Returns the length of the path at the beginning of a filter.
fn end_of_path(text: &str) -> usize {
    let (mut depth, mut is_escaped) = (0_usize, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            c if depth == 0 && (c.is_whitespace() || "=!<>()&|,".contains(c)) => return at,
            _ => {}
        }
    }
    text.len()
}

/// Returns the position of the closing bracket. Brackets in quotes do not count.
fn end_of(text: &str, opening: char, closing: char) -> Option<usize> {
    let (mut depth, mut at) = (0_usize, 0);
    while let Some(c) = text[at..].chars().next() {
        match c {
            '"' | '\'' => at += 1 + end_of_quotes(&text[at + 1..], c)?,
            '\\' => at += text[at + 1..].chars().next().map_or(0, char::len_utf8),
            c if c == opening => depth += 1,
            c if c == closing && depth == 0 => return Some(at),
            c if c == closing => depth -= 1,
            _ => {}
        }
        at += c.len_utf8();
    }
    None
}

/// Returns the position of the closing quote.
fn end_of_quotes(text: &str, quote: char) -> Option<usize> {
    let mut is_escaped = false;
    text.char_indices().find_map(|(at, c)| {
        let ends = c == quote && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        ends.then_some(at)
    })
}

/// Returns the text of a quoted literal.
fn unquoted(literal: &str) -> Result<String, String> {
    let refused = || format!("{literal} is not a quoted string");
    let quote = literal.chars().next().ok_or_else(refused)?;
    let inner = literal.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote)).ok_or_else(refused)?;
    let inner = if quote == '\'' { inner.replace("\\'", "'").replace('"', "\\\"") } else { inner.to_owned() };
    serde_json::from_str(&format!("\"{inner}\"")).map_err(|_| refused())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn renders_what_kubectl_renders() {
        let document = json!({
            "metadata": { "name": "shop", "annotations": { "mainstay.dev/requested-at": "now", "it's": "x" } },
            "status": { "objects": 3, "healthy": true, "conditions": [
                { "type": "Ready", "status": "True", "order": 1 }, { "type": "Healthy", "status": "False", "order": 2 },
            ] },
        });
        for (template, expected) in [
            ("{.metadata.name}", "shop"),
            (".metadata.name", "shop"),
            ("{$.metadata.name}{\"\\n\"}", "shop\n"),
            ("name: {.metadata.name}, objects: {.status.objects}", "name: shop, objects: 3"),
            ("{.status.conditions[?(@.type==\"Ready\")].status}", "True"),
            ("{.status.conditions[?(@.type=='Healthy')].status}", "False"),
            ("{.status.conditions[?(@.order > 1)].type}", "Healthy"),
            ("{.status.conditions[*].type}", "Ready Healthy"),
            ("{.status.conditions[0].type} {.status.conditions[-1:].type}", "Ready Healthy"),
            (
                "{range .status.conditions[*]}{.type}={.status}{'\\t'}{$.metadata.name};{end}",
                "Ready=True\tshop;Healthy=False\tshop;",
            ),
            ("{.metadata.annotations.mainstay\\.dev/requested-at}", "now"),
            ("{.metadata.annotations['mainstay\\.dev/requested-at']}", "now"),
            ("{.metadata.annotations['it\\'s']}", "x"),
            ("{..type}", "Ready Healthy"),
            ("{.status.healthy}{.none.deeper}{.status.conditions[7]}", "true"),
            ("{.status.conditions[1]}", r#"{"order":2,"status":"False","type":"Healthy"}"#),
            ("{\"{\"}{'it\\'s \"{}\"'}", "{it's \"{}\""),
            ("", ""),
        ] {
            let rendered = Template::parse(template).map(|template| template.render(&document));
            assert_eq!(rendered.as_deref(), Ok(expected), "{template}");
        }
    }

    #[test]
    fn names_what_cannot_be_parsed() {
        for (template, expected) in [
            ("{.a", "not closed"),
            ("{.a[0}", "not closed"),
            ("{range .a[*]}{.b}", "has no `{end}`"),
            ("{end}", "ends no"),
            ("{\"a}", "not closed"),
            ("{}", "has no path"),
            ("{.a[?(]}", "is not a path"),
            ("{.a[x]}", "is not a path"),
        ] {
            let refused = Template::parse(template).unwrap_err();
            assert!(refused.contains(expected), "{template}: {refused}");
        }
    }
}
