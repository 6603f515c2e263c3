//! Finds circles of files in a crate that refer to each other.
//!
//! A file refers to another if its code names an item that is defined there, directly or through re-exports. A front
//! page may re-export items of its files without depending on them. An item that a file uses through a front page
//! counts as a reference to the defining file.
//!
//! Not here: methods (Cargo restricts calls between crates), macros, and items that only tests compile.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use super::code::without_tests;
use super::sources;

/// A module path from the crate's root.
type Module = Vec<String>;

/// The tokens of a file without comments, literals and tests.
struct File {
    imports: Vec<Import>,
    /// The tokens outside of imports.
    body: Vec<String>,
}

/// An imported name.
struct Import {
    path: Vec<String>,
    /// The local name; `*` for a glob.
    name: String,
}

/// Returns the circles of the crate with this source folder: sorted groups of files (without `.rs`).
pub(crate) fn circles(root: &str) -> Vec<Vec<String>> {
    let files = sources(root).into_iter().filter_map(|path| {
        let module = module(path.strip_prefix(root).ok()?)?;
        Some((module, parse(&fs::read_to_string(&path).ok()?)))
    });
    Crate(files.collect()).circles()
}

fn module(path: &Path) -> Option<Module> {
    let mut names: Module =
        path.with_extension("").iter().filter_map(|name| name.to_str()).map(str::to_owned).collect();
    if names.iter().any(|name| name == "tests") || names == ["main"] {
        return None;
    }
    if matches!(names.last().map(String::as_str), Some("mod" | "lib")) {
        names.pop();
    }
    Some(names)
}

struct Crate(BTreeMap<Module, File>);

impl Crate {
    fn circles(&self) -> Vec<Vec<String>> {
        let edges: BTreeMap<&Module, BTreeSet<Module>> =
            self.0.iter().map(|(module, file)| (module, self.named_by(module, file))).collect();
        let reached: BTreeMap<&Module, BTreeSet<&Module>> = edges
            .keys()
            .map(|from| {
                let (mut seen, mut open) = (BTreeSet::new(), vec![*from]);
                while let Some(next) = open.pop() {
                    open.extend(edges[next].iter().filter(|to| seen.insert(*to)));
                }
                (*from, seen)
            })
            .collect();
        let circle = |of: &Module| -> Vec<String> {
            let back = reached[of].iter().filter(|other| reached[**other].contains(of));
            back.map(|other| if other.is_empty() { "lib".to_owned() } else { other.join("/") }).collect()
        };
        let all: BTreeSet<Vec<String>> = reached.keys().map(|module| circle(module)).collect();
        all.into_iter().filter(|circle| circle.len() > 1).collect()
    }

    /// Returns the other files that define the names in a file.
    fn named_by(&self, module: &Module, file: &File) -> BTreeSet<Module> {
        let mut named = BTreeSet::new();
        for import in &file.imports {
            let Some(mut path) = self.absolute(module, &import.path) else { continue };
            if import.name == "*" {
                path.pop();
            }
            let Some(defined) = self.defined(&path, &mut Vec::new()) else { continue };
            if !file.body.contains(&import.name) && defined.starts_with(module) {
                continue; // a front page re-exports items of its files
            }
            let members: Vec<String> =
                if self.0.contains_key(&path) { members(&file.body, &import.name) } else { Vec::new() };
            for member in &members {
                let path = [path.as_slice(), std::slice::from_ref(member)].concat();
                named.extend(self.defined(&path, &mut Vec::new()));
            }
            if members.is_empty() {
                named.insert(defined);
            }
        }
        for path in paths(&file.body) {
            let first = path[0].as_str();
            let child = [module.as_slice(), &path[..1]].concat();
            if matches!(first, "crate" | "super" | "self") || self.0.contains_key(&child) {
                let path = self.absolute(module, &path);
                named.extend(path.and_then(|path| self.defined(&path, &mut Vec::new())));
            }
        }
        named.remove(module);
        named
    }

