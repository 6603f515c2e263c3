//! The functions that a text would call if Helm evaluated it as a template.
//!
//! Invariant: each function whose result can differ between two runs counts as unknown. Only functions of `FIXED` are
//! known, so a function that a later version of Helm adds is unknown, too.
//!
//! Source: the builtin functions of Go's `text/template`, the functions of sprig, and the functions that Helm adds.

/// Functions, keywords and constants whose result depends only on their arguments, in order. The functions that list a
/// map's keys or values are excluded, because the order of the result differs.
const FIXED: [&str; 208] = [
    "abbrev",
    "abbrevboth",
    "add",
    "add1",
    "add1f",
    "addf",
    "adler32sum",
    "all",
    "and",
    "any",
    "append",
    "atoi",
    "b32dec",
    "b32enc",
    "b64dec",
    "b64enc",
    "base",
    "biggest",
    "block",
    "break",
    "camelcase",
    "cat",
    "ceil",
    "chunk",
    "clean",
    "coalesce",
    "compact",
    "concat",
    "contains",
    "continue",
    "deepCopy",
    "deepEqual",
    "default",
    "define",
    "dict",
    "dig",
    "dir",
    "div",
    "divf",
    "else",
    "empty",
    "end",
    "eq",
    "ext",
    "fail",
    "false",
    "first",
    "float64",
    "floor",
    "fromJson",
    "fromJsonArray",
    "fromToml",
    "fromYaml",
    "fromYamlArray",
    "ge",
    "get",
    "gt",
    "has",
    "hasKey",
    "hasPrefix",
    "hasSuffix",
    "hello",
    "html",
    "if",
    "include",
    "indent",
    "index",
    "initial",
    "initials",
    "int",
    "int64",
    "isAbs",
    "join",
    "js",
    "kebabcase",
    "kindIs",
    "kindOf",
    "last",
    "le",
    "len",
    "list",
    "lookup",
    "lower",
    "lt",
    "max",
    "maxf",
    "merge",
    "mergeOverwrite",
    "min",
    "minf",
    "mod",
    "mul",
    "mulf",
    "mustAppend",
    "mustChunk",
    "mustCompact",
    "mustDeepCopy",
    "mustFirst",
    "mustFromJson",
    "mustHas",
    "mustInitial",
    "mustLast",
    "mustMerge",
    "mustMergeOverwrite",
    "mustPrepend",
    "mustRegexFind",
    "mustRegexFindAll",
    "mustRegexMatch",
    "mustRegexReplaceAll",
    "mustRegexReplaceAllLiteral",
    "mustRegexSplit",
    "mustRest",
    "mustReverse",
    "mustSlice",
    "mustToJson",
    "mustToPrettyJson",
    "mustToRawJson",
    "mustUniq",
    "mustWithout",
    "ne",
    "nil",
    "nindent",
    "nospace",
    "not",
    "omit",
    "or",
    "osBase",
    "osClean",
    "osDir",
    "osExt",
    "osIsAbs",
    "pick",
    "pluck",
    "plural",
    "prepend",
    "print",
    "printf",
    "println",
    "quote",
    "range",
    "regexFind",
    "regexFindAll",
    "regexMatch",
    "regexQuoteMeta",
    "regexReplaceAll",
    "regexReplaceAllLiteral",
    "regexSplit",
    "repeat",
    "replace",
    "required",
    "rest",
    "reverse",
    "round",
    "semver",
    "semverCompare",
    "seq",
    "set",
    "sha1sum",
    "sha256sum",
    "sha512sum",
    "slice",
    "snakecase",
    "sortAlpha",
    "split",
    "splitList",
    "splitn",
    "squote",
    "sub",
    "subf",
    "substr",
    "swapcase",
    "template",
    "ternary",
    "title",
    "toDecimal",
    "toJson",
    "toPrettyJson",
    "toRawJson",
    "toString",
    "toStrings",
    "toToml",
    "toYaml",
    "toYamlPretty",
    "tpl",
    "trim",
    "trimAll",
    "trimPrefix",
    "trimSuffix",
    "trimall",
    "true",
    "trunc",
    "tuple",
    "typeIs",
    "typeIsLike",
    "typeOf",
    "uniq",
    "unset",
    "until",
    "untilStep",
    "untitle",
    "upper",
    "urlJoin",
    "urlParse",
    "urlquery",
    "with",
    "without",
    "wrap",
    "wrapWith",
];

