//! A certified issuer, which is `oidc-provider` of npm, signs users in and renews their sessions.
//!
//! The API server is the embedded one, or the real one of `.ci/real issuer`, which reads the issuers that it trusts from a
//! file beside its kubeconfig.

use std::{
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Stdio},
    time::Duration,
};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use devcluster::Options;
use mainstay_testkit::{
    PATIENCE,
    external::{External, KUBECONFIG},
    isolated,
    tls::PrivateCa,
    world::NAMESPACE,
};
use serde_json::{Value, json};

use super::{
    FORM, READS,
    chromium::Chromium,
    issuer::{CLIENT, SECRET, authenticate, private_key, sign},
    users::{Console, URL, Users},
};

const SIGN_IN: &str = "Sign in with 127.0.0.1";

/// A running issuer, over HTTPS with a private CA. It ends with its standard input.
struct Provider {
    url: String,
    authority: String,
    child: Child,
    _input: ChildStdin,
}

impl Drop for Provider {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Provider {
    /// Starts an issuer whose first ID token, and whose further ones, last for so many seconds.
    async fn start(lifetimes: [u32; 2]) -> Self {
        let modules = concat!(env!("CARGO_MANIFEST_DIR"), "/target/tools/openid/node_modules");
        assert!(
            Path::new(modules).join("oidc-provider").exists(),
            "{modules} has no oidc-provider: `.ci/test --install` fetches it"
        );
        let authority = PrivateCa::new();
        let pair = authority.issue("127.0.0.1");
        let settings = json!({
            "client": CLIENT, "secret": SECRET, "redirect": format!("{URL}/sign-in/callback"), "lifetimes": lifetimes,
            "key": BASE64_STANDARD.encode(private_key()), "certificate": pair.certificate, "privateKey": pair.key,
        });
        let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cli/console/openid/provider.mjs");
        let mut command = isolated("node");
        command.args([program, modules, &settings.to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("node is needed: apt-get install nodejs");
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let line = tokio::task::spawn_blocking(move || {
            std::io::BufRead::lines(std::io::BufReader::new(output)).next().unwrap().unwrap()
        });
        let url = line.await.unwrap().strip_prefix("Issuer at ").unwrap().to_owned();
        Self { url, authority: authority.pem(), child, _input: input }
    }

    /// Makes a real API server trust the issuer. It reads its configuration a moment after it was written.
    async fn be_trusted(&self, users: &Users) {
        let configuration = json!({
            "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration",
            "jwt": [{
                "issuer": {"url": self.url, "audiences": [CLIENT], "certificateAuthority": self.authority},
                "claimMappings": {"username": {"claim": "email", "prefix": "oidc:"}},
            }],
        });
        let path = PathBuf::from(std::env::var_os(KUBECONFIG).unwrap()).with_file_name("authentication.yaml");
        assert!(path.exists(), "{} is missing: `.ci/real issuer` starts its API server", path.display());
        let new = path.with_extension("new");
        std::fs::write(&new, configuration.to_string()).unwrap();
        std::fs::rename(&new, &path).unwrap();
        let console = users.console(FORM).await;
        let code = async |audience: &str| {
            let token = self.token(audience);
            console.post("/sign-in", "", &[("token", &token), ("next", "/")]).await.code
        };
        let trusted = async {
            while code(CLIENT).await != 303 {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        tokio::time::timeout(PATIENCE, trusted).await.expect("the API server does not trust the issuer");
        assert_eq!(code("another").await, 401, "a token for another audience opens no session");
    }

    /// Returns an ID token with the issuer's key.
    fn token(&self, audience: &str) -> String {
        let expiry = jiff::Timestamp::now().as_second() + 600;
        let claims = json!({
            "iss": self.url, "aud": audience, "sub": "test", "email": "test@example.com", "email_verified": true, "exp": expiry,
        });
        sign(&claims, false)
    }
}

/// A cluster that trusts the issuer, and a console over TLS whose users the issuer signs in.
struct Desk {
    _users: Users,
    console: Console,
    provider: Provider,
    _files: tempfile::TempDir,
}

impl Desk {
    async fn new(lifetimes: [u32; 2]) -> Self {
        let provider = Provider::start(lifetimes).await;
        let users = if External::is_named() {
            let users = Users::new().await;
            provider.be_trusted(&users).await;
            users
        } else {
            Users::with(Options { authenticator: Some(authenticate), ..Options::default() }).await
        };
        users.let_all_ask_who_they_are();
        users.sync(NAMESPACE, "demo");
        users.permit(NAMESPACE, "oidc:alice@example.com", READS);
        let files = tempfile::tempdir().unwrap();
        let pair = PrivateCa::new().issue("console.example.com");
        for (name, content) in [
            ("tls.crt", &*pair.certificate),
            ("tls.key", &pair.key),
            ("client-secret", SECRET),
            ("ca.crt", &provider.authority),
        ] {
            std::fs::write(files.path().join(name), content).unwrap();
        }
        let directory = files.path().to_str().unwrap();
        let by = ["--url", URL, "--tls", directory, "--sign-in=oidc", "--oidc-issuer", &provider.url];
        let credentials = ["--oidc-client-id", CLIENT, "--oidc-scope=email", "--oidc-credentials", directory];
        let console = users.console(&[&by[..], &credentials].concat()).await;
        Self { _users: users, console, provider, _files: files }
    }
}

const SIGNED_IN: &str = "document.querySelector('.who')?.innerText === 'oidc:alice@example.com'";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certified_issuer_signs_a_browser_in_and_renews_its_session_without_a_question() {
    let desk = Desk::new([20, 3600]).await;
    let chromium = Chromium::start("console.example.com", &desk.console.address).await;
    let tab = chromium.tab().await;
    let page = format!("{URL}/gitsync/{NAMESPACE}/demo");
    tab.open(&page).await;
    tab.click("button", SIGN_IN).await;
    tab.fill("login", "alice").await;
    tab.fill("password", "any").await;
    tab.click("button", "Sign-in").await;
    tab.click("button", "Continue").await;
    // The first ID token ends after seconds. The page then gets a session from the issuer, which asks nothing.
    let is_renewed = "document.querySelector('#left')?.innerText.endsWith('min')";
    tab.until(&format!("{SIGNED_IN} && {is_renewed} && location.href === {}", json!(page))).await;
    // Another tab may renew the session, so the page reads its end again when it seems to be over.
    tab.value("endsAt = 0; sayLeft()").await;
    tab.until("document.querySelector('#left').innerText === '0 s'").await;
    tab.until(is_renewed).await;
    // After signing out, the issuer still knows the user. The page asks nevertheless.
    tab.click("button", "Sign out").await;
    tab.shows(SIGN_IN).await;
    tab.open(&page).await;
    tab.shows(SIGN_IN).await;
    tab.click("button", SIGN_IN).await;
    tab.until(SIGNED_IN).await;
    // Chromium comments on the pages of the issuer, too.
    let is_own = |one: &Value| one["entry"]["url"].as_str().is_none_or(|url| !url.starts_with(&desk.provider.url));
    assert_eq!(chromium.complaints().into_iter().filter(is_own).collect::<Vec<_>>(), Vec::<Value>::new());
}
