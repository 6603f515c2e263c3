//! Renders objects, pages and events in the form that a client accepts: whole, metadata only, or as a Table.
//!
//! Invariant: items of built-in lists have no `kind` and `apiVersion`; items of custom lists have both.
//!
//! Not here: the columns of Tables (`columns`).

use crate::{
    columns::{self, Include},
    kinds::table::Kind,
    media,
    status::Status,
    store::{Stored, serialise},
    verbs::{json_as, read::Page, value_as},
};
use bytes::Bytes;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

/// The form of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The object or list itself.
    Whole,
    /// `PartialObjectMetadata`.
    Metadata,
    /// `PartialObjectMetadataList`.
    MetadataList,
    /// `Table`, with this part of each object.
    Table(Include),
}

/// The routes of a built-in kind, which differ in their media types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// One object.
    Object,
    /// A list or a watch.
    Collection,
}

impl Route {
    /// Fails with 406 if the route offers no media type of `Accept`. Checked before the kind.
    ///
    /// Custom resources have no such check.
    pub fn check(self, accept: &str) -> Result<(), Status> {
        let offered = ["", "*/*", "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];
        let media = |clause: &str| clause.split(';').next().unwrap_or_default().trim().to_owned();
        if accept.split(',').any(|clause| offered.contains(&media(clause).as_str())) {
            return Ok(());
        }
        let streams = match self {
            Self::Object => "",
            Self::Collection => ", application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch",
        };
        let text = format!("406: Not Acceptable\n\nAvailable representations: {}{streams}", offered[2..].join(", "));
        Err(Status::new(406, "NotAcceptable", text).unspecific())
    }
}

impl Form {
    /// Parses `Accept`. The first supported clause is used; 406 if there is none.
    pub fn of(accept: &str, include: &str) -> Result<Self, Status> {
        if accept.is_empty() {
            return Ok(Self::Whole);
        }
        for clause in media::clauses(accept).iter().filter(|clause| clause.is_met()) {
            let parameter = |name: &str| clause.parameter(name);
            match (parameter("as"), parameter("g")) {
                ("", _) => return Ok(Self::Whole),
                (_, "meta.k8s.io") if !matches!(parameter("v"), "v1" | "") => {}
                ("Table", "meta.k8s.io") => {
                    return Ok(Self::Table(match include {
                        "None" => Include::None,
                        "Object" => Include::Object,
                        _ => Include::Metadata,
                    }));
                }
                ("PartialObjectMetadata", "meta.k8s.io") => return Ok(Self::Metadata),
                ("PartialObjectMetadataList", "meta.k8s.io") => return Ok(Self::MetadataList),
                _ => {}
            }
        }
        Err(not_acceptable())
    }
}

/// Returns the 406 for an unsupported `Accept`.
pub fn not_acceptable() -> Status {
    Status::new(
        406,
        "NotAcceptable",
        "only the following media types are accepted: application/json, application/yaml, \
         application/vnd.kubernetes.protobuf",
    )
}

/// Returns the 406 for a watch in a form that cannot be streamed.
pub fn not_streamed() -> Status {
    Status::new(
        406,
        "NotAcceptable",
        "only the following media types are accepted: application/json;stream=watch, \
         application/vnd.kubernetes.protobuf;stream=watch",
    )
}

/// Returns the Go type of a kind's objects in a real server.
fn go_type(kind: &Kind, name: &str) -> String {
    match (kind.custom.is_some(), name == kind.list_kind) {
        (true, false) => "*unstructured.Unstructured".to_owned(),
        (true, true) => "*unstructured.UnstructuredList".to_owned(),
        _ => format!("*{}.{name}", kind.package()),
    }
}

/// Renders one object.
pub fn object(kind: &Kind, stored: &Stored, form: Form, now: Timestamp) -> Result<Bytes, Status> {
    match form {
        Form::Whole => Ok(json_as(kind, stored)),
        Form::Metadata => Ok(Bytes::from(metadata(&value_as(kind, stored)).to_string())),
        Form::MetadataList => Err(Status::new(
            406,
            "NotAcceptable",
            format!(
                "you requested PartialObjectMetadataList, but the requested object is not a list ({})",
                go_type(kind, &kind.kind)
            ),
        )),
        Form::Table(include) => {
            let value = value_as(kind, stored);
            let mut table = table(kind, &[&value], include, now);
            table["metadata"] = json!({"resourceVersion": stored.rv.to_string()});
            Ok(Bytes::from(table.to_string()))
        }
    }
}

/// Returns the `PartialObjectMetadata` of an object.
pub fn metadata(object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
}

/// Returns a Table of objects, without list metadata.
pub fn table(kind: &Kind, objects: &[&Value], include: Include, now: Timestamp) -> Value {
    let custom = kind.custom.as_ref().map(|c| c.columns.as_deref().unwrap_or(&[]));
    columns::table(&kind.columns_path(), custom, objects, include, now)
}

/// Renders one page of a collection.
pub fn page(kind: &Kind, page: &Page, form: Form, now: Timestamp) -> Result<Bytes, Status> {
    match form {
        Form::Whole => Ok(whole(kind, page)),
        Form::Metadata => Err(Status::new(
            406,
            "NotAcceptable",
            format!(
                "you requested PartialObjectMetadata, but the requested object is a list ({})",
                go_type(kind, &kind.list_kind)
            ),
        )),
        Form::MetadataList => {
            let items = page.items.iter().map(|stored| Bytes::from(metadata(&value_as(kind, stored)).to_string()));
            let items: Vec<Bytes> = items.collect();
            let items: Vec<Item<'_>> = items.iter().map(|json| (&b""[..], &json[..])).collect();
            Ok(join("PartialObjectMetadataList", "meta.k8s.io/v1", list_metadata(page), &items))
        }
        Form::Table(include) => {
            let values: Vec<_> = page.items.iter().map(|stored| value_as(kind, stored)).collect();
            let values: Vec<&Value> = values.iter().map(|v| &**v).collect();
            let mut table = table(kind, &values, include, now);
            table["metadata"] = list_metadata(page);
            Ok(Bytes::from(table.to_string()))
        }
    }
}

/// An item as two adjacent pieces of JSON.
type Item<'a> = (&'a [u8], &'a [u8]);

fn whole(kind: &Kind, page: &Page) -> Bytes {
    let bare = kind.custom.is_none();
    if !page.items.iter().all(|stored| kind.shows_as_stored(stored)) {
        let items: Vec<(Bytes, usize)> =
            page.items.iter().map(|stored| serialise(&kind.api_version, &kind.kind, &value_as(kind, stored))).collect();
        let items: Vec<Item<'_>> = items
            .iter()
            .map(|(json, rest)| if bare { (&b"{"[..], &json[*rest..]) } else { (&b""[..], &json[..]) })
            .collect();
        return join(&kind.list_kind, &kind.api_version, whole_metadata(kind, page), &items);
    }
    let whole: Vec<Bytes> = if bare { Vec::new() } else { page.items.iter().map(|stored| stored.json()).collect() };
    let items: Vec<Item<'_>> = if bare {
        page.items.iter().map(|stored| (&b"{"[..], stored.rest())).collect()
    } else {
        whole.iter().map(|json| (&b""[..], &json[..])).collect()
    };
    join(&kind.list_kind, &kind.api_version, whole_metadata(kind, page), &items)
}

