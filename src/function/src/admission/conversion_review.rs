//! Responds to a ConversionReview: converts Functions from one version to the other.
//!
//! Invariant: the response depends only on the request, so every valid request can be converted at any time. Invariant:
//! metadata is returned unchanged, except labels and annotations. The API server accepts changes of metadata only
//! there. Invariant: only one object at a time is parsed, and the response never exceeds its reserved memory. A large
//! list takes little more than twice its size.

use std::fmt;
use std::io::{self, Write};

use bounded_json::{Bounds, Unreadable as OutOfBounds};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::convert::{Version, convert};
use super::review::MAX_UID;
use mainstay_object::printable;

/// Maximum bytes of a list. API servers send whole pages, of 500 objects for kubectl.
pub(super) const MAX_LIST: usize = 24 << 20;
/// Bounds of a review without its objects.
const REVIEW: Bounds = Bounds::new(MAX_LIST, MAX_LIST / 2);
/// Bounds of one object of a review.
const OBJECT: Bounds = Bounds::new(MAX_LIST, 200_000);
/// Maximum number of objects. The position of each object is kept in memory.
const MAX_OBJECTS: usize = 20_000;
/// Bytes by which an object may grow, in addition to an eighth of the list.
const GROWTH: usize = 256;
/// Size in bytes of a response without its objects.
const AROUND: usize = 4 << 10;
const API_VERSION: &str = "apiextensions.k8s.io/v1";
const TOO_MANY: &str = "the list has more than 20000 objects";

/// Why a body is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoReview {
    /// The body is not a ConversionReview of a known version.
    NotAReview,
    /// The review has too many objects.
    TooMany,
}

impl NoReview {
    /// Returns the message for the client.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::NotAReview => "could not decode body: it is not a ConversionReview of apiextensions.k8s.io/v1",
            Self::TooMany => {
                "the list has more than 20000 objects, or too many values: ask for less at a time (kubectl --chunk-size)"
            }
        }
    }
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
struct Request<'a> {
    uid: String,
    #[serde(rename = "desiredAPIVersion")]
    desired: String,
    #[serde(borrow, default)]
    objects: Objects<'a>,
}

/// The objects as unparsed JSON, at most [`MAX_OBJECTS`].
#[derive(Default)]
struct Objects<'a>(Vec<&'a RawValue>);

impl<'de: 'a, 'a> Deserialize<'de> for Objects<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct All;
        impl<'de> Visitor<'de> for All {
            type Value = Vec<&'de RawValue>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut all = Vec::new();
                while let Some(object) = list.next_element()? {
                    if all.len() == MAX_OBJECTS {
                        return Err(A::Error::custom(TOO_MANY));
                    }
                    all.push(object);
                }
                Ok(all)
            }
        }
        deserializer.deserialize_seq(All).map(Self)
    }
}

/// A response that never grows beyond its initial capacity.
struct Answer(Vec<u8>);

impl Write for Answer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > self.0.capacity() - self.0.len() {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the response as JSON, and whether the objects were converted.
pub(super) fn answer(body: &[u8]) -> Result<(bool, Vec<u8>), NoReview> {
    let wire: Wire<'_> = REVIEW.read(body).map_err(|unreadable| match unreadable {
        OutOfBounds::Malformed(error) if !error.to_string().starts_with(TOO_MANY) => NoReview::NotAReview,
        OutOfBounds::TooDeep(_) => NoReview::NotAReview,
        _ => NoReview::TooMany,
    })?;
    let request = wire.request.filter(|request| request.uid.len() <= MAX_UID).ok_or(NoReview::NotAReview)?;
    if wire.api_version != API_VERSION || wire.kind != "ConversionReview" {
        return Err(NoReview::NotAReview);
    }
    let head = |result: Value| {
        let uid = Value::from(&*request.uid);
        format!(
            r#"{{"apiVersion":"{API_VERSION}","kind":"ConversionReview","response":{{"uid":{uid},"result":{result},"convertedObjects":["#
        )
    };
    let room = body.len() + body.len() / 8 + GROWTH * request.objects.0.len() + AROUND;
    let mut all = Answer(Vec::with_capacity(room));
    all.0.extend_from_slice(head(json!({"status": "Success"})).as_bytes());
    let converted = objects(&request, &mut all);
    let is_done = converted.is_ok();
    let Answer(mut answer) = all;
    if let Err(why) = converted {
        answer.clear();
        answer.extend_from_slice(head(json!({"status": "Failure", "message": why})).as_bytes());
    }
    answer.extend_from_slice(b"]}}");
    Ok((is_done, answer))
}

