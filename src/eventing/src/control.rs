//! A socket in the data directory. `mainstay eventing replay` requests redelivery of dead letters through it.
//!
//! Every user who may write to the directory may send requests.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::timeout;

use super::attempt::Delivery;
use super::store::Store;
use super::subscriber::SubscriberId;
use super::table::Routed;
use mainstay_object::failure::chain;

/// Maximum size in bytes of a request and of a response.
const LONGEST: u64 = 4096;
/// Timeouts of a request and of its response.
const QUESTION: Duration = Duration::from_secs(5);
const ANSWER: Duration = Duration::from_secs(60);

/// The reason why dead letters are not delivered again.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// No process delivers events from this directory.
    #[error("no process delivers events from {}", path.display())]
    NotRunning {
        /// The directory.
        path: PathBuf,
        /// The cause.
        #[source]
        cause: io::Error,
    },
    /// There was no valid response.
    #[error("the response did not arrive")]
    NoAnswer(#[source] io::Error),
    /// The request was refused, for this reason.
    #[error("{0}")]
    Refused(String),
}

/// Makes the process with this data directory deliver a subscriber's dead letters again. Returns their number.
///
/// # Errors
/// Fails if the process is not running or refuses the request.
pub async fn replay(data: &Path, subscriber: &SubscriberId) -> Result<usize, ReplayError> {
    let stream = UnixStream::connect(place(data)).await;
    let mut stream = stream.map_err(|cause| ReplayError::NotRunning { path: data.to_owned(), cause })?;
    let asking = async {
        stream.write_all(format!("replay {subscriber}\n").as_bytes()).await?;
        let mut answer = String::new();
        (&mut stream).take(LONGEST).read_to_string(&mut answer).await?;
        io::Result::Ok(answer)
    };
    let answer = timeout(ANSWER, asking).await.map_err(io::Error::other).flatten().map_err(ReplayError::NoAnswer)?;
    let answer = answer.trim_end();
    answer.parse().map_err(|_| ReplayError::Refused(answer.to_owned()))
}

fn place(data: &Path) -> PathBuf {
    data.join("control.sock")
}

/// Listens on the socket, after removing the socket of an earlier process.
pub(super) fn listen(data: &Path) -> io::Result<UnixListener> {
    let path = place(data);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&path)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Serves requests one after the other.
pub(super) async fn serve(listener: UnixListener, delivery: Arc<Delivery>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(QUESTION).await;
            continue;
        };
        let mut stream = BufReader::new(stream);
        let mut question = String::new();
        let asked = timeout(QUESTION, (&mut stream).take(LONGEST).read_line(&mut question)).await;
        if !matches!(asked, Ok(Ok(_))) {
            continue;
        }
        let answer = match question.trim_end().strip_prefix("replay ").and_then(SubscriberId::parse) {
            Some(subscriber) => match again(&delivery, &subscriber).await {
                Ok(number) => number.to_string(),
                Err(why) => why,
            },
            None => "this is not understood".to_owned(),
        };
        // An error is ignored, because the client may have disconnected.
        let _ = timeout(QUESTION, stream.write_all(answer.as_bytes())).await;
    }
}

async fn again(delivery: &Delivery, to: &SubscriberId) -> Result<usize, String> {
    let is_there = delivery.table.borrow().as_ref().is_some_and(|table| table.0.contains_key(to));
    if !is_there {
        return Err(format!("there is no {to}"));
    }
    let Store::Log { letters, .. } = &delivery.store else {
        return Err("dead letters are not in this directory".into());
    };
    let (taking, of) = (Arc::clone(letters), to.clone());
    let taken = tokio::task::spawn_blocking(move || taking.take(&of)).await;
    let taken = taken.map_err(io::Error::other).flatten().map_err(|error| format!("could not read them: {error}"))?;
    let number = taken.len();
    for event in taken.into_iter().filter_map(super::dead_letters::DeadLetter::event) {
        let routed = Routed { event, to: vec![to.clone()], ordered: Vec::new() };
        delivery.store.publish(vec![routed], true).await.map_err(|refused| chain(&refused))?;
    }
    let (letters, of) = (Arc::clone(letters), to.clone());
    let done = tokio::task::spawn_blocking(move || letters.done(&of)).await;
    done.map_err(io::Error::other)
        .flatten()
        .map_err(|error| format!("the dead letters could not be removed: {error}"))?;
    Ok(number)
}
