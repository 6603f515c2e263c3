//! Annotations of a resource that become fields of the messages about it, as in Flux.
//!
//! Invariant: number and bytes are bounded, because any author of a GitSync writes them. Invariant: no annotation has the
//! name of a fact that the agent reports.

use std::collections::BTreeMap;

use mainstay_api::conditions::cut;
use mainstay_api::names::FLUX_EVENT_PREFIX;
use mainstay_object::printable;

use super::notice::FACTS;

/// Maximum number of annotations, and maximum length of a value in bytes. Kubernetes bounds the names.
const MOST: usize = 16;
const VALUE: usize = 512;

/// Returns the first 16 of these annotations that are for messages, without their prefix. Values are cut to 512 bytes.
pub(in crate::agent) fn event_metadata<'a>(
    annotations: impl Iterator<Item = (&'a str, &'a str)>,
) -> BTreeMap<String, String> {
    let named = annotations.filter_map(|(name, value)| Some((name.strip_prefix(FLUX_EVENT_PREFIX)?, value)));
    let shown = named.filter(|(name, _)| !name.is_empty() && !is_fact(name)).take(MOST);
    let cleaned = shown.map(|(name, value)| (name.to_owned(), cut(&printable(cut(value, VALUE)), VALUE).to_owned()));
    cleaned.collect()
}

/// Whether a field is a fact of the agent. Readers do not distinguish upper and lower case.
fn is_fact(name: &str) -> bool {
    FACTS.iter().any(|fact| fact.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(annotations: &[(&str, &str)]) -> BTreeMap<String, String> {
        event_metadata(annotations.iter().copied())
    }

    #[test]
    fn annotations_with_the_prefix_are_fields_without_it() {
        let fields = of(&[
            ("event.toolkit.fluxcd.io/", "no name"),
            ("event.toolkit.fluxcd.io/change_request", "42"),
            ("mainstay.dev/event.change_request", "43"),
            ("reconcile.fluxcd.io/requestedAt", "now"),
        ]);
        assert_eq!(fields, BTreeMap::from([("change_request".to_owned(), "42".to_owned())]));
    }

    #[test]
    fn annotations_state_no_facts_of_the_agent() {
        let fields = of(&[("event.toolkit.fluxcd.io/Who", "alice"), ("event.toolkit.fluxcd.io/revision", "sha1:1")]);
        assert_eq!(fields, BTreeMap::new());
    }

    #[test]
    fn number_and_length_of_annotations_are_bounded_and_control_characters_are_escaped() {
        let names: Vec<String> = (10..90).map(|number| format!("{FLUX_EVENT_PREFIX}{number}")).collect();
        let long = "\u{202e}\n".repeat(100_000);
        let fields = event_metadata(names.iter().map(|name| (name.as_str(), long.as_str())));
        assert_eq!(fields.len(), MOST);
        assert!(fields.values().all(|value| value.len() <= VALUE && value.is_ascii()), "{fields:?}");
    }
}
