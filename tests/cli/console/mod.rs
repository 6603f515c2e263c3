//! `mainstay console`: users of a cluster sign in with their tokens, and each has the permissions of that token.

mod addresses;
mod calls;
mod chromium;
mod connections;
mod creations;
mod deletions;
mod differences;
mod fleet;
mod forms;
mod frame;
mod freshness;
mod functions;
mod issuer;
mod logs;
mod network;
mod objects;
mod pages;
mod pictures;
mod provider;
mod repositories;
mod reviews;
mod sign_in;
mod sources;
mod syncs;
mod trees;
mod users;
mod views;

use devcluster::fault_injection::Fault;
use mainstay_testkit::world::NAMESPACE;
use reqwest::Method;
use serde_json::json;

use self::users::{ELSEWHERE, URL, Users};

/// The verbs of a user who reads, and of one who also writes.
const READS: &[&str] = &["get", "list", "watch"];
const WRITES: &[&str] = &["get", "list", "watch", "patch"];
const FORM: &[&str] = &["--url", URL];

/// Creates a ServiceAccount that may read, change, create and delete Mainstay's objects and APIRules. Returns its token.
fn owner(users: &Users) -> String {
    let groups = ["mainstay.dev", "serverless.kyma-project.io", "gateway.kyma-project.io", "", "apps"];
    let verbs = ["get", "list", "watch", "patch", "create", "delete"];
    users.account_with(NAMESPACE, "owner", &json!([{"apiGroups": groups, "resources": ["*"], "verbs": verbs}]))
}

