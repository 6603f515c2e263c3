//! Gets logins: reads the ServiceAccount, requests its token, and exchanges it at the provider.
//!
//! Invariant: a ServiceAccount is read before each use of its login. A login of a deleted or changed ServiceAccount is
//! not used.
//! Invariant: requests to a provider obey the egress rules of the namespace and use the object's proxy. Only the agent's
//! own identity is requested from servers of the machine, at addresses of the agent's own settings.

use std::sync::Arc;
use std::time::Duration;

use http::Request;
use jiff::Timestamp;
use reqwest::Url;
use zeroize::Zeroizing;

use super::azure::Application;
use super::google::{Audiences, GkeCluster};
use super::logins::{Clouds, Login, key};
use super::place::{Place, Provider, Region};
use super::settings::AZURE_FEDERATED_TOKEN_FILE;
use super::settings::{AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE, AWS_ROLE_SESSION_NAME, AWS_WEB_IDENTITY_TOKEN_FILE};
use super::signature::Keys;
use super::{Account, CloudFault, CloudIdentity, CloudSettings, ServiceAccounts, aws, azure, google, json, metadata};
use crate::connection::{Connection, digest};
use crate::error::Fault;
use crate::issued::Digest;
use crate::remotes::Source;
use crate::transport::Http;

/// Maximum time to connect to a server of the machine, and for its response.
const MACHINE_CONNECT: Duration = Duration::from_secs(2);
const MACHINE: Duration = Duration::from_secs(5);
/// Annotations of Flux that change the tokens of a ServiceAccount, with the value that changes nothing.
const TOKENS: [(&str, Option<&str>); 3] = [
    ("credential.auth.fluxcd.io/provider", Some("kubernetes")),
    ("credential.auth.fluxcd.io/type", Some("jwt")),
    ("credential.auth.fluxcd.io/audiences", None),
];
/// Maximum size of a response, in bytes.
pub(super) const ANSWER_BYTES: usize = 64 << 10;
/// Maximum size of a file with a token, in bytes.
const FILE_BYTES: u64 = 16 << 10;

const KEYS: &str = "temporary keys";
pub(super) const ACCESS: &str = "an access token";
const LOGIN: &str = "a login of the registry";

/// One identity, with the means to get its logins.
pub(super) struct Exchange<'s> {
    source: &'s Source,
    settings: &'s CloudSettings,
    accounts: &'s dyn ServiceAccounts,
    clouds: &'s Clouds,
    identity: &'s CloudIdentity,
    /// The ServiceAccount; `None` for the identity of the agent.
    account: Option<Account>,
    connection: Connection,
}

impl<'s> Exchange<'s> {
    pub(super) async fn new(source: &'s Source, identity: &'s CloudIdentity, with: &Connection) -> Result<Self, Fault> {
        let settings = source.cloud_settings();
        let accounts = settings.accounts.as_deref().ok_or(CloudFault::NoAgent)?;
        let account = match &identity.account {
            Some(name) => Some(account(accounts, &identity.namespace, name).await?),
            None if settings.trusted.contains(&identity.namespace) => None,
            None => return Err(CloudFault::NotTrusted { namespace: identity.namespace.clone() }.into()),
        };
        if let Some(account) = &account
            && let Some(name) = unsupported(account)
        {
            let why = format!("the annotation {name} has a value that is not supported; remove it");
            let (identity, provider) = (account.to_string(), identity.provider.name());
            return Err(CloudFault::NotSetUp { identity, provider, why }.into());
        }
        let connection = settings.connection(with)?;
        Ok(Self { source, settings, accounts, clouds: source.clouds(), identity, account, connection })
    }

    /// Returns the identity for messages.
    fn who(&self) -> String {
        self.account.as_ref().map_or_else(|| "the agent".to_owned(), ToString::to_string)
    }

    fn not_set_up(&self, why: String) -> Fault {
        let provider = self.identity.provider.name();
        CloudFault::NotSetUp { identity: self.who(), provider, why }.into()
    }

    /// Returns the version of the identity.
    fn version(&self) -> Digest {
        self.account.as_ref().map_or_else(Digest::default, |account| digest(account.parts()))
    }

    /// Checks the setup of the identity, as far as that needs no request to the provider.
    pub(super) fn check(&self) -> Result<(), Fault> {
        match (self.identity.provider, &self.account) {
            (Provider::Azure, _) => self.application().map(|_| ()),
            (Provider::Google, Some(account)) => {
                let read = google::email_of_account(account).and_then(|_| Audiences::of_account(account));
                read.map(|_| ()).map_err(|why| self.not_set_up(why))
            }
            (Provider::Google, None) | (Provider::Aws, _) => Ok(()),
        }
    }

