//! Fuzz targets for parsers of hostile input. Each target accepts any bytes, ends soon, does not panic, and checks an
//! invariant.

use serde_json::json;

use super::filter::{Filter, Object, STEPS_OF_DELIVERY};
use super::payload::{map, of_form, read};
use super::sources::SourceKind;
use mainstay_api::ReceiverType;
use mainstay_object::expression::Budget;

/// An expression that reads much of a body.
const FILTER: &str = "req.all(k, k != res.metadata.name || req[k].split('/').last().value().matches('^[a-z]+')) && \
                      req.tag.contains(res.metadata.name) && req.l.map(x, x + x).exists(x, x == req.tag)";

/// Parses the body of a webhook. The first byte selects the type of the Receiver.
pub fn receiver_body(bytes: &[u8]) {
    let Some((&kind, body)) = bytes.split_first() else { return };
    let kind = ReceiverType::ALL[usize::from(kind) % ReceiverType::ALL.len()];
    // Both results are right; an error quotes no part of the body.
    let _ = read(kind, body);
    if let Ok(body) = of_form(body) {
        let _ = read(kind, &body);
    }
}

/// Evaluates the filter of a Receiver for the body of a webhook.
pub fn receiver_filter(bytes: &[u8]) {
    let (Ok(request), Ok(Some(filter))) = (map(bytes), Filter::of_spec(Some(FILTER))) else { return };
    let shown = json!({"kind": "GitRepository", "metadata": {"name": "web"}});
    let objects = [Object { kind: SourceKind::GitRepository, name: "web".to_owned(), shown }];
    let selected = filter.select(&objects, &request, &mut Budget::new(STEPS_OF_DELIVERY));
    let is_selected = selected.sources.include(SourceKind::GitRepository, "web", None);
    assert!(!is_selected || selected.failed.is_none(), "an object without a result is not selected");
}
