//! The container `push`. It builds an image from base, runtime server, dependencies and source, and pushes it.
//!
//! Blobs that the registry has are not pushed. Base layers are mounted from another repository of the registry: the
//! repository of the base, or the shared repository of the in-cluster registry. Other base layers are streamed from
//! their registry. If the dependencies are unchanged, their layer in the previous image is reused.
//!
//! Invariant: no file of the workspace is executed and no link in it is followed, because third-party code wrote there.
//! Invariant: an existing tag is not trusted. The image is always built, and only identical blobs are skipped.
//! Invariant: the reported image is pushed in every run, even if the registry already has it. Retention keeps recent
//! images.

use std::io::Read as _;
use std::path::Path;
use std::time::Instant;

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use tempfile::NamedTempFile;

use super::fetch::SRC;
use super::image::base::{self, Base, blob_of_layout};
use super::image::layer::{self, Bounds, Made};
use super::image::{LayerOf, MANIFEST, Manifest, Platform, document};
use crate::registry::{
    Access, Client, Content, Deadlines, Digest, Fault, ImageRef, Mounted, Rights, SHARED_LAYERS, SecretData,
    is_of_namespace,
};
use crate::runtimes::{CODE_DIR, Runtime, SERVER_DIR, libraries};
use mainstay_api::build::BuildReport;
use mainstay_api::names;

mod bundle;
mod error;
mod workspace;

use bundle::Bundle;

pub use error::Error;

/// Number of blobs that are pushed concurrently.
const AT_ONCE: usize = 4;

/// Settings of a push.
#[derive(Clone, Debug)]
pub struct Request {
    /// The runtime.
    pub runtime: &'static Runtime,
    /// The workspace that the containers of the Job share.
    pub workspace: std::path::PathBuf,
    /// Directory with the keys of the registry Secret.
    pub registry: std::path::PathBuf,
    /// File with the CA bundle for registries of base images, if the operator configured one.
    pub base_ca: Option<std::path::PathBuf>,
    /// Name of the image, with its tag.
    pub image: ImageRef,
    /// The base image.
    pub base: Base,
    /// Whether builds of other namespaces may mount the base layers.
    pub shares_base: bool,
    /// Directory of the packages of the runtime servers.
    pub libraries: std::path::PathBuf,
    /// The platform.
    pub platform: Platform,
    /// The previous image with its digest. The dependencies of this image may be reused.
    pub previous: Option<ImageRef>,
    /// Limits of a layer.
    pub bounds: Bounds,
    /// Deadlines of the registries.
    pub deadlines: Deadlines,
}

/// A layer, and where its bytes are.
struct Part {
    layer: LayerOf,
    at: At,
}

enum At {
    /// A temporary file.
    Made(NamedTempFile),
    /// The OCI layout of the base.
    Layout(std::path::PathBuf),
    /// The registry of the base.
    Base,
    /// The Function's own repository, as part of the previous image. If the registry lost the layer, the build fails.
    Previous,
}

/// Whether a blob existed before the push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Was {
    There,
    Missing,
}

/// The registries of one build.
struct Registries {
    own: Client,
    /// The registry of the base.
    base: Option<Client>,
    /// Repositories of the Function's registry that may have the base layers.
    have_base: Vec<String>,
    /// The repository in which base layers are shared, if sharing is enabled.
    shared: Option<&'static str>,
}

