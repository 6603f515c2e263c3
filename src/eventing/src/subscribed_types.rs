//! The event types of a Subscription: `filter` of `v1alpha1`, or `source`, `types` and `typeMatching` of `v1alpha2`.
//!
//! Errors are in the words of Kyma, with the field.

use std::collections::BTreeSet;

use serde_json::Value;

use super::event_type::{PREFIX, Unclean, cleaned, standard_source, standard_type};
use super::subscriber::Filter;

/// Minimum number of segments of a type in `v1alpha2`.
const SEGMENTS: usize = 2;

/// The types of a valid Subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SubscribedTypes {
    pub(super) filter: Filter,
    /// Each type as it is written, and its cleaned form.
    pub(super) named: Vec<(String, String)>,
}

impl SubscribedTypes {
    /// Parses a spec.
    pub(super) fn read(spec: &Value) -> Result<Self, String> {
        let is_newer = ["types", "source", "typeMatching"].iter().any(|field| !spec[*field].is_null());
        match (spec["filter"].is_null(), is_newer) {
            (false, true) => Err("expected exactly one, got both: spec.filter, spec.types".to_owned()),
            (false, false) => of_filter(&spec["filter"]),
            (true, true) => of_types(spec),
            (true, false) => Err("expected exactly one, got none: spec.filter, spec.types".to_owned()),
        }
    }

    fn of_cleaned(named: Vec<(String, String)>) -> Self {
        Self { filter: Filter::Types(named.iter().map(|(_, clean)| clean.clone()).collect()), named }
    }
}

/// Reads `filter` of `v1alpha1`. Only the value of `eventType` counts.
fn of_filter(filter: &Value) -> Result<SubscribedTypes, String> {
    let filters = filter["filters"].as_array().into_iter().flatten();
    let written = filters.map(|one| one["eventType"]["value"].as_str().unwrap_or_default());
    let named = written.map(|name| match cleaned(name) {
        _ if name.is_empty() => Err("nats: invalid subject".to_owned()),
        Ok(clean) => Ok((name.to_owned(), clean)),
        Err(unclean) => Err(unclean.to_string()),
    });
    Ok(SubscribedTypes::of_cleaned(named.collect::<Result<_, _>>()?))
}

/// Reads `source`, `types` and `typeMatching` of `v1alpha2`.
fn of_types(spec: &Value) -> Result<SubscribedTypes, String> {
    let is_exact = match &spec["typeMatching"] {
        Value::Null => false,
        Value::String(text) if text.is_empty() || text == "standard" => false,
        Value::String(text) if text == "exact" => true,
        _ => return Err("spec.typeMatching: must be standard or exact".to_owned()),
    };
    let written: Vec<&str> = spec["types"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if written.is_empty() {
        return Err("spec.types: must not be empty".to_owned());
    }
    if written.iter().collect::<BTreeSet<_>>().len() < written.len() {
        return Err("spec.types: must not have duplicate types".to_owned());
    }
    if let Some((at, why)) = written.iter().enumerate().find_map(|(at, name)| Some((at, refused(name, is_exact)?))) {
        return Err(format!("spec.types[{at}]: {why}"));
    }
    if is_exact {
        // Published types with the prefix are cleaned, so these match in their cleaned form.
        let named = written.iter().map(|name| match cleaned(name) {
            Ok(clean) => Ok(((*name).to_owned(), clean)),
            Err(Unclean::NoPrefix(name)) => Ok((name.clone(), name)),
            Err(unclean) => Err(unclean.to_string()),
        });
        return Ok(SubscribedTypes::of_cleaned(named.collect::<Result<_, _>>()?));
    }
    let source = standard_source(spec["source"].as_str().unwrap_or_default());
    if source.is_empty() {
        return Err("spec.source: must not be empty".to_owned());
    }
    let named: Vec<_> = written.iter().map(|name| ((*name).to_owned(), standard_type(name))).collect();
    let types = named.iter().map(|(_, clean)| clean.clone()).collect();
    Ok(SubscribedTypes { filter: Filter::Sourced { source, types }, named })
}

/// Returns why a type of `v1alpha2` is not valid.
fn refused(name: &str, is_exact: bool) -> Option<&'static str> {
    let segments = standard_type(name);
    if segments.is_empty() {
        Some("must not be empty")
    } else if segments.split('.').filter(|segment| !segment.is_empty()).count() < SEGMENTS {
        Some("must have minimum 2 segments")
    } else if !is_exact && name.starts_with(PREFIX) {
        Some("must not have sap.kyma.custom as type prefix")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(spec: Value) -> Result<SubscribedTypes, String> {
        SubscribedTypes::read(&spec)
    }

    #[test]
    fn standard_types_belong_to_a_source() {
        let types = read(json!({"source": "my.shop >*", "types": ["order.created.v1", "order >*.paid.v1"]})).unwrap();
        let clean = |name: &str| name.to_owned();
        assert_eq!(types.named[1], (clean("order >*.paid.v1"), clean("order.paid.v1")));
        let wanted = [clean("order.created.v1"), clean("order.paid.v1")].into();
        assert_eq!(types.filter, Filter::Sourced { source: clean("myshop"), types: wanted });
        let written = read(json!({"source": "a", "types": ["b.c"], "typeMatching": "standard"}));
        assert_eq!(written, read(json!({"source": "a", "types": ["b.c"], "typeMatching": ""})), "it is the default");
    }

    #[test]
    fn exact_types_have_any_source() {
        let types = |names: Value| read(json!({"source": "", "types": names, "typeMatching": "exact"})).unwrap().filter;
        assert_eq!(types(json!(["Order*.created"])), Filter::Types(["Order*.created".to_owned()].into()));
        let clean = "sap.kyma.custom.myapp.order.created.v1";
        assert_eq!(
            types(json!(["sap.kyma.custom.my-app.order.created.v1"])),
            Filter::Types([clean.to_owned()].into()),
            "a published one is cleaned"
        );
    }

    #[test]
    fn a_wrong_type_is_refused_with_its_field() {
        let check = |spec: Value, expected: &str| assert_eq!(read(spec).unwrap_err(), expected);
        check(json!({"source": "a"}), "spec.types: must not be empty");
        check(json!({"source": "a", "types": []}), "spec.types: must not be empty");
        check(json!({"source": "a", "types": ["b.c", ""]}), "spec.types[1]: must not be empty");
        check(json!({"source": "a", "types": ["b"]}), "spec.types[0]: must have minimum 2 segments");
        check(json!({"source": "a", "types": ["b.c", "b.c"]}), "spec.types: must not have duplicate types");
        check(
            json!({"source": "a", "types": ["sap.kyma.custom.a.b.c.v1"]}),
            "spec.types[0]: must not have sap.kyma.custom as type prefix",
        );
        check(json!({"types": ["b.c"]}), "spec.source: must not be empty");
        check(json!({"source": " .", "types": ["b.c"]}), "spec.source: must not be empty");
        check(json!({"types": ["b.c"], "typeMatching": "fuzzy"}), "spec.typeMatching: must be standard or exact");
        check(
            json!({"types": ["b.c"], "source": "a", "filter": {"filters": []}}),
            "expected exactly one, got both: spec.filter, spec.types",
        );
        check(json!({}), "expected exactly one, got none: spec.filter, spec.types");
    }
}