fn action(name: &str) -> String {
    format!("action=suspend&group=mainstay.dev&kind=GitSync&namespace={NAMESPACE}&name={name}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_user_sees_and_changes_with_the_rights_of_the_own_token() {
    let users = Users::new().await;
    users.namespace(ELSEWHERE);
    users.sync(NAMESPACE, "demo");
    users.sync(ELSEWHERE, "veiled");
    let console = users.console(FORM).await;
    let reader = console.sign_in(&users.account(ELSEWHERE, "reader", READS)).await;
    let writer = console.sign_in(&users.account(NAMESPACE, "writer", WRITES)).await;
    let page = console.get("/", &writer).await.text;
    assert!(page.contains("demo") && !page.contains("veiled") && page.contains(":writer"), "{page}");
    let page = console.get("/", &reader).await;
    assert!(!page.text.contains("demo") && page.text.contains(":reader"), "{}", page.text);
    let csrf = page.field("csrf");
    let mut stream = console.request(Method::GET, "/events").header("cookie", &reader).send().await.unwrap();
    assert!(stream.chunk().await.unwrap().is_some());
    let selected = console.post("/namespace", &reader, &[("csrf", &csrf), ("in", ELSEWHERE)]).await;
    assert_eq!(selected.code, 303);
    // The browser opens a stream of the other namespace instead.
    while stream.chunk().await.unwrap().is_some() {}
    let page = console.get("/", &reader).await.text;
    assert!(page.contains("veiled") && !page.contains("demo"), "{page}");
    assert_eq!(console.get(&format!("/gitsync/{NAMESPACE}/demo"), &reader).await.code, 403);
    assert_eq!(console.get(&format!("/gitsync/{ELSEWHERE}/veiled"), &writer).await.code, 403);

    // A form of one user is refused from the other user, and the reader's own form changes nothing.
    let question = console.get(&format!("/act?{}", action("demo")), &writer).await;
    let csrf = question.field("csrf");
    let post = async |cookie: &str, csrf: &str| {
        let [action, group, kind] = [("action", "suspend"), ("group", "mainstay.dev"), ("kind", "GitSync")];
        let fields = [action, group, kind, ("namespace", NAMESPACE), ("name", "demo"), ("csrf", csrf)];
        console.post("/act", cookie, &fields).await
    };
    assert_eq!(post(&reader, &csrf).await.code, 403);
    let own = console.get(&format!("/act?{}", action("demo")), &reader).await.field("csrf");
    assert_eq!(post(&reader, &own).await.code, 409);
    assert!(users.spec("demo")["suspend"] != true);
    assert_eq!(post(&writer, &csrf).await.code, 200);
    assert_eq!(users.spec("demo")["suspend"], true);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_begins_with_a_token_that_the_api_server_accepts() {
    let users = Users::new().await;
    users.sync(NAMESPACE, "demo");
    let token = users.account(NAMESPACE, "reader", READS);
    let console = users.console(FORM).await;
    for path in ["/", "/drift", "/events", "/object?kind=Secret&name=a", "/act?action=sync"] {
        let answer = console.get(path, "__Host-mainstay=0123").await;
        assert!(
            answer.code == 401 && answer.text.contains("name=\"token\"") && !answer.text.contains("demo"),
            "{path}"
        );
    }
    let forged = format!("{}x", token.rsplit_once('.').unwrap().0);
    for (wrong, code) in [("", 422), ("two words", 422), (&forged, 401), ("opaque", 401)] {
        let answer = console.post("/sign-in", "", &[("token", wrong)]).await;
        assert_eq!((answer.code, answer.headers.get("set-cookie")), (code, None), "{wrong}");
        assert!(wrong.is_empty() || !answer.text.contains(wrong), "{}", answer.text);
    }
    // A page of another site, or of another port, sends no form.
    for (name, value) in [
        ("origin", "https://evil.example"),
        ("origin", "http://console.example.com"),
        ("origin", "null"),
        ("sec-fetch-site", "cross-site"),
    ] {
        let request =
            console.request(Method::POST, "/sign-in").header("content-type", "application/x-www-form-urlencoded");
        let refused = console.send(request.header(name, value).body(format!("token={token}"))).await;
        assert_eq!((refused.code, refused.headers.get("set-cookie")), (403, None), "{name}: {value}");
    }
    let other = console.client.get(format!("http://{}/", console.address));
    assert_eq!(console.send(other).await.code, 403, "the address of the pod is no name of the console");

    let leading_away = [("token", token.as_str()), ("next", "//evil.example/")];
    let signed_in = console.post("/sign-in", "", &leading_away).await;
    assert_eq!((signed_in.code, signed_in.headers["location"].to_str().unwrap()), (303, "/"));
    let cookie = signed_in.headers["set-cookie"].to_str().unwrap();
    for part in ["__Host-mainstay=", "; Path=/", "; HttpOnly", "; SameSite=Strict", "; Secure"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    assert!(!cookie.contains(&token));
    assert_eq!(console.get("/", &signed_in.cookie()).await.code, 200);

    // A cookie that an attacker has set does not become a session.
    let planted = "__Host-mainstay=00112233";
    let again = console.post("/sign-in", planted, &[("token", &token)]).await;
    assert!(again.code == 303 && again.cookie() != planted && again.cookie() != signed_in.cookie());
    assert_eq!(console.get("/", planted).await.code, 401);
    // It does not hide the cookie of the session that comes after it.
    assert_eq!(console.get("/", &format!("{planted}; {}", again.cookie())).await.code, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cookie_of_one_host_opens_no_session_at_another_host() {
    let users = Users::new().await;
    let [own, plain] = ["http://mainstay-console.localhost:8080", "http://localhost:8080"];
    let console = users.console(&["--url", own, "--url", plain]).await;
    let token = users.account(NAMESPACE, "reader", READS);
    let at = |method: Method, path: &str, url: &str, cookie: &str| {
        let host = url.strip_prefix("http://").unwrap().to_owned();
        let request = console.client.request(method, format!("http://{}{path}", console.address));
        request.header("host", host).header("origin", url.to_owned()).header("cookie", cookie.to_owned())
    };
    for (url, other) in [(own, plain), (plain, own)] {
        let form = at(Method::POST, "/sign-in", url, "").header("content-type", "application/x-www-form-urlencoded");
        let signed_in = console.send(form.body(format!("token={token}&next=/"))).await;
        assert_eq!(signed_in.code, 303, "{}", signed_in.text);
        let cookie = signed_in.cookie();
        assert_eq!(console.send(at(Method::GET, "/", url, &cookie)).await.code, 200, "{url}");
        assert_eq!(console.send(at(Method::GET, "/", other, &cookie)).await.code, 401, "{other}");
    }
    let page = console.send(at(Method::GET, "/", plain, "")).await.text;
    assert!(page.contains(&format!("href=\"{own}\"")), "{page}");
    let page = console.send(at(Method::GET, "/", own, "")).await.text;
    assert!(!page.contains("://"), "{page}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_ends_with_its_token_and_by_its_button() {
    let users = Users::new().await;
    let console = users.console(FORM).await;
    let token = users.account(NAMESPACE, "reader", READS);
    let (first, second) = (console.sign_in(&token).await, console.sign_in(&token).await);
    let csrf = console.get("/", &first).await.field("csrf");
    assert_eq!(console.post("/sign-out", &first, &[("csrf", "0")]).await.code, 403);
    assert_eq!(console.get("/", &first).await.code, 200);
    let out = console.post("/sign-out", &first, &[("csrf", &csrf)]).await;
    assert!(out.code == 303 && out.headers["set-cookie"].to_str().unwrap().contains("Max-Age=0"));
    assert_eq!(console.get("/", &first).await.code, 401);
    assert_eq!(console.get("/", &second).await.code, 200);

    let mut stream = console.request(Method::GET, "/events").header("cookie", &second).send().await.unwrap();
    assert!(stream.chunk().await.unwrap().is_some());
    users.world.delete("v1", "serviceaccounts", "reader");
    console.refuses(&token).await;
    // The page whose request is refused asks for a new token.
    let page = console.get(&format!("/gitsync/{NAMESPACE}/demo"), &second).await;
    assert!(page.code == 401 && page.text.contains("name=\"token\""), "{}", page.text);
    assert_eq!(console.get("/", &second).await.code, 401);
    while stream.chunk().await.unwrap().is_some() {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_button_ends_all_sessions_whose_cookies_the_browser_sends() {
    let users = Users::new().await;
    let console = users.console(FORM).await;
    let token = users.account(NAMESPACE, "reader", READS);
    let sessions = [console.sign_in(&token).await, console.sign_in(&token).await];
    let other = console.sign_in(&token).await;
    let all = sessions.join("; ");
    let csrf = console.get("/", &all).await.field("csrf");
    assert_eq!(console.post("/sign-out", &all, &[("csrf", "0")]).await.code, 403);
    assert_eq!(console.post("/sign-out", &all, &[("csrf", &csrf)]).await.code, 303);
    for session in sessions {
        assert_eq!(console.get("/", &session).await.code, 401);
    }
    assert_eq!(console.get("/", &other).await.code, 200);
    // A new session is not hidden by an earlier one whose cookie comes first.
    let answer = console.post("/sign-in", &other, &[("token", &token), ("next", "/")]).await;
    assert_eq!(answer.code, 303);
    assert_eq!(console.get("/", &other).await.code, 401);
    assert_eq!(console.get("/", &answer.cookie()).await.code, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_has_a_limited_number_of_streams() {
    let users = Users::new().await;
    let console = users.console(FORM).await;
    let (first, second) = (users.account(NAMESPACE, "first", READS), users.account(NAMESPACE, "second", READS));
    let (first, second) = (console.sign_in(&first).await, console.sign_in(&second).await);
    let stream = |cookie: &str| console.request(Method::GET, "/events").header("cookie", cookie.to_owned()).send();
    let mut open = Vec::new();
    for number in 0..16 {
        let mut answer = stream(&first).await.unwrap();
        assert_eq!(answer.status(), 200, "{number}");
        assert!(answer.chunk().await.unwrap().is_some());
        open.push(answer);
    }
    assert_eq!(stream(&first).await.unwrap().status(), 429);
    assert_eq!(stream(&second).await.unwrap().status(), 200, "another session has its own streams");
    assert_eq!(console.get("/", &first).await.code, 200);
    // A closed stream makes room.
    drop(open);
    while stream(&first).await.unwrap().status() == 429 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_reports_a_change_between_its_page_and_its_beginning() {
    let users = Users::new().await;
    users.sync(NAMESPACE, "demo");
    let console = users.console(FORM).await;
    let reader = console.sign_in(&users.account(NAMESPACE, "reader", READS)).await;
    let seen = async || {
        let page = console.get(&format!("/gitsync/{NAMESPACE}/demo"), &reader).await.text;
        page.split_once("data-seen=\"").unwrap().1.split('"').next().unwrap().to_owned()
    };
    // The fleet is shown once all objects have been listed. Each of them counts as a change.
    assert_eq!(console.get("/", &reader).await.code, 200);
    let old = seen().await;
    users.world.edit("mainstay.dev/v1alpha1", "gitsyncs", "demo", json!({"metadata": {"labels": {"a": "b"}}}));
    let mut new = seen().await;
    while new == old {
        new = seen().await;
    }
    for (seen, end) in [(old, "event: change\n"), (new, "\n:\n")] {
        let path = format!("/events?kind=GitSync&namespace={NAMESPACE}&name=demo&seen={seen}");
        let mut stream = console.request(Method::GET, &path).header("cookie", &reader).send().await.unwrap();
        let mut text = String::new();
        while !text.contains(end) {
            text += &String::from_utf8_lossy(&stream.chunk().await.unwrap().unwrap());
        }
        assert_eq!(text.contains("event: change"), end.contains("change"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_the_api_server_has_not_judged_opens_no_session() {
    let users = Users::new().await;
    let console = users.console(FORM).await;
    users.let_all_ask_who_they_are();
    let faults = users.world.server.embedded().faults();
    let token = users.account(NAMESPACE, "reader", READS);
    for code in [429, 500, 503] {
        let fault = Fault { verb: "create".into(), resource: "selfsubjectreviews".into(), code, ..Fault::default() };
        faults.fail_next(Fault { times: 100, ..fault });
        let answer = console.post("/sign-in", "", &[("token", &token)]).await;
        assert_eq!(answer.code, 502, "{code}: {}", answer.text);
        assert!(answer.headers.get("set-cookie").is_none(), "{code}");
        faults.clear_faults();
    }
    console.sign_in(&token).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_sends_the_token_of_the_user_with_each_request() {
    let users = Users::new().await;
    users.namespace(ELSEWHERE);
    users.sync(NAMESPACE, "demo");
    let console = users.console(&["--url", URL, "--sign-in=proxy"]).await;
    let (reader, writer) = (users.account(ELSEWHERE, "reader", READS), users.account(NAMESPACE, "writer", WRITES));
    let get = async |path: &str, token: &str| {
        console.send(console.request(Method::GET, path).header("authorization", format!("Bearer {token}"))).await
    };
    for path in ["/", "/events", "/act"] {
        assert_eq!(console.get(path, "").await.code, 401, "{path}");
        assert_eq!(get(path, "opaque").await.code, 401, "{path}");
    }
    // The sign-in form does not exist in this mode.
    assert_eq!(console.post("/sign-in", "", &[("token", &writer)]).await.code, 401);
    let page = get("/", &writer).await;
    assert!(page.text.contains("demo") && !page.text.contains("Sign out"), "{}", page.text);
    assert!(page.headers.get("set-cookie").is_none());
    assert!(!get("/", &reader).await.text.contains("demo"));
    // In the meantime, the proxy sends a different token of the same user.
    let question = get(&format!("/act?{}", action("demo")), &writer).await;
    let post = async |token: &str, csrf: &str| {
        let form = format!("{}&csrf={csrf}", action("demo"));
        let request = console.request(Method::POST, "/act").header("authorization", format!("Bearer {token}"));
        console.send(request.header("origin", URL).body(form)).await
    };
    assert_eq!(post(&reader, &question.field("csrf")).await.code, 403);
    assert_eq!(post(&users.token(NAMESPACE, "writer"), &question.field("csrf")).await.code, 200);
    assert_eq!(users.spec("demo")["suspend"], true);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_of_another_site_shows_nothing_before_it_is_opened_by_the_console() {
    let users = Users::new().await;
    users.sync(NAMESPACE, "demo");
    let console = users.console(FORM).await;
    let cookie = console.sign_in(&users.account(NAMESPACE, "reader", READS)).await;
    let link = |dest: &str| {
        let request =
            console.request(Method::GET, "/").header("cookie", &cookie).header("sec-fetch-site", "cross-site");
        request.header("sec-fetch-mode", "navigate").header("sec-fetch-dest", dest.to_owned())
    };
    let page = console.send(link("document")).await;
    assert!(page.code == 200 && page.text.contains("/open.js") && !page.text.contains("demo"), "{}", page.text);
    assert_eq!(console.send(link("iframe")).await.code, 403);
    // A path that is the address of another host is not opened, neither by the server nor by the script.
    let foreign = console.request(Method::GET, "//evil.example/x").header("sec-fetch-site", "cross-site");
    let foreign = foreign.header("sec-fetch-mode", "navigate").header("sec-fetch-dest", "document");
    assert_eq!(console.send(foreign).await.code, 403);
    let script = console.get("/open.js", "").await.text;
    assert!(script.contains("location.replace(location.origin + location.pathname + location.search)"), "{script}");
    assert_eq!(console.get("/healthz", "").await.text, "ok\n");
}
