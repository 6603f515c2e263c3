//! The work of Oathkeeper's search, which tries all ways through an expression one after the other.
//!
//! Each part of an expression has a number of steps, and a number of exits: the places at which the rest is tried. Both
//! are bounds for a request of `n` characters, and are linear in `n`. The work of two parts is the product of the
//! exits of the first one with the steps of the second one.
//!
//! Invariant: the steps of an accepted expression are linear in the length of a request, with a small factor.
//! Invariant: so are the steps of all expressions of one host together (`Total`).
//!
//! Not here: which constructs are permitted (`expression`).

use regex_syntax::ast::{Ast, Repetition, RepetitionKind, RepetitionRange};
use regex_syntax::hir::{ClassUnicode, ClassUnicodeRange, HirKind};

use super::expression::parse;

/// Maximum number of steps that do not depend on the length of a request.
const MOST_STEPS: u64 = 4096;
/// Maximum number of steps for each character of a request.
const MOST_STEPS_PER_CHARACTER: u64 = 24;

/// The limits of all paths of a host together, as a multiple of those of one path.
const MOST_TOTAL: u64 = 10;

/// The work of all paths of one APIRule. Oathkeeper compares a request with each path of its host, one after the other.
#[derive(Default)]
pub(super) struct Total {
    paths: Vec<Counted>,
}

/// A path of a total.
struct Counted {
    /// The characters before the first choice or repetition. The comparison of another beginning ends there.
    beginning: String,
    work: Linear,
    /// The work of all paths for a request with this beginning.
    all: Linear,
}

impl Total {
    /// Adds a path that `why_slow` accepts. Returns why Oathkeeper might take very long for all paths together. The path
    /// is then not added.
    pub(super) fn add(&mut self, path: &str) -> Option<String> {
        let ast = parse(path).ok()?;
        let work = Part::of(&ast).work(&Head::end()).ok()?.all();
        let mut new = Counted { beginning: beginning(&ast), work, all: work };
        for path in &self.paths {
            if new.beginning.starts_with(&path.beginning) {
                new.all = new.all.plus(path.work);
            }
        }
        let longer = self.paths.iter().filter(|path| path.beginning.starts_with(&new.beginning));
        let most = longer.map(|path| path.all.plus(work)).fold(new.all, Linear::max);
        if let Some(excess) = most.excess(MOST_TOTAL) {
            return Some(format!(
                "Oathkeeper compares a request with all paths of this APIRule that begin alike: including this path, that takes \
                 {excess}; begin paths with different literal parts, or use fewer repetitions and alternatives"
            ));
        }
        for path in self.paths.iter_mut().filter(|path| path.beginning.starts_with(&new.beginning)) {
            path.all = path.all.plus(work);
        }
        self.paths.push(new);
        None
    }
}

/// Returns the literal characters at the beginning of an expression.
fn beginning(ast: &Ast) -> String {
    let literal = |ast: &Ast| match ast {
        Ast::Literal(literal) => Some(literal.c),
        _ => None,
    };
    match ast {
        Ast::Concat(all) => all.asts.iter().map_while(literal).collect(),
        _ => literal(ast).into_iter().collect(),
    }
}

/// Returns why Oathkeeper might take very long for an accepted expression.
pub(super) fn why_slow(path: &str) -> Option<String> {
    let why = match parse(path).map(|ast| Part::of(&ast).work(&Head::end())) {
        Err(_) => "it is not understood".to_owned(),
        Ok(Err(Slow::Group)) => "a repeated group has choices or repetitions in it; repeat a single class".to_owned(),
        Ok(Err(Slow::Squared)) => SQUARED.to_owned(),
        Ok(Ok(work)) => {
            let excess = work.all().excess(1)?;
            format!("its alternatives and counts take {excess}; write several rules, or one .* after the alternatives")
        }
    };
    Some(format!("Oathkeeper might take very long to compare requests with this path: {why}"))
}

/// The remedy for two repetitions that can divide a text in many ways.
const SQUARED: &str = "a repetition follows one that can end at several places, such as .*; write [^/]+ \
                       for a part between two slashes, and .* once, for the last part";

/// The reason why the work may grow faster than a request.
enum Slow {
    /// A repeated group can match a text in several ways.
    Group,
    /// The steps grow with the square of the length.
    Squared,
}

/// A number that grows with the length `n` of a request: `base + slope * n`.
#[derive(Clone, Copy)]
struct Linear {
    base: u64,
    slope: u64,
}

impl Linear {
    const ONE: Self = Self::constant(1);