/// Facts about the functions that a text calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Calls {
    /// Whether the text calls a function that is not known to be fixed.
    pub(super) unknown: bool,
    /// Whether the text renders another text as a template.
    pub(super) tpl: bool,
    /// Whether a string in the text contains the beginning of an action. Such a string may be part of a template.
    pub(super) braces: bool,
}

impl Calls {
    /// Returns the combined facts about two texts.
    pub(super) fn with(self, other: Self) -> Self {
        Self { unknown: self.unknown || other.unknown, tpl: self.tpl || other.tpl, braces: self.braces || other.braces }
    }
}

/// Returns the functions that the actions of a text call.
pub(super) fn calls(text: &str) -> Calls {
    let (mut found, mut rest) = (Calls::default(), text);
    while let Some((_, action)) = rest.split_once("{{") {
        rest = call(action, &mut found);
    }
    found
}

/// Reads an action. Returns the text after it.
fn call<'t>(action: &'t str, found: &mut Calls) -> &'t str {
    let inner = action.strip_prefix('-').unwrap_or(action).trim_start();
    if let Some(comment) = inner.strip_prefix("/*") {
        return comment.split_once("*/").map_or("", |(_, rest)| rest);
    }
    let (mut rest, mut is_field) = (action, false);
    loop {
        let Some(first) = rest.chars().next() else { return "" };
        if let Some(behind) = rest.strip_prefix("}}") {
            return behind;
        }
        let length = match first {
            '"' | '`' | '\'' => quoted(rest, first),
            first if is_word(first) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            first => first.len_utf8(),
        };
        let (token, behind) = rest.split_at(length);
        match first {
            '"' | '`' | '\'' => found.braces |= token.contains("{{"),
            first if first.is_ascii_digit() || is_field => {}
            first if is_word(first) => {
                found.tpl |= token == TPL;
                found.unknown |= FIXED.binary_search(&token).is_err();
            }
            // An escape, or a character that no template contains: the text is not a template, or is quoted once more.
            '\\' => found.unknown = true,
            _ => {}
        }
        is_field = matches!(first, '.' | '$');
        rest = behind;
    }
}

/// The function that renders its argument as a template.
const TPL: &str = "tpl";

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// Returns the length of a string with its quotation marks. An unclosed string extends to the end of the text.
fn quoted(text: &str, mark: char) -> usize {
    let mut is_escaped = false;
    for (at, character) in text.char_indices().skip(1) {
        if character == mark && !is_escaped {
            return at + character.len_utf8();
        }
        is_escaped = character == '\\' && !is_escaped && mark != '`';
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fixed_functions_are_in_order() {
        assert!(FIXED.is_sorted(), "{FIXED:?}");
    }

    #[test]
    fn unknown_functions_count_wherever_they_are_called() {
        let unknown = |text: &str| calls(text).unknown;
        for text in [
            "{{ randAlphaNum 5 }}",
            "{{- if and (.Values.a) (uuidv4) -}}",
            "{{ .Values.a | default (now | toString) }}",
            "{{ $x := keys .Values | sortAlpha }}",
            "a {{ .b }} c {{ genCA \"a\" 5 }}",
            "{{ \"a }} \\\" b\" | bcrypt }}",
            "{{ later",
            "{{ `a` | newFunction }}",
            "a: \"{{ include \\\"x\\\" . }}\"",
        ] {
            assert!(unknown(text), "{text}");
        }
        for text in [
            "{{ .Values.now }} {{ $.keys.now }} {{ $now }} now",
            "{{/* now */}} {{- /* uuidv4 }} */ -}}",
            "{{ \"now\" }} {{ `uuidv4 \\` }} {{ 'x' }} {{ 0x1F }} {{ 1e5 }}",
            "{{- range $i, $e := until 5 }}{{ $e | toYaml | nindent 4 }}{{- end }}",
            "{{ include \"a.labels\" . | fromYaml | toJson }}{{ with (.Files.Get \"a\") }}{{ . }}{{ else }}{{ fail \"x\" }}{{ end }}",
            "{{ eq (len .Values.a) 3 | ternary true false }}",
        ] {
            assert!(!unknown(text), "{text}");
        }
    }

    #[test]
    fn templates_that_are_built_are_noticed() {
        assert!(calls("{{ tpl .Values.a . }}").tpl);
        assert!(calls("{{ printf \"{{ %s }}\" .a }}").braces && calls("{{ `{{ .x }}` }}").braces);
        assert!(!calls("{{ .tpl }} {{ \"tpl\" }}").tpl);
    }
}