    /// Returns the login for a place, from the cache or from the provider.
    pub(super) async fn login(&self, place: &Place) -> Result<Login, Fault> {
        if let Place::CodeCommit { region, host, path } = place {
            // A signature costs nothing, and is valid for a few minutes only.
            let keys = self.keys(place, region).await?;
            return Ok(aws::git_login(host, path, region, &keys, Timestamp::now()));
        }
        let asked = async {
            match self.identity.provider {
                Provider::Aws => self.ecr_login(place).await,
                Provider::Azure => self.azure_login(place).await,
                Provider::Google => self.google_login().await,
            }
        };
        self.clouds.logins.get(key(self.identity, place), self.version(), asked).await
    }

    /// Requests a token of the ServiceAccount, or reads the agent's own token from the file in this variable.
    async fn token(&self, audience: &str, variable: &str) -> Result<Zeroizing<String>, Fault> {
        let Some(account) = &self.account else {
            let file = self.settings.variable(variable);
            let file =
                file.ok_or_else(|| self.not_set_up(format!("the variable {variable} of the agent is not set")))?;
            let text = read(file).await.map_err(|why| self.not_set_up(format!("the file in {variable} {why}")))?;
            return json::token(text.trim())
                .ok_or_else(|| self.not_set_up(format!("the file in {variable} has no token")));
        };
        let token = self.accounts.token(account, audience).await;
        token.map_err(|why| CloudFault::NoToken { identity: self.who(), why }.into())
    }

    async fn keys(&self, place: &Place, region: &Region) -> Result<Arc<Keys>, Fault> {
        let asked = async { self.new_keys(region).await.map(|(keys, end)| (Arc::new(keys), end)) };
        self.clouds.keys.get(key(self.identity, place), self.version(), asked).await
    }

    async fn new_keys(&self, region: &Region) -> Result<(Keys, Timestamp), Fault> {
        // The order is that of the SDK.
        if self.account.is_none()
            && self.settings.variable(AWS_WEB_IDENTITY_TOKEN_FILE).is_none()
            && let Some(server) = metadata::pod_server(self.settings).map_err(|why| self.not_set_up(why))?
        {
            return self.pod_keys(&server).await;
        }
        let role = match &self.account {
            Some(account) => aws::role_of_account(account),
            None => aws::role_of_agent(self.settings),
        };
        let role = role.map_err(|why| self.not_set_up(why))?;
        let session = match (&self.account, self.settings.variable(AWS_ROLE_SESSION_NAME)) {
            (None, Some(name)) => name.to_owned(),
            (account, _) => aws::session(account.as_ref()),
        };
        let token = self.token(aws::AUDIENCE, AWS_WEB_IDENTITY_TOKEN_FILE).await?;
        let request = aws::keys_request(region, &role, &session, &token);
        let (host, answer) = self.ask(KEYS, request, aws::read_code).await?;
        aws::read_keys(&answer).map_err(|why| unusable(host, KEYS, why))
    }

    /// Requests the keys of the agent's pod from the server of the machine.
    async fn pod_keys(&self, server: &Url) -> Result<(Keys, Timestamp), Fault> {
        let mut request = Request::builder().uri(server.as_str());
        if let Some(file) = self.settings.variable(AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE) {
            let name = AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE;
            let text = read(file).await.map_err(|why| self.not_set_up(format!("the file in {name} {why}")))?;
            let token = json::token(text.trim());
            let token = token.ok_or_else(|| self.not_set_up(format!("the file in {name} has no token")))?;
            request = request.header("authorization", token.as_str());
        }
        let (host, answer) = self.ask_machine(KEYS, request.body(Vec::new()).ok()).await?;
        aws::read_pod_keys(&answer).map_err(|why| unusable(host, KEYS, why))
    }

    async fn ecr_login(&self, place: &Place) -> Result<(Login, Timestamp), Fault> {
        let region = aws::region(place).ok_or(Fault::Stopped)?;
        let keys = self.keys(place, &region).await?;
        let request = aws::login_request(place, &keys, Timestamp::now());
        let asked = self.ask(LOGIN, request, aws::read_code).await;
        if matches!(&asked, Err(Fault::Cloud(CloudFault::Refused { .. }))) {
            // The keys may have been revoked.
            self.clouds.keys.doubted(key(self.identity, place));
        }
        let (host, answer) = asked?;
        let (login, end) = aws::read_login(&answer).map_err(|why| unusable(host, LOGIN, why))?;
        Ok((login, at(end)))
    }

