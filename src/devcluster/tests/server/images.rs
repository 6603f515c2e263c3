//! The image registry: the distribution API by direct requests, and by standard tools.

use crate::process::isolated;
use crate::world::World;
use bytes::Bytes;
use devcluster::{
    Cluster, Options, RegistryOptions,
    registry::{Lookup, name::Digest},
};
use http::{HeaderMap, Request};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use std::{path::Path, process::Stdio, time::Duration};

const IMAGE: &str = "application/vnd.oci.image.manifest.v1+json";

/// A registry in a temporary directory.
struct Images {
    world: World,
    directory: tempfile::TempDir,
}

struct Answer {
    code: u16,
    headers: HeaderMap,
    body: Bytes,
}

impl Answer {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// Returns the status, and the error code of the specification for refusals.
    fn short(&self) -> String {
        let body: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        let code = body["errors"][0]["code"].as_str().unwrap_or_default();
        format!("{} {code}", self.code).trim().to_owned()
    }
}

impl Images {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let registry = Some(RegistryOptions { directory: directory.path().join("images") });
        Self { world: World::with(Options { registry, ..Options::default() }), directory }
    }

    async fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (parts, body) = self.world.send(request.body(Full::new(body.into())).unwrap()).await.into_parts();
        let Ok(body) = body.collect().await;
        Answer { code: parts.status.as_u16(), headers: parts.headers, body: body.to_bytes() }
    }

    async fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[], "").await
    }

    async fn push_blob(&self, repository: &str, bytes: &'static [u8]) -> Digest {
        let digest = Digest::of(bytes);
        let path = format!("/v2/{repository}/blobs/uploads/?digest={}", digest.as_str());
        assert_eq!(self.ask("POST", &path, &[], bytes).await.code, 201);
        digest
    }

    async fn push_image(&self, repository: &str, tag: &str) -> Digest {
        let config = self.push_blob(repository, br#"{"os":"linux","config":{"User":"1000"}}"#).await;
        let layer = self.push_blob(repository, b"layer").await;
        let manifest = manifest(&config, &layer);
        let path = format!("/v2/{repository}/manifests/{tag}");
        let put = self.ask("PUT", &path, &[("content-type", IMAGE)], manifest.clone()).await;
        assert_eq!((put.code, put.header("docker-content-digest")), (201, Digest::of(manifest.as_bytes()).as_str()));
        Digest::of(manifest.as_bytes())
    }
}

fn manifest(config: &Digest, layer: &Digest) -> String {
    let layers = [json!({"mediaType": "application/vnd.oci.image.layer.v1.tar", "size": 5, "digest": layer.as_str()})];
    let config =
        json!({"mediaType": "application/vnd.oci.image.config.v1+json", "size": 39, "digest": config.as_str()});
    json!({"schemaVersion": 2, "mediaType": IMAGE, "config": config, "layers": layers}).to_string()
}

#[tokio::test]
async fn is_not_there_unless_it_is_asked_for() {
    let world = World::new();
    assert_eq!(world.get("/v2/").await.code, 404);
    let images = Images::new();
    let root = images.get("/v2/").await;
    assert_eq!((root.code, root.header("docker-distribution-api-version")), (200, "registry/2.0"));
}

