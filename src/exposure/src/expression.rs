//! The regular expressions that paths may use.
//!
//! Istio (Go), Envoy (RE2) and Oathkeeper (regexp2) each compile the expression of a path. If Oathkeeper cannot compile
//! one expression, it responds to every request of the cluster with an error. Its search uses backtracking, so some
//! expressions take a time that grows exponentially.
//!
//! Invariant: an accepted expression contains only constructs that all of these programs compile with the same meaning.
//!
//! Not here: expressions that could match the host (`anchored`).

use std::collections::BTreeSet;

use regex_syntax::ast::{
    AssertionKind, Ast, ClassSetBinaryOp, ClassSetItem, GroupKind, Literal, LiteralKind, RepetitionKind,
    RepetitionRange, Visitor, parse::ParserBuilder, visit,
};

/// Maximum length of an expression in bytes.
const LONGEST: usize = 1024;
/// Maximum nesting depth.
const DEEPEST: u32 = 50;
/// Maximum number of repetitions. Nested counts are multiplied. Go refuses more than 1000.
const MOST_REPEATS: u64 = 1000;
/// Maximum number of ways through an expression without its unbounded repetitions.
const MOST_WAYS: u64 = 1024;
/// Count from which on a bounded repetition is treated as unbounded.
const MANY: u32 = 10;

/// Returns why an expression is refused.
pub(super) fn why_not(path: &str) -> Option<String> {
    let ast = match parse(path) {
        Err(why) => return Some(why),
        Ok(ast) => ast,
    };
    visit(&ast, Portable { repeats: vec![1] }).err().map(str::to_owned)
}

/// Returns why Oathkeeper might take very long for an accepted expression.
pub(super) fn why_slow(path: &str) -> Option<String> {
    let slow = |why: &str| Some(format!("Oathkeeper might take very long to compare requests with this path: {why}"));
    let Ok(ast) = parse(path) else { return slow("it is not understood") };
    let Some(work) = work(&ast, After::End) else { return slow("a repeated group has choices or repetitions in it") };
    if work.loops > 1 {
        return slow("two repetitions can end at several places each; write [^/]+ for a part between two slashes");
    }
    if work.ways > MOST_WAYS { slow("it has too many alternatives") } else { None }
}

