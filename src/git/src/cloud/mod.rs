//! Identities of clouds: turns `spec.provider` and `spec.serviceAccountName` into a short-lived login, without a Secret.
//!
//! A [`CloudIdentity`] is a ServiceAccount, or the agent itself. Kubernetes issues a token for it, and the provider
//! exchanges this token for a login. `place` decides which hosts belong to a provider, `azure`, `aws` and `google`
//! build requests and read responses, `signature` signs requests to AWS, `exchange` sends them, and
//! `logins` keeps the results. A [`CloudService`] receives messages instead of being read. A [`GoogleKey`] takes the
//! place of an identity, and comes from a Secret.
//!
//! Invariant: a token of a ServiceAccount is sent only to hosts of the provider. These hosts result from constants, the
//! region in a verified host name, and the agent's own settings; no annotation contains one.
//! Invariant: a login is sent to hosts whose certificates the agent's CAs verify. Objects name no CA.
//! Invariant: no error, `Debug` or log shows a token, a key or a response.
//! Invariant: an object uses ServiceAccounts of its own namespace only. Only objects in namespaces that the operator
//! lists use the identity of the agent.
//! Invariant: logins in the cache are bounded, and erased when they are dropped.
//!
//! Not here: reading ServiceAccounts and requesting their tokens from the cluster, which the agent provides
//! ([`ServiceAccounts`]).

mod account;
mod aws;
mod azure;
#[expect(clippy::disallowed_methods, reason = "it sends requests, with deadlines")]
mod exchange;
mod fault;
mod google;
mod google_key;
mod identity;
mod json;
#[expect(clippy::disallowed_methods, reason = "a login has a deadline")]
mod login;
mod logins;
mod metadata;
mod place;
mod service;
#[expect(clippy::disallowed_methods, reason = "a login has a deadline")]
mod service_login;
mod settings;
mod signature;

pub use account::{Account, ServiceAccounts};
pub use fault::CloudFault;
pub use google_key::GoogleKey;
pub use identity::CloudIdentity;
pub(super) use logins::Clouds;
pub use service::CloudService;
pub use settings::{CLOUD_VARIABLES, CloudSettings};
