//! The API of Mainstay: one file per kind, the condition types and reasons, and all well-known names.
//!
//! Invariant: this crate uses no client, clock or file. The CRDs in `manifests/` are generated from these types.
//!
//! Not here: validation, which is in the feature that implements the spec.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods))]

pub mod alert;
pub mod amount;
pub mod api_rule;
pub mod build;
pub mod conditions;
pub mod duration;
pub mod events;
pub mod function;
pub mod function_conditions;
pub mod function_failure;
pub mod function_v1alpha2;
pub mod git_repository;
pub mod git_sync;
pub mod helm_chart;
mod ids;
pub mod ignore;
pub mod image_policy;
pub mod image_repository;
pub mod image_update_automation;
pub mod kube_config;
pub mod metadata;
pub mod names;
pub mod oci_repository;
pub mod overlay;
pub mod own_repository;
pub mod provider;
mod reasons;
pub mod receiver;
pub mod render;
pub mod requests;
mod schemas;

pub use alert::{Alert, AlertSpec, AlertStatus};
pub use amount::{Amount, Amounts};
pub use api_rule::{ApiRule, ApiRuleSpec, ApiRuleStatus};
pub use duration::{NotADuration, Span};
pub use events::EventReason;
pub use function::{Function, FunctionSpec, FunctionStatus};
pub use git_repository::{GitRepository, GitRepositorySpec, GitRepositoryStatus};
pub use git_sync::{DriftPolicy, GitSync, GitSyncSpec, GitSyncStatus};
pub use helm_chart::{HelmChart, HelmChartSpec};
pub use ids::{SHORT_ID, short_id};
pub use image_policy::{ImagePolicy, ImagePolicySpec, ImagePolicyStatus};
pub use image_repository::{ImageRepository, ImageRepositorySpec, ImageRepositoryStatus};
pub use image_update_automation::{ImageUpdateAutomation, ImageUpdateAutomationSpec, ImageUpdateAutomationStatus};
pub use oci_repository::{OciRepository, OciRepositorySpec, OciRepositoryStatus};
pub use provider::{Provider, ProviderSpec, ProviderStatus};
pub use receiver::{Receiver, ReceiverSpec, ReceiverStatus, ReceiverType};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

/// Returns every required CRD, in the order in which they are applied. `v1alpha2` of Function is served only if a
/// webhook converts it.
pub fn definitions() -> Vec<CustomResourceDefinition> {
    let sources = [GitRepository::crd(), OciRepository::crd(), HelmChart::crd()];
    let own = [GitSync::crd(), Receiver::crd(), Provider::crd(), Alert::crd()];
    let images = [ImageRepository::crd(), ImagePolicy::crd(), ImageUpdateAutomation::crd()];
    sources.into_iter().chain(own).chain(images).chain([function()]).collect()
}

fn function() -> CustomResourceDefinition {
    let mut definition = Function::crd();
    for mut newer in function_v1alpha2::Function::crd().spec.versions {
        (newer.served, newer.storage) = (false, false);
        definition.spec.versions.push(newer);
    }
    definition
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
        JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
    };

    use super::*;

    /// Appends the lists and maps below `at` that have no maximum size.
    fn unbounded(schema: &JSONSchemaProps, at: &str, found: &mut Vec<String>) {
        if let Some(JSONSchemaPropsOrBool::Schema(value)) = &schema.additional_properties {
            found.extend(schema.max_properties.is_none().then(|| at.to_owned()));
            unbounded(value, &format!("{at}.*"), found);
        }
        if let Some(JSONSchemaPropsOrArray::Schema(item)) = &schema.items {
            found.extend(schema.max_items.is_none().then(|| at.to_owned()));
            unbounded(item, &format!("{at}[]"), found);
        }
        for (name, field) in schema.properties.iter().flatten() {
            unbounded(field, &format!("{at}.{name}"), found);
        }
    }

    /// An object of a tenant is decoded before anything else of it is judged.
    #[test]
    fn lists_and_maps_of_specs_have_a_maximum_size() {
        let mut found = Vec::new();
        for definition in definitions().into_iter().filter(|definition| definition.spec.group == "mainstay.dev") {
            for version in definition.spec.versions {
                let schema = version.schema.and_then(|schema| schema.open_api_v3_schema).unwrap_or_default();
                let spec = &schema.properties.unwrap_or_default()["spec"];
                unbounded(spec, &format!("{}.spec", definition.spec.names.kind), &mut found);
            }
        }
        assert!(found.is_empty(), "without maxItems or maxProperties: {found:#?}");
    }
}
