//! The error of this crate: the failed attempt, its subject, and the cause.
//!
//! Invariant: the text of an error contains the attempt and the subject. The cause is the `source` and not part of the
//! text.

use std::fmt;
use std::time::Duration;

use mainstay_object::egress::EgressRefusal;
use mainstay_object::failure::{Class, chain};
use mainstay_object::{Key, Object, printable};

use super::allowed_addresses::NoAddress;
use super::refusal::{Denial, Refusal};

/// The kind of a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// Read the configuration, or create the clients.
    Connect,
    /// Discovery.
    Discover,
    /// Read one object.
    Read,
    /// Read a collection.
    List,
    /// Watch a collection.
    Watch,
    /// Server-side apply.
    Apply,
    /// Create.
    Create,
    /// Replace.
    Replace,
    /// Patch.
    Patch,
    /// Delete.
    Delete,
    /// Call a Service.
    Call,
    /// Request a token of a ServiceAccount.
    RequestToken,
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connect => "connect to",
            Self::Discover => "ask for the kinds of",
            Self::Read => "read",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Apply => "apply",
            Self::Create => "create",
            Self::Replace => "replace",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::Call => "call",
            Self::RequestToken => "request a token of",
        })
    }
}

impl Attempt {
    /// Returns advice on how to see the server's message with a dry run of the same attempt.
    fn as_dry_run(self, subject: &Target) -> String {
        match (self, subject) {
            (Self::Delete, Target::Object(key)) => {
                let kind =
                    if key.group.is_empty() { key.kind.to_string() } else { format!("{}.{}", key.kind, key.group) };
                let namespace = key.namespace.as_ref().map(|namespace| format!(" -n {namespace}")).unwrap_or_default();
                let name = printable(&key.name);
                format!("`kubectl delete --dry-run=server {kind} {name}{namespace}` shows it")
            }
            (Self::Delete, _) => "`kubectl delete --dry-run=server` shows it".to_owned(),
            _ => "`kubectl apply --dry-run=server` shows it".to_owned(),
        }
    }
}

/// The subject of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The whole cluster.
    Cluster,
    /// A collection.
    Collection {
        /// Plural and group, such as `deployments.apps`.
        resource: String,
        /// The namespace; `None` for all.
        namespace: Option<String>,
    },
    /// One object.
    Object(Key),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster => f.write_str("the cluster"),
            Self::Collection { resource, namespace: None } => f.write_str(resource),
            Self::Collection { resource, namespace: Some(namespace) } => write!(f, "{resource} in {namespace}"),
            Self::Object(key) => write!(f, "{key}"),
        }
    }
}

