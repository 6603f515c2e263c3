//! Identities of clouds: the agent reads repositories and registries with tokens of ServiceAccounts. The providers' token
//! endpoints, the Git servers and two registries are fakes at their real host names; they check what a real one checks.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::IntoResponse;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD, Engine as _};
use jiff::{Timestamp, ToSpan as _};
use mainstay_testkit::docker_registry::{ECR_HOST, PASSWORD, Served};
use mainstay_testkit::git_server::GitServer;
use mainstay_testkit::tls::PrivateCa;
use mainstay_testkit::world::{NAMESPACE, World, condition_of, config_map};
use parking_lot::Mutex;
use ring::hmac;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::artifacts::{Pushed, applied};

const OURS: &str = "mainstay.dev/v1alpha1";
const GIT: &str = "serverless.kyma-project.io/v1alpha1";
const DEV_OPS: &str = "dev.azure.com";
const CODE_COMMIT: &str = "git-codecommit.eu-west-1.amazonaws.com";
const ACR: &str = "shop.azurecr.io";
const GOOGLE: &str = "europe-docker.pkg.dev";
const STS: &str = "sts.eu-west-1.amazonaws.com";
const ECR_API: &str = "api.ecr.eu-west-1.amazonaws.com";
/// All hosts of the fake.
const HOSTS: [&str; 9] = [
    "login.microsoftonline.com",
    "sts.googleapis.com",
    "iamcredentials.googleapis.com",
    DEV_OPS,
    CODE_COMMIT,
    ACR,
    GOOGLE,
    STS,
    ECR_API,
];
const TENANT: &str = "azure.workload.identity/tenant-id";
const CLIENT: &str = "azure.workload.identity/client-id";
const ROLE: &str = "eks.amazonaws.com/role-arn";
const EMAIL: &str = "iam.gke.io/gcp-service-account";
const POOL: &str = "gcp.auth.fluxcd.io/workload-identity-provider";
const PROVIDER: &str = "projects/1/locations/global/workloadIdentityPools/pool/providers/cluster";
const USER: &str = "00000000-0000-0000-0000-000000000000";
/// The beginning of every token, key and password that the fakes issue.
const SECRET: &str = "s3cret";

/// The state of the fakes.
#[derive(Default)]
struct Fakes {
    /// Lifetime of tokens, in seconds.
    seconds: i64,
    /// The next responses of token endpoints are refusals.
    refuses: bool,
    /// Requests for tokens, as `<host> <what>`.
    asked: Vec<String>,
    issued: usize,
}

type Shared = Arc<Mutex<Fakes>>;

/// The fakes, and the CA of their certificates.
struct Clouds {
    ca: PrivateCa,
    server: GitServer,
    fakes: Shared,
}

impl Clouds {
    /// Serves the fakes, and the repositories in `root`.
    async fn start(root: &Path) -> Self {
        let ca = PrivateCa::new();
        let fakes = Arc::new(Mutex::new(Fakes { seconds: 3600, ..Fakes::default() }));
        let mut router = Router::new();
        for path in [
            "/",
            "/{tenant}/oauth2/v2.0/token",
            "/oauth2/exchange",
            "/v1/token",
            "/v1/projects/-/serviceAccounts/{account}",
            "/v2/{*path}",
        ] {
            router = router.route(path, axum::routing::any(answer));
        }
        let router = router.with_state(Arc::clone(&fakes));
        let server = GitServer::start_tls_with(root, ca.server_for(&HOSTS), router).await;
        Self { ca, server, fakes }
    }

    fn address(&self) -> SocketAddr {
        self.server.base().trim_start_matches("https://").parse().unwrap()
    }

    /// Lets the agent of a world find the fakes under the hosts of the providers, and trust their CA.
    fn introduce(&self, world: &mut World) {
        world.clouds.authorities = Some(self.ca.pem());
        for host in HOSTS {
            world.hosts.insert(host.to_owned(), self.address());
        }
    }

    /// Lets the agent find a registry under the host of ECR, and trust its CA, too.
    fn introduce_ecr(&self, world: &mut World, pushed: &Pushed) {
        world.clouds.authorities = Some(self.ca.pem() + pushed.authority());
        world.hosts.insert(ECR_HOST.to_owned(), pushed.registry.host().parse().unwrap());
    }

