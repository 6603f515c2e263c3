//! Parses the body of a delivery into a [`Push`]: the named repositories, and their moved references. There is one
//! function per host.
//!
//! Invariant: parsing N bytes takes a small multiple of N bytes of memory. Unused fields are skipped, and only the
//! beginning of a list is kept.
//!
//! Not here: authentication, and the meaning of addresses.

use std::fmt;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use bounded_json::{Bounds, Unreadable};
use jiff::Timestamp;
use percent_encoding::percent_decode;
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::{Map, Value};

use super::bounded::Bounded;
use mainstay_api::ReceiverType;

/// Maximum size of a body, in bytes.
pub const MAX_BODY: usize = 3 << 20;
/// Payloads of hosts have about one JSON value per twenty bytes.
const BOUNDS: Bounds = Bounds::new(MAX_BODY, MAX_BODY / 2);
/// Maximum number of values of a body that is read as a whole, for expressions. They take up to 16 MiB, so the caller reads
/// one body at a time. A push of 2,048 commits, the most that GitHub lists, has about half as many.
pub(super) const MAX_VALUES: usize = 1 << 18;
const BOUNDS_OF_ALL: Bounds = Bounds::new(MAX_BODY, MAX_VALUES);

/// The content of a delivery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Push {
    /// URLs of the repository as the host writes them, or `project/name` if the host sends no URL.
    pub(super) named: Vec<String>,
    /// The moved references.
    pub(super) moved: Moved,
    /// Full name of the default branch, if the host sends it.
    pub(super) default_branch: Option<String>,
    /// The event, if the body names it.
    pub(super) event: Option<String>,
}

/// The references that have moved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Moved {
    /// Possibly all references.
    #[default]
    Any,
    /// The references with these full names.
    Named(Vec<String>),
}

/// The reason why a body cannot be parsed. The text quotes no part of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Malformed {
    /// The body is not JSON, or does not have the documented form.
    #[error("the body is not a payload of this type of host: line {line}, column {column}")]
    Json {
        /// Line.
        line: usize,
        /// Column.
        column: usize,
    },
    /// The body has more values, or deeper nesting, than any host sends.
    #[error("the body has more values, or is nested deeper, than the payload of any host")]
    TooMuch,
    /// The body lacks something that every sender of this type sends.
    #[error("the body is not a payload of this type of host: {0}")]
    Lacking(&'static str),
    /// The form has no field `payload`.
    #[error("the form has no field `payload`; let the host send JSON")]
    Form,
}

impl From<Unreadable> for Malformed {
    fn from(unreadable: Unreadable) -> Self {
        match unreadable {
            Unreadable::Malformed(error) => Self::Json { line: error.line(), column: error.column() },
            Unreadable::TooLong(_) | Unreadable::TooManyValues(_) | Unreadable::TooDeep(_) => Self::TooMuch,
        }
    }
}

/// Parses a body. Returns `None` for types of hosts that send no repository: any repository may have changed.
pub(super) fn read(kind: ReceiverType, body: &[u8]) -> Result<Option<Push>, Malformed> {
    match kind {
        ReceiverType::Github | ReceiverType::Gitea => github(body).map(Some),
        ReceiverType::Gitlab => gitlab(body).map(Some),
        ReceiverType::Bitbucket => bitbucket(body).map(Some),
        ReceiverType::AzureDevops => azure_devops(body).map(Some),
        ReceiverType::GenericHmac => Ok(generic(body)),
        ReceiverType::Gcr => gcr(body).map(|()| None),
        ReceiverType::Cdevents => cdevent(body).map(|()| None),
        ReceiverType::Generic
        | ReceiverType::GenericOidc
        | ReceiverType::Dockerhub
        | ReceiverType::Quay
        | ReceiverType::Acr
        | ReceiverType::Harbor
        | ReceiverType::Nexus => Ok(None),
    }
}

