//! A key of a service account of Google, as its console creates it: JSON with a private key. A signed request returns an
//! access token.
//!
//! Invariant: no error and no `Debug` shows a field of the key.
//! Invariant: only keys of service accounts are read. Other credentials of Google name files, programs and URLs that
//! their reader opens.
//!
//! Not here: clocks, and sending requests (`service_login`).

use form_urlencoded::Serializer;
use http::{Method, Request, header};
use reqwest::Url;
use serde_json::{Value, json};

use crate::access_fault::AccessFault;
use crate::address::plain_host;
use crate::jwt;
use mainstay_object::Secret;
use mainstay_object::egress::{METADATA_REFUSED, is_metadata_host};

/// The key of the Secret.
const FIELD: &str = "token";
/// Maximum length of the JSON, in bytes.
const MAX_BYTES: usize = 16 << 10;
/// Maximum length of a name in it, in bytes.
const NAME_BYTES: usize = 256;
const TOKEN_URI: &str = "https://oauth2.googleapis.com/token";
const SCOPE: &str = "https://www.googleapis.com/auth/pubsub";
/// Validity of a signed request, in seconds. Google permits an hour.
const VALID: i64 = 600;
/// Permitted difference between both clocks, in seconds.
const SKEW: i64 = 10;

/// A key of a service account of Google.
#[derive(Clone, PartialEq, Eq)]
pub struct GoogleKey {
    email: String,
    id: Option<String>,
    key: Secret<String>,
    /// The address that issues tokens.
    token_uri: Url,
}

impl std::fmt::Debug for GoogleKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("GoogleKey(…)")
    }
}

impl GoogleKey {
    /// Reads the JSON of a key.
    ///
    /// # Errors
    /// The JSON is not a key of a service account, or its private key or its `token_uri` cannot be used.
    pub fn read(json: &str) -> Result<Self, AccessFault> {
        let unusable = |why| AccessFault::UnusableField { field: FIELD, why };
        let read = Some(json).filter(|json| json.len() <= MAX_BYTES);
        let read: Option<Value> = read.and_then(|json| serde_json::from_str(json).ok()).filter(Value::is_object);
        let read = read.ok_or(unusable("it must be the JSON key of a service account of Google, of at most 16 KiB"))?;
        if read["type"] != "service_account" {
            return Err(unusable(
                "type in its JSON must be service_account; for a workload identity, set spec.serviceAccountName instead",
            ));
        }
        if read.get("universe_domain").is_some_and(|domain| domain != "googleapis.com") {
            return Err(unusable("universe_domain in its JSON must be googleapis.com"));
        }
        let name = |field: &str| {
            let text = read[field].as_str().filter(|text| !text.is_empty() && text.len() <= NAME_BYTES);
            text.filter(|text| text.bytes().all(|byte| byte.is_ascii_graphic())).map(str::to_owned)
        };
        let email = name("client_email").ok_or(unusable("client_email in its JSON must be a name of one word"))?;
        let token_uri = token_uri(read.get("token_uri")).map_err(unusable)?;
        let key = read["private_key"].as_str().filter(|key| jwt::rsa_key(key).is_some());
        let key =
            key.ok_or(unusable("private_key in its JSON must be an RSA key in PEM form of at least 2048 bits"))?;
        Ok(Self { email, id: name("private_key_id"), key: Secret::new(key.to_owned()), token_uri })
    }

    /// Returns the host of the address that issues tokens.
    pub(super) fn host(&self) -> &str {
        self.token_uri.host_str().unwrap_or_default()
    }

    /// Returns the parts that distinguish keys.
    pub(super) fn parts(&self) -> [&str; 4] {
        let id = self.id.as_deref().unwrap_or_default();
        [&self.email, id, self.key.expose(), self.token_uri.as_str()]
    }

    /// Returns the request for a token. `now` is in seconds since 1970.
    pub(super) fn token_request(&self, now: i64) -> Option<Request<Vec<u8>>> {
        let form = Serializer::new(String::new())
            .append_pair("assertion", &self.assertion(now)?)
            .append_pair("grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer")
            .finish();
        let request = Request::builder().method(Method::POST).uri(self.token_uri.as_str());
        request.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded").body(form.into_bytes()).ok()
    }

    fn assertion(&self, now: i64) -> Option<String> {
        let issued = now - SKEW;
        let claims = json!({
            "iss": self.email, "scope": SCOPE, "aud": self.token_uri.as_str(), "iat": issued, "exp": issued + VALID,
        });
        let mut header = json!({"alg": "RS256", "typ": "JWT"});
        if let Some(id) = &self.id {
            header["kid"] = json!(id);
        }
        jwt::rs256(&jwt::rsa_key(self.key.expose())?, &header, &claims)
    }
}

/// Reads the address that issues tokens. The egress policy applies to it, as to the address of any Provider.
fn token_uri(given: Option<&Value>) -> Result<Url, &'static str> {
    const FORM: &str = "token_uri in its JSON must be an address that begins with https://, such as \
                        https://oauth2.googleapis.com/token";
    let text = given.map_or(Some(TOKEN_URI), Value::as_str).ok_or(FORM)?;
    let url = Url::parse(text).ok().filter(|url| {
        let is_bare = url.username().is_empty() && url.password().is_none() && url.fragment().is_none();
        url.scheme() == "https" && is_bare && url.host_str().is_some_and(|host| !host.is_empty())
    });
    let url = url.ok_or(FORM)?;
    if !plain_host::is_plain_in(text) {
        return Err(plain_host::REFUSED);
    }
    if url.host_str().is_some_and(is_metadata_host) {
        return Err(METADATA_REFUSED);
    }
    Ok(url)
}