#[tokio::test]
async fn takes_a_blob_in_pieces() {
    let images = Images::new();
    let begun = images.ask("POST", "/v2/a/b/blobs/uploads/", &[], "").await;
    assert_eq!(begun.code, 202);
    let upload = begun.header("location").to_owned();
    let first = images.ask("PATCH", &upload, &[("content-range", "0-4")], "hello").await;
    assert_eq!((first.code, first.header("range")), (202, "0-4"));
    let gap = images.ask("PATCH", &upload, &[("content-range", "9-10")], "xx").await;
    assert_eq!(gap.short(), "416 RANGE_INVALID");
    assert_eq!(images.get(&upload).await.header("range"), "0-4");
    assert_eq!(images.ask("PATCH", &upload, &[("content-range", "5-6")], ", ").await.code, 202);
    let digest = Digest::of(b"hello, world");
    let done = images.ask("PUT", &format!("{upload}?digest={}", digest.as_str()), &[], "world").await;
    assert_eq!((done.code, done.header("docker-content-digest")), (201, digest.as_str()));
    let place = done.header("location").to_owned();
    assert_eq!(images.get(&place).await.body, "hello, world");
    assert_eq!(images.get(&upload).await.short(), "404 BLOB_UPLOAD_UNKNOWN");
    let part = images.ask("GET", &place, &[("range", "bytes=7-8")], "").await;
    assert_eq!((part.code, &*part.body, part.header("content-range")), (206, &b"wo"[..], "bytes 7-8/12"));
    let head = images.ask("HEAD", &place, &[], "").await;
    assert_eq!((head.code, head.header("content-length"), head.body.len()), (200, "12", 0));
    assert_eq!(images.ask("GET", &place, &[("range", "bytes=12-")], "").await.short(), "416 RANGE_INVALID");
}

#[tokio::test]
async fn keeps_nothing_under_a_digest_that_it_does_not_have() {
    let images = Images::new();
    let wrong = Digest::of(b"other");
    let one_piece = format!("/v2/a/blobs/uploads/?digest={}", wrong.as_str());
    assert_eq!(images.ask("POST", &one_piece, &[], "this").await.short(), "400 DIGEST_INVALID");
    let upload = images.ask("POST", "/v2/a/blobs/uploads/", &[], "").await.header("location").to_owned();
    let put = format!("{upload}?digest={}", wrong.as_str());
    assert_eq!(images.ask("PUT", &put, &[], "this").await.short(), "400 DIGEST_INVALID");
    assert_eq!(images.ask("PUT", &put, &[], "other").await.short(), "404 BLOB_UPLOAD_UNKNOWN");
    let blob = format!("/v2/a/blobs/{}", wrong.as_str());
    assert_eq!(images.get(&blob).await.short(), "404 BLOB_UNKNOWN");
    images.push_image("a", "x").await;
    let by_digest = format!("/v2/a/manifests/{}", wrong.as_str());
    let put = images.ask("PUT", &by_digest, &[("content-type", IMAGE)], "{}").await;
    assert_eq!(put.short(), "400 DIGEST_INVALID");
    let lacking = manifest(&wrong, &wrong);
    let put = images.ask("PUT", "/v2/a/manifests/y", &[("content-type", IMAGE)], lacking).await;
    assert_eq!(put.short(), "404 MANIFEST_BLOB_UNKNOWN");
    assert_eq!(images.get("/v2/a/manifests/y").await.short(), "404 MANIFEST_UNKNOWN");
    let large = images.ask("PUT", "/v2/a/manifests/y", &[("content-type", IMAGE)], vec![b' '; (4 << 20) + 1]).await;
    assert_eq!(large.short(), "413 SIZE_INVALID");
}

