//! Label selectors in the syntax of `kubectl -l`, also for annotations.

use serde_json::{Map, Value};

use super::syntax;

/// Maximum length of a selector, in bytes.
const LONGEST: usize = 4096;

/// A selector. An empty one selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    Exists,
    Absent,
    In(Vec<String>),
    NotIn(Vec<String>),
}

impl Selector {
    /// Parses `a=b`, `a==b`, `a!=b`, `a in (b, c)`, `a notin (b, c)`, `a` and `!a`, separated by commas.
    ///
    /// # Errors
    /// The problem, and the allowed syntax.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > LONGEST {
            return Err("it is longer than 4096 bytes".to_owned());
        }
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        parts(text)?.into_iter().map(|part| requirement(part.trim())).collect::<Result<_, _>>().map(Self)
    }

    /// Returns whether the selector matches an object with these labels.
    pub fn selects(&self, labels: Option<&Map<String, Value>>) -> bool {
        self.0.iter().all(|requirement| {
            let value = labels.and_then(|labels| labels.get(&requirement.key)).and_then(Value::as_str);
            match &requirement.test {
                Test::Exists => value.is_some(),
                Test::Absent => value.is_none(),
                Test::In(values) => value.is_some_and(|value| values.iter().any(|one| one == value)),
                Test::NotIn(values) => !value.is_some_and(|value| values.iter().any(|one| one == value)),
            }
        })
    }

    /// Returns whether the selector matches every object.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Splits the text at commas outside of brackets.
fn parts(text: &str) -> Result<Vec<&str>, String> {
    let (mut parts, mut begin, mut is_inside) = (Vec::new(), 0, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'(' if is_inside => return Err("there is a `(` in brackets".to_owned()),
            b'(' => is_inside = true,
            b')' if !is_inside => return Err("there is a `)` without a `(`".to_owned()),
            b')' => is_inside = false,
            b',' if !is_inside => {
                parts.push(&text[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    if is_inside {
        return Err("there is a `(` without a `)`".to_owned());
    }
    parts.push(&text[begin..]);
    Ok(parts)
}

fn requirement(text: &str) -> Result<Requirement, String> {
    let of = |key: &str, test: Test| {
        let values = match &test {
            Test::In(values) | Test::NotIn(values) => values.as_slice(),
            Test::Exists | Test::Absent => &[],
        };
        // Keys of annotations may have upper case letters in their prefix.
        let wrong = std::iter::once("").chain(values.iter().map(String::as_str));
        match wrong.flat_map(|value| syntax::label(&key.to_lowercase(), value)).next() {
            Some(wrong) => Err(wrong),
            None => Ok(Requirement { key: key.to_owned(), test }),
        }
    };
    if let Some(list) = text.strip_suffix(')') {
        let (before, list) = list.split_once('(').ok_or_else(|| USAGE.to_owned())?;
        let values = list.split(',').map(|value| value.trim().to_owned()).collect();
        let mut words = before.split_whitespace();
        return match (words.next(), words.next(), words.next()) {
            (Some(key), Some("in"), None) => of(key, Test::In(values)),
            (Some(key), Some("notin"), None) => of(key, Test::NotIn(values)),
            _ => Err(USAGE.to_owned()),
        };
    }
    if let Some(key) = text.strip_prefix('!') {
        return of(key.trim(), Test::Absent);
    }
    if let Some((key, value)) = text.split_once("!=") {
        return of(key.trim(), Test::NotIn(vec![value.trim().to_owned()]));
    }
    match text.split_once("==").or_else(|| text.split_once('=')) {
        Some((key, value)) => of(key.trim(), Test::In(vec![value.trim().to_owned()])),
        None if text.is_empty() => Err(USAGE.to_owned()),
        None => of(text, Test::Exists),
    }
}

const USAGE: &str = "write `a=b`, `a!=b`, `a in (b, c)`, `a notin (b, c)`, `a` or `!a`, with commas between them";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(selector: &str, labels: Value, expected: bool) {
        let selector = Selector::parse(selector).unwrap();
        assert_eq!(selector.selects(labels.as_object()), expected, "{selector:?} of {labels}");
    }

    #[test]
    fn selects_as_kubectl_does() {
        let web = || json!({"app": "web", "tier": "front"});
        for (selector, expected) in [
            ("", true),
            ("app=web", true),
            ("app == web , tier", true),
            ("app=db", false),
            ("app!=db", true),
            ("other!=x", true),
            ("app in (db, web),tier notin (back)", true),
            ("app notin (web)", false),
            ("!app", false),
            ("!other", true),
            ("other", false),
            ("other in (x)", false),
            ("example.org/App!=x", true),
        ] {
            check(selector, web(), expected);
        }
        check("app", Value::Null, false);
        check("!app", Value::Null, true);
        check("app", json!({"app": 7}), false);
    }

    #[test]
    fn says_what_is_wrong() {
        for (selector, expected) in [
            ("app=web,", "write `a=b`"),
            ("app in web)", "there is a `)`"),
            ("app in (web", "there is a `(`"),
            ("app in ((web))", "there is a `(` in brackets"),
            ("app within (web)", "write `a=b`"),
            ("(web)", "write `a=b`"),
            ("a b=c", "Invalid value"),
            ("a=b c", "Invalid value"),
            ("=b", "Invalid value"),
            ("ä,ö=(", "there is a `(`"),
        ] {
            let wrong = Selector::parse(selector).unwrap_err();
            assert!(wrong.starts_with(expected), "{selector}: {wrong}");
        }
    }
}