/// Assembles the image, pushes it, and returns the report.
pub async fn push(request: &Request) -> Result<BuildReport, Error> {
    let started = Instant::now();
    let bundle = Bundle::read(request.base_ca.as_deref())?;
    let registries = registries(request, &bundle)?;
    let inputs = workspace::dependencies(&request.workspace);
    let reused = workspace::reused(&request.workspace);
    let (ours, base, previous) = tokio::try_join!(
        make(request, reused.is_none()),
        async {
            let client = registries.base.as_ref();
            request.base.read(client, &request.platform).await.map_err(|error| Error::base(error, bundle.way_out()))
        },
        async {
            match &reused {
                Some(digest) => previous(&registries.own, request, digest).await.map(Some),
                None => Ok(None),
            }
        },
    )?;
    // Optional packages for other platforms install no files, so there may be no layer to reuse.
    let has_dependencies = previous.is_some() || ours.dependencies.is_some();
    let ours = ours.marked(previous, &inputs);
    let below = base.layers.iter().map(|layer| Part { layer: layer.clone(), at: at(&request.base, layer) });
    let base_layers = base.layers.clone();
    let our_layers: Vec<LayerOf> = ours.iter().map(|part| part.layer.clone()).collect();
    let parts: Vec<Part> = below.chain(ours).collect();
    let config =
        document::configuration(&base.configuration, &base_layers, &our_layers, request.runtime, &request.platform);
    let layers: Vec<&LayerOf> = parts.iter().map(|part| &part.layer).collect();
    let manifest = document::manifest(&config, &layers);
    let reused = deliver(&registries, request, &parts, &config, &manifest).await?;
    let took = workspace::age(&request.workspace).unwrap_or_default().max(started.elapsed());
    Ok(BuildReport {
        digest: Digest::of(&manifest).to_string(),
        reused: reused == Was::There,
        dependencies: if has_dependencies { inputs } else { String::new() },
        base: base.resolved.map(|image| image.to_string()).unwrap_or_default(),
        seconds: (took.as_secs_f64() * 1000.0).round() / 1000.0,
    })
}

fn registries(request: &Request, bundle: &Bundle) -> Result<Registries, Error> {
    let data: SecretData = workspace::secret(&request.registry)?;
    let access = Access::own(&data, &request.image).map_err(Error::Secret)?;
    let mut have_base = Vec::new();
    let base = match &request.base {
        Base::Registry(image) => {
            let is_same = image.registry == request.image.registry;
            have_base.extend(is_same.then(|| image.repository.clone()));
            let access = if is_same { access.clone() } else { Access::foreign(&data, image, bundle.pem()) };
            let client = Client::new(image, access, Rights::Pull, request.deadlines);
            Some(client.map_err(|error| Error::Base(base::Error::Registry(error).into()))?)
        }
        Base::Scratch | Base::Layout(..) => None,
    };
    let has_shared = is_of_namespace(&data);
    have_base.extend(has_shared.then(|| SHARED_LAYERS.to_owned()));
    let shared = (has_shared && request.shares_base).then_some(SHARED_LAYERS);
    let own = Client::new(&request.image, access, Rights::PullAndPush, request.deadlines).map_err(Error::Registry)?;
    Ok(Registries { own, base, have_base, shared })
}

/// The layers that this build creates.
struct Ours {
    bytecode: Option<Made>,
    server: Made,
    dependencies: Option<Made>,
    source: Option<Made>,
}

impl Ours {
    /// Returns the layers from bottom to top, annotated with their kind. `previous` is used as the layer of
    /// dependencies that were not installed.
    fn marked(self, previous: Option<LayerOf>, installed_from: &str) -> Vec<Part> {
        let made = |made: Made, what: &str| {
            let mut layer = made.layer;
            layer.descriptor.annotations.insert(names::LAYER.to_owned(), what.to_owned());
            Part { layer, at: At::Made(made.file) }
        };
        let bytecode = self.bytecode.map(|bytecode| made(bytecode, names::BYTECODE_LAYER));
        let mut parts: Vec<Part> = bytecode.into_iter().chain([made(self.server, names::SERVER_LAYER)]).collect();
        parts.extend(previous.map(|layer| Part { layer, at: At::Previous }));
        parts.extend(self.dependencies.map(|dependencies| {
            let mut part = made(dependencies, names::DEPENDENCIES_LAYER);
            let annotations = &mut part.layer.descriptor.annotations;
            annotations.insert(names::INSTALLED_FROM.to_owned(), installed_from.to_owned());
            part
        }));
        parts.extend(self.source.map(|source| made(source, names::SOURCE_LAYER)));
        parts
    }
}

