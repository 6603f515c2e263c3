//! An AdmissionReview: what is read of a request, and the answer to it.
//!
//! Invariant: whatever the bytes are, reading them takes memory in proportion to their number: objects stay text until somebody
//! asks for a type, and one that is not within [`OBJECT`] has none.
//! Invariant: an answer repeats nothing of the request but its uid and version, and what a decision says.

use bounded_json::{Bounds, Unreadable as OutOfBounds};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use mainstay_api::conditions::cut;

/// Bounds of a review, whose objects stay text.
const REVIEW: Bounds = Bounds::new(usize::MAX, 2 << 20);
/// Bounds of an object.
const OBJECT: Bounds = Bounds::new(usize::MAX, 60_000);
/// Maximum bytes of a uid; the API server's have 36.
pub(super) const MAX_UID: usize = 128;
/// Maximum bytes of the text of a denial.
const MAX_TEXT: usize = 32 << 10;

/// What is read of an AdmissionReview.
#[derive(Debug)]
pub(super) struct Review<'a> {
    api_version: &'static str,
    uid: String,
    /// Whether the object is there already.
    pub(super) is_update: bool,
    /// The version in which the object was sent, if the server has converted it for us.
    pub(super) written_in: Option<String>,
    object: Option<&'a RawValue>,
    old_object: Option<&'a RawValue>,
}

/// Why a body is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unreadable {
    /// It is no AdmissionReview of a version that we know.
    NotAReview,
    /// It has no object that could be judged.
    NoObject,
    /// It has more values, or is nested deeper, than is looked at.
    TooManyValues,
}

impl Unreadable {
    /// What a client is told.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::NotAReview => "could not decode body: it is no AdmissionReview of admission.k8s.io/v1 or v1beta1",
            Self::NoObject => "could not decode body: request.object is missing",
            Self::TooManyValues => "the object has more values, or is nested deeper, than is looked at",
        }
    }
}

