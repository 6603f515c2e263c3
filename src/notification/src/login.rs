//! The logins of types whose services belong to a cloud: identities, keys of Google, and shared access keys of Azure.
//!
//! Invariant: no `Debug` shows a key.
//! Invariant: a type with an identity sends to hosts of its cloud only, over TLS.
//!
//! Not here: exchanging an identity or a key of Google for a token, which the agent does.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use jiff::Timestamp;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use ring::hmac;

use crate::provider_type::ProviderType;
use mainstay_api::ProviderSpec;
use mainstay_object::Secret;

/// Validity of a signature, in seconds. Each attempt has its own signature.
const VALID: i64 = 900;
/// The characters that a signature encodes, which are those of RFC 3986.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// A service of a cloud.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Azure DevOps.
    AzureDevops,
    /// Azure Event Hubs.
    EventHubs,
    /// Google Pub/Sub.
    PubSub,
}

/// The login that a request needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Login {
    /// A token of an identity.
    Identity {
        /// The service that receives the token.
        service: Service,
        /// The ServiceAccount in the namespace of the Provider; `None` for the identity of the agent.
        account: Option<String>,
    },
    /// A token for the key of a service account of Google, in JSON.
    GoogleKey(Secret<String>),
    /// A signature by a shared access key of Azure.
    SharedKey(SharedKey),
}

/// A shared access key of Azure Event Hubs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedKey {
    /// The URL of the hub.
    pub(crate) resource: Secret<String>,
    /// The name of the policy.
    pub(crate) name: Secret<String>,
    pub(crate) key: Secret<String>,
}

impl SharedKey {
    /// Returns the value of `Authorization` for a request at this time.
    pub fn authorization(&self, now: Timestamp) -> Secret<String> {
        let resource = encoded(self.resource.expose());
        let end = now.as_second().saturating_add(VALID);
        let key = hmac::Key::new(hmac::HMAC_SHA256, self.key.expose().as_bytes());
        let signature = BASE64_STANDARD.encode(hmac::sign(&key, format!("{resource}\n{end}").as_bytes()));
        let (signature, name) = (encoded(&signature), encoded(self.name.expose()));
        Secret::new(format!("SharedAccessSignature sr={resource}&sig={signature}&se={end}&skn={name}"))
    }
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

impl Service {
    /// Returns the service of a type; `None` if the type has no identities.
    fn of(kind: ProviderType) -> Option<Self> {
        match kind {
            ProviderType::AzureDevops => Some(Self::AzureDevops),
            ProviderType::AzureEventHub => Some(Self::EventHubs),
            ProviderType::GooglePubSub => Some(Self::PubSub),
            _ => None,
        }
    }
}

impl Login {
    /// Returns the login of a Provider; `None` if its requests have the token of the Secret, or no login.
    ///
    /// # Errors
    /// Fields that exclude each other, or an identity of a type without one.
    pub(crate) fn of(
        kind: ProviderType,
        spec: &ProviderSpec,
        token: Option<&str>,
        key: Option<SharedKey>,
    ) -> Result<Option<Self>, String> {
        let account = spec.service_account_name.clone();
        let excluded =
            |other: &str| format!("spec.serviceAccountName: must not be set with {other}; remove one of them");
        let Some(service) = Service::of(kind) else {
            return account.map_or(Ok(None), |_| Err(ONLY.to_owned()));
        };
        match (token, key) {
            (Some(_), Some(_)) => Err(TWO_LOGINS.to_owned()),
            (Some(_), None) if account.is_some() => Err(excluded("a token in the Secret")),
            (None, Some(_)) if account.is_some() => Err(excluded("a SharedAccessKey in the Secret")),
            (None, Some(key)) => Ok(Some(Self::SharedKey(key))),
            (Some(token), None) if service == Service::PubSub => {
                Ok(Some(Self::GoogleKey(Secret::new(token.to_owned()))))
            }
            (Some(_), None) => Ok(None),
            // An object must not name the CAs of hosts to which the agent sends tokens of identities.
            (None, None) if spec.cert_secret_ref.is_some() => Err(CERTIFICATES.to_owned()),
            (None, None) => Ok(Some(Self::Identity { service, account })),
        }
    }