    /// Returns the application at Azure.
    fn application(&self) -> Result<Application, Fault> {
        let application = match &self.account {
            Some(account) => Application::of_account(account),
            None => Application::of_agent(self.settings),
        };
        application.map_err(|why| self.not_set_up(why))
    }

    async fn azure_login(&self, place: &Place) -> Result<(Login, Timestamp), Fault> {
        let application = self.application()?;
        let authority = azure::authority(self.settings).map_err(|why| self.not_set_up(why))?;
        let assertion = self.token(azure::AUDIENCE, AZURE_FEDERATED_TOKEN_FILE).await?;
        let request = azure::token_request(&authority, &application, azure::scope(place), &assertion);
        let (host, answer) = self.ask(ACCESS, request, azure::read_code).await?;
        let (token, seconds) = azure::read_token(&answer).map_err(|why| unusable(host, ACCESS, why))?;
        let Place::Acr { host: registry } = place else {
            return Ok((Login { username: None, secret: token }, after(seconds)));
        };
        let request = azure::login_request(registry, &token);
        let (host, answer) = self.ask(LOGIN, request, azure::read_code).await?;
        let (secret, end) = azure::read_login(&answer).map_err(|why| unusable(host, LOGIN, why))?;
        Ok((Login { username: Some(azure::USER.to_owned()), secret }, at(end)))
    }

    async fn google_login(&self) -> Result<(Login, Timestamp), Fault> {
        let login = |secret| Login { username: Some(google::USER.to_owned()), secret };
        let Some(account) = &self.account else {
            let request = google::metadata_request(self.settings, google::TOKEN_PATH);
            let (host, answer) = self.ask_machine(ACCESS, request).await?;
            let (token, seconds) = google::read_token(&answer).map_err(|why| unusable(host, ACCESS, why))?;
            return Ok((login(token), after(seconds)));
        };
        let email = google::email_of_account(account).map_err(|why| self.not_set_up(why))?;
        let audiences = match Audiences::of_account(account).map_err(|why| self.not_set_up(why))? {
            Some(audiences) => audiences,
            None => Audiences::of_cluster(self.cluster().await.map_err(|fault| self.elsewhere(fault))?),
        };
        let subject = self.token(&audiences.token, "").await?;
        let request = google::exchange_request(&audiences.exchange, &subject, email.as_deref());
        let (host, answer) = self.ask(ACCESS, request, google::read_code).await?;
        let (token, seconds) = google::read_token(&answer).map_err(|why| unusable(host, ACCESS, why))?;
        let Some(email) = email else { return Ok((login(token), after(seconds))) };
        let request = google::impersonation_request(&email, &token);
        let (host, answer) = self.ask(ACCESS, request, google::read_code).await?;
        let (token, end) = google::read_impersonated(&answer).map_err(|why| unusable(host, ACCESS, why))?;
        Ok((login(token), end))
    }

    /// Adds the missing annotation to the failure to find a cluster at Google.
    fn elsewhere(&self, fault: Fault) -> Fault {
        match fault {
            Fault::Network { what } => {
                let (who, annotation) = (self.who(), google::PROVIDER);
                let what =
                    format!("{what}; in a cluster that is not at Google, set the annotation {annotation} of {who}");
                Fault::Network { what }
            }
            fault => fault,
        }
    }

    /// Returns the cluster at Google in which the agent runs.
    async fn cluster(&self) -> Result<&GkeCluster, Fault> {
        self.clouds.cluster.get_or_try_init(|| self.find_cluster()).await
    }

    async fn find_cluster(&self) -> Result<GkeCluster, Fault> {
        const CLUSTER: &str = "the name of the cluster";
        let mut parts = Vec::new();
        for path in google::CLUSTER_PATHS {
            let (host, answer) = self.ask_machine(CLUSTER, google::metadata_request(self.settings, path)).await?;
            parts.push(google::read_part(&answer).ok_or_else(|| unusable(host, CLUSTER, "it is not a name"))?);
        }
        let [project, location, name] = <[String; 3]>::try_from(parts).map_err(|_| Fault::Stopped)?;
        Ok(GkeCluster { project, location, name })
    }

    /// Sends a request to the provider, with the egress rules of the namespace. Returns the host and the response.
    async fn ask(
        &self,
        asked: &'static str,
        request: Option<Request<Vec<u8>>>,
        read_code: fn(&[u8]) -> Option<String>,
    ) -> Result<(String, Vec<u8>), Fault> {
        let request = reqwest::Request::try_from(request.ok_or(Fault::Stopped)?).map_err(|_| Fault::Stopped)?;
        let host = request.url().host_str().unwrap_or_default().to_owned();
        let http: Http = self.source.http_of(&self.connection)?;
        let (response, body) = http.send_plain(request, ANSWER_BYTES).await.map_err(|fault| at_host(&host, fault))?;
        self.accepted(host, asked, response.status().as_u16(), body, read_code)
    }