async fn make(request: &Request, with_dependencies: bool) -> Result<Ours, Error> {
    let (runtime, workspace, bounds) = (request.runtime, request.workspace.clone(), request.bounds);
    let libraries = request.libraries.clone();
    let making = tokio::task::spawn_blocking(move || {
        let (code, server) = (CODE_DIR.trim_start_matches('/'), SERVER_DIR.trim_start_matches('/'));
        let packages = libraries::find(runtime.language, &libraries).map_err(Error::Libraries)?;
        let packages = (packages.as_path(), libraries::name(runtime.language));
        let made = layer::of_server(runtime.server_files(), packages, server);
        let server = made.map_err(Error::of(error::Part::Server))?;
        let bytecode = workspace::bytecode_folder(&workspace).map(|folder| layer::of_bytecode(&folder, bounds));
        let bytecode = bytecode.transpose().map_err(Error::of(error::Part::Bytecode))?.flatten();
        let folder = workspace::dependency_folder(&workspace, runtime).filter(|_| with_dependencies);
        let at = format!("{code}/{}", runtime.dependency_dir());
        let dependencies = folder.map(|folder| layer::of_folder(&folder, &at, bounds)).transpose();
        let dependencies = dependencies.map_err(Error::of(error::Part::Dependencies))?.flatten();
        let source = layer::of_folder(&workspace.join(SRC), code, bounds);
        let source = source.map_err(Error::of(error::Part::Source))?;
        if source.is_none() {
            return Err(Error::NoSource);
        }
        Ok(Ours { bytecode, server, dependencies, source })
    });
    making.await.map_err(Error::Broke)?
}

fn at(base: &Base, layer: &LayerOf) -> At {
    match base {
        Base::Layout(path, _) => At::Layout(blob_of_layout(path, &layer.descriptor.digest)),
        Base::Scratch | Base::Registry(..) => At::Base,
    }
}

/// Returns the previous image's layer with the dependencies of this digest.
async fn previous(client: &Client, request: &Request, digest: &str) -> Result<LayerOf, Error> {
    let gone = |why: &'static str| Error::PreviousGone { why };
    let image = request.previous.as_ref().ok_or(gone("none was named"))?;
    let pinned = image.digest.as_ref().ok_or(gone("it was named without its digest"))?;
    if (image.registry.as_str(), image.repository.as_str()) != (client.registry(), client.repository()) {
        return Err(gone("it is in a different repository"));
    }
    let lost = |error: crate::registry::Error| match error.fault {
        Fault::Status { status: 404, .. } | Fault::Digest { .. } => gone("the registry does not have it any more"),
        _ => Error::Registry(error),
    };
    let manifest = client.again(|| client.manifest(pinned)).await.map_err(lost)?;
    let manifest: Manifest = serde_json::from_slice(&manifest.bytes).map_err(|_| gone("its manifest is malformed"))?;
    let config = &manifest.config;
    let config = client.again(|| client.small_blob(&config.digest, config.size, 4 << 20)).await.map_err(lost)?;
    let config: serde_json::Value =
        serde_json::from_slice(&config).map_err(|_| gone("its configuration is malformed"))?;
    let diff_ids: Vec<Digest> = serde_json::from_value(config["rootfs"]["diff_ids"].clone()).unwrap_or_default();
    if diff_ids.len() != manifest.layers.len() {
        return Err(gone("its manifest and its configuration list different layers"));
    }
    let has = |descriptor: &super::image::Descriptor| {
        let annotation = |name| descriptor.annotations.get(name).map(String::as_str);
        annotation(names::LAYER) == Some(names::DEPENDENCIES_LAYER) && annotation(names::INSTALLED_FROM) == Some(digest)
    };
    let mut all = manifest.layers.into_iter().zip(diff_ids);
    let found = all.find(|(descriptor, _)| has(descriptor));
    let (descriptor, diff_id) = found.ok_or(gone("it has other dependencies"))?;
    Ok(LayerOf { descriptor, diff_id })
}

/// Pushes missing blobs and the manifest. Returns whether the same image existed with its tag.
async fn deliver(
    registries: &Registries,
    request: &Request,
    parts: &[Part],
    config: &Bytes,
    manifest: &Bytes,
) -> Result<Was, Error> {
    let own = &registries.own;
    let tag = request.image.reference();
    let was = send_all(registries, parts, config, Trust::Registry).await?;
    let reused = was == Was::There && known(own.again(|| own.points_to(tag)).await)? == Some(Digest::of(manifest));
    match own.again(|| own.push_manifest(tag, MANIFEST, manifest)).await {
        // The registry reported that it has blobs that it lost, or blobs whose links are empty.
        Err(error) if error.fault.lacks_parts() => {
            send_all(registries, parts, config, Trust::Nothing).await?;
            own.again(|| own.push_manifest(tag, MANIFEST, manifest)).await.map_err(Error::Registry)?;
            return Ok(Was::Missing);
        }
        other => drop(other.map_err(Error::Registry)?),
    }
    Ok(if reused { Was::There } else { Was::Missing })
}

