//! Divides source code into parts, which a page colours.
//!
//! Each language is one regular expression, whose matching takes linear time. The code is that of tenants, and a grammar
//! with backtracking would let them occupy the server.
//!
//! Invariant: the parts together are the code. Invariant: the number of parts is limited.

use std::sync::LazyLock;

use regex::Regex;

/// Maximum size of the code that is divided, in bytes, and maximum number of parts. The rest is plain.
const DIVIDED: usize = 64 << 10;
const PARTS: usize = 10_000;

const JAVASCRIPT: &str = r#"(?P<comment>//[^\n]*|/\*(?s:.*?)(?:\*/|\z))|(?P<string>"(?:[^"\\\n]|\\[^\n])*"?|'(?:[^'\\\n]|\\[^\n])*'?|`(?:[^`\\]|\\(?s:.))*`?)|(?P<number>[0-9][0-9A-Za-z_.]*)|(?P<word>[A-Za-z_$][A-Za-z0-9_$]*)"#;
const PYTHON: &str = r#"(?P<comment>#[^\n]*)|(?P<string>"""(?s:.*?)(?:"""|\z)|'''(?s:.*?)(?:'''|\z)|"(?:[^"\\\n]|\\[^\n])*"?|'(?:[^'\\\n]|\\[^\n])*'?)|(?P<number>[0-9][0-9A-Za-z_.]*)|(?P<word>[A-Za-z_][A-Za-z0-9_]*)"#;
const JSON: &str = r#"(?P<comment>"(?:[^"\\\n]|\\[^\n])*"[ \t]*:)|(?P<string>"(?:[^"\\\n]|\\[^\n])*"?)|(?P<number>-?[0-9][0-9A-Za-z.+-]*)|(?P<word>[a-z]+)"#;
const REQUIREMENTS: &str = r"(?P<comment>#[^\n]*)|(?P<string>[~=!<>]=?=?[ \t]*[^;,#\s]+)|(?P<number>--?[a-z][a-z-]*)|(?P<word>[A-Za-z0-9_.-]+)";

const OF_JAVASCRIPT: &[&str] = &[
    "async",
    "await",
    "break",
    "case",
    "catch",
    "class",
    "const",
    "continue",
    "debugger",
    "default",
    "delete",
    "do",
    "else",
    "export",
    "extends",
    "false",
    "finally",
    "for",
    "function",
    "if",
    "import",
    "in",
    "instanceof",
    "let",
    "new",
    "null",
    "of",
    "return",
    "static",
    "super",
    "switch",
    "this",
    "throw",
    "true",
    "try",
    "typeof",
    "undefined",
    "var",
    "void",
    "while",
    "with",
    "yield",
];
const OF_PYTHON: &[&str] = &[
    "False", "None", "True", "and", "as", "assert", "async", "await", "break", "class", "continue", "def", "del",
    "elif", "else", "except", "finally", "for", "from", "global", "if", "import", "in", "is", "lambda", "match",
    "nonlocal", "not", "or", "pass", "raise", "return", "self", "try", "while", "with", "yield",
];
const OF_JSON: &[&str] = &["false", "null", "true"];

/// A language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Language {
    JavaScript,
    Python,
    /// `package.json`.
    Json,
    /// `requirements.txt`.
    Requirements,
}

impl Language {
    /// Returns the languages of the source and of the dependencies of a runtime.
    pub(crate) fn of_runtime(runtime: &str) -> [Self; 2] {
        if runtime.starts_with("python") { [Self::Python, Self::Requirements] } else { [Self::JavaScript, Self::Json] }
    }

    /// Returns the language of a file, by its name.
    pub(crate) fn of_file(path: &str) -> Option<Self> {
        let name = path.rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
        match name.rsplit_once('.')?.1 {
            "js" | "mjs" | "cjs" | "ts" => Some(Self::JavaScript),
            "py" => Some(Self::Python),
            "json" => Some(Self::Json),
            "txt" if name.starts_with("requirements") => Some(Self::Requirements),
            _ => None,
        }
    }

    fn expression(self) -> &'static Regex {
        static ALL: LazyLock<[Regex; 4]> = LazyLock::new(|| {
            [JAVASCRIPT, PYTHON, JSON, REQUIREMENTS].map(|text| Regex::new(text).expect("a test compiles it"))
        });
        &ALL[self as usize]
    }

    const fn keywords(self) -> &'static [&'static str] {
        match self {
            Self::JavaScript => OF_JAVASCRIPT,
            Self::Python => OF_PYTHON,
            Self::Json => OF_JSON,
            Self::Requirements => &[],
        }
    }
}

