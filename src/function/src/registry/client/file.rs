//! Files of a server that is not a registry, such as the index and the archives of a chart repository.
//!
//! Invariant: the login is sent to the origin (scheme, host and port) of the client only.

use bytes::Bytes;
use futures::{StreamExt as _, stream, stream::BoxStream};
use parking_lot::Mutex;
use reqwest::header::{self, HeaderValue};
use reqwest::{Method, Response, StatusCode, Url};
use tokio::time::{Instant, timeout_at};

use super::send::{Ask, host, network};
use super::{Access, Client, Deadlines, Error, Fault, Network, Rights};
use crate::registry::{Login, Scheme};

/// Maximum length of an entity tag, in bytes.
const TAG_BYTES: usize = 1 << 10;

/// A file that a server sends.
pub struct SentFile {
    /// The entity tag of the file.
    pub tag: Option<String>,
    /// The bytes of the file. The last item is an error if the file is longer than the limit.
    pub bytes: BoxStream<'static, Result<Bytes, Fault>>,
}

impl Client {
    /// Returns a client for the files of the server of `url`. Sends no request.
    pub fn of_files(network: Network, url: &Url, login: Option<Login>, deadlines: Deadlines) -> Self {
        let mut origin = url.clone();
        origin.set_path("/");
        let scheme = if url.scheme() == "https" { Scheme::Https } else { Scheme::Http };
        Self {
            network,
            deadlines,
            access: Access { scheme, login, authorities: Vec::new() },
            rights: Rights::Pull,
            origin,
            registry: host(url),
            repository: String::new(),
            mounting: Mutex::default(),
            authorization: Mutex::default(),
        }
    }

    /// Returns a file of at most `limit` bytes; `None` if its entity tag is still `known`.
    ///
    /// # Errors
    /// The server cannot be reached, may not be reached, or refuses the request.
    pub async fn file(&self, url: &Url, known: Option<&str>, limit: u64) -> Result<Option<SentFile>, Error> {
        let mut ask = Ask::new(Method::GET);
        if let Some(known) = known.and_then(|known| HeaderValue::from_str(known).ok()) {
            ask.headers.insert(header::IF_NONE_MATCH, known);
        }
        let answer = async {
            let (response, _) = self.follow(&ask, url, &self.origin, self.basic()?).await?;
            match response.status() {
                StatusCode::NOT_MODIFIED if known.is_some() => Ok(None),
                status if status.is_success() => Ok(Some(response)),
                _ => Err(self.refused(response, "the server").await),
            }
        };
        let response = answer.await.map_err(self.failed("could not read a file from"))?;
        Ok(response.map(|response| SentFile { tag: tag(&response), bytes: limited(response, limit, self.deadlines) }))
    }
}

fn tag(response: &Response) -> Option<String> {
    let tag = response.headers().get(header::ETAG)?.to_str().ok()?;
    (tag.len() <= TAG_BYTES).then(|| tag.to_owned())
}

fn limited(response: Response, limit: u64, deadlines: Deadlines) -> BoxStream<'static, Result<Bytes, Fault>> {
    let end = Instant::now() + deadlines.whole(limit);
    stream::try_unfold((response, 0), move |(mut response, length)| async move {
        let silent = Instant::now() + deadlines.silence;
        let Ok(chunk) = timeout_at(silent.min(end), response.chunk()).await else {
            return Err(Fault::Timeout { after: deadlines.silence, what: "reading a file" });
        };
        let Some(chunk) = chunk.map_err(|error| network(&error))? else { return Ok(None) };
        let length = length + chunk.len() as u64;
        if length > limit {
            return Err(Fault::TooLarge { what: "the file", limit });
        }
        Ok(Some((chunk, (response, length))))
    })
    .boxed()
}
