//! Descriptions of Table columns, in the words of a real server.
//!
//! Not here: the columns themselves.

use serde::Deserialize;
use std::{collections::HashMap, sync::OnceLock};

/// The texts, and the indices of the texts for each kind's columns.
#[derive(Deserialize)]
struct Recorded {
    texts: Vec<String>,
    columns: HashMap<String, Vec<usize>>,
}

fn recorded() -> &'static Recorded {
    static RECORDED: OnceLock<Recorded> = OnceLock::new();
    RECORDED.get_or_init(|| {
        serde_json::from_str(include_str!("../data/column-descriptions.json"))
            .expect("the embedded descriptions of columns are JSON")
    })
}

/// Returns the description of a built-in kind's column; empty if there is none.
pub(super) fn of(path: &str, column: usize) -> &'static str {
    let recorded = recorded();
    let text = recorded.columns.get(path).and_then(|columns| columns.get(column));
    text.and_then(|text| recorded.texts.get(*text)).map_or("", String::as_str)
}

/// Returns the description of the name column.
pub(super) fn name() -> &'static str {
    of("/api/v1/configmaps", 0)
}

/// Returns the description of the age column.
pub(super) fn age() -> &'static str {
    of("/api/v1/configmaps", 2)
}