/// Writes the converted objects, separated by commas.
fn objects(request: &Request<'_>, answer: &mut Answer) -> Result<(), String> {
    let short = |text: &str| printable(mainstay_api::conditions::cut(text, 100)).into_owned();
    let known = "Functions are converted between serverless.kyma-project.io/v1alpha1 and v1alpha2";
    let to = Version::of(&request.desired).ok_or_else(|| format!("{known}, not to {}", short(&request.desired)))?;
    for (number, object) in request.objects.0.iter().enumerate() {
        let mut object: Value = OBJECT.read(object.get().as_bytes()).map_err(|unreadable| match unreadable {
            OutOfBounds::TooManyValues(most) => {
                format!("object {} of the list has more than {most} values", number + 1)
            }
            _ => format!("object {} of the list cannot be read", number + 1),
        })?;
        let text = |field: &str| object[field].as_str().unwrap_or_default();
        if text("kind") != "Function" || Version::of(text("apiVersion")).is_none() {
            return Err(format!("{known}, not {} of {}", short(text("kind")), short(text("apiVersion"))));
        }
        convert(&mut object, to);
        let separator: &[u8] = if number > 0 { b"," } else { b"" };
        let written = answer.write_all(separator).is_ok() && serde_json::to_writer(&mut *answer, &object).is_ok();
        if !written {
            return Err(format!("object {} of the list is much larger once it is converted", number + 1));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn review(desired: &str, objects: &Value) -> Value {
        json!({"apiVersion": API_VERSION, "kind": "ConversionReview",
            "request": {"uid": "u", "desiredAPIVersion": desired, "objects": objects}})
    }

    fn answered(review: &Value) -> (bool, Value) {
        let (is_done, answer) = answer(review.to_string().as_bytes()).unwrap();
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        assert_eq!((&answer["kind"], &answer["response"]["uid"]), (&json!("ConversionReview"), &json!("u")));
        (is_done, answer["response"].clone())
    }

    #[test]
    fn every_object_is_answered_in_its_place() {
        let object = |name: &str, version: Version, spec: Value| json!({"apiVersion": version.name(), "kind": "Function", "metadata": {"name": name, "uid": name}, "spec": spec});
        let newer = json!({"source": {"inline": {"source": "s"}}});
        let objects = json!([
            object("a", Version::V1alpha1, json!({"source": "s"})),
            object("b", Version::V1alpha2, newer.clone())
        ]);
        let (is_done, response) = answered(&review("serverless.kyma-project.io/v1alpha2", &objects));
        let expected = json!([object("a", Version::V1alpha2, newer.clone()), object("b", Version::V1alpha2, newer)]);
        assert!(is_done);
        assert_eq!((&response["convertedObjects"], &response["result"]), (&expected, &json!({"status": "Success"})));
    }

    #[test]
    fn unknown_versions_are_reported() {
        let function = json!({"apiVersion": "serverless.kyma-project.io/v1alpha1", "kind": "Function"});
        let many = json!([
            json!({"apiVersion": "serverless.kyma-project.io/v1alpha1", "kind": "Function", "spec": vec![0; OBJECT.values]})
        ]);
        for (desired, objects, words) in [
            ("v1\u{7}", json!([function]), "not to v1"),
            ("serverless.kyma-project.io/v1alpha3", json!([function]), "not to serverless.kyma-project.io/v1alpha3"),
            (
                "serverless.kyma-project.io/v1alpha2",
                json!([function, {"kind": "Secret", "apiVersion": "v1"}]),
                "not Secret of v1",
            ),
            ("serverless.kyma-project.io/v1alpha2", json!([5]), "not  of "),
            ("serverless.kyma-project.io/v1alpha2", many, "more than 200000 values"),
        ] {
            let (is_done, response) = answered(&review(desired, &objects));
            let message = response["result"]["message"].as_str().unwrap();
            assert!(!is_done && message.contains(words) && !message.contains('\u{7}'), "{message}");
        }
    }

    #[test]
    fn refuses_what_is_no_review() {
        let good = review("v", &json!([]));
        for text in [
            String::new(),
            "{}".into(),
            "[".repeat(100_000),
            good.to_string().replace("/v1", "/v1beta1"),
            good.to_string().replace("ConversionReview", "AdmissionReview"),
            good.to_string().replace("\"u\"", &format!("\"{}\"", "u".repeat(200))),
        ] {
            assert_eq!(answer(text.as_bytes()).unwrap_err(), NoReview::NotAReview, "{text}");
        }
    }

    #[test]
    fn a_list_of_very_many_objects_is_not_kept() {
        let most = format!("[{}0]", "0,".repeat(MAX_OBJECTS));
        let body = review("v", &json!("OBJECTS")).to_string();
        let refused = |objects: &str| answer(body.replace("\"OBJECTS\"", objects).as_bytes()).unwrap_err();
        assert_eq!(refused(&most), NoReview::TooMany);
        assert!(answer(body.replace("\"OBJECTS\"", &most.replacen("0,", "", 1)).as_bytes()).is_ok());
        assert!(NoReview::TooMany.text().contains(TOO_MANY));
    }

    /// A number such as `1e15` takes 18 bytes in the response.
    #[test]
    fn objects_that_grow_take_no_more_memory_than_was_set_aside() {
        let numbers = format!("[{}1]", "1e15,".repeat(10_000));
        let function =
            format!(r#"{{"apiVersion":"serverless.kyma-project.io/v1alpha1","kind":"Function","x":{numbers}}}"#);
        let objects = format!("[{}]", [function.as_str(); 10].join(","));
        let body = review("serverless.kyma-project.io/v1alpha2", &json!("OBJECTS")).to_string();
        let body = body.replace("\"OBJECTS\"", &objects);
        let (is_done, answer) = answer(body.as_bytes()).unwrap();
        let text = String::from_utf8(answer.clone()).unwrap();
        assert!(!is_done && text.contains("of the list is much larger once it is converted"), "{text}");
        assert!(answer.capacity() <= body.len() + body.len() / 8 + 10 * GROWTH + AROUND);
    }
}
