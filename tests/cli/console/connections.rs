//! Limits of requests, of streams and of calls, which keep their connections: no group of users takes those of all others.

use futures::future::join_all;
use mainstay_testkit::world::NAMESPACE;
use reqwest::Method;
use tokio::{io::AsyncWriteExt as _, net::TcpStream};

use super::{
    FORM, READS,
    calls::{CALLS, serving_with},
    users::{ELSEWHERE, URL, Users},
};

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
    while stream(&late).await.unwrap().status() == 429 {
        tokio::task::yield_now().await;
    }
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
        while !call(&second, &other, "/").await.text.contains("waiting&quot;: 4") {}
        let refused = call(&first, &own, "/fifth").await;
        assert_eq!(refused.code, 429, "{}", refused.text);
        for text in ["waits for the responses of other calls", "value=\"/fifth\""] {
            assert!(refused.text.contains(text), "{text}: {}", refused.text);
        }
        assert_eq!(call(&second, &other, "/release").await.code, 200);
    };
    let (answers, ()) = tokio::join!(waiting, released);
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
        while !call(&second, &other, "/").await.text.contains("waiting&quot;: 1") {}
        assert_eq!(console.post("/sign-out", &first, &[("csrf", &own)]).await.code, 303);
    };
    let (answer, ()) = tokio::join!(call(&first, &own, "/wait"), ended);
    assert_eq!(answer.code, 401, "{}", answer.text);
    assert!(answer.text.contains("check whether the form had its effect"), "{}", answer.text);
    assert_eq!(call(&second, &other, "/release").await.code, 200);
}

/// Begins a form of a session, whose body does not arrive.
async fn slow_form(address: &str, cookie: &str) -> TcpStream {
    let host = URL.strip_prefix("https://").unwrap();
    let head = format!(
        "POST /act HTTP/1.1\r\nHost: {host}\r\nOrigin: {URL}\r\nCookie: {cookie}\r\nContent-Type: \
         application/x-www-form-urlencoded\r\nContent-Length: 100\r\n\r\na"
    );
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_accounts_of_a_namespace_leave_requests_to_others() {
    let users = Users::new().await;
    users.namespace(ELSEWHERE);
    let console = users.console(FORM).await;
    let slow = console.sign_in(&users.account(NAMESPACE, "slow", READS)).await;
    let same = console.sign_in(&users.account(NAMESPACE, "same", READS)).await;
    let other = console.sign_in(&users.account(ELSEWHERE, "other", READS)).await;
    let mut forms = Vec::new();
    let refused = loop {
        for _ in 0..64 {
            forms.push(slow_form(&console.address, &slow).await);
        }
        let answer = console.get("/", &same).await;
        if answer.code != 200 {
            break answer;
        }
    };
    assert_eq!(refused.code, 503, "{}", refused.text);
    assert!(refused.headers.contains_key("retry-after") && refused.headers.contains_key("refresh"));
    assert!(refused.text.contains("ServiceAccounts of your namespace"), "{}", refused.text);
    assert_eq!(console.get("/", &other).await.code, 200);
    // Requests whose clients have gone make way for others.
    drop(forms);
    while console.get("/", &same).await.code == 503 {
        tokio::task::yield_now().await;
    }
}
