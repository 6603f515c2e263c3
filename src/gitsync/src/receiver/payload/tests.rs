//! Payloads in the shape that each host documents.

use proptest::prelude::*;

use super::*;

/// `named | moved | default branch | event`.
fn shown(push: &Push) -> String {
    let moved = match &push.moved {
        Moved::Any => "any".to_owned(),
        Moved::Named(names) => names.join(" "),
    };
    let text = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    format!("{} | {moved} | {} | {}", push.named.join(" "), text(&push.default_branch), text(&push.event))
}

#[track_caller]
fn check(kind: ReceiverType, body: &str, expected: &str) {
    let got = match read(kind, body.as_bytes()) {
        Ok(Some(push)) => shown(&push),
        Ok(None) => "everything".to_owned(),
        Err(error) => error.to_string(),
    };
    assert_eq!(got, expected, "{kind:?}: {body}");
}

const GITHUB: &str = r#"{
  "ref": "refs/heads/main", "before": "0000", "after": "1111", "forced": false, "commits": [{"id": "1111", "added": ["a"]}],
  "repository": {"id": 1, "full_name": "team/shop", "private": true, "default_branch": "main",
    "html_url": "https://github.com/team/shop", "url": "https://api.github.com/repos/team/shop",
    "git_url": "git://github.com/team/shop.git", "ssh_url": "git@github.com:team/shop.git",
    "clone_url": "https://github.com/team/shop.git"},
  "pusher": {"name": "someone"}, "sender": {"login": "someone"}
}"#;
const GITHUB_READ: &str = "https://github.com/team/shop.git git@github.com:team/shop.git \
                           git://github.com/team/shop.git https://github.com/team/shop | refs/heads/main | \
                           refs/heads/main | -";

#[test]
fn github() {
    use ReceiverType::Github;
    check(Github, GITHUB, GITHUB_READ);
    check(
        Github,
        r#"{"zen": "Keep it logically awesome.", "hook_id": 1, "hook": {"type": "Repository"}}"#,
        " | any | - | -",
    );
    check(Github, r#"{"ref": "v1", "ref_type": "tag"}"#, " | refs/tags/v1 | - | -");
    check(Github, r#"{"ref": "a/b", "ref_type": "branch", "repository": null}"#, " | refs/heads/a/b | - | -");
    check(Github, r#"{"ref": 7}"#, "the body is not a payload of this type of host: line 1, column 9");
    check(Github, "[]", "the body is not a payload of this type of host: line 1, column 2");
    check(Github, "", "the body is not a payload of this type of host: line 1, column 0");
}

#[test]
fn github_as_a_form() {
    let form: String = form_urlencoded::Serializer::new("a=b".to_owned()).append_pair("payload", GITHUB).finish();
    let push = read(ReceiverType::Github, &of_form(form.as_bytes()).unwrap()).unwrap().unwrap();
    assert_eq!(shown(&push), GITHUB_READ);
    assert_eq!(of_form(b"a=b"), Err(Malformed::Form));
    assert_eq!(of_form(b"payload=a+b%2Bc%26\xff").unwrap(), b"a b+c&\xff", "as the host has signed it");
}

#[test]
fn gitea_and_forgejo() {
    let body = r#"{"ref": "refs/heads/dev", "before": "0", "after": "1", "compare_url": "https://git.corp/team/shop/compare/0...1",
      "repository": {"id": 1, "clone_url": "https://git.corp/team/shop.git", "ssh_url": "ssh://git@git.corp:2222/team/shop.git",
      "html_url": "https://git.corp/team/shop", "default_branch": "main"}}"#;
    let read = "https://git.corp/team/shop.git ssh://git@git.corp:2222/team/shop.git https://git.corp/team/shop | \
                refs/heads/dev | refs/heads/main | -";
    check(ReceiverType::Gitea, body, read);
}

#[test]
fn gitlab() {
    let body = r#"{"object_kind": "push", "event_name": "push", "ref": "refs/heads/main", "project_id": 1,
      "project": {"web_url": "https://gitlab.com/team/shop", "git_ssh_url": "git@gitlab.com:team/shop.git",
        "git_http_url": "https://gitlab.com/team/shop.git", "default_branch": "main"},
      "repository": {"name": "shop", "url": "git@gitlab.com:team/shop.git", "homepage": "https://gitlab.com/team/shop"},
      "total_commits_count": 1}"#;
    let read = "https://gitlab.com/team/shop.git git@gitlab.com:team/shop.git https://gitlab.com/team/shop \
                https://gitlab.com/team/shop | refs/heads/main | refs/heads/main | push";
    check(ReceiverType::Gitlab, body, read);
    let system = r#"{"event_name": "repository_update", "changes": [{"ref": "refs/heads/a"}], "refs": ["refs/heads/a", "refs/tags/b"],
      "project": {"git_http_url": "https://gitlab.com/team/shop.git"}}"#;
    let read = "https://gitlab.com/team/shop.git | refs/heads/a refs/tags/b | - | repository_update";
    check(ReceiverType::Gitlab, system, read);
}