/// The colour of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Colour {
    Plain,
    /// A comment, or a name in JSON.
    Comment,
    Text,
    Number,
    Keyword,
}

impl Colour {
    /// Returns the class of the part on a page.
    pub(crate) const fn class(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Comment => "co",
            Self::Text => "st",
            Self::Number => "nu",
            Self::Keyword => "kw",
        }
    }
}

/// Returns the parts of the code.
pub(crate) fn parts(code: &str, language: Language) -> Vec<(Colour, &str)> {
    let divided = &code[..code.floor_char_boundary(DIVIDED)];
    let mut parts = Vec::new();
    let mut plain_from = 0;
    for found in language.expression().captures_iter(divided) {
        let named = |name: &str| found.name(name).map(|part| (part.start(), part.end()));
        let kinds = [("comment", Colour::Comment), ("string", Colour::Text), ("number", Colour::Number)];
        let kind = kinds.into_iter().find_map(|(name, colour)| Some((colour, named(name)?)));
        let keyword = || named("word").filter(|(from, to)| language.keywords().contains(&&divided[*from..*to]));
        let Some((colour, (from, to))) = kind.or_else(|| Some((Colour::Keyword, keyword()?))) else { continue };
        if parts.len() + 2 > PARTS {
            break;
        }
        if plain_from < from {
            parts.push((Colour::Plain, &code[plain_from..from]));
        }
        parts.push((colour, &code[from..to]));
        plain_from = to;
    }
    if plain_from < code.len() {
        parts.push((Colour::Plain, &code[plain_from..]));
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Language; 4] = [Language::JavaScript, Language::Python, Language::Json, Language::Requirements];

    fn check(language: Language, code: &str, expected: &[&str]) {
        let shown = |(colour, text): &(Colour, &str)| format!("{} {text}", colour.class());
        let coloured = |part: &&(Colour, &str)| part.0 != Colour::Plain;
        let found: Vec<String> = parts(code, language).iter().filter(coloured).map(shown).collect();
        assert_eq!(found, expected, "{code}");
    }

    #[test]
    fn comments_strings_numbers_and_keywords_are_parts() {
        check(
            Language::JavaScript,
            "const a = 'it\\'s' // \"x\"\nreturn `b\n${c}` /* d\n*/ + 0x1f / name2 + \"open\n",
            &[
                "kw const",
                "st 'it\\'s'",
                "co // \"x\"",
                "kw return",
                "st `b\n${c}`",
                "co /* d\n*/",
                "nu 0x1f",
                "st \"open",
            ],
        );
        check(
            Language::Python,
            "def main(event): # it's\n  return \"\"\"a\n'b'\"\"\" + f'c' + 1_0.5",
            &["kw def", "co # it's", "kw return", "st \"\"\"a\n'b'\"\"\"", "st 'c'", "nu 1_0.5"],
        );
        check(Language::Json, "{\"a\": [\"b\", -1.5e3, true]}", &["co \"a\":", "st \"b\"", "nu -1.5e3", "kw true"]);
        check(
            Language::Requirements,
            "# all\nflask-x>=2.1 # new\n--no-deps",
            &["co # all", "st >=2.1", "co # new", "nu --no-deps"],
        );
        check(Language::JavaScript, "/* never ends", &["co /* never ends"]);
    }

    #[test]
    fn the_name_of_a_file_decides_about_its_language() {
        let check = |path: &str, expected: Option<Language>| assert_eq!(Language::of_file(path), expected, "{path}");
        check("functions/a/handler.js", Some(Language::JavaScript));
        check("handler.PY", Some(Language::Python));
        check("a/package.json", Some(Language::Json));
        check("a/requirements-dev.txt", Some(Language::Requirements));
        for path in ["", "README.md", "a.py/LICENSE", "notes.txt", "js"] {
            check(path, None);
        }
    }

    #[test]
    fn hostile_code_keeps_each_byte_and_has_a_limited_number_of_parts() {
        let strange = ["\"'`#/*\\", "'''\\\"\"\"", "//\n/*", "ö€😀\u{0}\u{202e}", "1 ", "\\", "\"\\", "const ", "-=<>"];
        for language in ALL {
            for one in strange {
                for other in strange {
                    let code = format!("{one}{other}").repeat(4000);
                    let all = parts(&code, language);
                    assert!(all.len() <= PARTS + 1, "{language:?} {one} {other}: {}", all.len());
                    assert!(
                        all.iter().map(|(_, text)| *text).collect::<String>() == code,
                        "{language:?} {one} {other}"
                    );
                }
            }
        }
    }
}
