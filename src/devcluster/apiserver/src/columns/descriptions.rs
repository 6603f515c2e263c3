//! Descriptions of the columns of Tables, in the words of a real server.
//!
//! Deliberately absent: the columns themselves.

use serde::Deserialize;
use std::{collections::HashMap, sync::OnceLock};

/// The texts, and for each kind which of them its columns have.
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

/// The description of a column of a built-in kind, empty when there is none.
pub(super) fn of(path: &str, column: usize) -> &'static str {
    let recorded = recorded();
    let text = recorded.columns.get(path).and_then(|columns| columns.get(column));
    text.and_then(|text| recorded.texts.get(*text)).map_or("", String::as_str)
}

/// The description of the column with the names.
pub(super) fn name() -> &'static str {
    of("/api/v1/configmaps", 0)
}

/// The description of the column with the ages.
pub(super) fn age() -> &'static str {
    of("/api/v1/configmaps", 2)
}
