//! Builds values from the tokens of documents, and finds the positions of paths in them.
//!
//! Invariant: depth, time and memory stay within the budget. An alias counts as much as the value that it refers to.
//! Invariant: a merge (`<<`) takes effect at its position, as in `kubectl`: its keys override those above it and are
//! overridden by those below it. Among several sources, the first one takes precedence.

use std::collections::HashMap;
use std::mem;

use serde_json::{Map, Value};

use super::limits::{Budget, Spent};
use super::tokens::{Fault, Mark, Token, Tokens};
use mainstay_object::Step;

/// Memory of a value, including the spare capacity of a growing list.
const VALUE: usize = 3 * size_of::<Value>();
/// Memory of an anchor in the loader and in the parser, besides its value.
const ANCHOR: usize = 256;
/// Memory of a map with a few entries, and memory of each further entry.
const MAP: usize = 640;
const ENTRY: usize = 64;
/// Maximum number of errors of one document before reading stops.
const MAX_FAULTS: usize = 50;

/// A loaded document, as far as it could be read.
#[derive(Debug, Default)]
pub(super) struct Loaded {
    /// The value; null if the document is empty or could not be read.
    pub(super) value: Value,
    /// The start of the document.
    pub(super) mark: Mark,
    /// The starts of the items in the top-level `items` of the document.
    pub(super) items: Vec<Mark>,
    /// All errors.
    pub(super) faults: Vec<Fault>,
    /// Memory of the value, to be returned to the budget when the value is dropped.
    pub(super) cost: usize,
    /// The part of `cost` that aliases take.
    pub(super) aliased: usize,
    /// Whether reading stopped before the end of the document.
    pub(super) cut_short: bool,
    /// Whether the time of the file is exhausted.
    pub(super) out_of_time: bool,
}

struct Anchored {
    value: Value,
    cost: usize,
    height: usize,
}

struct Loader<'b, 'l, T> {
    tokens: &'b mut T,
    budget: &'b mut Budget<'l>,
    anchors: HashMap<usize, Anchored>,
    loaded: Loaded,
    /// Number of tokens so far. The number of its first token identifies a map when the first position of a duplicate
    /// key is looked up.
    read: usize,
    duplicates: Vec<(usize, String, Mark)>,
}

/// Loads one document. `again` returns new tokens from the start of the document, and is called only for duplicate
/// keys.
pub(super) fn load<'t, T: Tokens<'t>>(tokens: &mut T, again: impl Fn() -> T, budget: &mut Budget<'_>) -> Loaded {
    let before = budget.left();
    let mut loader =
        Loader { tokens, budget, anchors: HashMap::new(), loaded: Loaded::default(), read: 0, duplicates: Vec::new() };
    if let Err(fault) = loader.document() {
        loader.loaded.value = Value::Null;
        loader.loaded.cut_short = true;
        loader.loaded.faults.push(fault);
    }
    let Loader { budget, anchors, mut loaded, duplicates, .. } = loader;
    drop(anchors);
    for (map, key, mark) in duplicates {
        let first = first_key(&mut again(), map, &key).map_or(0, |mark| mark.line);
        loaded.faults.push(
            Fault::new(mark, format!("the key {} is defined twice; first on line {first}", shown(&key)))
                .with_hint("keep one of the two"),
        );
    }
    loaded.faults.sort_by_key(|fault| (fault.mark.line, fault.mark.column));
    loaded.cost = before.saturating_sub(budget.left());
    loaded
}

/// Returns a key in quotes, shortened.
fn shown(key: &str) -> String {
    format!("{:?}", key.chars().take(100).collect::<String>())
}

type Node = (Value, usize, usize);

impl<'t, T: Tokens<'t>> Loader<'_, '_, T> {
    fn document(&mut self) -> Result<(), Fault> {
        let Some((token, mark)) = self.tokens.next()? else { return Ok(()) };
        self.loaded.mark = mark;
        let (value, ..) = self.node(token, mark, 0)?;
        self.loaded.value = value;
        if let Some((_, mark)) = self.tokens.next()? {
            return Err(Fault::new(mark, "there is content after the end of the document"));
        }
        Ok(())
    }

    fn next(&mut self) -> Result<(Token<'t>, Mark), Fault> {
        self.read += 1;
        match self.tokens.next()? {
            Some(token) => Ok(token),
            None => Err(Fault::new(self.loaded.mark, "the document ends too early")),
        }
    }

    fn spend(&mut self, bytes: usize, mark: Mark) -> Result<(), Fault> {
        self.budget.take(bytes).map_err(|spent| self.spent(spent, mark))
    }

