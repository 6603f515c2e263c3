//! An issuer of OpenID Connect on loopback, which signs its user in without a question. It enforces what the
//! specifications demand: a registered redirect URL, the client's secret, a code that is used once, and PKCE.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, LazyLock},
};

use axum::{Router, body::Body, extract::Request, http::Response};
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD, Engine as _};
use devcluster::User;
use jiff::Timestamp;
use parking_lot::Mutex;
use ring::{
    rand::SystemRandom,
    signature::{
        ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, UnparsedPublicKey,
    },
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

pub(super) const CLIENT: &str = "kubernetes";
pub(super) const SECRET: &str = "s3cret of the client";

/// The key of all issuers of the tests, as PKCS #8 too.
static KEY: LazyLock<(EcdsaKeyPair, Vec<u8>)> = LazyLock::new(new_key);

fn new_key() -> (EcdsaKeyPair, Vec<u8>) {
    let random = SystemRandom::new();
    let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
    let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, document.as_ref(), &random).unwrap();
    (pair, document.as_ref().to_owned())
}

/// Returns the key of all issuers as PKCS #8.
pub(super) fn private_key() -> &'static [u8] {
    &KEY.1
}

/// Faults of the issuer.
#[derive(Clone, Debug, Default)]
pub(super) struct Fault {
    /// Claims that replace those of an ID token.
    pub(super) claims: Value,
    /// Whether a different key signs.
    pub(super) is_forged: bool,
    /// The error and its description to return instead of a code.
    pub(super) refusal: Option<(String, String)>,
    /// The response to the exchange of a code.
    pub(super) exchanged: Option<(u16, String)>,
    /// Fields that replace those of the configuration.
    pub(super) configuration: Value,
}

/// A running issuer.
#[derive(Clone)]
pub(super) struct Issuer {
    pub(super) url: String,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    user: String,
    fault: Fault,
    codes: HashMap<String, HashMap<String, String>>,
    issued: Vec<String>,
}

impl Issuer {
    pub(super) async fn start(redirect: String) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let issuer = Self { url, state: Arc::default() };
        let shared = issuer.clone();
        let router = Router::new().fallback(move |request: Request| {
            let (issuer, redirect) = (shared.clone(), redirect.clone());
            async move { issuer.answer(request, &redirect).await }
        });
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        issuer
    }

    /// Sets the user of the next sign-ins.
    pub(super) fn sign_in_as(&self, user: &str) {
        user.clone_into(&mut self.state.lock().user);
    }

    pub(super) fn fail(&self, fault: Fault) {
        self.state.lock().fault = fault;
    }

    /// Returns the ID tokens so far.
    pub(super) fn issued(&self) -> Vec<String> {
        self.state.lock().issued.clone()
    }

    async fn answer(&self, request: Request, redirect: &str) -> Response<Body> {
        let query = pairs(request.uri().query().unwrap_or_default());
        let authorization = request.headers().get("authorization").map(|value| value.to_str().unwrap().to_owned());
        let path = request.uri().path().to_owned();
        let form = axum::body::to_bytes(request.into_body(), 1 << 20).await.unwrap();
        match &*path {
            "/.well-known/openid-configuration" => json_of(200, &self.configuration()),
            "/keys" => json_of(200, &keys()),
            "/auth" => self.authorize(query, redirect),
            "/token" => {
                let (status, body) =
                    self.exchange(authorization.as_deref(), &pairs(std::str::from_utf8(&form).unwrap()));
                json_of(status, &body)
            }
            _ => json_of(404, &json!({})),
        }
    }

    fn configuration(&self) -> Value {
        let url = &self.url;
        let mut configuration = json!({
            "issuer": url, "authorization_endpoint": format!("{url}/auth"), "token_endpoint": format!("{url}/token"),
            "jwks_uri": format!("{url}/keys"), "response_types_supported": ["code"], "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
        });
        replace(&mut configuration, &self.state.lock().fault.configuration);
        configuration
    }

    /// Redirects to the client with a code, as a user does who has a session at the issuer.
    fn authorize(&self, query: HashMap<String, String>, redirect: &str) -> Response<Body> {
        let expected = [
            ("response_type", "code"),
            ("client_id", CLIENT),
            ("redirect_uri", redirect),
            ("code_challenge_method", "S256"),
        ];
        for (name, value) in expected {
            assert_eq!(query.get(name).map(String::as_str), Some(value), "{name}");
        }
        assert!(query["scope"].split(' ').any(|scope| scope == "openid"), "{query:?}");
        let mut state = self.state.lock();
        let mut answer = vec![("state", query["state"].clone())];
        if let Some((error, description)) = state.fault.refusal.clone() {
            answer.extend([("error", error), ("error_description", description)]);
        } else {
            let code = format!("code-{}", state.codes.len());
            state.codes.insert(code.clone(), query);
            answer.push(("code", code));
        }
        let location = reqwest::Url::parse_with_params(redirect, answer).unwrap();
        Response::builder().status(302).header("location", location.as_str()).body(Body::empty()).unwrap()
    }

    fn exchange(&self, authorization: Option<&str>, form: &HashMap<String, String>) -> (u16, Value) {
        let refused = |why: &str| (400, json!({"error": why}));
        let encoded = SECRET.replace(' ', "+");
        let expected = format!("Basic {}", BASE64_STANDARD.encode(format!("{CLIENT}:{encoded}")));
        if authorization != Some(&*expected) {
            return (401, json!({"error": "invalid_client"}));
        }
        let mut state = self.state.lock();
        if let Some((status, body)) = &state.fault.exchanged {
            return (*status, serde_json::from_str(body).unwrap());
        }
        let Some(asked) = state.codes.get_mut(&form["code"]).map(std::mem::take).filter(|asked| !asked.is_empty())
        else {
            return refused("invalid_grant");
        };
        let challenge = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(form["code_verifier"].as_bytes()));
        if form["redirect_uri"] != asked["redirect_uri"] || challenge != asked["code_challenge"] {
            return refused("invalid_grant");
        }
        let now = Timestamp::now().as_second();
        let mut claims = json!({
            "iss": self.url, "aud": CLIENT, "sub": "0001", "email": state.user, "nonce": asked["nonce"], "iat": now,
            "exp": now + 3600,
        });
        replace(&mut claims, &state.fault.claims);
        let token = sign(&claims, state.fault.is_forged);
        state.issued.push(token.clone());
        (200, json!({"access_token": "opaque", "token_type": "Bearer", "expires_in": 3600, "id_token": token}))
    }
}

