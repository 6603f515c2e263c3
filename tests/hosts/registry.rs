//! An image registry with the API of referrers: artifacts of ORAS, charts of Helm, and signatures of cosign and notation.

use std::path::{Path, PathBuf};

use mainstay_testkit::isolated;
use mainstay_testkit::world::{config_map, free_address};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Child;

use super::sources::{applied, change, oras, push_artifact, push_chart, says, world};
use super::{built, serve};

/// The option of ORAS and Helm for a registry without TLS.
const PLAIN: &[&str] = &["--plain-http"];

/// The registry of go-containerregistry, without a login.
struct Registry {
    host: String,
    _directory: TempDir,
    _server: Child,
}

impl Registry {
    async fn start() -> Self {
        let (directory, address) = (tempfile::tempdir().unwrap(), free_address());
        let mut command = isolated(built("registry"));
        command.arg(address.to_string());
        let server = serve(command, &directory.path().join("log"), address).await;
        Self { host: address.to_string(), _directory: directory, _server: server }
    }

    /// Pushes a directory of `tests/cosign` or `tests/notation` with ORAS, except the index that stands for referrers. Then ORAS copies each tag
    /// with everything that refers to it, so that ORAS has found the signatures, too.
    fn push_signed(&self, tool: &str, format: &str) {
        let files = directory(tool).join(format);
        let staged = format!("{}/staged/{format}", self.host);
        for file in names(&files.join("blobs")) {
            let blob = format!("{staged}@sha256:{file}");
            oras(&files.join("blobs"), &["blob", "push", "--plain-http", &blob, &file]);
        }
        let mut tags = Vec::new();
        let mut manifests = names(&files.join("manifests"));
        // The subject comes before the signature.
        manifests.sort_by_key(|name| name != format);
        for file in manifests {
            let text = std::fs::read_to_string(files.join("manifests").join(&file)).unwrap();
            let document: Value = serde_json::from_str(&text).unwrap();
            if document["manifests"].is_array() {
                continue;
            }
            // A signature of cosign 3 or notation has no tag.
            let tagged = format!("{staged}:{file}");
            let to = if document["subject"].is_null() { &tagged } else { &staged };
            oras(&files.join("manifests"), &["manifest", "push", "--plain-http", to, &file]);
            tags.extend(document["subject"].is_null().then_some(file));
        }
        for tag in tags {
            let (from, to) = (format!("{staged}:{tag}"), format!("{}/shop/web:{tag}", self.host));
            oras(&files, &["cp", "-r", "--from-plain-http", "--to-plain-http", &from, &to]);
        }
    }
}

fn directory(tool: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(tool)
}

/// Returns the names of the files of a directory.
fn names(directory: &Path) -> Vec<String> {
    let files = std::fs::read_dir(directory).unwrap();
    files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn artifacts_of_oras_are_applied_and_their_tag_is_followed() {
    let registry = Registry::start().await;
    let image = format!("{}/shop/web", registry.host);
    push_artifact(&format!("{image}:latest"), "one", PLAIN);
    let spec = json!({"url": format!("oci://{image}"), "insecure": true, "interval": "10s"});
    let world = world("OCIRepository", spec).await;
    applied(&world, "one").await;
    push_artifact(&format!("{image}:latest"), "two", PLAIN);
    applied(&world, "two").await;
    // A directory, with the media types of ORAS.
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("web")).unwrap();
    std::fs::write(directory.path().join("web/web.yaml"), config_map("web", "directory")).unwrap();
    oras(directory.path(), &["push", "--plain-http", &format!("{image}:1.2.0"), "web"]);
    push_artifact(&format!("{image}:2.0.0"), "too new", PLAIN);
    change(&world, "OCIRepository", json!({"ref": {"semver": "1.x"}}));
    applied(&world, "directory").await;
    world.condition_is("web", "Ready", "True").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn charts_of_helm_are_rendered_and_a_newer_version_follows() {
    let registry = Registry::start().await;
    let url = format!("oci://{}/charts", registry.host);
    push_chart(&url, "1.0.0", "one", PLAIN);
    push_chart(&url, "2.0.0", "too new", PLAIN);
    let spec = json!({"repository": url, "name": "shop", "version": "1.x", "insecure": true, "interval": "10s"});
    let world = world("HelmChart", spec).await;
    applied(&world, "one").await;
    push_chart(&url, "1.1.0+build.5", "two", PLAIN);
    applied(&world, "two").await;
    world.condition_is("web", "Ready", "True").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signatures_of_both_formats_of_cosign_are_found_and_an_unsigned_artifact_is_refused() {
    const WEB: (&str, &str) = ("OCIRepository", "web");
    let registry = Registry::start().await;
    let image = format!("{}/shop/web", registry.host);
    push_artifact(&format!("{image}:unsigned"), "unsigned", PLAIN);
    registry.push_signed("cosign", "bundle");
    registry.push_signed("cosign", "simple");
    let verify = json!({"provider": "cosign", "secretRef": {"name": "signers"}});
    let spec = json!({
        "url": format!("oci://{image}"), "insecure": true, "interval": "10s", "ref": {"tag": "bundle"}, "verify": verify,
    });
    let world = world("OCIRepository", spec).await;
    let public = std::fs::read_to_string(directory("cosign").join("cosign.pub")).unwrap();
    world.set_secret("signers", json!({"cosign.pub": public}));
    for format in ["bundle", "simple"] {
        change(&world, "OCIRepository", json!({"ref": {"tag": format}}));
        applied(&world, format).await;
        says(&world, WEB, "SourceVerified", "True", &format!("{format}@sha256:")).await;
    }
    change(&world, "OCIRepository", json!({"ref": {"tag": "unsigned"}}));
    says(&world, WEB, "SourceVerified", "False", "it is not signed; sign it with `cosign sign --key`").await;
    assert_eq!(world.data("web"), "simple");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signatures_of_both_formats_of_notation_are_found_by_their_referrers() {
    const WEB: (&str, &str) = ("OCIRepository", "web");
    let registry = Registry::start().await;
    let image = format!("{}/shop/web", registry.host);
    push_artifact(&format!("{image}:unsigned"), "unsigned", PLAIN);
    registry.push_signed("notation", "jws");
    registry.push_signed("notation", "cose");
    let verify = json!({"provider": "notation", "secretRef": {"name": "signers"}});
    let spec = json!({
        "url": format!("oci://{image}"), "insecure": true, "interval": "10s", "ref": {"tag": "jws"}, "verify": verify,
    });
    let world = world("OCIRepository", spec).await;
    let root = std::fs::read_to_string(directory("notation").join("root.crt")).unwrap();
    let statement = json!({
        "name": "shop", "registryScopes": [image], "signatureVerification": {"level": "strict"},
        "trustStores": ["ca:shop"], "trustedIdentities": ["x509.subject: C=US, ST=WA, O=Example"],
    });
    let policy = json!({"version": "1.0", "trustPolicies": [statement]}).to_string();
    world.set_secret("signers", json!({"root.crt": root, "trustpolicy.json": policy}));
    for format in ["jws", "cose"] {
        change(&world, "OCIRepository", json!({"ref": {"tag": format}}));
        applied(&world, format).await;
        says(&world, WEB, "SourceVerified", "True", &format!("is signed by the certificate \"CN={format},")).await;
    }
    change(&world, "OCIRepository", json!({"ref": {"tag": "unsigned"}}));
    says(&world, WEB, "SourceVerified", "False", "it is not signed with notation; sign it with `notation sign`").await;
    assert_eq!(world.data("web"), "cose");
}
