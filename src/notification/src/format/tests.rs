//! Tests of the requests.

use std::collections::BTreeMap;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use k8s_openapi::ByteString;
use mainstay_object::Secret;
use serde_json::{Value, json};

use crate::delivery::{Delivery, LookUp};
use crate::identity::Identity;
use crate::login::{Login, Service};
use crate::notice::{CommitState, Notice, Priority, Severity};
use crate::provider_type::ProviderType;
use crate::queue::tests::notice;
use crate::request::Request;
use crate::target::Target;

const SHA: &str = "0123456789012345678901234567890123456789";

pub(super) fn target(spec: Value, secret: Value) -> Target {
    let data: BTreeMap<String, String> = serde_json::from_value(secret).unwrap();
    let data = data.into_iter().map(|(key, value)| (key, ByteString(value.into_bytes()))).collect();
    let labels = BTreeMap::from([("cluster".to_owned(), "prod".to_owned())]);
    let provider = Identity { namespace: "shop", name: "tick", uid: "uid-1", labels: Some(&labels) };
    Target::new(&serde_json::from_value(spec).unwrap(), &provider, Some(&data)).unwrap()
}

pub(super) fn failed() -> Notice {
    let metadata = BTreeMap::from([("summary".to_owned(), "production".to_owned())]);
    let commit = Some((SHA.to_owned(), CommitState::Failure));
    let message = "failed: <@all> & more\nsecond".to_owned();
    Notice {
        reason: "Failed".to_owned(),
        severity: Severity::Error,
        message,
        commit,
        metadata,
        ..notice("x", Priority::State)
    }
}

pub(super) fn applied() -> Notice {
    let commit = Some((SHA.to_owned(), CommitState::Success));
    Notice { reason: "CommitApplied".to_owned(), severity: Severity::Info, commit, ..failed() }
}

/// Returns the request that sends a notice, or the first one of a conversation.
fn request(target: &Target, notice: &Notice) -> Request {
    match target.delivery(notice).unwrap() {
        Delivery::Http(request) | Delivery::Authorized(_, request) | Delivery::Unless(_, request) => request,
        Delivery::Comment(comment) => comment.request(),
        Delivery::Nats(publication) => panic!("{publication:?}"),
    }
}

/// Returns method, address, headers as text, and body.
pub(super) fn sent(target: &Target, notice: &Notice) -> (String, String, String, Value) {
    parts(request(target, notice))
}

pub(super) fn parts(request: Request) -> (String, String, String, Value) {
    let http = request.into_http().unwrap();
    let headers: Vec<_> = http.headers().iter().map(|(n, v)| format!("{n}: {}", v.to_str().unwrap())).collect();
    let body = serde_json::from_slice(http.body()).unwrap_or_default();
    (http.method().to_string(), http.uri().to_string(), headers.join("\n"), body)
}

#[test]
fn every_supported_type_makes_a_request_and_no_debug_output_shows_the_token() {
    for word in ProviderType::words() {
        let address = match word {
            "sentry" => "https://key@host.example/1",
            "azuredevops" => "https://dev.azure.com/org/project/_git/repository",
            "bitbucketserver" => "https://host.example/scm/project/repository.git",
            "nats" => "nats://host.example",
            "googlepubsub" | "azureeventhub" => "name",
            _ => "https://host.example/owner/name",
        };
        let spec = json!({"type": word, "address": address, "channel": "channel"});
        let target = target(spec, json!({"token": "canary"}));
        for mut notice in [failed(), applied()] {
            notice.metadata.insert("change_request".to_owned(), "42".to_owned());
            let delivery = target.delivery(&notice).unwrap();
            assert!(!format!("{delivery:?} {target:?}").contains("canary"), "{word}");
            if word == "nats" {
                continue;
            }
            let request = request(&target, &notice);
            assert!(!String::from_utf8_lossy(&request.body).contains("canary"), "{word}");
            assert!(request.into_http().is_some(), "{word}");
        }
    }
}

