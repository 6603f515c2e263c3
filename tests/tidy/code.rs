//! The code of a file that a program runs: the file without comments and without items that only tests compile.

use std::{fs, path::Path};

use super::circles::literal;

/// The attribute of an item that only tests compile.
const TEST: &str = "#[cfg(test)]";

/// Words that begin an item. A field, a variant or a match arm begins with another word and ends with a comma.
const ITEMS: [&str; 14] = [
    "async", "const", "enum", "extern", "fn", "impl", "mod", "static", "struct", "trait", "type", "union", "unsafe",
    "use",
];

/// Returns a file without comments and without items that only tests compile.
pub(super) fn production(path: &Path) -> String {
    let code = without_tests(&fs::read_to_string(path).unwrap());
    code.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// Returns code without items that only tests compile. The code around them stays, also their comments. The attribute
/// stands alone on its line, as rustfmt writes it.
pub(super) fn without_tests(code: &str) -> String {
    let (mut kept, mut rest) = (String::new(), code);
    while let Some(at) = rest.find(TEST) {
        let (before, item) = rest.split_at(at);
        let outside = before.trim_end_matches(' ');
        if (outside.is_empty() || outside.ends_with('\n')) && item[TEST.len()..].starts_with('\n') {
            kept.push_str(outside);
            rest = &item[test_item(item)..];
            rest = rest.strip_prefix('\n').unwrap_or(rest);
        } else {
            kept.push_str(&rest[..at + TEST.len()]);
            rest = &item[TEST.len()..];
        }
    }
    kept + rest
}

/// Returns the length of the comment, literal, word or character at the start of code.
fn piece(code: &str) -> usize {
    let word = code.len() - code.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_').len();
    if code.starts_with("//") {
        code.find('\n').unwrap_or(code.len())
    } else if let Some(length) = literal(code) {
        length
    } else {
        word.max(code.chars().next().map_or(0, char::len_utf8))
    }
}

/// Returns the length of the item at the start of code, with its attributes.
fn test_item(code: &str) -> usize {
    let (mut at, mut nested, mut first) = (0, 0_usize, "");
    while at < code.len() {
        let end = at + piece(&code[at..]);
        let token = &code[at..end];
        match token {
            "(" | "[" | "{" => nested += 1,
            // The brace of the type around the last field.
            ")" | "]" | "}" if nested == 0 => return at,
            ")" | "]" => nested -= 1,
            "}" => {
                nested -= 1;
                // The braces of an imported group or of a value end no item.
                if nested == 0 && !code[end..].starts_with([';', '.']) {
                    return end;
                }
            }
            ";" if nested == 0 => return end,
            "," if nested == 0 && !ITEMS.contains(&first) => return end,
            word if nested == 0 && first.is_empty() && word != "pub" && word.starts_with(char::is_alphabetic) => {
                first = word;
            }
            _ => {}
        }
        at = end;
    }
    at
}

#[test]
fn test_items_are_removed_and_the_code_around_them_stays() {
    for (item, what) in [
        ("#[cfg(test)]\nmod tests;\n", "a declaration"),
        ("#[cfg(test)]\n#[path = \"a/tests.rs\"]\nmod tests;\n", "a declaration with another attribute"),
        ("#[cfg(test)]\npub(super) mod tests {\n    fn b() -> char {\n        '}' // }\n    }\n}\n", "a block"),
        ("#[cfg(test)]\nmod tests { const A: &str = \"}\"; const B: &str = r#\"}\"}\"#; }\n", "braces in strings"),
        ("    #[cfg(test)]\n    pub(crate) fn a<B, C>(b: B, c: [C; 2]) -> u8 {\n        1\n    }\n", "a method"),
        ("#[cfg(test)]\nimpl<A, B> C<A, B> {\n    fn d(&self) {}\n}\n", "an impl"),
        ("#[cfg(test)]\nconst A: [B; 2] = [B { c: 1 }, B { c: 2 }];\n", "a constant"),
        ("#[cfg(test)]\nconst A: B = B { c: 1 }.d();\n", "a constant of a call"),
        ("#[cfg(test)]\nuse a::{b, c};\n", "an import"),
        ("    #[cfg(test)]\n    /// One, two.\n    field: Vec<u8>,\n", "a field"),
    ] {
        let code = |item: &str| format!("//! Front.\nuse a::b;\n{item}fn last() {{\n    b();\n}}\n");
        assert_eq!(without_tests(&code(item)), code(""), "{what}");
    }
    assert_eq!(without_tests("struct A {\n    #[cfg(test)]\n    b: u8\n}\n"), "struct A {\n}\n");
}

#[test]
fn other_code_is_not_removed() {
    for code in [
        "const A: &str = \"#[cfg(test)] mod tests;\";\nfn b() {}\n",
        "// #[cfg(test)]\nmod tests;\n",
        "#[cfg(any(test, feature = \"fuzz\"))]\npub mod fuzz;\n",
        "#[cfg(not(test))]\nmod a;\nfn b<'c>(d: &'c str) -> char { '\"' }\n",
    ] {
        assert_eq!(without_tests(code), code);
    }
}
