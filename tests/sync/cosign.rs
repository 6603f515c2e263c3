//! Signatures that the real cosign 2 and cosign 3 made, in `tests/cosign`, and keyless ones that it accepts, in
//! `tests/cosign/keyless`: `make` there makes them again.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use mainstay_testkit::world::{NAMESPACE, World, condition_of};
use serde_json::{Value, json};

use crate::artifacts::{applied, digest, refused, status};
use crate::signatures::Key;

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cosign")
}

/// A registry with the artifact of a directory.
#[derive(Clone)]
pub(super) struct Registry {
    pub(super) directory: Arc<PathBuf>,
    /// The type of each referrer, if it serves the index of referrers at its own address, and not only under a tag.
    pub(super) referrers: Option<&'static str>,
}

async fn answer(State(registry): State<Registry>, request: Request) -> Response {
    let path = request.uri().path().trim_start_matches("/v2/shop/web/").to_owned();
    let (kind, name) = path.split_once('/').unwrap();
    let mut file = registry.directory.join(kind).join(name.replace(':', "-"));
    if kind == "blobs" {
        file = registry.directory.join(kind).join(name.trim_start_matches("sha256:"));
    }
    if kind == "referrers" {
        let Some(artifact_type) = registry.referrers else { return StatusCode::NOT_FOUND.into_response() };
        let index = std::fs::read(registry.directory.join("manifests").join(name.replace(':', "-"))).unwrap();
        let mut index: Value = serde_json::from_slice(&index).unwrap();
        for referrer in index["manifests"].as_array_mut().unwrap() {
            referrer["artifactType"] = artifact_type.into();
        }
        if request.uri().query().is_some_and(|query| query.contains("page=2")) {
            return index.to_string().into_response();
        }
        // The signatures are on the second page, and no member of the first page can be read.
        let odd = json!({"digest": format!("sha512:{}", "0".repeat(128)), "artifactType": artifact_type});
        let first = json!({"manifests": [odd, null, {"artifactType": 1}]}).to_string();
        let link = format!("</v2/shop/web/{kind}/{name}?page=2>; rel=\"next\"");
        return ([(header::LINK, link)], first).into_response();
    }
    // With referrers of its own, the registry has no tag for them. A manifest is found by tag or digest.
    let is_fallback =
        kind == "manifests" && registry.referrers.is_some() && name.starts_with("sha256-") && !name.contains('.');
    let named = std::fs::read_dir(registry.directory.join("manifests")).unwrap().map(|file| file.unwrap().path());
    let by_digest = named.into_iter().find(|file| digest(&std::fs::read(file).unwrap()) == name);
    if let Some(found) = by_digest.filter(|_| kind == "manifests") {
        file = found;
    }
    match std::fs::read(file) {
        Ok(_) if is_fallback => StatusCode::NOT_FOUND.into_response(),
        Err(_) => StatusCode::NOT_FOUND.into_response(),
        Ok(bytes) if kind == "blobs" => bytes.into_response(),
        Ok(bytes) => {
            let document: Value = serde_json::from_slice(&bytes).unwrap();
            let media_type = document["mediaType"].as_str().unwrap().to_owned();
            ([(header::CONTENT_TYPE.as_str(), media_type), ("docker-content-digest", digest(&bytes))], bytes)
                .into_response()
        }
    }
}

/// Serves the artifact of a directory, and returns its URL.
pub(super) async fn serve(registry: Registry) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("oci://{}/shop/web", listener.local_addr().unwrap());
    let router = axum::Router::new().fallback(answer).with_state(registry);
    tokio::spawn(async move { axum::serve(listener, router).await });
    url
}

