//! Selects the objects of a list or watch, and which part of each object the server returns.
//!
//! Invariant: only [`FieldSelector`] and [`LabelSelector`] build selectors, so a value is never parsed as syntax.

use super::kind::{Kind, encode};
use mainstay_object::syntax;

/// The part of each object that is returned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Content {
    /// The whole object.
    #[default]
    Whole,
    /// `apiVersion`, `kind` and `metadata` only (`PartialObjectMetadata`).
    Metadata,
}

/// A field selector. Values are escaped, because names of RBAC objects may contain `=` and `,`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldSelector(String);

impl FieldSelector {
    /// Selects objects whose field has this value.
    pub fn equals(field: &'static str, value: &str) -> Self {
        let mut text = format!("{field}=");
        for c in value.chars() {
            // Escapes the same characters as `fields.EscapeValue` of apimachinery.
            if matches!(c, '\\' | ',' | '=') {
                text.push('\\');
            }
            text.push(c);
        }
        Self(text)
    }

    /// Selects objects that both selectors match.
    #[must_use]
    pub fn and(self, other: &Self) -> Self {
        Self(format!("{},{}", self.0, other.0))
    }
}

/// A label selector. Label values cannot be escaped; an invalid value matches no object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelSelector(String);

impl LabelSelector {
    /// Selects objects that have this label with this value.
    pub fn equals(label: &str, value: &str) -> Self {
        Self::compared(label, "=", value).unwrap_or_else(|| Self(format!("{label},!{label}")))
    }

    /// Selects objects without this label, or with a different value.
    pub fn differs(label: &str, value: &str) -> Self {
        Self::compared(label, "!=", value).unwrap_or_else(|| Self(String::new()))
    }

    /// Selects objects that both selectors match.
    #[must_use]
    pub fn and(self, other: &Self) -> Self {
        let both = [&*self.0, &*other.0].into_iter().filter(|part| !part.is_empty());
        Self(both.collect::<Vec<_>>().join(","))
    }

    /// Uses a selector from a user, such as `-l` of a command, unchanged. The API server parses it.
    pub fn written(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// Selects objects that have this label with any value.
    pub fn exists(label: &str) -> Self {
        Self(label.to_owned())
    }

    fn compared(label: &str, operator: &str, value: &str) -> Option<Self> {
        syntax::label(label, value).is_empty().then(|| Self(format!("{label}{operator}{value}")))
    }
}

/// The selected objects; the default is all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    namespace: Option<String>,
    /// The name, if a single object is selected.
    name: Option<String>,
    labels: Option<LabelSelector>,
    fields: Option<FieldSelector>,
    content: Content,
}

impl Selection {
    /// Objects that carry this label, in all namespaces.
    pub fn labelled(label: &str, value: &str) -> Self {
        Self::by_labels(LabelSelector::equals(label, value))
    }

    /// Objects that carry this label with any value, in all namespaces.
    pub fn with_label(label: &str) -> Self {
        Self::by_labels(LabelSelector::exists(label))
    }

    /// Objects with these labels, in all namespaces.
    pub fn by_labels(labels: LabelSelector) -> Self {
        Self { labels: Some(labels), ..Self::default() }
    }

    /// Objects with these fields, in all namespaces.
    pub fn by_fields(fields: FieldSelector) -> Self {
        Self { fields: Some(fields), ..Self::default() }
    }

    /// The object with this name.
    pub fn named(namespace: Option<&str>, name: &str) -> Self {
        Self {
            namespace: namespace.map(str::to_owned),
            name: Some(name.to_owned()),
            fields: Some(FieldSelector::equals("metadata.name", name)),
            ..Self::default()
        }
    }

    /// This selection within one namespace; cluster-scoped kinds ignore it.
    #[must_use]
    pub fn within(mut self, namespace: &str) -> Self {
        self.namespace = Some(namespace.to_owned());
        self
    }

    /// Limits this selection to objects with these labels.
    #[must_use]
    pub fn with_labels(mut self, labels: LabelSelector) -> Self {
        self.labels = Some(self.labels.map_or_else(|| labels.clone(), |own| own.and(&labels)));
        self
    }