    /// Resolves a path from the crate's root; `None` for another crate.
    fn absolute(&self, module: &Module, path: &[String]) -> Option<Vec<String>> {
        let supers = path.iter().take_while(|name| *name == "super").count();
        let child = [module.as_slice(), path.get(..1)?].concat();
        match path[0].as_str() {
            "crate" => Some(path[1..].to_vec()),
            "self" => Some([module, &path[1..]].concat()),
            "super" => Some([module.get(..module.len().checked_sub(supers)?)?, &path[supers..]].concat()),
            _ => self.0.contains_key(&child).then(|| [module, path].concat()),
        }
    }

    /// Returns the file that defines the item of a path.
    fn defined(&self, path: &[String], seen: &mut Vec<(Module, String)>) -> Option<Module> {
        let length = (0..=path.len()).rev().find(|length| self.0.contains_key(&path[..*length]))?;
        let (module, rest) = (path[..length].to_vec(), &path[length..]);
        let Some(name) = rest.first() else { return Some(module) };
        let step = (module.clone(), name.clone());
        if seen.contains(&step) {
            return Some(module);
        }
        seen.push(step);
        let imports = &self.0[&module].imports;
        if let Some(import) = imports.iter().find(|import| import.name == *name) {
            let path = [self.absolute(&module, &import.path)?.as_slice(), &rest[1..]].concat();
            return self.defined(&path, seen);
        }
        let all = imports.iter().filter(|import| import.name == "*");
        let mut from = all.filter_map(|import| {
            let mut path = self.absolute(&module, &import.path)?;
            path.pop();
            Some(path)
        });
        let defines = |other: &Module| self.0.get(other).is_some_and(|file| defines(&file.body, name));
        Some(from.find(defines).unwrap_or(module))
    }
}

/// Whether code defines an item with this name.
fn defines(body: &[String], name: &str) -> bool {
    let kinds = ["fn", "struct", "enum", "trait", "type", "const", "static", "union", "mod"];
    body.windows(2).any(|pair| kinds.contains(&pair[0].as_str()) && pair[1] == name)
}

/// Returns the names after `name::` in code.
fn members(body: &[String], name: &str) -> Vec<String> {
    let after = body.windows(3).filter(|tokens| tokens[0] == name && tokens[1] == "::");
    after.map(|tokens| tokens[2].clone()).filter(|member| is_word(member)).collect()
}

/// Returns paths of two or more names.
fn paths(body: &[String]) -> Vec<Vec<String>> {
    let (mut found, mut at) = (Vec::new(), 0);
    while at < body.len() {
        let mut path = vec![body[at].clone()];
        at += 1;
        if !is_word(&path[0]) {
            continue;
        }
        while at + 1 < body.len() && body[at] == "::" && is_word(&body[at + 1]) {
            path.push(body[at + 1].clone());
            at += 2;
        }
        if path.len() > 1 {
            found.push(path);
        }
    }
    found
}

