//! Regular expressions that match a whole path.
//!
//! Invariant: the cache of compiled expressions is bounded, and so is the memory of each expression.

use std::collections::HashMap;

use parking_lot::Mutex;
use regex::{Regex, RegexBuilder};

/// Maximum memory of an expression in bytes.
const SIZE: usize = 1 << 20;
/// Maximum number of cached expressions.
const KEPT: usize = 256;

/// Matches texts with cached expressions.
#[derive(Debug, Default)]
pub(super) struct Patterns(Mutex<HashMap<String, Option<Regex>>>);

impl Patterns {
    /// Whether an expression matches the whole text. An invalid or too large expression matches nothing.
    pub(super) fn matches(&self, expression: &str, text: &str) -> bool {
        if expression == "/.*" {
            return text.starts_with('/') && !text.contains('\n');
        }
        let known = self.0.lock().get(expression).cloned();
        let compiled = known.unwrap_or_else(|| {
            let compiled = compile(expression);
            let mut kept = self.0.lock();
            if kept.len() >= KEPT {
                kept.clear();
            }
            kept.insert(expression.to_owned(), compiled.clone());
            compiled
        });
        compiled.is_some_and(|whole| whole.is_match(text))
    }
}

fn compile(expression: &str) -> Option<Regex> {
    let build = |text: &str| RegexBuilder::new(text).size_limit(SIZE).build().ok();
    // The expression must be valid by itself: `a)|(b` is valid only within parentheses.
    build(expression)?;
    build(&format!("^(?:{expression})$"))
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn an_expression_matches_the_whole_path() {
        let patterns = Patterns::default();
        let check = |expression: &str, text: &str, expected: bool| {
            assert_eq!(patterns.matches(expression, text), expected, "{expression} and {text}");
        };
        check("/.*", "/", true);
        check("/.*", "", false);
        check("/post", "/post", true);
        check("/post", "/post/1", false);
        check("/a|/b", "/b", true);
        check("/a|/b", "/ab", false);
        check("/a)|(/b.*", "/bc", false);
        check("(?=/a).*", "/a", false);
        check("(", "(", false);
    }

    #[test]
    fn expressions_that_would_blow_up_cost_little() {
        // Without the bounds, the match would not end: the test runner stops it.
        let patterns = Patterns::default();
        let long = format!("/{}", "a".repeat(5_000));
        assert!(!patterns.matches("/(a+)+b", &long));
        assert!(!patterns.matches("/(a{1000}){1000}{1000}", &long));
        assert!(patterns.matches("/(a|aa|aaa)*", &long));
        for at in 0..KEPT + 50 {
            assert!(patterns.matches(&format!("/x{at}/.*"), &format!("/x{at}/y")));
        }
        assert!(patterns.0.lock().len() <= KEPT);
    }
}
