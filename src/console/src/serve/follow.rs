//! Streams the log of a pod while its lines are written, as server-sent events.
//!
//! Invariant: the pods of the object are read with the permissions of the user before the log of a pod is read.
//! Invariant: a session follows at most [`LOGS`] logs, and a stream has a bounded rate.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt as _};
use tokio::sync::Semaphore;

use super::log::{LINES, Wanted, chosen, pods_by_key, refused};
use super::session::{LOGS, Session};
use super::watched::said;
use crate::text::plain;
use mainstay_cluster::{Cluster, Error, LogOptions};
use mainstay_object::Key;

/// Lines within this time become one message.
const PAUSE: Duration = Duration::from_millis(100);
/// Maximum number of lines of a message.
const AT_ONCE: usize = 200;
/// Maximum size of a line, in bytes.
const LONGEST: usize = 8 << 10;

/// A log to follow.
pub(super) struct Followed {
    /// The object that has the pod.
    pub(super) object: Key,
    pub(super) wanted: Wanted,
}

/// Returns the messages of a log. The stream ends with the log, or with the session.
pub(super) fn follow(session: &Session, followed: Followed) -> impl Stream<Item = Bytes> + Send + 'static {
    let (cluster, permits, stop) = (session.cluster.clone(), Arc::clone(&session.logs), session.stop.clone());
    let messages = async move {
        match open(&cluster, permits, &followed).await {
            Ok(messages) => messages,
            Err(why) => stream::iter([ended(&why)]).boxed(),
        }
    };
    stream::once(messages).flatten().take_until(stop.cancelled_owned())
}

async fn open(
    cluster: &Cluster,
    permits: Arc<Semaphore>,
    followed: &Followed,
) -> Result<BoxStream<'static, Bytes>, String> {
    let permit = permits.try_acquire_owned();
    let permit = permit.map_err(|_| format!("This session follows {LOGS} logs. Close another page with a log."))?;
    let pods = pods_by_key(cluster, &followed.object).await?;
    let found = chosen(&pods, &followed.wanted);
    let (pod, container) = found.ok_or_else(|| "The pod does not exist any more.".to_owned())?;
    let options = LogOptions { container: Some(container), follow: true, tail: Some(LINES), ..LogOptions::default() };
    let namespace = followed.object.namespace.as_deref().unwrap_or_default();
    let lines = cluster.pod_log(namespace, &pod, &options).await.map_err(|error| refused(&error))?;
    let messages = lines.ready_chunks(AT_ONCE).then(move |lines| {
        let _held = &permit;
        async move {
            tokio::time::sleep(PAUSE).await;
            message(&lines)
        }
    });
    let begin = stream::iter([Bytes::from_static(b"event: log-begin\ndata:\n\n")]);
    Ok(begin.chain(messages).chain(stream::iter([ended("The log has ended.")])).boxed())
}

/// Returns lines as one message. A failure becomes a line with its reason.
fn message(lines: &[Result<String, Error>]) -> Bytes {
    let texts = lines.iter().map(|line| match line {
        Ok(line) => plain(line, LONGEST),
        Err(error) => format!("(the log cannot be read further: {})", said(error)),
    });
    event("log", &texts.collect::<Vec<_>>().join("\n"))
}

fn ended(why: &str) -> Bytes {
    event("log-end", why)
}

/// Returns a message. No line of the string can begin another field or another message.
pub(super) fn event(name: &str, text: &str) -> Bytes {
    let lines: Vec<String> = text.split(['\n', '\r']).map(|line| format!("data: {line}")).collect();
    Bytes::from(format!("event: {name}\n{}\n\n", lines.join("\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_log_are_data_of_one_message() {
        let lines =
            [Ok("one".to_owned()), Ok("two\r\n\nevent: change\ndata: x".to_owned()), Ok("\u{1b}[31mred".to_owned())];
        let text = String::from_utf8(message(&lines).to_vec()).unwrap();
        assert_eq!(text, "event: log\ndata: one\ndata: two\ndata: \ndata: event: change\ndata: data: x\ndata: red\n\n");
    }

    #[test]
    fn a_long_line_is_cut() {
        let text = message(&[Ok("x".repeat(LONGEST * 9))]);
        assert!(text.len() < LONGEST + 100, "{}", text.len());
    }
}