    /// Returns the number of requests for tokens that contain a string.
    fn asked(&self, part: &str) -> usize {
        self.fakes.lock().asked.iter().filter(|asked| asked.contains(part)).count()
    }
}

/// Returns the claims of a token.
fn claims(token: &str) -> Value {
    let claims = token.split('.').nth(1).and_then(|claims| BASE64_URL_SAFE_NO_PAD.decode(claims).ok());
    claims.and_then(|claims| serde_json::from_slice(&claims).ok()).unwrap_or_default()
}

/// Whether a token is of the ServiceAccount `puller` for exactly this audience.
fn is_of_puller(token: &str, audience: &str) -> bool {
    let claims = claims(token);
    claims["aud"] == json!([audience]) && claims["sub"] == format!("system:serviceaccount:{NAMESPACE}:puller")
}

fn form(body: &[u8]) -> Value {
    form_urlencoded::parse(body).map(|(name, value)| (name.into_owned(), Value::from(value.into_owned()))).collect()
}

fn in_seconds(seconds: i64) -> Timestamp {
    Timestamp::now() + seconds.seconds()
}

async fn answer(State(fakes): State<Shared>, request: Request) -> axum::response::Response {
    let (head, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    let host = head.headers[header::HOST].to_str().unwrap().to_owned();
    let path = head.uri.path().to_owned();
    if path.starts_with("/v2/") {
        return registry(&host, &path, &head.headers);
    }
    let mut fakes = fakes.lock();
    let what = if host == STS { form(&body)["RoleArn"].as_str().unwrap_or_default().to_owned() } else { path.clone() };
    fakes.asked.push(format!("{host} {what}"));
    if fakes.refuses {
        let error = json!({"error": "invalid_client", "error_codes": [700_213], "error_description": SECRET});
        return (StatusCode::UNAUTHORIZED, error.to_string()).into_response();
    }
    fakes.issued += 1;
    let given = match (&*host, &*path) {
        ("login.microsoftonline.com", _) => entra(&fakes, &path, &body),
        (ACR, "/oauth2/exchange") => exchange(&fakes, &body),
        (STS, "/") => assume_role(&fakes, &body),
        (ECR_API, "/") => authorize(&fakes, &head.headers, &body),
        ("sts.googleapis.com", "/v1/token") => google_sts(&fakes, &body),
        ("iamcredentials.googleapis.com", _) => impersonate(&fakes, &path, &head.headers),
        _ => None,
    };
    given.map_or_else(|| (StatusCode::BAD_REQUEST, SECRET).into_response(), IntoResponse::into_response)
}

fn entra(fakes: &Fakes, path: &str, body: &[u8]) -> Option<String> {
    let form = form(body);
    let is_right = path == "/contoso/oauth2/v2.0/token"
        && form["grant_type"] == "client_credentials"
        && form["client_assertion_type"] == "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
        && form["client_id"].as_str()?.starts_with("client-")
        && is_of_puller(form["client_assertion"].as_str()?, "api://AzureADTokenExchange");
    let scope = match form["scope"].as_str()? {
        "499b84ac-1321-427f-aa17-267ca6975798/.default" => "git",
        "https://containerregistry.azure.net/.default" => "registry",
        _ => return None,
    };
    let token = format!("{SECRET}-{scope}-{}", fakes.issued);
    let answer = json!({"token_type": "Bearer", "expires_in": fakes.seconds, "access_token": token});
    is_right.then(|| answer.to_string())
}

fn exchange(fakes: &Fakes, body: &[u8]) -> Option<String> {
    let form = form(body);
    let is_right = form["grant_type"] == "access_token"
        && form["service"] == ACR
        && form["access_token"].as_str()?.starts_with(&format!("{SECRET}-registry-"));
    let claims = json!({"exp": in_seconds(fakes.seconds).as_second(), "jti": SECRET}).to_string();
    let token = format!("e30.{}.{SECRET}", BASE64_URL_SAFE_NO_PAD.encode(claims));
    is_right.then(|| json!({"refresh_token": token}).to_string())
}

fn assume_role(fakes: &Fakes, body: &[u8]) -> Option<String> {
    let form = form(body);
    let is_right = form["Action"] == "AssumeRoleWithWebIdentity"
        && form["Version"] == "2011-06-15"
        && form["RoleArn"] == "arn:aws:iam::123456789012:role/puller"
        && form["RoleSessionName"] == format!("mainstay.{NAMESPACE}.puller")
        && is_of_puller(form["WebIdentityToken"].as_str()?, "sts.amazonaws.com");
    let end = in_seconds(fakes.seconds);
    is_right.then(|| {
        format!(
            "<AssumeRoleWithWebIdentityResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">\
             <AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>ASIA1</AccessKeyId>\
             <SecretAccessKey>{SECRET}/key</SecretAccessKey><SessionToken>{SECRET}//session==</SessionToken>\
             <Expiration>{end}</Expiration></Credentials></AssumeRoleWithWebIdentityResult>\
             </AssumeRoleWithWebIdentityResponse>"
        )
    })
}

/// Returns the signature of a canonical request with the keys of [`assume_role`].
fn signature(canonical: &str, time: &str, service: &str) -> String {
    let mac =
        |key: &[u8], text: &str| hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes()).as_ref().to_vec();
    let day = &time[..8];
    let text = format!(
        "AWS4-HMAC-SHA256\n{time}\n{day}/eu-west-1/{service}/aws4_request\n{}",
        hex::encode(Sha256::digest(canonical))
    );
    let key = mac(format!("AWS4{SECRET}/key").as_bytes(), day);
    let key = mac(&mac(&mac(&key, "eu-west-1"), service), "aws4_request");
    hex::encode(mac(&key, &text))
}

