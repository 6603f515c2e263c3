//! The regular expressions that paths may use.
//!
//! Istio (Go), Envoy (RE2) and Oathkeeper (regexp2) each compile the expression of a path. Oathkeeper answers every
//! request of the cluster with an error if it cannot compile one expression.
//!
//! Invariant: an accepted expression contains only constructs that all of these programs compile with the same meaning.
//!
//! Not here: expressions that could match the host (`anchored`), and those that Oathkeeper compares slowly
//! (`backtracking`).

use regex_syntax::ast::{
    AssertionKind, Ast, ClassSetBinaryOp, ClassSetItem, GroupKind, Literal, LiteralKind, RepetitionKind,
    RepetitionRange, Span, Visitor, parse::ParserBuilder, visit,
};

/// Maximum length of an expression in bytes.
const LONGEST: usize = 1024;
/// Maximum nesting depth.
const DEEPEST: u32 = 50;
/// Maximum number of repetitions. Nested counts are multiplied. Go refuses more than 1000.
const MOST_REPEATS: u64 = 1000;

/// Returns why an expression is refused.
pub(super) fn why_not(path: &str) -> Option<String> {
    let ast = match parse(path) {
        Err(why) => return Some(why),
        Ok(ast) => ast,
    };
    let refused = visit(&ast, Portable { repeats: vec![1] }).err()?;
    Some(refused.text(path))
}

/// A construct at a byte offset of an expression whose braces are escaped.
struct Refused {
    at: usize,
    what: String,
}

impl Refused {
    /// Returns the problem with its column in the expression of the user.
    fn text(&self, path: &str) -> String {
        let escaped = with_literal_braces(path);
        let mut own = path.chars().peekable();
        let before = escaped.get(..self.at).unwrap_or(&escaped).chars();
        // Backslashes that escape braces are not in the expression of the user.
        let column = before.filter(|c| own.next_if_eq(c).is_some()).count() + 1;
        format!("column {column}: {}", self.what)
    }
}

/// Parses an expression. The error says why it is refused.
pub(super) fn parse(path: &str) -> Result<Ast, String> {
    if path.len() > LONGEST {
        return Err(format!("it has more than {LONGEST} bytes"));
    }
    let parsed = ParserBuilder::new().nest_limit(DEEPEST).build().parse(&with_literal_braces(path));
    parsed.map_err(|error| {
        let what = format!("it is not an expression that Istio and Oathkeeper understand: {}", error.kind());
        Refused { at: error.span().start.offset, what }.text(path)
    })
}

/// Escapes braces that do not enclose a count, such as those of `/{id}`. Istio, Envoy and Oathkeeper read such braces
/// as characters.
fn with_literal_braces(path: &str) -> String {
    let mut text = String::with_capacity(path.len());
    let (mut is_escaped, mut is_class) = (false, false);
    for (at, c) in path.char_indices() {
        match c {
            _ if is_escaped => {}
            '[' => is_class = true,
            ']' => is_class = false,
            '{' if !is_class && !is_count(&path[at + 1..]) => text.push('\\'),
            _ => {}
        }
        is_escaped = c == '\\' && !is_escaped;
        text.push(c);
    }
    text
}

/// Whether the string after a brace begins with a count, such as `2}` or `1,3}`.
fn is_count(rest: &str) -> bool {
    let Some((inside, _)) = rest.split_once('}') else { return false };
    let is_number = |text: &str| text.chars().all(|c| c.is_ascii_digit());
    let (least, most) = inside.split_once(',').unwrap_or((inside, ""));
    !least.is_empty() && is_number(least) && is_number(most)
}

/// Refuses the constructs that differ between the programs.
struct Portable {
    /// Products of the counts of the enclosing repetitions.
    repeats: Vec<u64>,
}

impl Visitor for Portable {
    type Output = ();
    type Err = Refused;

    fn finish(self) -> Result<(), Self::Err> {
        Ok(())
    }

    fn visit_pre(&mut self, ast: &Ast) -> Result<(), Self::Err> {
        self.check(ast).map_err(|what| refused(ast.span(), what))
    }

    fn visit_post(&mut self, ast: &Ast) -> Result<(), Self::Err> {
        if matches!(ast, Ast::Repetition(_)) {
            self.repeats.pop();
        }
        Ok(())
    }

    fn visit_class_set_item_pre(&mut self, item: &ClassSetItem) -> Result<(), Self::Err> {
        let checked = match item {
            ClassSetItem::Literal(of) => literal(of),
            ClassSetItem::Range(range) => literal(&range.start).and_then(|()| literal(&range.end)),
            ClassSetItem::Unicode(_) => Err("it has a Unicode class, such as \\pL"),
            ClassSetItem::Bracketed(_) => Err("it has a class of characters in another one"),
            _ => Ok(()),
        };
        checked.map_err(|what| refused(item.span(), what))
    }

    fn visit_class_set_binary_op_pre(&mut self, op: &ClassSetBinaryOp) -> Result<(), Self::Err> {
        Err(refused(&op.span, "it has --, && or ~~ in a class of characters; escape these characters"))
    }
}