    /// Returns the remedy after a response with this status; `None` if the login is not the cause.
    pub fn refused(&self, status: u16) -> Option<String> {
        // Azure DevOps responds with a page for signing in, and with status 203.
        let has_page = status == 203 && matches!(self, Self::Identity { service: Service::AzureDevops, .. });
        if !matches!(status, 401 | 403) && !has_page {
            return None;
        }
        let (who, grant) = match self {
            Self::Identity { service, account } => {
                let agent = || "the identity of the agent".to_owned();
                let who = account.as_ref().map_or_else(agent, |name| format!("the identity of ServiceAccount {name}"));
                let grant = match service {
                    Service::AzureDevops => "add it to the organization as a user that may set commit statuses",
                    Service::EventHubs => "grant it the role Azure Event Hubs Data Sender",
                    Service::PubSub => "grant it roles/pubsub.publisher on the topic",
                };
                (who, grant)
            }
            Self::GoogleKey(_) => ("the key in the Secret".to_owned(), "grant it roles/pubsub.publisher on the topic"),
            Self::SharedKey(_) => {
                let grant = "correct the SharedAccessKey, whose policy needs the permission Send";
                ("the SharedAccessKey in the Secret".to_owned(), grant)
            }
        };
        Some(format!("the service refuses {who} (status {status}); {grant}"))
    }
}

const TWO_LOGINS: &str =
    "token of the Secret: must not be set with a SharedAccessKey in its address; remove one of them";
const CERTIFICATES: &str = "spec.certSecretRef: must not be set with an identity of a cloud; remove it, or put a login into \
                            the Secret";
/// The message for an identity of a type without one.
const ONLY: &str = "spec.serviceAccountName: has an effect only for azuredevops, azureeventhub and googlepubsub; for other \
                    types, name a Secret with a token";

#[cfg(test)]
mod tests {
    use super::*;

    fn key(resource: &str, name: &str, key: &str) -> SharedKey {
        let [resource, name, key] = [resource, name, key].map(|text| Secret::new(text.to_owned()));
        SharedKey { resource, name, key }
    }

    /// The signature is that of `openssl dgst -sha256 -hmac` over the same text.
    #[test]
    fn a_shared_access_signature_names_the_hub_its_end_and_the_policy() {
        let key = key("https://shop.servicebus.windows.net/events", "send only", "c2VzYW1lLWNhbmFyeQ==");
        let authorization = key.authorization(Timestamp::from_second(1_700_000_000).unwrap());
        assert_eq!(
            authorization.expose(),
            "SharedAccessSignature sr=https%3A%2F%2Fshop.servicebus.windows.net%2Fevents&sig=NhfX5P0R71zc0y49nXob%2FhbwNEAgXmufoTbiJ4YfWzc%3D&se=1700000900\
             &skn=send%20only"
        );
        let shown = format!("{key:?} {authorization:?} {:?}", Login::SharedKey(key.clone()));
        assert!(!shown.contains("sesame") && !shown.contains("send"), "{shown}");
    }

    #[test]
    fn a_refusal_names_the_missing_grant() {
        let of = |service, account: Option<&str>| Login::Identity { service, account: account.map(str::to_owned) };
        for (login, expected) in [
            (
                of(Service::EventHubs, Some("sender")),
                "identity of ServiceAccount sender (status 403); grant it the role",
            ),
            (of(Service::PubSub, None), "identity of the agent (status 403); grant it roles/pubsub.publisher"),
            (of(Service::AzureDevops, None), "identity of the agent (status 403); add it to the organization"),
            (Login::GoogleKey(Secret::new("canary".to_owned())), "the key in the Secret (status 403); grant it"),
            (
                Login::SharedKey(key("canary", "canary", "canary")),
                "SharedAccessKey in the Secret (status 403); correct",
            ),
        ] {
            let why = login.refused(403).unwrap();
            assert!(why.contains(expected) && !why.contains("canary"), "{why}");
            assert_eq!((login.refused(404), login.refused(201)), (None, None));
        }
        assert!(of(Service::AzureDevops, None).refused(203).is_some());
        assert_eq!(of(Service::PubSub, None).refused(203), None);
    }
}
