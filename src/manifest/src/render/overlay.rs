//! The changes of a GitSync to its rendered objects, as fields of a kustomization.
//!
//! A kustomization in `baseDir` is edited as in Flux. The overlay's namespace, prefix or suffix replaces the
//! kustomization's own. The overlay's patches and components follow the kustomization's own, and images are merged by
//! name. Other objects become the only resource of a new kustomization.
//!
//! Not here: common labels and annotations, which need no tool (`written_out`).

use serde_json::{Map, Value, json};

use mainstay_api::git_sync::GitSyncSpec;
use mainstay_api::overlay::{Image, Patch};

/// Changes to the rendered objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overlay {
    /// The namespace of all objects.
    namespace: Option<String>,
    name_prefix: Option<String>,
    name_suffix: Option<String>,
    patches: Vec<Patch>,
    images: Vec<Image>,
    /// Directories of components, relative to `baseDir`.
    pub(super) components: Vec<String>,
}

impl Overlay {
    /// Returns the overlay of a GitSync; `None` if the GitSync changes nothing.
    pub fn of(spec: &GitSyncSpec) -> Option<Self> {
        let overlay = Self {
            namespace: spec.override_namespace.clone(),
            name_prefix: spec.name_prefix.clone(),
            name_suffix: spec.name_suffix.clone(),
            patches: spec.patches.clone(),
            images: spec.images.clone(),
            components: spec.components.clone(),
        };
        (overlay != Self::default()).then_some(overlay)
    }

    /// Returns the kustomization with these changes. `below` is the path from the kustomization's directory to
    /// `baseDir`, such as `../`, and is empty for the same directory. A field of a wrong type is unchanged, so that the
    /// tool refuses it.
    pub(super) fn edit(&self, mut kustomization: Map<String, Value>, below: &str) -> Map<String, Value> {
        let root = &mut kustomization;
        for (field, value) in
            [("namespace", &self.namespace), ("namePrefix", &self.name_prefix), ("nameSuffix", &self.name_suffix)]
        {
            if let Some(value) = value {
                root.insert(field.to_owned(), value.as_str().into());
            }
        }
        append(root, "patches", self.patches.iter().map(|patch| json!(patch)));
        append(root, "components", self.components.iter().map(|path| format!("{below}{path}").into()));
        if let Some(images) = list(root, "images", self.images.is_empty()) {
            for image in &self.images {
                merge(images, image);
            }
        }
        kustomization
    }
}

/// Returns the list in a field, which is created if necessary.
fn list<'r>(root: &'r mut Map<String, Value>, field: &str, is_unused: bool) -> Option<&'r mut Vec<Value>> {
    if is_unused {
        return None;
    }
    let value = root.entry(field).or_insert(Value::Null);
    if value.is_null() {
        *value = json!([]);
    }
    value.as_array_mut()
}

fn append(root: &mut Map<String, Value>, field: &str, items: impl ExactSizeIterator<Item = Value>) {
    if let Some(all) = list(root, field, items.len() == 0) {
        all.extend(items);
    }
}

/// Merges an image. A new name keeps the tag. A new tag or digest replaces both the tag and the digest.
fn merge(images: &mut Vec<Value>, image: &Image) {
    let known = images.iter_mut().filter_map(Value::as_object_mut);
    let mut known = known.filter(|known| known.get("name").and_then(Value::as_str) == Some(&image.name));
    let Some(own) = known.next() else {
        images.push(json!(image));
        return;
    };
    if let Some(name) = &image.new_name {
        own.insert("newName".to_owned(), name.as_str().into());
    }
    if image.new_tag.is_some() || image.digest.is_some() {
        own.remove("newTag");
        own.remove("digest");
        let given = [("newTag", &image.new_tag), ("digest", &image.digest)];
        own.extend(given.into_iter().filter_map(|(field, value)| Some((field.to_owned(), value.as_deref()?.into()))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(spec: Value, before: Value, expected: Value) {
        let mut spec = spec;
        spec["gitRepository"] = "shop".into();
        let overlay = Overlay::of(&serde_json::from_value(spec).unwrap()).unwrap();
        let Value::Object(before) = before else { panic!("no object") };
        assert_eq!(Value::Object(overlay.edit(before, "")), expected);
    }

    #[test]
    fn a_kustomization_is_edited_as_flux_does_it() {
        check(
            json!({"overrideNamespace": "b", "namePrefix": "x-", "patches": [{"patch": "two"}], "components": ["../c"]}),
            json!({"namespace": "a", "nameSuffix": "-y", "patches": [{"path": "one.yaml"}], "components": ["own"]}),
            json!({
                "namespace": "b", "namePrefix": "x-", "nameSuffix": "-y", "patches": [{"path": "one.yaml"}, {"patch": "two"}],
                "components": ["own", "../c"],
            }),
        );
        check(
            json!({"images": [
                {"name": "a", "newName": "r/a"}, {"name": "b", "digest": "sha256:1"}, {"name": "c", "newTag": "2"},
            ]}),
            json!({"images": [{"name": "a", "newTag": "1"}, {"name": "b", "newName": "r/b", "newTag": "1"}]}),
            json!({"images": [
                {"name": "a", "newName": "r/a", "newTag": "1"}, {"name": "b", "newName": "r/b", "digest": "sha256:1"},
                {"name": "c", "newTag": "2"},
            ]}),
        );
        check(
            json!({"patches": [{"patch": "p", "target": {"kind": "Deployment", "labelSelector": "a=b"}}]}),
            json!({"patches": null}),
            json!({"patches": [{"patch": "p", "target": {"kind": "Deployment", "labelSelector": "a=b"}}]}),
        );
        // Invalid fields are unchanged, so that the tool refuses them.
        check(json!({"images": [{"name": "a"}]}), json!({"images": "all"}), json!({"images": "all"}));
    }

    #[test]
    fn a_git_sync_that_changes_nothing_has_none() {
        let spec = serde_json::from_value(json!({"gitRepository": "shop", "targetNamespace": "a"})).unwrap();
        assert_eq!(Overlay::of(&spec), None);
    }

    #[test]
    fn components_are_named_from_where_the_kustomization_lies() {
        let overlay = Overlay { components: vec!["../c".into()], ..Overlay::default() };
        assert_eq!(overlay.edit(Map::new(), "../")["components"], json!(["../../c"]));
    }
}
