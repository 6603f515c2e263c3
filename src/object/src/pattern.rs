//! Why a regular expression of a user is refused, with the position.
//!
//! Invariant: the text names a construct of the syntax, and no part of the expression.
//!
//! Not here: how large the compiled expression of a field may be.

use std::fmt::Display;

use regex_syntax::ast::Span;
use regex_syntax::{Error, Parser};

/// Returns the first error of a regular expression, with its line and column; `None` if the expression is valid.
pub fn pattern_fault(pattern: &str) -> Option<String> {
    let at = |span: &Span, what: &dyn Display| {
        Some(format!("line {}, column {}: {what}", span.start.line, span.start.column))
    };
    match Parser::new().parse(pattern).err()? {
        Error::Parse(error) => at(error.span(), error.kind()),
        Error::Translate(error) => at(error.span(), error.kind()),
        _ => Some("the syntax is not supported".to_owned()),
    }
}

/// Returns why a regular expression does not compile, as the end of a sentence about its field.
pub fn pattern_problem(pattern: &str) -> String {
    match pattern_fault(pattern) {
        Some(fault) => format!("is not a regular expression (RE2 syntax): {fault}"),
        None => "is too large as a compiled regular expression; shorten it".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_error_has_a_position() {
        for (pattern, expected) in [
            ("^v(", "line 1, column 3: unclosed group"),
            ("é[z-a]", "line 1, column 3: invalid character class range, the start must be <= the end"),
            ("(?x)a\n b**(", "line 2, column 5: unclosed group"),
        ] {
            let found = pattern_fault(pattern).unwrap();
            assert_eq!(found, expected, "{pattern}");
            assert!(regex::Regex::new(pattern).is_err(), "{pattern}");
            assert_eq!(pattern_problem(pattern), format!("is not a regular expression (RE2 syntax): {expected}"));
        }
        assert!(
            pattern_fault("\\p{Foo}").unwrap().starts_with("line 1, column 1: "),
            "{:?}",
            pattern_fault("\\p{Foo}")
        );
        assert_eq!(pattern_fault("^v.*$"), None);
        assert!(pattern_problem("a{1000}").starts_with("is too large"));
    }

    #[test]
    fn an_error_repeats_no_part_of_the_expression() {
        for pattern in ["hunter2(", "(?P<hunter2", "[hunter2", "(?P<hunter2>a)(?P<hunter2>b)", "\\p{hunter2}"] {
            let found = pattern_fault(pattern).unwrap();
            assert!(!found.contains("hunter2"), "{found}");
        }
    }
}
