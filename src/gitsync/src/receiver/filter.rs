//! Evaluates `spec.resourceFilter` for each object that a delivery may look up.
//!
//! Invariant: all expressions of a delivery take at most [`STEPS_OF_DELIVERY`] steps together, whatever its body contains.
//! Invariant: an object for which the expression has no result is not looked up. Once no steps remain, no further object
//! is evaluated.
//! Invariant: the error of an expression has types and names of fields, and no value of the body or of an object.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use super::sources::{SourceKind, Sources};
use mainstay_object::expression::{Budget, Expression};

/// Maximum steps of all expressions of a delivery: those about its token, and the filter for each object.
pub(super) const STEPS_OF_DELIVERY: u32 = 100_000;

/// The expression of `spec.resourceFilter`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Filter(Arc<Expression>);

/// An object at the time of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Object {
    pub(super) kind: SourceKind,
    pub(super) name: String,
    /// The object without its spec and status; null without a filter.
    pub(super) shown: Value,
}

/// The objects that a delivery looks up.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Selected {
    pub(super) sources: Sources,
    /// Objects for which the filter has no result.
    pub(super) failed: Option<Unevaluated>,
}

/// The objects for which a filter has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unevaluated {
    /// The first of them.
    first: String,
    others: usize,
    /// The error for the first of them.
    why: String,
}

impl fmt::Display for Unevaluated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first, others, why } = self;
        write!(f, "spec.resourceFilter cannot be evaluated for {first}")?;
        match others {
            0 => write!(f, ", which is not looked up")?,
            1 => write!(f, " and 1 other object, which are not looked up")?,
            _ => write!(f, " and {others} other objects, which are not looked up")?,
        }
        write!(f, ": {why}")
    }
}

impl Filter {
    /// Parses the expression of a spec. As in Flux, an empty one is none.
    pub(super) fn of_spec(source: Option<&str>) -> Result<Option<Self>, String> {
        let Some(source) = source.filter(|source| !source.is_empty()) else { return Ok(None) };
        let parsed = Expression::parse(source, Some(&["req", "res"]));
        let expression = parsed.map_err(|error| format!("spec.resourceFilter: {error}; correct the expression"))?;
        Ok(Some(Self(Arc::new(expression))))
    }

