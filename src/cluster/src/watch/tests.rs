//! Watches, against a fake API server.

use serde_json::json;

use super::super::fake::{self, Asked, Pipe, Server};
use super::super::kind::tests::kind;
use super::*;

type Events = BoxStream<'static, WatchEvent>;

fn watch() -> (Cluster, Events, Server) {
    let (cluster, server) = fake::cluster();
    let config_maps = Arc::new(kind("v1", "ConfigMap", "configmaps", true));
    let events = cluster.watch(&config_maps, Selection::labelled("app", "web"));
    (cluster, events, server)
}

fn object(name: &str, version: u64) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name, "resourceVersion": version.to_string() } })
}

fn end_of_initial(version: u64) -> Value {
    json!({ "metadata": { "resourceVersion": version.to_string(), "annotations": { "k8s.io/initial-events-end": "true" } } })
}

fn status(code: u16, reason: &str) -> Value {
    json!({ "kind": "Status", "code": code, "reason": reason, "message": reason })
}

/// The event in a word: `begin`, `initial a`, `synced at 5`, `applied a`, `deleted a`, `failed 403`.
async fn word(events: &mut Events) -> String {
    let name = |object: &Value| object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    match events.next().await.expect("a watch never ends") {
        WatchEvent::Begin => "begin".to_owned(),
        WatchEvent::Initial(object) => format!("initial {}", name(&object)),
        WatchEvent::Synced(version) => format!("synced at {version}"),
        WatchEvent::Applied(object) => format!("applied {}", name(&object)),
        WatchEvent::Deleted(object) => format!("deleted {}", name(&object)),
        WatchEvent::Unreadable(object, error) => {
            assert_eq!(error.to_string(), format!("could not read ConfigMap {}", name(&object)));
            format!("unreadable {}", name(&object))
        }
        WatchEvent::Failed(error) => format!("failed {}", error.code().unwrap_or_default()),
        WatchEvent::Resumed => "resumed".to_owned(),
        WatchEvent::WentBack => "went back".to_owned(),
    }
}

/// Runs the watch until it sends a request; it must not yield an event before.
async fn asked(events: &mut Events, server: &mut Server) -> Asked {
    tokio::select! {
        biased;
        said = word(events) => panic!("asked nothing, said {said}"),
        asked = server.next() => asked,
    }
}

/// An open watch that has yielded `a` at version 5.
async fn opened(events: &mut Events, server: &mut Server) -> Pipe {
    assert_eq!(word(events).await, "begin");
    let pipe = asked(events, server).await.stream();
    pipe.event("ADDED", &object("a", 3));
    pipe.event("BOOKMARK", &end_of_initial(5));
    assert_eq!(word(events).await, "initial a");
    assert_eq!(word(events).await, "synced at 5");
    pipe
}

#[tokio::test]
async fn yields_current_objects_and_then_their_changes() {
    let (cluster, mut events, mut server) = watch();
    assert_eq!(word(&mut events).await, "begin");
    let asked = asked(&mut events, &mut server).await;
    assert_eq!(asked.parameter("sendInitialEvents").as_deref(), Some("true"));
    assert_eq!(asked.parameter("resourceVersionMatch").as_deref(), Some("NotOlderThan"));
    assert_eq!(asked.parameter("labelSelector").as_deref(), Some("app=web"));
    assert_eq!(asked.parameter("allowWatchBookmarks").as_deref(), Some("true"));
    assert_eq!(asked.request.headers()["accept-encoding"], "identity");
    let pipe = asked.stream();
    pipe.event("ADDED", &object("a", 3));
    pipe.event("BOOKMARK", &end_of_initial(5));
    pipe.event("MODIFIED", &object("a", 6));
    pipe.event("DELETED", &object("a", 7));
    for expected in ["initial a", "synced at 5", "applied a", "deleted a"] {
        assert_eq!(word(&mut events).await, expected);
    }
    assert_eq!(cluster.requests().total(|verb, resource| verb == Verb::Watch && resource == "configmaps"), 1);
}