#[tokio::test]
async fn mounts_moves_lists_and_deletes() {
    let images = Images::new();
    let digest = images.push_image("a/one", "x").await;
    let layer = Digest::of(b"layer");
    let mount = format!("/v2/b/blobs/uploads/?mount={}&from=a/one", layer.as_str());
    assert_eq!(images.ask("POST", &mount, &[], "").await.code, 201);
    assert_eq!(images.get(&format!("/v2/b/blobs/{}", layer.as_str())).await.body, "layer");
    let nothing = format!("/v2/b/blobs/uploads/?mount={}&from=a/one", Digest::of(b"no").as_str());
    assert_eq!(images.ask("POST", &nothing, &[], "").await.code, 202, "what cannot be mounted is uploaded");

    for tag in ["z", "y"] {
        images.push_image("a/one", tag).await;
    }
    let all = images.get("/v2/a/one/tags/list").await;
    assert_eq!(all.body, r#"{"name":"a/one","tags":["x","y","z"]}"#);
    let page = images.get("/v2/a/one/tags/list?n=2").await;
    assert_eq!(page.header("link"), "</v2/a/one/tags/list?n=2&last=y>; rel=\"next\"");
    let rest = images.get("/v2/a/one/tags/list?n=2&last=y").await;
    assert_eq!((&*rest.body, rest.header("link")), (&br#"{"name":"a/one","tags":["z"]}"#[..], ""));
    assert_eq!(images.get("/v2/_catalog").await.body, r#"{"repositories":["a/one","b"]}"#);
    assert_eq!(images.get("/v2/none/tags/list").await.short(), "404 NAME_UNKNOWN");

    assert_eq!(images.ask("DELETE", "/v2/a/one/manifests/x", &[], "").await.code, 202);
    assert_eq!(images.get("/v2/a/one/manifests/x").await.short(), "404 MANIFEST_UNKNOWN");
    let by_digest = format!("/v2/a/one/manifests/{}", digest.as_str());
    assert_eq!(images.get(&by_digest).await.header("content-type"), IMAGE);
    assert_eq!(images.ask("DELETE", &by_digest, &[], "").await.code, 202);
    assert_eq!(images.get("/v2/a/one/manifests/y").await.short(), "404 MANIFEST_UNKNOWN");
    let blob = format!("/v2/a/one/blobs/{}", layer.as_str());
    assert_eq!(images.ask("DELETE", &blob, &[], "").await.code, 202);
    assert_eq!(images.ask("DELETE", &blob, &[], "").await.short(), "404 BLOB_UNKNOWN");
}

#[tokio::test]
async fn leaves_its_directory_for_no_name() {
    let images = Images::new();
    for path in ["/v2/../x/manifests/a", "/v2/..%2fx/tags/list", "/v2/A/tags/list", "/v2/a/blobs/uploads/../../x"] {
        let answer = images.get(path).await;
        assert!(answer.code == 400 || answer.code == 404, "{path}: {}", answer.code);
    }
    let mut entries = std::fs::read_dir(images.directory.path()).unwrap();
    assert!(entries.next().is_none(), "questions make no files");
}

#[tokio::test]
async fn fails_when_a_fault_is_injected() {
    let images = Images::new();
    let fault = json!({"verb": "post", "resource": "registry/uploads", "name": "a", "code": 503, "message": "later"});
    let set = images.ask("POST", "/devcluster/fail-next", &[], fault.to_string()).await;
    assert_eq!(set.code, 200);
    assert_eq!(images.ask("POST", "/v2/b/blobs/uploads/", &[], "").await.code, 202);
    assert_eq!(images.ask("POST", "/v2/a/blobs/uploads/", &[], "").await.code, 503);
    assert_eq!(images.ask("POST", "/v2/a/blobs/uploads/", &[], "").await.code, 202);
}

async fn run(program: &str, arguments: &[&str]) -> String {
    let mut command = tokio::process::Command::from(isolated(program));
    let output = command.args(arguments).stdin(Stdio::null()).kill_on_drop(true).output();
    let output = tokio::time::timeout(Duration::from_secs(60), output).await.expect("it ends in time");
    let output = output.unwrap_or_else(|e| panic!("{program}: {e} (apt-get install skopeo umoci)"));
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {complaint}");
    String::from_utf8(output.stdout).unwrap()
}

/// Creates an image with one file by another tool.
async fn foreign_layout(directory: &Path) -> String {
    let layout = directory.join("foreign").to_str().unwrap().to_owned();
    let file = directory.join("greeting");
    std::fs::write(&file, "hello").unwrap();
    run("umoci", &["init", "--layout", &layout]).await;
    let image = format!("{layout}:one");
    run("umoci", &["new", "--image", &image]).await;
    run("umoci", &["config", "--image", &image, "--config.entrypoint", "/greet"]).await;
    run("umoci", &["insert", "--rootless", "--image", &image, file.to_str().unwrap(), "/greeting"]).await;
    format!("oci:{image}")
}

#[tokio::test(flavor = "multi_thread")]
async fn serves_skopeo_and_the_node() {
    let directory = tempfile::tempdir().unwrap();
    let kept = directory.path().join("images");
    let registry = Some(RegistryOptions { directory: kept.clone() });
    let server = Cluster::new(Options { registry, ..Options::default() });
    let serving = server.serve("127.0.0.1:0".parse().unwrap(), Some("sesame".to_owned())).await.unwrap();
    let source = foreign_layout(directory.path()).await;
    let name = format!("{}/team/fn:one", serving.address());
    let remote = format!("docker://{name}");
    let credentials = "--dest-creds=anyone:sesame";
    let plain = "--dest-tls-verify=false";
    run("skopeo", &["--insecure-policy", "copy", "-q", plain, credentials, &source, &remote]).await;
    let inspected = run("skopeo", &["inspect", "--tls-verify=false", "--creds=anyone:sesame", &remote]).await;
    let inspected: Value = serde_json::from_str(&inspected).unwrap();
    assert_eq!((&inspected["RepoTags"], inspected["Layers"].as_array().unwrap().len()), (&json!(["one"]), 1));
    let back = format!("oci:{}:back", directory.path().join("back").display());
    let from = ["--src-tls-verify=false", "--src-creds=anyone:sesame"];
    run("skopeo", &["--insecure-policy", "copy", "-q", from[0], from[1], &remote, &back]).await;
    // The directory is a valid layout by itself.
    run("skopeo", &["inspect", &format!("oci:{}:one", kept.join("team+fn").display())]).await;

    let images = server.images().unwrap();
    let Lookup::Found(image) = images.image(&name).await else { panic!("the node does not find {name}") };
    assert_eq!(image.digest, inspected["Digest"].as_str().unwrap());
    assert_eq!(image.config["config"]["Entrypoint"], json!(["/greet"]));
    assert!(image.layers[0].media_type.ends_with("+gzip") && image.layers[0].path.is_file());
    let pinned = format!("localhost:{}/team/fn:other@{}", serving.address().port(), image.digest);
    assert!(matches!(images.image(&pinned).await, Lookup::Found(_)), "the digest wins");
    assert!(matches!(images.image(&name.replace(":one", ":two")).await, Lookup::Missing(_)));
    assert_eq!(images.image("docker.io/library/nginx:1").await, Lookup::Elsewhere);
    std::fs::remove_file(&image.layers[0].path).unwrap();
    let Lookup::Missing(why) = images.image(&name).await else { panic!("an incomplete image is none") };
    assert!(why.contains(&image.layers[0].digest), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn is_closed_without_the_token() {
    let directory = tempfile::tempdir().unwrap();
    let registry = Some(RegistryOptions { directory: directory.path().join("images") });
    let server = Cluster::new(Options { registry, ..Options::default() });
    let serving = server.serve("127.0.0.1:0".parse().unwrap(), Some("sesame".to_owned())).await.unwrap();
    let base = format!("{}/v2/", serving.url());
    // Fails only if a provider is already installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let answer = client.get(&base).send().await.unwrap();
    assert_eq!(
        (answer.status().as_u16(), &answer.headers()["www-authenticate"] == "Basic realm=\"devcluster\""),
        (401, true)
    );
    assert_eq!(client.get(&base).basic_auth("u", Some("wrong")).send().await.unwrap().status(), 401);
    assert_eq!(client.get(&base).basic_auth("u", Some("sesame")).send().await.unwrap().status(), 200);
    let version = format!("{}/version", serving.url());
    let elsewhere = client.get(version).basic_auth("u", Some("sesame")).send().await.unwrap();
    assert_eq!(elsewhere.status(), 401, "the API itself knows bearer tokens only");
}
