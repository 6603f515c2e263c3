//! Storages and the field manager of Knative's objects.

use serde_json::Value;

use devcluster_apiserver::object::text;

/// Namespace of the settings.
pub(super) const NAMESPACE: &str = "knative-serving";
/// Field manager of this controller's writes.
pub(super) const MANAGER: &str = "controller";

pub(super) const SERVICES: &str = "services.serving.knative.dev";
pub(super) const CONFIGURATIONS: &str = "configurations.serving.knative.dev";
pub(super) const REVISIONS: &str = "revisions.serving.knative.dev";
pub(super) const ROUTES: &str = "routes.serving.knative.dev";
pub(super) const AUTOSCALERS: &str = "podautoscalers.autoscaling.internal.knative.dev";
pub(super) const SERVERLESS: &str = "serverlessservices.networking.internal.knative.dev";
pub(super) const INGRESSES: &str = "ingresses.networking.internal.knative.dev";
pub(super) const IMAGES: &str = "images.caching.internal.knative.dev";
pub(super) const DEPLOYMENTS: &str = "deployments.apps";

/// Returns namespace and name of an object.
pub(super) fn place(object: &Value) -> (&str, &str) {
    (text(object, "/metadata/namespace"), text(object, "/metadata/name"))
}