/// The cause of a failure.
#[derive(Debug, thiserror::Error)]
pub enum Cause {
    /// The server refused the request.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// No complete response in time. A write may have been carried out.
    #[error("no response within {} s", .0.as_secs())]
    TimedOut(Duration),
    /// The connection failed. A write may have been carried out.
    #[error("the API server cannot be reached")]
    Unreachable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The credentials could not be obtained (token file, exec plugin).
    #[error("the credentials for the API server cannot be obtained")]
    Credentials,
    /// The kubeconfig or the pod's environment cannot be used.
    #[error("the configuration cannot be used")]
    Configuration(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The response cannot be parsed. Only the position is stored, because the content may be secret.
    #[error("the response cannot be parsed (line {line}, column {column})")]
    Unreadable {
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
    },
    /// The name or namespace cannot be part of a path: it is empty, `.` or `..`.
    #[error("the name cannot be used in a request")]
    Unaddressable,
    /// A namespaced object without a namespace.
    #[error("the object names no namespace")]
    NoNamespace,
    /// Discovery of this group failed, so it is unknown whether it has the kind.
    #[error("the API group {0} is not available")]
    GroupUnavailable(String),
    /// The UID of an object is invalid.
    #[error("the response has no valid uid")]
    NoUid,
    /// A response, an event of a watch or a page of a list exceeds the maximum size.
    #[error("the response is larger than {0} bytes")]
    TooLarge(usize),
    /// A response or an event of a remote cluster has too many JSON values.
    #[error("the response has more than {0} values")]
    TooManyValues(usize),
    /// A list of a remote cluster has too many objects.
    #[error("the API server returned a list with too many objects")]
    TooLong,
}

impl From<serde_json::Error> for Cause {
    fn from(error: serde_json::Error) -> Self {
        Self::Unreadable { line: error.line(), column: error.column() }
    }
}

/// A failed attempt.
#[derive(Debug, thiserror::Error)]
#[error("could not {attempt} {subject}")]
pub struct Error {
    /// The attempt.
    pub attempt: Attempt,
    /// The subject of the attempt.
    pub subject: Box<Target>,
    /// The cause.
    #[source]
    pub cause: Box<Cause>,
}

impl Error {
    pub(super) fn new(attempt: Attempt, subject: Target, cause: impl Into<Cause>) -> Self {
        let mut cause = cause.into();
        if let Cause::Refused(refusal) = &mut cause {
            refusal.set_remedy(&attempt.as_dry_run(&subject));
        }
        Self { attempt, subject: Box::new(subject), cause: Box::new(cause) }
    }

    /// Removes the server's message if the object is confidential although it is not a Secret.
    #[must_use]
    pub fn about(mut self, object: &Object) -> Self {
        if let Cause::Refused(refusal) = &mut *self.cause
            && object.is_confidential()
            && !object.key.is("", "Secret")
        {
            refusal.quoting_hint = refusal.quoting_hint.take().or_else(|| object.quoting_hint(&refusal.to_string()));
            refusal.withhold();
        }
        self
    }

    /// Returns the class of the failure.
    pub fn class(&self) -> Class {
        match &*self.cause {
            Cause::Refused(refusal) => refusal.class(),
            Cause::TimedOut(_)
            | Cause::Unreachable(_)
            | Cause::Unreadable { .. }
            | Cause::GroupUnavailable(_)
            | Cause::NoUid
            | Cause::TooLarge(_)
            | Cause::TooManyValues(_)
            | Cause::TooLong => Class::Unavailable,
            Cause::Credentials => Class::Denied,
            Cause::Configuration(_) | Cause::Unaddressable | Cause::NoNamespace => Class::Invalid,
        }
    }

    /// Returns the text of the cause without the attempt and its subject.
    pub fn cause_text(&self) -> String {
        chain(&*self.cause)
    }

    /// Same as `cause_text`, preceded by the manifest of a refused object: `apps/web.yaml:14 (document 2): …`.
    pub fn cause_at(&self, object: &Object) -> String {
        let text = self.cause_text();
        match self.refusal() {
            Some(refusal) => {
                let hint = refusal.quoting_hint.clone().or_else(|| object.quoting_hint(&text));
                let hint = hint.map(|hint| format!("; {hint}")).unwrap_or_default();
                format!("{}{}: {text}{hint}", object.place.short(), object.place.builder())
            }
            None => text,
        }
    }

    /// Returns the refusal, if the server responded with one.
    pub fn refusal(&self) -> Option<&Refusal> {
        match &*self.cause {
            Cause::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }

    /// Returns the HTTP status code, if the server responded.
    pub fn code(&self) -> Option<u16> {
        self.refusal().map(|refusal| refusal.code)
    }

    /// Returns the object, if the attempt was about one.
    pub fn key(&self) -> Option<&Key> {
        match &*self.subject {
            Target::Object(key) => Some(key),
            _ => None,
        }
    }

    /// Returns why the address of a remote cluster is refused, if it is.
    pub fn refused_address(&self) -> Option<EgressRefusal> {
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&*self.cause);
        while let Some(error) = cause {
            if let Some(NoAddress::Refused(refusal)) = error.downcast_ref() {
                return Some(*refusal);
            }
            cause = error.source();
        }
        None
    }

