//! What an image brings: files and words.
//!
//! An image of the embedded registry is unpacked once per digest into a directory that all of its containers share;
//! its files cannot be written there. A host image brings nothing but its programs.
//!
//! Deliberately absent: other registries; nothing is fetched over the network.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

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
    /// The names at the top of its file system, and where they are.
    tops: Vec<(String, PathBuf)>,
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
    let name = found.digest.replace(':', "-");
    let root = ctx.node().directory().join("images").join(name);
    // One at a time: two containers of an image would unpack it twice.
    let unpacking = ctx.node().unpacking.lock().await;
    if fs::metadata(&root).is_err() {
        let (layers, place) = (found.layers.clone(), root.clone());
        let done = tokio::task::spawn_blocking(move || unpack::unpack(&layers, &place)).await;
        done.map_err(|_| "unpacking was interrupted".to_owned())?.map_err(|e| format!("unpacking {reference}: {e}"))?;
    }
    drop(unpacking);
    Ok(Arc::new(read(&found, root)))
}

fn read(found: &registry::Image, root: PathBuf) -> Image {
    let config = &found.config["config"];
    let words = |field: &str| -> Vec<String> {
        config[field].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let env = words("Env");
    let env =
        env.iter().filter_map(|entry| entry.split_once('=')).map(|(name, value)| (name.to_owned(), value.to_owned()));
    let tops = fs::read_dir(&root).into_iter().flatten().flatten().map(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        (name, entry.path())
    });
    Image {
        id: found.id.clone(),
        env: env.collect(),
        entrypoint: words("Entrypoint"),
        command: words("Cmd"),
        directory: config["WorkingDir"].as_str().unwrap_or_default().to_owned(),
        tops: tops.collect(),
    }
}