/// Waits until the signature of a tag is verified, and the message contains a part.
pub(super) async fn verified(world: &World, tag: &str, part: &str) {
    let condition = |world: &World| condition_of(&status(world), "SourceVerified");
    let said = |world: &World| {
        let found = condition(world);
        found.starts_with("True") && found.contains(&format!("{tag}@sha256:")) && found.contains(part)
    };
    world.until_or("the signature is verified", said, || condition(world)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signatures_of_the_real_cosign_are_verified() {
    let public = std::fs::read_to_string(directory().join("cosign.pub")).unwrap();
    let mut world = World::new().await;
    world.set_secret("signers", json!({"cosign.pub": public}));
    world.set_secret("strangers", json!({"cosign.pub": Key::new("P-256").public()}));
    world.sync("web", json!({"gitRepository": null, "sourceRef": {"kind": "OCIRepository", "name": "web"}}));
    world.start();
    let bundle = Some("application/vnd.dev.sigstore.bundle.v0.3+json");
    // The type of the bundle's configuration, which some registries show instead.
    let empty = Some("application/vnd.oci.empty.v1+json");
    for (format, referrers) in [("simple", None), ("bundle", None), ("bundle", bundle), ("bundle", empty)] {
        let url = serve(Registry { directory: Arc::new(directory().join(format)), referrers }).await;
        let spec = |secret: &str| {
            let verify = json!({"provider": "cosign", "secretRef": {"name": secret}});
            json!({"url": url, "insecure": true, "interval": "10s", "ref": {"tag": format}, "verify": verify})
        };
        let object = json!({
            "apiVersion": "mainstay.dev/v1alpha1", "kind": "OCIRepository", "metadata": {"name": "web", "namespace": NAMESPACE},
            "spec": spec("strangers"),
        });
        world.create("mainstay.dev/v1alpha1", "ocirepositories", NAMESPACE, object);
        refused(&world, "its 1 signatures are by keys that are not in the Secret strangers").await;
        world.edit("mainstay.dev/v1alpha1", "ocirepositories", "web", json!({"spec": spec("signers")}));
        applied(&world, format).await;
        verified(&world, format, "by the key cosign.pub of the Secret signers").await;
        world.delete("mainstay.dev/v1alpha1", "ocirepositories", "web");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keyless_signatures_are_verified_by_identity() {
    let file = |name: &str| std::fs::read_to_string(directory().join("keyless").join(name)).unwrap();
    let mut world = World::new().await;
    world.set_secret("root", json!({"trusted_root.json": file("trusted_root.json")}));
    world.set_secret("stranger", json!({"trusted_root.json": file("stranger.json")}));
    world.sync("web", json!({"gitRepository": null, "sourceRef": {"kind": "OCIRepository", "name": "web"}}));
    world.start();
    let bundle = Some("application/vnd.dev.sigstore.bundle.v0.3+json");
    for (format, referrers) in [("simple", None), ("bundle", None), ("bundle", bundle), ("stamped", None)] {
        let url = serve(Registry { directory: Arc::new(directory().join("keyless").join(format)), referrers }).await;
        let spec = |root: Value, subject: &str| {
            let identities = json!([
                {"issuer": "^https://other\\.example\\.org$", "subject": "shop/web"},
                {"issuer": "^https://ci\\.example\\.org$", "subject": subject},
            ]);
            let verify = json!({"provider": "cosign", "matchOIDCIdentity": identities, "trustedRootSecretRef": root});
            json!({"url": url, "insecure": true, "interval": "10s", "ref": {"tag": format}, "verify": verify})
        };
        let accepted = "^https://ci\\.example\\.org/shop/web/[^@]+@refs/heads/main$";
        let object = json!({
            "apiVersion": "mainstay.dev/v1alpha1", "kind": "OCIRepository", "metadata": {"name": "web", "namespace": NAMESPACE},
            "spec": spec(json!({"name": "stranger"}), accepted),
        });
        world.create("mainstay.dev/v1alpha1", "ocirepositories", NAMESPACE, object);
        refused(&world, "its signature cannot be verified with the trusted root").await;
        let change = |spec: Value| {
            world.edit("mainstay.dev/v1alpha1", "ocirepositories", "web", json!({"spec": spec}));
        };
        change(spec(json!({"name": "missing"}), accepted));
        refused(&world, "spec.verify.trustedRootSecretRef: the Secret missing does not exist").await;
        change(spec(json!({"name": "root"}), "^https://ci\\.example\\.org/shop$"));
        let stranger = "it is signed by https://ci.example.org/shop/web/release.yaml@refs/heads/main of the issuer \
                        https://ci.example.org, whom no entry of spec.verify.matchOIDCIdentity accepts";
        refused(&world, stranger).await;
        change(spec(json!({"name": "root"}), accepted));
        applied(&world, format).await;
        verified(&world, format, "release.yaml@refs/heads/main of the issuer https://ci.example.org").await;
        // The public instance of Sigstore has not signed it.
        change(spec(Value::Null, accepted));
        refused(&world, "its signature cannot be verified with the trusted root").await;
        world.delete("mainstay.dev/v1alpha1", "ocirepositories", "web");
    }
}