    /// Returns the server's `Retry-After`.
    pub fn retry_after(&self) -> Option<Duration> {
        self.refusal().and_then(|refusal| refusal.retry_after)
    }

    /// 404: the object, kind or namespace does not exist.
    pub fn is_not_found(&self) -> bool {
        self.code() == Some(404)
    }

    /// 404: the namespace of the object does not exist.
    pub fn is_namespace_missing(&self) -> bool {
        self.refusal().is_some_and(|refusal| refusal.code == 404 && refusal.about == "namespaces")
            && self.key().is_some_and(|key| &*key.kind != "Namespace")
    }

    /// 404: the cluster does not serve the kind.
    pub fn is_kind_unserved(&self) -> bool {
        self.refusal().is_some_and(|refusal| refusal.unserved.is_some())
    }

    /// 409: the object exists already.
    pub fn is_already_exists(&self) -> bool {
        self.refusal().is_some_and(|refusal| refusal.code == 409 && refusal.reason == "AlreadyExists")
    }

    /// 409: another client wrote first, or owns a field ([`Refusal::conflicts`]).
    pub fn is_conflict(&self) -> bool {
        self.refusal().is_some_and(|refusal| refusal.code == 409 && refusal.reason != "AlreadyExists")
    }

    /// 422: the object is not valid, or an immutable field would change.
    pub fn is_invalid(&self) -> bool {
        self.code() == Some(422)
    }

    /// 403, for any reason ([`Refusal::denial`]).
    pub fn is_forbidden(&self) -> bool {
        self.code() == Some(403)
    }

    /// The namespace is being deleted.
    pub fn is_namespace_terminating(&self) -> bool {
        self.refusal().is_some_and(|refusal| refusal.denial == Some(Denial::NamespaceTerminating))
    }

    /// 410: the resource version or the list snapshot has expired.
    pub fn is_expired(&self) -> bool {
        self.code() == Some(410)
    }

    /// Whether a failed write may have been carried out.
    pub fn is_outcome_unknown(&self) -> bool {
        matches!(&*self.cause, Cause::TimedOut(_) | Cause::Unreachable(_) | Cause::Unreadable { .. })
            || self.is_of_size()
    }

    /// Whether a successful response was not read to its end, because it exceeds the limits. A refusal is read in part instead.
    pub(super) fn is_of_size(&self) -> bool {
        matches!(&*self.cause, Cause::TooLarge(_) | Cause::TooManyValues(_))
    }
}

#[cfg(test)]
mod tests {
    use super::super::kind::tests::kind;
    use super::*;
    use mainstay_object::{Place, Retyped};

