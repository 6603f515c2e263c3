//! Connects to NATS.
//!
//! Invariant: a login comes from files, so no URL, log line or process list contains a login.

use std::future::ready;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_nats::{ConnectOptions, Event, ServerAddr, jetstream};
use tokio::sync::watch;

/// Timeout for the confirmation of a message, and for other requests, with repetitions.
pub(super) const ANSWER: Duration = Duration::from_secs(10);
/// Files of the directory with the credentials.
const CREDENTIALS: &str = "nats.creds";
const NAMES: [&str; 7] = [CREDENTIALS, "token", "username", "password", "ca.crt", "tls.crt", "tls.key"];

/// The URLs of NATS, and the login.
#[derive(Clone, Debug)]
pub struct Nats {
    /// URLs of the servers, separated by commas.
    pub url: String,
    /// Directory with the credentials: `nats.creds`, or `token`, or `username` and `password`; `ca.crt`, or `tls.crt`
    /// and `tls.key`.
    pub credentials: Option<PathBuf>,
}

/// A connection to NATS.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) context: jetstream::Context,
    /// The number of times that the connection was lost. A response that was pending at that time does not arrive.
    pub(super) losses: watch::Receiver<u64>,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// A URL is not valid.
    #[error("--nats-url: {0}")]
    Address(String),
    /// The directory with the credentials is not valid.
    #[error("--nats-credentials: {}: {why}", path.display())]
    Credentials {
        /// The directory.
        path: PathBuf,
        /// The problem.
        why: String,
    },
    /// A file cannot be read.
    #[error("--nats-credentials: could not read {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        cause: io::Error,
    },
    /// The server does not respond, or refuses the login.
    #[error("could not connect to NATS at {url}")]
    Connect {
        /// The URLs of the servers.
        url: String,
        /// The cause.
        #[source]
        cause: async_nats::ConnectError,
    },
}

/// Parses URLs. A login in a URL is refused, because arguments of a process are visible to other users.
pub(super) fn addresses(url: &str) -> Result<Vec<ServerAddr>, ConnectError> {
    if url.contains('@') {
        let why =
            "an address must not contain a login; store the login in a Secret and set --nats-credentials to its name";
        return Err(ConnectError::Address(why.to_owned()));
    }
    let parse = |one: &str| {
        let parsed = one.trim().parse::<ServerAddr>().ok();
        let wanted = parsed.filter(|parsed| matches!(parsed.scheme(), "nats" | "tls") && !parsed.host().is_empty());
        wanted.ok_or_else(|| {
            ConnectError::Address(format!("{one:?} is not a valid address; write nats://HOST:4222 or tls://HOST:4222"))
        })
    };
    url.split(',').map(parse).collect()
}

impl Nats {
    /// Checks addresses without connecting.
    ///
    /// # Errors
    /// Fails if an address is not valid, or contains a login.
    pub fn check(url: &str) -> Result<(), ConnectError> {
        addresses(url).map(drop)
    }

    /// Connects, or with `is_patient` returns a client that connects as soon as a server responds.
    pub(super) async fn connect(&self, is_patient: bool) -> Result<Connection, ConnectError> {
        // An error means that a provider is installed already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let addresses = addresses(&self.url)?;
        let has_tls = addresses.iter().any(ServerAddr::tls_required);
        let mut options = ConnectOptions::new().name("mainstay-eventing").require_tls(has_tls);
        if let Some(directory) = &self.credentials {
            options = with_credentials(options, directory)?;
        }
        let (counted, losses) = watch::channel(0);
        options = options.event_callback(move |event| {
            if event == Event::Disconnected {
                counted.send_modify(|count| *count += 1);
            }
            log(&event);
            ready(())
        });
        if is_patient {
            options = options.retry_on_initial_connect();
        }
        let client = options.connect(addresses).await;
        let client = client.map_err(|cause| ConnectError::Connect { url: self.url.clone(), cause })?;
        let mut context = jetstream::new(client);
        context.set_timeout(ANSWER);
        Ok(Connection { context, losses })
    }
}

