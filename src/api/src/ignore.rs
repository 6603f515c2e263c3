//! Fields that are exempt from drift detection (`spec.ignore`), in Flux's format.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::overlay::PatchTarget;

/// Fields of some objects that are not applied, not compared and not reverted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IgnoreRule {
    /// The fields, as JSON pointers (RFC 6901) into the manifest, such as `/spec/replicas` or
    /// `/metadata/annotations/example.org~1note`; `/spec/template/spec/containers/0/image` is in the first container of
    /// the manifest. A field includes all fields in it. The identity of an object cannot be ignored: `apiVersion`,
    /// `kind`, name, namespace, and labels and annotations `mainstay.dev/…`. At most 50.
    #[schemars(length(min = 1, max = 50), inner(length(max = 1024)))]
    pub paths: Vec<String>,
    /// The objects; by default all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<PatchTarget>,
}
