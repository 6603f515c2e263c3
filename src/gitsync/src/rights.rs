//! The permissions of a GitSync: those of a ServiceAccount in its namespace, or the agent's own.
//!
//! Invariant: a GitSync without a ServiceAccount is confined to its own namespace, unless that is trusted.
//! Invariant: if the ServiceAccount of a GitSync is uncertain, no object is read or written.
//!
//! Not here: the permissions of a ServiceAccount, because the API server authorizes each request. For its own data
//! (inventories, statuses, Events, watches), the agent uses its own permissions.

use std::sync::Arc;

use super::outcome::Refused;
use super::placement::Reach;
use mainstay_api::GitSync;
use mainstay_api::conditions::Reason;
use mainstay_cluster::ServiceAccount;

/// The rules for the permissions of GitSyncs, by namespace.
#[derive(Clone, Debug, Default)]
pub struct Rights {
    /// Namespaces whose GitSyncs may touch all objects: the agent's own, and trusted ones.
    pub trusted: Vec<String>,
    /// Name of the ServiceAccount for GitSyncs of other namespaces that specify none.
    pub default_service_account: Option<String>,
    /// Whether every GitSync must impersonate a ServiceAccount, because the agent has no permissions to apply objects.
    pub requires_account: bool,
    /// Namespaces whose objects the agent sees; `None` for all.
    pub namespaces: Option<Arc<[String]>>,
}

impl Rights {
    /// Whether GitSyncs of this namespace may touch all objects with the agent's permissions.
    pub(super) fn is_trusted(&self, namespace: &str) -> bool {
        self.trusted.iter().any(|trusted| trusted == namespace)
    }

    /// Returns the name of the ServiceAccount that a GitSync impersonates.
    fn account_name<'a>(&'a self, sync: &'a GitSync) -> Option<&'a str> {
        let own = sync.spec.service_account_name.as_deref();
        let namespace = sync.metadata.namespace.as_deref().unwrap_or_default();
        own.or_else(|| self.default_service_account.as_deref().filter(|_| !self.is_trusted(namespace)))
    }

    /// Returns the ServiceAccount that a GitSync impersonates; `None` if it uses the agent's permissions.
    ///
    /// # Errors
    ///
    /// The name is invalid, or a ServiceAccount is required.
    pub(super) fn account(&self, sync: &GitSync) -> Result<Option<ServiceAccount>, Refused> {
        let Some(name) = self.account_name(sync) else {
            return if self.requires_account { Err(lacks_account(sync)) } else { Ok(None) };
        };
        let namespace = sync.metadata.namespace.as_deref().unwrap_or_default();
        let account = ServiceAccount::new(namespace, name);
        let wrong = || {
            let said = "is not a valid name of a ServiceAccount; use lower case letters, digits, - and .";
            Refused::invalid(Reason::SpecInvalid, format!("spec.serviceAccountName: {name:?} {said}"))
        };
        account.map(Some).ok_or_else(wrong)
    }

    /// Returns the objects that a GitSync may touch by the agent's rules. With a ServiceAccount, the API server decides
    /// about each of them.
    pub(super) fn reach(&self, sync: &GitSync) -> Reach {
        let namespace = sync.metadata.namespace.as_deref().unwrap_or_default();
        if self.account_name(sync).is_none() && !self.is_trusted(namespace) {
            return Reach::OwnNamespace;
        }
        self.namespaces.clone().map_or(Reach::Cluster, Reach::Namespaces)
    }
}

/// Returns the error that the required ServiceAccount is missing.
fn lacks_account(sync: &GitSync) -> Refused {
    let namespace = sync.metadata.namespace.as_deref().unwrap_or_default();
    let message = format!(
        "spec.serviceAccountName is required: this agent was installed with `--profile restricted` and applies \
         nothing with permissions of its own; name a ServiceAccount of namespace {namespace} that the agent may \
         impersonate"
    );
    Refused::invalid(Reason::SpecInvalid, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(namespace: &str, named: Option<&str>, default: Option<&str>, account: Option<&str>, reach: Reach) {
        let rights = Rights {
            trusted: vec!["mainstay-system".to_owned()],
            default_service_account: default.map(str::to_owned),
            ..Rights::default()
        };
        let sync = json!({
            "apiVersion": "mainstay.dev/v1alpha1", "kind": "GitSync", "metadata": {"namespace": namespace, "name": "x"},
            "spec": {"gitRepository": "x", "serviceAccountName": named},
        });
        let sync: GitSync = serde_json::from_value(sync).unwrap();
        let found = rights.account(&sync).unwrap().map(|account| account.to_string());
        let expected = account.map(|name| format!("ServiceAccount {namespace}/{name}"));
        assert_eq!((found, rights.reach(&sync)), (expected, reach), "{namespace} {named:?} {default:?}");
    }

    #[test]
    fn a_git_sync_acts_as_the_account_that_it_names_or_by_default_and_else_is_confined_as_ever() {
        check("shop", None, None, None, Reach::OwnNamespace);
        check("shop", Some("deployer"), None, Some("deployer"), Reach::Cluster);
        check("shop", None, Some("tenant"), Some("tenant"), Reach::Cluster);
        check("shop", Some("deployer"), Some("tenant"), Some("deployer"), Reach::Cluster);
        check("mainstay-system", None, Some("tenant"), None, Reach::Cluster);
        check("mainstay-system", Some("deployer"), Some("tenant"), Some("deployer"), Reach::Cluster);
    }

    #[test]
    fn a_name_that_no_account_can_have_is_refused_and_not_left_out() {
        let rights = Rights { default_service_account: Some("a:b".to_owned()), ..Rights::default() };
        let sync = GitSync::new("x", serde_json::from_value(json!({"gitRepository": "x"})).unwrap());
        assert!(rights.account(&sync).unwrap_err().message.contains("\"a:b\" is not a valid name of a ServiceAccount"));
    }

    #[test]
    fn a_git_sync_without_an_account_is_refused_where_the_agent_has_no_rights_of_its_own() {
        let namespaces: Arc<[String]> = ["flux".to_owned(), "shop".to_owned()].into();
        let rights = Rights {
            trusted: vec!["flux".to_owned()],
            requires_account: true,
            namespaces: Some(Arc::clone(&namespaces)),
            ..Rights::default()
        };
        let sync = |named: Option<&str>| -> GitSync {
            let spec = json!({"gitRepository": "x", "serviceAccountName": named});
            let mut sync = GitSync::new("x", serde_json::from_value(spec).unwrap());
            sync.metadata.namespace = Some("flux".to_owned());
            sync
        };
        let refused = rights.account(&sync(None)).unwrap_err().message;
        assert!(refused.starts_with("spec.serviceAccountName is required: ") && refused.contains("namespace flux"));
        let named = sync(Some("applier"));
        assert!(rights.account(&named).unwrap().is_some());
        assert_eq!(rights.reach(&named), Reach::Namespaces(namespaces));
    }
}
