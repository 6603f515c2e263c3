//! Authentication with user name and password, or with a token that a token server issues for these credentials.
//!
//! Invariant: a token server receives the password over HTTPS. HTTP is allowed only if the registry itself uses HTTP
//! and is the same host. So a registry cannot redirect the password over plain HTTP to a different host.

use std::time::{Duration, Instant};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use reqwest::header::HeaderValue;
use reqwest::{Method, Url};
use serde::Deserialize;

use super::send::{Ask, host};
use super::{Client, Fault, Rights, challenge::Challenge};
use crate::registry::access::is_loopback;
use mainstay_object::Secret;

/// Maximum size of a token server's response in bytes.
const MAX_ANSWER: u64 = 64 << 10;
/// The default lifetime of a token, from the specification.
const USUAL: Duration = Duration::from_secs(60);
/// Remaining lifetime below which a token is no longer used.
const LEEWAY: Duration = Duration::from_secs(5);

/// The authorization for the registry.
#[derive(Debug, Default)]
pub(super) enum Authorization {
    /// None: the registry has not requested any authorization.
    #[default]
    Nothing,
    /// This header, until the given time; with `None`, without an end.
    Header(Secret<HeaderValue>, Option<Instant>),
}

#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    token: String,
    #[serde(default)]
    access_token: String,
    #[serde(default)]
    expires_in: Option<u64>,
}

/// Returns the token in a response, and its lifetime.
pub(super) fn token_of(body: &[u8]) -> Option<(String, Duration)> {
    let answer: Answer = serde_json::from_slice(body).ok()?;
    let token = if answer.token.is_empty() { answer.access_token } else { answer.token };
    let lasts = answer.expires_in.map_or(USUAL, |seconds| Duration::from_secs(seconds.min(86_400)));
    (!token.is_empty()).then_some((token, lasts))
}

impl Client {
    /// Returns the current header.
    pub(super) fn authorization(&self) -> Option<HeaderValue> {
        let authorization = self.authorization.lock();
        match &*authorization {
            Authorization::Header(header, until) if until.is_none_or(|until| Instant::now() < until) => {
                Some(header.expose().clone())
            }
            _ => None,
        }
    }

    /// Authenticates with the requested scheme.
    pub(super) async fn authenticate(&self, asked: &Challenge) -> Result<(), Fault> {
        let new = match asked {
            Challenge::Basic => {
                let header = self.basic()?;
                let denied = Fault::Denied { by: "the registry", status: 401, anonymous: header.is_none() };
                Authorization::Header(Secret::new(header.ok_or(denied)?), None)
            }
            Challenge::Bearer { realm, service } => self.token(realm, service.as_deref()).await?,
        };
        *self.authorization.lock() = new;
        Ok(())
    }

    /// Returns the header with user name and password; `None` without a login.
    pub(super) fn basic(&self) -> Result<Option<HeaderValue>, Fault> {
        let Some(login) = &self.access.login else { return Ok(None) };
        let encoded = BASE64_STANDARD.encode(format!("{}:{}", login.username, login.password.expose()));
        header("Basic", &encoded).map(Some)
    }

    async fn token(&self, realm: &str, service: Option<&str>) -> Result<Authorization, Fault> {
        let mut url = self.realm(realm)?;
        let actions = if self.rights == Rights::Pull { "pull" } else { "pull,push" };
        {
            let mut query = url.query_pairs_mut();
            if let Some(service) = service {
                query.append_pair("service", service);
            }
            query.append_pair("scope", &format!("repository:{}:{actions}", self.repository));
            if let Some(from) = &*self.mounting.lock() {
                query.append_pair("scope", &format!("repository:{from}:pull"));
            }
        }
        let (response, _) = self.follow(&Ask::new(Method::GET), &url, &url, self.basic()?).await?;
        if !response.status().is_success() {
            return Err(self.refused(response, "the registry's token server").await);
        }
        let body = self.body(response, "the response of the token server", MAX_ANSWER).await?;
        let (token, lasts) = token_of(&body).ok_or(Fault::Protocol { why: "there is no token" })?;
        let until = Instant::now() + lasts.saturating_sub(LEEWAY).max(LEEWAY);
        Ok(Authorization::Header(Secret::new(header("Bearer", &token)?), Some(until)))
    }

    /// Returns the URL of the token server, if it may receive a password.
    pub(super) fn realm(&self, realm: &str) -> Result<Url, Fault> {
        let realm =
            Url::parse(realm).map_err(|_| Fault::Protocol { why: "the address of its token server is not a URL" })?;
        let near = || realm.host() == self.origin.host() || realm.host_str().is_some_and(is_loopback);
        match realm.scheme() {
            "https" => Ok(realm),
            "http" if self.origin.scheme() == "http" && near() => Ok(realm),
            _ => Err(Fault::Redirect { to: host(&realm), why: "a token server is talked to over https only" }),
        }
    }
}

fn header(scheme: &str, value: &str) -> Result<HeaderValue, Fault> {
    let mut header = HeaderValue::from_str(&format!("{scheme} {value}"))
        .map_err(|_| Fault::Protocol { why: "its token is not valid in a header" })?;
    header.set_sensitive(true);
    Ok(header)
}
