//! Reads the log of a container line by line.
//!
//! Invariant: a line has at most 256 KiB. A longer line is cut.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use http_body_util::BodyExt;
use jiff::Timestamp;
use kube::client::Body;

use super::connect::Cluster;
use super::count::Verb;
use super::error::{Attempt, Cause, Error};
use super::kind::{Kind, Scope};
use super::request::Call;
use super::selection::and;

/// Maximum length of a line in bytes.
const LONGEST: usize = 256 << 10;
const TEXT: &str = "application/json, */*";

/// Selects lines of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogOptions {
    /// Name of the container; may be omitted if the pod has only one.
    pub container: Option<String>,
    /// Whether to wait for later lines.
    pub follow: bool,
    /// Whether to read the log of the previous instance of the container.
    pub previous: bool,
    /// Maximum number of lines, counted from the end.
    pub tail: Option<u32>,
    /// Only lines after this time.
    pub since: Option<Timestamp>,
}

impl LogOptions {
    fn add_to(&self, path: &mut String) {
        for (name, value) in [
            ("container", self.container.clone()),
            ("follow", self.follow.then(|| "true".to_owned())),
            ("previous", self.previous.then(|| "true".to_owned())),
            ("tailLines", self.tail.map(|lines| lines.to_string())),
            ("sinceTime", self.since.map(|since| since.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())),
        ] {
            if let Some(value) = value {
                and(path, name, &value);
            }
        }
    }
}

/// Splits bytes into lines. The last line may be incomplete.
#[derive(Default)]
struct Lines {
    whole: VecDeque<String>,
    begun: Vec<u8>,
}

impl Lines {
    fn add(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (text, is_whole) = match piece.split_last() {
                Some((b'\n', text)) => (text, true),
                _ => (piece, false),
            };
            let room = LONGEST.saturating_sub(self.begun.len());
            self.begun.extend_from_slice(&text[..text.len().min(room)]);
            if is_whole {
                self.end();
            }
        }
    }

    fn end(&mut self) {
        let line = std::mem::take(&mut self.begun);
        self.whole.push_back(String::from_utf8_lossy(&line).into_owned());
    }
}

impl Cluster {
    /// Streams the lines of a container's log. Ends with the log or after the first error.
    pub async fn pod_log(
        &self,
        namespace: &str,
        pod: &str,
        options: &LogOptions,
    ) -> Result<BoxStream<'static, Result<String, Error>>, Error> {
        let pods = Kind::fixed("v1", "Pod", "pods", Scope::Namespaced);
        // A followed log may be idle for as long as a watch.
        let verb = if options.follow { Verb::Watch } else { Verb::Get };
        let mut call = Call::object(Attempt::Read, verb, &pods, Some(namespace), pod, Some("log"))?;
        options.add_to(&mut call.path);
        call.accept = TEXT;
        let body = self.open(&call).await?.into_body();
        let start = (Arc::new(call), Some(body), Lines::default());
        Ok(stream::try_unfold(start, |(call, mut body, mut lines)| async move {
            loop {
                if let Some(line) = lines.whole.pop_front() {
                    return Ok(Some((line, (call, body, lines))));
                }
                let Some(open) = &mut body else { return Ok(None) };
                match next(open).await {
                    Some(Ok(bytes)) => lines.add(&bytes),
                    Some(Err(cause)) => return Err(call.failed(cause)),
                    None => {
                        body = None;
                        if !lines.begun.is_empty() {
                            lines.end();
                        }
                    }
                }
            }
        })
        .boxed())
    }
}

async fn next(body: &mut Body) -> Option<Result<Bytes, Cause>> {
    loop {
        match body.frame().await? {
            // A frame without data contains trailers, which are not part of the log.
            Ok(frame) => {
                if let Ok(bytes) = frame.into_data() {
                    return Some(Ok(bytes));
                }
            }
            Err(error) => return Some(Err(Cause::Unreachable(Box::new(error)))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_put_together_and_bounded() {
        let mut lines = Lines::default();
        lines.add(b"one\ntw");
        lines.add(b"o\n\nthree");
        assert_eq!(lines.whole, ["one", "two", ""]);
        lines.end();
        assert_eq!(lines.whole.pop_back().as_deref(), Some("three"));
        for _ in 0..10 {
            lines.add(&vec![b'x'; LONGEST / 4]);
        }
        lines.add(b"\nlast\n");
        assert_eq!(lines.whole.pop_back().as_deref(), Some("last"));
        assert_eq!(lines.whole.pop_back().map(|line| line.len()), Some(LONGEST));
    }

    #[test]
    fn options_become_a_query() {
        let since = Some(Timestamp::UNIX_EPOCH);
        let options = LogOptions { container: Some("a".into()), follow: true, previous: false, tail: Some(3), since };
        let mut path = "/log".to_owned();
        options.add_to(&mut path);
        assert_eq!(path, "/log?container=a&follow=true&tailLines=3&sinceTime=1970-01-01T00%3A00%3A00Z");
        let mut path = "/log".to_owned();
        LogOptions { previous: true, ..LogOptions::default() }.add_to(&mut path);
        assert_eq!(path, "/log?previous=true");
    }
}
