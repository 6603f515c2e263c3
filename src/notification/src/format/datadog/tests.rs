//! Tests of events.

use serde_json::json;

use crate::format::tests::{applied, failed, sent, target};
use crate::notice::Notice;

#[test]
fn datadog_gets_an_event_with_tags_of_the_resource_and_the_fields() {
    let target = target(json!({"type": "datadog", "address": "https://api.datadoghq.eu"}), json!({"token": "key"}));
    let mut notice = failed();
    notice.message = "failed: @ops %%% [a](http://evil)\n# more".to_owned();
    for (name, value) in [("1 Team", "Shop, Web"), ("kube_name", "forged"), ("empty", ""), ("note:x", "a\n- b: c")] {
        notice.metadata.insert(name.to_owned(), value.to_owned());
    }
    let (method, url, headers, body) = sent(&target, &notice);
    assert_eq!((method.as_str(), url.as_str()), ("POST", "https://api.datadoghq.eu/api/v1/events"));
    assert!(headers.contains("dd-api-key: key"), "{headers}");
    let text = "%%%\nfailed: @\u{200b}ops %\u{200b}%\u{200b}% [\u{200b}a]\u{200b}(http:\u{200b}//evil)\n#\u{200b} more\n\n\
                - summary: production\n- 1 Team: Shop, Web\n- empty: \n- kube_name: forged\n- note:x: a - b: c\n- revision: sha1:0123\n%%%";
    assert_eq!(
        body,
        json!({
            "title": "gitsync/demo.shop", "text": text, "alert_type": "error", "source_type_name": "mainstay",
            "date_happened": 0,
            "tags": [
                "field_1_team:shop__web", "flux_reason:failed", "flux_reporting_controller:mainstay", "kube_kind:gitsync",
                "kube_name:demo", "kube_namespace:shop", "note_x:a_-_b:_c", "revision:sha1:0123", "summary:production",
            ],
        })
    );
    assert_eq!(sent(&target, &applied()).3["alert_type"], "info");
}

#[test]
fn a_path_in_the_address_of_datadog_has_no_effect() {
    for address in
        ["https://h.example:8443/api/v1/events", "https://h.example:8443/intake/?site=eu#top", "https://h.example:8443"]
    {
        let target = target(json!({"type": "datadog", "address": address}), json!({"token": "key"}));
        assert_eq!(sent(&target, &applied()).1, "https://h.example:8443/api/v1/events", "{address}");
    }
}

#[test]
fn an_event_of_datadog_stays_within_its_limits() {
    let target = target(json!({"type": "datadog", "address": "https://h.example"}), json!({"token": "key"}));
    let details = (0..200).map(|number| (format!("field-{number}"), "\u{e4}@\n".repeat(900))).collect();
    let notice = Notice { name: "a".repeat(253), message: "%".repeat(9000), details, ..failed() };
    let (_, _, _, body) = sent(&target, &notice);
    let (title, text) = (body["title"].as_str().unwrap(), body["text"].as_str().unwrap());
    assert!(title.len() <= 100 && text.len() <= 4000, "{} {}", title.len(), text.len());
    assert!(text.starts_with("%%%\n") && text.ends_with("\n%%%") && text.matches("%%").count() == 2, "{text}");
    let tags = body["tags"].as_array().unwrap();
    assert_eq!(tags.len(), 64);
    assert!(tags.contains(&json!(format!("kube_name:{}", "a".repeat(190)))), "{tags:?}");
    for tag in tags {
        let tag = tag.as_str().unwrap();
        let is_valid = |c: char| c.is_alphanumeric() || "_-:./".contains(c);
        assert!(tag.chars().count() <= 200 && tag.chars().all(is_valid), "{tag}");
    }
}
