//! Rendering of a GitSync's directory (`spec.render`).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::git_sync::SubstituteSourceKind;
use super::schemas::AnyObject;

/// How the directory is rendered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Render {
    /// `baseDir` is a Helm chart, rendered with these options. Charts are also rendered without this, with the default of
    /// each option, wherever they lie below `baseDir`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub helm: Option<Helm>,
}

/// How a Helm chart is rendered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Helm {
    /// Name of the release (`.Release.Name`), at most 53 characters; by default the name of the GitSync. The release's
    /// namespace is `targetNamespace`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 53))]
    pub release_name: Option<String>,
    /// Files with values, relative to the chart, or from the root of the repository if they begin with `/`; later ones take
    /// precedence, and all over the chart's own `values.yaml`. At most 50.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50))]
    pub values_files: Vec<String>,
    /// ConfigMaps and Secrets of the same namespace with values, which take precedence over those of files. Later ones take
    /// precedence. A change of one renders the chart again. At most 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20))]
    pub values_from: Vec<ValuesSource>,
    /// Values, which take precedence over those of files, ConfigMaps and Secrets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<AnyObject>")]
    pub values: Option<Map<String, Value>>,
    /// Whether the CustomResourceDefinitions in the chart's `crds/` are applied.
    #[serde(default = "yes", rename = "includeCRDs")]
    pub include_crds: bool,
    /// Handling of objects of the chart that are hooks of Helm; hooks are not run.
    #[serde(default)]
    pub hooks: Hooks,
}

/// A ConfigMap or Secret with values of a chart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ValuesSource {
    /// `ConfigMap` or `Secret`. An object that a value of a Secret changes is treated like a Secret: none of its values is
    /// shown.
    pub kind: SubstituteSourceKind,
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The key with the values; by default `values.yaml`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub values_key: Option<String>,
    /// The path of the value that the key contains, such as `image.tag`. A `\\.` is a dot in a name. By default the key contains
    /// a map of values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 250))]
    pub target_path: Option<String>,
    /// Whether the source or its key may be missing: then it has no values.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
}

impl ValuesSource {
    /// Returns the key with the values.
    pub fn key(&self) -> &str {
        self.values_key.as_deref().unwrap_or("values.yaml")
    }
}

/// Handling of hooks of Helm. Hooks for tests and rollbacks are left out in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Hooks {
    /// Refuse the chart, and name its hooks.
    #[default]
    Refuse,
    /// Leave them out.
    Omit,
}

impl Default for Helm {
    fn default() -> Self {
        Self {
            release_name: None,
            values_files: Vec::new(),
            values_from: Vec::new(),
            values: None,
            include_crds: true,
            hooks: Hooks::Refuse,
        }
    }
}

fn yes() -> bool {
    true
}
