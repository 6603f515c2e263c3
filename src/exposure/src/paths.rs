//! Whether two path expressions may match the same requests.
//!
//! Invariant: in doubt, the result is yes.

use regex::{Regex, RegexBuilder};

/// Maximum memory of an expression in bytes. A larger expression counts as matching everything.
const MOST: usize = 1 << 20;

/// The paths that an expression matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape<'p> {
    /// All paths.
    All,
    /// Only this path.
    Exact(&'p str),
    /// The paths that this expression matches.
    Expression(&'p str),
}

/// Returns the shape of an expression. A dot matches any character.
pub(super) fn shape(path: &str) -> Shape<'_> {
    if path == "/.*" {
        Shape::All
    } else if path.chars().all(is_literal) {
        Shape::Exact(path)
    } else {
        Shape::Expression(path)
    }
}

fn is_literal(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '/' | '_' | '-' | '~' | '%' | '@' | ':' | ',' | '=' | '&' | '!')
}

/// Whether a request may match both expressions.
pub(super) fn may_overlap(a: &str, b: &str) -> bool {
    match (shape(a), shape(b)) {
        (Shape::All, _) | (_, Shape::All) => true,
        (Shape::Exact(a), Shape::Exact(b)) => a == b,
        (Shape::Exact(exact), Shape::Expression(expression)) | (Shape::Expression(expression), Shape::Exact(exact)) => {
            // The expression is also compiled alone, because `a)|(b` is valid only inside of parentheses.
            let is_one = compile(expression).is_some();
            compile(&format!("^(?:{expression})$")).filter(|_| is_one).is_none_or(|whole| whole.is_match(exact))
        }
        (Shape::Expression(a), Shape::Expression(b)) => {
            let (a, b) = (prefix(a), prefix(b));
            a.starts_with(b) || b.starts_with(a)
        }
    }
}

fn compile(expression: &str) -> Option<Regex> {
    RegexBuilder::new(expression).size_limit(MOST).build().ok()
}

/// Returns the common prefix of all strings that an expression matches.
fn prefix(expression: &str) -> &str {
    if expression.contains('|') {
        return "";
    }
    let end = expression.find(|c| !is_literal(c)).unwrap_or(expression.len());
    // A repeated character may be absent, so it is not part of the prefix.
    let is_repeated = expression[end..].starts_with(['*', '?', '{']);
    &expression[..end.saturating_sub(usize::from(is_repeated))]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(a: &str, b: &str, expected: bool) {
        assert_eq!((may_overlap(a, b), may_overlap(b, a)), (expected, expected), "{a} and {b}");
    }

    #[test]
    fn paths_are_apart_only_if_that_is_certain() {
        check("/open", "/closed", false);
        check("/open", "/open", true);
        check("/.*", "/closed", true);
        check("/open/.*", "/closed/.*", false);
        check("/open/.*", "/open/a.*", true);
        check("/open.*", "/opened/.*", true);
        check("/a?/x", "/x.*", true);
        check("/ab*/x.", "/ac.", true);
        check("/ab+", "/ac+", false);
        check("/x|/y.", "/y.", true);
        check("/(open|closed)", "/closed", true);
        check("/open.*", "/closed", false);
        check("/.pen", "/open", true);
        check("(", "/open", true);
        check("/a)|(/b", "/open", true);
        // Flags in an expression do not hide a match.
        check("(?i)/CLOSED", "/closed", true);
        check("(?x)/c l", "/cl", true);
    }

    #[test]
    fn an_expression_that_would_take_much_memory_may_match_everything() {
        check("/a{1000}{1000}{1000}", "/closed", true);
        check("(((((.{100}){100}){100}){100}){100})", "/closed", true);
    }
}
