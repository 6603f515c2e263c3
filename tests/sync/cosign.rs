//! Signatures that the real cosign 2 and cosign 3 made, in `tests/cosign`: `make` there makes them again.

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
struct Registry {
    directory: Arc<PathBuf>,
    /// The type of each referrer, if it serves the index of referrers at its own address, and not only under a tag.
    referrers: Option<&'static str>,
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
        return index.to_string().into_response();
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
        let registry = Registry { directory: Arc::new(directory().join(format)), referrers };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("oci://{}/shop/web", listener.local_addr().unwrap());
        let router = axum::Router::new().fallback(answer).with_state(registry);
        tokio::spawn(async move { axum::serve(listener, router).await });
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
        let verified = |world: &World| condition_of(&status(world), "SourceVerified");
        let said = |world: &World| {
            let verified = verified(world);
            verified.starts_with("True") && verified.contains(&format!("{format}@sha256:"))
        };
        world.until_or("the signature is verified", said, || verified(&world)).await;
        world.delete("mainstay.dev/v1alpha1", "ocirepositories", "web");
    }
}