fn log(event: &Event) {
    match event {
        Event::Connected => tracing::info!("NATS is connected"),
        Event::Disconnected => tracing::warn!("NATS is disconnected; events wait until it is back"),
        Event::ServerError(error) => tracing::warn!(%error, "NATS reports an error"),
        Event::ClientError(error) => tracing::warn!(%error, "NATS cannot be reached"),
        _ => {}
    }
}

fn with_credentials(mut options: ConnectOptions, directory: &Path) -> Result<ConnectOptions, ConnectError> {
    let wrong = |why: &str| ConnectError::Credentials { path: directory.to_owned(), why: why.to_owned() };
    let found = NAMES.map(|name| directory.join(name).is_file());
    let [has_creds, has_token, has_user, has_password, has_ca, has_certificate, has_key] = found;
    if !found.contains(&true) {
        return Err(wrong(&format!("there is none of {}", NAMES.join(", "))));
    }
    if has_user != has_password {
        return Err(wrong("set both username and password, or neither"));
    }
    if has_certificate != has_key {
        return Err(wrong("set both tls.crt and tls.key, or neither"));
    }
    if [has_creds, has_token, has_user].into_iter().filter(|has| *has).count() > 1 {
        return Err(wrong("give one login: nats.creds, or token, or username and password"));
    }
    if has_creds {
        let text = read(&directory.join(CREDENTIALS))?;
        options = options.credentials(&text).map_err(|_| wrong("nats.creds is not a NATS credentials file"))?;
    }
    if has_token {
        options = options.token(read(&directory.join("token"))?);
    }
    if has_user {
        let (user, password) = (read(&directory.join("username"))?, read(&directory.join("password"))?);
        options = options.user_and_password(user, password);
    }
    if has_ca {
        options = options.add_root_certificates(directory.join("ca.crt"));
    }
    if has_certificate {
        options = options.add_client_certificate(directory.join("tls.crt"), directory.join("tls.key"));
    }
    Ok(options)
}

/// Reads a file without the newline that editors add at the end.
fn read(path: &Path) -> Result<String, ConnectError> {
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|cause| ConnectError::File { path: path.to_owned(), cause })?;
    Ok(text.trim_end_matches(['\n', '\r']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_servers_without_a_login() {
        for url in ["nats://one:4222", "tls://one:4222,tls://two:4222", "one:4222", "one"] {
            assert!(addresses(url).is_ok(), "{url}");
        }
        for url in ["", "http://one", "ws://one", "nats://me:secret@one", "me:secret@one", "nats://secret@one"] {
            let refusal = addresses(url).unwrap_err().to_string();
            assert!(refusal.starts_with("--nats-url: ") && !refusal.contains("secret"), "{url}: {refusal}");
        }
    }

    #[test]
    fn credentials_are_complete_and_one_login() {
        let check = |files: &[&str], expected: Option<&str>| {
            let room = tempfile::tempdir().unwrap();
            for file in files {
                std::fs::write(room.path().join(file), "secret").unwrap();
            }
            let read =
                with_credentials(ConnectOptions::new(), room.path()).map(drop).map_err(|error| error.to_string());
            match expected {
                None => assert_eq!(read, Ok(()), "{files:?}"),
                Some(part) => {
                    let why = read.unwrap_err();
                    assert!(why.contains(part) && !why.contains("secret"), "{files:?}: {why}");
                }
            }
        };
        check(&["username", "password", "ca.crt"], None);
        check(&["token", "tls.crt", "tls.key"], None);
        check(&["ca.crt"], None);
        check(&[], Some("none of nats.creds"));
        check(&["username"], Some("or neither"));
        check(&["tls.crt"], Some("or neither"));
        check(&["token", "username", "password"], Some("one login"));
        check(&["nats.creds"], Some("not a NATS credentials file"));
    }
}
