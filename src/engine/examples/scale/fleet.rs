//! The GitSyncs of the simulation and their objects.
//!
//! Each GitSync has a Deployment, a Service and a ServiceAccount; its other objects are ConfigMaps. Each object has
//! 1 KiB of JSON, as `mainstay install --expect-objects` assumes.

use std::ops::Range;
use std::sync::Arc;

use mainstay_cluster::{Kind, Scope};
use mainstay_engine::managed::{Desired, Mark};
use mainstay_object::{Names, Object, Owner, Place};
use serde_json::{Value, json};

/// Size of an object in bytes, as JSON.
const SIZE: usize = 1024;
/// Index of the kind of ConfigMaps.
const CONFIG_MAPS: usize = 3;

/// The kinds, and the number of objects of each GitSync.
pub(crate) struct Fleet {
    kinds: [Arc<Kind>; 4],
    pub(crate) objects: usize,
}

impl Fleet {
    pub(crate) fn new(objects: usize) -> Self {
        let kind = |version, kind, plural| Arc::new(Kind::fixed(version, kind, plural, Scope::Namespaced));
        let kinds = [
            kind("apps/v1", "Deployment", "deployments"),
            kind("v1", "Service", "services"),
            kind("v1", "ServiceAccount", "serviceaccounts"),
            kind("v1", "ConfigMap", "configmaps"),
        ];
        Self { kinds, objects }
    }

    /// Returns the index of a kind, by its name in paths.
    pub(crate) fn kind_named(&self, plural: &str) -> Option<usize> {
        self.kinds.iter().position(|kind| &*kind.plural == plural)
    }

    /// Returns the numbers of the objects of a kind in each GitSync.
    pub(crate) fn numbers(&self, kind: usize) -> Range<usize> {
        if kind == CONFIG_MAPS { CONFIG_MAPS..self.objects } else { kind..kind + 1 }
    }

    /// Returns the number of an object in its GitSync.
    pub(crate) fn number(&self, kind: usize, name: &str) -> Option<usize> {
        let number = name.strip_prefix("settings-").map_or(Some(kind), |number| number.parse().ok());
        number.filter(|number| self.numbers(kind).contains(number))
    }

    /// Returns the manifest of an object.
    pub(crate) fn manifest(sync: usize, number: usize, image: u32) -> Value {
        let metadata = json!({"name": "web", "namespace": namespace(sync), "annotations": {"example.com/notes": ""}});
        let mut manifest = match number {
            0 => json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata,
                "spec": {
                    "replicas": 2, "selector": {"matchLabels": {"app": "web"}},
                    "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{
                        "name": "web", "image": format!("registry.example/shop/web:1.0.{image}"),
                        "env": [{"name": "PORT", "value": "8080"}, {"name": "STAGE", "value": "production"}],
                        "ports": [{"name": "http", "containerPort": 8080}],
                        "resources": {"limits": {"memory": "128Mi"}, "requests": {"cpu": "50m", "memory": "64Mi"}},
                    }]}},
                },
            }),
            1 => json!({
                "apiVersion": "v1", "kind": "Service", "metadata": metadata,
                "spec": {"selector": {"app": "web"}, "ports": [{"name": "http", "port": 80, "targetPort": "http"}]},
            }),
            2 => json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}),
            _ => {
                let metadata = json!({"name": format!("settings-{number}"), "namespace": namespace(sync)});
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"settings.yaml": ""}})
            }
        };
        let padding = "x".repeat(SIZE.saturating_sub(manifest.to_string().len()));
        let padded =
            if number < CONFIG_MAPS { "/metadata/annotations/example.com~1notes" } else { "/data/settings.yaml" };
        if let Some(padded) = manifest.pointer_mut(padded) {
            *padded = padding.into();
        }
        manifest
    }

    /// Returns the desired state from a manifest of a GitSync.
    pub(crate) fn desired(&self, sync: usize, number: usize, manifest: &Value, names: &mut Names) -> Arc<Desired> {
        let place = Place::file(names.intern(&format!("apps/app-{sync}/{number}.yaml")));
        let object = Object::sharing_names(manifest, place, names).expect("the manifest is valid");
        let kind = Arc::clone(&self.kinds[number.min(CONFIG_MAPS)]);
        let mark = Mark::Label(names.intern(&label(sync)));
        Arc::new(Desired { key: object.key.clone(), kind, object: Arc::new(object), mark, ignored: None })
    }
}

/// Returns the namespace of a GitSync and its objects.
pub(crate) fn namespace(sync: usize) -> String {
    format!("app-{sync}")
}

/// Returns the GitSync in a namespace.
pub(crate) fn sync_in(namespace: &str) -> Option<usize> {
    namespace.strip_prefix("app-")?.parse().ok()
}

/// Returns the label value of the objects of a GitSync.
pub(crate) fn label(sync: usize) -> String {
    format!("app-{sync}.app")
}

pub(crate) fn owner(sync: usize) -> Owner {
    Owner::git_sync(&namespace(sync), "app")
}
