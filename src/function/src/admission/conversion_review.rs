//! A ConversionReview: Functions in one version are answered in the other.
//!
//! Invariant: the answer depends on nothing but the request: what can be read can also be converted, at any time.
//! Invariant: metadata are answered as they came, but for labels and annotations, of which the API server takes changes.
//! Invariant: one object at a time is more than text, so that a list of many takes about twice its size in memory.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::convert::{Version, convert};
use super::review::{MAX_UID, values};
use mainstay_object::printable;

/// Maximum number of values in one object; each may take much more memory than it has bytes.
const MAX_VALUES: usize = 100_000;
const API_VERSION: &str = "apiextensions.k8s.io/v1";

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
    objects: Vec<&'a RawValue>,
}

/// The answer as JSON, and whether the objects were converted; `None` if the body is no review.
pub(super) fn answer(body: &[u8]) -> Option<(bool, Vec<u8>)> {
    let wire: Wire<'_> = serde_json::from_slice(body).ok()?;
    let request = wire.request.filter(|request| request.uid.len() <= MAX_UID)?;
    if wire.api_version != API_VERSION || wire.kind != "ConversionReview" {
        return None;
    }
    let converted = objects(&request, body.len());
    let is_done = converted.is_ok();
    let (objects, result) = match converted {
        Ok(objects) => (objects, json!({"status": "Success"})),
        Err(why) => (b"[]".to_vec(), json!({"status": "Failure", "message": why})),
    };
    let uid = Value::from(request.uid);
    let mut answer = objects;
    // In front of the objects, without a copy of them.
    let head = format!(
        r#"{{"apiVersion":"{API_VERSION}","kind":"ConversionReview","response":{{"uid":{uid},"result":{result},"convertedObjects":"#
    );
    answer.splice(..0, head.into_bytes());
    answer.extend_from_slice(b"}}");
    Some((is_done, answer))
}

/// The converted objects as a JSON array.
fn objects(request: &Request<'_>, size: usize) -> Result<Vec<u8>, String> {
    let short = |text: &str| printable(mainstay_api::conditions::cut(text, 100)).into_owned();
    let known = "Functions are converted between serverless.kyma-project.io/v1alpha1 and v1alpha2";
    let to = Version::of(&request.desired).ok_or_else(|| format!("{known}, not to {}", short(&request.desired)))?;
    let mut all = Vec::with_capacity(size + size / 8);
    all.push(b'[');
    for (number, object) in request.objects.iter().enumerate() {
        if values(object.get()) > MAX_VALUES {
            return Err(format!("object {} of the list has more than {MAX_VALUES} values", number + 1));
        }
        let mut object: Value =
            serde_json::from_str(object.get()).map_err(|_| "an object cannot be read".to_owned())?;
        let text = |field: &str| object[field].as_str().unwrap_or_default();
        if text("kind") != "Function" || Version::of(text("apiVersion")).is_none() {
            return Err(format!("{known}, not {} of {}", short(text("kind")), short(text("apiVersion"))));
        }
        convert(&mut object, to);
        if number > 0 {
            all.push(b',');
        }
        serde_json::to_writer(&mut all, &object).map_err(|_| "an object cannot be written".to_owned())?;
    }
    all.push(b']');
    Ok(all)
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
    fn what_is_not_known_is_told() {
        let function = json!({"apiVersion": "serverless.kyma-project.io/v1alpha1", "kind": "Function"});
        let many = json!([
            json!({"apiVersion": "serverless.kyma-project.io/v1alpha1", "kind": "Function", "spec": vec![0; MAX_VALUES]})
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
            ("serverless.kyma-project.io/v1alpha2", many, "more than 100000 values"),
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
            assert!(answer(text.as_bytes()).is_none(), "{text}");
        }
    }
}