    /// Returns only the metadata of objects.
    #[must_use]
    pub fn metadata_only(mut self) -> Self {
        self.content = Content::Metadata;
        self
    }

    /// The namespace of this selection.
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// The name, if a single object is selected.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The part of each object that is returned.
    pub(super) fn content(&self) -> Content {
        self.content
    }

    /// Returns the selection of all objects in the same namespace.
    pub(super) fn without_selectors(&self) -> Self {
        Self { namespace: self.namespace.clone(), content: self.content, ..Self::default() }
    }

    /// Path of the collection with the selectors as its query; [`and`] appends further parameters.
    pub(super) fn path(&self, kind: &Kind) -> String {
        let mut path = kind.path(self.namespace.as_deref(), None, None);
        if let Some(LabelSelector(labels)) = &self.labels {
            and(&mut path, "labelSelector", labels);
        }
        if let Some(FieldSelector(fields)) = &self.fields {
            and(&mut path, "fieldSelector", fields);
        }
        path
    }
}

/// Appends a query parameter to a path.
pub(super) fn and(path: &mut String, name: &str, value: &str) {
    path.push(if path.contains('?') { '&' } else { '?' });
    path.push_str(name);
    path.push('=');
    encode(path, value);
}

#[cfg(test)]
mod tests {
    use super::super::kind::tests::kind;
    use super::*;

    #[test]
    fn spells_selectors_as_an_encoded_query() {
        let config_map = kind("v1", "ConfigMap", "configmaps", true);
        let selection = Selection::labelled("mainstay.dev/sync", "a.b").within("x");
        assert_eq!(
            selection.path(&config_map),
            "/api/v1/namespaces/x/configmaps?labelSelector=mainstay.dev%2Fsync%3Da.b"
        );
        assert_eq!(Selection::default().path(&config_map), "/api/v1/configmaps");
        let named = Selection::named(Some("x"), "y").path(&config_map);
        assert_eq!(named, "/api/v1/namespaces/x/configmaps?fieldSelector=metadata.name%3Dy");
    }

    #[test]
    fn the_selector_of_a_user_is_one_parameter() {
        let written = LabelSelector::written("app in (a, b),!c&watch=1");
        let path =
            Selection::default().within("x").with_labels(written).path(&kind("v1", "ConfigMap", "configmaps", true));
        let query = path.split_once('?').unwrap().1;
        assert!(query.starts_with("labelSelector=app") && !query.contains('&'), "{query}");
    }

    #[test]
    fn values_of_fields_are_escaped_as_apimachinery_does_it() {
        let cases = [
            ("web", "metadata.name=web"),
            ("cn=admins,ou=groups", r"metadata.name=cn\=admins\,ou\=groups"),
            (r"a\b", r"metadata.name=a\\b"),
            ("!=x", r"metadata.name=!\=x"),
            ("ä ö", "metadata.name=ä ö"),
        ];
        for (value, expected) in cases {
            assert_eq!(FieldSelector::equals("metadata.name", value), FieldSelector(expected.to_owned()));
        }
        let both = FieldSelector::equals("a", "1,2").and(&FieldSelector::equals("b", "3"));
        assert_eq!(both, FieldSelector(r"a=1\,2,b=3".to_owned()));
    }

    #[test]
    fn a_value_that_no_label_can_have_selects_nothing() {
        for value in ["a,b", "a=b", "-a", "a b", &"a".repeat(64)] {
            assert_eq!(LabelSelector::equals("x.y/z", value), LabelSelector("x.y/z,!x.y/z".to_owned()), "{value}");
            assert_eq!(LabelSelector::differs("x.y/z", value), LabelSelector(String::new()), "{value}");
        }
        assert_eq!(LabelSelector::equals("x", ""), LabelSelector("x=".to_owned()));
        assert_eq!(LabelSelector::differs("x", "y"), LabelSelector("x!=y".to_owned()));
    }
}
