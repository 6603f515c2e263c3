//! What an image brings: files and words.
//!
//! An image of the embedded registry is unpacked into a directory that all of its containers share; its files cannot be
//! written there. A host image brings nothing but its programs.
//!
//! Invariant: the files of an image are there as long as a container may run, and a few images longer.
//!
//! Deliberately absent: other registries; nothing is fetched over the network.

use std::collections::VecDeque;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use serde_json::Value;

use super::paths::Paths;
use super::process::Context;
use super::unpack;
use crate::registry::{self, Lookup};

/// What a container has of its image.
#[derive(Clone, Debug, Default)]
pub(super) struct Image {
    /// As the status of a container says it.
    pub(super) id: String,
    pub(super) env: Vec<(String, String)>,
    pub(super) entrypoint: Vec<String>,
    pub(super) command: Vec<String>,
    /// Working directory in the container, empty when the image does not say.
    pub(super) directory: String,
    /// Programs of this machine that come before all others of it.
    pub(super) programs: Option<PathBuf>,
    /// The names at the top of its file system, and where they are.
    tops: Vec<(String, PathBuf)>,
    /// Held, not used.
    _files: Option<Arc<Files>>,
}

/// Unpacked images that are kept although no container has them.
const KEPT: usize = 4;

/// The files of an unpacked image; they go with this.
#[derive(Debug)]
struct Files {
    digest: String,
    place: PathBuf,
}

impl Drop for Files {
    fn drop(&mut self) {
        let place = std::mem::take(&mut self.place);
        // Many files take a while. A thread of its own, because there may be no runtime any more.
        std::thread::spawn(move || {
            if let Err(error) = fs::remove_dir_all(&place) {
                tracing::debug!(%error, "the files of an image stay until the node begins again");
            }
        });
    }
}

/// The unpacked images of a node.
#[derive(Debug, Default)]
pub(super) struct Images {
    known: Vec<Weak<Files>>,
    /// The last that were asked for, so that the next pod of a workload need not unpack them again.
    recent: VecDeque<Arc<Files>>,
}

impl Images {
    fn find(&mut self, digest: &str) -> Option<Arc<Files>> {
        self.known.retain(|files| files.strong_count() > 0);
        self.known.iter().filter_map(Weak::upgrade).find(|files| files.digest == digest)
    }

    async fn unpack(&mut self, ctx: &Context, found: &registry::Image) -> Result<Arc<Files>, String> {
        let name = format!("{}-{:08x}", found.digest.replace(':', "-"), fastrand::u32(..));
        let place = ctx.node().directory().join("images").join(name);
        let (layers, root) = (found.layers.clone(), place.clone());
        let done = tokio::task::spawn_blocking(move || unpack::unpack(&layers, &root)).await;
        let done = done.map_err(|_| "unpacking was interrupted".to_owned())?;
        done.map_err(|e| format!("unpacking {}: {e}", found.id))?;
        let files = Arc::new(Files { digest: found.digest.clone(), place });
        self.known.push(Arc::downgrade(&files));
        Ok(files)
    }

    fn keep(&mut self, files: &Arc<Files>) {
        self.recent.retain(|known| known.digest != files.digest);
        self.recent.push_front(files.clone());
        self.recent.truncate(KEPT);
    }
}

impl Image {
    /// Adds what the image brings to the paths of a container.
    pub(super) fn add_to(&self, paths: &mut Paths) {
        for (name, place) in &self.tops {
            paths.add(&format!("/{name}"), place.clone());
        }
    }
}

/// The image of a container, unpacked; why it is not to be had as `Err`.
pub(super) async fn ready(ctx: &Context, reference: &str) -> Result<Arc<Image>, String> {
    if ctx.node().host_image(reference).is_some() {
        return Ok(Arc::new(Image { id: reference.to_owned(), ..Image::default() }));
    }
    let Some(images) = ctx.server.images() else { return Err(format!("no registry has {reference}")) };
    let found = match images.image(reference).await {
        Lookup::Found(found) => found,
        Lookup::Missing(why) => return Err(why),
        Lookup::Elsewhere => return Err(format!("{reference} is in another registry")),
    };
    // One at a time: two containers of an image would unpack it twice.
    let mut images = ctx.node().images.lock().await;
    let known = images.find(&found.digest);
    let files = if let Some(files) = known { files } else { images.unpack(ctx, &found).await? };
    images.keep(&files);
    drop(images);
    let mut image = read(&found, files);
    image.programs = ctx.node().interpreters(image.entrypoint.first().map(String::as_str)).await;
    Ok(Arc::new(image))
}

fn read(found: &registry::Image, files: Arc<Files>) -> Image {
    let config = &found.config["config"];
    let words = |field: &str| -> Vec<String> {
        config[field].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let env = words("Env");
    let env =
        env.iter().filter_map(|entry| entry.split_once('=')).map(|(name, value)| (name.to_owned(), value.to_owned()));
    let tops = fs::read_dir(&files.place).into_iter().flatten().flatten().map(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        (name, entry.path())
    });
    Image {
        id: found.id.clone(),
        env: env.collect(),
        entrypoint: words("Entrypoint"),
        command: words("Cmd"),
        directory: config["WorkingDir"].as_str().unwrap_or_default().to_owned(),
        programs: None,
        tops: tops.collect(),
        _files: Some(files),
    }
}
