//! By whose rights a GitSync reads and writes its objects: those of a ServiceAccount of its namespace, or the agent's own.
//!
//! Invariant: a GitSync that names no ServiceAccount is confined to its own namespace, unless that is trusted.
//! Invariant: one whose ServiceAccount is not known for certain acts by nobody's rights.
//!
//! Deliberately absent: what a ServiceAccount may do. That is the API server's to say, request by request; what the agent keeps
//! for itself (inventories, statuses, Events, watches) it does by its own rights.

use std::sync::Arc;

use super::outcome::Refused;
use super::placement::Reach;
use mainstay_api::GitSync;
use mainstay_api::conditions::Reason;
use mainstay_cluster::ServiceAccount;

/// Whose GitSyncs have whose rights.
#[derive(Clone, Debug, Default)]
pub struct Rights {
    /// Namespaces whose GitSyncs may touch everything: the agent's own, and those that were allowed.
    pub trusted: Vec<String>,
    /// Name of the ServiceAccount of GitSyncs of other namespaces that name none.
    pub default_service_account: Option<String>,
    /// Every GitSync acts as a ServiceAccount: the agent has no right of its own to apply anything.
    pub requires_account: bool,
    /// Namespaces that the agent sees objects in; `None`: in all.
    pub namespaces: Option<Arc<[String]>>,
}

impl Rights {
    /// Whether GitSyncs of this namespace may touch everything with the agent's rights.
    pub(super) fn is_trusted(&self, namespace: &str) -> bool {
        self.trusted.iter().any(|trusted| trusted == namespace)
    }

    /// The name of the ServiceAccount that a GitSync acts as.
    fn account_name<'a>(&'a self, sync: &'a GitSync) -> Option<&'a str> {
        let own = sync.spec.service_account_name.as_deref();
        let namespace = sync.metadata.namespace.as_deref().unwrap_or_default();
        own.or_else(|| self.default_service_account.as_deref().filter(|_| !self.is_trusted(namespace)))
    }

    /// The ServiceAccount that a GitSync acts as; `None`: it acts with the agent's rights.
    ///
    /// # Errors
    /// No ServiceAccount can have the name, or one is required.
    pub(super) fn account(&self, sync: &GitSync) -> Result<Option<ServiceAccount>, Refused> {
        let Some(name) = self.account_name(sync) else {
            return if self.requires_account { Err(lacks_account(sync)) } else { Ok(None) };
        };
        let namespace = sync.metadata.namespace.as_deref().unwrap_or_default();
        let account = ServiceAccount::new(namespace, name);
        let wrong = || {
            let said = "is no name of a ServiceAccount; write lower case letters, digits, - and .";
            Refused::invalid(Reason::SpecInvalid, format!("spec.serviceAccountName: {name:?} {said}"))
        };
        account.map(Some).ok_or_else(wrong)
    }

    /// What a GitSync may touch as far as the agent says; of one that acts as a ServiceAccount the API server says the rest.
    pub(super) fn reach(&self, sync: &GitSync) -> Reach {
        let namespace = sync.metadata.namespace.as_deref().unwrap_or_default();
        if self.account_name(sync).is_none() && !self.is_trusted(namespace) {
            return Reach::OwnNamespace;
        }
        self.namespaces.clone().map_or(Reach::Cluster, Reach::Namespaces)
    }
}

/// Refuses a GitSync that names no ServiceAccount where one is required.
fn lacks_account(sync: &GitSync) -> Refused {
    let namespace = sync.metadata.namespace.as_deref().unwrap_or_default();
    let message = format!(
        "spec.serviceAccountName is required: this agent was installed with `--profile restricted` and applies nothing with rights \
         of its own; name a ServiceAccount of namespace {namespace} that the agent may impersonate"
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
        assert!(rights.account(&sync).unwrap_err().message.contains("\"a:b\" is no name of a ServiceAccount"));
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
