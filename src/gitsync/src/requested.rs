//! The annotations that request a sync.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use mainstay_api::GitSync;
use mainstay_api::names::{FLUX_REQUESTED_AT, REQUESTED_AT};

/// Returns the requested sync. The later time of both annotations counts; ours counts if one of them is not a time.
pub(super) fn asked(meta: &ObjectMeta) -> Option<&String> {
    let get = |name: &str| meta.annotations.as_ref()?.get(name);
    match (get(REQUESTED_AT), get(FLUX_REQUESTED_AT)) {
        (Some(ours), Some(theirs)) => {
            let is_later = time(ours).zip(time(theirs)).is_some_and(|(ours, theirs)| theirs > ours);
            Some(if is_later { theirs } else { ours })
        }
        (ours, theirs) => ours.or(theirs),
    }
}

/// Whether a sync is requested that no status shows as handled.
pub(super) fn is_requested(sync: &GitSync) -> bool {
    let handled = sync.status.as_ref().and_then(|status| status.last_handled_request.as_ref());
    asked(&sync.metadata).is_some_and(|asked| Some(asked) != handled)
}

/// Parses a time, or seconds since 1970.
fn time(text: &str) -> Option<Timestamp> {
    let seconds = || Timestamp::from_second(text.parse().ok()?).ok();
    text.parse().ok().or_else(seconds)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use mainstay_api::git_sync::GitSyncStatus;

    #[test]
    fn the_annotation_of_flux_requests_a_sync_too() {
        let check = |all: &[(&str, &str)], expected: Option<&str>| {
            let annotations = all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            let meta = ObjectMeta { annotations: Some(annotations), ..ObjectMeta::default() };
            assert_eq!(asked(&meta).map(String::as_str), expected, "{all:?}");
        };
        let (old, new) = ("2026-11-20T11:00:00Z", "2026-11-20T11:00:01+00:00");
        check(&[], None);
        check(&[(FLUX_REQUESTED_AT, "now")], Some("now"));
        check(&[(REQUESTED_AT, old), (FLUX_REQUESTED_AT, new)], Some(new));
        check(&[(REQUESTED_AT, new), (FLUX_REQUESTED_AT, old)], Some(new));
        check(&[(REQUESTED_AT, old), (FLUX_REQUESTED_AT, "1800000000")], Some("1800000000"));
        check(&[(REQUESTED_AT, "a"), (FLUX_REQUESTED_AT, new)], Some("a"));
    }
    #[test]
    fn a_request_that_a_status_shows_is_handled() {
        let mut sync = GitSync::new("shop", serde_json::from_value(json!({"gitRepository": "shop"})).unwrap());
        assert!(!is_requested(&sync));
        sync.metadata.annotations = Some([(REQUESTED_AT.to_owned(), "now".to_owned())].into());
        assert!(is_requested(&sync));
        sync.status = Some(GitSyncStatus { last_handled_request: Some("now".to_owned()), ..GitSyncStatus::default() });
        assert!(!is_requested(&sync));
    }
}
