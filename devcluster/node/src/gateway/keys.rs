//! The keys of issuers: fetched, kept for a while, and fetched again when a token names one that is not among them.
//!
//! Invariant: the last good set of keys stays when a fetch fails; few sets are kept, and each is bounded.
//! Invariant: addresses of this machine's network link, where clouds hand out credentials, are not asked.
//!
//! Deliberately absent: HTTPS. An issuer is asked over `http:`, or its keys are in a file.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

use super::forward::addresses;
use super::target::Target;
use devcluster_apiserver::server::Server;

/// How long keys are good.
const KEPT: Duration = Duration::from_secs(600);
/// The least time between two fetches of one address.
const PAUSE: Duration = Duration::from_secs(5);
/// How long a fetch may take.
const DEADLINE: Duration = Duration::from_secs(5);
/// Bytes of a set.
const MOST: usize = 256 << 10;
/// Addresses whose keys are kept.
const ADDRESSES: usize = 64;

/// Keys of one address.
#[derive(Clone, Debug)]
struct Known {
    keys: Arc<Vec<Value>>,
    fetched: Instant,
    tried: Instant,
}

/// The keys of all issuers.
#[derive(Debug, Default)]
pub(super) struct Keys(tokio::sync::Mutex<HashMap<String, Known>>);

impl Keys {
    /// The keys at an address, with this one if that is possible.
    pub(super) async fn at(&self, server: &Server, address: &str, key: &str) -> Arc<Vec<Value>> {
        let mut all = self.0.lock().await;
        let now = Instant::now();
        let known = all.get(address).cloned();
        let has = |known: &Known| known.keys.iter().any(|one| one["kid"] == *key);
        let is_enough = |known: &&Known| {
            let is_fresh = now.duration_since(known.fetched) < KEPT && has(known);
            is_fresh || now.duration_since(known.tried) < PAUSE
        };
        if let Some(known) = known.as_ref().filter(is_enough) {
            return Arc::clone(&known.keys);
        }
        let fetched = tokio::time::timeout(DEADLINE, fetch(server, address)).await.ok().flatten();
        let known = match (fetched, known) {
            (Some(keys), _) => Known { keys: Arc::new(keys), fetched: now, tried: now },
            (None, Some(known)) => Known { tried: now, ..known },
            (None, None) => Known { keys: Arc::default(), fetched: now, tried: now },
        };
        if all.len() >= ADDRESSES && !all.contains_key(address) {
            all.clear();
        }
        let keys = Arc::clone(&known.keys);
        all.insert(address.to_owned(), known);
        keys
    }
}

async fn fetch(server: &Server, address: &str) -> Option<Vec<Value>> {
    let text = match address.strip_prefix("file://") {
        Some(path) => read(path).await?,
        None => get(server, &address.parse().ok()?).await?,
    };
    let mut set: Value = serde_json::from_slice(&text).ok()?;
    match set["keys"].take() {
        Value::Array(keys) => Some(keys),
        _ => None,
    }
}

/// A file that is one, and not too long: a device has no end.
async fn read(path: &str) -> Option<Bytes> {
    if !tokio::fs::metadata(path).await.ok()?.is_file() {
        return None;
    }
    let mut text = Vec::new();
    let file = tokio::fs::File::open(path).await.ok()?;
    file.take(MOST as u64 + 1).read_to_end(&mut text).await.ok()?;
    (text.len() <= MOST).then(|| text.into())
}

async fn get(server: &Server, address: &http::Uri) -> Option<Bytes> {
    if address.scheme_str() != Some("http") {
        return None;
    }
    let (host, port) = (address.host()?, address.port_u16().unwrap_or(80));
    let stream = TcpStream::connect(resolve(server, host, port).await?).await.ok()?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.ok()?;
    // It ends with the answer.
    tokio::spawn(connection);
    let path = address.path_and_query().map_or("/", |path| path.as_str());
    let request = Request::get(path).header(http::header::HOST, address.authority()?.as_str());
    let answer = sender.send_request(request.body(Full::<Bytes>::default()).ok()?).await.ok()?;
    if !answer.status().is_success() {
        return None;
    }
    Some(Limited::new(answer.into_body(), MOST).collect().await.ok()?.to_bytes())
}

/// The address of a Service's pod, or of another host.
async fn resolve(server: &Server, host: &str, port: u16) -> Option<SocketAddr> {
    if host.contains(".svc") {
        return addresses(server, &Target::named(host, port, "")?).into_iter().next();
    }
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let mut found = tokio::net::lookup_host((host, port)).await.ok()?;
    found.find(|address| !is_link_local(address.ip()))
}

fn is_link_local(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => address.is_link_local() || address.is_unspecified(),
        IpAddr::V6(address) => {
            address.is_unicast_link_local() || address.is_unspecified() || address.segments()[..2] == [0xfd00, 0x0ec2]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_where_clouds_hand_out_credentials_are_not_asked() {
        let is = |text: &str| is_link_local(text.parse().unwrap());
        for bad in ["169.254.169.254", "::ffff:169.254.169.254", "fe80::1", "fd00:ec2::254", "0.0.0.0"] {
            assert!(is(bad), "{bad}");
        }
        assert!(!is("127.0.0.1") && !is("10.0.0.1") && !is("::1"));
    }

    #[tokio::test]
    async fn only_files_of_few_bytes_are_read() {
        let home = tempfile::tempdir().unwrap();
        let path = |name: &str| home.path().join(name).to_str().unwrap().to_owned();
        std::fs::write(path("few"), "{}").unwrap();
        std::fs::write(path("many"), vec![b' '; MOST + 1]).unwrap();
        assert_eq!(read(&path("few")).await.as_deref(), Some(&b"{}"[..]));
        assert_eq!(read(&path("many")).await, None);
        for other in ["/dev/zero", &path(""), &path("none")] {
            assert_eq!(read(other).await, None, "{other}");
        }
    }
}
