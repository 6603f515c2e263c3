//! The cache of issuers' keys. A token with an unknown key ID triggers a refresh.
//!
//! Invariant: a failed fetch keeps the last valid keys. The number of issuers and the size of each set are bounded.
//! Invariant: a slow issuer delays only requests that need its keys.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::Value;

use super::fetch;
use super::reach::Reach;
use devcluster_apiserver::server::Server;

/// Lifetime of cached keys.
const KEPT: Duration = Duration::from_secs(600);
/// Minimum time between two fetches of one URL.
const PAUSE: Duration = Duration::from_secs(5);
/// Deadline of a fetch.
const DEADLINE: Duration = Duration::from_secs(5);
/// Maximum number of cached URLs.
const ADDRESSES: usize = 64;

/// Keys of one address.
#[derive(Clone, Debug)]
struct Known {
    keys: Arc<Vec<Value>>,
    fetched: Instant,
    tried: Instant,
}

/// The keys of a URL, if it was fetched. Locked during a fetch.
type Place = Arc<tokio::sync::Mutex<Option<Known>>>;

/// The keys of all issuers.
#[derive(Debug, Default)]
pub(super) struct Keys(Mutex<HashMap<String, Place>>);

impl Keys {
    /// Returns the keys of a URL. Refreshes them if `key` is missing and the last attempt is old enough.
    pub(super) async fn at(&self, server: &Server, reach: &Reach, address: &str, key: &str) -> Arc<Vec<Value>> {
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
        let fetched = tokio::time::timeout(DEADLINE, fetched(server, reach, address)).await.ok().flatten();
        // Measured after the fetch: otherwise each waiting request would try a slow issuer again.
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

async fn fetched(server: &Server, reach: &Reach, address: &str) -> Option<Vec<Value>> {
    let text = fetch::ask(server, reach, &address.parse().ok()?, None).await?;
    let mut set: Value = serde_json::from_slice(&text).ok()?;
    match set["keys"].take() {
        Value::Array(keys) => Some(keys),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_slow_issuer_does_not_stop_another() {
        // Accepts connections and never answers.
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let slow = format!("http://{}/keys", silent.local_addr().unwrap());
        let quick = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let answering = format!("http://{}/keys", quick.local_addr().unwrap());
        let reach = Reach::new(&[slow.clone(), answering.clone()]);
        tokio::spawn(async move {
            let (mut stream, _) = quick.accept().await.unwrap();
            let text = "HTTP/1.1 200 OK\r\ncontent-length: 24\r\n\r\n{\"keys\":[{\"kid\":\"one\"}]}";
            tokio::io::AsyncWriteExt::write_all(&mut stream, text.as_bytes()).await.unwrap();
        });
        let (keys, server) = (Keys::default(), Server::new(devcluster_apiserver::server::Options::default()));
        let waiting = keys.at(&server, &reach, &slow, "one");
        let asked = async {
            // The request to the slow issuer is pending.
            let _connection = silent.accept().await.unwrap();
            keys.at(&server, &reach, &answering, "one").await.len()
        };
        tokio::select! {
            biased;
            found = asked => assert_eq!(found, 1),
            _ = waiting => panic!("the other waited for it"),
        }
    }

    #[tokio::test]
    async fn an_issuer_inside_is_not_asked_unless_it_is_permitted() {
        let inside = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = inside.local_addr().unwrap().port();
        let (keys, server) = (Keys::default(), Server::new(devcluster_apiserver::server::Options::default()));
        for host in ["127.0.0.1", "localhost", "a.localhost", "[::ffff:127.0.0.1]", "web.shop.svc", "web", "0x7f.1"] {
            let address = format!("http://{host}:{port}/keys");
            assert_eq!(keys.at(&server, &Reach::default(), &address, "one").await.len(), 0, "{host}");
        }
        let asked = futures::FutureExt::now_or_never(inside.accept());
        assert!(asked.is_none(), "nobody has connected");
    }
}
