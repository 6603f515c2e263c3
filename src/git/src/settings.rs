//! Where mirrors are stored, and the limits and deadlines of remotes.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use mainstay_object::egress::EgressPolicy;

const PERMITS: usize = 8;
const MIB: u64 = 1 << 20;
/// Leaves 256 MiB of the volume in `manifests/` for what a pack needs while it is unpacked.
const BUDGET: u64 = 1792 * MIB;
/// Threads that remotes may hold at the same time with the usual settings.
pub const MAX_THREADS: usize = PERMITS + super::transport::THREADS;

/// How a [`Source`](super::Source) works.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Directory of the mirrors; created if it is missing. Only this process may write there.
    pub directory: PathBuf,
    /// Whether local paths and `file://` are allowed (only for `mainstay dev`).
    pub allow_local: bool,
    /// Addresses of hosts for which the resolver is not asked, as with Git's `http.curloptResolve`.
    pub hosts: HashMap<String, IpAddr>,
    /// Which addresses are connected to, for whom.
    pub egress: EgressPolicy,
    /// Bytes of all mirrors together: those that were used longest ago go when there is no room for another one.
    pub budget: u64,
    /// Size limits per remote.
    pub limits: Limits,
    /// Deadlines per remote.
    pub deadlines: Deadlines,
    /// Maximum number of threads that index packs and read objects. A namespace gets at most half of those that are
    /// free.
    pub permits: usize,
    /// The proxy of HTTP requests to remotes that name none.
    pub proxy: DefaultProxy,
}

/// The proxy of HTTP requests to remotes that name none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DefaultProxy {
    /// That of the environment: `HTTPS_PROXY`, `HTTP_PROXY`, `NO_PROXY`.
    #[default]
    Environment,
    /// None, whatever the environment says.
    None,
}

impl Settings {
    /// The default limits and deadlines, with mirrors in `directory`, no local repositories, and the proxy of the environment.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            allow_local: false,
            hosts: HashMap::new(),
            egress: EgressPolicy::default(),
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
    /// Bytes of the answer to a lookup (all references if the server only supports protocol version 0).
    pub advertisement_bytes: u64,
    /// Bytes of a packed pack.
    pub pack_bytes: u64,
    /// Objects of a pack.
    pub pack_objects: u32,
    /// Unpacked bytes of an object.
    pub object_bytes: u64,
    /// Bytes of a delta.
    pub delta_bytes: u64,
    /// Bytes of a delta, of its base and of its result, which are in memory together.
    pub working_bytes: u64,
    /// Unpacked bytes of a pack.
    pub unpacked_bytes: u64,
    /// Bytes of a mirror; a larger one is replaced, and refused if the new one is too large as well.
    pub mirror_bytes: u64,
    /// Packs of a mirror; one with more is replaced.
    pub mirror_packs: usize,
    /// Bytes of a file.
    pub file_bytes: u64,
    /// Files and directories under a base directory.
    pub entries: usize,
    /// Bytes of all their paths together.
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
    /// Time without data.
    pub silence: Duration,
    /// An open connection over SSH that nobody uses: after so long it is closed. Most remotes are polled each minute.
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