/// A decision about a write.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Verdict {
    /// It goes on as it is.
    Allowed,
    /// It goes on, and whoever writes is told something.
    Explained(String),
    /// It goes on, changed by a JSON patch.
    Patched(Vec<Value>),
    /// It is refused.
    Denied {
        /// HTTP status code for the client.
        code: u16,
        /// Why.
        text: String,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire<'a> {
    api_version: String,
    kind: String,
    #[serde(borrow)]
    request: Option<Request<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request<'a> {
    uid: String,
    #[serde(default)]
    operation: String,
    #[serde(default, rename = "requestKind")]
    sent_as: Option<SentAs>,
    #[serde(borrow, default)]
    object: Option<&'a RawValue>,
    #[serde(borrow, default)]
    old_object: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct SentAs {
    #[serde(default)]
    version: String,
}

impl<'a> Review<'a> {
    /// Reads a body.
    pub(super) fn read(body: &'a [u8]) -> Result<Self, Unreadable> {
        let wire: Wire<'a> = REVIEW.read(body).map_err(|_| Unreadable::NotAReview)?;
        let api_version = match wire.api_version.as_str() {
            "admission.k8s.io/v1" => "admission.k8s.io/v1",
            "admission.k8s.io/v1beta1" => "admission.k8s.io/v1beta1",
            _ => return Err(Unreadable::NotAReview),
        };
        let request = wire.request.filter(|request| wire.kind == "AdmissionReview" && request.uid.len() <= MAX_UID);
        let request = request.ok_or(Unreadable::NotAReview)?;
        Ok(Self {
            api_version,
            uid: request.uid,
            is_update: request.operation == "UPDATE",
            written_in: request.sent_as.map(|kind| kind.version),
            object: request.object,
            old_object: request.old_object,
        })
    }

    /// The object; `None` if it is not one of this type, which its schema refuses.
    pub(super) fn object<T: DeserializeOwned>(&self) -> Result<Option<T>, Unreadable> {
        let object = self.object.ok_or(Unreadable::NoObject)?;
        match OBJECT.read(object.get().as_bytes()) {
            Ok(object) => Ok(Some(object)),
            Err(OutOfBounds::Malformed(_)) => Ok(None),
            Err(_) => Err(Unreadable::TooManyValues),
        }
    }

    /// The object as it was before an update, if it can be read.
    pub(super) fn old_object<T: DeserializeOwned>(&self) -> Option<T> {
        let object = self.old_object.filter(|_| self.is_update)?;
        OBJECT.read(object.get().as_bytes()).ok()
    }

    /// The answer.
    pub(super) fn answer(&self, verdict: &Verdict) -> Value {
        let mut response = json!({"uid": self.uid, "allowed": true});
        match verdict {
            Verdict::Allowed => {}
            Verdict::Explained(text) => response["warnings"] = json!([cut(text, MAX_TEXT)]),
            Verdict::Patched(operations) => {
                use base64::prelude::{BASE64_STANDARD, Engine as _};
                let patch = Value::from(operations.clone()).to_string();
                response["patchType"] = "JSONPatch".into();
                response["patch"] = BASE64_STANDARD.encode(patch).into();
            }
            Verdict::Denied { code, text } => {
                let short = cut(text, MAX_TEXT);
                let reason = if *code == 400 { "BadRequest" } else { "InternalError" };
                response["allowed"] = false.into();
                response["status"] = json!({
                    "apiVersion": "v1", "kind": "Status", "status": "Failure",
                    "code": code, "reason": reason, "message": short,
                });
            }
        }
        json!({"apiVersion": self.api_version, "kind": "AdmissionReview", "response": response})
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainstay_api::Function;

    fn body(object: &str) -> String {
        format!(
            r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"u","operation":"CREATE","object":{object}}}}}"#
        )
    }

    #[test]
    fn answers_in_the_version_and_with_the_uid_of_the_request() {
        let text = body("{}").replace("io/v1\"", "io/v1beta1\"");
        let answer = Review::read(text.as_bytes()).unwrap().answer(&Verdict::Allowed);
        assert_eq!(answer["apiVersion"], "admission.k8s.io/v1beta1");
        assert_eq!(answer["response"], json!({"uid": "u", "allowed": true}));
        let denied = Verdict::Denied { code: 400, text: "é".repeat(MAX_TEXT) };
        let answer = Review::read(text.as_bytes()).unwrap().answer(&denied);
        assert_eq!(answer["response"]["status"]["reason"], "BadRequest");
        assert!(answer["response"]["status"]["message"].as_str().unwrap().len() <= MAX_TEXT);
    }

    #[test]
    fn refuses_what_is_no_review() {
        for text in ["", "{}", "[]", "null", "\u{0}", r#"{"apiVersion":"v1","kind":"AdmissionReview"}"#] {
            assert_eq!(Review::read(text.as_bytes()).unwrap_err(), Unreadable::NotAReview, "{text}");
        }
        let other = body("{}").replace("\"AdmissionReview\"", "\"Other\"");
        assert_eq!(Review::read(other.as_bytes()).unwrap_err(), Unreadable::NotAReview);
        assert_eq!(Review::read("[".repeat(100_000).as_bytes()).unwrap_err(), Unreadable::NotAReview);
        let long = body("{}").replace("\"u\"", &format!("\"{}\"", "u".repeat(1000)));
        assert_eq!(Review::read(long.as_bytes()).unwrap_err(), Unreadable::NotAReview);
        let none = body("null");
        assert_eq!(Review::read(none.as_bytes()).unwrap().object::<Function>().unwrap_err(), Unreadable::NoObject);
    }

    #[test]
    fn an_object_of_many_values_is_not_read_and_one_with_much_text_is() {
        let many = body(&format!("[{}0]", "0,".repeat(OBJECT.values)));
        assert_eq!(Review::read(many.as_bytes()).unwrap().object::<Value>().unwrap_err(), Unreadable::TooManyValues);
        let code = json!("{[,]}\\\"".repeat(100_000)).to_string();
        let long = body(&code);
        assert!(Review::read(long.as_bytes()).unwrap().object::<Value>().unwrap().is_some());
    }
}