/// Replaces fields; null removes one.
fn replace(object: &mut Value, fields: &Value) {
    if fields.is_object() {
        json_patch::merge(object, fields);
    }
}

fn pairs(query: &str) -> HashMap<String, String> {
    let url = reqwest::Url::parse(&format!("http://a/?{query}")).unwrap();
    url.query_pairs().into_owned().collect()
}

fn json_of(status: u16, body: &Value) -> Response<Body> {
    let answer = Response::builder().status(status).header("content-type", "application/json");
    answer.body(Body::from(body.to_string())).unwrap()
}

fn keys() -> Value {
    let point = KEY.0.public_key().as_ref();
    let part = |from: usize| BASE64_URL_SAFE_NO_PAD.encode(&point[from..from + 32]);
    json!({"keys": [{"kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": "k", "x": part(1), "y": part(33)}]})
}

/// Returns an ID token with these claims, which a different key signs if it is forged.
pub(super) fn sign(claims: &Value, is_forged: bool) -> String {
    let part = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
    let text = format!("{}.{}", part(&json!({"alg": "ES256", "kid": "k", "typ": "JWT"})), part(claims));
    let other = new_key();
    let key = if is_forged { &other } else { &*KEY };
    let signature = key.0.sign(&SystemRandom::new(), text.as_bytes()).unwrap();
    format!("{text}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature))
}

/// Returns the user of an ID token, as an API server does that trusts the issuer: `--oidc-client-id=kubernetes
/// --oidc-username-claim=email --oidc-username-prefix=oidc:`.
pub(super) fn authenticate(token: &str) -> Option<User> {
    let (text, signature) = token.rsplit_once('.')?;
    let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, KEY.0.public_key().as_ref());
    key.verify(text.as_bytes(), &BASE64_URL_SAFE_NO_PAD.decode(signature).ok()?).ok()?;
    let claims: Value = serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(text.split_once('.')?.1).ok()?).ok()?;
    let audiences = claims["aud"].as_array().cloned().unwrap_or_else(|| vec![claims["aud"].clone()]);
    let is_valid = audiences.contains(&json!(CLIENT)) && claims["exp"].as_i64()? > Timestamp::now().as_second();
    let name = format!("oidc:{}", claims["email"].as_str()?);
    is_valid.then(|| User { name, uid: String::new(), groups: Vec::new(), extra: BTreeMap::new() })
}