fn refused(span: &Span, what: &str) -> Refused {
    Refused { at: span.start.offset, what: what.to_owned() }
}

impl Portable {
    fn check(&mut self, ast: &Ast) -> Result<(), &'static str> {
        match ast {
            Ast::Literal(of) => literal(of),
            Ast::Flags(_) => Err("it has flags, such as (?i)"),
            Ast::ClassUnicode(_) => Err("it has a Unicode class, such as \\pL"),
            Ast::Assertion(of) if !matches!(of.kind, AssertionKind::StartLine | AssertionKind::EndLine) => {
                Err("it has an assertion other than ^ and $")
            }
            Ast::Group(group) => match &group.kind {
                GroupKind::CaptureIndex(_) => Ok(()),
                GroupKind::NonCapturing(flags) if flags.items.is_empty() => Ok(()),
                _ => Err("it has a group with a name or flags"),
            },
            Ast::Repetition(of) if matches!(*of.ast, Ast::Repetition(_) | Ast::Assertion(_) | Ast::Empty(_)) => {
                Err("it repeats a repetition or an assertion")
            }
            Ast::Repetition(of) => {
                let all = self.repeats.last().copied().unwrap_or(1).saturating_mul(u64::from(counted(&of.op.kind)));
                self.repeats.push(all);
                if all > MOST_REPEATS { Err("it repeats too often: at most 1000 times") } else { Ok(()) }
            }
            _ => Ok(()),
        }
    }
}

fn literal(of: &Literal) -> Result<(), &'static str> {
    match of.kind {
        LiteralKind::Verbatim | LiteralKind::Meta => Ok(()),
        LiteralKind::Superfluous if of.c.is_ascii_punctuation() && of.c != '_' => Ok(()),
        _ => Err("it escapes a character that needs no escape, or writes one as a number"),
    }
}

/// Returns the highest count of a repetition that is written with a number.
fn counted(kind: &RepetitionKind) -> u32 {
    match kind {
        RepetitionKind::Range(RepetitionRange::Exactly(count) | RepetitionRange::AtLeast(count)) => (*count).max(1),
        RepetitionKind::Range(RepetitionRange::Bounded(_, most)) => (*most).max(1),
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_of_usual_paths_are_accepted() {
        for path in [
            "/",
            "/.*",
            "/post",
            "/api/v1/.*",
            "/{id}",
            "/{*}",
            "/users/[^/]+/orders",
            "/users/([^/]+)/orders/(.*)",
            "/(users|groups)/.*",
            "/.*/users/.*",
            "/a{2,3}b?",
            "/[a-zA-Z0-9_-]{1,63}/x",
            "/[[:alpha:]]*",
            "/\\d+\\.html$",
            "/v\\-1/\\/x",
            "/é|/ü",
            "(/a)+",
            "/a/[a-z]{1,3}/(b|c)+/.*",
            "/([a-f0-9]{2}/)+x",
        ] {
            assert_eq!(why_not(path), None, "{path}");
        }
    }

    #[test]
    fn constructs_that_a_program_does_not_compile_are_refused() {
        let long = format!("/{}", "a".repeat(LONGEST));
        for path in [
            "/\\pN",
            "/\\p{Foo}",
            "/\\07",
            "/a**",
            "/a++",
            "/[z-a]",
            "/a{2,1}",
            "/\\1",
            "/a{1000}{1000}",
            "/(a{100}){100}",
            "/a{1001}",
            "/\\K",
            "/\\h",
            "/\\u{61}",
            "/\\x41",
            "/a{99999999999}",
            "/[[:foo:]]",
            "/[a&&b]",
            "/[\\pL]",
            "/(?!x).*",
            "/(?=x).*",
            "/(?i:a)",
            "/(?P<n>a)",
            "/\\bx",
            "/\\_",
            "/(",
            long.as_str(),
        ] {
            assert!(why_not(path).is_some(), "{path}");
        }
    }

    #[test]
    fn a_refused_construct_has_a_column() {
        for (path, expected) in [
            ("/{id}/(?i:a)", "column 7: it has a group with a name or flags"),
            ("/{id}/a**", "column 7: it repeats a repetition or an assertion"),
            ("/é[a&&b]", "column 4: it has --, && or ~~ in a class of characters; escape these characters"),
            ("/{id}/(", "column 7: it is not an expression that Istio and Oathkeeper understand: unclosed group"),
        ] {
            assert_eq!(why_not(path).unwrap(), expected, "{path}");
        }
    }

    #[test]
    fn accepted_expressions_compile() {
        let parts = ["/", "a", ".*", "|", "(", ")", "?", "{2}", "[a/]", "\\", "(?:", "^", "-", "+"];
        let mut accepted = 0;
        for number in 0..parts.len().pow(3) {
            let part = |place: u32| parts[number / parts.len().pow(place) % parts.len()];
            let path = (0..3).map(part).collect::<String>();
            if why_not(&path).is_none() {
                accepted += 1;
                assert!(regex::Regex::new(&path).is_ok(), "{path}");
            }
        }
        assert!(accepted > 300, "{accepted}");
    }
}
