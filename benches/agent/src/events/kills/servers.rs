//! Three servers of NATS in a cluster: their configuration, and their page of streams.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;

use crate::{Error, stand::free_port};

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
    pub port: u16,
    /// Port of its monitoring.
    pub monitor: u16,
}

/// Writes the configuration of each server.
pub(super) fn prepare(directory: &Path) -> Result<Vec<Server>, Error> {
    let routes = (0..SERVERS).map(|_| free_port()).collect::<Result<Vec<u16>, Error>>()?;
    let prepared = |number: usize| -> Result<Server, Error> {
        let server =
            Server { directory: directory.join(format!("nats-{number}")), port: free_port()?, monitor: free_port()? };
        fs::create_dir_all(&server.directory).map_err(Error::Directory)?;
        let text = configuration(number, &server, &routes);
        fs::write(server.directory.join(CONFIGURATION), text).map_err(Error::Directory)?;
        Ok(server)
    };
    (0..SERVERS).map(prepared).collect()
}

/// Returns the configuration, as in `manifests/eventing/nats-server.yaml` without login and TLS.
fn configuration(number: usize, server: &Server, routes: &[u16]) -> String {
    let Server { port, monitor, .. } = server;
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

/// Returns the number of events that a server has stored, from its page of streams.
pub(super) fn stored(page: &Value) -> u64 {
    let accounts = page["account_details"].as_array().into_iter().flatten();
    let streams = accounts.filter_map(|account| account["stream_detail"].as_array()).flatten();
    let of_events = streams.filter(|stream| stream["name"].as_str().is_some_and(|name| name.starts_with(STREAMS)));
    of_events.filter_map(|stream| stream["state"]["messages"].as_u64()).sum()
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
        assert!(texts[2].contains(&format!("listen: \"127.0.0.1:{}\"", servers[2].port)), "{}", texts[2]);
    }

    #[test]
    fn events_are_counted_without_dead_letters() {
        let stream = |name: &str, messages: u64| json!({"name": name, "state": {"messages": messages}});
        let streams =
            [stream("mainstay_events_a", 2), stream("mainstay_events_b", 3), stream("mainstay_dead-letters_a", 5)];
        assert_eq!(stored(&json!({"account_details": [{"stream_detail": streams}, {"name": "empty"}]})), 5);
        assert_eq!(stored(&json!({})), 0);
    }
}