#[test]
fn bitbucket_cloud() {
    let body = r#"{"actor": {}, "repository": {"type": "repository", "full_name": "team/shop", "name": "shop", "project": {"key": "T"},
        "links": {"self": {"href": "https://api.bitbucket.org/2.0/repositories/team/shop"}, "html": {"href": "https://bitbucket.org/team/shop"}}},
      "push": {"changes": [
        {"new": {"type": "branch", "name": "main", "target": {"hash": "1"}}, "old": {"type": "branch", "name": "main"}, "forced": false},
        {"new": null, "old": {"type": "tag", "name": "v1"}, "closed": true}]}}"#;
    check(ReceiverType::Bitbucket, body, "https://bitbucket.org/team/shop | refs/heads/main refs/tags/v1 | - | -");
}

#[test]
fn bitbucket_data_center() {
    let with = |links: &str| {
        format!(
            r#"{{"eventKey": "repo:refs_changed", "actor": {{"name": "admin"}}, "repository": {{"slug": "shop", "id": 84,
            "project": {{"key": "TEAM", "id": 1, "public": false}}, "public": false{links}}},
            "changes": [{{"ref": {{"id": "refs/heads/main", "displayId": "main", "type": "BRANCH"}}, "refId": "refs/heads/main"}}]}}"#
        )
    };
    check(ReceiverType::Bitbucket, &with(""), "TEAM/shop | refs/heads/main | - | -");
    let links = r#", "links": {"clone": [{"href": "https://bb.corp/scm/team/shop.git", "name": "http"},
        {"href": "ssh://git@bb.corp:7999/team/shop.git", "name": "ssh"}], "self": [{"href": "https://bb.corp/projects/TEAM/repos/shop/browse"}]}"#;
    let read = "https://bb.corp/scm/team/shop.git ssh://git@bb.corp:7999/team/shop.git | refs/heads/main | - | -";
    check(ReceiverType::Bitbucket, &with(links), read);
    check(ReceiverType::Bitbucket, r#"{"test": true}"#, " | any | - | -");
}

#[test]
fn azure_devops() {
    let body = r#"{"subscriptionId": "0", "eventType": "git.push", "publisherId": "tfs", "message": {"text": "pushed"},
      "resource": {"commits": [{"commitId": "1"}], "refUpdates": [{"name": "refs/heads/main", "oldObjectId": "0", "newObjectId": "1"}],
        "repository": {"id": "1", "name": "shop", "url": "https://dev.azure.com/org/_apis/git/repositories/1",
          "project": {"id": "1", "name": "team"}, "defaultBranch": "refs/heads/main",
          "remoteUrl": "https://org@dev.azure.com/org/team/_git/shop"}}}"#;
    let read = "https://org@dev.azure.com/org/team/_git/shop | refs/heads/main | refs/heads/main | git.push";
    check(ReceiverType::AzureDevops, body, read);
}

