//! The parts of the OCI distribution specification that builds, nodes and tools need. Docker's registry and the
//! embedded cluster's are compared, and skopeo checks both.

use std::fmt::Write as _;

use devcluster::{Cluster as EmbeddedCluster, Options, RegistryOptions};
use http::Method;
use mainstay_function::registry::Digest;
use serde_json::{Value, json};

use mainstay_testkit::{
    image::{Build, outcome, run},
    registry::{DockerRegistry, PASSWORD, Served},
};

const IMAGE: &str = "application/vnd.oci.image.manifest.v1+json";

/// A registry under test.
struct Asked {
    url: String,
    client: reqwest::Client,
    /// The responses of the registry by claim.
    answers: Vec<(&'static str, String)>,
}

/// A response, reduced to the compared parts.
struct Answer {
    status: u16,
    headers: http::HeaderMap,
    body: bytes::Bytes,
}

impl Answer {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// Returns the status and the code of the specification.
    fn short(&self) -> String {
        let body: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        let code = body["errors"][0]["code"].as_str().unwrap_or_default();
        format!("{} {code}", self.status).trim().to_owned()
    }
}

impl Asked {
    fn new(host: &str) -> Self {
        // An error means that a provider is installed already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        Self { url: format!("http://{host}"), client, answers: Vec::new() }
    }

    async fn ask(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<reqwest::Body>,
    ) -> Answer {
        let url = if path.starts_with('/') { format!("{}{path}", self.url) } else { path.to_owned() };
        let mut request = self.client.request(method, url).basic_auth("anyone", Some(PASSWORD)).body(body);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = request.send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        // Docker's registry announces a body with 416 that it does not send.
        Answer { status, headers, body: response.bytes().await.unwrap_or_default() }
    }

    async fn get(&self, path: &str) -> Answer {
        self.ask(Method::GET, path, &[], "").await
    }

    async fn begin(&self, repository: &str) -> String {
        let begun = self.ask(Method::POST, &format!("/v2/{repository}/blobs/uploads/"), &[], "").await;
        begun.header("location").to_owned()
    }

    /// Pushes a blob like containerd.
    async fn blob(&self, repository: &str, bytes: &'static [u8]) -> (Digest, Answer) {
        let digest = Digest::of(bytes);
        let upload = with_digest(&self.begin(repository).await, &digest);
        (digest, self.ask(Method::PUT, &upload, &[("content-type", "application/octet-stream")], bytes).await)
    }

