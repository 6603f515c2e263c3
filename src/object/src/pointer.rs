//! JSON pointers (RFC 6901): the path of a field in a document.
//!
//! Invariant: no combination of pointer and document causes a panic.

use std::cmp::Ordering;
use std::fmt;

use serde_json::Value;

/// Maximum length of a pointer, in bytes.
const LONGEST: usize = 1024;

/// A pointer to a part of a document, not to the whole document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pointer(Box<[Box<str>]>);

impl Pointer {
    /// Parses a pointer.
    ///
    /// # Errors
    /// The violated rule.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        if text.len() > LONGEST {
            return Err("it is longer than 1024 bytes");
        }
        if text.is_empty() {
            return Err("it names the whole object; name a field, such as /spec/replicas");
        }
        let Some(text) = text.strip_prefix('/') else {
            return Err("a JSON pointer must begin with `/`, such as /spec/replicas");
        };
        text.split('/').map(unescaped).collect::<Option<Box<[_]>>>().map(Self).ok_or(
            "`~` must be followed by 0 or 1 in a JSON pointer: write `~1` for a `/` in a name, and `~0` for a `~`",
        )
    }

    /// Builds a pointer from names of fields and list indexes; `None` if there are none.
    pub fn of(tokens: impl IntoIterator<Item = impl Into<Box<str>>>) -> Option<Self> {
        let tokens = tokens.into_iter().map(Into::into).collect::<Box<[_]>>();
        (!tokens.is_empty()).then_some(Self(tokens))
    }

    /// Returns the tokens: names of fields and list indexes.
    pub fn tokens(&self) -> &[Box<str>] {
        &self.0
    }

    /// Returns whether the pointer refers to the field at this path or to a parent of it.
    pub fn covers(&self, path: &[&str]) -> bool {
        self.0.len() <= path.len() && self.0.iter().zip(path).all(|(own, other)| **own == **other)
    }

    /// Compares by position in a document: parents precede their content, and lower list indexes precede higher ones.
    pub fn by_place(&self, other: &Self) -> Ordering {
        let number = |token: &str| index(token, usize::MAX);
        let one_by_one = self.0.iter().zip(&*other.0).map(|(own, other)| match (number(own), number(other)) {
            (Some(own), Some(other)) => own.cmp(&other),
            _ => own.cmp(other),
        });
        one_by_one.fold(Ordering::Equal, Ordering::then).then(self.0.len().cmp(&other.0.len()))
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|token| write!(f, "/{}", token.replace('~', "~0").replace('/', "~1")))
    }
}

fn unescaped(token: &str) -> Option<Box<str>> {
    let mut parts = token.split('~');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (escaped, rest) = match part.as_bytes().first() {
            Some(b'0') => ('~', &part[1..]),
            Some(b'1') => ('/', &part[1..]),
            _ => return None,
        };
        plain.push(escaped);
        plain.push_str(rest);
    }
    Some(plain.into())
}

/// Parses a token as an index into a list of this length.
pub fn index(token: &str, length: usize) -> Option<usize> {
    let is_number = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_digit());
    let is_plain = is_number && (token == "0" || !token.starts_with('0'));
    token.parse().ok().filter(|index| is_plain && *index < length)
}

/// Returns the child of a value at a token.
pub fn child<'v>(value: &'v Value, token: &str) -> Option<&'v Value> {
    match value {
        Value::Object(fields) => fields.get(token),
        Value::Array(items) => items.get(index(token, items.len())?),
        _ => None,
    }
}

/// Returns the child mutably.
pub fn child_mut<'v>(value: &'v mut Value, token: &str) -> Option<&'v mut Value> {
    match value {
        Value::Object(fields) => fields.get_mut(token),
        Value::Array(items) => {
            let index = index(token, items.len())?;
            items.get_mut(index)
        }
        _ => None,
    }
}

/// Returns the value at this path.
pub fn find<'v>(value: &'v Value, tokens: &[Box<str>]) -> Option<&'v Value> {
    tokens.iter().try_fold(value, |value, token| child(value, token))
}

/// Removes and returns the value at this path.
pub fn take(value: &mut Value, tokens: &[Box<str>]) -> Option<Value> {
    let (last, before) = tokens.split_last()?;
    match before.iter().try_fold(value, |value, token| child_mut(value, token))? {
        Value::Object(fields) => fields.remove(&**last),
        Value::Array(items) => index(last, items.len()).map(|index| items.remove(index)),
        _ => None,
    }
}

