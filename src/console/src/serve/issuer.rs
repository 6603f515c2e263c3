//! Requests to the issuer of OpenID Connect that signs users in, by the authorization code flow with PKCE.
//!
//! Invariant: requests go to HTTPS URLs, or to this machine if the issuer itself is on it. Invariant: no redirect is
//! followed, and a response is read up to 512 KiB. Invariant: no message contains a code, a token or the client's
//! secret.
//!
//! The ID token is verified here as the specification demands: signature, issuer, audience, expiry and nonce. The API
//! server verifies it again with each request.
//!
//! Not here: the binding of an answer to a browser (`attempt`), and sessions.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use openidconnect::core::{
    CoreAuthPrompt, CoreAuthenticationFlow, CoreClient, CoreClientAuthMethod, CoreErrorResponseType,
    CoreProviderMetadata,
};
use openidconnect::{
    AuthType, AuthorizationCode, ClientId, ClientSecret, CsrfToken, DiscoveryError, EndpointMaybeSet, EndpointNotSet,
    EndpointSet, HttpRequest, HttpResponse, IssuerUrl, Nonce, PkceCodeChallenge, PkceCodeVerifier, RedirectUrl,
    RequestTokenError, Scope, StandardErrorResponse, TokenResponse as _,
};
use tokio::time::Instant;

use crate::attempt::Attempt;
use crate::text::{MESSAGE, plain};
use mainstay_object::failure::chain;

/// Maximum size of a response, in bytes.
const LARGEST: usize = 512 << 10;
/// Maximum duration of a request.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time for which the issuer's configuration and keys are kept, and a failure to read them. The latter limits the
/// requests that visitors without a session can cause.
const KEPT: Duration = Duration::from_mins(1);
const KEPT_FAILURE: Duration = Duration::from_secs(3);

/// Files in the directory of credentials.
const SECRET: &str = "client-secret";
const AUTHORITIES: &str = "ca.crt";

/// The URL of an issuer: of HTTPS, unless the issuer is on this machine.
#[derive(Clone, Debug)]
pub struct IssuerAddress(IssuerUrl);

impl FromStr for IssuerAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if !is_permitted(text, text) {
            return Err("users and tokens would be exposed; write https://HOST".to_owned());
        }
        IssuerUrl::new(text.to_owned()).map(Self).map_err(|error| error.to_string())
    }
}

/// The issuer that signs users in, and the client that the issuer knows.
#[derive(Clone, Debug)]
pub struct IssuerSettings {
    /// URL of the issuer, as in its configuration and in the settings of the API server.
    pub url: IssuerAddress,
    /// ID of the client, which is the audience of ID tokens.
    pub client_id: String,
    /// Scopes beside `openid`.
    pub scopes: Vec<String>,
    /// Directory with `client-secret` and `ca.crt`, both optional. Changes take effect within a minute.
    pub credentials: Option<PathBuf>,
}

/// Whether the issuer may ask the user, for example for a password.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Prompt {
    Allowed,
    Refused,
}

/// The client after discovery, which sets the first and the fifth endpoint.
type Client =
    CoreClient<EndpointSet, EndpointNotSet, EndpointNotSet, EndpointNotSet, EndpointMaybeSet, EndpointMaybeSet>;

/// The issuer's configuration and keys, and the client for its requests.
struct Known {
    requests: Requests,
    client: Client,
}

/// The result of the last discovery, and its time.
type Discovered = Option<(Instant, Result<Arc<Known>, String>)>;

/// The issuer that signs users in.
pub(super) struct Issuer {
    settings: IssuerSettings,
    known: tokio::sync::Mutex<Discovered>,
}

/// Returns whether requests to a URL are encrypted, or stay on this machine as those to the issuer do.
fn is_permitted(url: &str, issuer: &str) -> bool {
    let Ok(uri) = url.parse::<Uri>() else { return false };
    let is_here = |uri: &Uri| uri.host().is_some_and(loopback::web::is_this_machine);
    match uri.scheme_str() {
        Some("https") => true,
        Some("http") => is_here(&uri) && issuer.starts_with("http://"),
        _ => false,
    }
}

impl Issuer {
    /// Returns an issuer. Sends no request.
    pub(super) fn new(settings: IssuerSettings) -> Self {
        Self { settings, known: tokio::sync::Mutex::default() }
    }

    /// Returns the host of the issuer, for pages.
    pub(super) fn host(&self) -> &str {
        self.settings.url.0.url().host_str().unwrap_or("the issuer")
    }

