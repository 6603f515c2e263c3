//! The identity that an object names.

use reqwest::Url;

use super::place::{Place, Provider};
use super::{CloudFault, CloudService};
use mainstay_object::syntax;

/// The identity with which an object opens its repository, registry or service.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct CloudIdentity {
    pub(super) provider: Provider,
    /// Namespace of the object, and of its ServiceAccount.
    pub(super) namespace: String,
    /// The ServiceAccount; `None` for the identity of the agent.
    pub(super) account: Option<String>,
}

impl CloudIdentity {
    /// Returns the identity in `spec.provider` and `spec.serviceAccountName` of an object; `None` for `generic`, which is
    /// the default.
    ///
    /// # Errors
    /// Fails with the invalid field.
    pub fn read(provider: Option<&str>, account: Option<&str>, namespace: &str) -> Result<Option<Self>, String> {
        let Some(provider) = provider.filter(|provider| *provider != "generic") else {
            return match account {
                None => Ok(None),
                Some(_) => Err("spec.serviceAccountName: has an effect only with spec.provider aws, azure or gcp; \
                                with provider generic, name a Secret with a login"
                    .to_owned()),
            };
        };
        let provider = Provider::read(provider).ok_or("spec.provider: must be generic, aws, azure or gcp")?;
        Self::of(provider, account, namespace).map(Some)
    }

    /// Returns the identity with which an object uses a service. `account` is its `spec.serviceAccountName`.
    ///
    /// # Errors
    /// The name of the ServiceAccount is invalid.
    pub fn for_service(service: CloudService, account: Option<&str>, namespace: &str) -> Result<Self, CloudFault> {
        Self::of(service.provider(), account, namespace).map_err(|why| CloudFault::Field { why })
    }

    fn of(provider: Provider, account: Option<&str>, namespace: &str) -> Result<Self, String> {
        if account.is_some_and(|account| syntax::subdomain(account).is_some()) {
            return Err("spec.serviceAccountName: is not a valid name".to_owned());
        }
        Ok(Self { provider, namespace: namespace.to_owned(), account: account.map(str::to_owned) })
    }

    /// Checks that a registry belongs to the provider. `host` is its host, with the port if it has one.
    ///
    /// # Errors
    /// The registry does not belong to the provider.
    pub fn check_registry(&self, host: &str) -> Result<(), String> {
        Place::registry(self.provider, host).map(|_| ())
    }

    /// Checks that a Git repository belongs to the provider.
    pub(crate) fn check_repository(&self, url: &Url) -> Result<(), String> {
        Place::repository(self.provider, url).map(|_| ())
    }

    /// Returns the value of `spec.provider`.
    pub(crate) fn provider_name(&self) -> &'static str {
        self.provider.name()
    }

    /// Returns the parts that distinguish identities.
    pub(crate) fn parts(&self) -> Vec<&str> {
        let account = self.account.as_deref();
        let kind = if account.is_some() { "account" } else { "agent" };
        vec!["cloud", self.provider.name(), &self.namespace, kind, account.unwrap_or_default()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_fields_of_an_object() {
        let read = |provider, account| CloudIdentity::read(provider, account, "shop");
        assert_eq!(read(None, None), Ok(None));
        assert_eq!(read(Some("generic"), None), Ok(None));
        let identity = read(Some("aws"), Some("puller")).unwrap().unwrap();
        assert_eq!(identity.parts(), ["cloud", "aws", "shop", "account", "puller"]);
        assert_eq!(read(Some("gcp"), None).unwrap().unwrap().parts(), ["cloud", "gcp", "shop", "agent", ""]);
        for (provider, account, problem) in [
            (Some("alibaba"), None, "spec.provider: must be generic, aws, azure or gcp"),
            (None, Some("puller"), "spec.serviceAccountName: has an effect only with"),
            (Some("generic"), Some("puller"), "spec.serviceAccountName: has an effect only with"),
            (Some("aws"), Some("../other"), "spec.serviceAccountName: is not a valid name"),
            (Some("aws"), Some(""), "spec.serviceAccountName: is not a valid name"),
        ] {
            assert!(read(provider, account).unwrap_err().starts_with(problem), "{provider:?} {account:?}");
        }
        let hubs = CloudIdentity::for_service(CloudService::EventHubs, Some("sender"), "shop").unwrap();
        assert_eq!(hubs.parts(), ["cloud", "azure", "shop", "account", "sender"]);
        let refused = CloudIdentity::for_service(CloudService::PubSub, Some("../other"), "shop").unwrap_err();
        assert_eq!(refused.to_string(), "spec.serviceAccountName: is not a valid name");
    }
}
