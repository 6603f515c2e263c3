//! The keys of issuers: fetched, kept for a while, and fetched again when a token names one that is not among them.
//!
//! Invariant: the last good set of keys stays when a fetch fails; few sets are kept, and each is bounded.
//! Invariant: an issuer that is slow keeps those waiting who need its keys, and nobody else.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::io::AsyncReadExt as _;

use super::fetch;
use devcluster_apiserver::server::Server;

/// How long keys are good.
const KEPT: Duration = Duration::from_secs(600);
/// The least time between two fetches of one address.
const PAUSE: Duration = Duration::from_secs(5);
/// How long a fetch may take.
const DEADLINE: Duration = Duration::from_secs(5);
/// Bytes of a file.
const MOST: usize = fetch::MOST;
/// Addresses whose keys are kept.
const ADDRESSES: usize = 64;

/// Keys of one address.
#[derive(Clone, Debug)]
struct Known {
    keys: Arc<Vec<Value>>,
    fetched: Instant,
    tried: Instant,
}

/// The keys of an address, if it was asked already. Whoever asks it holds this.
type Place = Arc<tokio::sync::Mutex<Option<Known>>>;

/// The keys of all issuers.
#[derive(Debug, Default)]
pub(super) struct Keys(Mutex<HashMap<String, Place>>);

impl Keys {
    /// The keys at an address, with this one if that is possible.
    pub(super) async fn at(&self, server: &Server, address: &str, key: &str) -> Arc<Vec<Value>> {
        let place = self.place(address);
        let mut known = place.lock().await;
        let now = Instant::now();
        let has = |known: &Known| known.keys.iter().any(|one| one["kid"] == *key);
        let is_enough = |known: &&Known| {
            let is_fresh = now.duration_since(known.fetched) < KEPT && has(known);
            is_fresh || now.duration_since(known.tried) < PAUSE
        };
        if let Some(known) = known.as_ref().filter(is_enough) {
            return Arc::clone(&known.keys);
        }
        let fetched = tokio::time::timeout(DEADLINE, fetched(server, address)).await.ok().flatten();
        // The time that it took counts, too: a slow issuer is not asked at once again by all who waited.
        let now = Instant::now();
        let next = match (fetched, known.take()) {
            (Some(keys), _) => Known { keys: Arc::new(keys), fetched: now, tried: now },
            (None, Some(known)) => Known { tried: now, ..known },
            (None, None) => Known { keys: Arc::default(), fetched: now, tried: now },
        };
        let keys = Arc::clone(&next.keys);
        *known = Some(next);
        keys
    }

    fn place(&self, address: &str) -> Place {
        let mut all = self.0.lock();
        if all.len() >= ADDRESSES && !all.contains_key(address) {
            all.clear();
        }
        Arc::clone(all.entry(address.to_owned()).or_default())
    }
}

async fn fetched(server: &Server, address: &str) -> Option<Vec<Value>> {
    let text = match address.strip_prefix("file://") {
        Some(path) => read(path).await?,
        None => fetch::ask(server, &address.parse().ok()?, None).await?,
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

#[cfg(test)]
mod tests {
    use super::*;

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

    #[tokio::test]
    async fn a_slow_issuer_does_not_stop_another() {
        // It takes connections and never answers.
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let slow = format!("http://{}/keys", silent.local_addr().unwrap());
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("keys.json");
        std::fs::write(&file, r#"{"keys":[{"kid":"one"}]}"#).unwrap();
        let (keys, server) = (Keys::default(), Server::new(devcluster_apiserver::server::Options::default()));
        let waiting = keys.at(&server, &slow, "one");
        let asked = async {
            // The slow one is being asked now.
            let _connection = silent.accept().await.unwrap();
            keys.at(&server, &format!("file://{}", file.display()), "one").await.len()
        };
        tokio::select! {
            biased;
            found = asked => assert_eq!(found, 1),
            _ = waiting => panic!("the other waited for it"),
        }
    }
}