fn authorize(fakes: &Fakes, headers: &HeaderMap, body: &[u8]) -> Option<String> {
    let at = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let names = "content-type;host;x-amz-date;x-amz-security-token;x-amz-target";
    let lines: Vec<String> = names.split(';').map(|name| format!("{name}:{}", at(name))).collect();
    let canonical = format!("POST\n/\n\n{}\n\n{names}\n{}", lines.join("\n"), hex::encode(Sha256::digest(body)));
    let time = at("x-amz-date");
    let expected = format!(
        "AWS4-HMAC-SHA256 Credential=ASIA1/{}/eu-west-1/ecr/aws4_request, SignedHeaders={names}, Signature={}",
        time.get(..8)?,
        signature(&canonical, time, "ecr")
    );
    let is_right = at("authorization") == expected
        && at("x-amz-target") == "AmazonEC2ContainerRegistry_V20150921.GetAuthorizationToken"
        && at("content-type") == "application/x-amz-json-1.1"
        && at("x-amz-security-token") == format!("{SECRET}//session==")
        && body == b"{}";
    let token = BASE64_STANDARD.encode(format!("AWS:{PASSWORD}"));
    let end = in_seconds(fakes.seconds).as_second();
    is_right.then(|| json!({"authorizationData": [{"authorizationToken": token, "expiresAt": end}]}).to_string())
}

fn google_sts(fakes: &Fakes, body: &[u8]) -> Option<String> {
    let form = form(body);
    let audience = format!("//iam.googleapis.com/{PROVIDER}");
    let is_right = form["grant_type"] == "urn:ietf:params:oauth:grant-type:token-exchange"
        && form["audience"] == *audience
        && form["subject_token_type"] == "urn:ietf:params:oauth:token-type:jwt"
        && form["scope"] == "https://www.googleapis.com/auth/cloud-platform"
        && is_of_puller(form["subject_token"].as_str()?, &audience);
    let answer = json!({"access_token": format!("{SECRET}-federated"), "expires_in": fakes.seconds});
    is_right.then(|| answer.to_string())
}

fn impersonate(fakes: &Fakes, path: &str, headers: &HeaderMap) -> Option<String> {
    let account = "puller@shop.iam.gserviceaccount.com:generateAccessToken";
    let is_right = path == format!("/v1/projects/-/serviceAccounts/{account}")
        && headers[header::AUTHORIZATION] == format!("Bearer {SECRET}-federated");
    let end = in_seconds(fakes.seconds).to_string();
    is_right.then(|| json!({"accessToken": format!("{SECRET}-google"), "expireTime": end}).to_string())
}