#[test]
fn generic() {
    check(ReceiverType::Generic, "whatever", "everything");
    check(ReceiverType::GenericHmac, "whatever", "everything");
    check(ReceiverType::GenericHmac, r#"{"repository": {"url": "https://e.org/a"}}"#, "everything");
    check(ReceiverType::GenericHmac, r#"{"repository": "https://e.org/a"}"#, "https://e.org/a | any | - | -");
    let body = r#"{"repository": "https://e.org/a", "ref": "main"}"#;
    check(ReceiverType::GenericHmac, body, "https://e.org/a | refs/heads/main refs/tags/main | - | -");
}

#[test]
fn gcr() {
    use ReceiverType::Gcr;
    let of = |data: &str| format!(r#"{{"message": {{"data": "{}", "messageId": "1"}}}}"#, BASE64_STANDARD.encode(data));
    let image = "us-docker.pkg.dev/shop/web/web";
    check(
        Gcr,
        &of(&format!(r#"{{"action": "INSERT", "digest": "{image}@sha256:0", "tag": "{image}:1"}}"#)),
        "everything",
    );
    check(Gcr, &of(&format!(r#"{{"action": "DELETE", "tag": "{image}:1"}}"#)), "everything");
    let lacking = "the body is not a payload of this type of host: message.data must be JSON in Base64 with `action`, and \
                   with `digest` or `tag`";
    for data in [
        "",
        "{",
        "[]",
        "{}",
        r#"{"action": "INSERT"}"#,
        r#"{"action": "", "tag": "a"}"#,
        r#"{"action": 1, "tag": "a"}"#,
    ] {
        check(Gcr, &of(data), lacking);
    }
    check(Gcr, r#"{"message": {"data": "%%%"}}"#, lacking);
    check(Gcr, r#"{"message": {}}"#, "the body is not a payload of this type of host: line 1, column 14");
    check(Gcr, "{}", "the body is not a payload of this type of host: line 1, column 2");
}

#[test]
fn cdevents() {
    let event = |context: &str, subject: &str| {
        let all = serde_json::json!({
            "context": {"version": "0.4.1", "id": "1", "source": "/ci", "type": "dev.cdevents.change.merged.0.2.0",
                "timestamp": "2026-01-01T00:00:00.5+01:00", "chainId": "x"},
            "subject": {"id": "web", "type": "change", "content": {"repository": {"id": "a"}}}, "customData": [1],
        });
        let (mut all, change) = (all, format!(r#"{{"context": {context}, "subject": {subject}}}"#));
        json_patch::merge(&mut all, &serde_json::from_str(&change).unwrap());
        all.to_string()
    };
    check(ReceiverType::Cdevents, &event("{}", "{}"), "everything");
    let custom = r#"{"type": "dev.cdeventsx.mytool-resource.created.0.1.0-draft"}"#;
    check(ReceiverType::Cdevents, &event(custom, r#"{"content": {}}"#), "everything");
    for (context, subject, part) in [
        (r#"{"id": ""}"#, "{}", "context.version, context.id, context.source and subject.id must not be empty"),
        ("{}", r#"{"id": ""}"#, "context.version, context.id, context.source and subject.id must not be empty"),
        (r#"{"type": "com.github.push"}"#, "{}", "context.type must be the type of a CDEvent"),
        (r#"{"type": "dev.cdevents.change"}"#, "{}", "context.type must be the type of a CDEvent"),
        (r#"{"type": "dev.cdevents.change..1"}"#, "{}", "context.type must be the type of a CDEvent"),
        (r#"{"timestamp": "yesterday"}"#, "{}", "context.timestamp must be a time of RFC 3339"),
        ("{}", r#"{"content": null}"#, "subject.content must be an object"),
    ] {
        let expected = format!("the body is not a payload of this type of host: {part}");
        check(ReceiverType::Cdevents, &event(context, subject), &expected);
    }
    for lacking in [r#"{"id": null}"#, r#"{"source": 1}"#, r#"{"version": null}"#] {
        let body = event(lacking, "{}");
        assert!(matches!(read(ReceiverType::Cdevents, body.as_bytes()), Err(Malformed::Json { .. })), "{body}");
    }
}

#[test]
fn a_list_that_is_too_long_moves_any_reference() {
    let refs = r#""refs/heads/a","#.repeat(super::super::bounded::MOST);
    check(ReceiverType::Gitlab, &format!(r#"{{"refs": [{refs} "refs/heads/b"]}}"#), " | any | - | -");
}

#[test]
fn an_empty_or_unknown_list_moves_any_reference() {
    check(ReceiverType::Gitlab, r#"{"refs": []}"#, " | any | - | -");
    check(ReceiverType::Bitbucket, r#"{"changes": []}"#, " | any | - | -");
    check(ReceiverType::Bitbucket, r#"{"changes": [{"ref": {"id": "refs/heads/a"}}, {}]}"#, " | any | - | -");
    check(ReceiverType::Bitbucket, r#"{"push": {"changes": []}}"#, " | any | - | -");
    check(ReceiverType::Bitbucket, r#"{"push": {"changes": [{"new": {"type": "branch"}}]}}"#, " | any | - | -");
    check(ReceiverType::AzureDevops, r#"{"resource": {"refUpdates": []}}"#, " | any | - | -");
    check(ReceiverType::AzureDevops, r#"{"resource": {"refUpdates": [{}]}}"#, " | any | - | -");
}

#[test]
fn a_body_that_is_deeper_than_any_payload_is_refused() {
    for kind in ReceiverType::ALL {
        let body = format!(r#"{{"x": {}"#, "[".repeat(1_000_000));
        let read = read(kind, body.as_bytes());
        assert!(matches!(read, Err(Malformed::TooMuch) | Ok(None)), "{kind:?}");
    }
}

#[test]
fn a_body_of_nothing_but_the_smallest_values_is_refused() {
    for kind in ReceiverType::ALL {
        let body = format!("[{}0]", "0,".repeat(MAX_BODY / 2));
        let read = read(kind, body.as_bytes());
        assert!(matches!(read, Err(Malformed::TooMuch) | Ok(None)), "{kind:?}");
    }
}

#[test]
fn a_filter_reads_a_push_of_as_many_commits_as_a_host_lists() {
    let person = r#"{"name": "Some One", "email": "someone@example.com", "date": "2026-01-01T00:00:00Z", "username": "someone"}"#;
    let commit = format!(
        r#"{{"id": "{0}", "tree_id": "{0}", "distinct": true, "message": "{1}", "timestamp": "2026-01-01T00:00:00Z",
        "url": "https://github.com/team/shop/commit/{0}", "author": {person}, "committer": {person},
        "added": ["a", "b"], "removed": [], "modified": ["c", "d", "e"]}}"#,
        "0".repeat(40),
        "x".repeat(300),
    );
    let commits = format!("{}{commit}", format!("{commit},").repeat(2047));
    let body = GITHUB.replace(r#"[{"id": "1111", "added": ["a"]}]"#, &format!("[{commits}]"));
    assert!(body.len() <= MAX_BODY, "{} bytes", body.len());
    let read = map(body.as_bytes()).unwrap();
    assert_eq!(read["commits"].as_array().map(Vec::len), Some(2048));
    let many = format!(r#"{{"l": [{}0]}}"#, r#"{"":0},"#.repeat(MAX_VALUES / 11));
    assert_eq!(map(many.as_bytes()), Err(Malformed::TooMuch), "names and objects count");
}

proptest! {
    /// Any body is parsed or refused, and an error quotes no part of it.
    #[test]
    fn any_body_is_read_or_refused(
        kind in proptest::sample::select(&ReceiverType::ALL[..]), body in proptest::collection::vec(any::<u8>(), 0..256),
    ) {
        let _ = read(kind, &body);
        let _ = of_form(&body);
    }

    /// A valid payload with some bytes replaced, and truncated.
    #[test]
    fn a_damaged_payload_is_read_or_refused(
        kind in proptest::sample::select(&ReceiverType::ALL[..]), end in 0..GITHUB.len(),
        changes in proptest::collection::vec((0..GITHUB.len(), any::<u8>()), 0..8),
    ) {
        let mut body = GITHUB.as_bytes().to_vec();
        for (at, byte) in changes {
            body[at] = byte;
        }
        body.truncate(end);
        let _ = read(kind, &body);
    }
}
