//! Settings of a source: storage of mirrors, limits and deadlines of remotes.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::CloudSettings;
use mainstay_object::egress::EgressPolicy;

const PERMITS: usize = 8;
const MIB: u64 = 1 << 20;
/// Default budget of mirrors, in bytes. On the volume in `manifests/`, 256 MiB remain for unpacking a pack.
const BUDGET: u64 = 1792 * MIB;
/// Maximum number of threads for remotes with the default settings.
pub const MAX_THREADS: usize = PERMITS + super::transport::THREADS;

/// The settings of a [`Source`](super::Source).
#[derive(Clone, Debug)]
pub struct Settings {
    /// Directory of the mirrors. It is created if missing; only this process may write there.
    pub directory: PathBuf,
    /// Whether local paths and `file://` are allowed (only for `mainstay dev`).
    pub allow_local: bool,
    /// Fixed addresses of hosts. They override name resolution, as with Git's `http.curloptResolve`. A port other than 0
    /// replaces the default port of a URL.
    pub hosts: HashMap<String, SocketAddr>,
    /// The addresses that each namespace may connect to.
    pub egress: EgressPolicy,
    /// Identities of clouds.
    pub clouds: CloudSettings,
    /// Maximum total bytes of all mirrors. The least recently used are evicted.
    pub budget: u64,
    /// Size limits per remote.
    pub limits: Limits,
    /// Deadlines per remote.
    pub deadlines: Deadlines,
    /// Maximum number of threads that index packs and read objects. A namespace gets at most half of the free ones.
    pub permits: usize,
    /// The proxy of HTTP requests for remotes without their own proxy.
    pub proxy: DefaultProxy,
}

/// The proxy of HTTP requests for remotes without their own proxy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DefaultProxy {
    /// The proxy of the environment: `HTTPS_PROXY`, `HTTP_PROXY`, `NO_PROXY`.
    #[default]
    Environment,
    /// No proxy. The environment is ignored.
    None,
}

impl Settings {
    /// Returns default limits and deadlines, mirrors in `directory`, no local repositories, and the environment's
    /// proxy.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            allow_local: false,
            hosts: HashMap::new(),
            egress: EgressPolicy::default(),
            clouds: CloudSettings::default(),
            budget: BUDGET,
            limits: Limits::default(),
            deadlines: Deadlines::default(),
            permits: PERMITS,
            proxy: DefaultProxy::default(),
        }
    }
}

/// Size limits per remote.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of the response to a lookup. With protocol version 0, the response lists all references.
    pub advertisement_bytes: u64,
    /// Compressed bytes of a pack.
    pub pack_bytes: u64,
    /// Objects of a pack.
    pub pack_objects: u32,
    /// Unpacked bytes of an object.
    pub object_bytes: u64,
    /// Bytes of a delta.
    pub delta_bytes: u64,
    /// Total bytes of a delta, its base and its result, which are in memory at the same time.
    pub working_bytes: u64,
    /// Unpacked bytes of a pack.
    pub unpacked_bytes: u64,
    /// Bytes of a mirror. A larger mirror is replaced; if the new one is too large, too, the fetch fails.
    pub mirror_bytes: u64,
    /// Packs of a mirror. A mirror with more is replaced.
    pub mirror_packs: usize,
    /// Bytes of a file.
    pub file_bytes: u64,
    /// Files and directories under a base directory.
    pub entries: usize,
    /// Total bytes of the paths of these entries.
    pub path_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            advertisement_bytes: 32 * MIB,
            pack_bytes: 1152 * MIB,
            pack_objects: 500_000,
            object_bytes: 64 * MIB,
            delta_bytes: 16 * MIB,
            working_bytes: 64 * MIB,
            unpacked_bytes: 4096 * MIB,
            mirror_bytes: 1408 * MIB,
            mirror_packs: 64,
            file_bytes: 16 * MIB,
            entries: 100_000,
            path_bytes: 16 << 20,
        }
    }
}

/// Deadlines per remote.
#[derive(Clone, Copy, Debug)]
pub struct Deadlines {
    /// Name resolution and connection.
    pub connect: Duration,
    /// Idle timeout: maximum time without received data.
    pub silence: Duration,
    /// Time after which an unused SSH connection is closed. Most remotes are polled each minute.
    pub idle: Duration,
    /// A whole lookup.
    pub lookup: Duration,
    /// A whole fetch.
    pub fetch: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            silence: Duration::from_secs(30),
            idle: Duration::from_secs(150),
            lookup: Duration::from_secs(30),
            fetch: Duration::from_secs(300),
        }
    }
}