    const fn constant(base: u64) -> Self {
        Self { base, slope: 0 }
    }

    fn plus(self, other: Self) -> Self {
        Self { base: self.base.saturating_add(other.base), slope: self.slope.saturating_add(other.slope) }
    }

    /// Describes how this exceeds the limits of so many paths; `None` if it does not.
    fn excess(self, paths: u64) -> Option<String> {
        let (steps, each) = (paths * MOST_STEPS, paths * MOST_STEPS_PER_CHARACTER);
        if self.slope > each {
            return Some(format!("{} steps for each character of a request (the limit is {each})", self.slope));
        }
        (self.base > steps).then(|| format!("{} steps (the limit is {steps})", self.base))
    }

    fn max(self, other: Self) -> Self {
        Self { base: self.base.max(other.base), slope: self.slope.max(other.slope) }
    }

    fn times(self, other: Self) -> Result<Self, Slow> {
        if self.slope > 0 && other.slope > 0 {
            return Err(Slow::Squared);
        }
        let slope = self.base.saturating_mul(other.slope).saturating_add(self.slope.saturating_mul(other.base));
        Ok(Self { base: self.base.saturating_mul(other.base), slope })
    }
}

/// The work of a search within a part.
#[derive(Clone, Copy)]
struct Work {
    steps: Linear,
    exits: Linear,
}

impl Work {
    /// Returns all steps. The end of the expression is compared at each exit.
    fn all(&self) -> Linear {
        self.steps.plus(self.exits)
    }
}

/// The beginning of a part.
#[derive(Clone)]
struct Head {
    /// The characters with which it can begin.
    first: ClassUnicode,
    /// Whether it can match the empty text.
    may_be_empty: bool,
    /// Number of comparisons with a character that is not in `first`.
    checks: u64,
}

impl Head {
    fn end() -> Self {
        Self { first: ClassUnicode::empty(), may_be_empty: true, checks: 1 }
    }

    fn character(first: ClassUnicode) -> Self {
        Self { first, may_be_empty: false, checks: 1 }
    }

    /// Returns the beginning of this part and the next one.
    fn then(&self, next: &Self) -> Self {
        if !self.may_be_empty {
            return self.clone();
        }
        Self { may_be_empty: next.may_be_empty, ..self.or(next) }
    }

    /// Returns the beginning of the alternation of this part and `other`.
    fn or(&self, other: &Self) -> Self {
        let mut first = self.first.clone();
        first.union(&other.first);
        let checks = self.checks.saturating_add(other.checks);
        Self { first, may_be_empty: self.may_be_empty || other.may_be_empty, checks }
    }

    /// Whether no character begins both parts.
    fn is_apart(&self, other: &Self) -> bool {
        let mut common = self.first.clone();
        common.intersect(&other.first);
        !self.may_be_empty && common.ranges().is_empty()
    }
}

/// A part of an expression.
struct Part {
    head: Head,
    kind: Kind,
}

enum Kind {
    /// At most one character.
    Leaf,
    /// A character after another one, with which it is compared at once.
    Following,
    Sequence(Vec<Part>),
    Alternatives(Vec<Part>),
    Repeat {
        part: Box<Part>,
        least: u32,
        most: Option<u32>,
    },
}

impl Part {
    fn of(ast: &Ast) -> Self {
        match ast {
            Ast::Group(group) => Self::of(&group.ast),
            Ast::Concat(all) => {
                let mut parts: Vec<Self> = all.asts.iter().map(Self::of).collect();
                for (part, pair) in parts.iter_mut().skip(1).zip(all.asts.windows(2)) {
                    if matches!(pair, [Ast::Literal(_), Ast::Literal(_)]) {
                        part.kind = Kind::Following;
                    }
                }
                let head = parts.iter().rev().fold(None, |next: Option<Head>, part| {
                    Some(next.map_or_else(|| part.head.clone(), |next| part.head.then(&next)))
                });
                Self { head: head.unwrap_or_else(Head::end), kind: Kind::Sequence(parts) }
            }
            Ast::Alternation(all) => {
                let parts: Vec<Self> = all.asts.iter().map(Self::of).collect();
                let head = parts.iter().map(|part| part.head.clone()).reduce(|one, other| one.or(&other));
                Self { head: head.unwrap_or_else(Head::end), kind: Kind::Alternatives(parts) }
            }
            Ast::Repetition(of) => Self::repeated(of),
            Ast::Literal(of) => {
                let range = ClassUnicodeRange::new(of.c, of.c);
                Self { head: Head::character(ClassUnicode::new([range])), kind: Kind::Leaf }
            }
            Ast::Dot(_) | Ast::ClassPerl(_) | Ast::ClassBracketed(_) | Ast::ClassUnicode(_) => {
                Self { head: Head::character(class(ast)), kind: Kind::Leaf }
            }
            Ast::Empty(_) | Ast::Flags(_) | Ast::Assertion(_) => Self { head: Head::end(), kind: Kind::Leaf },
        }
    }

