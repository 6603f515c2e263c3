//! A server in place of all subscribers, which notes when each event arrives.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use axum::{Router, extract::State};
use http::{HeaderMap, StatusCode};
use tokio::{net::TcpListener, task::JoinSet};

use super::Error;

/// The arrivals by the number of an event.
type Arrivals = Arc<Mutex<BTreeMap<u32, Vec<Instant>>>>;

/// The server. It ends with its tasks.
pub(super) struct Subscribers {
    arrivals: Arrivals,
    pub(super) address: SocketAddr,
}

impl Subscribers {
    pub(super) async fn start(tasks: &mut JoinSet<()>) -> Result<Self, Error> {
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(Error::Start)?;
        let (address, arrivals) = (listener.local_addr().map_err(Error::Start)?, Arrivals::default());
        let app = Router::new().fallback(take).with_state(Arc::clone(&arrivals));
        tasks.spawn(async move {
            // It ends when it is aborted.
            let _ = axum::serve(listener, app).await;
        });
        Ok(Self { arrivals, address })
    }

    /// Waits until each of these events has arrived at all subscribers. Returns all arrivals, or `None` after a timeout.
    pub(super) async fn until(
        &self,
        numbers: std::ops::Range<u32>,
        subscribers: usize,
        patience: Duration,
    ) -> Option<Vec<(u32, Instant)>> {
        let end = Instant::now() + patience;
        loop {
            {
                let arrivals = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
                let of = |number: u32| arrivals.get(&number).map_or(&[][..], Vec::as_slice);
                if numbers.clone().rev().all(|number| of(number).len() >= subscribers) {
                    return Some(numbers.flat_map(|number| of(number).iter().map(move |at| (number, *at))).collect());
                }
            }
            if Instant::now() > end {
                return None;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

async fn take(State(arrivals): State<Arrivals>, headers: HeaderMap) -> StatusCode {
    let number = headers.get("ce-id").and_then(|id| id.to_str().ok()).and_then(|id| id.parse().ok());
    let Some(number) = number else { return StatusCode::BAD_REQUEST };
    arrivals.lock().unwrap_or_else(PoisonError::into_inner).entry(number).or_default().push(Instant::now());
    StatusCode::OK
}