fn parse(path: &str) -> Result<Ast, String> {
    if path.len() > LONGEST {
        return Err(format!("it has more than {LONGEST} bytes"));
    }
    let parsed = ParserBuilder::new().nest_limit(DEEPEST).build().parse(&with_literal_braces(path));
    parsed.map_err(|error| format!("it is not an expression that Istio and Oathkeeper understand: {}", error.kind()))
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
    type Err = &'static str;

    fn finish(self) -> Result<(), Self::Err> {
        Ok(())
    }

    fn visit_pre(&mut self, ast: &Ast) -> Result<(), Self::Err> {
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

    fn visit_post(&mut self, ast: &Ast) -> Result<(), Self::Err> {
        if matches!(ast, Ast::Repetition(_)) {
            self.repeats.pop();
        }
        Ok(())
    }

    fn visit_class_set_item_pre(&mut self, item: &ClassSetItem) -> Result<(), Self::Err> {
        match item {
            ClassSetItem::Literal(of) => literal(of),
            ClassSetItem::Range(range) => literal(&range.start).and_then(|()| literal(&range.end)),
            ClassSetItem::Unicode(_) => Err("it has a Unicode class, such as \\pL"),
            ClassSetItem::Bracketed(_) => Err("it has a class of characters in another one"),
            _ => Ok(()),
        }
    }

    fn visit_class_set_binary_op_pre(&mut self, _: &ClassSetBinaryOp) -> Result<(), Self::Err> {
        Err("it has --, && or ~~ in a class of characters; escape these characters")
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

/// The string that follows a part of an expression.
#[derive(Clone, Copy)]
enum After {
    End,
    Character(char),
    Unknown,
}

/// The work of a search with backtracking.
#[derive(Clone, Copy)]
struct Work {
    /// Number of ways through the expression, without unbounded repetitions.
    ways: u64,
    /// Number of repetitions that can end at several positions.
    loops: u32,
}

/// Returns the work for a part; `None` if the work may grow exponentially.
fn work(ast: &Ast, after: After) -> Option<Work> {
    match ast {
        Ast::Group(group) => work(&group.ast, after),
        Ast::Alternation(all) => all.asts.iter().try_fold(Work { ways: 0, loops: 0 }, |sum, one| {
            let one = work(one, after)?;
            Some(Work { ways: sum.ways.saturating_add(one.ways), loops: sum.loops.max(one.loops) })
        }),
        Ast::Concat(all) => all.asts.iter().enumerate().try_fold(Work { ways: 1, loops: 0 }, |sum, (at, one)| {
            let next = all.asts.get(at + 1).map_or(after, |next| begins(next).map_or(After::Unknown, After::Character));
            let one = work(one, next)?;
            Some(Work { ways: sum.ways.saturating_mul(one.ways), loops: sum.loops + one.loops })
        }),
        Ast::Repetition(of) => {
            let (least, most) = bounds(&of.op.kind);
            let is_long = most.is_none_or(|most| most > MANY) && most != Some(least);
            let ways = if is_long { 1 } else { u64::from(most.unwrap_or(least) - least) + 1 };
            if is_single(&of.ast) {
                let ends = !is_long || matches!(after, After::End) || excludes(&of.ast, after);
                return Some(Work { ways, loops: u32::from(!ends) });
            }
            let inside = work(&of.ast, if most == Some(1) { after } else { After::Unknown })?;
            let is_fixed = inside.ways == 1 && inside.loops == 0;
            let repeats = most != Some(1);
            (!repeats || (is_fixed && is_plain(&of.ast)))
                .then(|| Work { ways: ways.saturating_mul(inside.ways), loops: inside.loops })
        }
        _ => Some(Work { ways: 1, loops: 0 }),
    }
}

/// Whether a part matches exactly one character, in one way.
fn is_single(ast: &Ast) -> bool {
    match ast {
        Ast::Literal(_) | Ast::Dot(_) | Ast::ClassPerl(_) | Ast::ClassBracketed(_) => true,
        Ast::Group(group) => is_single(&group.ast),
        Ast::Alternation(all) => {
            let mut known = BTreeSet::new();
            all.asts.iter().all(|one| matches!(one, Ast::Literal(of) if known.insert(of.c)))
        }
        _ => false,
    }
}

/// Whether a part matches a fixed number of characters, in one way.
fn is_plain(ast: &Ast) -> bool {
    match ast {
        Ast::Group(group) => is_plain(&group.ast),
        Ast::Concat(all) => all.asts.iter().all(is_plain),
        Ast::Repetition(of) => matches!(bounds(&of.op.kind), (least, Some(most)) if least == most) && is_plain(&of.ast),
        _ => is_single(ast),
    }
}

/// Returns the character with which a part begins, if there is only one such character.
fn begins(ast: &Ast) -> Option<char> {
    match ast {
        Ast::Literal(of) => Some(of.c),
        Ast::Group(group) => begins(&group.ast),
        Ast::Concat(all) => begins(all.asts.first()?),
        _ => None,
    }
}

/// Whether a repeated character cannot be the next one, so that the repetition can end at only one position.
fn excludes(one: &Ast, after: After) -> bool {
    let After::Character(next) = after else { return false };
    let alone = regex::Regex::new(&format!("^(?:{one})$"));
    alone.is_ok_and(|alone| !alone.is_match(next.encode_utf8(&mut [0; 4])))
}

fn bounds(kind: &RepetitionKind) -> (u32, Option<u32>) {
    match kind {
        RepetitionKind::ZeroOrOne => (0, Some(1)),
        RepetitionKind::ZeroOrMore => (0, None),
        RepetitionKind::OneOrMore => (1, None),
        RepetitionKind::Range(RepetitionRange::Exactly(count)) => (*count, Some(*count)),
        RepetitionKind::Range(RepetitionRange::AtLeast(least)) => (*least, None),
        RepetitionKind::Range(RepetitionRange::Bounded(least, most)) => (*least, Some(*most)),
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
            assert_eq!((why_not(path), why_slow(path)), (None, None), "{path}");
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
    fn expressions_with_much_backtracking_are_slow() {
        for path in [
            "/(a+)+$",
            "/(([a-z])+.)+[A-Z]$",
            "/(a|a)*b",
            "/(a|aa)+b",
            "/(.*)*x",
            "/(a?){20}b",
            "/.*.*x",
            "/.*a.*b",
            "/([^/]+)*x",
            "/a?a?a?a?a?a?a?a?a?a?a?a?aaaaaaaaaaaa",
            "/(a|a)(a|a)(a|a)(a|a)(a|a)(a|a)(a|a)(a|a)(a|a)(a|a)(a|a)b",
            "/.{0,500}.{0,500}x",
        ] {
            assert_eq!(why_not(path), None, "{path}");
            assert!(why_slow(path).is_some(), "{path}");
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