#[cfg(test)]
impl GoogleKey {
    /// Returns a key with these fields, for a private key that is the same one in each call of a test.
    pub(super) fn with(change: &Value) -> Result<Self, String> {
        let mut all = json!({
            "type": "service_account", "project_id": "shop", "private_key_id": "k1", "private_key": Self::pem(),
            "client_email": "sender@shop.iam.gserviceaccount.com", "token_uri": TOKEN_URI,
        });
        for (field, value) in change.as_object().unwrap() {
            all[field] = value.clone();
        }
        Self::read(&all.to_string()).map_err(|why| why.to_string())
    }

    fn pem() -> &'static str {
        static PEM: std::sync::OnceLock<String> = std::sync::OnceLock::new();
        PEM.get_or_init(|| {
            let made = std::process::Command::new("openssl").args(["genrsa", "-traditional", "2048"]).output();
            String::from_utf8(made.expect("`openssl` is installed").stdout).unwrap()
        })
    }
}

#[cfg(test)]
mod tests {
    use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD, Engine as _};
    use ring::signature::{RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};

    use super::*;

    #[test]
    fn signs_the_claims_of_a_service_account() {
        let key = GoogleKey::with(&json!({})).unwrap();
        let request = key.token_request(1_700_000_000).unwrap();
        assert_eq!(request.uri(), TOKEN_URI);
        let form: Vec<(String, String)> =
            form_urlencoded::parse(request.body()).map(|(name, value)| (name.into(), value.into())).collect();
        let [(first, assertion), (second, grant)] = &form[..] else { panic!("{form:?}") };
        assert_eq!((first.as_str(), second.as_str()), ("assertion", "grant_type"));
        assert_eq!(grant, "urn:ietf:params:oauth:grant-type:jwt-bearer");
        let (signed, signature) = assertion.rsplit_once('.').unwrap();
        let (header, claims) = signed.split_once('.').unwrap();
        let decoded = |text: &str| BASE64_URL_SAFE_NO_PAD.decode(text).unwrap();
        let read = |text: &str| serde_json::from_slice::<Value>(&decoded(text)).unwrap();
        assert_eq!(read(header), json!({"alg": "RS256", "typ": "JWT", "kid": "k1"}));
        let expected = json!({
            "iss": "sender@shop.iam.gserviceaccount.com", "scope": "https://www.googleapis.com/auth/pubsub",
            "aud": TOKEN_URI, "iat": 1_699_999_990, "exp": 1_700_000_590,
        });
        assert_eq!(read(claims), expected);
        let pair = jwt::rsa_key(GoogleKey::pem()).unwrap();
        let public: &[u8] = pair.public().as_ref();
        UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, public)
            .verify(signed.as_bytes(), &decoded(signature))
            .unwrap();
        assert_eq!(format!("{key:?}"), "GoogleKey(…)");
    }

    #[test]
    fn hostile_keys_are_refused_without_their_fields() {
        let short = BASE64_STANDARD.encode("canary");
        for (change, problem) in [
            (json!({"type": "external_account"}), "type in its JSON must be service_account"),
            (json!({"type": "authorized_user"}), "type in its JSON must be service_account"),
            (json!({"type": null}), "type in its JSON must be service_account"),
            (json!({"universe_domain": "canary.example"}), "universe_domain in its JSON must be"),
            (json!({"client_email": "canary\nx"}), "client_email in its JSON must be"),
            (json!({"client_email": 7}), "client_email in its JSON must be"),
            (json!({"private_key": format!("-----BEGIN PRIVATE KEY-----\n{short}\n")}), "private_key in its JSON must"),
            (json!({"private_key": null}), "private_key in its JSON must"),
            (json!({"token_uri": "http://canary.example/token"}), "token_uri in its JSON must be an address"),
            (json!({"token_uri": "file:///canary"}), "token_uri in its JSON must be an address"),
            (json!({"token_uri": "https://u:canary@host/"}), "token_uri in its JSON must be an address"),
            (json!({"token_uri": null}), "token_uri in its JSON must be an address"),
            (json!({"token_uri": "https://169.254.169.254/canary"}), METADATA_REFUSED),
            (json!({"token_uri": "https://c\u{430}nary.example/"}), plain_host::REFUSED),
        ] {
            let why = GoogleKey::with(&change).unwrap_err();
            assert!(why.contains(problem) && !why.contains("canary"), "{change}: {why}");
        }
        for text in [
            "",
            "canary",
            "[]",
            "\"canary\"",
            &"{".repeat(1 << 10),
            &format!("{{\"a\":\"{}\"}}", "a".repeat(MAX_BYTES)),
        ] {
            let why = GoogleKey::read(text).unwrap_err().to_string();
            assert!(why.contains("it must be the JSON key"), "{why}");
        }
    }

    #[test]
    fn tokens_of_keys_with_other_addresses_are_distinct() {
        let (one, other) = (
            GoogleKey::with(&json!({})).unwrap(),
            GoogleKey::with(&json!({"token_uri": "https://proxy.example/token"})).unwrap(),
        );
        assert_ne!(one.parts(), other.parts());
        assert_eq!(other.host(), "proxy.example");
    }
}
