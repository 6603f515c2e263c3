//! Limits of requests, of streams and of calls, which keep their connections: no group of users takes those of all others.

use std::time::Duration;

use futures::future::join_all;
use mainstay_testkit::{PATIENCE, world::NAMESPACE};
use reqwest::Method;
use tokio::{io::AsyncWriteExt as _, net::TcpStream, time};

use super::{
    FORM, READS,
    calls::{CALLS, serving_with},
    users::{Console, ELSEWHERE, URL, Users},
};

/// Interval between attempts until a condition holds.
const PAUSE: Duration = Duration::from_millis(50);
/// Time for which slow forms are expected to hold their permits, less than the server's.
const FORMS_WAIT: Duration = Duration::from_secs(8);

/// Tries until a condition holds.
async fn until(what: &str, is_met: impl AsyncFn() -> bool) {
    let met = async {
        while !is_met().await {
            time::sleep(PAUSE).await;
        }
    };
    time::timeout(PATIENCE, met).await.unwrap_or_else(|_| panic!("not in time: {what}"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_accounts_of_a_namespace_leave_streams_to_others() {
    let users = Users::new().await;
    users.namespace(ELSEWHERE);
    let console = users.console(FORM).await;
    let stream = |cookie: &str| console.request(Method::GET, "/events").header("cookie", cookie.to_owned()).send();
    let mut open = Vec::new();
    for number in 0..5 {
        let cookie = console.sign_in(&users.account(NAMESPACE, &format!("reader-{number}"), READS)).await;
        for _ in 0..16 {
            let answer = stream(&cookie).await.unwrap();
            assert_eq!(answer.status(), 200, "{number}");
            open.push(answer);
        }
    }
    let late = console.sign_in(&users.account(NAMESPACE, "late", READS)).await;
    let refused = stream(&late).await.unwrap();
    assert_eq!(refused.status(), 429);
    let text = refused.text().await.unwrap();
    assert!(text.contains("ServiceAccounts of your namespace"), "{text}");
    // Pages open without a stream, and others have streams.
    assert_eq!(console.get("/", &late).await.code, 200);
    let other = console.sign_in(&users.account(ELSEWHERE, "other", READS)).await;
    assert_eq!(stream(&other).await.unwrap().status(), 200);
    // A closed stream makes room.
    drop(open);
    until("a stream is free", async || stream(&late).await.unwrap().status() == 200).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_waits_for_the_responses_of_few_calls() {
    let (desk, _directory) = serving_with("a text").await;
    let console = desk.users.console(FORM).await;
    let token = desk.users.account(NAMESPACE, "caller", CALLS);
    let (first, second) = (console.sign_in(&token).await, console.sign_in(&token).await);
    let page = format!("/function/{NAMESPACE}/greeter/call");
    let (own, other) =
        (console.get(&page, &first).await.field("csrf"), console.get(&page, &second).await.field("csrf"));
    let call = async |cookie: &str, csrf: &str, path: &str| {
        let fields = [("csrf", csrf), ("method", "GET"), ("path", path), ("type", "text/plain"), ("body", "")];
        console.post(&page, cookie, &fields).await
    };
    let waiting = join_all((0..4).map(|_| call(&first, &own, "/wait")));
    let released = async {
        until("four calls wait", async || call(&second, &other, "/").await.text.contains("waiting&quot;: 4")).await;
        let refused = call(&first, &own, "/fifth").await;
        assert_eq!(refused.code, 429, "{}", refused.text);
        for text in ["waits for the responses of other calls", "value=\"/fifth\""] {
            assert!(refused.text.contains(text), "{text}: {}", refused.text);
        }
        assert_eq!(call(&second, &other, "/release").await.code, 200);
    };
    let both = async { tokio::join!(waiting, released) };
    let (answers, ()) = time::timeout(PATIENCE, both).await.expect("the calls end");
    for answer in answers {
        assert!(answer.code == 200 && answer.text.contains("Response: "), "{}", answer.text);
    }
    assert_eq!(call(&first, &own, "/").await.code, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_ends_does_not_wait_for_its_call() {
    let (desk, _directory) = serving_with("a text").await;
    let console = desk.users.console(FORM).await;
    let token = desk.users.account(NAMESPACE, "caller", CALLS);
    let (first, second) = (console.sign_in(&token).await, console.sign_in(&token).await);
    let page = format!("/function/{NAMESPACE}/greeter/call");
    let (own, other) =
        (console.get(&page, &first).await.field("csrf"), console.get(&page, &second).await.field("csrf"));
    let call = async |cookie: &str, csrf: &str, path: &str| {
        let fields = [("csrf", csrf), ("method", "GET"), ("path", path), ("type", "text/plain"), ("body", "")];
        console.post(&page, cookie, &fields).await
    };
    let ended = async {
        until("the call waits", async || call(&second, &other, "/").await.text.contains("waiting&quot;: 1")).await;
        assert_eq!(console.post("/sign-out", &first, &[("csrf", &own)]).await.code, 303);
    };
    let both = async { tokio::join!(call(&first, &own, "/wait"), ended) };
    let (answer, ()) = time::timeout(PATIENCE, both).await.expect("the call ends with its session");
    assert_eq!(answer.code, 401, "{}", answer.text);
    assert!(answer.text.contains("check whether the form had its effect"), "{}", answer.text);
    assert_eq!(call(&second, &other, "/release").await.code, 200);
}

/// Begins a form of a session, whose body does not arrive.
async fn slow_form(address: &str, path: &str, cookie: &str) -> TcpStream {
    let host = URL.strip_prefix("https://").unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {host}\r\nOrigin: {URL}\r\nCookie: {cookie}\r\nContent-Type: \
         application/x-www-form-urlencoded\r\nContent-Length: 100\r\n\r\na"
    );
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

/// Sends forms to a path until a page of another session of the namespace is refused. The forms to sign out wait, too.
async fn only_own_requests_are_refused(users: &Users, console: &Console, path: &str) {
    let account = |namespace: &str, name: &str| {
        let name = format!("{name}-{}", path.trim_start_matches('/'));
        users.account(namespace, &name, READS)
    };
    let slow = console.sign_in(&account(NAMESPACE, "slow")).await;
    let same = console.sign_in(&account(NAMESPACE, "same")).await;
    let other = console.sign_in(&account(ELSEWHERE, "other")).await;
    let csrf = console.get("/", &same).await.field("csrf");
    // The namespace has 68 permits. The forms hold them for ten seconds, from the time at which the server has read their heads.
    let full = async {
        loop {
            let forms = join_all((0..80).map(|_| slow_form(&console.address, path, &slow))).await;
            let begun = time::Instant::now();
            while begun.elapsed() < FORMS_WAIT {
                let page = console.get("/", &same).await;
                let form = console.post("/act", &same, &[("csrf", &csrf)]).await;
                if [&page, &form].iter().all(|answer| answer.text.contains("ServiceAccounts of your namespace")) {
                    return (forms, page, form);
                }
                time::sleep(PAUSE).await;
            }
        }
    };
    let (forms, page, form) = time::timeout(PATIENCE, full).await.expect("the requests of the namespace are refused");
    assert_eq!((page.code, form.code), (503, 503), "{path}: {} {}", page.text, form.text);
    assert!(page.headers.contains_key("retry-after") && page.headers.contains_key("refresh"), "{path}");
    for (answer, what) in [(&page, "again later"), (&form, "Go back, and send the form again")] {
        assert!(answer.text.contains(what), "{path}: {}", answer.text);
    }
    assert!(!form.headers.contains_key("refresh"), "{path}");
    assert_eq!(console.get("/", &other).await.code, 200, "{path}");
    // Requests whose clients have gone make way for others.
    drop(forms);
    until("a page is served", async || console.get("/", &same).await.code == 200).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_accounts_of_a_namespace_leave_requests_to_others() {
    let users = Users::new().await;
    users.namespace(ELSEWHERE);
    let console = users.console(FORM).await;
    for path in ["/act", "/sign-out"] {
        only_own_requests_are_refused(&users, &console, path).await;
    }
}
