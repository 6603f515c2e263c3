//! A server in place of each subscriber, which accounts for the deliveries.

use std::{net::SocketAddr, sync::Arc};

use axum::{Router, extract::State};
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use parking_lot::Mutex;
use tokio::{net::TcpListener, task::JoinSet};

use super::{
    event::{CONTENT, Ids},
    tally::Tally,
    tenant::Tenant,
};
use crate::Error;

/// The servers. They end when this is dropped.
pub(super) struct Subscribers {
    /// The address of each.
    pub addresses: Vec<(Tenant, SocketAddr)>,
    _tasks: JoinSet<()>,
}

/// The state of a server.
#[derive(Clone)]
struct Subscriber {
    tenant: Tenant,
    ids: Ids,
    tally: Arc<Mutex<Tally>>,
}

impl Subscribers {
    /// Starts the servers.
    pub(super) async fn start(ids: Ids, tally: &Arc<Mutex<Tally>>) -> Result<Self, Error> {
        let (mut addresses, mut tasks) = (Vec::new(), JoinSet::new());
        for tenant in Tenant::ALL {
            let listener = TcpListener::bind("127.0.0.1:0").await.map_err(Error::Start)?;
            addresses.push((tenant, listener.local_addr().map_err(Error::Start)?));
            let app = Router::new().fallback(take).with_state(Subscriber { tenant, ids, tally: Arc::clone(tally) });
            tasks.spawn(async move {
                // It ends when it is aborted.
                let _ = axum::serve(listener, app).await;
            });
        }
        Ok(Self { addresses, _tasks: tasks })
    }
}

/// Takes an event with its data. An event with other data is unknown.
async fn take(State(subscriber): State<Subscriber>, headers: HeaderMap, data: Bytes) -> StatusCode {
    let number = headers.get("ce-id").and_then(|id| subscriber.ids.number(id.to_str().ok()?));
    let number = number.filter(|_| data[..] == CONTENT[..]);
    subscriber.tally.lock().deliver(subscriber.tenant, number)
}
