//! Ends the conversion of Functions from and to `v1alpha2`, which needs the agent. Otherwise remaining Functions could
//! not be read without the agent: kubectl prefers `v1alpha2`, and the deletion of a namespace requests it too.

use serde_json::json;

use super::Uninstall;
use crate::cli::{Error, output};
use mainstay_api::names;
use mainstay_cluster::{Kind, Part, Scope};

impl Uninstall<'_> {
    /// Changes the CRD of Function so that only the stored version is served, if this installation's agent converts
    /// Functions.
    pub(super) async fn end_conversion(&self) -> Result<(), Error> {
        let (version, kind, name) = ("apiextensions.k8s.io/v1", "CustomResourceDefinition", names::FUNCTION_DEFINITION);
        let definitions = Kind::fixed(version, kind, "customresourcedefinitions", Scope::Cluster);
        let Some(mut live) = self.cluster.get(&definitions, None, name).await? else { return Ok(()) };
        let service = &live["spec"]["conversion"]["webhook"]["clientConfig"]["service"];
        if service["name"] != names::ADMISSION || service["namespace"] != self.namespace {
            return Ok(());
        }
        let mut versions = live["spec"]["versions"].take();
        for version in versions.as_array_mut().into_iter().flatten() {
            version["served"] = version["storage"].clone();
        }
        // The resource version prevents overwriting a concurrent change.
        let patch = json!({
            "metadata": {"resourceVersion": live["metadata"]["resourceVersion"]},
            "spec": {"versions": versions, "conversion": {"strategy": "None", "webhook": null}},
        });
        self.cluster.patch_merge(&definitions, None, name, Part::Main, &patch).await?;
        self.cluster.kinds_changed();
        output::print(&format!(
            "{kind} {name} is now served in v1alpha1 only, because no agent converts v1alpha2 any more. The discovery \
             cache of kubectl may be stale for hours: use kubectl get functions.v1alpha1.serverless.kyma-project.io\n"
        ))
    }
}