/// Sets the value at this path to that of `other`. If `other` has none, the value is removed. Without the parents of
/// the path, nothing changes.
pub fn follow(value: &mut Value, other: &Value, tokens: &[Box<str>]) {
    let Some((first, inside)) = tokens.split_first() else { return };
    if !inside.is_empty() {
        if let (Some(value), Some(other)) = (child_mut(value, first), child(other, first)) {
            follow(value, other, inside);
        }
        return;
    }
    match (value, other) {
        (Value::Object(fields), Value::Object(others)) => match others.get(&**first) {
            Some(other) => _ = fields.insert(first.to_string(), other.clone()),
            None => _ = fields.remove(&**first),
        },
        (value @ Value::Array(_), other @ Value::Array(_)) => {
            if let (Some(item), Some(other)) = (child_mut(value, first), child(other, first)) {
                *item = other.clone();
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pointer(text: &str) -> Pointer {
        Pointer::parse(text).unwrap()
    }

    #[test]
    fn reads_escapes_and_writes_them_back() {
        for text in ["/spec/replicas", "/metadata/annotations/a.b~1c", "/data/~0x~1", "/a//b", "/", "/a/0/-"] {
            assert_eq!(pointer(text).to_string(), text);
        }
        assert_eq!(&*pointer("/a~1b/~01").tokens()[1], "~1");
        assert_eq!(&*pointer("/a~1b").tokens()[0], "a/b");
    }

    #[test]
    fn says_what_is_wrong() {
        for (text, expected) in [
            ("", "it names the whole object"),
            ("spec", "a JSON pointer must begin with"),
            ("/a~", "`~` must be followed by"),
            ("/a~2", "`~` must be followed by"),
            ("/ä~ä", "`~` must be followed by"),
            (&format!("/{}", "a".repeat(1024)), "it is longer"),
        ] {
            let wrong = Pointer::parse(text).unwrap_err();
            assert!(wrong.starts_with(expected), "{text}: {wrong}");
        }
    }

    #[test]
    fn takes_out_what_is_there_and_nothing_else() {
        let whole = json!({"a": [{"b": 1, "c": 2}, 3], "0": {"x/y": 4}});
        for (text, expected) in [
            ("/a/0/b", json!({"a": [{"c": 2}, 3], "0": {"x/y": 4}})),
            ("/a/1", json!({"a": [{"b": 1, "c": 2}], "0": {"x/y": 4}})),
            ("/0/x~1y", json!({"a": [{"b": 1, "c": 2}, 3], "0": {}})),
            ("/a/00", whole.clone()),
            ("/a/-", whole.clone()),
            ("/a/2", whole.clone()),
            ("/a/18446744073709551616", whole.clone()),
            ("/a/0/b/c", whole.clone()),
            ("/x/y", whole.clone()),
        ] {
            let mut value = whole.clone();
            take(&mut value, pointer(text).tokens());
            assert_eq!(value, expected, "{text}");
        }
    }

    #[test]
    fn follows_another_value_where_what_is_around_it_is_there() {
        let check = |text: &str, other: Value, expected: Value| {
            let mut value = json!({"a": [{"b": 1}, {"b": 2}]});
            follow(&mut value, &other, pointer(text).tokens());
            assert_eq!(value, expected, "{text} of {other}");
        };
        check("/a/1/b", json!({"a": [{}, {"b": 9}]}), json!({"a": [{"b": 1}, {"b": 9}]}));
        check("/a/1/b", json!({"a": [{}, {}]}), json!({"a": [{"b": 1}, {}]}));
        check("/a/1/b", json!({"a": [{}]}), json!({"a": [{"b": 1}, {"b": 2}]}));
        check("/a/1/c", json!({"a": [{}, {"c": 3}]}), json!({"a": [{"b": 1}, {"b": 2, "c": 3}]}));
        check("/a/1", json!({"a": [{}, {"c": 3}]}), json!({"a": [{"b": 1}, {"c": 3}]}));
        check("/a/1", json!({"a": "x"}), json!({"a": [{"b": 1}, {"b": 2}]}));
    }

    #[test]
    fn later_items_come_before_earlier_ones_from_the_back() {
        let mut all = ["/a/9", "/a/10", "/a/9/b", "/a", "/b/x"].map(pointer);
        all.sort_by(|one, other| other.by_place(one));
        assert_eq!(all.map(|pointer| pointer.to_string()), ["/b/x", "/a/10", "/a/9/b", "/a/9", "/a"]);
    }

    #[test]
    fn covers_a_field_and_everything_in_it() {
        assert!(
            pointer("/spec").covers(&["spec", "replicas"]) && pointer("/spec/replicas").covers(&["spec", "replicas"])
        );
        assert!(!pointer("/spec/replicas/x").covers(&["spec", "replicas"]) && !pointer("/sp").covers(&["spec"]));
    }

    #[test]
    fn any_pointer_into_any_document_is_read_without_a_panic() {
        let mut random = fastrand::Rng::with_seed(14);
        let tokens = ["a", "0", "1", "~0", "~1", "-", "", "ä", "99999999999999999999"];
        for _ in 0..20_000 {
            let text =
                (0..random.usize(..5)).map(|_| format!("/{}", random.choice(tokens).unwrap())).collect::<Vec<_>>();
            let text = text.concat();
            let Ok(pointer) = Pointer::parse(&text) else { continue };
            let mut values = [json!(null), json!(1)];
            for value in &mut values {
                for _ in 0..random.usize(..5) {
                    let inner = value.take();
                    *value = match random.u8(..4) {
                        0 => json!([inner]),
                        1 => json!([1, inner]),
                        2 => json!({"a": inner, "": 1}),
                        _ => json!({"0": inner, "ä": [], "/": {}}),
                    };
                }
            }
            let [mut value, other] = values;
            let before = find(&value, pointer.tokens()).cloned();
            follow(&mut value.clone(), &other, pointer.tokens());
            assert_eq!(take(&mut value, pointer.tokens()), before);
            assert_eq!(Pointer::parse(&pointer.to_string()), Ok(pointer));
        }
    }
}