/// Returns the tags of an image at a registry of Azure or Google, for its login.
fn registry(host: &str, path: &str, headers: &HeaderMap) -> axum::response::Response {
    let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Basic "));
    let given = given.and_then(|given| String::from_utf8(BASE64_STANDARD.decode(given).ok()?).ok());
    let is_right =
        given.as_deref().and_then(|given| given.split_once(':')).is_some_and(|(user, password)| match host {
            ACR => user == USER && claims(password)["jti"] == SECRET,
            GOOGLE => user == "oauth2accesstoken" && password == format!("{SECRET}-google"),
            _ => false,
        });
    if !is_right {
        return (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, "Basic realm=\"fake\"")]).into_response();
    }
    assert_eq!(path, "/v2/web/tags/list");
    json!({"name": "web", "tags": ["1.0.0", "1.1.0"]}).to_string().into_response()
}

/// Creates the ServiceAccount `puller` with annotations.
fn puller(world: &World, annotations: Value) {
    let metadata = json!({"name": "puller", "namespace": NAMESPACE, "annotations": annotations});
    world.create(
        "v1",
        "serviceaccounts",
        NAMESPACE,
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}),
    );
}

fn create(world: &World, api_version: &str, (kind, plural): (&str, &str), namespace: &str, name: &str, spec: Value) {
    let metadata = json!({"name": name, "namespace": namespace});
    let object = json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec});
    world.create(api_version, plural, namespace, object);
}

/// Creates an ImageRepository in a namespace.
fn image(world: &World, namespace: &str, name: &str, change: Value) {
    let mut spec = json!({"interval": "10s"});
    json_patch::merge(&mut spec, &change);
    create(world, OURS, ("ImageRepository", "imagerepositories"), namespace, name, spec);
}

fn state(world: &World, namespace: &str, plural: &str, name: &str) -> String {
    let object = world.server.object(OURS, plural, namespace, name);
    object.map_or_else(String::new, |object| condition_of(&object["status"], "Ready"))
}

/// Waits until the state of an ImageRepository contains a string.
async fn image_says(world: &World, namespace: &str, name: &str, part: &str) {
    let shown = || state(world, namespace, "imagerepositories", name);
    world.until_or(part, |_| shown().contains(part), shown).await;
    assert!(!shown().contains(SECRET), "{}", shown());
}

/// Makes the repository of a world available at a path below a root.
fn serve_at(root: &Path, path: &str, world: &World) {
    let path = root.join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink(world.remote.path(), path).unwrap();
}

