//! Tokens for services that receive messages: of identities, and of keys of Google.
//!
//! Invariant: a token of an identity is requested over connections whose certificates the agent's CAs verify.
//! Invariant: the endpoint in a key of Google is reached by the rules for the object whose Secret has the key. The token
//! depends on all fields of the key, and on the connection.

use jiff::Timestamp;

use super::exchange::{ACCESS, ANSWER_BYTES, Exchange, after, at_host, unusable};
use super::login::WITHIN;
use super::logins::{Login, key};
use super::{CloudFault, CloudIdentity, CloudService, GoogleKey, google};
use crate::connection::{Connection, digest};
use crate::error::Fault;
use crate::outbound::Outbound;
use crate::remotes::Source;
use mainstay_object::Secret;

/// The remedy after the refusal of a key.
const HINT: &str = "the key may be deleted or disabled, so create one and put it into the Secret";

impl Source {
    /// Checks that an identity is set up, as far as that needs no request to the cloud.
    ///
    /// # Errors
    /// The missing annotation or setting, or why the ServiceAccount is unknown.
    pub async fn check_identity(&self, identity: &CloudIdentity) -> Result<(), Fault> {
        let with = Connection::default();
        let checked = async { Exchange::new(self, identity, &with).await?.check() };
        let late = |_| Fault::Timeout { after: WITHIN, what: "reading the ServiceAccount" };
        tokio::time::timeout(WITHIN, checked).await.map_err(late)?
    }

    /// Returns a bearer token of an identity for a service. `through` is the client that also sends to the service.
    ///
    /// # Errors
    /// The identity is not set up, or the cloud refuses it.
    pub async fn service_token(
        &self,
        identity: &CloudIdentity,
        service: CloudService,
        through: &Outbound,
    ) -> Result<Secret<String>, Fault> {
        let place = service.place();
        let login = through.run(self.issued_login(identity, &place, through.connection())).await?;
        Ok(Secret::new(login.secret.to_string()))
    }

    /// Drops the token of an identity after the service has refused it, if the token is at least five minutes old.
    pub fn doubt_service_token(&self, identity: &CloudIdentity, service: CloudService) {
        self.clouds().logins.doubted(key(identity, &service.place()));
    }

    /// Returns a bearer token for a key of Google. `through` is the client that also sends to the service.
    ///
    /// # Errors
    /// The endpoint in the key is not reached, or refuses the key.
    pub async fn google_key_token(&self, key: &GoogleKey, through: &Outbound) -> Result<Secret<String>, Fault> {
        let connection = hex::encode(through.connection().digest());
        let kept_as = digest(["google key", connection.as_str()].into_iter().chain(key.parts()));
        let login = self.clouds().logins.get(kept_as, Default::default(), new_token(key, through)).await?;
        Ok(Secret::new(login.secret.to_string()))
    }
}

/// Requests a token for a key of Google.
async fn new_token(key: &GoogleKey, through: &Outbound) -> Result<(Login, Timestamp), Fault> {
    let host = key.host().to_owned();
    let request = key.token_request(Timestamp::now().as_second()).ok_or(Fault::Stopped)?;
    let sent = through.send(request, WITHIN, ANSWER_BYTES).await;
    let answer = sent.map_err(|fault| at_host(&host, fault))?;
    if answer.status != 200 {
        let (identity, hint) = ("the key in the Secret".to_owned(), HINT.to_owned());
        let (status, code) = (answer.status, google::read_code(&answer.body));
        return Err(CloudFault::Refused { host, identity, asked: ACCESS, status, code, hint }.into());
    }
    let (secret, seconds) = google::read_token(&answer.body).map_err(|why| unusable(host, ACCESS, why))?;
    Ok((Login { username: None, secret }, after(seconds)))
}

#[cfg(test)]
mod tests {
    use mainstay_object::egress::EgressPolicy;
    use serde_json::json;

    use super::*;
    use crate::Settings;

    #[tokio::test]
    async fn the_address_in_a_key_obeys_the_egress_policy_of_its_namespace() {
        let room = tempfile::tempdir().unwrap();
        let mut settings = Settings::new(room.path());
        settings.egress = EgressPolicy { unconfined: Some(vec!["agent".to_owned()]), ..EgressPolicy::default() };
        let source = Source::new(settings);
        let outbound = source.outbound("tenant", None, None).unwrap();
        for address in ["https://10.0.0.5/token", "https://127.0.0.1/token", "https://[::1]:8443/token"] {
            let key = GoogleKey::with(&json!({"token_uri": address})).unwrap();
            let fault = source.google_key_token(&key, &outbound).await.unwrap_err();
            assert!(matches!(fault, Fault::Confined { .. }), "{address}: {fault}");
        }
    }
}
