//! The objects that a list or watch selects, and how much of each it returns.

use super::kind::{Kind, encode};

/// How much of each object is returned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Content {
    /// Everything.
    #[default]
    Whole,
    /// `apiVersion`, `kind` and `metadata` alone (`PartialObjectMetadata`).
    Metadata,
}

/// The selected objects; the default is all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Only this namespace; ignored for cluster-scoped kinds.
    pub namespace: Option<String>,
    /// A label selector, such as `app=web,tier!=db`.
    pub labels: Option<String>,
    /// A field selector, such as `metadata.name=web`.
    pub fields: Option<String>,
    /// How much of each object.
    pub content: Content,
}

impl Selection {
    /// Objects that carry this label, in all namespaces.
    pub fn labelled(label: &str, value: &str) -> Self {
        Self { labels: Some(format!("{label}={value}")), ..Self::default() }
    }

    /// Objects that carry this label with any value, in all namespaces.
    pub fn with_label(label: &str) -> Self {
        Self { labels: Some(label.to_owned()), ..Self::default() }
    }

    /// The object with this name.
    pub fn named(namespace: Option<&str>, name: &str) -> Self {
        Self {
            namespace: namespace.map(str::to_owned),
            fields: Some(format!("metadata.name={name}")),
            ..Self::default()
        }
    }

    /// This selection within one namespace.
    #[must_use]
    pub fn within(mut self, namespace: &str) -> Self {
        self.namespace = Some(namespace.to_owned());
        self
    }

    /// This selection with metadata only.
    #[must_use]
    pub fn metadata_only(mut self) -> Self {
        self.content = Content::Metadata;
        self
    }

    /// Path of the collection with the selectors as its query; [`and`] appends further parameters.
    pub(super) fn path(&self, kind: &Kind) -> String {
        let mut path = kind.path(self.namespace.as_deref(), None, None);
        if let Some(labels) = &self.labels {
            and(&mut path, "labelSelector", labels);
        }
        if let Some(fields) = &self.fields {
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
}