#[test]
fn generic_posts_the_event_of_flux_and_signs_it() {
    let target = target(
        json!({"type": "generic-hmac", "address": "https://host.example/hook"}),
        json!({"token": "key", "headers": "X-Tenant: a"}),
    );
    let (method, url, headers, body) = sent(&target, &failed());
    assert_eq!((method.as_str(), url.as_str()), ("POST", "https://host.example/hook"));
    assert!(headers.contains("gotk-component: mainstay") && headers.contains("x-tenant: a"), "{headers}");
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, b"key");
    let signature = headers.lines().find_map(|line| line.strip_prefix("x-signature: sha256=")).unwrap();
    ring::hmac::verify(&key, body.to_string().as_bytes(), &hex::decode(signature).unwrap()).unwrap();
    assert_eq!(body["involvedObject"]["kind"], "GitSync");
    assert_eq!((&body["severity"], &body["reason"]), (&json!("error"), &json!("Failed")));
    assert_eq!(body["metadata"], json!({"revision": "sha1:0123", "summary": "production"}));
    assert_eq!(body["timestamp"], "1970-01-01T00:00:00Z");
}

#[test]
fn a_topic_gets_the_event_with_attributes_and_a_login() {
    let spec = json!({"type": "googlepubsub", "address": "shop", "channel": "events"});
    let topic = target(spec.clone(), json!({"headers": "Team: web\nx: \"y\\nz\""}));
    let Delivery::Authorized(login, request) = topic.delivery(&failed()).unwrap() else { panic!() };
    assert_eq!(login, Login::Identity { service: Service::PubSub, account: None });
    let (method, url, headers, body) = parts(request.authorized(&Secret::new("Bearer a.b.c".to_owned())));
    assert_eq!(
        (method.as_str(), url.as_str()),
        ("POST", "https://pubsub.googleapis.com/v1/projects/shop/topics/events:publish")
    );
    assert!(headers.contains("authorization: Bearer a.b.c") && !headers.contains("team"), "{headers}");
    assert_eq!(body["messages"].as_array().map(Vec::len), Some(1));
    let message = &body["messages"][0];
    assert_eq!(message["attributes"], json!({"Team": "web", "x": "y\nz"}));
    let event: Value =
        serde_json::from_slice(&BASE64_STANDARD.decode(message["data"].as_str().unwrap()).unwrap()).unwrap();
    assert_eq!((&event["severity"], &event["reason"]), (&json!("error"), &json!("Failed")));
    let (.., body) = sent(&target(spec, json!({})), &failed());
    assert_eq!(body["messages"][0].get("attributes"), None);
}

#[test]
fn a_hub_gets_the_event_with_a_token_a_signature_or_an_identity() {
    let spec = json!({"type": "azureeventhub", "address": "events", "channel": "shop"});
    let by_token = target(spec.clone(), json!({"token": "a.b.c", "headers": "X-Tenant: a"}));
    let (method, url, headers, body) = sent(&by_token, &failed());
    assert_eq!((method.as_str(), url.as_str()), ("POST", "https://shop.servicebus.windows.net/events/messages"));
    assert!(headers.contains("authorization: Bearer a.b.c") && headers.contains("x-tenant: a"), "{headers}");
    assert_eq!((&body["severity"], &body["reason"]), (&json!("error"), &json!("Failed")));
    let address =
        "Endpoint=sb://shop.servicebus.windows.net/;SharedAccessKeyName=n;SharedAccessKey=k;EntityPath=events";
    let by_key = target(json!({"type": "azureeventhub"}), json!({"address": address}));
    assert!(matches!(by_key.delivery(&failed()), Ok(Delivery::Authorized(Login::SharedKey(_), _))));
    let by_identity = target(spec, json!({"headers": "Authorization: other"}));
    let Delivery::Authorized(login, request) = by_identity.delivery(&failed()).unwrap() else { panic!() };
    assert_eq!(login, Login::Identity { service: Service::EventHubs, account: None });
    let (.., headers, _) = parts(request.authorized(&Secret::new("Bearer a.b.c".to_owned())));
    assert!(headers.contains("authorization: Bearer a.b.c") && !headers.contains("other"), "{headers}");
}