    /// Returns the URL at which the issuer signs the user in.
    ///
    /// # Errors
    /// Fails with a message for the user.
    pub(super) async fn sign_in_url(
        &self,
        attempt: &Attempt,
        callback: &str,
        prompt: Prompt,
    ) -> Result<String, String> {
        let known = self.known().await?;
        let (state, nonce) = (CsrfToken::new(attempt.state.clone()), Nonce::new(attempt.nonce.clone()));
        let challenge = PkceCodeChallenge::from_code_verifier_sha256(&PkceCodeVerifier::new(attempt.verifier.clone()));
        let client = known.client.clone().set_redirect_uri(redirect(callback)?);
        let request = client.authorize_url(CoreAuthenticationFlow::AuthorizationCode, || state, || nonce);
        let scopes = self.settings.scopes.iter().cloned().map(Scope::new);
        let request = request.add_scopes(scopes).set_pkce_challenge(challenge);
        let request = if prompt == Prompt::Refused { request.add_prompt(CoreAuthPrompt::None) } else { request };
        let (url, _, _) = request.url();
        if is_permitted(url.as_str(), &self.settings.url.0) {
            Ok(url.to_string())
        } else {
            Err("the address at which the issuer signs users in is not of HTTPS".to_owned())
        }
    }

    /// Exchanges the code of an attempt for an ID token.
    ///
    /// # Errors
    /// Fails with a message for the user.
    pub(super) async fn id_token(&self, attempt: &Attempt, code: &str, callback: &str) -> Result<String, String> {
        let known = self.known().await?;
        let client = known.client.clone().set_redirect_uri(redirect(callback)?);
        let request = client.exchange_code(AuthorizationCode::new(code.to_owned()));
        let request = request.map_err(|_| "the issuer has no address for the exchange of codes".to_owned())?;
        let request = request.set_pkce_verifier(PkceCodeVerifier::new(attempt.verifier.clone()));
        let answer = request.request_async(&known.requests).await.map_err(|error| refusal(&error))?;
        let token = answer.id_token().ok_or("the response of the issuer has no ID token")?;
        // The token goes to the API server only, which decides about the other audiences.
        let verifier = client.id_token_verifier().set_other_audience_verifier_fn(|_| true);
        let nonce = Nonce::new(attempt.nonce.clone());
        token.claims(&verifier, &nonce).map_err(|error| shown(&format!("the ID token is invalid: {error}")))?;
        Ok(token.to_string())
    }

    /// Returns the issuer's configuration and keys, from memory if they are recent.
    async fn known(&self) -> Result<Arc<Known>, String> {
        let mut known = self.known.lock().await;
        if let Some((read, result)) = &*known {
            let kept = if result.is_ok() { KEPT } else { KEPT_FAILURE };
            if read.elapsed() < kept {
                return result.clone();
            }
        }
        let result = self.discover().await.map(Arc::new);
        *known = Some((Instant::now(), result.clone()));
        result
    }

    async fn discover(&self) -> Result<Known, String> {
        let directory = self.settings.credentials.as_deref();
        let secret = read(directory, SECRET).await?;
        let secret = secret.map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned());
        let requests = Requests::new(read(directory, AUTHORITIES).await?.as_deref(), &self.settings.url.0)?;
        let metadata = CoreProviderMetadata::discover_async(self.settings.url.0.clone(), &requests).await;
        let metadata = metadata.map_err(|error| shown(&undiscovered(&error)))?;
        // Basic authentication is the default of the specification.
        let methods = metadata.token_endpoint_auth_methods_supported().cloned().unwrap_or_default();
        let has = |method: CoreClientAuthMethod| methods.contains(&method);
        let in_body = has(CoreClientAuthMethod::ClientSecretPost) && !has(CoreClientAuthMethod::ClientSecretBasic);
        let id = ClientId::new(self.settings.client_id.clone());
        let client = CoreClient::from_provider_metadata(metadata, id, secret.map(ClientSecret::new));
        let client = if in_body { client.set_auth_type(AuthType::RequestBody) } else { client };
        Ok(Known { requests, client })
    }
}

fn redirect(callback: &str) -> Result<RedirectUrl, String> {
    RedirectUrl::new(callback.to_owned()).map_err(|_| "the URL of this page is invalid".to_owned())
}

