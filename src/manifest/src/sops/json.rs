//! Parses a JSON document into a tree.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::scalar::Scalar;
use super::tree::{Member, Node, Unreadable};

/// Parses a document. The parser bounds the depth.
pub(super) fn parse(text: &str) -> Result<Option<Node>, Unreadable> {
    serde_json::from_str::<Node>(text).map(Some).map_err(|_| Unreadable::Syntax)
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> Result<Node, E> {
        Ok(Node::Leaf(Scalar::Null))
    }

    fn visit_bool<E: Error>(self, bool: bool) -> Result<Node, E> {
        Ok(Node::Leaf(Scalar::Bool(bool)))
    }

    fn visit_i64<E: Error>(self, int: i64) -> Result<Node, E> {
        Ok(Node::Leaf(Scalar::Int(int)))
    }

    #[expect(clippy::cast_precision_loss, reason = "so it is read by SOPS")]
    fn visit_u64<E: Error>(self, int: u64) -> Result<Node, E> {
        Ok(Node::Leaf(i64::try_from(int).map_or(Scalar::Float(int as f64), Scalar::Int)))
    }

    fn visit_f64<E: Error>(self, float: f64) -> Result<Node, E> {
        Ok(Node::Leaf(Scalar::Float(float)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Node, E> {
        Ok(Node::Leaf(Scalar::Text(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        let mut members = Vec::new();
        while let Some(node) = items.next_element()? {
            members.push(Member { key: String::new(), comments: Vec::new(), node });
        }
        Ok(Node::List(members))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Node, A::Error> {
        let mut members = Vec::new();
        while let Some((key, node)) = entries.next_entry()? {
            members.push(Member { key, comments: Vec::new(), node });
        }
        Ok(Node::Map(members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_order_and_the_kinds() {
        let tree = parse(r#"{"z": 1, "a": [true, null, "x", 1.5, 1e2]}"#).unwrap().unwrap();
        let Node::Map(members) = &tree else { panic!("{tree:?}") };
        assert_eq!(members.iter().map(|member| &*member.key).collect::<Vec<_>>(), ["z", "a"]);
        let items: Vec<_> = tree.items("a").cloned().collect();
        let leaf = |scalar| Node::Leaf(scalar);
        assert_eq!(
            items,
            [
                leaf(Scalar::Bool(true)),
                leaf(Scalar::Null),
                leaf(Scalar::Text("x".to_owned())),
                leaf(Scalar::Float(1.5)),
                leaf(Scalar::Float(100.0))
            ]
        );
        for text in ["{", "", "{}x", &"[".repeat(5000)] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