#[test]
fn a_status_at_azure_devops_is_set_with_an_identity_instead_of_a_token() {
    let address = "https://dev.azure.com/org/project/_git/repository";
    let spec = json!({"type": "azuredevops", "address": address, "serviceAccountName": "sender"});
    let Delivery::Authorized(login, request) = target(spec, json!({})).delivery(&applied()).unwrap() else { panic!() };
    assert_eq!(login, Login::Identity { service: Service::AzureDevops, account: Some("sender".to_owned()) });
    let (_, url, headers, _) = parts(request.authorized(&Secret::new("Bearer a.b.c".to_owned())));
    assert!(url.starts_with("https://dev.azure.com/org/project/_apis/git/"), "{url}");
    assert!(headers.contains("authorization: Bearer a.b.c") && !headers.contains("Basic"), "{headers}");
}

#[test]
fn slack_gets_one_attachment_whose_text_mentions_no_one() {
    let spec = json!({"type": "slack", "address": "https://slack.com/api/chat.postMessage", "channel": "ops"});
    let (_, _, headers, body) = sent(&target(spec, json!({"token": "xoxb"})), &failed());
    assert!(headers.contains("authorization: Bearer xoxb"));
    assert_eq!(
        body,
        json!({"channel": "ops", "username": "mainstay", "attachments": [{
            "color": "danger", "author_name": "gitsync/demo.shop", "text": "failed: &lt;@all&gt; &amp; more\nsecond",
            "fallback": "gitsync/demo.shop: failed: &lt;@all&gt; &amp; more", "mrkdwn_in": [],
            "fields": [
                {"title": "summary", "value": "production", "short": false},
                {"title": "revision", "value": "sha1:0123", "short": false},
            ],
        }]})
    );
}

#[test]
fn alertmanager_gets_labels_that_stay_the_same_for_all_commits() {
    let spec = json!({"type": "alertmanager", "address": "http://alertmanager.monitoring:9093/api/v2/alerts"});
    let mut notice = failed();
    notice.metadata.insert("1-team.name".to_owned(), "a".to_owned());
    let (_, _, _, body) = sent(&target(spec, json!({})), &notice);
    assert_eq!(
        body[0]["labels"],
        json!({
            "alertname": "MainstayGitSyncFailed", "severity": "error", "reason": "Failed", "kind": "GitSync", "name": "demo",
            "namespace": "shop", "reportingcontroller": "mainstay", "_1_team_name": "a",
        })
    );
    assert_eq!(body[0]["annotations"]["summary"], "production");
    assert_eq!(body[0]["startsAt"], "1970-01-01T00:00:00Z");
}

