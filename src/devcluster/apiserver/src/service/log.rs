//! `GET …/pods/x/log`: the output of a container.
//!
//! A simulated container has one line of output, which states the container's name.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http::Response;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::respond;
use crate::body::Body;
use crate::kubelet::ContainerLog;
use crate::kubelet::log::{Entry, Position, entries};
use crate::route::Query;
use crate::server::Server;
use crate::status::Status;
use crate::verbs::{self, Target};

/// The options of a log request.
struct Wanted {
    since: Option<String>,
    tail: Option<usize>,
    limit: usize,
    timestamps: bool,
}

impl Wanted {
    /// Parses the parameters; 400 for values that a real server refuses.
    fn parse(query: &Query, now: Timestamp) -> Result<Self, Status> {
        let number = |name: &str, least: i64| match query.text(name) {
            "" => Ok(None),
            given => match given.parse::<i64>() {
                Ok(number) if number >= least => Ok(Some(number)),
                Ok(_) => Err(Status::bad_request(format!("{name}: must be greater than or equal to {least}"))),
                Err(_) => Err(Status::bad_request(format!("strconv.ParseInt: parsing {given:?}: invalid syntax"))),
            },
        };
        let after = number("sinceSeconds", 1)?.and_then(|s| now.checked_sub(SignedDuration::from_secs(s)).ok());
        let time = query.text("sinceTime");
        let given = if time.is_empty() { None } else { Some(time.parse::<Timestamp>()) };
        let given = given.transpose().map_err(|_| Status::bad_request(format!("sinceTime: {time:?} is no time")))?;
        if after.is_some() && given.is_some() {
            return Err(Status::bad_request("at most one of sinceTime or sinceSeconds may be specified"));
        }
        let size = |number: i64| usize::try_from(number).unwrap_or(usize::MAX);
        Ok(Self {
            since: after.or(given).map(|since| format!("{since:.9}")),
            tail: number("tailLines", 0)?.map(size),
            limit: number("limitBytes", 1)?.map_or(usize::MAX, size),
            timestamps: query.flag("timestamps"),
        })
    }

    fn written(&self, stored: &[u8]) -> Bytes {
        let new = |entry: &Entry<'_>| self.since.as_deref().is_none_or(|since| entry.time >= since);
        let mut out = Vec::new();
        for entry in entries(stored).filter(new) {
            if self.timestamps {
                out.extend_from_slice(entry.time.as_bytes());
                out.push(b' ');
            }
            out.extend(entry.text());
        }
        out.into()
    }

    /// Returns the last lines of the stored log, if `tailLines` is set.
    fn end<'a>(&self, stored: &'a [u8]) -> &'a [u8] {
        let Some(tail) = self.tail else { return stored };
        let mut starts = VecDeque::new();
        let mut at = 0;
        for line in stored.split_inclusive(|byte| *byte == b'\n') {
            starts.push_back(at);
            at += line.len();
            if starts.len() > tail {
                starts.pop_front();
            }
        }
        &stored[starts.front().copied().unwrap_or(stored.len())..]
    }
}

/// Returns the log of a pod's container.
pub(super) fn answer(server: &Server, target: &Target, query: &Query) -> Result<Response<Body>, Status> {
    let stored = server.store().get(&target.kind.storage, &target.key()).ok_or_else(|| target.not_found())?;
    let pod = stored.value();
    let container = container(&pod, query.text("container"))?;
    let wanted = Wanted::parse(query, server.now())?;
    let previous = query.flag("previous");
    let Some(kubelet) = server.kubelet(&pod) else {
        return simulated(server, target, &pod, &container, &wanted, query);
    };
    let log = kubelet.log(verbs::text(&pod, "/metadata/uid"), &container);
    let Some((log, (all, position))) = log.and_then(|log| log.read(previous).map(|read| (log, read))) else {
        return Err(unwritten(&pod, &container, previous));
    };
    let mut first = wanted.written(wanted.end(&all));
    first.truncate(wanted.limit);
    if !query.flag("follow") || previous {
        return Ok(respond::text(200, first));
    }
    let left = wanted.limit - first.len();
    Ok(respond::text_stream(follow(log, position, wanted, first, left)))
}

