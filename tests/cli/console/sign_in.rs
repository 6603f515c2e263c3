//! `mainstay console --sign-in oidc`: an issuer signs users in, and its ID token is the token of the session.

use devcluster::Options;
use mainstay_testkit::{tls::PrivateCa, world::NAMESPACE};
use reqwest::Method;
use serde_json::{Value, json};

use super::{
    READS,
    chromium::Chromium,
    issuer::{CLIENT, Fault, Issuer, SECRET, authenticate},
    users::{Console, URL, Users},
};
use crate::page_answer::Answer;

const ATTEMPT: &str = "__Host-mainstay_sign_in";
const SESSION: &str = "__Host-mainstay";

/// A cluster that trusts an issuer, and a console whose users that issuer signs in.
struct Desk {
    _users: Users,
    issuer: Issuer,
    console: Console,
    _credentials: tempfile::TempDir,
}

impl Desk {
    async fn new(more: &[&str]) -> Self {
        let users = Users::with(Options { authenticator: Some(authenticate), ..Options::default() }).await;
        users.let_all_ask_who_they_are();
        users.sync(NAMESPACE, "demo");
        users.permit(NAMESPACE, "oidc:alice@example.com", READS);
        let issuer = Issuer::start(format!("{URL}/sign-in/callback")).await;
        issuer.sign_in_as("alice@example.com");
        let credentials = tempfile::tempdir().unwrap();
        std::fs::write(credentials.path().join("client-secret"), format!("{SECRET}\n")).unwrap();
        let directory = credentials.path().to_str().unwrap();
        let by = ["--url", URL, "--sign-in=oidc", "--oidc-issuer", &issuer.url, "--oidc-client-id", CLIENT];
        let console = users.console(&[&by[..], &["--oidc-credentials", directory], more].concat()).await;
        Self { _users: users, issuer, console, _credentials: credentials }
    }

    /// Begins to sign in. Returns the cookie of the attempt, and the path to which the issuer returns the user.
    async fn begin(&self, next: &str) -> (String, String) {
        let begun = self.console.post("/sign-in", "", &[("next", next)]).await;
        assert_eq!(begun.code, 200, "{}", begun.text);
        self.follow(&begun).await
    }

    /// Follows the browser to the issuer. Returns the cookie of the attempt, and the path to which the issuer returns.
    async fn follow(&self, begun: &Answer) -> (String, String) {
        let leaving = begun.headers["refresh"].to_str().unwrap().strip_prefix("0;url=").unwrap();
        let returned = Answer::read(self.console.client.get(leaving).send().await.unwrap()).await;
        let back = returned.headers["location"].to_str().unwrap().strip_prefix(URL).unwrap().to_owned();
        (cookie_of(begun, ATTEMPT).unwrap(), back)
    }

    async fn sign_in(&self) -> Answer {
        let (attempt, back) = self.begin("/").await;
        self.console.get(&back, &attempt).await
    }
}

