//! The keys of decoded documents in the cluster, and every reason why a commit cannot be applied.

use std::fmt::Write as _;
use std::sync::Arc;

use mainstay_gitsync::placement::{Placing, Reach, Served, place};
use mainstay_object::{Object, Place};
use serde::Deserialize;
use serde_json::Value;

use crate::{LABEL, NAMESPACE, check, kind};

/// The documents of a commit.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Case {
    #[serde(rename = "case")]
    _title: String,
    git: Vec<Value>,
    /// Kinds that the cluster does not serve, as `example.org/v1 Widget`.
    #[serde(default)]
    unknown: Vec<String>,
    /// Kinds that the cluster serves but cannot patch.
    #[serde(default)]
    unpatchable: Vec<String>,
    target_namespace: Option<String>,
    /// Whether the GitSync may change its own namespace only.
    #[serde(default)]
    confined: bool,
}

fn decide(case: &Case) -> String {
    let at = |number: usize| Place {
        line: 1,
        ..Place { document: u32::try_from(number).unwrap() + 1, ..Place::file("a.yaml") }
    };
    let documents = case.git.iter().enumerate();
    let objects = documents.map(|(number, document)| Arc::new(Object::from_value(document, at(number)).unwrap()));
    let objects = objects.collect::<Vec<_>>();
    let served = objects.iter().map(|object| {
        let (api_version, name) = (&object.api_version, &object.key.kind);
        let text = format!("{api_version} {name}");
        let mut kind = kind(api_version, name);
        if case.unpatchable.contains(&text) {
            Arc::make_mut(&mut kind).patchable = false;
        }
        ((Arc::clone(api_version), Arc::clone(name)), (!case.unknown.contains(&text)).then_some(kind))
    });
    let placing = Placing {
        own_namespace: NAMESPACE,
        target_namespace: case.target_namespace.as_deref().unwrap_or(NAMESPACE),
        label: &LABEL.into(),
        reach: if case.confined { Reach::OwnNamespace } else { Reach::Cluster },
        ignore: &mainstay_engine::managed::IgnoreRules::default(),
    };
    let mut text = String::new();
    match place(&objects, &served.collect::<Served>(), &placing) {
        Ok(placed) => {
            for desired in placed {
                let _ = writeln!(text, "{}, labelled {:?}", desired.key, desired.label());
            }
        }
        Err(unplaced) => {
            for problem in unplaced.problems {
                let _ = writeln!(text, "problem: {problem}");
            }
            if unplaced.lacks_kinds_only {
                text.push_str("tried again before long\n");
            }
        }
    }
    text
}

#[test]
fn documents_are_placed_or_refused_all_at_once() {
    check("placement", decide);
}
