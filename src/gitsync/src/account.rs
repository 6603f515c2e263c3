//! The permissions of an attempt: its writer, and the check that the impersonated ServiceAccount exists.
//!
//! Invariant: before a write as a ServiceAccount, the agent looks up the account with its own permissions.
//!
//! Not here: the choice of the ServiceAccount (`rights`).

use super::attempt::Attempt;
use super::outcome::Refused;
use mainstay_api::conditions::Reason;
use mainstay_cluster::{Kind, Scope, ServiceAccount};
use mainstay_engine::apply::Writer;
use mainstay_object::failure::Class;

impl Attempt<'_> {
    /// Returns a writer with the permissions of this GitSync.
    pub(super) fn acting(&self) -> Result<Writer, Refused> {
        let unknown = || Refused {
            class: Class::Bug,
            reason: Reason::InternalError,
            message: "the ServiceAccount of this GitSync is not known".to_owned(),
            retry_after: None,
        };
        self.context.writer.acting_for(self.owner).ok_or_else(unknown)
    }

    /// Returns the impersonated ServiceAccount if it does not exist. An API server allows impersonation of a missing
    /// account, which then has the permissions of remaining RoleBindings.
    pub(super) async fn missing_account(&self) -> Result<Option<ServiceAccount>, Refused> {
        let Some(account) = self.context.account(self.sync)? else { return Ok(None) };
        let accounts = Kind::fixed("v1", "ServiceAccount", "serviceaccounts", Scope::Namespaced);
        let cluster = self.context.writer.cluster();
        let found = cluster.get_metadata(&accounts, Some(account.namespace()), account.name()).await?;
        Ok(found.is_none().then_some(account))
    }

    /// Refuses writes as a ServiceAccount that does not exist.
    pub(super) async fn require_account(&self) -> Result<(), Refused> {
        let Some(account) = self.missing_account().await? else { return Ok(()) };
        let (namespace, name) = (account.namespace(), account.name());
        let message = format!(
            "{account} does not exist; create it (kubectl -n {namespace} create serviceaccount {name}) and give it \
             the permissions that the objects need, or name a different one in spec.serviceAccountName. The last \
             applied commit stays enforced"
        );
        Err(Refused { class: Class::NotReady, reason: Reason::SpecInvalid, message, retry_after: None })
    }
}
