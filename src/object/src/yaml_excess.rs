//! Refuses YAML texts that would take much more memory than their bytes, before libyaml parses them.
//!
//! libyaml's parser keeps all values of a text, and repeats the value of an anchor for each of its aliases. A list of
//! 60 000 values with 20 000 aliases has less than 200 KiB as text, and more than 30 GiB in memory.
//!
//! Invariant: each alias and each value that libyaml finds in a text is counted. The text is not parsed here, because a
//! different parser can read a value as a comment.
//!
//! Not here: manifests, whose loader counts the memory of each alias (`manifest`).

use std::collections::BTreeSet;

/// Returns why a text is not parsed, as the end of a sentence; `None` if it has no aliases and at most this many values.
///
/// A quoted `*name` counts as an alias if `&name` is before it.
pub fn yaml_excess(text: &[u8], most_values: usize) -> Option<String> {
    if values(text) > most_values {
        return Some(format!("has more than {most_values} values"));
    }
    alias_line(text).map(|line| format!("has an alias (`*name`) in line {line}"))
}

/// Returns at least the number of values besides the first one. Each of them follows one of these characters, and a key
/// and its value share one.
fn values(text: &[u8]) -> usize {
    let begins_value = |(at, byte): (usize, &u8)| match byte {
        b'[' | b'{' | b',' | b':' | b'?' => true,
        b'-' => text.get(at + 1).is_none_or(|next| !next.is_ascii_graphic()),
        _ => false,
    };
    text.iter().enumerate().filter(|&one| begins_value(one)).count()
}

/// Returns the line, from 1, of the first alias whose anchor is before it.
fn alias_line(text: &[u8]) -> Option<usize> {
    let mut anchors = BTreeSet::new();
    for (at, byte) in text.iter().enumerate() {
        let follows_word = at.checked_sub(1).is_some_and(|before| text[before].is_ascii_alphanumeric());
        if follows_word || !matches!(byte, b'&' | b'*') {
            continue;
        }
        let rest = &text[at + 1..];
        let is_end = |byte: &u8| !byte.is_ascii_alphanumeric() && !matches!(byte, b'_' | b'-');
        let name = &rest[..rest.iter().position(is_end).unwrap_or(rest.len())];
        if *byte == b'&' {
            anchors.insert(name);
        } else if !name.is_empty() && anchors.contains(name) {
            return Some(text[..at].split(|byte| *byte == b'\n').count());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alias_is_found_wherever_a_value_may_begin() {
        for (text, line) in [
            ("a: &a [x]\nb: *a\n", 2),
            ("- &a x\n- [*a]\n", 2),
            ("- &a x\n- *a\n", 2),
            ("{\"a\":&a x,\"b\":*a}", 1),
            ("&a [x,*a]", 1),
            ("a: &a_-1 x\n\n? *a_-1\n: y\n", 3),
            ("\u{feff}&a x: *a", 1),
            // Line breaks of YAML 1.1, which end a comment for libyaml only.
            ("# x\u{85}a: &a [x]\n# x\u{2028}b: *a\n", 2),
        ] {
            assert_eq!(
                yaml_excess(text.as_bytes(), 100),
                Some(format!("has an alias (`*name`) in line {line}")),
                "{text}"
            );
        }
    }

    #[test]
    fn other_texts_with_the_characters_of_aliases_are_accepted() {
        for text in
            ["", "a: b & c * d", "a: &a x\nb: y\n", "a: *a\nb: &a x\n", "a: https://x/?a&b=c*b", "a: '*'\nb: '&'\n"]
        {
            assert_eq!(yaml_excess(text.as_bytes(), 100), None, "{text}");
        }
    }

    #[test]
    fn an_alias_is_found_in_each_text_that_libyaml_expands() {
        let begins = ["- &a x\n", "[&a x, ", "k: &a x\n", "# \u{85}- &a x\n"];
        let parts = ["&a ", "*a", "\n", " ", "- ", "x", ": ", "[", "]", ", ", "\"", "# ", "\u{85}", "? ", "!t "];
        let mut random = fastrand::Rng::with_seed(7);
        let mut pick = |of: &[&'static str]| of[random.usize(..of.len())];
        let mut expanded = 0;
        for length in (1..10).cycle().take(20_000) {
            let rest: String = (0..length).map(|_| pick(&parts)).collect();
            let text = pick(&begins).to_owned() + &rest;
            let parsed = |text: &str| serde_yaml::from_str::<serde_json::Value>(text);
            // An alias without an anchor is an error.
            let has_alias = parsed(&text.replace("*a", "*b")).is_err_and(|error| error.to_string().contains("anchor"));
            if has_alias && parsed(&text).is_ok() {
                expanded += 1;
                assert!(yaml_excess(text.as_bytes(), 100).is_some(), "{text:?}");
            }
        }
        assert!(expanded > 0, "no text had an alias");
    }

    #[test]
    fn each_value_is_counted() {
        for text in [
            "[a,a,a,a]",
            "- a\n- a\n- a\n- a\n",
            "a: b\nc: d\ne: f\ng: h\n",
            "[[[[a]]]]",
            "- - - - a",
            "? a\n? b\n? c\n? d\n",
        ] {
            assert_eq!(yaml_excess(text.as_bytes(), 3), Some("has more than 3 values".to_owned()), "{text}");
            assert_eq!(yaml_excess(text.as_bytes(), 4), None, "{text}");
        }
        assert_eq!(yaml_excess(b"a-b-c-d-e-f: eyJhbGciOi-_x-y-z", 1), None);
    }
}