    #[test]
    fn names_the_attempt_and_leaves_the_cause_to_the_chain() {
        let key = kind("apps/v1", "Deployment", "deployments", true).key(Some("shop"), "web");
        let refusal = Refusal::read(&key, 409, None, br#"{"reason":"Conflict","message":"it moved","code":409}"#);
        let error = Error::new(Attempt::Apply, Target::Object(key), refusal);
        assert_eq!(error.to_string(), "could not apply Deployment.apps shop/web");
        assert_eq!(
            mainstay_object::failure::chain(&error),
            "could not apply Deployment.apps shop/web: the API server answered 409 Conflict: it moved"
        );
        assert!(error.is_conflict() && !error.is_already_exists());
        assert_eq!(error.class(), Class::Conflict);
    }

    #[test]
    fn the_remedy_for_withheld_words_is_that_of_the_attempt() {
        let key = kind("apps/v1", "Deployment", "deployments", true).key(Some("shop"), "web");
        let body = br#"{"reason":"Forbidden","code":403,"message":"deployments.apps \"web\" is forbidden: ValidatingAdmissionPolicy 'keep' with binding 'keep' denied request: hush"}"#;
        let text = |attempt| {
            let refusal = Refusal::read(&key, 403, None, body);
            mainstay_object::failure::chain(&Error::new(attempt, Target::Object(key.clone()), refusal))
        };
        let deletion = text(Attempt::Delete);
        assert!(
            deletion.ends_with("; `kubectl delete --dry-run=server Deployment.apps web -n shop` shows it)"),
            "{deletion}"
        );
        for attempt in [Attempt::Apply, Attempt::Create, Attempt::Patch, Attempt::Replace] {
            assert!(text(attempt).ends_with("; `kubectl apply --dry-run=server` shows it)"), "{}", text(attempt));
        }
        assert!(!deletion.contains("hush"));
    }

    #[test]
    fn distinguishes_a_missing_namespace_from_a_missing_object() {
        let key = kind("v1", "ConfigMap", "configmaps", true).key(Some("x"), "y");
        let of = |kind: &str| {
            let body = format!(r#"{{"reason":"NotFound","code":404,"details":{{"name":"x","kind":"{kind}"}}}}"#);
            Error::new(Attempt::Apply, Target::Object(key.clone()), Refusal::read(&key, 404, None, body.as_bytes()))
        };
        assert!(of("namespaces").is_namespace_missing());
        assert!(!of("configmaps").is_namespace_missing());
        assert_eq!(of("namespaces").class(), Class::NotReady);
    }

    #[test]
    fn errors_about_secret_values_quote_nothing() {
        let key = kind("apps/v1", "Deployment", "deployments", true).key(Some("shop"), "web");
        let body = r#"{"reason":"Invalid","code":422,"message":"spec.a: Invalid value: \"hunt\": no","details":{"causes":
            [{"reason":"FieldValueInvalid","field":"spec.c[name=\"hunt\"].a","message":"Invalid value: \"hunt\": no"}]}}"#;
        let error =
            || Error::new(Attempt::Apply, Target::Object(key.clone()), Refusal::read(&key, 422, None, body.as_bytes()));
        let value = serde_json::json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}});
        let object = Object::from_value(&value, Place::file("a.yaml")).unwrap();
        assert!(mainstay_object::failure::chain(&error().about(&object)).contains("hunt"));
        let error = error().about(&object.from_secret());
        let causes = &error.refusal().unwrap().causes;
        assert!(!format!("{error:?} {}", mainstay_object::failure::chain(&error)).contains("hunt"), "{error:?}");
        assert_eq!((&*causes[0].field, error.is_invalid()), ("spec.c[…].a", true));
    }

    #[test]
    fn the_quoting_is_named_although_the_text_is_withheld() {
        let key = kind("v1", "ConfigMap", "configmaps", true).key(Some("shop"), "web");
        let body =
            br#"{"code":500,"message":"failed to create typed patch object: .data.sha: expected string, got 4711"}"#;
        let error = Error::new(Attempt::Apply, Target::Object(key.clone()), Refusal::read(&key, 500, None, body));
        let value = serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web"}});
        let field = Retyped { field: "data.sha".into(), written: "${SHA}".into(), is_now: "a number" };
        let object = Object::from_value(&value, Place::file("a.yaml")).unwrap().with_retyped(vec![field]).from_secret();
        let text = error.about(&object).about(&object).cause_at(&object);
        assert!(text.contains("data.sha: ${SHA} became a number: write ${quote}${SHA}${quote}"), "{text}");
        assert!(!text.contains("4711"), "{text}");
    }

    #[test]
    fn an_answer_that_cannot_be_read_is_not_quoted() {
        let error = serde_json::from_str::<u32>("\"hunter2\"").expect_err("a string is no number");
        let error = Error::new(Attempt::Read, Target::Cluster, error);
        assert!(!mainstay_object::failure::chain(&error).contains("hunter2"));
        assert!(error.is_outcome_unknown());
    }
}
