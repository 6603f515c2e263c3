//! Requests to the gateway of the embedded cluster: their paths and methods, their tokens, and HTTPS.

use devcluster::gateway::issuer::Wanted;

use super::*;

/// Returns the world of [`exposing`] for tests of the gateway itself.
async fn with_gateway(issuer: Option<Issuer>) -> (World, Gateway) {
    let (world, front) = exposing_with(issuer).await;
    (world, front.0.expect("this test needs the gateway of the embedded cluster"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_paths_are_distinguished_by_path_and_method() {
    let (world, gateway) = with_gateway(None).await;
    let mut post = path("/post", &["POST"], "noop", json!({}));
    post["mutators"] = json!([{"handler": "noop"}]);
    world.api_rule(with_rules(json!([path("/.*", &["GET"], "noop", json!({})), post])));
    world.rule_is(SERVED.0, SERVED.1).await;
    answers(&gateway, HOST, "/ip", 200).await;
    assert_eq!(ask(&gateway, Method::POST, HOST, "/post").await.0, 200);
    assert_eq!(ask(&gateway, Method::POST, HOST, "/ip").await.0, 404);
    assert_eq!(ask(&gateway, Method::GET, HOST, "/post").await.0, 200);
    assert_eq!(ask(&gateway, Method::GET, HOST, "/ip/../post").await.0, 200, "the client makes it /post");
    let raw = [("origin", "https://page.example.com"), ("access-control-request-method", "GET")];
    assert_eq!(ask_with(&gateway, Method::OPTIONS, HOST, "/ip", &raw).await, (200, String::new()));

    // A missing Service is reported, and no route points to it.
    world.delete("v1", "services", "my-function");
    world.rule_is("ERROR SKIPPED SKIPPED", "False ServiceNotFound: Service my-function not found").await;
    assert_eq!(ask(&gateway, Method::GET, HOST, "/ip").await, (404, String::new()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_are_checked() {
    use base64::Engine as _;
    use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING as SIGNING, EcdsaKeyPair, KeyPair as _};
    let encode = |bytes: &[u8]| base64::prelude::BASE64_URL_SAFE_NO_PAD.encode(bytes);
    let random = ring::rand::SystemRandom::new();
    let document = EcdsaKeyPair::generate_pkcs8(&SIGNING, &random).unwrap();
    let pair = EcdsaKeyPair::from_pkcs8(&SIGNING, document.as_ref(), &random).unwrap();
    let point = pair.public_key().as_ref().to_vec();
    let key = json!({"kty": "EC", "crv": "P-256", "kid": "one", "x": encode(&point[1..33]), "y": encode(&point[33..])});
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("keys.json");
    std::fs::write(&file, json!({"keys": [key]}).to_string()).unwrap();
    let sign = |head: Value, claims: Value| {
        let text = format!("{}.{}", encode(head.to_string().as_bytes()), encode(claims.to_string().as_bytes()));
        format!("Bearer {text}.{}", encode(pair.sign(&random, text.as_bytes()).unwrap().as_ref()))
    };
    let (head, end) = (json!({"alg": "ES256", "kid": "one"}), jiff::Timestamp::now().as_second() + 600);
    let claims = |scope: &str| json!({"iss": "https://issuer.example.com", "exp": end, "scope": scope});

    let (world, gateway) = with_gateway(None).await;
    let config = json!({
        "trusted_issuers": ["https://issuer.example.com"], "required_scope": ["read"], "allowed_algorithms": ["ES256"],
        "jwks_urls": [format!("http://issuer.{NAMESPACE}.svc.cluster.local/none")],
    });
    world.api_rule(with_rules(json!([path("/.*", &["GET"], "jwt", config)])));
    world.rule_is(SERVED.0, SERVED.1).await;
    let good = sign(head.clone(), claims("read"));
    let ask = async |token: &str| {
        let headers = [("authorization", token)];
        ask_with(&gateway, Method::GET, HOST, "/", if token.is_empty() { &[] } else { &headers }).await
    };
    let (status, body) = ask("").await;
    assert_eq!((status, body.contains("The request could not be authorized")), (401, true), "{body}");
    assert_eq!(ask(&good).await.0, 401, "its keys cannot be had");
    // A Service of the cluster serves the issuer's keys.
    let keys = std::fs::read_to_string(&file).unwrap();
    let listener = tokio::net::TcpListener::bind(loopback()).await.unwrap();
    world.service(NAMESPACE, "issuer", listener.local_addr().unwrap());
    let issuer = Router::new().route("/keys", axum::routing::get(move || std::future::ready(keys.clone())));
    tokio::spawn(async move { axum::serve(listener, issuer).await });
    let url = format!("http://issuer.{NAMESPACE}.svc.cluster.local/keys");
    let config = json!({
        "trusted_issuers": ["https://issuer.example.com"], "required_scope": ["read"], "allowed_algorithms": ["ES256"],
        "jwks_urls": [url],
    });
    world.change_rule(json!({"rules": [path("/.*", &["GET"], "jwt", config)]}));
    world.rule_is(SERVED.0, SERVED.1).await;
    let rule_of_keys = |w: &World| w.all(RULES)[0]["spec"]["authenticators"][0]["config"]["jwks_urls"][0] == *url;
    world.until("the Rule names the keys", rule_of_keys).await;
    answers_with(&gateway, &good).await;
    let expired = json!({"iss": "https://issuer.example.com", "exp": end - 1200, "scope": "read"});
    let foreign = json!({"iss": "https://other.example.com", "exp": end, "scope": "read"});
    let unsigned = format!(
        "Bearer {}.{}.",
        encode(br#"{"alg":"none","kid":"one"}"#),
        encode(claims("read").to_string().as_bytes())
    );
    for bad in [
        sign(head.clone(), claims("write")),
        sign(head.clone(), expired),
        sign(head, foreign),
        sign(json!({"alg": "ES256", "kid": "two"}), claims("read")),
        sign(json!({"alg": "none", "kid": "one"}), claims("read")),
        unsigned,
        "Bearer x".to_owned(),
    ] {
        assert_eq!(ask(&bad).await.0, 401, "{bad}");
    }
}

/// Returns two issuers with one key: one for the gateway, and one that creates tokens.
fn issuers() -> (Issuer, Issuer) {
    let key = Issuer::new_key().unwrap();
    (Issuer::new(&key).unwrap(), Issuer::new(&key).unwrap())
}

fn token(issuer: &Issuer, scope: &str, seconds: i64) -> String {
    let now = jiff::Timestamp::now().as_second();
    let (scopes, end) = ([scope.to_owned()], now + seconds);
    format!("Bearer {}", issuer.token(Wanted { subject: "me", scopes: &scopes, audiences: &[], now, end }).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secured_function_is_called_with_tokens_of_the_gateways_own_issuer() {
    let (own, issuer) = issuers();
    let (world, gateway) = with_gateway(Some(own)).await;
    let scope = json!({"required_scope": ["read"]});
    world.api_rule(with_rules(json!([
        path("/function", &["GET"], "oauth2_introspection", scope.clone()),
        path("/jwt", &["GET"], "jwt", scope.clone()),
        path("/urls", &["GET"], "jwt", json!({"jwks_urls": ["http://issuer.localhost:8080/keys"]})),
    ])));
    world.rule_is(SERVED.0, SERVED.1).await;
    answers(&gateway, HOST, "/function", 401).await;
    let ask = async |path: &str, token: &str| {
        ask_with(&gateway, Method::GET, HOST, path, &[("authorization", token)]).await.0
    };
    let (good, other, over) = (token(&issuer, "read", 600), token(&issuer, "write", 600), token(&issuer, "read", 0));
    let foreign = token(&issuers().0, "read", 600);
    let statuses = async |path: &str| {
        let mut all = Vec::new();
        for token in [&good, &other, &over, &foreign, &"Bearer x".to_owned()] {
            all.push(ask(path, token).await);
        }
        all
    };
    assert_eq!(statuses("/function").await, [200, 403, 401, 401, 401]);
    assert_eq!(statuses("/jwt").await, [200, 401, 401, 401, 401]);
    assert_eq!(statuses("/urls").await, [200, 200, 401, 401, 401]);
    // The issuer is reached through the gateway like any other host.
    let (status, keys) = self::ask(&gateway, Method::GET, "issuer.localhost:8080", "/keys").await;
    let keys: Value = serde_json::from_str(&keys).unwrap();
    assert_eq!((status, &keys["keys"][0]["alg"]), (200, &json!("ES256")));
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let said = async |token: &str| -> Value {
        let asked =
            client.post(format!("http://{}/introspect", gateway.address())).header(header::HOST, "issuer.localhost");
        let answer = asked.body(format!("token={}", token.trim_start_matches("Bearer "))).send().await.unwrap();
        serde_json::from_str(&answer.text().await.unwrap()).unwrap()
    };
    assert_eq!(said(&good).await["scope"], "read");
    assert_eq!(said(&foreign).await, json!({"active": false}));
    assert_eq!(self::ask(&gateway, Method::GET, "issuer.localhost", "/introspect").await.0, 405);
    assert_eq!(self::ask(&gateway, Method::GET, "issuer.localhost", "/token").await.0, 404, "nobody is given one");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_issuer_elsewhere_says_what_a_token_may() {
    let (world, gateway) = with_gateway(None).await;
    let asked = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let listener = tokio::net::TcpListener::bind(loopback()).await.unwrap();
    world.service(NAMESPACE, "issuer", listener.local_addr().unwrap());
    let counted = Arc::clone(&asked);
    let says = move |form: String| {
        counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let token = form.trim_start_matches("token=").to_owned();
        async move {
            match token.as_str() {
                "good" => Ok(json!({"active": true, "scope": "read"}).to_string()),
                "other" => Ok(json!({"active": true, "scope": "write"}).to_string()),
                "odd" => Ok("[1]".to_owned()),
                "broken" => Err(reqwest::StatusCode::BAD_GATEWAY),
                _ => Ok(json!({"active": false}).to_string()),
            }
        }
    };
    let issuer = Router::new().route("/introspect", axum::routing::post(says));
    tokio::spawn(async move { axum::serve(listener, issuer).await });
    let url = format!("http://issuer.{NAMESPACE}.svc.cluster.local/introspect");
    let config = |url: &str| json!({"introspection_url": url, "required_scope": ["read"]});
    let mut kept = config(&url);
    kept["cache"] = json!({"enabled": true, "ttl": "5m"});
    let get = |at: &str, config: Value| path(at, &["GET"], "oauth2_introspection", config);
    world.api_rule(with_rules(json!([
        get("/asked", config(&url)),
        get("/kept", kept),
        get("/none", json!({"required_scope": ["read"]})),
        get("/odd", json!({"introspection_url": url, "pre_authorization": {"enabled": true}})),
    ])));
    world.rule_is(SERVED.0, SERVED.1).await;
    answers(&gateway, HOST, "/odd", 401).await;
    let ask = async |path: &str, token: &str| {
        let token = format!("Bearer {token}");
        ask_with(&gateway, Method::GET, HOST, path, &[("authorization", token.as_str())]).await.0
    };
    for (token, status) in [("good", 200), ("other", 403), ("bad", 401), ("odd", 500), ("broken", 500)] {
        assert_eq!(ask("/asked", token).await, status, "{token}");
    }
    let count = || asked.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!((count(), ask("/asked", "good").await, count()), (5, 200, 6), "nothing is kept unasked");
    assert_eq!((ask("/kept", "good").await, ask("/kept", "good").await, count()), (200, 200, 7));
    for (path, status) in [("/none", 500), ("/odd", 401)] {
        assert_eq!(ask(path, "good").await, status, "{path}");
    }
    assert_eq!(count(), 7);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hosts_are_served_over_https_by_an_authority_of_their_own() {
    let (world, mut gateway) = with_gateway(None).await;
    world.api_rule(tutorial("my-function"));
    world.rule_is(SERVED.0, SERVED.1).await;
    answers(&gateway, HOST, "/", 200).await;
    let (address, authority) = gateway.secure(loopback()).await.unwrap();
    let (_, other) = gateway.secure(loopback()).await.unwrap();
    let ask = async |host: &str, authority: &str| {
        let root = reqwest::Certificate::from_pem(authority.as_bytes()).unwrap();
        let client = reqwest::Client::builder().no_proxy().tls_certs_only([root]).resolve(host, address);
        let answer = client.build().unwrap().get(format!("https://{host}:{}/", address.port())).send().await;
        match answer {
            Ok(answer) => Some(answer.status().as_u16()),
            Err(_) => None,
        }
    };
    assert_eq!(ask(HOST, &authority).await, Some(200));
    assert_eq!(ask("nobody.localhost", &authority).await, Some(404));
    assert_eq!(ask("localhost", &authority).await, Some(404));
    assert_eq!(ask("example.com", &authority).await, None, "nobody is vouched for who is elsewhere");
    assert_eq!(ask(HOST, &other).await, None, "another authority does not vouch for it");
    assert!(gateway.secure("192.0.2.1:0".parse().unwrap()).await.is_err());
}

/// Repeats a request with a token until it is accepted.
async fn answers_with(gateway: &Gateway, token: &str) {
    let asking = async {
        while ask_with(gateway, Method::GET, HOST, "/", &[("authorization", token)]).await.0 != 200 {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    assert!(tokio::time::timeout(mainstay_testkit::PATIENCE, asking).await.is_ok(), "the token is not good");
}
