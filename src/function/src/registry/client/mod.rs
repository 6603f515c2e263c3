//! A client of the OCI distribution API for one repository. The client reads and pushes blobs and manifests.
//!
//! [`send`] sends requests (redirects, deadlines), [`token`] authenticates, [`blob`] and [`manifest`] define the
//! requests, [`retry`] defines which requests are retried.
//!
//! Invariant: all data from a registry is limited in size, and every wait has a deadline. Invariant: no error contains
//! a credential, a URL with a query, or a string from the server.
//!
//! Not here: resuming uploads. The crate `oci-client` is not used: version 0.18 sent the password to a token server on
//! a different host over HTTP, as the registry's challenge asked. This version also buffered a response of 100 MiB from
//! that server.

mod blob;
mod challenge;
mod error;
mod file;
#[cfg(any(test, feature = "fuzz"))]
pub(super) mod fuzz;
mod manifest;
mod retry;
mod send;
mod tags;
mod token;

pub use blob::{Content, Mounted};
pub use error::{Error, Fault};
pub use file::SentFile;
pub use manifest::{Manifest, Referrers};

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use reqwest::Url;

use super::{Access, ImageRef, Scheme};

const PREPARE: &str = "could not prepare to talk to";
/// Host of Docker Hub's API.
const DOCKER_HUB: &str = "registry-1.docker.io";

/// Deadlines of a registry.
#[derive(Clone, Copy, Debug)]
pub struct Deadlines {
    /// Timeout for connecting; 10 s by default.
    pub connect: Duration,
    /// Idle timeout of a transfer; 60 s by default.
    pub silence: Duration,
    /// Minimum average transfer rate in bytes per second; 16 KiB by default.
    pub slowest: u64,
    /// How long to retry during an outage of the registry; 30 s by default.
    pub patience: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            silence: Duration::from_secs(60),
            slowest: 16 << 10,
            patience: Duration::from_secs(30),
        }
    }
}

impl Deadlines {
    /// Returns the deadline of a transfer of this many bytes.
    fn whole(&self, bytes: u64) -> Duration {
        self.silence.saturating_add(Duration::from_secs(bytes / self.slowest.max(1)))
    }
}

/// The permission that a client requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// Read.
    Pull,
    /// Read and write.
    PullAndPush,
}

/// Returns an error if a host must not be contacted. The error is the reason.
pub(super) type HostCheck = Arc<dyn Fn(&str) -> Result<(), String> + Send + Sync>;

/// The HTTP clients of a [`Client`], and the check of the hosts that they may contact.
#[derive(Clone)]
pub struct Network {
    /// The client for the registry.
    pub own: reqwest::Client,
    /// The client for other hosts, without a client certificate.
    pub foreign: reqwest::Client,
    /// Checks host names. The clients check the names with it, but no IP addresses.
    pub check: HostCheck,
}

/// Omits the clients, because their output would contain the password of a proxy.
impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Network").finish_non_exhaustive()
    }
}

/// A client for one repository of one registry.
#[derive(Debug)]
pub struct Client {
    network: Network,
    deadlines: Deadlines,
    access: Access,
    rights: Rights,
    /// `https://HOST/`
    origin: Url,
    registry: String,
    repository: String,
    /// Another repository from which a blob is mounted.
    mounting: Mutex<Option<String>>,
    authorization: Mutex<token::Authorization>,
}

impl Client {
    /// Returns a client for the repository of an image. This sends no request.
    ///
    /// Fails if the CA certificates are invalid.
    pub fn new(image: &ImageRef, access: Access, rights: Rights, deadlines: Deadlines) -> Result<Self, Error> {
        let fail = |fault| Error { attempt: PREPARE, registry: image.registry.clone(), fault };
        // An error means that a provider is installed already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("mainstay/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(deadlines.connect);
        if access.scheme == Scheme::Http {
            // A proxy would see the login in plain text.
            builder = builder.no_proxy();
        }
        if !access.authorities.is_empty() {
            let authorities = reqwest::Certificate::from_pem_bundle(&access.authorities);
            let authorities = authorities.ok().filter(|list| !list.is_empty());
            builder = builder.tls_certs_merge(authorities.ok_or_else(|| fail(Fault::Authorities))?);
        }
        let own = builder.build().map_err(|_| fail(Fault::Authorities))?;
        let network = Network { foreign: own.clone(), own, check: Arc::new(|_| Ok(())) };
        Self::within(network, image, access, rights, deadlines)
    }

    /// Returns a client that connects through `network`. The CA certificates of `access` are not used.
    pub fn within(
        network: Network,
        image: &ImageRef,
        access: Access,
        rights: Rights,
        deadlines: Deadlines,
    ) -> Result<Self, Error> {
        let fail = |fault| Error { attempt: PREPARE, registry: image.registry.clone(), fault };
        let scheme = match access.scheme {
            Scheme::Https => "https",
            Scheme::Http => "http",
        };
        let host = if image.registry == "docker.io" { DOCKER_HUB } else { &image.registry };
        let origin = Url::parse(&format!("{scheme}://{host}/"));
        let origin = origin.map_err(|_| fail(Fault::Protocol { why: "its host is not valid in a URL" }))?;
        Ok(Self {
            network,
            deadlines,
            access,
            rights,
            origin,
            registry: image.registry.clone(),
            repository: image.repository.clone(),
            mounting: Mutex::default(),
            authorization: Mutex::default(),
        })
    }

    /// Returns host and port of the registry, as in references.
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// Returns the name of the repository.
    pub fn repository(&self) -> &str {
        &self.repository
    }

    fn address(&self, kind: &str, what: &str) -> Url {
        let mut url = self.origin.clone();
        url.set_path(&format!("/v2/{}/{kind}/{what}", self.repository));
        url
    }

    fn failed(&self, attempt: &'static str) -> impl FnOnce(Fault) -> Error {
        let registry = self.registry.clone();
        move |fault| Error { attempt, registry, fault }
    }
}