    fn spent(&mut self, spent: Spent, mark: Mark) -> Fault {
        self.loaded.out_of_time |= spent == Spent::Time;
        Fault::new(mark, spent.what()).with_hint(match spent {
            Spent::Time => "split the file",
            Spent::Memory => "split the document, or use fewer aliases",
        })
    }

    fn note(&mut self, fault: Fault) {
        if self.loaded.faults.len() < MAX_FAULTS {
            self.loaded.faults.push(fault);
        }
    }

    /// Returns the value that begins with this token, the memory of the value, and its depth.
    fn node(&mut self, token: Token<'t>, mark: Mark, depth: usize) -> Result<Node, Fault> {
        self.budget.step().map_err(|spent| self.spent(spent, mark))?;
        let (node, anchor) = match token {
            Token::Alias(anchor) => return self.alias(anchor, mark, depth),
            Token::Scalar { value, anchor, .. } => {
                let value = value.and_then(super::scalar::Scalar::into_value).unwrap_or_else(|unusable| {
                    self.note(Fault::new(mark, unusable.what()).with_hint("put the value in quotes"));
                    Value::Null
                });
                let cost = VALUE + value.as_str().map_or(0, str::len);
                self.spend(cost, mark)?;
                ((value, cost, 0), anchor)
            }
            Token::List { anchor } => (self.list(mark, depth, false)?, anchor),
            Token::Map { anchor } => (self.map(mark, depth)?, anchor),
            Token::End => return Err(Fault::new(mark, "a value is missing")),
        };
        if anchor != 0 {
            self.spend(ANCHOR + node.1, mark)?;
            let (value, cost, height) = node.clone();
            self.anchors.insert(anchor, Anchored { value, cost, height });
        }
        Ok(node)
    }

    fn alias(&mut self, anchor: usize, mark: Mark, depth: usize) -> Result<Node, Fault> {
        let Some(Anchored { cost, height, .. }) = self.anchors.get(&anchor) else {
            return Err(Fault::new(mark, "the alias is inside the value that it refers to"));
        };
        let (cost, height) = (*cost, *height);
        self.nested(mark, depth + height)?;
        self.spend(cost, mark)?;
        self.loaded.aliased += cost;
        Ok((self.anchors[&anchor].value.clone(), cost, height))
    }

    fn nested(&self, mark: Mark, depth: usize) -> Result<(), Fault> {
        let most = self.budget.limits().depth;
        if depth > most {
            return Err(Fault::new(mark, format!("the document is nested more than {most} deep")));
        }
        Ok(())
    }

    fn list(&mut self, mark: Mark, depth: usize, record: bool) -> Result<Node, Fault> {
        self.nested(mark, depth + 1)?;
        self.spend(VALUE, mark)?;
        let (mut items, mut cost, mut height) = (Vec::new(), VALUE, 0);
        loop {
            let (token, mark) = self.next()?;
            if token == Token::End {
                items.shrink_to_fit();
                return Ok((Value::Array(items), cost, height + 1));
            }
            if record {
                self.loaded.items.push(mark);
            }
            let (value, more, below) = self.node(token, mark, depth + 1)?;
            items.push(value);
            cost += more;
            height = height.max(below);
        }
    }

    fn map(&mut self, mark: Mark, depth: usize) -> Result<Node, Fault> {
        self.nested(mark, depth + 1)?;
        self.spend(MAP, mark)?;
        let number = self.read;
        let (mut map, mut cost, mut height) = (Map::new(), MAP, 0);
        // Keys from a merge. The map may define these keys again.
        let mut merged: Option<Vec<String>> = None;
        loop {
            let (token, mark) = self.next()?;
            if token == Token::End {
                return Ok((Value::Object(map), cost, height + 1));
            }
            let merge = matches!(token, Token::Scalar { merge: true, .. });
            let key = if merge { None } else { self.key(token, mark, depth)? };
            let (token, value_mark) = self.next()?;
            let items = depth == 0 && key.as_deref() == Some("items");
            let (value, more, below) = match token {
                Token::List { anchor: 0 } if items => self.list(value_mark, depth + 1, true)?,
                token => self.node(token, value_mark, depth + 1)?,
            };
            cost += more;
            height = height.max(below);
            if merge {
                self.merge(&mut map, value, value_mark, merged.get_or_insert_default())?;
            } else if let Some(key) = key {
                let entry = ENTRY + key.len();
                self.spend(entry, mark)?;
                cost += entry;
                let from_merge = merged.as_mut().is_some_and(|merged| {
                    merged.binary_search(&key).is_ok_and(|at| !merged.remove(at).is_empty() || key.is_empty())
                });
                if !from_merge && map.contains_key(&key) && self.duplicates.len() < MAX_FAULTS {
                    self.duplicates.push((number, key.clone(), mark));
                }
                map.insert(key, value);
            }
        }
    }