#[test]
fn a_commit_status_is_posted_to_the_api_of_the_host() {
    let check = |kind: &str, address: &str, url: &str, header: &str, failed_state: &str| {
        let target = target(json!({"type": kind, "address": address}), json!({"token": "t"}));
        for (notice, is_failed) in [(failed(), true), (applied(), false)] {
            let (method, to, headers, body) = sent(&target, &notice);
            assert_eq!((method.as_str(), to.as_str()), ("POST", url));
            assert!(headers.contains(header), "{kind}: {headers}");
            assert_eq!(body["state"] == failed_state, is_failed, "{kind}: {body}");
        }
        assert!(target.kind.takes(&failed()) && !target.kind.takes(&notice("a", Priority::Routine)));
    };
    let github = format!("https://api.github.com/repos/o/r/statuses/{SHA}");
    check("github", "https://github.com/o/r.git", &github, "authorization: Bearer t", "failure");
    let own = format!("https://ghe.example/api/v3/repos/o/r/statuses/{SHA}");
    check("github", "https://ghe.example/o/r", &own, "authorization: Bearer t", "failure");
    let gitlab = format!("https://gitlab.com/api/v4/projects/g%2Fs%2Fr/statuses/{SHA}");
    check("gitlab", "https://gitlab.com/g/s/r", &gitlab, "private-token: t", "failed");
    let gitea = format!("https://gitea.example:3000/api/v1/repos/o/r/statuses/{SHA}");
    check("gitea", "https://gitea.example:3000/o/r", &gitea, "authorization: token t", "failure");
    let bitbucket = format!("https://api.bitbucket.org/2.0/repositories/o/r/commit/{SHA}/statuses/build");
    check("bitbucket", "https://bitbucket.org/o/r", &bitbucket, "authorization: Bearer t", "FAILED");
    let azure = format!("https://dev.azure.com/o/p/_apis/git/repositories/r/commits/{SHA}/statuses?api-version=7.0");
    check("azuredevops", "https://dev.azure.com/o/p/_git/r", &azure, "authorization: Basic OnQ=", "failed");
}

#[test]
fn a_commit_status_keeps_one_context_and_refuses_a_forged_commit() {
    let target = target(json!({"type": "github", "address": "https://github.com/o/r"}), json!({"token": "t"}));
    let (_, _, _, body) = sent(&target, &applied());
    assert_eq!(body, json!({"state": "success", "context": "gitsync/demo/0b9a8c1d", "description": "commit applied"}));
    let forged = Notice { commit: Some(("../../x".to_owned(), CommitState::Success)), ..applied() };
    assert_eq!(target.delivery(&forged).unwrap_err(), "the message has no full commit id");
}

#[test]
fn lark_gets_a_card_of_plain_texts_within_its_limit() {
    let address = "https://open.larksuite.com/open-apis/bot/v2/hook/canary";
    let target = target(json!({"type": "lark", "address": address}), json!({}));
    let (method, url, _, body) = sent(&target, &failed());
    assert_eq!((method.as_str(), url.as_str()), ("POST", address));
    let plain = |content: &str| json!({"tag": "plain_text", "content": content});
    assert_eq!(
        body,
        json!({"msg_type": "interactive", "card": {
            "config": {"wide_screen_mode": true},
            "header": {"title": plain("gitsync/demo.shop"), "template": "red"},
            "elements": [
                {"tag": "div", "text": plain("failed: <\u{200b}@\u{200b}all> & more\nsecond")},
                {"tag": "div", "text": plain("summary: production\nrevision: sha1:0123")},
            ],
        }})
    );
    assert_eq!(sent(&target, &applied()).3["card"]["header"]["template"], "turquoise");
    let details = (0..200).map(|number| (format!("field-{number}"), "\"".repeat(900))).collect();
    let (_, _, _, body) = sent(&target, &Notice { message: "\"".repeat(9000), details, ..failed() });
    assert!(body.to_string().len() < 20_000, "{}", body.to_string().len());
}

/// The address of a clone at Bitbucket Server.
pub(super) const CLONE: &str = "https://example.com:7990/context/scm/projectfoo/repobar.git";

fn look_up(target: &Target, notice: &Notice) -> LookUp {
    match target.delivery(notice).unwrap() {
        Delivery::Unless(look_up, _) => look_up,
        other => panic!("{other:?}"),
    }
}