/// Reads a file that may be missing.
async fn read(directory: Option<&Path>, name: &str) -> Result<Option<Vec<u8>>, String> {
    let Some(directory) = directory else { return Ok(None) };
    match tokio::fs::read(directory.join(name)).await {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("the file {name} of the issuer's credentials cannot be read: {}", error.kind())),
    }
}

/// Returns a message for pages and logs.
fn shown(text: &str) -> String {
    plain(text, MESSAGE)
}

fn undiscovered(error: &DiscoveryError<RequestError>) -> String {
    let why = match error {
        DiscoveryError::Request(error) => chain(error),
        DiscoveryError::Response(status, _, _) => format!("it answered with status {status}"),
        DiscoveryError::Validation(why) => why.clone(),
        DiscoveryError::Parse(_) => "it is not the configuration of an issuer".to_owned(),
        other => other.to_string(),
    };
    format!("the configuration of the issuer cannot be read: {why}")
}

/// Returns why a code was not exchanged. Errors of parsing are not quoted, because they may contain parts of a token.
fn refusal(error: &RequestTokenError<RequestError, StandardErrorResponse<CoreErrorResponseType>>) -> String {
    let why = match error {
        RequestTokenError::ServerResponse(answer) => answer.to_string(),
        RequestTokenError::Request(error) => chain(error),
        RequestTokenError::Parse(_, _) | RequestTokenError::Other(_) => "its response is invalid".to_owned(),
    };
    shown(&format!("the issuer did not exchange the code: {why}"))
}

/// Why a request to the issuer failed.
#[derive(Debug, thiserror::Error)]
enum RequestError {
    #[error("the URL is not of HTTPS")]
    Unencrypted,
    #[error("the request failed")]
    Failed(#[from] reqwest::Error),
    #[error("the response is larger than 512 KiB")]
    TooLarge,
    #[error("the response is invalid")]
    Invalid(#[from] http::Error),
}

/// The client for requests to the issuer.
struct Requests {
    client: reqwest::Client,
    issuer: String,
}

impl Requests {
    fn new(authorities: Option<&[u8]>, issuer: &str) -> Result<Self, String> {
        // An error means that a provider is installed already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("mainstay/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .timeout(PATIENCE);
        if issuer.starts_with("http://") {
            // A proxy would see the code and the token in plain text.
            builder = builder.no_proxy();
        }
        if let Some(pem) = authorities {
            let found = reqwest::Certificate::from_pem_bundle(pem).ok().filter(|list| !list.is_empty());
            builder = builder.tls_certs_merge(found.ok_or("the file ca.crt has no certificate in PEM format")?);
        }
        let client = builder.build().map_err(|error| shown(&chain(&error)))?;
        Ok(Self { client, issuer: issuer.to_owned() })
    }

    async fn send(&self, request: HttpRequest) -> Result<HttpResponse, RequestError> {
        if !is_permitted(&request.uri().to_string(), &self.issuer) {
            return Err(RequestError::Unencrypted);
        }
        let mut response = self.client.execute(request.try_into()?).await?;
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await? {
            if body.len() + chunk.len() > LARGEST {
                return Err(RequestError::TooLarge);
            }
            body.extend_from_slice(&chunk);
        }
        let mut answer = http::Response::builder().status(response.status()).body(body)?;
        *answer.headers_mut() = std::mem::take(response.headers_mut());
        Ok(answer)
    }
}

impl<'c> openidconnect::AsyncHttpClient<'c> for Requests {
    type Error = RequestError;
    type Future = futures::future::BoxFuture<'c, Result<HttpResponse, RequestError>>;

    fn call(&'c self, request: HttpRequest) -> Self::Future {
        Box::pin(self.send(request))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_of_https_or_on_the_machine_of_the_issuer() {
        for (url, issuer, expected) in [
            ("https://login.example.com/token", "https://login.example.com", true),
            ("https://other.example.com/token", "https://login.example.com", true),
            ("http://login.example.com/token", "https://login.example.com", false),
            ("http://127.0.0.1:80/token", "https://login.example.com", false),
            ("http://127.0.0.1:80/token", "http://127.0.0.1:80", true),
            ("http://169.254.169.254/token", "http://127.0.0.1:80", false),
            ("javascript:alert(1)", "https://login.example.com", false),
            ("file:///etc/passwd", "http://127.0.0.1", false),
            ("", "http://127.0.0.1", false),
        ] {
            assert_eq!(is_permitted(url, issuer), expected, "{url} of {issuer}");
        }
    }
}
