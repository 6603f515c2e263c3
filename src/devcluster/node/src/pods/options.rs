//! The options of a node.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// An image whose programs are installed on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostImage {
    /// As pods name it, to the letter.
    pub image: String,
    /// First word of a command to the program that it stands for; other words are looked for on the search path.
    pub commands: BTreeMap<String, PathBuf>,
}

/// How a node runs pods.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// Images that need not be unpacked.
    pub host_images: Vec<HostImage>,
    /// Where pods have their directories, logs and unpacked images; what an earlier node left there is removed.
    pub directory: PathBuf,
    /// Where programs are looked for that are in no image, as in `PATH`; that of this process.
    pub path: String,
    /// Variables for every container, below those of its pod. `{podIP}` becomes the pod's address, `{terminationLog}`
    /// the file for its termination message; a path that the container has a mount for becomes the place of that.
    pub env: Vec<(String, String)>,
    /// The same for places of this machine, which stay as they are.
    pub host_env: Vec<(String, String)>,
    /// Limit of the bytes that a pod may write, even if its volumes allow more; 4 GiB.
    pub pod_disk: u64,
    /// How long Services still lead to a pod that is being deleted, as the proxies of a cluster do until they have heard
    /// of it; not at all.
    pub endpoint_delay: Duration,
    /// Processes and threads of a container; 512.
    pub tasks: usize,
    /// How servers of containers are kept from other users of this machine; not at all.
    pub front: Option<FrontOptions>,
}

/// A port that only this user reaches, before the servers of containers that are no host images.
#[derive(Clone, Debug)]
pub struct FrontOptions {
    /// The variable that says on which Unix socket the server of a container listens.
    pub variable: String,
    /// The port of the pod that leads there while it does.
    pub port: u16,
    /// Where the sockets are, with a short path, which only this user enters.
    pub directory: PathBuf,
}

impl NodeOptions {
    /// A node with a directory and no images.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            host_images: Vec::new(),
            directory: directory.into(),
            path: std::env::var("PATH").unwrap_or_default(),
            env: Vec::new(),
            host_env: Vec::new(),
            pod_disk: 4 << 30,
            endpoint_delay: Duration::ZERO,
            tasks: 512,
            front: None,
        }
    }

    /// The same with one more host image; each command is its first word and the program that it stands for.
    #[must_use]
    pub fn host_image(mut self, image: &str, commands: impl IntoIterator<Item = (String, PathBuf)>) -> Self {
        self.host_images.push(HostImage { image: image.to_owned(), commands: commands.into_iter().collect() });
        self
    }
}