    fn claim(&mut self, claim: &'static str, answer: impl Into<String>) {
        self.answers.push((claim, answer.into()));
    }
}

fn with_digest(upload: &str, digest: &Digest) -> String {
    format!("{upload}{}digest={digest}", if upload.contains('?') { '&' } else { '?' })
}

fn manifest(config: &Digest, layer: &Digest, subject: Option<&Digest>) -> String {
    let layer = json!({"mediaType": "application/vnd.oci.image.layer.v1.tar", "size": 5, "digest": layer.as_str()});
    let config = json!({"mediaType": "application/vnd.oci.image.config.v1+json", "size": 2, "digest": config.as_str()});
    let mut manifest = json!({"schemaVersion": 2, "mediaType": IMAGE, "config": config, "layers": [layer]});
    if let Some(subject) = subject {
        manifest["subject"] = json!({"mediaType": IMAGE, "size": 1, "digest": subject.as_str()});
    }
    manifest.to_string()
}

async fn ask_about_pushed_blobs(it: &mut Asked) {
    let root = it.get("/v2/").await;
    it.claim("the version", format!("{} {}", root.status, root.header("docker-distribution-api-version")));
    let (digest, put) = it.blob("a/b", b"hello").await;
    it.claim("POST and PUT", put.short());
    it.claim("its place", it.get(put.header("location")).await.short());
    it.claim("its digest", (put.header("docker-content-digest") == digest.as_str()).to_string());
    let (_, again) = it.blob("a/b", b"hello").await;
    it.claim("the same again", again.short());
    let (_, empty) = it.blob("a/b", b"").await;
    it.claim("an empty blob", empty.short());
    let one = with_digest("/v2/a/b/blobs/uploads/", &Digest::of(b"one piece"));
    let one = it.ask(Method::POST, &one, &[], "one piece").await;
    it.claim("a single POST", one.short());

    let upload = it.begin("a/b").await;
    let first = it.ask(Method::PATCH, &upload, &[("content-range", "0-4")], "hello").await;
    it.claim("a chunk", format!("{} {}", first.short(), first.header("range")));
    let upload = first.header("location").to_owned();
    let state = it.get(&upload).await;
    it.claim("the state of an upload", format!("{} {}", state.short(), state.header("range")));
    let gap = it.ask(Method::PATCH, &upload, &[("content-range", "9-10")], "xx").await;
    it.claim("a chunk that leaves a gap", gap.short());
    let upload = it.begin("a/b").await;
    let first = it.ask(Method::PATCH, &upload, &[], "hello").await;
    let second = it.ask(Method::PATCH, first.header("location"), &[("content-range", "5-6")], ", ").await;
    it.claim("the next chunk", format!("{} {}", second.short(), second.header("range")));
    let whole = Digest::of(b"hello, world");
    let put = it.ask(Method::PUT, &with_digest(second.header("location"), &whole), &[], "world").await;
    it.claim("the last chunk with the PUT", put.short());
    it.claim("is what was sent", String::from_utf8_lossy(&it.get(put.header("location")).await.body).into_owned());

    let upload = it.begin("a/b").await;
    it.claim("a wrong digest", it.ask(Method::PUT, &with_digest(&upload, &digest), &[], "other").await.short());
    let upload = it.begin("a/b").await;
    it.claim("no digest", it.ask(Method::PUT, &upload, &[], "other").await.short());
    let upload = it.begin("a/b").await;
    it.claim("an upload that is given up", it.ask(Method::DELETE, &upload, &[], "").await.short());
    it.claim("and is gone", it.get(&upload).await.short());
    let mount = |digest: &Digest, from: &str| format!("/v2/c/blobs/uploads/?mount={digest}{from}");
    it.claim("a mount", it.ask(Method::POST, &mount(&digest, "&from=a/b"), &[], "").await.short());
    it.claim("is there", it.get(&format!("/v2/c/blobs/{digest}")).await.short());
    let none = Digest::of(b"none");
    it.claim("a mount of nothing", it.ask(Method::POST, &mount(&none, "&from=a/b"), &[], "").await.short());
    it.claim("a mount from nowhere", it.ask(Method::POST, &mount(&whole, "&from=no"), &[], "").await.short());
    it.claim("a mount without `from`", it.ask(Method::POST, &mount(&whole, ""), &[], "").await.short());
}

async fn ask_about_pulled_blobs(it: &mut Asked) {
    let whole = Digest::of(b"hello, world");
    let at = format!("/v2/a/b/blobs/{whole}");
    let head = it.ask(Method::HEAD, &at, &[], "").await;
    it.claim("HEAD of a blob", format!("{} {}", head.status, head.header("content-length")));
    let other = format!("/v2/other/blobs/{whole}");
    it.claim("a blob of another repository", it.get(&other).await.short());
    it.claim("HEAD of no blob", it.ask(Method::HEAD, &other, &[], "").await.status.to_string());
    for (claim, range) in [
        ("a range", "bytes=7-8"),
        ("a range to the end", "bytes=7-"),
        ("the last bytes", "bytes=-3"),
        ("a range beyond the end", "bytes=7-99"),
        ("a range behind the end", "bytes=12-"),
        ("no range", "bytes=x"),
    ] {
        let part = it.ask(Method::GET, &at, &[("range", range)], "").await;
        let text = if part.status < 300 { String::from_utf8_lossy(&part.body).into_owned() } else { String::new() };
        it.claim(claim, format!("{} {} {text}", part.status, part.header("content-range")).trim().to_owned());
    }
    let known = [("if-none-match", format!("\"{whole}\""))];
    let known = it.ask(Method::GET, &at, &[(known[0].0, &*known[0].1)], "").await;
    it.claim("a blob that is known", known.status.to_string());
}

async fn ask_about_manifests(it: &mut Asked) {
    let ((config, _), (layer, _)) = (it.blob("m", b"{}").await, it.blob("m", b"layer").await);
    let image = manifest(&config, &layer, None);
    let digest = Digest::of(image.as_bytes());
    let typed = [("content-type", IMAGE)];
    let accepting = [("accept", IMAGE)];
    let at = |reference: &str| format!("/v2/m/manifests/{reference}");
    let put = it.ask(Method::PUT, &at("v1"), &typed, image.clone()).await;
    it.claim("an image", put.short());
    it.claim("the image's digest", (put.header("docker-content-digest") == digest.as_str()).to_string());
    it.claim("the image's place", it.ask(Method::GET, put.header("location"), &accepting, "").await.short());
    it.claim("by digest", it.ask(Method::PUT, &at(digest.as_str()), &typed, image.clone()).await.short());
    it.claim("by another", it.ask(Method::PUT, &at(layer.as_str()), &typed, image.clone()).await.short());
    let lacking = manifest(&config, &Digest::of(b"none"), None);
    it.claim("without a layer", it.ask(Method::PUT, &at("v2"), &typed, lacking).await.short());
    it.claim("no manifest", it.ask(Method::PUT, &at("v2"), &typed, "{").await.short());
    let get = it.ask(Method::GET, &at("v1"), &accepting, "").await;
    it.claim("a tag", format!("{} {} {}", get.short(), get.header("content-type"), get.body == image.as_bytes()));
    let head = it.ask(Method::HEAD, &at("v1"), &accepting, "").await;
    let same = head.header("docker-content-digest") == digest.as_str();
    it.claim(
        "HEAD of a tag",
        format!("{} {} {same}", head.status, head.header("content-length") == image.len().to_string()),
    );
    it.claim("no such tag", it.ask(Method::GET, &at("v2"), &accepting, "").await.short());
    it.claim("HEAD of no such tag", it.ask(Method::HEAD, &at("v2"), &accepting, "").await.status.to_string());
    it.claim("no such repository", it.ask(Method::GET, "/v2/no/manifests/v1", &accepting, "").await.short());
    let about = manifest(&config, &layer, Some(&digest));
    let about = it.ask(Method::PUT, &at("about"), &typed, about).await;
    it.claim("an image with a subject", format!("{} {:?}", about.short(), about.header("oci-subject").len()));
    it.claim("referrers", it.get(&format!("/v2/m/referrers/{digest}")).await.status.to_string());
    it.claim("a name that is none", it.get("/v2/A/tags/list").await.short());
}

async fn ask_about_lists_and_deletion(it: &mut Asked) {
    let image = manifest(&Digest::of(b"{}"), &Digest::of(b"layer"), None);
    let digest = Digest::of(image.as_bytes());
    for tag in ["v3", "v2"] {
        it.ask(Method::PUT, &format!("/v2/m/manifests/{tag}"), &[("content-type", IMAGE)], image.clone()).await;
    }
    for (claim, query) in [
        ("all tags", ""),
        ("two tags", "?n=2"),
        ("the tags behind one", "?last=v1"),
        ("two behind one", "?n=2&last=about"),
        ("no tags", "?n=0"),
    ] {
        let list = it.get(&format!("/v2/m/tags/list{query}")).await;
        let mut tags: Value = serde_json::from_slice(&list.body).unwrap();
        // Docker's registry does not sort tags.
        tags["tags"].as_array_mut().unwrap().sort_by_key(Value::to_string);
        it.claim(claim, format!("{} {} {}", list.short(), tags["tags"], list.header("link")).trim().to_owned());
    }
    it.claim("tags of no repository", it.get("/v2/no/tags/list").await.short());
    let delete = async |it: &Asked, at: &str| it.ask(Method::DELETE, at, &[], "").await.short();
    let by_digest = format!("/v2/m/manifests/{digest}");
    it.claim("DELETE of a tag", delete(it, "/v2/m/manifests/v3").await);
    it.claim("DELETE of an image", delete(it, &by_digest).await);
    let accepting = [("accept", IMAGE)];
    it.claim("it is gone", it.ask(Method::GET, &by_digest, &accepting, "").await.short());
    it.claim("its tag, too", it.ask(Method::GET, "/v2/m/manifests/v1", &accepting, "").await.short());
    let left: Value = serde_json::from_slice(&it.get("/v2/m/tags/list").await.body).unwrap();
    it.claim("tags that are left", left["tags"].to_string());
    it.claim("DELETE of no image", delete(it, &by_digest).await);
    let blob = format!("/v2/a/b/blobs/{}", Digest::of(b"hello"));
    it.claim("DELETE of a blob", delete(it, &blob).await);
    it.claim("DELETE of no blob", delete(it, &blob).await);
    it.claim("elsewhere it stays", it.get(&format!("/v2/c/blobs/{}", Digest::of(b"hello"))).await.short());
    let pushed = it.ask(Method::PUT, &by_digest, &[("content-type", IMAGE)], image).await;
    it.claim("what was deleted is pushed again", pushed.short());
    it.claim("and is there", it.ask(Method::GET, &by_digest, &accepting, "").await.short());
}

async fn answers_of(host: &str) -> Vec<(&'static str, String)> {
    let mut it = Asked::new(host);
    ask_about_pushed_blobs(&mut it).await;
    ask_about_pulled_blobs(&mut it).await;
    ask_about_manifests(&mut it).await;
    ask_about_lists_and_deletion(&mut it).await;
    it.answers
}

/// Returns the embedded cluster's registry. Dropping the value ends the registry.
async fn embedded(directory: &std::path::Path) -> (EmbeddedCluster, devcluster::Serving) {
    let options = Some(RegistryOptions { directory: directory.join("images") });
    let server = EmbeddedCluster::new(Options { registry: options, ..Options::default() });
    let serving = server.serve("127.0.0.1:0".parse().unwrap(), Some(PASSWORD.to_owned())).await.unwrap();
    (server, serving)
}

#[tokio::test(flavor = "multi_thread")]
async fn both_registries_answer_as_the_specification_has_it_and_differ_where_it_leaves_them_free() {
    let docker = DockerRegistry::start(Served::Plainly).await;
    let directory = tempfile::tempdir().unwrap();
    let (_server, serving) = embedded(directory.path()).await;
    let theirs = answers_of(&docker.host()).await;
    let ours = answers_of(&serving.address().to_string()).await;
    let mut table = String::from("# claim | Docker's registry | the embedded cluster's, if it differs\n");
    for ((claim, theirs), (_, ours)) in theirs.iter().zip(&ours) {
        let other = if ours == theirs { String::new() } else { format!(" | {ours}") };
        writeln!(table, "{claim} | {theirs}{other}").unwrap();
    }
    mainstay_testkit::golden::check_golden("registry-conformance.txt", &table);
}

#[tokio::test(flavor = "multi_thread")]
async fn skopeo_copies_the_same_image_from_both_registries() {
    let docker = DockerRegistry::start(Served::Plainly).await;
    let directory = tempfile::tempdir().unwrap();
    let (_server, serving) = embedded(directory.path()).await;
    let mut copies = Vec::new();
    for host in [docker.host(), serving.address().to_string()] {
        let build = Build::new().registry(&host);
        let digest = outcome(&build.request(&format!("{host}/ns-fn:t"))).await;
        let (from, to) = (format!("docker://{host}/ns-fn@{digest}"), build.path("copy").display().to_string());
        let credentials = format!("anyone:{PASSWORD}");
        let options = ["--insecure-policy", "copy", "-q", "--src-tls-verify=false", "--src-creds", &credentials];
        run("skopeo", &[&options[..], &[&from, &format!("oci:{to}:it")]].concat()).await;
        let mut blobs: Vec<_> =
            std::fs::read_dir(format!("{to}/blobs/sha256")).unwrap().flatten().map(|e| e.file_name()).collect();
        blobs.sort();
        assert_eq!(blobs.len(), 5, "manifest, configuration and three layers");
        // Copies the image back under another name.
        let back = format!("docker://{host}/copied:t");
        let options = ["--insecure-policy", "copy", "-q", "--dest-tls-verify=false", "--dest-creds", &credentials];
        run("skopeo", &[&options[..], &[&format!("oci:{to}:it"), &back]].concat()).await;
        let inspect = ["inspect", "--tls-verify=false", "--creds", &credentials, &back];
        let inspected: Value = serde_json::from_str(&run("skopeo", &inspect).await).unwrap();
        assert_eq!((&inspected["Digest"], &inspected["RepoTags"]), (&json!(digest), &json!(["t"])));
        copies.push((digest, blobs));
    }
    assert_eq!(copies[0], copies[1]);
}
