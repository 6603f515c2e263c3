//! GET of an object or collection: snapshots, pages and resource versions.
//!
//! The continue token of a page names the snapshot and the last key. Later pages show the collection as of the first
//! page.
//!
//! Not here: the forms of a response (`present`), and waiting for future resource versions.

use super::{Target, decode};
use crate::{
    route::Query,
    selector::Selector,
    server::Server,
    status::{Cause, Status},
    store::{Key, Snapshot, Stored},
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The options of a list or watch.
#[derive(Clone, Debug, Default)]
pub struct ListOptions {
    /// Label and field selectors.
    pub selector: Selector,
    /// Maximum number of objects in a page; 0: all.
    pub limit: usize,
    /// Continue token of the previous page.
    pub continuation: String,
    /// `resourceVersion`; `None` if empty.
    pub version: Option<u64>,
    /// `resourceVersionMatch`.
    pub version_match: String,
}

impl ListOptions {
    /// Parses the parameters of a list; 400 or 422 if they are invalid.
    pub fn parse(target: &Target, query: &Query) -> Result<Self, Status> {
        for number in ["limit", "timeoutSeconds"] {
            let text = query.text(number);
            if !text.is_empty() && text.parse::<i64>().is_err() {
                let why = format!("strconv.ParseInt: parsing \"{text}\": invalid syntax");
                return Err(Status::bad_request(why));
            }
        }
        let selector = Selector::parse(&target.kind, query.text("labelSelector"), query.text("fieldSelector"))?;
        let version = match query.text("resourceVersion") {
            "" => None,
            text => Some(text.parse::<u64>().map_err(|_| bad_version(text, query.flag("watch")))?),
        };
        Ok(Self {
            selector,
            limit: usize::try_from(query.number("limit").unwrap_or(0)).unwrap_or(usize::MAX),
            continuation: query.text("continue").to_owned(),
            version,
            version_match: query.text("resourceVersionMatch").to_owned(),
        })
    }

    /// Fails with 422 if a list does not allow the combination of parameters. Reports all causes.
    pub fn check_list(&self, query: &Query) -> Result<(), Status> {
        let field = "resourceVersionMatch";
        let mut causes = Vec::new();
        let wanted = self.version_match.as_str();
        if !wanted.is_empty() {
            if self.version.is_none() {
                let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
                causes.push(Cause::forbidden(field, why));
            }
            causes.extend(self.continued_match());
            if !matches!(wanted, "Exact" | "NotOlderThan") {
                causes.push(Cause::not_supported(field, &wanted.into(), &["Exact", "NotOlderThan", ""]));
            }
            if wanted == "Exact" && self.version == Some(0) {
                let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
                causes.push(Cause::forbidden(field, why));
            }
        }
        if !query.text("sendInitialEvents").is_empty() {
            causes.push(Cause::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
        }
        refuse(causes)
    }

    /// Fails with 422 if a watch does not allow the combination of parameters. Reports all causes.
    pub fn check_watch(&self, query: &Query) -> Result<(), Status> {
        let field = "resourceVersionMatch";
        let (wanted, mut initial) = (self.version_match.as_str(), !query.text("sendInitialEvents").is_empty());
        // A watch without a version starts with the current objects, as if the client had requested them.
        let implied = !initial && wanted.is_empty() && self.version.is_none_or(|version| version == 0);
        let wanted = if implied { "NotOlderThan" } else { wanted };
        initial |= implied;
        let mut causes = Vec::new();
        if initial && wanted != "NotOlderThan" {
            let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            causes.push(Cause::forbidden(field, why));
        }
        if !wanted.is_empty() {
            if !initial {
                let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
                causes.push(Cause::forbidden(field, why));
            }
            if wanted != "NotOlderThan" {
                causes.push(Cause::not_supported(field, &wanted.into(), &["NotOlderThan"]));
            }
            causes.extend(self.continued_match());
        }
        refuse(causes)
    }

    fn continued_match(&self) -> Option<Cause> {
        let why = "resourceVersionMatch is forbidden when continue is provided";
        (!self.continuation.is_empty()).then(|| Cause::forbidden("resourceVersionMatch", why))
    }

    fn exact(&self) -> Option<u64> {
        let version = self.version.filter(|v| *v > 0)?;
        let exact = self.version_match == "Exact" || self.version_match.is_empty() && self.limit > 0;
        exact.then_some(version)
    }
}

/// Fails with a 422 on ListOptions if there are causes.
fn refuse(causes: Vec<Cause>) -> Result<(), Status> {
    if causes.is_empty() {
        return Ok(());
    }
    Err(Status::invalid("meta.k8s.io", "ListOptions", "", causes))
}

/// Parses the resource version of a GET of one object.
pub fn version_of(query: &Query) -> Result<u64, Status> {
    match query.text("resourceVersion") {
        "" => Ok(0),
        text => text.parse().map_err(|_| bad_version(text, true)),
    }
}

fn bad_version(text: &str, watch: bool) -> Status {
    let cause = format!("strconv.ParseUint: parsing \"{text}\": invalid syntax");
    if watch {
        return Status::new(500, "", format!("resourceVersion: Invalid value: \"{text}\": {cause}"));
    }
    Status::bad_request(format!("invalid resource version: resourceVersion: Invalid value: \"{text}\": {cause}"))
}

/// Returns the 504 for a future resource version.
pub fn too_large(wanted: u64, current: u64) -> Status {
    let mut status =
        Status::new(504, "Timeout", format!("Timeout: Too large resource version: {wanted}, current: {current}"))
            .because(Cause::new("ResourceVersionTooLarge", "", "Too large resource version"));
    status.retry_after = Some(1);
    status
}

/// One page of a collection.
#[derive(Clone, Debug)]
pub struct Page {
    /// Resource version of the snapshot.
    pub rv: u64,
    /// Objects, ordered by namespace and name.
    pub items: Vec<Arc<Stored>>,
    /// Continue token of the next page.
    pub continuation: Option<String>,
    /// Number of objects on the following pages, if known.
    pub remaining: Option<usize>,
}

#[derive(Serialize, Deserialize)]
struct Token {
    /// Resource version of the first page; 0: the newest.
    rv: u64,
    namespace: String,
    name: String,
}

/// Returns one page.
pub fn list(server: &Server, target: &Target, options: &ListOptions) -> Result<Page, Status> {
    let storage = &*target.kind.storage;
    let (snapshot, after) = if options.continuation.is_empty() {
        (first_snapshot(server, storage, options)?, None)
    } else {
        let (snapshot, key) = continued(server, storage, &options.continuation)?;
        if options.version.is_some_and(|v| v != 0) {
            return Err(Status::bad_request("specifying resource version is not allowed when using continue"));
        }
        (snapshot, Some(key))
    };
    Ok(cut(target, options, &snapshot, after.as_ref()))
}

fn first_snapshot(server: &Server, storage: &str, options: &ListOptions) -> Result<Snapshot, Status> {
    match options.exact() {
        None => Ok(server.store().snapshot(storage)),
        Some(version) => {
            let current = server.store().version();
            if version > current {
                return Err(too_large(version, current));
            }
            server
                .store()
                .snapshot_at(storage, version)
                .map_err(|_| Status::new(410, "Expired", "The resourceVersion for the provided list is too old."))
        }
    }
}

fn continued(server: &Server, storage: &str, token: &str) -> Result<(Snapshot, Key), Status> {
    let bytes = URL_SAFE_NO_PAD.decode(token).ok();
    let token: Token = bytes
        .and_then(|b| decode::json(&b).ok())
        .and_then(|value| serde_json::from_value(value).ok())
        .ok_or_else(|| {
        let why = "invalid continue token: continue key is not valid: illegal base64 data at input byte 0";
        Status::bad_request(why)
    })?;
    let key = Key::new(&token.namespace, &token.name);
    if token.rv == 0 {
        return Ok((server.store().snapshot(storage), key));
    }
    server.store().snapshot_at(storage, token.rv).map(|snapshot| (snapshot, key)).map_err(|_| {
        let mut status = Status::new(
            410,
            "Expired",
            "The provided continue parameter is too old to display a consistent list result. You can start a new \
                 list without the continue parameter, or use the continue token in this response to retrieve the \
                 remainder of the results. Continuing with the provided token results in an inconsistent list - \
                 objects that were created, modified, or deleted between the time the first chunk was returned and \
                 now may show up in the list.",
        );
        status.continue_token = Some(encode(&Token { rv: 0, ..token }));
        status
    })
}

fn encode(token: &Token) -> String {
    URL_SAFE_NO_PAD.encode(serde_json::to_vec(token).unwrap_or_default())
}

fn cut(target: &Target, options: &ListOptions, snapshot: &Snapshot, after: Option<&Key>) -> Page {
    let namespace = (!target.namespace.is_empty()).then_some(target.namespace.as_str());
    let limit = if options.limit == 0 { usize::MAX } else { options.limit };
    let mut page = Page { rv: snapshot.rv, items: Vec::new(), continuation: None, remaining: None };
    let mut last: Option<&Key> = None;
    let mut rest = 0;
    for (key, stored) in snapshot.from(namespace, after) {
        if !options.selector.matches(key, stored) {
            continue;
        }
        if page.items.len() < limit {
            page.items.push(stored.clone());
            last = Some(key);
        } else {
            rest += 1;
            if !options.selector.is_empty() {
                break;
            }
        }
    }
    if rest > 0
        && let Some(last) = last
    {
        let token = Token { rv: snapshot.rv, namespace: last.namespace().to_owned(), name: last.name().to_owned() };
        page.continuation = Some(encode(&token));
        page.remaining = options.selector.is_empty().then_some(rest);
    }
    page
}
