//! Three servers of NATS in a cluster: their configuration, and their page of streams.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;

use super::tenant::Tenant;
use crate::{Error, reserved::Reserved};

/// Number of servers, and of copies of each stream.
pub(super) const SERVERS: usize = 3;
/// Name of the configuration in the directory of a server.
pub(super) const CONFIGURATION: &str = "server.conf";
/// Prefix of the streams with events.
const STREAMS: &str = "mainstay_events_";

/// A server that is prepared.
pub(super) struct Server {
    /// Its configuration and its data.
    pub directory: PathBuf,
    /// Port of clients.
    pub clients: Reserved,
    /// Port of its monitoring.
    pub monitor: Reserved,
    /// Port of the other servers.
    _route: Reserved,
}

/// Writes the configuration of each server.
pub(super) fn prepare(directory: &Path) -> Result<Vec<Server>, Error> {
    let routes = (0..SERVERS).map(|_| Reserved::new()).collect::<Result<Vec<Reserved>, Error>>()?;
    let ports: Vec<u16> = routes.iter().map(|route| route.port).collect();
    let prepared = |(number, route): (usize, Reserved)| -> Result<Server, Error> {
        let directory = directory.join(format!("nats-{number}"));
        let server = Server { directory, clients: Reserved::new()?, monitor: Reserved::new()?, _route: route };
        fs::create_dir_all(&server.directory).map_err(Error::Directory)?;
        let text = configuration(number, &server, &ports);
        fs::write(server.directory.join(CONFIGURATION), text).map_err(Error::Directory)?;
        Ok(server)
    };
    routes.into_iter().enumerate().map(prepared).collect()
}

/// Returns the configuration, as in `manifests/eventing/nats-server.yaml` without login and TLS.
fn configuration(number: usize, server: &Server, routes: &[u16]) -> String {
    let (port, monitor) = (server.clients.port, server.monitor.port);
    let own = routes[number];
    let all: Vec<String> = routes.iter().map(|route| format!("\"nats://127.0.0.1:{route}\"")).collect();
    format!(
        "server_name: \"nats-{number}\"\n\
         listen: \"127.0.0.1:{port}\"\n\
         http: \"127.0.0.1:{monitor}\"\n\
         jetstream {{ store_dir: \"data\", max_memory_store: 0, max_file_store: 9GB, sync_interval: \"2m\" }}\n\
         cluster {{ name: mainstay, listen: \"127.0.0.1:{own}\", no_advertise: true, routes: [{}] }}\n",
        all.join(", ")
    )
}

/// Returns the number of events that a server has stored, from its page of streams. `None` if it does not have the
/// stream of each namespace, for example while it starts.
pub(super) fn stored(page: &Value) -> Option<u64> {
    let accounts = page["account_details"].as_array().into_iter().flatten();
    let streams = accounts.filter_map(|account| account["stream_detail"].as_array()).flatten();
    let of_events = streams.filter(|stream| stream["name"].as_str().is_some_and(|name| name.starts_with(STREAMS)));
    let numbers = of_events.map(|stream| stream["state"]["messages"].as_u64()).collect::<Option<Vec<u64>>>()?;
    (numbers.len() >= Tenant::ALL.len()).then(|| numbers.iter().sum())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_server_has_the_routes_of_all() {
        let directory = tempfile::tempdir().unwrap();
        let servers = prepare(directory.path()).unwrap();
        assert_eq!(servers.len(), SERVERS);
        let read = |server: &Server| fs::read_to_string(server.directory.join(CONFIGURATION)).unwrap();
        let routes = |text: &str| text.split_once("routes: ").unwrap().1.to_owned();
        let texts: Vec<String> = servers.iter().map(read).collect();
        assert!(texts.iter().all(|text| routes(text) == routes(&texts[0])));
        assert_eq!(texts[0].matches("nats://127.0.0.1:").count(), SERVERS);
        assert!(texts[2].contains(&format!("listen: \"127.0.0.1:{}\"", servers[2].clients.port)), "{}", texts[2]);
    }

    #[test]
    fn events_are_counted_without_dead_letters() {
        let stream = |name: &str, messages: u64| json!({"name": name, "state": {"messages": messages}});
        let streams =
            [stream("mainstay_events_a", 2), stream("mainstay_events_b", 3), stream("mainstay_dead-letters_a", 5)];
        assert_eq!(stored(&json!({"account_details": [{"stream_detail": streams}, {"name": "empty"}]})), Some(5));
        let one = json!({"account_details": [{"stream_detail": [stream("mainstay_events_a", 0)]}]});
        assert_eq!((stored(&one), stored(&json!({}))), (None, None));
    }
}
