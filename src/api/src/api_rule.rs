//! `APIRule` (`gateway.kyma-project.io/v1alpha1` and `v1beta1`): exposes a Service under a host.
//!
//! Both versions have the same fields, so an object is the same in both. They differ in the required field for the
//! host: `v1alpha1` requires `spec.service.host`, `v1beta1` requires `spec.host`.
//!
//! Invariant: every object that the schema admits can be read.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinition, CustomResourceDefinitionVersion, JSONSchemaProps,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, CustomResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::schemas::{AnyObject, ConditionSchema, TimeSchema};

/// Pattern of `spec.gateway` in `v1alpha1`: the name of a Service. Istio's reserved word `mesh` has no dot.
const GATEWAY: &str = r"^[a-z]([-a-z0-9]*[a-z0-9])?\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.svc(\.cluster\.local)?)?\.?$";
/// Pattern of `spec.gateway` in `v1beta1`, which also allows `namespace/name`.
const NEWER_GATEWAY: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?/[a-z0-9]([-a-z0-9]*[a-z0-9])?|[a-z]([-a-z0-9]*[a-z0-9])?\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.svc(\.cluster\.local)?)?\.?)$";
/// Pattern of a host in both versions: a label, or a DNS subdomain in any case.
const HOST: &str = r"^[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?(\.[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?)*\.?$";
/// Pattern of a Service's name (RFC 1035).
const SERVICE: &str = r"^[a-z]([-a-z0-9]*[a-z0-9])?$";

/// Exposes a Service: the requests to a host that are routed to it, and the credentials that they need.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "gateway.kyma-project.io",
    version = "v1alpha1",
    kind = "APIRule",
    root = "ApiRule",
    plural = "apirules",
    singular = "apirule",
    namespaced,
    status = "ApiRuleStatus",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct ApiRuleSpec {
    /// The gateway that serves the host, such as `kyma-gateway.kyma-system.svc.cluster.local`. The operator permits others than
    /// that one.
    pub gateway: String,
    /// The host, with `v1beta1`. Without a dot, the agent's default domain follows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 3, max = 256), regex(pattern = HOST))]
    pub host: Option<String>,
    /// Service to expose, in the same namespace. In `v1alpha1` also the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ApiRuleService>,
    /// The paths that are served. The first one that matches the whole path counts.
    #[schemars(length(min = 1))]
    pub rules: Vec<ApiRulePath>,
}

/// A Service, and in `v1alpha1` its host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApiRuleService {
    /// Name of the Service. A Service of type `ExternalName` is not exposed.
    #[schemars(length(max = 63), regex(pattern = SERVICE))]
    pub name: String,
    /// Its namespace, which is that of the APIRule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Its port.
    #[schemars(range(min = 1, max = 65535))]
    pub port: i64,
    /// The host, with `v1alpha1`. Without a dot, the agent's default domain follows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 3, max = 256), regex(pattern = HOST))]
    pub host: Option<String>,
    /// Has no effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external: Option<bool>,
}

/// Requests to a path.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApiRulePath {
    /// A regular expression that matches the whole path.
    #[schemars(regex(pattern = r"^([0-9a-zA-Z./*()?!\\_-]+)"))]
    pub path: String,
    /// The Service of this path instead of the one of the spec; with `v1beta1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ApiRuleService>,
    /// The methods that are served. `allow` serves all, whatever is here.
    #[schemars(length(min = 1))]
    pub methods: Vec<String>,
    /// Credentials of a request: the first strategy that knows them decides.
    #[schemars(length(min = 1))]
    pub access_strategies: Vec<ApiRuleHandler>,
    /// Changes to a permitted request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mutators: Option<Vec<ApiRuleHandler>>,
}

/// A handler, and how it is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApiRuleHandler {
    /// Its name, such as `noop`, `allow` or `jwt`.
    pub handler: String,
    /// Its settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<AnyObject>")]
    pub config: Option<Value>,
}

/// The observed state of an APIRule.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApiRuleStatus {
    /// When the status changed last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<TimeSchema>")]
    pub last_processed_time: Option<Time>,
    /// `metadata.generation` that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The APIRule itself.
    #[serde(default, rename = "APIRuleStatus", skip_serializing_if = "Option::is_none")]
    pub api_rule_status: Option<ApiRuleCode>,
    /// Its routes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub virtual_service_status: Option<ApiRuleCode>,
    /// Its access rules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_rule_status: Option<ApiRuleCode>,
    /// `Exposed`, with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<ConditionSchema>")]
    pub conditions: Vec<Condition>,
}

/// `OK`, `ERROR` or `SKIPPED`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ApiRuleCode {
    /// The word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desc: Option<String>,
}

/// Returns the definition of APIRules. Its installation is optional, so [`definitions`](super::definitions) does not
/// include it.
pub fn definition() -> CustomResourceDefinition {
    let mut definition = ApiRule::crd();
    let older = definition.spec.versions.iter();
    let mut newer: Vec<_> = older.cloned().collect();
    for version in &mut definition.spec.versions {
        version.additional_printer_columns = Some(columns(".spec.service.host"));
        let Some(spec) = spec_of(version) else { continue };
        require(spec, "service");
        set_pattern(spec, GATEWAY);
        let service = spec.properties.as_mut().and_then(|all| all.get_mut("service"));
        if let Some(service) = service {
            require(service, "host");
        }
    }
    for version in &mut newer {
        (version.name, version.storage) = ("v1beta1".to_owned(), false);
        version.additional_printer_columns = Some(columns(".spec.host"));
        let Some(spec) = spec_of(version) else { continue };
        require(spec, "host");
        set_pattern(spec, NEWER_GATEWAY);
    }
    definition.spec.versions.append(&mut newer);
    definition
}

fn spec_of(version: &mut CustomResourceDefinitionVersion) -> Option<&mut JSONSchemaProps> {
    version.schema.as_mut()?.open_api_v3_schema.as_mut()?.properties.as_mut()?.get_mut("spec")
}

fn set_pattern(spec: &mut JSONSchemaProps, pattern: &str) {
    let gateway = spec.properties.as_mut().and_then(|all| all.get_mut("gateway"));
    if let Some(gateway) = gateway {
        gateway.pattern = Some(pattern.to_owned());
    }
}

/// Makes a field required.
fn require(schema: &mut JSONSchemaProps, name: &str) {
    schema.required.get_or_insert_default().push(name.to_owned());
    let field = schema.properties.as_mut().and_then(|all| all.get_mut(name));
    if let Some(field) = field {
        field.nullable = None;
    }
}

fn columns(host: &str) -> Vec<CustomResourceColumnDefinition> {
    let column = |name: &str, kind: &str, path: &str| CustomResourceColumnDefinition {
        name: name.to_owned(),
        type_: kind.to_owned(),
        json_path: path.to_owned(),
        ..CustomResourceColumnDefinition::default()
    };
    vec![
        column("Status", "string", ".status.APIRuleStatus.code"),
        column("Host", "string", host),
        column("Age", "date", ".metadata.creationTimestamp"),
    ]
}