/// Returns the cookie with this name that a response sets.
fn cookie_of(answer: &Answer, name: &str) -> Option<String> {
    let all = answer.headers.get_all("set-cookie").iter().map(|value| value.to_str().unwrap());
    let mut pairs = all.map(|value| value.split(';').next().unwrap().to_owned());
    pairs.find(|pair| pair.split_once('=').is_some_and(|(own, value)| own == name && !value.is_empty()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_issuer_signs_a_user_in_whose_id_token_is_that_of_the_session() {
    let desk = Desk::new(&["--oidc-scope=email", "--oidc-scope=groups"]).await;
    let page = desk.console.get("/drift", "").await;
    assert!(page.code == 401 && page.text.contains("Sign in with 127.0.0.1"), "{}", page.text);
    assert!(!page.text.contains("type=\"password\"") && page.field("next") == "/drift", "{}", page.text);

    let begun = desk.console.post("/sign-in", "", &[("next", "/drift")]).await;
    let leaving = begun.headers["refresh"].to_str().unwrap();
    assert!(leaving.contains("scope=openid+email+groups") && leaving.contains("code_challenge="), "{leaving}");
    let cookie = begun.headers["set-cookie"].to_str().unwrap();
    for part in ["__Host-mainstay_sign_in=", "; Path=/", "; HttpOnly", "; SameSite=Strict", "; Secure"] {
        assert!(cookie.contains(part), "{cookie}");
    }

    // The issuer's redirect comes from another site: the answer has no content, and opens itself again.
    let (attempt, back) = desk.begin("/drift").await;
    let cross = desk.console.request(Method::GET, &back).header("sec-fetch-site", "cross-site");
    let again =
        desk.console.send(cross.header("sec-fetch-mode", "navigate").header("sec-fetch-dest", "document")).await;
    assert!(again.code == 200 && again.text.contains("/open.js"), "{}", again.text);
    assert!(again.headers.get("set-cookie").is_none());

    let signed_in = desk.console.get(&back, &attempt).await;
    assert_eq!(
        (signed_in.code, signed_in.headers["location"].to_str().unwrap()),
        (303, "/drift"),
        "{}",
        signed_in.text
    );
    let cookie = cookie_of(&signed_in, SESSION).unwrap();
    assert_eq!(cookie_of(&signed_in, ATTEMPT), None, "the attempt has ended");
    let issued = desk.issuer.issued();
    assert!(issued.len() == 1 && !format!("{:?}", signed_in.headers).contains(&issued[0]));
    let page = desk.console.get("/", &cookie).await;
    assert!(page.text.contains("oidc:alice@example.com") && page.text.contains("Sign out"), "{}", page.text);
    let sync = desk.console.get(&format!("/gitsync/{NAMESPACE}/demo"), &cookie).await;
    assert_eq!(sync.code, 200, "{}", sync.text);

    // A code opens one session only.
    let again = desk.console.get(&back, &attempt).await;
    assert!(again.code == 502 && again.text.contains("invalid_grant"), "{}", again.text);
    assert_eq!(cookie_of(&again, SESSION), None);

    let csrf = page.field("csrf");
    assert_eq!(desk.console.post("/sign-out", &cookie, &[("csrf", &csrf)]).await.code, 303);
    assert_eq!(desk.console.get("/", &cookie).await.code, 401);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_browser_that_began_to_sign_in_gets_the_session() {
    let desk = Desk::new(&[]).await;
    let (attempt, back) = desk.begin("/").await;
    let (other, other_back) = desk.begin("/").await;
    let planted = format!("{SESSION}=00112233");
    for (cookies, path) in [
        // The link of an attacker, whose account the victim would use.
        (String::new(), &back),
        (other.clone(), &back),
        (attempt.clone(), &other_back),
        (planted.clone(), &back),
        (format!("{ATTEMPT}=1.a.Lw"), &back),
        (attempt.clone(), &"/sign-in/callback?code=code-0".to_owned()),
        (attempt.clone(), &"/sign-in/callback?code=code-0&state=".to_owned()),
        // An attacker's text is not shown.
        (attempt.clone(), &"/sign-in/callback?error=please+call+555&state=0".to_owned()),
    ] {
        let answer = desk.console.get(path, &cookies).await;
        assert_eq!(answer.code, 403, "{cookies} {path}: {}", answer.text);
        assert!(answer.headers.get("set-cookie").is_none() && !answer.text.contains("555"), "{}", answer.text);
    }
    assert!(desk.issuer.issued().is_empty(), "no code was exchanged");
    // A page of another site cannot begin to sign in, and a cookie that an attacker has set does not become a session.
    let request = desk.console.request(Method::POST, "/sign-in").header("origin", "https://evil.example");
    assert_eq!(desk.console.send(request.body("next=/")).await.code, 403);
    let signed_in = desk.console.get(&back, &format!("{planted}; {ATTEMPT}=1.a.Lw; {attempt}")).await;
    assert_eq!(signed_in.code, 303, "{}", signed_in.text);
    assert_ne!(cookie_of(&signed_in, SESSION).unwrap(), planted);
    assert_eq!(desk.console.get("/", &planted).await.code, 401);
    let (attempt, back) = desk.begin("//evil.example/").await;
    assert_eq!(desk.console.get(&back, &attempt).await.headers["location"], "/");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_id_token_that_is_not_of_this_sign_in_opens_no_session() {
    let desk = Desk::new(&[]).await;
    let hostile = "<script>window.ran=1</script>\u{1b}[31m";
    let claims = |claims: Value| Fault { claims, ..Fault::default() };
    let exchanged = |status, body: &str| Fault { exchanged: Some((status, body.to_owned())), ..Fault::default() };
    let refusal = Some(("access_denied".to_owned(), hostile.to_owned()));
    for (fault, code, said) in [
        (claims(json!({"nonce": "of another sign-in"})), 502, "Invalid nonce"),
        (claims(json!({"nonce": null})), 502, "Invalid nonce"),
        (claims(json!({"aud": "another client"})), 502, "Invalid audiences"),
        (claims(json!({"iss": "https://evil.example"})), 502, "Invalid issuer"),
        (claims(json!({"exp": 1000})), 502, "Expired"),
        (Fault { is_forged: true, ..Fault::default() }, 502, "Signature verification failed"),
        (Fault { refusal, ..Fault::default() }, 403, "access_denied &lt;script&gt;"),
        (exchanged(400, &json!({"error": "x", "error_description": hostile}).to_string()), 502, "x: &lt;script&gt;"),
        (exchanged(200, r#"{"access_token":"a","token_type":"Bearer"}"#), 502, "no ID token"),
        (
            exchanged(200, r#"{"access_token":"a","token_type":"Bearer","id_token":"secret.part"}"#),
            502,
            "response is invalid",
        ),
        (exchanged(200, "[]"), 502, "response is invalid"),
        (exchanged(200, &json!({"a": "b".repeat(600 << 10)}).to_string()), 502, "larger than 512 KiB"),
        // The token is valid for the client, but the API server does not know its user.
        (claims(json!({"email": null})), 401, "The API server does not accept the ID token"),
    ] {
        desk.issuer.fail(fault);
        let answer = desk.sign_in().await;
        assert!(answer.code == code && answer.text.contains(said), "{said}: {} {}", answer.code, answer.text);
        assert!(cookie_of(&answer, SESSION).is_none(), "{said}");
        for secret in ["<script>window", "\u{1b}", "secret.part", SECRET] {
            assert!(!answer.text.contains(secret), "{said}: {}", answer.text);
        }
    }
    // Another audience beside the client is the API server's business.
    desk.issuer.fail(claims(json!({"aud": [CLIENT, "another client"], "azp": CLIENT})));
    assert_eq!(desk.sign_in().await.code, 303);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_ends_with_its_id_token() {
    let desk = Desk::new(&[]).await;
    let expiry = jiff::Timestamp::now().as_second() + 5;
    desk.issuer.fail(Fault { claims: json!({"exp": expiry}), ..Fault::default() });
    let cookie = cookie_of(&desk.sign_in().await, SESSION).unwrap();
    let mut ended = desk.console.get("/", &cookie).await;
    while ended.code == 200 {
        tokio::task::yield_now().await;
        ended = desk.console.get("/", &cookie).await;
    }
    assert_eq!(ended.code, 401, "{}", ended.text);
    assert!(jiff::Timestamp::now().as_second() >= expiry && ended.text.contains("Sign in with"), "{}", ended.text);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_has_ended_is_renewed_without_a_question_unless_the_user_signed_out() {
    let desk = Desk::new(&[]).await;
    let page = format!("/gitsync/{NAMESPACE}/demo?q=web");
    let ended = format!("{SESSION}=00112233");
    let open = async |cookie: &str, dest: &str| {
        let request = desk.console.request(Method::GET, &page).header("cookie", cookie.to_owned());
        let request = request.header("sec-fetch-site", "none").header("sec-fetch-mode", "navigate");
        desk.console.send(request.header("sec-fetch-dest", dest.to_owned())).await
    };
    // The issuer signs the user in without a question, and the browser returns to its page.
    let renewed = open(&ended, "document").await;
    let (attempt, back) = desk.follow(&renewed).await;
    assert!(renewed.code == 401 && renewed.headers["refresh"].to_str().unwrap().contains("prompt=none"));
    let signed_in = desk.console.get(&back, &format!("{ended}; {attempt}")).await;
    assert_eq!((signed_in.code, signed_in.headers["location"].to_str().unwrap()), (303, &*page), "{}", signed_in.text);
    let cookie = cookie_of(&signed_in, SESSION).unwrap();

    // The page says how long the session lasts. A renewal returns to the page with its button, and keeps its forms.
    let drift = desk.console.get("/drift", &cookie).await;
    let says_how_long = (50..60).any(|minutes| drift.text.contains(&format!(">{minutes} min<")));
    assert!(drift.text.contains("Session ends in ") && says_how_long, "{}", drift.text);
    let sent = desk.console.request(Method::POST, "/sign-in").header("origin", URL);
    let sent = sent.header("cookie", &cookie).header("referer", format!("{URL}/drift?who=bob"));
    let (attempt, back) = desk.follow(&desk.console.send(sent).await).await;
    let again = desk.console.get(&back, &format!("{cookie}; {attempt}")).await;
    assert_eq!(again.headers["location"], "/drift?who=bob");
    let renewed = cookie_of(&again, SESSION).unwrap();
    assert!(renewed != cookie && desk.console.get("/", &cookie).await.code == 401);
    assert_eq!(desk.console.get("/", &renewed).await.field("csrf"), drift.field("csrf"));
    desk.issuer.sign_in_as("bob@example.com");
    let (attempt, back) = desk.begin("/").await;
    let other = desk.console.get(&back, &format!("{renewed}; {attempt}")).await;
    let other = desk.console.get("/", &cookie_of(&other, SESSION).unwrap()).await;
    assert!(other.text.contains("oidc:bob@example.com") && other.field("csrf") != drift.field("csrf"));

    // Only a page that the user opens is renewed. Without a cookie, which signing out removes, none is.
    for (cookie, dest) in [(&*ended, "iframe"), (&*ended, "empty"), ("", "document")] {
        let answer = open(cookie, dest).await;
        assert!(answer.code == 401 || answer.code == 403, "{dest}: {}", answer.code);
        assert!(answer.headers.get("refresh").is_none(), "{dest}");
    }
    assert!(desk.console.get(&page, &ended).await.headers.get("refresh").is_none());

    // An issuer that no longer knows the user is asked once: the page then asks the user.
    for error in ["login_required", "interaction_required", "consent_required"] {
        desk.issuer.fail(Fault { refusal: Some((error.to_owned(), "no session".to_owned())), ..Fault::default() });
        let (attempt, back) = desk.follow(&open(&ended, "document").await).await;
        let asked = desk.console.get(&back, &format!("{ended}; {attempt}")).await;
        assert!(asked.code == 401 && asked.text.contains("Your session has ended. Sign in again."), "{}", asked.text);
        assert!(!asked.text.contains(error) && asked.field("next") == page, "{}", asked.text);
        let removed = asked.headers.get_all("set-cookie").iter().map(|value| value.to_str().unwrap());
        assert_eq!(removed.filter(|one| one.contains("Max-Age=0")).count(), 2, "the attempt and the session");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_configuration_that_is_not_the_issuers_signs_no_one_in() {
    for (configuration, said) in [
        (json!({"issuer": "https://evil.example"}), "unexpected issuer"),
        (json!({"authorization_endpoint": "javascript:alert(1)"}), "not of HTTPS"),
        (json!({"authorization_endpoint": "http://login.example.com/"}), "not of HTTPS"),
        (json!({"jwks_uri": "http://169.254.169.254/latest"}), "not of HTTPS"),
        (json!({"authorization_endpoint": null}), "not the configuration of an issuer"),
    ] {
        let desk = Desk::new(&[]).await;
        desk.issuer.fail(Fault { configuration, ..Fault::default() });
        let answer = desk.console.post("/sign-in", "", &[("next", "/")]).await;
        assert!(answer.code == 502 && answer.text.contains(said), "{said}: {}", answer.text);
        assert!(answer.headers.get("set-cookie").is_none() && answer.headers.get("refresh").is_none());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_browser_signs_in_with_the_issuer_and_returns_to_its_page() {
    let certificate = tempfile::tempdir().unwrap();
    let pair = PrivateCa::new().issue("console.example.com");
    std::fs::write(certificate.path().join("tls.crt"), &pair.certificate).unwrap();
    std::fs::write(certificate.path().join("tls.key"), &pair.key).unwrap();
    let desk = Desk::new(&["--tls", certificate.path().to_str().unwrap()]).await;
    let chromium = Chromium::start("console.example.com", &desk.console.address).await;
    let tab = chromium.tab().await;
    let page = format!("{URL}/gitsync/{NAMESPACE}/demo");
    tab.open(&page).await;
    tab.click("button", "Sign in with 127.0.0.1").await;
    tab.until("document.querySelector('.who')?.innerText === 'oidc:alice@example.com'").await;
    assert_eq!(tab.value("location.href").await, page);
    tab.click("button", "Sign out").await;
    tab.shows("Sign in with 127.0.0.1").await;
    desk.issuer.fail(Fault {
        refusal: Some(("access_denied".to_owned(), super::pages::HOSTILE.to_owned())),
        ..Fault::default()
    });
    tab.click("button", "Sign in with 127.0.0.1").await;
    tab.shows("access_denied").await;
    assert_eq!(tab.value("window.ran ?? 0").await, 0);
    assert_eq!(chromium.complaints(), Vec::<Value>::new());
}