/// Creates the GitRepository `cloud` at an address.
fn cloud_repository(world: &World, url: &str, provider: &str) {
    let spec = json!({"url": url, "provider": provider, "serviceAccountName": "puller"});
    create(world, GIT, ("GitRepository", "gitrepositories"), NAMESPACE, "cloud", spec);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn azure_dev_ops_is_read_with_tokens_of_a_service_account_that_are_kept_until_shortly_before_their_end() {
    let root = tempfile::tempdir().unwrap();
    let clouds = Clouds::start(root.path()).await;
    let mut world = World::new().await;
    serve_at(root.path(), "shop/infra/_git/web", &world);
    clouds.introduce(&mut world);
    clouds.server.require_with(|given| given.starts_with(&format!("Bearer {SECRET}-git-")));
    puller(&world, json!({TENANT: "contoso", CLIENT: "client-1"}));
    cloud_repository(&world, "https://dev.azure.com/shop/infra/_git/web", "azure");
    world.remote.file("web.yaml", config_map("web", "one")).commit("one");
    world.sync("demo", json!({"gitRepository": "cloud"}));
    world.start();
    world.ready("demo").await;
    let asked = || clouds.asked("login.microsoftonline.com");
    assert_eq!(asked(), 1);
    world.remote.file("web.yaml", config_map("web", "two"));
    world.commit("demo", "two").await;
    assert_eq!((asked(), world.data("web")), (1, "two".to_owned()), "the token is kept");

    // Another application, whose tokens end soon: each use requests one.
    clouds.fakes.lock().seconds = 120;
    world.edit("v1", "serviceaccounts", "puller", json!({"metadata": {"annotations": {CLIENT: "client-2"}}}));
    world.remote.file("web.yaml", config_map("web", "three"));
    world.commit("demo", "three").await;
    let short = asked();
    assert!(short > 1, "{short}");
    clouds.fakes.lock().seconds = 3600;
    world.remote.file("web.yaml", config_map("web", "four"));
    world.commit("demo", "four").await;
    let renewed = asked();
    assert!(renewed > short, "{renewed}");
    world.remote.file("web.yaml", config_map("web", "five"));
    world.commit("demo", "five").await;
    assert_eq!(asked(), renewed, "the token is kept");

    // A token of a deleted ServiceAccount is not used.
    world.delete("v1", "serviceaccounts", "puller");
    world.remote.file("web.yaml", config_map("web", "six"));
    world.try_commit("demo", "six").await;
    let why = format!("the ServiceAccount {NAMESPACE}/puller, which spec.serviceAccountName names, does not exist");
    let said = |world: &World| world.status("demo").to_string();
    world.until("refused", |world| said(world).contains(&why)).await;
    assert!(!said(&world).contains(SECRET), "{}", said(&world));
    assert_eq!((asked(), world.data("web")), (renewed, "five".to_owned()));
}

/// Whether the login is that of `git-remote-codecommit` with the keys of [`assume_role`].
fn is_code_commit_login(given: &str) -> bool {
    let given = given.strip_prefix("Basic ").and_then(|given| BASE64_STANDARD.decode(given).ok());
    let given = given.and_then(|given| String::from_utf8(given).ok()).unwrap_or_default();
    let Some((user, password)) = given.split_once(':') else { return false };
    let Some((time, given)) = password.split_once('Z') else { return false };
    let canonical = format!("GIT\n/v1/repos/web\n\nhost:{CODE_COMMIT}\n\nhost\n");
    user == format!("ASIA1%{SECRET}//session==") && given == signature(&canonical, time, "codecommit")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn code_commit_is_read_with_signed_passwords_of_a_role() {
    let root = tempfile::tempdir().unwrap();
    let clouds = Clouds::start(root.path()).await;
    let mut world = World::new().await;
    serve_at(root.path(), "v1/repos/web", &world);
    clouds.introduce(&mut world);
    clouds.server.require_with(is_code_commit_login);
    puller(&world, json!({ROLE: "arn:aws:iam::123456789012:role/puller"}));
    cloud_repository(&world, &format!("https://{CODE_COMMIT}/v1/repos/web"), "aws");
    world.remote.file("web.yaml", config_map("web", "one")).commit("one");
    world.sync("demo", json!({"gitRepository": "cloud"}));
    world.start();
    world.ready("demo").await;
    world.remote.file("web.yaml", config_map("web", "two"));
    world.commit("demo", "two").await;
    assert_eq!(clouds.asked("role/puller"), 1, "the keys are kept");
    // The server refuses the identity.
    clouds.server.require_with(|_| false);
    world.remote.file("web.yaml", config_map("web", "three"));
    world.try_commit("demo", "three").await;
    let said = |world: &World| world.status("demo").to_string();
    let why = "it does not accept the identity of spec.provider; grant this identity access";
    world.until("refused", |world| said(world).contains(why)).await;
    assert!(!said(&world).contains(SECRET), "{}", said(&world));
    // The next attempt requests other keys.
    clouds.server.require_with(is_code_commit_login);
    world.ask("demo").await;
    world.ready("demo").await;
    assert!(clouds.asked("role/puller") > 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_artifact_in_ecr_is_read_with_the_login_of_a_role() {
    let nowhere = tempfile::tempdir().unwrap();
    let clouds = Clouds::start(nowhere.path()).await;
    let pushed = Pushed::start(Served::Safely).await;
    pushed.push_value("latest", "one").await;
    let mut world = World::new().await;
    clouds.introduce(&mut world);
    clouds.introduce_ecr(&mut world, &pushed);
    puller(&world, json!({ROLE: "arn:aws:iam::123456789012:role/puller"}));
    let spec = json!({
        "url": format!("oci://{ECR_HOST}/shop/web"), "interval": "10s", "provider": "aws", "serviceAccountName": "puller",
    });
    create(&world, OURS, ("OCIRepository", "ocirepositories"), NAMESPACE, "web", spec);
    world.sync("web", json!({"gitRepository": null, "sourceRef": {"kind": "OCIRepository", "name": "web"}}));
    world.start();
    applied(&world, "one").await;
    pushed.push_value("latest", "two").await;
    applied(&world, "two").await;
    assert_eq!((clouds.asked("role/puller"), clouds.asked(ECR_API)), (1, 1), "keys and login are kept");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn images_in_registries_of_azure_and_google_are_listed() {
    let nowhere = tempfile::tempdir().unwrap();
    let clouds = Clouds::start(nowhere.path()).await;
    let mut world = World::new().await;
    clouds.introduce(&mut world);
    let email = "puller@shop.iam.gserviceaccount.com";
    puller(&world, json!({TENANT: "contoso", CLIENT: "client-1", POOL: PROVIDER, EMAIL: email}));
    let spec = |host: &str, provider: &str| json!({"image": format!("{host}/web"), "provider": provider, "serviceAccountName": "puller"});
    image(&world, NAMESPACE, "azure", spec(ACR, "azure"));
    image(&world, NAMESPACE, "google", spec(GOOGLE, "gcp"));
    world.start();
    image_says(&world, NAMESPACE, "azure", "found 2 tags").await;
    image_says(&world, NAMESPACE, "google", "found 2 tags").await;
    for part in ["login.microsoftonline.com", "/oauth2/exchange", "sts.googleapis.com", "generateAccessToken"] {
        assert_eq!(clouds.asked(part), 1, "{part}");
    }
    // The cached login is used, although the provider refuses now.
    clouds.fakes.lock().refuses = true;
    world.edit(OURS, "imagerepositories", "azure", json!({"spec": {"exclusionList": ["1.1.0"]}}));
    image_says(&world, NAMESPACE, "azure", "found 1 tags").await;
    world.edit("v1", "serviceaccounts", "puller", json!({"metadata": {"annotations": {CLIENT: "client-2"}}}));
    world.edit(OURS, "imagerepositories", "azure", json!({"spec": {"exclusionList": []}}));
    let refusal = format!(
        "login.microsoftonline.com refused ServiceAccount {NAMESPACE}/puller an access token (401 invalid_client \
         AADSTS700213); the application needs a federated credential with the issuer of this cluster and \
         system:serviceaccount:{NAMESPACE}:puller"
    );
    image_says(&world, NAMESPACE, "azure", &refusal).await;
}

/// The keys of EKS pod identity.
async fn pod(headers: HeaderMap) -> (StatusCode, String) {
    if headers[header::AUTHORIZATION] != "pod-token" {
        return (StatusCode::UNAUTHORIZED, String::new());
    }
    let keys = json!({
        "AccessKeyId": "ASIA1", "SecretAccessKey": format!("{SECRET}/key"), "Token": format!("{SECRET}//session=="),
        "Expiration": in_seconds(3600).to_string(),
    });
    (StatusCode::OK, keys.to_string())
}

/// The token of Google's metadata server.
async fn google_metadata(headers: HeaderMap) -> (StatusCode, String) {
    if headers["metadata-flavor"] != "Google" {
        return (StatusCode::FORBIDDEN, String::new());
    }
    (StatusCode::OK, json!({"access_token": format!("{SECRET}-google"), "expires_in": 3600}).to_string())
}

/// Serves the machine's servers with the identity of the agent.
async fn machine() -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let path = "/computeMetadata/v1/instance/service-accounts/default/token";
    let router = Router::new()
        .route("/v1/credentials", axum::routing::get(pod))
        .route(path, axum::routing::get(google_metadata));
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    address
}

/// Returns the variables of an agent that has identities at AWS and Google. A file is written to the directory.
async fn identity_of_the_agent(directory: &Path) -> [(String, String); 3] {
    let (machine, token) = (machine().await, directory.join("token"));
    std::fs::write(&token, "pod-token\n").unwrap();
    [
        ("GCE_METADATA_HOST", machine.to_string()),
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", format!("http://{machine}/v1/credentials")),
        ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", token.display().to_string()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
}

/// The servers of [`ecr`].
pub(crate) struct Ecr {
    _clouds: Clouds,
    _pushed: Pushed,
    _files: tempfile::TempDir,
}

/// Lets the agent of a world read the image `shop/web` at the host of ECR, with the ServiceAccount `puller` or with its own
/// identity. The servers stop when the returned value is dropped.
pub(crate) async fn ecr(world: &mut World) -> Ecr {
    let files = tempfile::tempdir().unwrap();
    let clouds = Clouds::start(files.path()).await;
    let pushed = Pushed::start(Served::Safely).await;
    pushed.push_value("latest", "one").await;
    clouds.introduce(world);
    clouds.introduce_ecr(world, &pushed);
    world.clouds.environment = identity_of_the_agent(files.path()).await.into();
    puller(world, json!({ROLE: "arn:aws:iam::123456789012:role/puller"}));
    Ecr { _clouds: clouds, _pushed: pushed, _files: files }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_trusted_namespaces_use_the_identity_of_the_agent() {
    let nowhere = tempfile::tempdir().unwrap();
    let clouds = Clouds::start(nowhere.path()).await;
    let pushed = Pushed::start(Served::Safely).await;
    pushed.push_value("latest", "one").await;
    let mut world = World::new().await;
    clouds.introduce(&mut world);
    clouds.introduce_ecr(&mut world, &pushed);
    world.clouds.environment = identity_of_the_agent(nowhere.path()).await.into();
    let tenant = format!("{NAMESPACE}-tenant");
    world.create(
        "v1",
        "namespaces",
        "",
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": tenant}}),
    );
    let google = json!({"image": format!("{GOOGLE}/web"), "provider": "gcp"});
    image(&world, NAMESPACE, "google", google.clone());
    let ecr = json!({"image": format!("{ECR_HOST}/shop/web"), "provider": "aws"});
    image(&world, NAMESPACE, "ecr", ecr);
    image(&world, NAMESPACE, "azure", json!({"image": format!("{ACR}/web"), "provider": "azure"}));
    image(&world, &tenant, "google", google);
    world.start();
    image_says(&world, NAMESPACE, "google", "found 2 tags").await;
    image_says(&world, NAMESPACE, "ecr", "found 1 tags").await;
    let missing = "the agent is not set up for provider azure: the variable AZURE_TENANT_ID is missing";
    image_says(&world, NAMESPACE, "azure", missing).await;
    let why = format!("spec.serviceAccountName is not set, and objects of namespace {tenant} may not use the identity");
    image_says(&world, &tenant, "google", &why).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_identity_that_is_not_set_up_or_names_a_foreign_host_gets_no_token() {
    let nowhere = tempfile::tempdir().unwrap();
    let clouds = Clouds::start(nowhere.path()).await;
    let mut world = World::new().await;
    clouds.introduce(&mut world);
    puller(&world, json!({TENANT: "//evil.example", CLIENT: "client-1", ROLE: "https://evil.example"}));
    let spec = |host: &str, provider: &str, account: &str| json!({"image": format!("{host}/web"), "provider": provider, "serviceAccountName": account});
    let tenant = format!("{NAMESPACE}-tenant");
    world.create(
        "v1",
        "namespaces",
        "",
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": tenant}}),
    );
    let cases = [
        ("foreign", spec("ghcr.io", "aws", "puller"), "spec.provider: ghcr.io is not a registry of aws".to_owned()),
        (
            "annotation",
            spec(ACR, "azure", "puller"),
            "the annotation azure.workload.identity/tenant-id is not an id".to_owned(),
        ),
        ("role", spec(ECR_HOST, "aws", "puller"), "the annotation eks.amazonaws.com/role-arn is not a role".to_owned()),
        ("absent", spec(ACR, "azure", "nobody"), format!("the ServiceAccount {NAMESPACE}/nobody, which")),
    ];
    for (name, spec, _) in &cases {
        image(&world, NAMESPACE, name, spec.clone());
    }
    // A ServiceAccount of another namespace.
    image(&world, &tenant, "azure", spec(ACR, "azure", "puller"));
    cloud_repository(&world, "https://github.com/org/repo", "azure");
    world.sync("demo", json!({"gitRepository": "cloud"}));
    world.start();
    for (name, _, why) in &cases {
        image_says(&world, NAMESPACE, name, why).await;
    }
    image_says(&world, &tenant, "azure", &format!("the ServiceAccount {tenant}/puller, which")).await;
    world
        .until("refused", |world| world.status("demo").to_string().contains("github.com is not a Git server of azure"))
        .await;
    assert_eq!(clouds.fakes.lock().asked, Vec::<String>::new());
}