fn follow(
    log: Arc<dyn ContainerLog>,
    position: Position,
    wanted: Wanted,
    first: Bytes,
    left: usize,
) -> impl futures::Stream<Item = Bytes> + Send + 'static {
    let changes = log.changes();
    let state = (log, position, wanted, changes, Some(first), left, true);
    stream::unfold(state, |(log, mut position, wanted, mut changes, first, mut left, mut open)| async move {
        if let Some(first) = first.filter(|first| !first.is_empty()) {
            return Some((first, (log, position, wanted, changes, None, left, open)));
        }
        while open && left > 0 {
            changes.borrow_and_update();
            let (stored, more) = log.more(&mut position);
            open = more;
            let mut text = wanted.written(&stored);
            text.truncate(left);
            left -= text.len();
            if !text.is_empty() {
                return Some((text, (log, position, wanted, changes, None, left, open)));
            }
            if open && changes.changed().await.is_err() {
                return None;
            }
        }
        None
    })
}

fn simulated(
    server: &Server,
    target: &Target,
    pod: &Value,
    container: &str,
    wanted: &Wanted,
    query: &Query,
) -> Result<Response<Body>, Status> {
    if query.flag("previous") || !has_begun(pod, container) {
        return Err(unwritten(pod, container, query.flag("previous")));
    }
    let (namespace, name) = (verbs::text(pod, "/metadata/namespace"), verbs::text(pod, "/metadata/name"));
    let started = match verbs::text(pod, "/status/startTime") {
        "" => verbs::text(pod, "/metadata/creationTimestamp"),
        time => time,
    };
    let stored = format!("{started} stdout F {container} of {namespace}/{name}\n").into_bytes();
    let mut text = wanted.written(wanted.end(&stored));
    text.truncate(wanted.limit);
    if !query.flag("follow") {
        return Ok(respond::text(200, text));
    }
    let (server, target, container) = (server.clone(), target.clone(), container.to_owned());
    let uid = verbs::text(pod, "/metadata/uid").to_owned();
    let end = stream::once(async move {
        let mut changes = server.store().signal_all();
        loop {
            changes.borrow_and_update();
            let stored = server.store().get(&target.kind.storage, &target.key()).map(|stored| stored.value());
            let same = stored.filter(|pod| verbs::text(pod, "/metadata/uid") == uid);
            if !same.is_some_and(|pod| is_running(&pod, &container)) || changes.changed().await.is_err() {
                return Bytes::new();
            }
        }
    });
    Ok(respond::text_stream(stream::iter([text]).chain(end).filter(|text| std::future::ready(!text.is_empty()))))
}

fn states<'a>(pod: &'a Value, container: &'a str) -> impl Iterator<Item = &'a Value> {
    let lists = ["initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"];
    let all = lists.into_iter().flat_map(|list| pod["status"][list].as_array().into_iter().flatten());
    all.filter(move |status| status["name"] == container).map(|status| &status["state"])
}

fn has_begun(pod: &Value, container: &str) -> bool {
    states(pod, container).any(|state| state["running"].is_object() || state["terminated"].is_object())
}

pub(super) fn is_running(pod: &Value, container: &str) -> bool {
    states(pod, container).any(|state| state["running"].is_object())
}

/// Returns the name of the requested container, or of the only container.
pub(super) fn container(pod: &Value, wanted: &str) -> Result<String, Status> {
    let name = verbs::text(pod, "/metadata/name");
    let names = |list: &str| -> Vec<String> {
        let containers = pod["spec"][list].as_array().into_iter().flatten();
        containers.filter_map(|container| container["name"].as_str()).map(str::to_owned).collect()
    };
    let (init, main) = (names("initContainers"), names("containers"));
    if !wanted.is_empty() {
        let known = init.iter().chain(&main).chain(&names("ephemeralContainers")).any(|name| name == wanted);
        let refuse = || Status::bad_request(format!("container {wanted} is not valid for pod {name}"));
        return if known { Ok(wanted.to_owned()) } else { Err(refuse()) };
    }
    if let [only] = main.as_slice() {
        return Ok(only.clone());
    }
    let mut message = format!("a container name must be specified for pod {name}, choose one of: [{}]", main.join(" "));
    if !init.is_empty() {
        message.push_str(&format!(" or one of the init containers: [{}]", init.join(" ")));
    }
    Err(Status::bad_request(message))
}

/// Returns the error for a container without output, because it has not run.
fn unwritten(pod: &Value, container: &str, previous: bool) -> Status {
    let name = verbs::text(pod, "/metadata/name");
    if previous {
        return Status::bad_request(format!(
            "previous terminated container \"{container}\" in pod \"{name}\" not found"
        ));
    }
    let lists = ["initContainerStatuses", "containerStatuses"];
    let mut all = lists.into_iter().flat_map(|list| pod["status"][list].as_array().into_iter().flatten());
    let status = all.find(|status| status["name"] == container);
    let reason = status.map_or("ContainerCreating", |status| verbs::text(status, "/state/waiting/reason"));
    Status::bad_request(format!("container \"{container}\" in pod \"{name}\" is waiting to start: {reason}"))
}