#[test]
fn bitbucket_server_is_asked_for_the_status_before_it_is_set() {
    let spec = || json!({"type": "bitbucketserver", "address": CLONE});
    let token = target(spec(), json!({"token": "goodtoken", "headers": "X-Tenant: a"}));
    let login = target(spec(), json!({"username": "hello", "password": "password"}));
    let builds = format!(
        "https://example.com:7990/context/rest/api/latest/projects/projectfoo/repos/repobar/commits/{SHA}/builds"
    );
    for (target, authorization) in [(&token, "Bearer goodtoken"), (&login, "Basic aGVsbG86cGFzc3dvcmQ=")] {
        let (method, url, headers, body) = sent(target, &applied());
        assert_eq!((method.as_str(), url.as_str()), ("POST", builds.as_str()));
        let key = body["key"].as_str().unwrap();
        assert!(key.len() == 40 && key.bytes().all(|byte| byte.is_ascii_hexdigit()), "{key}");
        assert_eq!(
            body,
            json!({
                "key": key, "state": "SUCCESSFUL", "url": CLONE, "description": "commit applied",
                "name": "gitsync/demo [commit applied]",
            })
        );
        assert!(headers.contains("content-type: application/json"), "{headers}");
        let (by, at, asked, nothing) = parts(look_up(target, &applied()).request().clone());
        assert_eq!((by.as_str(), at, nothing), ("GET", format!("{builds}?key={key}"), Value::Null));
        for headers in [&headers, &asked] {
            for expected in [authorization, "x-atlassian-token: no-check", "x-requested-with: XMLHttpRequest"] {
                assert!(headers.contains(expected), "{headers}");
            }
            assert_eq!(headers.contains("x-tenant: a"), authorization.starts_with("Bearer"), "{headers}");
        }
    }
    assert_eq!(sent(&token, &failed()).3["state"], "FAILED");
    let pending = Notice { commit: Some((SHA.to_owned(), CommitState::Pending)), ..applied() };
    assert_eq!(sent(&token, &pending).3["state"], "INPROGRESS");
}

#[test]
fn bitbucket_server_has_a_status_if_all_its_fields_are_equal() {
    let target = target(json!({"type": "bitbucketserver", "address": CLONE}), json!({"token": "t"}));
    let (_, _, _, mut found) = sent(&target, &applied());
    let finds = |body: &[u8]| look_up(&target, &applied()).finds(body);
    (found["url"], found["createdDate"]) = (json!("https://other.example.com"), json!(1));
    assert_eq!(finds(found.to_string().as_bytes()), Ok(true));
    for field in ["key", "state", "description", "name"] {
        let mut other = found.clone();
        other[field] = json!("TEST2");
        assert_eq!(finds(other.to_string().as_bytes()), Ok(false), "{field}");
    }
    assert_eq!(finds(b"{}"), Ok(false));
    for other in ["", "<html>canary", "[]", "{\"key\":"] {
        let why = finds(other.as_bytes()).unwrap_err();
        assert!(why.contains("not answer with a build status") && !why.contains("canary"), "{why}");
    }
}

#[test]
fn bitbucket_server_needs_a_token_or_a_login() {
    let needs = |secret: Value| {
        let data: BTreeMap<String, String> = serde_json::from_value(secret).unwrap();
        let data = data.into_iter().map(|(key, value)| (key, ByteString(value.into_bytes()))).collect();
        let spec = json!({"type": "bitbucketserver", "address": CLONE});
        Target::new(&serde_json::from_value(spec).unwrap(), &Identity::default(), Some(&data)).err().unwrap_or_default()
    };
    let missing = "spec.secretRef: bitbucketserver needs a Secret with the key token, or username and password";
    for secret in [json!({}), json!({"username": "a"}), json!({"password": "b"})] {
        assert_eq!(needs(secret), [missing]);
    }
    assert_eq!(needs(json!({"username": "a", "password": "b"})), [""; 0]);
}

#[test]
fn long_names_stay_within_the_limits_of_bitbucket_server() {
    let target = target(json!({"type": "bitbucketserver", "address": CLONE}), json!({"token": "t"}));
    let notice = Notice { name: "a".repeat(253), reason: "B".repeat(300), ..applied() };
    let (_, _, _, body) = sent(&target, &notice);
    for field in ["key", "name", "description"] {
        assert!(body[field].as_str().unwrap().len() <= 255, "{field}");
    }
}

