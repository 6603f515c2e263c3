//! Events in an uninstallation: their processes deliver without an agent, so they stay. The agent's access to the login of
//! NATS is removed.

use super::{Error, Kind, ObjectMeta, RBAC, Scope, Uninstall};
use mainstay_api::names::{EVENTING_NAMESPACE, NATS};

impl Uninstall<'_> {
    /// Returns whether NATS is installed.
    pub(super) async fn has_nats(&self) -> Result<bool, Error> {
        let sets = Kind::fixed("apps/v1", "StatefulSet", "statefulsets", Scope::Namespaced);
        Ok(self.cluster.get_metadata(&sets, Some(EVENTING_NAMESPACE), NATS).await?.is_some())
    }

    /// Deletes the agent's permission to write the login of NATS.
    pub(super) async fn delete_nats_rights(&self) -> Result<(), Error> {
        for (kind, plural) in [("RoleBinding", "rolebindings"), ("Role", "roles")] {
            let kind = Kind::fixed(RBAC, kind, plural, Scope::Namespaced);
            let is_installed = |meta: &ObjectMeta| {
                let label = meta.labels.as_ref().and_then(|labels| labels.get("app.kubernetes.io/name"));
                label.is_some_and(|label| label == NATS)
            };
            self.delete(&kind, Some(EVENTING_NAMESPACE), NATS, is_installed).await?;
        }
        Ok(())
    }
}