/// Sends a watch event about an object that is too deep to be parsed.
fn deep(pipe: &Pipe, what: &str, name: &str, version: u64) {
    let object = crate::object::tests::deep(name, version);
    pipe.send(&format!("{{\"type\":\"{what}\",\"object\":{object}}}\n"));
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_read_is_reported_by_name_and_the_watch_goes_on() {
    let (cluster, mut events, mut server) = watch();
    assert_eq!(word(&mut events).await, "begin");
    let pipe = asked(&mut events, &mut server).await.stream();
    pipe.event("ADDED", &object("a", 3));
    deep(&pipe, "ADDED", "deep", 4);
    pipe.event("ADDED", &object("b", 4));
    pipe.event("BOOKMARK", &end_of_initial(5));
    deep(&pipe, "MODIFIED", "deep", 6);
    pipe.event("DELETED", &object("a", 7));
    deep(&pipe, "DELETED", "deep", 8);
    deep(&pipe, "ADDED", "other", 9);
    let before = Instant::now();
    for expected in [
        "initial a",
        "unreadable deep",
        "initial b",
        "synced at 5",
        "unreadable deep",
        "deleted a",
        "deleted deep",
        "unreadable other",
    ] {
        assert_eq!(word(&mut events).await, expected);
    }
    drop(pipe);
    let resumed = asked(&mut events, &mut server).await;
    assert_eq!(resumed.parameter("resourceVersion").as_deref(), Some("9"), "nothing is delivered twice");
    assert_eq!(before.elapsed(), Duration::ZERO);
    assert_eq!(cluster.requests().total(|verb, resource| verb == Verb::Watch && resource == "configmaps"), 2);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_read_is_reported_by_name_in_a_list_too() {
    let (_cluster, mut events, mut server) = watch();
    assert_eq!(word(&mut events).await, "begin");
    asked(&mut events, &mut server).await.json(500, &status(500, "InternalError")).await;
    let deep = crate::object::tests::deep("deep", 4);
    let page = format!(r#"{{"metadata":{{"resourceVersion":"8"}},"items":[{deep},{}]}}"#, object("a", 1));
    let before = Instant::now();
    asked(&mut events, &mut server).await.text(200, &page).await;
    for expected in ["unreadable deep", "initial a", "synced at 8"] {
        assert_eq!(word(&mut events).await, expected);
    }
    assert_eq!(before.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_line_that_no_server_writes_is_not_asked_for_in_a_tight_loop() {
    let (_cluster, mut events, mut server) = watch();
    let before = Instant::now();
    for _ in 0..8 {
        assert_eq!(word(&mut events).await, "begin");
        let pipe = asked(&mut events, &mut server).await.stream();
        pipe.event("ADDED", &object("a", 3));
        assert_eq!(word(&mut events).await, "initial a");
        pipe.send("{\"type\":\"ADDED\",\"object\":{\"metadata\"}\n");
        assert_eq!(word(&mut events).await, "failed 0");
    }
    assert!(before.elapsed() >= Duration::from_secs(20), "{:?}", before.elapsed());
}

#[tokio::test(start_paused = true)]
async fn resumes_after_a_clean_end_from_the_last_bookmark() {
    let (_cluster, mut events, mut server) = watch();
    let pipe = opened(&mut events, &mut server).await;
    pipe.event("BOOKMARK", &json!({ "metadata": { "resourceVersion": "40" } }));
    drop(pipe);
    let asked = asked(&mut events, &mut server).await;
    assert_eq!(asked.parameter("resourceVersion").as_deref(), Some("40"));
    assert_eq!(asked.parameter("sendInitialEvents"), None);
}

#[tokio::test(start_paused = true)]
async fn resumes_after_a_cut_from_the_last_event_once_the_server_proves_to_be_the_same() {
    let (_cluster, mut events, mut server) = watch();
    let pipe = opened(&mut events, &mut server).await;
    pipe.event("MODIFIED", &object("a", 9));
    assert_eq!(word(&mut events).await, "applied a");
    pipe.cut();
    let probe = asked(&mut events, &mut server).await;
    assert_eq!(probe.line(), "GET /api/v1/configmaps?limit=1");
    probe.json(200, &json!({ "metadata": { "resourceVersion": "12" }, "items": [] })).await;
    let asked = asked(&mut events, &mut server).await;
    assert_eq!(asked.parameter("resourceVersion").as_deref(), Some("9"));
    asked.stream().event("MODIFIED", &object("a", 10));
}

#[tokio::test(start_paused = true)]
async fn lists_again_when_the_server_has_an_older_version() {
    let (_cluster, mut events, mut server) = watch();
    opened(&mut events, &mut server).await.cut();
    asked(&mut events, &mut server).await.cut();
    assert_eq!(word(&mut events).await, "failed 0");
    let probe = asked(&mut events, &mut server).await;
    probe.json(200, &json!({ "metadata": { "resourceVersion": "2" }, "items": [] })).await;
    is_listed_as_restored(&mut events, &mut server).await;
}

/// Expects a list, answers it with version 3, and expects that the watch reports the restored server once.
async fn is_listed_as_restored(events: &mut Events, server: &mut Server) {
    assert_eq!(word(events).await, "begin");
    let pipe = asked(events, server).await.stream();
    pipe.event("BOOKMARK", &end_of_initial(3));
    assert_eq!(word(events).await, "went back");
    assert_eq!(word(events).await, "synced at 3");
    pipe.event("ERROR", &status(410, "Expired"));
    assert_eq!(word(events).await, "begin");
    asked(events, server).await.stream().event("BOOKMARK", &end_of_initial(4));
    assert_eq!(word(events).await, "synced at 4");
}

#[tokio::test(start_paused = true)]
async fn a_list_that_is_older_than_a_bookmark_shows_a_restored_server() {
    let (_cluster, mut events, mut server) = watch();
    let pipe = opened(&mut events, &mut server).await;
    pipe.event("BOOKMARK", &json!({ "metadata": { "resourceVersion": "40" } }));
    pipe.event("ERROR", &status(410, "Expired"));
    assert_eq!(word(&mut events).await, "begin");
    asked(&mut events, &mut server).await.stream().event("BOOKMARK", &end_of_initial(30));
    assert_eq!(word(&mut events).await, "went back");
    assert_eq!(word(&mut events).await, "synced at 30");
}

/// Ends an open watch cleanly, and answers the next requests with the errors of a load balancer.
async fn unavailable_meanwhile(events: &mut Events, server: &mut Server) {
    drop(opened(events, server).await);
    let resumed = asked(events, server).await;
    assert_eq!(resumed.parameter("resourceVersion").as_deref(), Some("5"));
    resumed.json(503, &status(503, "ServiceUnavailable")).await;
    assert_eq!(word(events).await, "failed 503");
    for _ in 0..2 {
        let probe = asked(events, server).await;
        assert_eq!(probe.line(), "GET /api/v1/configmaps?limit=1");
        probe.json(502, &status(502, "BadGateway")).await;
        assert_eq!(word(events).await, "failed 502");
    }
}

#[tokio::test(start_paused = true)]
async fn lists_again_when_the_server_has_an_older_version_after_server_errors() {
    let (_cluster, mut events, mut server) = watch();
    unavailable_meanwhile(&mut events, &mut server).await;
    let probe = asked(&mut events, &mut server).await;
    probe.json(200, &json!({ "metadata": { "resourceVersion": "2" }, "items": [] })).await;
    is_listed_as_restored(&mut events, &mut server).await;
}

#[tokio::test(start_paused = true)]
async fn resumes_after_server_errors_without_a_list() {
    let (_cluster, mut events, mut server) = watch();
    unavailable_meanwhile(&mut events, &mut server).await;
    let probe = asked(&mut events, &mut server).await;
    probe.json(200, &json!({ "metadata": { "resourceVersion": "12" }, "items": [] })).await;
    let resumed = asked(&mut events, &mut server).await;
    assert_eq!(resumed.parameter("resourceVersion").as_deref(), Some("5"));
    let pipe = resumed.stream();
    assert_eq!(word(&mut events).await, "resumed");
    drop(pipe);
}

#[tokio::test(start_paused = true)]
async fn lists_again_when_the_resource_version_has_expired() {
    let (_cluster, mut events, mut server) = watch();
    let pipe = opened(&mut events, &mut server).await;
    pipe.event("ERROR", &status(410, "Expired"));
    assert_eq!(word(&mut events).await, "begin");
    let pipe = asked(&mut events, &mut server).await.stream();
    pipe.event("BOOKMARK", &end_of_initial(50));
    assert_eq!(word(&mut events).await, "synced at 50");
    drop(pipe);
    asked(&mut events, &mut server).await.json(410, &status(410, "Expired")).await;
    assert_eq!(word(&mut events).await, "begin");
}

/// Expects a paginated list, and a watch from its version.
async fn is_listed_and_watched(events: &mut Events, server: &mut Server) {
    let first = asked(events, server).await;
    assert_eq!((first.parameter("limit"), first.parameter("watch")), (Some("50".to_owned()), None), "{}", first.line());
    let item = json!({ "metadata": { "name": "a", "resourceVersion": "1" } });
    first.json(200, &json!({ "metadata": { "resourceVersion": "8", "continue": "next" }, "items": [item] })).await;
    let WatchEvent::Initial(object) = events.next().await.expect("an event") else { panic!("initial") };
    assert_eq!((&object["kind"], &object["apiVersion"]), (&json!("ConfigMap"), &json!("v1")));
    let second = asked(events, server).await;
    assert_eq!(second.parameter("continue").as_deref(), Some("next"));
    second.json(200, &json!({ "metadata": { "resourceVersion": "8" }, "items": [] })).await;
    assert_eq!(word(events).await, "synced at 8");
    let resumed = asked(events, server).await;
    assert_eq!(resumed.parameter("resourceVersion").as_deref(), Some("8"));
    assert_eq!(resumed.parameter("sendInitialEvents"), None);
}

/// Expects a paginated list for a second watch of this kind, and a streaming list for a different kind.
async fn is_remembered_for_this_kind(cluster: &Cluster, server: &mut Server) {
    let config_maps = Arc::new(kind("v1", "ConfigMap", "configmaps", true));
    let mut same = cluster.watch(&config_maps, Selection::default());
    assert_eq!(word(&mut same).await, "begin");
    assert_eq!(asked(&mut same, server).await.line(), "GET /api/v1/configmaps?limit=50");
    let secrets = Arc::new(kind("v1", "Secret", "secrets", true));
    let mut other = cluster.watch(&secrets, Selection::default());
    assert_eq!(word(&mut other).await, "begin");
    assert_eq!(asked(&mut other, server).await.parameter("sendInitialEvents").as_deref(), Some("true"));
}

#[tokio::test(start_paused = true)]
async fn a_kind_whose_streaming_list_is_refused_is_listed_in_pages_from_then_on() {
    for code in [400, 401, 403, 404, 405, 410, 422, 500, 501, 503, 504] {
        let (cluster, mut events, mut server) = watch();
        assert_eq!(word(&mut events).await, "begin");
        let before = Instant::now();
        asked(&mut events, &mut server).await.json(code, &status(code, "No")).await;
        is_listed_and_watched(&mut events, &mut server).await;
        assert_eq!(before.elapsed(), Duration::ZERO, "{code}");
        is_remembered_for_this_kind(&cluster, &mut server).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_streaming_list_that_ends_in_an_error_is_listed_instead() {
    for code in [500, 410, 403] {
        let (cluster, mut events, mut server) = watch();
        assert_eq!(word(&mut events).await, "begin");
        let pipe = asked(&mut events, &mut server).await.stream();
        pipe.event("ADDED", &object("a", 3));
        assert_eq!(word(&mut events).await, "initial a");
        pipe.event("ERROR", &status(code, "InternalError"));
        // Events that precede the error do not matter.
        assert_eq!(word(&mut events).await, "begin");
        is_listed_and_watched(&mut events, &mut server).await;
        is_remembered_for_this_kind(&cluster, &mut server).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_streaming_list_that_hangs_is_listed_instead() {
    // The server sends no headers.
    let (cluster, mut events, mut server) = watch();
    assert_eq!(word(&mut events).await, "begin");
    let before = Instant::now();
    let hangs = asked(&mut events, &mut server).await;
    is_listed_and_watched(&mut events, &mut server).await;
    assert!(before.elapsed() <= Duration::from_secs(15), "{:?}", before.elapsed());
    is_remembered_for_this_kind(&cluster, &mut server).await;
    drop(hangs);
    // The server does not send the end of the initial events.
    let (cluster, mut events, mut server) = watch();
    assert_eq!(word(&mut events).await, "begin");
    let pipe = asked(&mut events, &mut server).await.stream();
    pipe.event("ADDED", &object("a", 3));
    assert_eq!(word(&mut events).await, "initial a");
    let before = Instant::now();
    assert_eq!(word(&mut events).await, "begin");
    is_listed_and_watched(&mut events, &mut server).await;
    assert!(before.elapsed() <= Duration::from_secs(15), "{:?}", before.elapsed());
    is_remembered_for_this_kind(&cluster, &mut server).await;
}

/// An overloaded server would have to answer hundreds of pages instead of one stream.
#[tokio::test(start_paused = true)]
async fn an_overloaded_server_is_asked_for_a_stream_again_after_a_slow_page() {
    let (cluster, mut events, mut server) = watch();
    assert_eq!(word(&mut events).await, "begin");
    let page =
        |next: &str| json!({ "metadata": { "resourceVersion": "8", "continue": next }, "items": [object("a", 3)] });
    let slow = async |asked: Asked, page: Value| {
        assert_eq!(asked.parameter("limit").as_deref(), Some("50"));
        tokio::time::sleep(Duration::from_secs(5)).await;
        asked.json(200, &page).await;
    };
    let first = asked(&mut events, &mut server).await;
    slow(asked(&mut events, &mut server).await, page("next")).await;
    let second = asked(&mut events, &mut server).await;
    assert_eq!(second.parameter("sendInitialEvents").as_deref(), Some("true"));
    drop(first);
    // It stays silent for longer, so the list is paginated this time.
    let before = Instant::now();
    let listed = asked(&mut events, &mut server).await;
    assert!(before.elapsed() >= Duration::from_secs(60), "{:?}", before.elapsed());
    slow(listed, page("")).await;
    assert_eq!(word(&mut events).await, "initial a");
    assert_eq!(word(&mut events).await, "synced at 8");
    drop(second);
    // The next lists are streamed.
    asked(&mut events, &mut server).await.json(410, &status(410, "Expired")).await;
    assert_eq!(word(&mut events).await, "begin");
    assert_eq!(asked(&mut events, &mut server).await.parameter("sendInitialEvents").as_deref(), Some("true"));
    let mut same = cluster.watch(&Arc::new(kind("v1", "ConfigMap", "configmaps", true)), Selection::default());
    assert_eq!(word(&mut same).await, "begin");
    assert_eq!(asked(&mut same, &mut server).await.parameter("sendInitialEvents").as_deref(), Some("true"));
}

#[tokio::test(start_paused = true)]
async fn a_streaming_list_that_keeps_breaking_off_is_listed_instead() {
    let (_cluster, mut events, mut server) = watch();
    for _ in 0..2 {
        assert_eq!(word(&mut events).await, "begin");
        let pipe = asked(&mut events, &mut server).await.stream();
        pipe.event("ADDED", &object("a", 3));
        assert_eq!(word(&mut events).await, "initial a");
        drop(pipe);
    }
    assert_eq!(word(&mut events).await, "begin");
    is_listed_and_watched(&mut events, &mut server).await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_list_says_nothing_about_streaming_lists() {
    let (_cluster, mut events, mut server) = watch();
    assert_eq!(word(&mut events).await, "begin");
    for code in [500, 403] {
        asked(&mut events, &mut server).await.json(500, &status(500, "InternalError")).await;
        asked(&mut events, &mut server).await.json(code, &status(code, "No")).await;
        assert_eq!(word(&mut events).await, format!("failed {code}"), "the error of the list is reported");
        let before = Instant::now();
        let again = asked(&mut events, &mut server).await;
        assert!(before.elapsed() >= Duration::from_millis(250), "{:?}", before.elapsed());
        assert_eq!(again.parameter("sendInitialEvents").as_deref(), Some("true"));
        again.json(500, &status(500, "InternalError")).await;
        asked(&mut events, &mut server).await.cut();
        assert_eq!(word(&mut events).await, "failed 0");
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_whose_snapshot_expires_starts_again() {
    let (_cluster, mut events, mut server) = watch();
    assert_eq!(word(&mut events).await, "begin");
    asked(&mut events, &mut server).await.json(500, &status(500, "InternalError")).await;
    let page = json!({ "metadata": { "resourceVersion": "8", "continue": "next" }, "items": [object("a", 1)] });
    asked(&mut events, &mut server).await.json(200, &page).await;
    assert_eq!(word(&mut events).await, "initial a");
    asked(&mut events, &mut server).await.json(410, &status(410, "Expired")).await;
    assert_eq!(word(&mut events).await, "begin");
}

#[tokio::test(start_paused = true)]
async fn reports_a_missing_permission_and_retries() {
    let (_cluster, mut events, mut server) = watch();
    assert_eq!(word(&mut events).await, "begin");
    for code in [403, 404] {
        // The server rejects the streaming list and the paginated list.
        for _ in 0..2 {
            asked(&mut events, &mut server).await.json(code, &status(code, "No")).await;
        }
        assert_eq!(word(&mut events).await, format!("failed {code}"));
        let before = Instant::now();
        for _ in 0..2 {
            asked(&mut events, &mut server).await.json(code, &status(code, "No")).await;
        }
        assert!(before.elapsed() >= Duration::from_millis(2500), "{code}: {:?}", before.elapsed());
        assert_eq!(word(&mut events).await, format!("failed {code}"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_was_deleted_and_created_again_is_listed_again() {
    let (_cluster, mut events, mut server) = watch();
    drop(opened(&mut events, &mut server).await);
    asked(&mut events, &mut server).await.text(404, "404 page not found").await;
    assert_eq!(word(&mut events).await, "failed 404");
    assert_eq!(word(&mut events).await, "begin");
}

#[tokio::test(start_paused = true)]
async fn a_streaming_list_that_breaks_starts_again() {
    let (_cluster, mut events, mut server) = watch();
    assert_eq!(word(&mut events).await, "begin");
    let pipe = asked(&mut events, &mut server).await.stream();
    pipe.event("ADDED", &object("a", 3));
    assert_eq!(word(&mut events).await, "initial a");
    pipe.cut();
    assert_eq!(word(&mut events).await, "begin");
}

#[tokio::test(start_paused = true)]
async fn gives_up_a_dead_connection_and_resumes() {
    let (_cluster, mut events, mut server) = watch();
    let pipe = opened(&mut events, &mut server).await;
    let before = Instant::now();
    let probe = asked(&mut events, &mut server).await;
    assert!(before.elapsed() < Duration::from_secs(300), "{:?}", before.elapsed());
    probe.json(200, &json!({ "metadata": { "resourceVersion": "5" }, "items": [] })).await;
    let resumed = asked(&mut events, &mut server).await;
    assert_eq!(resumed.parameter("resourceVersion").as_deref(), Some("5"));
    drop(pipe);
}

#[tokio::test(start_paused = true)]
async fn honours_retry_after() {
    let (_cluster, mut events, mut server) = watch();
    assert_eq!(word(&mut events).await, "begin");
    let busy = json!({ "code": 429, "reason": "TooManyRequests", "details": { "retryAfterSeconds": 90 } });
    asked(&mut events, &mut server).await.json(429, &busy).await;
    assert_eq!(word(&mut events).await, "failed 429");
    let before = Instant::now();
    is_listed_and_watched(&mut events, &mut server).await;
    assert!(before.elapsed() >= Duration::from_secs(90));
}

#[tokio::test(start_paused = true)]
async fn waits_before_it_retries_a_watch_that_ends_at_once() {
    let (cluster, mut events, mut server) = watch();
    drop(opened(&mut events, &mut server).await);
    let before = Instant::now();
    for _ in 0..10 {
        drop(asked(&mut events, &mut server).await.stream());
    }
    assert!(before.elapsed() >= Duration::from_secs(30), "{:?}", before.elapsed());
    drop(cluster);
}

#[tokio::test(start_paused = true)]
async fn reports_a_failure_when_no_reconnection_succeeds() {
    let (_cluster, mut events, mut server) = watch();
    opened(&mut events, &mut server).await.cut();
    for _ in 0..3 {
        let probe = asked(&mut events, &mut server).await;
        probe.json(200, &json!({ "metadata": { "resourceVersion": "5" }, "items": [] })).await;
        asked(&mut events, &mut server).await.stream().cut();
    }
    assert_eq!(word(&mut events).await, "failed 0");
}

#[tokio::test(start_paused = true)]
async fn an_idle_watch_that_is_cut_now_and_then_is_resumed_at_once() {
    let (_cluster, mut events, mut server) = watch();
    let mut pipe = opened(&mut events, &mut server).await;
    for _ in 0..10 {
        let later = tokio::time::sleep(Duration::from_secs(60));
        tokio::select! {
            said = word(&mut events) => panic!("said {said}"),
            () = later => pipe.cut(),
        }
        let cut = Instant::now();
        let probe = asked(&mut events, &mut server).await;
        probe.json(200, &json!({ "metadata": { "resourceVersion": "5" }, "items": [] })).await;
        pipe = asked(&mut events, &mut server).await.stream();
        assert!(cut.elapsed() < Duration::from_secs(1), "{:?}", cut.elapsed());
    }
}
