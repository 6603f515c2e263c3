//! Sets of field paths: `fieldsV1` as a trie.
//!
//! Invariant: every node has a member at or below it. All operations remove empty branches.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Element {
    /// A field or map key (`f:name`).
    Field(String),
    /// A list item by its keys, as canonical JSON (`k:{"name":"a"}`).
    Key(String),
    /// A set item by its value, as canonical JSON (`v:"a"`).
    Item(String),
    /// A list item by its index (`i:0`).
    Index(u64),
}

impl Element {
    fn encode(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Key(keys) => format!("k:{keys}"),
            Self::Item(value) => format!("v:{value}"),
            Self::Index(at) => format!("i:{at}"),
        }
    }

    fn decode(text: &str) -> Option<Self> {
        let (tag, rest) = text.split_once(':')?;
        match tag {
            "f" => Some(Self::Field(rest.to_owned())),
            // Parsed and formatted again, so that equal keys give equal elements, however they are spelled.
            "k" => match serde_json::from_str::<Value>(rest).ok()? {
                keys @ Value::Object(_) => Some(Self::Key(keys.to_string())),
                _ => None,
            },
            "v" => Some(Self::Item(serde_json::from_str::<Value>(rest).ok()?.to_string())),
            "i" => rest.parse().ok().map(Self::Index),
            _ => None,
        }
    }

    /// Formats the element for errors: `.name`, `[name="a"]`, `[="a"]`, `[0]`.
    pub(crate) fn show(&self) -> String {
        match self {
            Self::Field(name) => format!(".{name}"),
            Self::Key(keys) => {
                let keys: Map<String, Value> = serde_json::from_str(keys).unwrap_or_default();
                let pairs = keys.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>();
                format!("[{}]", pairs.join(","))
            }
            Self::Item(value) => format!("[={value}]"),
            Self::Index(at) => format!("[{at}]"),
        }
    }
}

/// A set of paths. The node itself may be a member (`.`), and may have paths below it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FieldSet {
    pub member: bool,
    pub children: BTreeMap<Element, FieldSet>,
}

impl FieldSet {
    /// Returns the set with only the empty path.
    pub(crate) fn leaf() -> Self {
        Self { member: true, children: BTreeMap::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.member && self.children.is_empty()
    }

    /// Adds a subset under an element, unless it is empty.
    pub(crate) fn put(&mut self, element: Element, child: Self) {
        if !child.is_empty() {
            self.children.insert(element, child);
        }
    }

    /// Returns the node at a path of elements, and creates it if missing.
    pub(crate) fn entry(&mut self, path: impl IntoIterator<Item = Element>) -> &mut Self {
        path.into_iter().fold(self, |node, element| node.children.entry(element).or_default())
    }

    /// Adds all paths of `other`.
    pub(crate) fn unite(&mut self, other: &Self) {
        self.member |= other.member;
        for (element, child) in &other.children {
            self.children.entry(element.clone()).or_default().unite(child);
        }
    }

    /// Removes the paths of `other`, but not the paths below them.
    pub(crate) fn subtract(&mut self, other: &Self) {
        self.member &= !other.member;
        for (element, gone) in &other.children {
            if let Some(child) = self.children.get_mut(element) {
                child.subtract(gone);
                if child.is_empty() {
                    self.children.remove(element);
                }
            }
        }
    }

    /// Returns the common paths.
    pub(crate) fn intersection(&self, other: &Self) -> Self {
        let mut common = Self { member: self.member && other.member, children: BTreeMap::new() };
        for (element, child) in &self.children {
            if let Some(theirs) = other.children.get(element) {
                common.put(element.clone(), child.intersection(theirs));
            }
        }
        common
    }

    /// Returns whether the set has a path of fields, or a path below it.
    pub(crate) fn has(&self, path: &[&str]) -> bool {
        let Some((first, rest)) = path.split_first() else { return !self.is_empty() };
        self.children.get(&Element::Field((*first).to_owned())).is_some_and(|child| child.has(rest))
    }

    /// Removes a path of fields and all paths below it.
    pub(crate) fn cut(&mut self, path: &[&str]) {
        let Some((first, rest)) = path.split_first() else { return };
        let element = Element::Field((*first).to_owned());
        if rest.is_empty() {
            self.children.remove(&element);
        } else if let Some(child) = self.children.get_mut(&element) {
            child.cut(rest);
            if child.is_empty() {
                self.children.remove(&element);
            }
        }
    }

    /// Returns every path as text. A node comes before its children.
    pub(crate) fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        self.collect("", &mut paths);
        paths
    }

    fn collect(&self, prefix: &str, paths: &mut Vec<String>) {
        let named = self.children.iter().map(|(element, child)| (format!("{prefix}{}", element.show()), child));
        let named = named.collect::<Vec<_>>();
        paths.extend(named.iter().filter(|(_, child)| child.member).map(|(path, _)| path.clone()));
        for (path, child) in &named {
            child.collect(path, paths);
        }
    }

    /// Returns the value of `fieldsV1`.
    pub(crate) fn encode(&self) -> Value {
        let mut map = Map::new();
        if self.member && !self.children.is_empty() {
            map.insert(".".into(), Value::Object(Map::new()));
        }
        for (element, child) in &self.children {
            map.insert(element.encode(), child.encode());
        }
        Value::Object(map)
    }

    /// Parses `fieldsV1`; `None` if it is invalid.
    pub(crate) fn decode(value: &Value) -> Option<Self> {
        let mut set = Self::decode_node(value)?;
        set.member = false;
        Some(set)
    }

    fn decode_node(value: &Value) -> Option<Self> {
        let map = value.as_object()?;
        let mut set = Self { member: map.is_empty() || map.contains_key("."), children: BTreeMap::new() };
        for (key, child) in map.iter().filter(|(key, _)| *key != ".") {
            set.put(Element::decode(key)?, Self::decode_node(child)?);
        }
        Some(set)
    }
}