    /// Sends a request to a server of the machine, at an address of the agent's own settings.
    async fn ask_machine(
        &self,
        asked: &'static str,
        request: Option<Request<Vec<u8>>>,
    ) -> Result<(String, Vec<u8>), Fault> {
        let request = reqwest::Request::try_from(request.ok_or(Fault::Stopped)?).map_err(|_| Fault::Stopped)?;
        let host = request.url().host_str().unwrap_or_default().to_owned();
        let lost =
            |_| Fault::Network { what: format!("no connection to {host}, which knows the identity of the agent") };
        // The verifier of TLS is that of the process.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(MACHINE_CONNECT)
            .timeout(MACHINE);
        let mut response = client.build().map_err(lost)?.execute(request).await.map_err(lost)?;
        let (status, mut body) = (response.status().as_u16(), Vec::new());
        while let Some(chunk) = response.chunk().await.map_err(lost)? {
            body.extend_from_slice(&chunk);
            if body.len() > ANSWER_BYTES {
                return Err(unusable(host, asked, "it is larger than 64 KiB"));
            }
        }
        self.accepted(host, asked, status, body, |_| None)
    }

    fn accepted(
        &self,
        host: String,
        asked: &'static str,
        status: u16,
        body: Vec<u8>,
        read_code: fn(&[u8]) -> Option<String>,
    ) -> Result<(String, Vec<u8>), Fault> {
        if status == 200 {
            return Ok((host, body));
        }
        let (code, identity, hint) = (read_code(&body), self.who(), self.hint());
        Err(CloudFault::Refused { host, identity, asked, status, code, hint }.into())
    }

    /// Returns what to do after a refusal.
    fn hint(&self) -> String {
        let subject = self.account.as_ref().map_or_else(
            || "the ServiceAccount of the agent".to_owned(),
            |account| format!("system:serviceaccount:{}:{}", account.namespace, account.name),
        );
        match self.identity.provider {
            Provider::Aws if self.account.is_none() => {
                "the ServiceAccount of the agent needs a role of EKS (pod identity or IRSA) with permissions for the repository"
                    .to_owned()
            }
            Provider::Aws => format!(
                "the role needs a trust policy for the OIDC provider of this cluster with {subject}, and permissions for \
                 the repository"
            ),
            Provider::Azure => format!(
                "the application needs a federated credential with the issuer of this cluster and {subject}, and access \
                 to the repository or service"
            ),
            Provider::Google => format!(
                "the workload identity pool must accept {subject}, and the identity needs access to the repository or \
                 service"
            ),
        }
    }
}

/// Returns an annotation with which the provider would get another token than the one that is sent.
fn unsupported(account: &Account) -> Option<&'static str> {
    let differs = |(name, same): &&(&'static str, Option<&str>)| {
        account.annotation(name).is_some_and(|value| Some(value) != *same)
    };
    TOKENS.iter().find(differs).map(|(name, _)| *name)
}

async fn account(accounts: &dyn ServiceAccounts, namespace: &str, name: &str) -> Result<Account, Fault> {
    let identity = || format!("ServiceAccount {namespace}/{name}");
    let found = accounts.find(namespace, name).await;
    let found = found.map_err(|why| CloudFault::NoToken { identity: identity(), why })?;
    found.ok_or_else(|| CloudFault::NoAccount { account: format!("{namespace}/{name}") }.into())
}

/// Reads a small file of the agent.
async fn read(file: &str) -> Result<Zeroizing<String>, &'static str> {
    use tokio::io::AsyncReadExt as _;
    let opened = tokio::fs::File::open(file).await.map_err(|_| "cannot be read")?;
    let mut text = Zeroizing::new(String::new());
    opened.take(FILE_BYTES).read_to_string(&mut text).await.map_err(|_| "cannot be read")?;
    Ok(text)
}

pub(super) fn unusable(host: String, asked: &'static str, why: &'static str) -> Fault {
    CloudFault::Answer { host, asked, why }.into()
}

/// Adds the host to an error, because it is not the host of the repository.
pub(super) fn at_host(host: &str, fault: Fault) -> Fault {
    match fault {
        Fault::Network { what } => Fault::Network { what: format!("{host}: {what}") },
        fault => fault,
    }
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap_or(Timestamp::MIN)
}

pub(super) fn after(seconds: i64) -> Timestamp {
    Timestamp::now().checked_add(Duration::from_secs(seconds.unsigned_abs())).unwrap_or(Timestamp::MIN)
}
