//! Authenticates requests with the help of issuers.

use std::time::{Duration, Instant};

use http::HeaderMap;
use serde_json::{Value, json};

use super::check::{self, Step};
use super::introspection::{Answers, form, refusal};
use super::issuer::{self, Issuer};
use super::keys::Keys;
use super::reach::Reach;
use super::rule::Rule;
use super::{fetch, jwt};
use devcluster_apiserver::server::Server;

/// Deadline of an issuer's response.
const DEADLINE: Duration = Duration::from_secs(5);

/// Issuers and their cached responses.
#[derive(Debug, Default)]
pub(super) struct Issuers {
    keys: Keys,
    answers: Answers,
    /// The gateway's own issuer, which is the default of authenticators that name no issuer.
    own: Option<Issuer>,
    /// Permitted internal issuers.
    reach: Reach,
}

impl Issuers {
    pub(super) fn new(own: Option<Issuer>, reach: Reach) -> Self {
        Self { own, reach, ..Self::default() }
    }

    pub(super) fn own(&self) -> Option<&Issuer> {
        self.own.as_ref()
    }

    /// Returns the status if a Rule refuses a request.
    pub(super) async fn refusal(
        &self,
        server: &Server,
        rule: &Rule,
        headers: &HeaderMap,
        query: Option<&str>,
    ) -> Option<u16> {
        let refused = match check::step(rule, headers, query) {
            Step::Pass => return None,
            Step::Refuse(status) => return Some(status),
            Step::Token { config, token } => (!self.is_good(server, &config, &token).await).then_some(401),
            Step::Introspect { config, token } => match self.said(server, &config, &token).await {
                Some(answer) => refusal(&answer, &config, server.now().as_second()),
                None => Some(500),
            },
        };
        refused.or((!rule.does_allow).then_some(403))
    }

    /// Whether a token is valid with its issuer's keys.
    async fn is_good(&self, server: &Server, config: &Value, token: &str) -> bool {
        let Some(key) = jwt::read(token).map(|token| token.key) else { return false };
        let addresses = check::key_addresses(config);
        let now = || server.now().as_second();
        if let Some(own) =
            self.own.as_ref().filter(|_| addresses.is_empty() || addresses.iter().any(|a| issuer::is_own(a)))
            && check::is_good(token, &with_algorithm(config), own.keys(), now())
        {
            return true;
        }
        for address in addresses.iter().filter(|address| !issuer::is_own(address)) {
            if check::is_good(token, config, &self.keys.at(server, &self.reach, address, &key).await, now()) {
                return true;
            }
        }
        false
    }

    /// Returns the introspection of a token; `None` if the issuer does not answer.
    async fn said(&self, server: &Server, config: &Value, token: &str) -> Option<Value> {
        let address = config["introspection_url"].as_str().unwrap_or_default();
        if address.is_empty() || issuer::is_own(address) {
            return Some(self.own.as_ref()?.introspect(token, server.now().as_second()));
        }
        if let Some(known) = self.answers.get(config, address, token, Instant::now()) {
            return Some(known);
        }
        let uri = address.parse().ok()?;
        let asked = fetch::ask(server, &self.reach, &uri, Some(form(token)));
        let text = tokio::time::timeout(DEADLINE, asked).await.ok().flatten()?;
        let answer: Value = serde_json::from_slice(&text).ok()?;
        // A response without `active` is invalid.
        answer["active"].as_bool()?;
        self.answers.keep(config, address, token, &answer, Instant::now());
        Some(answer)
    }
}

/// Adds the algorithm of the gateway's own issuer, unless the configuration sets algorithms.
fn with_algorithm(config: &Value) -> Value {
    let mut config = if config.is_object() { config.clone() } else { json!({}) };
    let named = config["allowed_algorithms"].as_array().is_some_and(|all| !all.is_empty());
    if !named {
        config["allowed_algorithms"] = json!([issuer::ALGORITHM]);
    }
    config
}