#[test]
fn nats_gets_the_event_of_flux() {
    let target = target(json!({"type": "nats", "address": "nats://bus", "channel": "a.b"}), json!({}));
    let Delivery::Nats(publication) = target.delivery(&failed()).unwrap() else { panic!("it is a publication") };
    let [_, message] = publication.commands(crate::nats::Security::Plain);
    let text = String::from_utf8(message.expose().clone()).unwrap();
    let (_, event) = text.strip_suffix("\r\nPING\r\n").unwrap().split_once("\r\n").unwrap();
    let event: Value = serde_json::from_str(event).unwrap();
    assert_eq!((&event["severity"], &event["reason"]), (&json!("error"), &json!("Failed")));
    assert_eq!(event["message"], "failed: <@all> & more\nsecond");
}

#[test]
fn pagerduty_resolves_the_incident_of_a_failed_commit_when_a_commit_is_applied() {
    let target = target(json!({"type": "pagerduty", "channel": "routing"}), json!({}));
    let (_, url, _, trigger) = sent(&target, &failed());
    let (_, _, _, resolve) = sent(&target, &applied());
    assert_eq!(url, "https://events.pagerduty.com/v2/enqueue");
    assert_eq!((&trigger["event_action"], &resolve["event_action"]), (&json!("trigger"), &json!("resolve")));
    assert_eq!(trigger["dedup_key"], resolve["dedup_key"]);
    let (_, url, _, _) = sent(&target, &notice("a", Priority::Routine));
    assert_eq!(url, "https://events.pagerduty.com/v2/change/enqueue");
}

#[test]
fn chats_get_their_address_and_channel() {
    let check = |kind: &str, address: Option<&str>, method: &str, url: &str, pointer: &str, value: &str| {
        let spec = json!({"type": kind, "address": address, "channel": "!a:b"});
        let (by, to, _, body) = sent(&target(spec, json!({"token": "t"})), &failed());
        assert_eq!((by.as_str(), to.starts_with(url)), (method, true), "{kind}: {to}");
        assert_eq!(body.pointer(pointer).and_then(Value::as_str), Some(value), "{kind}: {body}");
    };
    check("telegram", None, "POST", "https://api.telegram.org/bott/sendMessage", "/chat_id", "!a");
    let matrix = "https://m.example/_matrix/client/v3/rooms/%21a%3Ab/send/m.room.message/";
    check("matrix", Some("https://m.example"), "PUT", matrix, "/msgtype", "m.text");
    check("webex", None, "POST", "https://webexapis.com/v1/messages", "/roomId", "!a:b");
    let discord = Some("https://discord.com/api/webhooks/1/2");
    check("discord", discord, "POST", "https://discord.com/api/webhooks/1/2", "/embeds/0/title", "gitsync/demo.shop");
    let with_slack = Some("https://discord.com/api/webhooks/1/2/slack");
    let (_, to, _, _) = sent(&target(json!({"type": "discord", "address": with_slack}), json!({})), &failed());
    assert_eq!(to, "https://discord.com/api/webhooks/1/2");
    let other = Some("https://h.example/x");
    check("rocket", other, "POST", "https://h.example/x", "/channel", "!a:b");
    check("msteams", other, "POST", "https://h.example/x", "/attachments/0/content/version", "1.4");
    check("googlechat", other, "POST", "https://h.example/x", "/cardsV2/0/card/header/title", "gitsync/demo.shop");
    check("grafana", other, "POST", "https://h.example/x", "/tags/0", "mainstay");
    let sentry = Some("https://key@s.example/7");
    check("sentry", sentry, "POST", "https://s.example/api/7/store/", "/level", "error");
    check("opsgenie", None, "POST", "https://api.opsgenie.com/v2/alerts", "/message", "gitsync/demo.shop");
    let repository = Some("https://github.com/o/r");
    check(
        "githubdispatch",
        repository,
        "POST",
        "https://api.github.com/repos/o/r/dispatches",
        "/event_type",
        "GitSync/demo.shop",
    );
}

