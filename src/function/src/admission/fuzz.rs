//! Fuzz targets for untrusted input. Each accepts any bytes, terminates quickly, does not panic, and checks its
//! invariants.

use serde_json::Value;

use super::conversion_review;
use super::hook::Hook;
use super::review::{Review, Verdict};
use crate::Settings;

/// Parses a review of a write, and runs every webhook on it.
pub fn admission_review(bytes: &[u8]) {
    let Ok(review) = Review::read(bytes) else { return };
    let settings = Settings::default();
    for hook in Hook::of_writes() {
        let Ok(verdict) = hook.verdict(&review, &settings) else { continue };
        let answer = review.answer(&verdict);
        let is_allowed = !matches!(verdict, Verdict::Denied { .. });
        assert_eq!(answer["response"]["allowed"], is_allowed, "an answer says what was decided");
        assert_eq!(answer["response"]["patch"].is_string(), matches!(verdict, Verdict::Patched(_)), "and no more");
    }
}

/// Parses a conversion review. Converted objects are converted back.
pub fn conversion_review(bytes: &[u8]) {
    let Ok((is_done, answer)) = conversion_review::answer(bytes) else { return };
    let answer: Value = serde_json::from_slice(&answer).expect("an answer is JSON");
    let objects = answer["response"]["convertedObjects"].as_array().expect("an answer has a list");
    let status = if is_done { "Success" } else { "Failure" };
    assert_eq!(answer["response"]["result"]["status"], status, "an answer says what was done");
    assert!(is_done || objects.is_empty(), "no part of a list is converted");
    let versions: Vec<_> = objects.iter().map(|object| &object["apiVersion"]).collect();
    assert!(versions.windows(2).all(|two| two[0] == two[1]), "all are in the version that was asked for");
}
