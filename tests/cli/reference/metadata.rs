//! The page of the labels and annotations, from their table.

use std::fmt::Write as _;

use mainstay_api::metadata::{METADATA, Metadata};
use mainstay_api::names::KEEPS;

use super::{cell, check_page};

#[test]
fn labels_and_annotations_are_those_of_the_table() {
    let mut text = "[Reverts](../drift/drift.md) exempt annotations of `mainstay.dev` on live objects.\n".to_owned();
    for (title, what) in [
        ("Annotations", Metadata::Annotation),
        ("Labels", Metadata::Label),
        ("Labels or annotations", Metadata::Either),
        ("Images", Metadata::Image),
    ] {
        write!(text, "\n## {title}\n\n| key | on | set by | values | meaning |\n|---|---|---|---|---|\n").unwrap();
        for row in METADATA.iter().filter(|row| row.what == what) {
            let [on, by, values, meaning] = [row.on, row.by, row.values, row.meaning].map(cell);
            writeln!(text, "| `{}` | {on} | {by} | {values} | {meaning} |", row.key).unwrap();
        }
    }
    text += "\n## Annotations that keep an object\n\n[Deletions](../safety/deletions.md) explains them.\n\n";
    for keeps in KEEPS {
        writeln!(text, "- `{keeps}`").unwrap();
    }
    check_page("labels-and-annotations", "Labels and annotations", &text);
}