fn is_word(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

fn parse(text: &str) -> File {
    let tokens = tokens(&without_tests(text));
    let (mut imports, mut body, mut at) = (Vec::new(), Vec::new(), 0);
    while at < tokens.len() {
        if tokens[at] == "use" {
            let end = tokens[at..].iter().position(|token| token == ";").map_or(tokens.len(), |length| at + length);
            tree(&tokens[at + 1..end], &[], &mut imports);
            at = end + 1;
        } else if tokens[at] == "pub" && tokens.get(at + 1).is_some_and(|token| token == "(") {
            at += tokens[at..].iter().position(|token| token == ")").unwrap_or(0) + 1;
        } else {
            body.push(tokens[at].clone());
            at += 1;
        }
    }
    File { imports, body }
}

/// Collects the names that a tree of paths imports. Returns its number of tokens.
fn tree(tokens: &[String], prefix: &[String], imports: &mut Vec<Import>) -> usize {
    let (mut path, mut at) = (prefix.to_vec(), 0);
    while let Some(token) = tokens.get(at) {
        match token.as_str() {
            "::" => at += 1,
            "{" => {
                at += 1;
                while tokens.get(at).is_some_and(|token| token != "}") {
                    at += tree(&tokens[at..], &path, imports);
                    at += usize::from(tokens.get(at).is_some_and(|token| token == ","));
                }
                return at + 1;
            }
            "as" => {
                let name = tokens.get(at + 1).cloned().unwrap_or_default();
                imports.push(Import { path, name });
                return at + 2;
            }
            "self" if !prefix.is_empty() && at == 0 => at += 1,
            "," | "}" => break,
            name => {
                path.push(name.to_owned());
                at += 1;
            }
        }
    }
    let name = path.last().cloned().unwrap_or_default();
    imports.push(Import { path, name });
    at
}

/// Splits code into words, `::` and single characters, without comments and literals.
fn tokens(code: &str) -> Vec<String> {
    let (mut tokens, mut rest) = (Vec::new(), code);
    while let Some(first) = rest.chars().next() {
        let word = rest.len() - rest.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_').len();
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if let Some(length) = literal(rest) {
            length
        } else if word > 0 {
            tokens.push(rest[..word].to_owned());
            word
        } else if rest.starts_with("::") {
            tokens.push("::".to_owned());
            2
        } else {
            if !first.is_whitespace() {
                tokens.push(first.to_string());
            }
            first.len_utf8()
        };
        rest = &rest[skipped..];
    }
    tokens
}

/// Returns the length of a literal at the start of code; `None` for a lifetime and other code.
pub(crate) fn literal(code: &str) -> Option<usize> {
    let raw = code.strip_prefix('b').unwrap_or(code).strip_prefix('r');
    if let Some(opened) = raw {
        let signs = opened.len() - opened.trim_start_matches('#').len();
        if opened[signs..].starts_with('"') {
            let (start, end) = (code.len() - opened.len() + signs + 1, format!("\"{}", "#".repeat(signs)));
            return Some(code[start..].find(&end).map_or(code.len(), |length| start + length + end.len()));
        }
    }
    let quote = code.strip_prefix('b').unwrap_or(code);
    let quoted = quote.chars().next().filter(|sign| matches!(sign, '"' | '\''))?;
    let mut inside = quote.char_indices().skip(1);
    if quoted == '\'' {
        let (_, first) = inside.next()?;
        if first == '\\' {
            inside.next();
        } else if inside.clone().next()?.1 != '\'' {
            return None; // a lifetime
        }
    }
    let start = code.len() - quote.len();
    while let Some((at, sign)) = inside.next() {
        if sign == '\\' {
            inside.next();
        } else if sign == quoted {
            return Some(start + at + 1);
        }
    }
    Some(code.len())
}

#[test]
fn a_circle_goes_through_re_exports_but_not_through_front_pages() {
    let check = |files: &[(&str, &str)], expected: &[&[&str]]| {
        let module =
            |name: &str| if name == "lib" { Module::new() } else { name.split('/').map(str::to_owned).collect() };
        let files = files.iter().map(|(name, text)| (module(name), parse(text))).collect();
        assert_eq!(Crate(files).circles(), expected, "{expected:?}");
    };
    let front = ("a", "mod b;\nmod c;\npub use self::b::{B, make};\npub use c::C as D;");
    check(&[front, ("a/b", "use super::D; // super::c\nstruct B(D);"), ("a/c", "pub struct C;")], &[]);
    check(&[front, ("a/b", "use super::D;\nstruct B(D);"), ("a/c", "fn c() { super::make() }")], &[&["a/b", "a/c"]]);
    let back = ("x", "fn x() -> &'static str { crate::a::D::new(\"crate::x\", 'c'); r#\"super::x\"# }");
    check(&[front, ("a/b", "struct B;"), ("a/c", "use crate::x as y;\nfn c() { y::x() }"), back], &[&["a/c", "x"]]);
    check(&[("lib", "pub mod a;\npub fn top() {}"), ("a", "use super::*;\nfn f() { self::g() }\nfn g() {}")], &[]);
    check(
        &[
            ("lib", "mod a;\nfn top() { a::f() }"),
            ("a", "mod b;\npub(in crate::a) fn f() {}"),
            ("a/b", "use super::f;"),
        ],
        &[],
    );
    check(&[("lib", "mod a;\nfn top() { a::f() }"), ("a", "fn f() { crate::top() }")], &[&["lib", "a"]]);
}