/// Returns the metadata of a list. On the last page, lists of custom resources have an empty `continue`.
fn whole_metadata(kind: &Kind, page: &Page) -> Value {
    let mut metadata = list_metadata(page);
    if kind.custom.is_some() && page.continuation.is_none() {
        metadata["continue"] = "".into();
    }
    metadata
}

fn list_metadata(page: &Page) -> Value {
    let mut metadata = Map::new();
    metadata.insert("resourceVersion".to_owned(), page.rv.to_string().into());
    if let Some(token) = &page.continuation {
        metadata.insert("continue".to_owned(), token.clone().into());
    }
    if let Some(remaining) = page.remaining {
        metadata.insert("remainingItemCount".to_owned(), remaining.into());
    }
    Value::Object(metadata)
}

fn join(kind: &str, api_version: &str, metadata: Value, items: &[Item<'_>]) -> Bytes {
    let size: usize = items.iter().map(|(a, b)| a.len() + b.len() + 1).sum();
    let mut out = Vec::with_capacity(size + 256);
    let head = json!({"kind": kind, "apiVersion": api_version, "metadata": metadata}).to_string();
    out.extend_from_slice(&head.as_bytes()[..head.len() - 1]);
    out.extend_from_slice(b",\"items\":[");
    for (at, (a, b)) in items.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        out.extend_from_slice(a);
        out.extend_from_slice(b);
    }
    out.extend_from_slice(b"]}");
    Bytes::from(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(accept: &str, expected: Option<Form>) {
        assert_eq!(Form::of(accept, "").ok(), expected, "{accept}");
    }

    #[test]
    fn takes_the_first_acceptable_clause() {
        check("", Some(Form::Whole));
        check("application/vnd.kubernetes.protobuf,application/json", Some(Form::Whole));
        check("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", Some(Form::Table(Include::Metadata)));
        check("application/json;as=Unknown;v=v1;g=meta.k8s.io,*/*;q=0.1", Some(Form::Whole));
        check("application/xml", None);
        check("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", Some(Form::Metadata));
    }
}
