//! Deletes the Roles of an installation with `--profile restricted` in all namespaces, and the `ServiceAccount` that
//! applied objects.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{LABEL, RBAC, Uninstall, is_ours};
use crate::cli::Error;
use mainstay_cluster::{Kind, Scope, Selection};

/// Names of the roles and of their bindings.
const ROLES: [&str; 3] = ["mainstay-agent", "mainstay-impersonates", "mainstay-restricted"];

impl Uninstall<'_> {
    /// Deletes the Roles, their bindings and the `ServiceAccount`.
    pub(super) async fn delete_restricted(&self) -> Result<(), Error> {
        let ours = Selection::labelled(LABEL.0, LABEL.1);
        for (kind, plural) in [("RoleBinding", "rolebindings"), ("Role", "roles")] {
            let kind = Arc::new(Kind::fixed(RBAC, kind, plural, Scope::Namespaced));
            let found: Vec<ObjectMeta> = self.list(&kind, ours.clone()).await?;
            for role in found.iter().filter(|role| role.name.as_deref().is_some_and(|name| ROLES.contains(&name))) {
                self.delete(&kind, role.namespace.as_deref(), role.name.as_deref().unwrap_or_default(), is_ours)
                    .await?;
            }
        }
        let accounts = Arc::new(Kind::fixed("v1", "ServiceAccount", "serviceaccounts", Scope::Namespaced));
        let found: Vec<ObjectMeta> = self.list(&accounts, ours.within(self.namespace)).await?;
        for account in found {
            let name = account.name.as_deref().unwrap_or_default();
            self.delete(&accounts, Some(self.namespace), name, is_ours).await?;
        }
        Ok(())
    }
}