    fn repeated(of: &Repetition) -> Self {
        let (part, (least, most)) = (Box::new(Self::of(&of.ast)), bounds(&of.op.kind));
        let may_be_empty = least == 0 || part.head.may_be_empty;
        let head = Head { may_be_empty, checks: part.head.checks.saturating_add(1), ..part.head.clone() };
        Self { head, kind: Kind::Repeat { part, least, most } }
    }

    /// Whether this matches a text in one way at most.
    fn is_plain(&self) -> bool {
        match &self.kind {
            Kind::Leaf | Kind::Following => true,
            Kind::Sequence(parts) => parts.iter().all(Self::is_plain),
            Kind::Alternatives(parts) => are_apart(parts) && parts.iter().all(Self::is_plain),
            Kind::Repeat { part, least, most } => *most == Some(*least) && part.is_plain(),
        }
    }

    /// Returns the work if a part with this head follows.
    fn work(&self, next: &Head) -> Result<Work, Slow> {
        match &self.kind {
            Kind::Leaf => Ok(Work { steps: Linear::ONE, exits: Linear::ONE }),
            Kind::Following => Ok(Work { steps: Linear::constant(0), exits: Linear::ONE }),
            Kind::Sequence(parts) => sequence(parts, next),
            Kind::Alternatives(parts) => alternatives(parts, next),
            Kind::Repeat { part, least: 0 | 1, most: Some(1) } if part.head.may_be_empty => part.work(next),
            Kind::Repeat { part, least: 1, most: Some(1) } => part.work(next),
            Kind::Repeat { part, least: 0, most: Some(1) } => {
                let inside = part.work(next)?;
                let skipped = Linear::constant(u64::from(!part.head.is_apart(next)));
                let steps = inside.steps.plus(Linear::constant(next.checks.saturating_add(1)));
                Ok(Work { steps, exits: inside.exits.plus(skipped) })
            }
            Kind::Repeat { part, least, most } => {
                if !part.is_plain() || part.head.may_be_empty {
                    return Err(Slow::Group);
                }
                let one = part.work(&Head::end())?.steps.base.max(1);
                Ok(part.repeat(one, *least, *most, next))
            }
        }
    }

    /// Returns the work for repetitions of this part, which takes `one` step and matches in one way.
    fn repeat(&self, one: u64, least: u32, most: Option<u32>, next: &Head) -> Work {
        let (least, is_apart) = (u64::from(least), self.head.is_apart(next));
        let Some(most) = most.map(u64::from) else {
            // The search of a repeated group keeps the place of each repetition.
            let one = if matches!(self.kind, Kind::Leaf) { 1 } else { one.saturating_mul(GROUP) };
            let steps = Linear { base: least.saturating_mul(one), slope: one.saturating_add(next.checks) };
            return Work { steps, exits: Linear { base: 1, slope: u64::from(!is_apart) } };
        };
        let others = most.saturating_sub(least);
        let steps = most.saturating_mul(one).saturating_add(others.saturating_mul(next.checks));
        let exits = if is_apart { 1 } else { others + 1 };
        Work { steps: Linear::constant(steps), exits: Linear::constant(exits) }
    }
}

/// Number of steps of a repeated group for each of its own steps.
const GROUP: u64 = 3;

fn sequence(parts: &[Part], next: &Head) -> Result<Work, Slow> {
    let mut nexts = vec![next.clone()];
    for part in parts.iter().skip(1).rev() {
        let after = part.head.then(&nexts[nexts.len() - 1]);
        nexts.push(after);
    }
    let mut all = Work { steps: Linear::constant(0), exits: Linear::ONE };
    for (part, next) in parts.iter().zip(nexts.iter().rev()) {
        let work = part.work(next)?;
        all.steps = all.steps.plus(all.exits.times(work.steps)?);
        all.exits = all.exits.times(work.exits)?;
    }
    Ok(all)
}

