//! Registries that refuse, lie, forget, redirect, and are slow. Each gives a clear reason without secrets.

use std::time::Duration;

use http::Method;
use mainstay_function::registry::Deadlines;

use mainstay_testkit::image::{Build, outcome};
use mainstay_testkit::registry::{DockerRegistry, Fault, Front, Served};

/// A registry behind a server with faults, and a build for it.
struct Place {
    registry: DockerRegistry,
    front: Front,
    build: Build,
}

impl Place {
    async fn new() -> Self {
        let registry = DockerRegistry::start(Served::Plainly).await;
        let front = Front::of(&registry).await;
        let build = Build::new().registry(&front.host());
        Self { registry, front, build }
    }

    fn name(&self) -> String {
        format!("{}/ns-fn:t", self.front.host())
    }

    async fn push(&self) -> String {
        outcome(&self.build.request(&self.name())).await
    }

    /// Pushes with a permanent fault. Checks the beginning of the result and a text in it.
    async fn check(&self, method: Method, part: &'static str, fault: Fault, beginning: &str, inside: &str) {
        let place = Self::new().await;
        place.front.fail(method, part, fault.clone(), 1000);
        let ended = place.push().await;
        assert!(ended.starts_with(beginning) && ended.contains(inside), "{fault:?}: {ended}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_are_reported_by_kind() {
    let place = Place::new().await;
    let denied = "RegistryAuthorization: ";
    place.check(Method::POST, "/uploads/", Fault::Status(401), denied, "answered 401 to these credentials").await;
    place.check(Method::POST, "/uploads/", Fault::Status(403), denied, "answered 403 to these credentials").await;
    place.check(Method::PATCH, "/uploads/", Fault::Status(413), "Registry: ", "takes no uploads of this size").await;
    place.check(Method::PATCH, "/uploads/", Fault::Status(507), "Registry, again: ", "its volume is full").await;
    place.check(Method::PUT, "/manifests/", Fault::Status(500), "Registry, again: ", "it answered 500").await;
    let unknown = Fault::Code(404, "NAME_UNKNOWN");
    place
        .check(Method::POST, "/uploads/", unknown, "Registry: ", "404 NAME_UNKNOWN (there is no such repository")
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn temporary_failures_are_retried() {
    let place = Place::new().await;
    place.front.fail(Method::PATCH, "/uploads/", Fault::Status(503), 1);
    place.front.fail(Method::PUT, "/manifests/", Fault::Status(500), 2);
    assert!(place.push().await.starts_with("sha256:"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_of_the_registry_is_waited_for_at_every_step() {
    let place = Place::new().await;
    let digest = place.push().await;
    let base = Front::of(&place.registry).await;
    let mut request = place.build.request(&format!("{}/ns-other:t", place.front.host()));
    request.base = format!("{}/ns-fn@{digest}", base.host()).parse().unwrap();
    base.fail(Method::GET, "/manifests/", Fault::Status(502), 1);
    base.fail(Method::GET, "/blobs/", Fault::Status(504), 1);
    place.front.fail(Method::HEAD, "/blobs/", Fault::Status(503), 1);
    // More retries than after other failures.
    place.front.fail(Method::PATCH, "/uploads/", Fault::Status(503), 4);
    place.front.fail(Method::PUT, "/manifests/", Fault::Status(429), 4);
    let ended = outcome(&request).await;
    assert!(ended.starts_with("sha256:"), "{ended}");
    // The wait is limited.
    request.deadlines.patience = Duration::from_secs(1);
    place.build.write("workspace/src/handler.js", "another");
    place.front.fail(Method::PATCH, "/uploads/", Fault::Status(503), 1000);
    let ended = outcome(&request).await;
    assert!(ended.starts_with("Registry, again: ") && ended.contains("it answered 503"), "{ended}");
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_digests_are_detected() {
    let place = Place::new().await;
    let again = "Registry, again: ";
    place
        .check(
            Method::PUT,
            "/uploads/",
            Fault::OtherDigest,
            again,
            "the layer that it keeps does not have the \
                                                                     requested digest",
        )
        .await;
    place
        .check(
            Method::PUT,
            "/manifests/",
            Fault::OtherDigest,
            again,
            "the image that it keeps does not have the \
                                                                       requested digest",
        )
        .await;
    place.check(Method::GET, "/manifests/sha256", Fault::Status(404), "Registry: ", "it answered 404").await;
    let other = "the image that it keeps does not have the requested digest";
    place.check(Method::GET, "/manifests/sha256", Fault::OtherBytes, again, other).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_base_image_with_a_wrong_digest_is_refused() {
    let place = Place::new().await;
    let digest = place.push().await;
    for (part, inside) in [
        ("/manifests/", "the manifest does not have the requested digest"),
        (
            "/blobs/",
            "a layer does not have the \
                                                                                          requested digest",
        ),
    ] {
        let base = Front::of(&place.registry).await;
        base.fail(Method::GET, part, Fault::OtherBytes, 1000);
        let mut request = place.build.request(&format!("{}/ns-other:t", place.front.host()));
        request.base = format!("{}/ns-fn@{digest}", base.host()).parse().unwrap();
        let ended = outcome(&request).await;
        assert!(ended.starts_with("BaseImage") && ended.contains(inside), "{ended}");
        assert!(base.take_seen().iter().all(|seen| seen.authorization.is_none()), "it is another host");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_blobs_are_pushed_again() {
    let place = Place::new().await;
    assert!(place.push().await.starts_with("sha256:"));
    place.build.write("workspace/src/handler.js", "another");
    place.front.take_seen();
    // The registry claims to have a layer, then reports it missing.
    place.front.fail(Method::PUT, "/manifests/", Fault::Code(404, "MANIFEST_BLOB_UNKNOWN"), 1);
    assert!(place.push().await.starts_with("sha256:"));
    let sent = place.front.take_seen().iter().filter(|seen| seen.line.starts_with("PATCH")).count();
    assert_eq!(sent, 2 + 4, "what changed, and then everything");
    place.build.write("workspace/src/handler.js", "a third");
    place.front.fail(Method::PUT, "/manifests/", Fault::Code(404, "MANIFEST_BLOB_UNKNOWN"), 1000);
    let ended = place.push().await;
    assert!(ended.starts_with("Registry, again: ") && ended.contains("MANIFEST_BLOB_UNKNOWN"), "{ended}");
}

#[tokio::test(flavor = "multi_thread")]
async fn links_to_blobs_that_are_empty_are_waited_for_and_then_written_again() {
    let place = Place::new().await;
    assert!(place.push().await.starts_with("sha256:"));
    place.build.write("workspace/src/handler.js", "another");
    place.front.take_seen();
    let patches = |place: &Place| place.front.take_seen().iter().filter(|seen| seen.line.starts_with("PATCH")).count();
    // Another build writes the links at this moment.
    place.front.fail(Method::PUT, "/manifests/", Fault::Code(400, "DIGEST_INVALID"), 2);
    assert!(place.push().await.starts_with("sha256:"));
    assert_eq!(patches(&place), 2, "what changed");
    // A kill has left empty links.
    place.build.write("workspace/src/handler.js", "a third");
    place.front.fail(Method::PUT, "/manifests/", Fault::Code(400, "DIGEST_INVALID"), 3);
    assert!(place.push().await.starts_with("sha256:"));
    assert_eq!(patches(&place), 2 + 4, "what changed, and then everything");
    place.build.write("workspace/src/handler.js", "a fourth");
    place.front.fail(Method::PUT, "/manifests/", Fault::Code(400, "DIGEST_INVALID"), 1000);
    let ended = place.push().await;
    assert!(
        ended.starts_with("Registry, again: ") && ended.contains("cannot read its records of the image's layers"),
        "{ended}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_stay_with_their_host() {
    let place = Place::new().await;
    place.front.want_tokens();
    let first = place.push().await;
    let elsewhere = Front::of(&place.registry).await;
    // Reads may be redirected, without credentials.
    let mut request = place.build.request(&format!("{}/ns-other:t", place.front.host()));
    request.base = format!("{}/ns-fn@{first}", place.front.host()).parse().unwrap();
    place.front.fail(Method::GET, "/blobs/", Fault::Redirect(format!("http://{}", elsewhere.host())), 1000);
    assert!(outcome(&request).await.starts_with("sha256:"));
    let seen = elsewhere.take_seen();
    assert!(!seen.is_empty() && seen.iter().all(|seen| seen.authorization.is_none()), "{seen:?}");
    // Writes may not be redirected.
    place.build.write("workspace/src/handler.js", "another");
    place.front.fail(Method::POST, "/uploads/", Fault::Redirect(format!("http://{}", elsewhere.host())), 1000);
    let ended = place.push().await;
    assert!(ended.starts_with("Registry: ") && ended.contains("only reads may be redirected"), "{ended}");
    assert_eq!(elsewhere.take_seen().len(), 0);
    // A registry cannot make a build send the password to a token server over plain HTTP.
    let place = Place::new().await;
    place.front.fail(Method::HEAD, "/blobs/", Fault::TokenFrom("http://tokens.example.com/".into()), 1000);
    let ended = place.push().await;
    assert!(ended.starts_with("Registry: ") && ended.contains("over https only"), "{ended}");
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_registries_end_a_build_in_time() {
    let place = Place::new().await;
    let deadlines = Deadlines { silence: Duration::from_millis(300), slowest: 1 << 20, ..Deadlines::default() };
    let mut request = place.build.request(&place.name());
    request.deadlines = deadlines;
    place.front.fail(Method::PATCH, "/uploads/", Fault::Stall, 1000);
    let ended = tokio::time::timeout(mainstay_testkit::PATIENCE, outcome(&request)).await.expect("it ends");
    assert!(ended.starts_with("Registry, again: ") && ended.contains("timed out after"), "{ended}");

    let place = Place::new().await;
    let digest = place.push().await;
    let base = Front::of(&place.registry).await;
    base.fail(Method::GET, "/manifests/", Fault::Drip(Duration::from_millis(50)), 1000);
    let mut request = place.build.request(&format!("{}/ns-other:t", place.front.host()));
    request.base = format!("{}/ns-fn@{digest}", base.host()).parse().unwrap();
    request.deadlines = deadlines;
    let ended = tokio::time::timeout(mainstay_testkit::PATIENCE, outcome(&request)).await.expect("it ends");
    assert!(ended.starts_with("BaseImage, again: ") && ended.contains("timed out after"), "{ended}");
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_certificates_are_not_trusted() {
    let registry = DockerRegistry::start(Served::Safely).await;
    let build = Build::new().registry(&format!("https://{}", registry.host()));
    let name = format!("{}/ns-fn:t", registry.host());
    let ended = outcome(&build.request(&name)).await;
    assert!(ended.starts_with("Registry, again: ") && ended.to_lowercase().contains("certificate"), "{ended}");
    build.write("registry/ca.crt", "no certificate");
    let ended = outcome(&build.request(&name)).await;
    assert!(ended.starts_with("Registry: ") && ended.contains("ca.crt"), "{ended}");
    build.write("registry/ca.crt", registry.authority());
    build.write("registry/password", "wrong");
    let ended = outcome(&build.request(&name)).await;
    assert!(ended.starts_with("RegistryAuthorization: ") && ended.contains("401 to these credentials"), "{ended}");
    build.write("registry/registryAddress", "other.example.com");
    let ended = outcome(&build.request(&name)).await;
    assert!(ended.starts_with("RegistryAuthorization: ") && ended.contains("without credentials"), "{ended}");
}

#[tokio::test(flavor = "multi_thread")]
async fn token_servers_can_answer_anything() {
    let answers = [
        ("{}".to_owned(), "there is no token"),
        ("<html>".to_owned(), "there is no token"),
        ("{\"token\":\"a\\r\\nX-Other: b\"}".to_owned(), "its token is not valid in a header"),
        (
            format!("{{\"token\":\"{}\"}}", "t".repeat(70 << 10)),
            "the response of the token server is longer than 65536 bytes",
        ),
    ];
    for (answer, inside) in answers {
        let place = Place::new().await;
        place.front.want_tokens();
        place.front.fail(Method::GET, "/token", Fault::Answer(answer), 1000);
        let ended = place.push().await;
        assert!(ended.starts_with("Registry: ") && ended.contains(inside), "{ended}");
    }
    // A token that is always refused is requested once per request.
    let place = Place::new().await;
    place.front.want_tokens();
    place.front.fail(Method::GET, "/token", Fault::Answer("{\"token\":\"other\"}".into()), 1000);
    let ended = place.push().await;
    assert!(ended.starts_with("RegistryAuthorization: ") && ended.contains("answered 401"), "{ended}");
}