/// Returns all strings of a body, with the names of their fields.
fn texts(body: &Value, name: &str, all: &mut Vec<(String, String)>) {
    match body {
        Value::String(text) => all.push((name.to_owned(), text.clone())),
        Value::Array(values) => values.iter().for_each(|value| texts(value, name, all)),
        Value::Object(values) => values.iter().for_each(|(name, value)| {
            all.push(("name of a field".to_owned(), name.clone()));
            texts(value, name, all);
        }),
        _ => {}
    }
}

#[test]
fn hostile_texts_link_nowhere_and_mention_no_one_in_any_service() {
    const HOSTILE: &str = "<!channel> <http://evil|Approve> [Approve](http://evil) <a href=\"http://evil\"> @room @everyone http://evil/bare";
    let hostile = || BTreeMap::from([("who".to_owned(), HOSTILE.to_owned()), (HOSTILE.to_owned(), HOSTILE.to_owned())]);
    let mut notice = Notice { message: HOSTILE.to_owned(), details: hostile(), ..failed() };
    (notice.name, notice.reason) = (HOSTILE.to_owned(), HOSTILE.to_owned());
    notice.metadata.insert("summary".to_owned(), HOSTILE.to_owned());
    notice.object = Some(HOSTILE.to_owned());
    let entities = &["<!", "<http", "<a"][..];
    let markdown = &["<!", "<http", "](", "@room", "@everyone"];
    let checked = |text: &str| text.replace("\\]\\(", "").replace("\\@", "").replace("\\<", "");
    for (kind, begins) in [
        ("slack", entities),
        ("googlechat", entities),
        ("discord", markdown),
        ("msteams", markdown),
        ("rocket", markdown),
        ("telegram", &["@room", "@everyone"]),
        ("matrix", &["@room", "@everyone"]),
        ("webex", &["@room", "@everyone"]),
        ("lark", markdown),
        ("datadog", markdown),
        ("pagerduty", markdown),
        ("opsgenie", markdown),
        ("alertmanager", markdown),
        ("sentry", markdown),
        ("grafana", &["<a", "<http"]),
    ] {
        let address = if kind == "sentry" { "https://key@h.example/7" } else { "https://h.example/x" };
        let spec = json!({"type": kind, "address": address, "channel": "!a:b"});
        let (_, _, _, body) = sent(&target(spec, json!({"token": "t"})), &notice);
        let mut all = Vec::new();
        texts(&body, "", &mut all);
        assert!(all.iter().filter(|(_, text)| text.contains("Approve")).count() >= 1, "{kind}: {body}");
        for (name, text) in all {
            let found = begins.iter().find(|begin| checked(&text).contains(**begin));
            assert_eq!(found, None, "{kind}: {name}: {text}");
            assert!(!text.contains("://evil"), "{kind}: {name}: {text}");
        }
        match kind {
            "matrix" => assert_eq!(body["m.mentions"], json!({})),
            "discord" => assert_eq!(body["allowed_mentions"], json!({"parse": []})),
            _ => {}
        }
    }
}

#[test]
fn a_message_for_discord_stays_within_its_limits() {
    let details = (0..40).map(|number| (format!("field-{number}"), "[".repeat(900))).collect();
    let mut notice = Notice { message: "[".repeat(9000), details, ..failed() };
    notice.metadata.insert("empty".to_owned(), String::new());
    let spec = json!({"type": "discord", "address": "https://h.example/x"});
    let (_, _, _, body) = sent(&target(spec, json!({})), &notice);
    let embed = &body["embeds"][0];
    assert_eq!(embed["description"].as_str().unwrap(), "\\[".repeat(1000));
    let fields = embed["fields"].as_array().unwrap();
    assert!(!fields.is_empty() && fields.iter().all(|field| field["value"] != ""), "{fields:?}");
    let mut all = Vec::new();
    texts(embed, "", &mut all);
    assert!(all.iter().map(|(_, text)| text.len()).sum::<usize>() <= 6000);
}