/// Whether a response of the registry that it has a blob is trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trust {
    Registry,
    Nothing,
}

async fn send_all(registries: &Registries, parts: &[Part], config: &Bytes, trust: Trust) -> Result<Was, Error> {
    let own = &registries.own;
    let sending = stream::iter(parts).map(|part| send(registries, part, trust)).buffer_unordered(AT_ONCE);
    let mut were: Vec<Was> = sending.try_collect().await?;
    let digest = Digest::of(config);
    if trust == Trust::Nothing || !has(own, &digest).await? {
        own.again(|| own.push_blob(&digest, Content::Bytes(config))).await.map_err(Error::Registry)?;
        were.push(Was::Missing);
    }
    Ok(if were.contains(&Was::Missing) { Was::Missing } else { Was::There })
}

async fn send(registries: &Registries, part: &Part, trust: Trust) -> Result<Was, Error> {
    let own = &registries.own;
    let descriptor = &part.layer.descriptor;
    let digest = &descriptor.digest;
    if trust == Trust::Registry && has(own, digest).await? {
        return Ok(Was::There);
    }
    let is_of_base = matches!(part.at, At::Layout(_) | At::Base);
    if is_of_base && trust == Trust::Registry && mount(registries, digest).await? {
        return Ok(Was::Missing);
    }
    let content = match (&part.at, &registries.base) {
        (At::Made(file), _) => Content::File(file.path(), descriptor.size),
        (At::Layout(path), _) => Content::File(path, descriptor.size),
        (At::Base, Some(client)) => Content::Remote(client, digest, descriptor.size),
        (At::Base | At::Previous, _) => {
            return Err(Error::PreviousGone { why: "the registry does not have its dependencies any more" });
        }
    };
    let sent = own.again(|| own.push_blob(digest, content)).await;
    match (sent, &part.at) {
        (Err(error), At::Layout(path)) if error.fault.is_about_content() => {
            return Err(Error::BrokenLayout { path: path.clone(), cause: error });
        }
        (sent, _) => sent.map_err(Error::Registry)?,
    }
    if let Some(shared) = registries.shared.filter(|_| is_of_base) {
        // Sharing is optional: the image is complete without it.
        let _ = own.share_blob(digest, shared).await;
    }
    Ok(Was::Missing)
}

/// Mounts a base layer from a repository that has it. Returns whether a repository had the layer.
async fn mount(registries: &Registries, digest: &Digest) -> Result<bool, Error> {
    let own = &registries.own;
    for from in &registries.have_base {
        // A registry that cannot mount starts an upload instead, and keeps that upload for a week.
        if from == SHARED_LAYERS && !own.again(|| own.has_blob_in(from, digest)).await.map_err(Error::Registry)? {
            continue;
        }
        if own.again(|| own.mount_blob(digest, from)).await.map_err(Error::Registry)? == Mounted::Yes {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether the registry has a blob.
async fn has(own: &Client, digest: &Digest) -> Result<bool, Error> {
    known(own.again(|| own.has_blob(digest)).await)
}

/// Treats a 500 as "not there", so that the blob is pushed. If a push is killed, Docker's registry keeps an empty link
/// and returns 500 for the blob until the same blob is pushed again.
fn known<T: Default>(answer: Result<T, crate::registry::Error>) -> Result<T, Error> {
    match answer {
        Err(error) if matches!(error.fault, Fault::Status { status: 500, .. }) => Ok(T::default()),
        other => other.map_err(Error::Registry),
    }
}

/// Reads a file of at most `limit` bytes. Returns `None` for a link.
fn plain_file(path: &Path, limit: u64) -> Option<Vec<u8>> {
    let metadata = path.symlink_metadata().ok().filter(|metadata| metadata.is_file() && metadata.len() <= limit)?;
    let mut bytes = Vec::new();
    std::fs::File::open(path).ok()?.take(metadata.len()).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}
