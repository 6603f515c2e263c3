//! Repositories with authentication by a GitHub App, and an API that issues tokens like GitHub's.

use std::sync::Arc;

use axum::{Router, extract::State, http::StatusCode, routing::any};
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD, Engine as _};
use jiff::{Timestamp, ToSpan as _};
use parking_lot::Mutex;
use ring::signature::{RSA_PKCS1_2048_8192_SHA256, RsaKeyPair, UnparsedPublicKey};
use serde_json::{Value, json};

use super::tls::{TlsBench, remote};
use super::*;

/// The state of the API, and the requests to it.
struct Api {
    public: Vec<u8>,
    /// Lifetime of tokens.
    seconds: i64,
    tokens: usize,
    /// Number of lookups of an owner's installation.
    lookups: usize,
}

type Shared = Arc<Mutex<Api>>;

/// Returns the App's private key in PEM format, and its public key.
fn key() -> (String, Vec<u8>) {
    let pem = mainstay_testkit::rsa_key();
    let der = pem.lines().filter(|line| !line.starts_with("-----")).collect::<String>();
    let pair = RsaKeyPair::from_der(&BASE64_STANDARD.decode(der).unwrap()).unwrap();
    (pem, pair.public().as_ref().to_vec())
}

/// Whether the App signed the request, and the signature is currently valid.
fn is_signed(api: &Api, request: &axum::extract::Request) -> bool {
    let given = request.headers()["authorization"].to_str().unwrap().strip_prefix("Bearer ").unwrap();
    let (signed, signature) = given.rsplit_once('.').unwrap();
    let decoded = |text: &str| BASE64_URL_SAFE_NO_PAD.decode(text).unwrap();
    let claims: Value = serde_json::from_slice(&decoded(signed.split_once('.').unwrap().1)).unwrap();
    let (now, at) = (Timestamp::now().as_second(), |name: &str| claims[name].as_i64().unwrap());
    assert!(claims["iss"] == "17" && at("iat") <= now && now < at("exp") && at("exp") - at("iat") <= 600, "{claims}");
    let public = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, &api.public);
    public.verify(signed.as_bytes(), &decoded(signature)).is_ok()
}

async fn give(State(api): State<Shared>, request: axum::extract::Request) -> (StatusCode, String) {
    let mut api = api.lock();
    let is_lookup = request.uri().path().starts_with("/api/v3/users/");
    assert_eq!(request.method(), if is_lookup { "GET" } else { "POST" });
    if !is_signed(&api, &request) {
        return (StatusCode::UNAUTHORIZED, json!({"message": "A JSON web token could not be decoded"}).to_string());
    }
    if is_lookup {
        api.lookups += 1;
    }
    match request.uri().path() {
        "/api/v3/users/team/installation" => {
            return (StatusCode::OK, json!({"id": 29, "account": {"login": "team"}}).to_string());
        }
        "/api/v3/users/odd/installation" => return (StatusCode::OK, json!({"id": "../29"}).to_string()),
        _ => {}
    }
    if request.uri().path() != "/api/v3/app/installations/29/access_tokens" {
        return (StatusCode::NOT_FOUND, json!({"message": "Not Found"}).to_string());
    }
    api.tokens += 1;
    let ends = Timestamp::now() + api.seconds.seconds();
    let token = format!("ghs_s3cret{}", api.tokens);
    (StatusCode::CREATED, json!({"token": token, "expires_at": ends.to_string()}).to_string())
}

#[tokio::test]
async fn a_github_app_opens_its_repositories_with_tokens_that_are_kept_until_shortly_before_they_end() {
    let (pem, public) = key();
    let api = Arc::new(Mutex::new(Api { public, seconds: 3600, tokens: 0, lookups: 0 }));
    let tokens_of_app = Router::new().route("/api/v3/{*path}", any(give)).with_state(Arc::clone(&api));
    let bench = TlsBench::beside(|ca| ca.server("127.0.0.1"), tokens_of_app).await;
    let base = format!("{}/api/v3", bench.server.base());
    let ca = bench.ca.pem();
    let named = |field: &str, key: &str, installation: &str| {
        let data = [("githubAppID", "17"), (field, installation), ("githubAppPrivateKey", key)];
        remote(&bench.server.url(NAME), &[&data[..], &[("githubAppBaseURL", &base), ("ca.crt", &ca)]].concat()).unwrap()
    };
    let data = |key: &str, installation: &str| named("githubAppInstallationID", key, installation);
    let allow = |token: usize| {
        let login = BASE64_STANDARD.encode(format!("x-access-token:ghs_s3cret{token}"));
        bench.server.require_authorization(&format!("Basic {login}"));
    };
    let tokens = || api.lock().tokens;
    let good = data(&pem, "29");
    let refused = async |remote: &Remote| {
        let error = sync(&bench.source, remote, "main").await.unwrap_err();
        assert!(!format!("{} {error:?} {remote:?}", chain(&error)).contains("s3cret"), "{error:?}");
        assert_eq!(error.class(), Class::Denied);
        error.fault().to_string()
    };

    // The API is at another port of the host, where the token must not go.
    let other = GitServer::start_tls(Path::new("/nowhere"), bench.ca.server("127.0.0.1")).await;
    let elsewhere = [
        ("githubAppID", "17"),
        ("githubAppInstallationID", "29"),
        ("githubAppPrivateKey", &pem),
        ("githubAppBaseURL", &base),
        ("ca.crt", &ca),
    ];
    let error = sync(&bench.source, &remote(&other.url(NAME), &elsewhere).unwrap(), "main").await.unwrap_err();
    assert!(error.fault().to_string().contains("is not the API of the repository's host"), "{error:?}");
    assert_eq!((tokens(), other.take_counts().requests), (0, 0));

    let said = refused(&data(&key().0, "29")).await;
    assert!(
        said.starts_with("127.0.0.1 did not issue a token for the GitHub App: it does not accept the key (401)"),
        "{said}"
    );
    let said = refused(&data(&pem, "30")).await;
    assert!(said.contains("it has no such installation of the App (404)"), "{said}");
    assert_eq!((tokens(), bench.server.take_counts().requests), (0, 0));

    allow(1);
    sync(&bench.source, &good, "main").await.unwrap();
    sync(&bench.source, &good, "main").await.unwrap();
    assert_eq!(tokens(), 1, "the token is kept");
    // The token is revoked. The next attempt gets another token.
    allow(2);
    assert!(refused(&good).await.contains("it does not accept the credentials"));
    api.lock().seconds = 299;
    sync(&bench.source, &good, "main").await.unwrap();
    assert_eq!(tokens(), 2);
    // The second token expires soon, so it is not used again.
    allow(3);
    sync(&bench.source, &good, "main").await.unwrap();
    assert_eq!(tokens(), 3);

    // For an owner, the installation is looked up with each token.
    let of_owner = |owner: &str| named("githubAppInstallationOwner", &pem, owner);
    api.lock().seconds = 3600;
    allow(4);
    sync(&bench.source, &of_owner("team"), "main").await.unwrap();
    sync(&bench.source, &of_owner("team"), "main").await.unwrap();
    assert_eq!((tokens(), api.lock().lookups), (4, 1));
    let said = refused(&of_owner("nobody")).await;
    assert!(said.contains("it has no installation of the App for this owner (404)"), "{said}");
    let said = refused(&of_owner("odd")).await;
    assert!(said.contains("its response has no installation"), "{said}");
}
