//! An attempt has the rights of its GitSync: its writer, and whether the ServiceAccount by whose rights it acts is there.
//!
//! Invariant: before anything is written for a commit as a ServiceAccount, that one has been looked up, with the agent's rights.
//!
//! Deliberately absent: which ServiceAccount that is (`rights`).

use super::attempt::Attempt;
use super::outcome::Refused;
use mainstay_api::conditions::Reason;
use mainstay_cluster::{Kind, Scope, ServiceAccount};
use mainstay_engine::apply::Writer;
use mainstay_object::failure::Class;

impl Attempt<'_> {
    /// The writer with the rights of this GitSync.
    pub(super) fn acting(&self) -> Result<Writer, Refused> {
        let unknown = || Refused {
            class: Class::Bug,
            reason: Reason::InternalError,
            message: "the ServiceAccount of this GitSync is not known".to_owned(),
            retry_after: None,
        };
        self.context.writer.acting_for(self.owner).ok_or_else(unknown)
    }

    /// The ServiceAccount by whose rights this GitSync acts and that does not exist. An API server lets one act as it all the
    /// same, by what RoleBindings still say of it.
    pub(super) async fn missing_account(&self) -> Result<Option<ServiceAccount>, Refused> {
        let Some(account) = self.context.account(self.sync)? else { return Ok(None) };
        let accounts = Kind::fixed("v1", "ServiceAccount", "serviceaccounts", Scope::Namespaced);
        let cluster = self.context.writer.cluster();
        let found = cluster.get_metadata(&accounts, Some(account.namespace()), account.name()).await?;
        Ok(found.is_none().then_some(account))
    }

    /// Refuses to write anything as a ServiceAccount that does not exist.
    pub(super) async fn require_account(&self) -> Result<(), Refused> {
        let Some(account) = self.missing_account().await? else { return Ok(()) };
        let (namespace, name) = (account.namespace(), account.name());
        let message = format!(
            "{account} does not exist; create it (kubectl -n {namespace} create serviceaccount {name}) and give it the rights that \
             the objects need, or name another one in spec.serviceAccountName. The last applied commit stays enforced"
        );
        Err(Refused { class: Class::NotReady, reason: Reason::SpecInvalid, message, retry_after: None })
    }
}
