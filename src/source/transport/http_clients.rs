//! The clients of HTTP, one for each kind of connection that is in use.
//!
//! Invariant: a client goes from memory, with its certificates, with the last remote that uses it; only the one with
//! nothing special is kept.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, Weak};

use super::http::Http;
use super::names::Names;
use crate::source::error::Fault;
use crate::source::remote::lock;
use crate::source::{Connection, Deadlines};

/// Where a remote keeps its client.
pub(in crate::source) type ClientPlace = Mutex<Option<Arc<Http>>>;

/// All clients.
#[derive(Debug)]
pub(in crate::source) struct HttpClients {
    deadlines: Deadlines,
    names: Names,
    usual: OnceLock<Arc<Http>>,
    others: Mutex<HashMap<Connection, Weak<Http>>>,
}

impl HttpClients {
    pub(in crate::source) fn new(deadlines: Deadlines, names: Names) -> Self {
        Self { deadlines, names, usual: OnceLock::new(), others: Mutex::default() }
    }

    /// The client for a remote's connection, which keeps it in its place.
    pub(in crate::source) fn get(&self, connection: &Connection, place: &ClientPlace) -> Result<Arc<Http>, Fault> {
        if *connection == Connection::default() {
            return self.usual();
        }
        if let Some(kept) = &*lock(place) {
            return Ok(Arc::clone(kept));
        }
        let known = lock(&self.others).get(connection).and_then(Weak::upgrade);
        let client = match known {
            Some(client) => client,
            None => Arc::new(Http::new(self.deadlines, &self.names, connection)?),
        };
        let mut others = lock(&self.others);
        others.retain(|_, client| client.strong_count() > 0);
        others.insert(connection.clone(), Arc::downgrade(&client));
        *lock(place) = Some(Arc::clone(&client));
        Ok(client)
    }

    fn usual(&self) -> Result<Arc<Http>, Fault> {
        if let Some(usual) = self.usual.get() {
            return Ok(Arc::clone(usual));
        }
        let usual = Arc::new(Http::new(self.deadlines, &self.names, &Connection::default())?);
        Ok(Arc::clone(self.usual.get_or_init(|| usual)))
    }
}
