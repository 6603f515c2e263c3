//! The parts of an image that a container uses: files and configuration.
//!
//! An image of the embedded registry is unpacked into a read-only directory that its containers share. A host image
//! only names programs of this machine.
//!
//! Not here: other registries. Nothing is downloaded.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value;

use super::context::Context;
use super::paths::Paths;
use super::unpacked::Files;
use crate::registry::{self, Lookup};

/// The parts of an image that a container uses.
#[derive(Clone, Debug, Default)]
pub(super) struct Image {
    /// Image ID for the container's status.
    pub(super) id: String,
    pub(super) env: Vec<(String, String)>,
    pub(super) entrypoint: Vec<String>,
    pub(super) command: Vec<String>,
    /// Working directory in the container; empty if the image sets none.
    pub(super) directory: String,
    /// Directory that precedes this machine's search path.
    pub(super) programs: Option<PathBuf>,
    /// Top-level names of the file system, and their paths on this machine.
    tops: Vec<(String, PathBuf)>,
    /// Keeps the files of the image; this field is not read.
    _files: Option<Arc<Files>>,
}

impl Image {
    /// Maps the image's files into the paths of a container.
    pub(super) fn add_to(&self, paths: &mut Paths) {
        for (name, place) in &self.tops {
            paths.add(&format!("/{name}"), place.clone());
        }
    }
}

/// Returns the image of a container, unpacked. `Err` is the reason why it is unavailable.
pub(super) async fn ready(ctx: &Context, reference: &str) -> Result<Arc<Image>, String> {
    if ctx.node().host_image(reference).is_some() {
        return Ok(Arc::new(Image { id: reference.to_owned(), ..Image::default() }));
    }
    let Some(images) = ctx.node.registry.as_ref() else { return Err(format!("no registry has {reference}")) };
    let found = match images.image(reference).await {
        Lookup::Found(found) => found,
        Lookup::Missing(why) => return Err(why),
        Lookup::Elsewhere => return Err(format!("{reference} is in another registry")),
    };
    // Images are unpacked one at a time, so that two containers do not unpack the same image twice.
    let mut images = ctx.node().images.lock().await;
    let known = images.find(&found.digest);
    let files = if let Some(files) = known { files } else { images.unpack(&ctx.node().directory(), &found).await? };
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