    /// Returns the string of a key; `None` after an error.
    fn key(&mut self, token: Token<'t>, mark: Mark, depth: usize) -> Result<Option<String>, Fault> {
        let key = match token {
            Token::Scalar { value: Ok(scalar), anchor, .. } => {
                if anchor != 0 {
                    let value = scalar.clone().into_value().unwrap_or(Value::Null);
                    let cost = VALUE + value.as_str().map_or(0, str::len);
                    self.spend(ANCHOR + cost, mark)?;
                    self.anchors.insert(anchor, Anchored { value, cost, height: 0 });
                }
                scalar.into_key().ok()
            }
            token => match self.node(token, mark, depth + 1)?.0 {
                Value::String(text) => Some(text),
                Value::Number(number) => Some(number.to_string()),
                Value::Bool(bool) => Some(bool.to_string()),
                _ => None,
            },
        };
        if key.is_none() {
            self.note(Fault::new(mark, super::scalar::Unusable::Key.what()));
        }
        Ok(key)
    }

    fn merge(
        &mut self,
        map: &mut Map<String, Value>,
        value: Value,
        mark: Mark,
        seen: &mut Vec<String>,
    ) -> Result<(), Fault> {
        let sources = match value {
            Value::Array(sources) => sources,
            source => vec![source],
        };
        // The first source takes precedence over later ones, and all sources take precedence over the keys above.
        for source in sources.into_iter().rev() {
            let Value::Object(mut source) = source else {
                self.note(Fault::new(mark, "a merge (`<<`) needs a map, or a list of maps"));
                continue;
            };
            for (key, value) in mem::take(&mut source) {
                self.budget.step().map_err(|spent| self.spent(spent, mark))?;
                self.spend(ENTRY + 2 * key.len(), mark)?;
                seen.push(key.clone());
                map.insert(key, value);
            }
        }
        seen.sort_unstable();
        seen.dedup();
        Ok(())
    }
}

/// Returns the position of a path: the position of its last key or item, or of the nearest parent that the text
/// contains.
pub(super) fn locate<'t>(tokens: &mut impl Tokens<'t>, path: &[Step]) -> Option<Mark> {
    let (mut token, mut best) = tokens.next().ok()??;
    for step in path {
        let found = match (token, step) {
            (Token::Map { .. }, Step::Key(wanted)) => find_key(tokens, wanted),
            (Token::List { .. }, Step::Item(wanted)) => find_item(tokens, *wanted),
            _ => None,
        };
        let Some((next, mark)) = found else { break };
        (token, best) = (next, mark);
    }
    Some(best)
}

fn find_key<'t>(tokens: &mut impl Tokens<'t>, wanted: &str) -> Option<(Token<'t>, Mark)> {
    loop {
        let (key, mark) = tokens.next().ok()??;
        let matches = match key {
            Token::End => return None,
            Token::Scalar { value: Ok(scalar), .. } => scalar.into_key().is_ok_and(|key| key == wanted),
            other => {
                skip(tokens, &other)?;
                false
            }
        };
        let (value, _) = tokens.next().ok()??;
        if matches {
            return Some((value, mark));
        }
        skip(tokens, &value)?;
    }
}

fn find_item<'t>(tokens: &mut impl Tokens<'t>, wanted: usize) -> Option<(Token<'t>, Mark)> {
    for _ in 0..wanted {
        let (item, _) = tokens.next().ok()??;
        if item == Token::End {
            return None;
        }
        skip(tokens, &item)?;
    }
    tokens.next().ok()?.filter(|(token, _)| *token != Token::End)
}

/// Skips to the end of the value that begins with this token.
fn skip<'t>(tokens: &mut impl Tokens<'t>, token: &Token<'t>) -> Option<()> {
    let mut open = usize::from(matches!(token, Token::List { .. } | Token::Map { .. }));
    while open > 0 {
        match tokens.next().ok()??.0 {
            Token::List { .. } | Token::Map { .. } => open += 1,
            Token::End => open -= 1,
            _ => {}
        }
    }
    Some(())
}

/// Returns the first position of a key in the map whose first token has the number `map`.
fn first_key<'t>(tokens: &mut impl Tokens<'t>, map: usize, wanted: &str) -> Option<Mark> {
    for _ in 0..=map {
        tokens.next().ok()??;
    }
    find_key(tokens, wanted).map(|(_, mark)| mark)
}