fn alternatives(parts: &[Part], next: &Head) -> Result<Work, Slow> {
    let is_one = are_apart(parts);
    let mut all = Work { steps: Linear::constant(0), exits: Linear::constant(0) };
    for part in parts {
        let work = part.work(next)?;
        all = if is_one {
            Work { steps: all.steps.max(work.steps), exits: all.exits.max(work.exits) }
        } else {
            Work { steps: all.steps.plus(work.steps), exits: all.exits.plus(work.exits) }
        };
    }
    all.steps = all.steps.plus(Linear::constant(parts.len() as u64));
    Ok(all)
}

/// Whether at most one of these parts can match, by the first character.
fn are_apart(parts: &[Part]) -> bool {
    let mut before = Head::end();
    parts.iter().all(|part| {
        let is_apart = part.head.is_apart(&before);
        before = before.or(&part.head);
        is_apart
    })
}

/// Returns the characters of a class. The programs differ in the characters of `\w` and others, so the complement of
/// one counts as all characters.
fn class(ast: &Ast) -> ClassUnicode {
    let all = || ClassUnicode::new([ClassUnicodeRange::new('\0', char::MAX)]);
    let text = ast.to_string();
    let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
    let is_complement = has(&["\\D", "\\W", "\\S", "[:^"]);
    if is_complement || (has(&["[^"]) && has(&["\\d", "\\w", "\\s", "[:"])) {
        return all();
    }
    match regex_syntax::parse(&text).map(regex_syntax::hir::Hir::into_kind) {
        Ok(HirKind::Class(regex_syntax::hir::Class::Unicode(class))) => class,
        Ok(HirKind::Literal(one)) => {
            let chars = std::str::from_utf8(&one.0).unwrap_or_default().chars();
            ClassUnicode::new(chars.map(|c| ClassUnicodeRange::new(c, c)))
        }
        _ => all(),
    }
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
    use super::super::expression::why_not;
    use super::*;

    /// Expressions of usual paths, and those near the limits.
    const ACCEPTED: [&str; 45] = [
        "/",
        "/.*",
        "/post",
        "/headers",
        "/api/v1/.*",
        "/image/.*\\.png",
        "/image/.*\\.(png|jpg|jpeg|gif)",
        "/{id}",
        "/users/[^/]+/orders",
        "/users/([^/]+)/orders/(.*)",
        "/users/[^/]+/orders/[^/]+/items/.*",
        "/[^/]*/[^/]*",
        "/[^/]*/[^/]*/[^/]*/[^/]*/[^/]*/[^/]*/[^/]*/[^/]*x",
        "/users/[^/]+(/.*)?",
        "/users(/.*)?",
        "/(users|groups)/.*",
        "/(users|groups|orders|items|carts|shops)/[^/]+/.*",
        "/users/.*|/groups/.*",
        "/(?:.*A|.*B)",
        "/.*x",
        "/.+/",
        "/.*abc$",
        "/a{2,3}b?",
        "/[a-zA-Z0-9_-]{1,63}/x",
        "/[a-z0-9-]{1,63}/.*",
        "/[[:alpha:]]*",
        "/\\d+\\.html$",
        "/\\d+/\\w+",
        "/v\\-1/\\/x",
        "/é|/ü",
        "(/a)+",
        "/(ab)*c",
        "/(ab)*(ab)",
        "/(ab)*c(ab)*d(ab)*e",
        "/a/[a-z]{1,3}/(b|c)+/.*",
        "/([a-f0-9]{2}/)+x",
        "/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}/.*",
        "/[a-z]+-[a-z]+-[a-z]+",
        "/[a-z]+-[a-z]+-.*",
        "/a*b*c*",
        "/[^/]+/?",
        "/[^/]+/?x?y?",
        "/.*?x",
        "/.*[a-z]{1,8}",
        "/a?a?a?a?a?a?a?a?aaaaaaaa",
    ];

    #[test]
    fn expressions_of_usual_paths_are_accepted() {
        for path in ACCEPTED {
            assert_eq!((why_not(path), why_slow(path)), (None, None), "{path}");
        }
    }

    #[test]
    fn expressions_whose_search_grows_with_the_square_are_slow() {
        let many: Vec<_> = ('a'..='z').chain('A'..='Z').map(|c| format!(".*{c}")).collect();
        let many = format!("/(?:{})", many.join("|"));
        for path in [
            "/a+a+",
            "/.*/.*",
            "/.*x.*",
            "/.*-.*",
            "/.+/.+",
            "/.*/users/.*",
            "/[a-z]*[a-z]*",
            "/(ab)*(ab)*c",
            "/(ab)*abab(ab)*c",
            "/(?:/.*/.*|/.*x.*)",
            // The second repetition ends at one place, but begins at many.
            "/.*a[a-z]*1",
            "/.*[a-z]*1",
            "/a*.*",
            "/[^/]*(/.*)?x.*",
            "/a*b*a*",
            "/\\D*\\d*",
            "/\\W*[é]*",
            "/[^\\w]*[é]*",
            "/.*(a|b.*)",
            "/.*(.*)?",
            many.as_str(),
        ] {
            assert_eq!(why_not(path), None, "{path}");
            assert!(why_slow(path).is_some(), "{path}");
        }
    }

    #[test]
    fn expressions_with_many_ways_are_slow() {
        for path in [
            "/(a+)+$",
            "/(([a-z])+.)+[A-Z]$",
            "/(a|a)*b",
            "/(a|aa)+b",
            "/(.*)*x",
            "/(a?){20}b",
            "/(a{0})*b",
            "/([^/]+)*x",
            "/a?a?a?a?a?a?a?a?a?a?a?a?aaaaaaaaaaaa",
            "/(a|a)(a|a)(a|a)(a|a)(a|a)(a|a)(a|a)(a|a)(a|a)(a|a)(a|a)(a|a)b",
            "/.{0,500}.{0,500}x",
            "/.*[a-z]{1,63}",
            "/.{0,63}.*",
            "/.*(a?b?c?d?e?f?g?h?|x)",
        ] {
            assert_eq!(why_not(path), None, "{path}");
            assert!(why_slow(path).is_some(), "{path}");
        }
    }

    /// Adds these paths. Returns the number of added paths.
    fn added(paths: impl IntoIterator<Item = String>) -> usize {
        let mut total = Total::default();
        let accepted = |path: &String| (why_not(path), why_slow(path)) == (None, None);
        paths.into_iter().inspect(|path| assert!(accepted(path), "{path}")).filter(|p| total.add(p).is_none()).count()
    }

    #[test]
    fn paths_that_begin_alike_share_one_limit() {
        let alternatives = |at: usize| format!("/(.*A{at}|.*B{at}|.*C{at}|.*D{at})");
        let count = added((0..500).map(alternatives));
        assert!((5..=40).contains(&count), "{count}");
        assert!(added((0..500).map(|at| format!("/.*{at}"))) <= 120);
        assert!(added((0..500).map(|at| format!("/{}x{at}", "a?".repeat(8)))) < 500);
    }

    #[test]
    fn messages_have_the_number_and_the_limit() {
        let mut total = Total::default();
        let mut many = (0..500).filter_map(|at| total.add(&format!("/.*x{at}")));
        let why = many.next().unwrap();
        assert!(why.contains(" takes 244 steps for each character of a request (the limit is 240); begin"), "{why}");
        let why = why_slow("/(.*A|.*B|.*C|.*D|.*E|.*F|.*G|.*H|.*I|.*J|.*K|.*L|.*M)").unwrap();
        assert!(why.contains(" steps for each character of a request (the limit is 24); write"), "{why}");
        let why = why_slow("/.{0,500}.{0,500}x").unwrap();
        assert!(why.contains(" steps (the limit is 4096); write"), "{why}");
    }

    #[test]
    fn an_order_of_paths_does_not_exceed_the_limit() {
        // Every request that begins with /a/b/c is compared with all of these.
        let nested = |at: usize| format!("/{}(.*A{at}|.*B{at})", &"a/b/c"[..at % 6]);
        let long = |at: usize| format!("/abc(.*A{at}|.*B{at})");
        let (one, other) = (added((0..300).map(nested)), added((0..300).rev().map(nested)));
        assert!(one.max(other) <= 60, "{one} {other}");
        let short = |at: usize| format!("/(.*A{at}|.*B{at})");
        let (all, none) = (added((0..300).map(short)), added((0..300).map(short).chain((0..300).map(long))));
        assert_eq!(all, none, "the limit of a beginning is also that of a longer one");
    }

    #[test]
    fn paths_of_a_large_api_are_accepted() {
        let literal = (0..500).map(|at| format!("/api/v1/things/{at}"));
        assert_eq!(added(literal), 500);
        let resources = (0..500).map(|at| format!("/api/v1/resource-{at:03}/[^/]+/.*"));
        assert_eq!(added(resources), 500);
        let one = ["", "/[^/]+", "/[^/]+/items", "/[^/]+/items/[^/]+", "/[^/]+/items/[^/]+/notes/.*", "/.*"];
        assert_eq!(added(one.map(|rest| format!("/users{rest}"))), one.len());
    }
}
