//! Logins of Providers whose services belong to a cloud: tokens of identities and of keys, and signatures.
//!
//! Invariant: a token of an identity is requested and sent over connections whose certificates the agent's CAs verify.
//! Objects name no CA for them.
//!
//! Not here: the cache of tokens and the refusals that it keeps, which `mainstay_git` has.

use jiff::Timestamp;

use mainstay_cluster::secrets::SecretData;
use mainstay_git::{CloudFault, CloudIdentity, CloudService, Fault, GoogleKey, Outbound, Secret, Source};
use mainstay_notification::{Login, Service, Target};

/// The logins of the Providers of a namespace.
pub(super) struct Logins {
    source: Source,
    namespace: String,
}

impl Logins {
    pub(super) fn new(source: &Source, namespace: &str) -> Self {
        Self { source: source.for_namespace(namespace), namespace: namespace.to_owned() }
    }

    /// Returns the client that sends to the service of a Provider.
    ///
    /// # Errors
    /// A field of a Secret cannot be used.
    pub(super) fn outbound(
        &self,
        target: &Target,
        tls: Option<&SecretData>,
        proxy: Option<&SecretData>,
    ) -> Result<Outbound, Fault> {
        match target.login() {
            Some(Login::Identity { .. }) => self.source.cloud_outbound(&self.namespace, proxy),
            _ => self.source.outbound(&self.namespace, tls, proxy),
        }
    }

    /// Checks the login of a Provider, as far as that needs no request to the cloud.
    ///
    /// # Errors
    /// The missing setting, such as an annotation of the ServiceAccount, and what to do.
    pub(super) async fn check(&self, target: &Target) -> Result<(), String> {
        match target.login() {
            None | Some(Login::SharedKey(_)) => Ok(()),
            Some(Login::GoogleKey(json)) => GoogleKey::read(json.expose()).map(|_| ()).map_err(|why| why.to_string()),
            Some(Login::Identity { service, account }) => {
                let checked = match self.identity(&at_cloud(*service, target.host()), account.as_deref()) {
                    Ok(identity) => self.source.check_identity(&identity).await,
                    Err(fault) => Err(fault),
                };
                checked.or_else(if_passing).map_err(|fault| match account {
                    Some(_) => fault.to_string(),
                    None => format!("{fault}; or put a login into a Secret, and name it in spec.secretRef"),
                })
            }
        }
    }

    /// Returns the value of `Authorization` for the service of a Provider.
    ///
    /// # Errors
    /// The identity is not set up, or the cloud is not reached or refuses the login.
    pub(super) async fn authorization(
        &self,
        target: &Target,
        login: &Login,
        outbound: &Outbound,
    ) -> Result<Secret<String>, Fault> {
        let token = match login {
            Login::SharedKey(key) => return Ok(key.authorization(Timestamp::now())),
            Login::GoogleKey(json) => {
                let key = GoogleKey::read(json.expose())?;
                self.source.google_key_token(&key, outbound).await?
            }
            Login::Identity { service, account } => {
                let service = at_cloud(*service, target.host());
                let identity = self.identity(&service, account.as_deref())?;
                self.source.service_token(&identity, &service, outbound).await?
            }
        };
        Ok(Secret::new(format!("Bearer {}", token.expose())))
    }

    /// Drops the token of an identity that the service has refused, unless the token is new.
    pub(super) fn doubt(&self, target: &Target, login: &Login) {
        let Login::Identity { service, account } = login else { return };
        let service = at_cloud(*service, target.host());
        if let Ok(identity) = self.identity(&service, account.as_deref()) {
            self.source.doubt_service_token(&identity, &service);
        }
    }

    fn identity(&self, service: &CloudService, account: Option<&str>) -> Result<CloudIdentity, Fault> {
        Ok(CloudIdentity::for_service(service, account, &self.namespace)?)
    }
}

/// Ignores a fault that says nothing about the settings: the API server did not respond. A message meets it again.
fn if_passing(fault: Fault) -> Result<(), Fault> {
    match fault {
        Fault::Timeout { .. } | Fault::Cloud(CloudFault::NoToken { .. }) => Ok(()),
        fault => Err(fault),
    }
}

/// Returns the service at a host.
fn at_cloud(service: Service, host: &str) -> CloudService {
    match service {
        Service::AzureDevops => CloudService::AzureDevops,
        Service::EventHubs => CloudService::EventHubs { host: host.to_owned() },
        Service::PubSub => CloudService::PubSub,
    }
}
