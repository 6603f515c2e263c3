//! Rules of functions: their length, their parameters, and the channels that they create.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::circles::literal;
use super::code::without_tests;
use super::{PRODUCT, production, sources};

/// Maximum number of lines of a function, from its name to its last brace.
const LONGEST: usize = 60;

/// Files with functions that are still too long, and the number of these functions. The list may only shrink.
const TOO_LONG: &[(&str, usize)] = &[("src/engine/src/managed/events.rs", 1), ("src/function/src/reconcile.rs", 1)];

/// Files with queues that are still unbounded. The list may only shrink.
const UNBOUNDED_QUEUES: &[&str] = &[];

/// Calls and types of queues without a bound.
const WITHOUT_BOUND: [&str; 5] =
    ["unbounded_channel", "mpsc::unbounded(", "UnboundedSender", "UnboundedReceiver", "mpsc::channel()"];

/// A function of a file.
#[derive(Debug, PartialEq, Eq)]
struct Function {
    name: String,
    lines: usize,
    /// Number of parameters of type `bool`, also in tuples.
    flags: usize,
}

#[test]
fn functions_have_at_most_60_lines() {
    let mut found: BTreeMap<String, Vec<(String, usize)>> = BTreeMap::new();
    for path in product_files() {
        for function in functions(&code_of(&path)).into_iter().filter(|function| function.lines > LONGEST) {
            found.entry(path.display().to_string()).or_default().push((function.name, function.lines));
        }
    }
    let present: Vec<(&str, usize)> = found.iter().map(|(path, all)| (path.as_str(), all.len())).collect();
    assert_eq!(present, TOO_LONG, "the functions on the left are too long, those on the right are known: {found:#?}");
}

#[test]
fn functions_have_at_most_one_flag() {
    let mut wrong = Vec::new();
    for path in product_files() {
        let all = functions(&code_of(&path)).into_iter().filter(|function| function.flags > 1);
        wrong.extend(all.map(|function| format!("{}: {}", path.display(), function.name)));
    }
    assert_eq!(wrong, Vec::<String>::new(), "a call with two flags cannot be read: use enums or a struct");
}

/// A queue without a bound grows while its receiver is slow. Use a bounded channel, or `mainstay_cluster::requests` if
/// the sender must not wait.
#[test]
fn queues_are_bounded() {
    let is_unbounded = |path: &PathBuf| WITHOUT_BOUND.iter().any(|word| production(path).contains(word));
    let found: Vec<_> = product_files().into_iter().filter(is_unbounded).collect();
    assert_eq!(found, UNBOUNDED_QUEUES.iter().map(PathBuf::from).collect::<Vec<_>>());
}

/// Returns the files of the product without tests and their fake servers.
fn product_files() -> Vec<PathBuf> {
    let is_test = |path: &Path| {
        path.iter().any(|part| part == "tests" || part == "tests.rs") || path == Path::new("src/cluster/src/fake.rs")
    };
    PRODUCT.into_iter().flat_map(sources).filter(|path| !is_test(path)).collect()
}

/// Returns the code of a file without the items that only tests compile.
fn code_of(path: &Path) -> String {
    without_tests(&fs::read_to_string(path).unwrap())
}

/// Returns the functions with a body, in the order of their ends.
fn functions(code: &str) -> Vec<Function> {
    let tokens = tokens(code);
    let (mut found, mut open, mut depth, mut at) = (Vec::new(), Vec::new(), 0_usize, 0);
    while let Some((token, line)) = tokens.get(at).copied() {
        at += 1;
        match token {
            "{" => depth += 1,
            "}" => {
                if let Some((_, function, start)) =
                    open.pop_if(|(opened, ..): &mut (usize, Function, usize)| *opened == depth)
                {
                    found.push(Function { lines: line - start + 1, ..function });
                }
                depth = depth.saturating_sub(1);
            }
            "fn" if tokens.get(at).is_some_and(|(name, _)| is_word(name)) => {
                let (function, body) = signature(&tokens, at);
                if let Some(body) = body {
                    depth += 1;
                    open.push((depth, function, line));
                    at = body + 1;
                }
            }
            _ => {}
        }
    }
    found
}

/// Reads the signature of a function from its name on. Returns the index of the brace that opens its body, if any.
fn signature(tokens: &[(&str, usize)], name: usize) -> (Function, Option<usize>) {
    let (mut flags, mut nested, mut at) = (0, 0_usize, name + 1);
    let mut is_over = false;
    while let Some((token, _)) = tokens.get(at).copied() {
        match token {
            "(" if nested > 0 && is_word(tokens[at - 1].0) => {
                // The parameters of a closure.
                at += tokens[at..].iter().position(|(token, _)| *token == ")").unwrap_or(0);
            }
            "(" | "[" => nested += 1,
            ")" | "]" => {
                nested = nested.saturating_sub(1);
                is_over |= nested == 0;
            }
            // `&bool` and `Option<bool>` are no flags; neither is a result.
            "bool" if !is_over && is_type(tokens, at) => flags += 1,
            "{" if nested == 0 => break,
            ";" if nested == 0 => at = tokens.len(),
            _ => {}
        }
        at += 1;
    }
    let function = Function { name: tokens[name].0.to_owned(), lines: 0, flags };
    (function, (at < tokens.len()).then_some(at))
}

/// Whether a token is the whole type of a parameter, or of a part of a tuple.
fn is_type(tokens: &[(&str, usize)], at: usize) -> bool {
    let after = tokens.get(at + 1).map_or("", |(token, _)| token);
    matches!(tokens[at - 1].0, ":" | "(" | ",") && matches!(after, "," | ")")
}

fn is_word(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Splits code into words and single characters with their lines, without comments and literals.
pub(super) fn tokens(code: &str) -> Vec<(&str, usize)> {
    let (mut tokens, mut rest, mut line) = (Vec::new(), code, 1);
    while let Some(first) = rest.chars().next() {
        let word = rest.len() - rest.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_').len();
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if let Some(length) = literal(rest) {
            length
        } else {
            let length = word.max(first.len_utf8());
            if !first.is_whitespace() {
                tokens.push((&rest[..length], line));
            }
            length
        };
        line += rest[..length].matches('\n').count();
        rest = &rest[length..];
    }
    tokens
}

#[test]
fn functions_are_found_with_their_lines_and_flags() {
    let code = "impl A {\n    pub async fn a(&self, (b, c): (bool, bool), d: [u8; 2]) -> bool {\n        // }\n        fn e(f: &bool, g: bool) { \"}\"; }\n    }\n}\n\
                pub(crate) fn h(i: bool, j: Option<bool>, k: impl Fn(&str, bool) -> bool) where (): {\n}\ntrait K { fn l(m: bool, n: bool); }\nfn o() { '}' }\n";
    let function = |name: &str, lines, flags| Function { name: name.to_owned(), lines, flags };
    let expected = [function("e", 1, 1), function("a", 4, 2), function("h", 2, 1), function("o", 1, 0)];
    assert_eq!(functions(code), expected);
}