    /// Selects the objects for which the expression is true. `request` is the body of the delivery.
    pub(super) fn select(&self, objects: &[Object], request: &Value, budget: &mut Budget) -> Selected {
        let (mut accepted, mut failed) = (Vec::new(), None::<Unevaluated>);
        for (number, Object { kind, name, shown }) in objects.iter().enumerate() {
            if let Some(failed) = &mut failed
                && budget.is_spent()
            {
                failed.others += objects.len() - number;
                break;
            }
            let variable = |variable: &str| match variable {
                "req" => Some(request),
                "res" => Some(shown),
                _ => None,
            };
            match self.0.holds_within(budget, &variable) {
                Ok(true) => accepted.push((*kind, name.clone())),
                Ok(false) => {}
                Err(error) => {
                    let others = failed.take().map(|failed| (failed.first, failed.others + 1, failed.why));
                    let (first, others, why) =
                        others.unwrap_or_else(|| (format!("{} {name}", kind.as_str()), 0, error.to_string()));
                    failed = Some(Unevaluated { first, others, why });
                }
            }
        }
        Selected { sources: Sources::exactly(accepted), failed }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(name: &str, metadata: Value) -> Object {
        let mut shown = json!({"kind": "ImageRepository", "metadata": {"name": name}});
        json_patch::merge(&mut shown["metadata"], &metadata);
        Object { kind: SourceKind::ImageRepository, name: name.to_owned(), shown }
    }

    /// Returns the names of the selected ones of the objects `web`, `api`, `bare` and `other`, and the failure.
    fn selected(filter: &str, request: &Value) -> (String, String) {
        let filter = Filter::of_spec(Some(filter)).unwrap().unwrap();
        let objects = [
            object("web", json!({"annotations": {"update-image": "shop-web"}, "labels": {"tier": "front"}})),
            object("api", json!({"annotations": {"update-image": "shop-api"}})),
            object("bare", json!({})),
            object("other", json!({"annotations": {"team": "shop"}})),
        ];
        let selected = filter.select(&objects, request, &mut Budget::new(STEPS_OF_DELIVERY));
        let names = ["web", "api", "bare", "other"]
            .into_iter()
            .filter(|name| selected.sources.include(SourceKind::ImageRepository, name, None));
        let failed = selected.failed.map(|failed| failed.to_string()).unwrap_or_default();
        (names.collect::<Vec<_>>().join(" "), failed)
    }

    #[test]
    fn expressions_of_flux_select_the_objects_of_a_delivery() {
        let by_image = "has(res.metadata.annotations) && 'update-image' in res.metadata.annotations && \
                        req.tag.split('/').last().value().split(\":\").first().value() == \
                        res.metadata.annotations['update-image']";
        for (filter, request, expected) in [
            ("req.tag.contains(res.metadata.name)", json!({"tag": "registry.example/shop/web:1"}), "web"),
            (by_image, json!({"tag": "registry.example/shop-api:1"}), "api"),
            ("res.metadata.?labels.?tier.orValue('') == req.tier", json!({"tier": "front"}), "web"),
            ("res.kind == 'ImageRepository' && res.metadata.name.matches('^[aw]')", json!({}), "web api"),
            ("req.size() == 0", json!({}), "web api bare other"),
            ("false", json!({}), ""),
        ] {
            assert_eq!(selected(filter, &request), (expected.to_owned(), String::new()), "{filter}");
        }
    }

    #[test]
    fn an_object_without_a_result_is_not_selected_and_the_reason_has_no_value() {
        let (names, failed) =
            selected("res.metadata.annotations['update-image'] == req.image", &json!({"image": "shop-web"}));
        assert_eq!(names, "web");
        let expected = "spec.resourceFilter cannot be evaluated for ImageRepository bare and 1 other object, which are not \
                        looked up: line 1, column 14: there is no field `annotations`";
        assert_eq!(failed, expected);
        let (names, failed) = selected("req.image", &json!({"image": "hunter2"}));
        assert_eq!(names, "");
        let expected = "spec.resourceFilter cannot be evaluated for ImageRepository web and 3 other objects, which are not \
                        looked up: line 1, column 5: the expression must be true or false, but is a string";
        assert_eq!(failed, expected);
    }

    #[test]
    fn a_hostile_body_cannot_exceed_the_steps_of_a_delivery() {
        let filter = Filter::of_spec(Some("req.l.all(x, x == res.metadata.name)")).unwrap().unwrap();
        let objects: Vec<_> = (0..1000).map(|number| object(&format!("o{number}"), json!({}))).collect();
        let request = json!({"l": vec!["o1"; 3000]});
        let mut budget = Budget::new(STEPS_OF_DELIVERY);
        let one = filter.select(&objects[1..2], &request, &mut budget);
        let failed = one.failed.unwrap().to_string();
        assert!(failed.ends_with("the expression takes more than 20000 steps with this object"), "{failed}");
        let rest = filter.select(&[vec![objects[1].clone(); 5], objects].concat(), &request, &mut budget);
        assert!(!rest.sources.include(SourceKind::ImageRepository, "o2", None));
        assert_eq!(rest.failed.unwrap().others, 1004);
        let cheap = Filter::of_spec(Some("true")).unwrap().unwrap();
        let objects = vec![object("web", json!({})); 5000];
        let failed = cheap.select(&objects, &request, &mut budget).failed.unwrap();
        assert_eq!(failed.others, 4999, "the objects that are not evaluated count, too");
        assert!(failed.why.ends_with("the expressions take more than 100000 steps together"), "{failed}");
    }

    #[test]
    fn a_wrong_expression_is_refused_with_its_position() {
        assert_eq!(Filter::of_spec(None), Ok(None));
        assert_eq!(Filter::of_spec(Some("")), Ok(None));
        for (source, expected) in [
            ("res.metadata.name = 'a'", "line 1, column 19: `=` is not an operator; `==` compares"),
            ("true && request.tag", "line 1, column 9: there is no variable `request`; there is `req` and `res`"),
        ] {
            let expected = format!("spec.resourceFilter: {expected}; correct the expression");
            assert_eq!(Filter::of_spec(Some(source)), Err(expected), "{source}");
        }
    }
}