/// Returns the body in the field `payload` of a form: the bytes that the host has signed. The body is not larger than the
/// form, also if the form is not valid UTF-8.
pub(super) fn of_form(form: &[u8]) -> Result<Vec<u8>, Malformed> {
    let field = form.split(|byte| *byte == b'&').find_map(|field| field.strip_prefix(b"payload="));
    let with_spaces = field.ok_or(Malformed::Form)?.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte });
    Ok(percent_decode(&with_spaces.collect::<Vec<_>>()).collect())
}

/// Parses a body that is a JSON object, with all its fields.
pub(super) fn map(body: &[u8]) -> Result<Value, Malformed> {
    Ok(Value::Object(BOUNDS_OF_ALL.read::<Map<String, Value>>(body)?))
}

fn json<T: DeserializeOwned>(body: &[u8]) -> Result<T, Malformed> {
    Ok(BOUNDS.read(body)?)
}

/// Parses payloads of GitHub, Gitea and Forgejo.
fn github(body: &[u8]) -> Result<Push, Malformed> {
    #[derive(Deserialize)]
    struct Body {
        r#ref: Option<String>,
        ref_type: Option<String>,
        repository: Option<Repository>,
    }
    #[derive(Deserialize)]
    struct Repository {
        clone_url: Option<String>,
        ssh_url: Option<String>,
        git_url: Option<String>,
        html_url: Option<String>,
        default_branch: Option<String>,
    }
    let Body { r#ref, ref_type, repository } = json(body)?;
    // The events `create` and `delete` name a branch or a tag; the event `push` names a full reference.
    let moved = match (r#ref, ref_type.as_deref()) {
        (Some(name), _) if name.starts_with("refs/") => Moved::Named(vec![name]),
        (Some(name), Some("branch")) => Moved::Named(vec![branch(&name)]),
        (Some(name), Some("tag")) => Moved::Named(vec![tag(&name)]),
        _ => Moved::Any,
    };
    let Some(repository) = repository else { return Ok(Push { moved, ..Push::default() }) };
    let named = [repository.clone_url, repository.ssh_url, repository.git_url, repository.html_url];
    let default_branch = repository.default_branch.as_deref().map(branch);
    Ok(Push { named: named.into_iter().flatten().collect(), moved, default_branch, event: None })
}

/// Parses payloads of GitLab: hooks of projects and groups, and system hooks.
fn gitlab(body: &[u8]) -> Result<Push, Malformed> {
    #[derive(Deserialize)]
    struct Body {
        event_name: Option<String>,
        r#ref: Option<String>,
        refs: Option<Bounded<String>>,
        project: Option<Project>,
        repository: Option<Repository>,
    }
    #[derive(Deserialize)]
    struct Project {
        git_http_url: Option<String>,
        git_ssh_url: Option<String>,
        web_url: Option<String>,
        default_branch: Option<String>,
    }
    #[derive(Deserialize)]
    struct Repository {
        git_http_url: Option<String>,
        git_ssh_url: Option<String>,
        homepage: Option<String>,
    }
    let Body { event_name, r#ref, refs, project, repository } = json(body)?;
    let moved = match (r#ref.filter(|name| name.starts_with("refs/")), refs) {
        (Some(name), _) => Moved::Named(vec![name]),
        (None, Some(refs)) => named(refs, Some),
        (None, None) => Moved::Any,
    };
    let mut push = Push { moved, event: event_name, ..Push::default() };
    if let Some(project) = project {
        push.default_branch = project.default_branch.as_deref().map(branch);
        push.named.extend([project.git_http_url, project.git_ssh_url, project.web_url].into_iter().flatten());
    }
    if let Some(repository) = repository {
        let addresses = [repository.git_http_url, repository.git_ssh_url, repository.homepage];
        push.named.extend(addresses.into_iter().flatten());
    }
    Ok(push)
}

/// A payload of Bitbucket. Cloud sends `push`, Data Center sends `changes`.
#[derive(Deserialize)]
struct BitbucketBody {
    push: Option<BitbucketChanges>,
    #[serde(default)]
    changes: Option<Bounded<BitbucketChange>>,
    repository: Option<BitbucketRepository>,
}

#[derive(Deserialize)]
struct BitbucketChanges {
    changes: Option<Bounded<CloudChange>>,
}

#[derive(Deserialize)]
struct CloudChange {
    new: Option<CloudReference>,
    old: Option<CloudReference>,
}

#[derive(Deserialize)]
struct CloudReference {
    r#type: Option<String>,
    name: Option<String>,
}

#[derive(Deserialize)]
struct BitbucketChange {
    r#ref: Option<DataCenterReference>,
}

#[derive(Deserialize)]
struct DataCenterReference {
    id: Option<String>,
}

#[derive(Deserialize)]
struct BitbucketRepository {
    links: Option<BitbucketLinks>,
    slug: Option<String>,
    project: Option<BitbucketProject>,
}

#[derive(Deserialize)]
struct BitbucketLinks {
    html: Option<BitbucketLink>,
    clone: Option<Bounded<BitbucketLink>>,
}

#[derive(Deserialize)]
struct BitbucketLink {
    href: Option<String>,
}

#[derive(Deserialize)]
struct BitbucketProject {
    key: Option<String>,
}

/// Parses payloads of Bitbucket Cloud (`repo:push`) and Data Center (`repo:refs_changed`).
fn bitbucket(body: &[u8]) -> Result<Push, Malformed> {
    let BitbucketBody { push, changes, repository } = json(body)?;
    let moved = match (push.and_then(|push| push.changes), changes) {
        (Some(changes), _) => {
            let full = |reference: CloudReference| {
                let name = reference.name?;
                let is_tag = reference.r#type.is_some_and(|kind| kind == "tag" || kind == "annotated_tag");
                Some(if is_tag { tag(&name) } else { branch(&name) })
            };
            named(changes, |change| full(change.new.or(change.old)?))
        }
        (None, Some(changes)) => named(changes, |change| change.r#ref?.id),
        (None, None) => Moved::Any,
    };
    let mut push = Push { moved, ..Push::default() };
    let Some(BitbucketRepository { links, slug, project }) = repository else { return Ok(push) };
    if let Some(BitbucketLinks { html, clone }) = links {
        let links = html.into_iter().chain(clone.unwrap_or_default().items);
        push.named.extend(links.filter_map(|link| link.href));
    }
    // By default, Data Center sends no URL.
    if let (true, Some(slug), Some(key)) = (push.named.is_empty(), slug, project.and_then(|project| project.key)) {
        push.named.push(format!("{key}/{slug}"));
    }
    Ok(push)
}

/// Parses payloads of Azure DevOps: service hooks of the event `git.push`.
fn azure_devops(body: &[u8]) -> Result<Push, Malformed> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Body {
        event_type: Option<String>,
        resource: Option<Resource>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Resource {
        ref_updates: Option<Bounded<Update>>,
        repository: Option<Repository>,
    }
    #[derive(Deserialize)]
    struct Update {
        name: Option<String>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Repository {
        remote_url: Option<String>,
        ssh_url: Option<String>,
        web_url: Option<String>,
        default_branch: Option<String>,
    }
    let Body { event_type, resource } = json(body)?;
    let mut push = Push { event: event_type, ..Push::default() };
    let Some(Resource { ref_updates, repository }) = resource else { return Ok(push) };
    if let Some(updates) = ref_updates {
        push.moved = named(updates, |update| update.name);
    }
    if let Some(repository) = repository {
        push.default_branch = repository.default_branch;
        push.named.extend([repository.remote_url, repository.ssh_url, repository.web_url].into_iter().flatten());
    }
    Ok(push)
}

/// Parses a body of the type `generic-hmac`. A signed client may send `{"repository": "https://…", "ref":
/// "refs/heads/main"}`; for every other body, any repository may have changed.
fn generic(body: &[u8]) -> Option<Push> {
    #[derive(Deserialize)]
    struct Body {
        repository: String,
        r#ref: Option<String>,
    }
    let Body { repository, r#ref } = BOUNDS.read(body).ok()?;
    let moved = match r#ref {
        Some(name) if name.starts_with("refs/") => Moved::Named(vec![name]),
        Some(name) => Moved::Named(vec![branch(&name), tag(&name)]),
        None => Moved::Any,
    };
    Some(Push { named: vec![repository], moved, ..Push::default() })
}

/// Checks a message of Pub/Sub about an image: its data is a JSON object in Base64.
fn gcr(body: &[u8]) -> Result<(), Malformed> {
    const LACKING: Malformed =
        Malformed::Lacking("message.data must be JSON in Base64 with `action`, and with `digest` or `tag`");
    #[derive(Deserialize)]
    struct Body {
        message: Message,
    }
    #[derive(Deserialize)]
    struct Message {
        data: String,
    }
    #[derive(Deserialize)]
    struct Change {
        action: String,
        digest: Option<String>,
        tag: Option<String>,
    }
    let Body { message } = json(body)?;
    let data = BASE64_STANDARD.decode(message.data).map_err(|_| LACKING)?;
    let Change { action, digest, tag } = json(&data).map_err(|_| LACKING)?;
    if action.is_empty() || digest.or(tag).is_none() { Err(LACKING) } else { Ok(()) }
}

/// The beginnings of types of CDEvents: those of the vocabulary, and those of tools.
const CDEVENTS: [&str; 2] = ["dev.cdevents.", "dev.cdeventsx."];

/// An object whose fields are skipped.
struct AnyObject;

impl<'de> Deserialize<'de> for AnyObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = AnyObject;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<AnyObject, A::Error> {
                while fields.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(AnyObject)
            }
        }
        deserializer.deserialize_map(Fields)
    }
}

/// Checks that a body is a CDEvent, as the data of a CloudEvent in binary mode.
fn cdevent(body: &[u8]) -> Result<(), Malformed> {
    #[derive(Deserialize)]
    struct Body {
        context: Context,
        subject: Subject,
    }
    #[derive(Deserialize)]
    struct Context {
        /// Version 0.5 of the specification has a new name for it.
        #[serde(alias = "specversion")]
        version: String,
        id: String,
        source: String,
        r#type: String,
        timestamp: String,
    }
    #[derive(Deserialize)]
    struct Subject {
        id: String,
        content: Option<AnyObject>,
    }
    let Body { context, subject } = json(body)?;
    if [&context.version, &context.id, &context.source, &subject.id].into_iter().any(String::is_empty) {
        return Err(Malformed::Lacking("context.version, context.id, context.source and subject.id must not be empty"));
    }
    // A subject, a predicate and a version follow.
    let event = CDEVENTS.iter().find_map(|beginning| context.r#type.strip_prefix(*beginning));
    if event.is_none_or(|event| event.split('.').count() < 3 || event.split('.').any(str::is_empty)) {
        return Err(Malformed::Lacking("context.type must be the type of a CDEvent"));
    }
    if context.timestamp.parse::<Timestamp>().is_err() {
        return Err(Malformed::Lacking("context.timestamp must be a time of RFC 3339"));
    }
    if subject.content.is_none() {
        return Err(Malformed::Lacking("subject.content must be an object"));
    }
    Ok(())
}

/// Returns the moved references, or `Any` if the list is too long or empty, or if an item has no name.
fn named<T>(items: Bounded<T>, name: impl Fn(T) -> Option<String>) -> Moved {
    let is_cut = items.is_cut;
    let names: Option<Vec<String>> = items.items.into_iter().map(name).collect();
    names.filter(|names| !is_cut && !names.is_empty()).map_or(Moved::Any, Moved::Named)
}

fn branch(name: &str) -> String {
    if name.starts_with("refs/") { name.to_owned() } else { format!("refs/heads/{name}") }
}

fn tag(name: &str) -> String {
    format!("refs/tags/{name}")
}

#[cfg(test)]
mod tests;
