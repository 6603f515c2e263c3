//! Parses an AdmissionReview and builds its response.
//!
//! Invariant: parsing takes memory in proportion to the size of the body. Objects stay unparsed until a caller asks for
//! a type, and an object beyond [`OBJECT`] is an error. Invariant: a response contains only the uid and version of the
//! request, and the message of the decision.

use bounded_json::{Bounds, Unreadable as OutOfBounds};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use mainstay_api::conditions::cut;

/// Bounds of a review without its objects.
const REVIEW: Bounds = Bounds::new(usize::MAX, 2 << 20);
/// Bounds of an object in a review.
const OBJECT: Bounds = Bounds::new(usize::MAX, 60_000);
/// Maximum length of a UID in bytes. The UIDs of the API server have 36.
pub(super) const MAX_UID: usize = 128;
/// Maximum length of the message of a denial in bytes.
const MAX_TEXT: usize = 32 << 10;

/// The needed fields of an AdmissionReview.
#[derive(Debug)]
pub(super) struct Review<'a> {
    api_version: &'static str,
    uid: String,
    /// Whether the request updates an existing object.
    pub(super) is_update: bool,
    /// The version in which the object was sent, if the API server converted it.
    pub(super) written_in: Option<String>,
    object: Option<&'a RawValue>,
    old_object: Option<&'a RawValue>,
}

/// Why a body is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unreadable {
    /// The body is not an AdmissionReview of a known version.
    NotAReview,
    /// The review contains no object.
    NoObject,
    /// The object has too many values, or is nested too deeply.
    TooManyValues,
}

impl Unreadable {
    /// Returns the message for the client.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::NotAReview => "could not decode body: it is not an AdmissionReview of admission.k8s.io/v1 or v1beta1",
            Self::NoObject => "could not decode body: request.object is missing",
            Self::TooManyValues => "the object has more values, or is nested deeper, than is looked at",
        }
    }
}

/// A decision about a write.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Verdict {
    /// The write is accepted unchanged.
    Allowed,
    /// The write is accepted with a warning.
    Explained(String),
    /// The write is accepted and changed by a JSON patch.
    Patched(Vec<Value>),
    /// The write is refused.
    Denied {
        /// HTTP status code for the client.
        code: u16,
        /// The message for the client.
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
    /// Parses a body.
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

    /// Returns the object; `None` if the object is not of this type. The schema refuses such an object.
    pub(super) fn object<T: DeserializeOwned>(&self) -> Result<Option<T>, Unreadable> {
        let object = self.object.ok_or(Unreadable::NoObject)?;
        match OBJECT.read(object.get().as_bytes()) {
            Ok(object) => Ok(Some(object)),
            Err(OutOfBounds::Malformed(_)) => Ok(None),
            Err(_) => Err(Unreadable::TooManyValues),
        }
    }

    /// Returns the object before an update, if it can be parsed.
    pub(super) fn old_object<T: DeserializeOwned>(&self) -> Option<T> {
        let object = self.old_object.filter(|_| self.is_update)?;
        OBJECT.read(object.get().as_bytes()).ok()
    }

    /// Returns the response.
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
