//! The options of a node.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// An image whose programs are installed on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostImage {
    /// The exact image reference in pods.
    pub image: String,
    /// Programs by the first word of a command. Other words are looked up on the search path.
    pub commands: BTreeMap<String, PathBuf>,
}

/// Settings of a node.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// Images that are not unpacked. Default: none.
    pub host_images: Vec<HostImage>,
    /// Directory of pods, logs and unpacked images. Leftovers of an earlier node are removed.
    pub directory: PathBuf,
    /// Search path for programs that are not in an image. Default: `PATH` of this process.
    pub path: String,
    /// Variables for every container; those of the pod override them. `{podIP}` becomes the pod's address,
    /// `{terminationLog}` the file of its termination message. A path in a mount becomes its path on this machine.
    pub env: Vec<(String, String)>,
    /// Like `env`, with paths of this machine that are not rewritten.
    pub host_env: Vec<(String, String)>,
    /// Maximum number of bytes that a pod may write, even if its volumes allow more. Default: 4 GiB.
    pub pod_disk: u64,
    /// How long Services still route to a terminating pod, as in a cluster with delayed endpoint updates. Default: 0.
    pub endpoint_delay: Duration,
    /// Maximum number of processes and threads of a container. Default: 512.
    pub tasks: usize,
    /// Protects servers of containers from other users of this machine. Default: none.
    pub front: Option<FrontOptions>,
}

/// A port in front of container servers that only this user can connect to. Host images have none.
#[derive(Clone, Debug)]
pub struct FrontOptions {
    /// Environment variable with the Unix socket on which the container's server must listen.
    pub variable: String,
    /// Port of the pod that forwards to the socket.
    pub port: u16,
    /// Directory of the sockets. The directory has a short path and is accessible to this user only.
    pub directory: PathBuf,
}

impl NodeOptions {
    /// Creates the default options with a directory.
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

    /// Adds a host image. Each command is a pair: the first word, and the program for this word.
    #[must_use]
    pub fn host_image(mut self, image: &str, commands: impl IntoIterator<Item = (String, PathBuf)>) -> Self {
        self.host_images.push(HostImage { image: image.to_owned(), commands: commands.into_iter().collect() });
        self
    }
}
