//! Tests of the conversations, with responses in the form of the three APIs.

use std::time::Duration;

use serde_json::{Value, json};

use crate::comment::{Comment, PER_PAGE};
use crate::delivery::Delivery;
use crate::format::tests::{applied, failed, parts, target};
use crate::notice::{CHANGE_REQUEST, Notice, Priority};
use crate::outcome::Outcome;
use crate::provider_type::ProviderType;
use crate::queue::tests::notice;
use crate::target::Target;

/// The id of the token's user.
const OWN: u64 = 7;

fn github() -> Target {
    target(json!({"type": "githubpullrequestcomment", "address": "https://github.com/o/r"}), json!({"token": "t"}))
}

fn numbered(number: &str, mut notice: Notice) -> Notice {
    notice.metadata.insert(CHANGE_REQUEST.to_owned(), number.to_owned());
    notice
}

fn conversation(target: &Target, notice: &Notice) -> Comment {
    match target.delivery(notice).unwrap() {
        Delivery::Comment(comment) => *comment,
        other => panic!("{other:?}"),
    }
}

fn answer(comment: &mut Comment, status: u16, body: &Value) -> Option<Outcome> {
    comment.answered(status, None, body.to_string().as_bytes())
}

/// Returns method and address of the next request.
fn next(comment: &Comment) -> (String, String) {
    let (method, url, _, _) = parts(comment.request());
    (method, url)
}

/// Returns the text of the comment.
fn text(comment: &Comment) -> String {
    let mut comment = comment.clone();
    answer(&mut comment, 200, &json!({"id": OWN}));
    answer(&mut comment, 200, &json!([]));
    let (method, _, _, body) = parts(comment.request());
    assert_eq!(method, "POST");
    body["body"].as_str().unwrap().to_owned()
}

/// Returns a comment as GitHub lists it.
fn listed(id: u64, user: u64, body: &str) -> Value {
    json!({
        "url": format!("https://api.github.com/repos/o/r/issues/comments/{id}"), "id": id, "node_id": "MDEyOklzc3Vl",
        "user": {"login": "octocat", "id": user, "type": "User", "site_admin": false}, "body": body,
        "created_at": "2026-04-14T16:00:49Z", "author_association": "COLLABORATOR", "performed_via_github_app": null,
        "reactions": {"total_count": 0, "+1": 0},
    })
}

fn refusal(outcome: Option<Outcome>) -> String {
    match outcome {
        Some(Outcome::Refused(why)) => format!("refused: {why}"),
        Some(Outcome::Retry { why, .. }) => format!("retry: {why}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_comment_is_created_and_then_edited_at_each_host() {
    let check = |kind: &str, address: &str, header: &str, urls: [&str; 4], edit: &str, in_list: fn(&str) -> Value| {
        let target = target(json!({"type": kind, "address": address}), json!({"token": "t", "headers": "X-Tenant: a"}));
        let [user, list, create, edited] = urls.map(str::to_owned);
        let mut comment = conversation(&target, &numbered("42", applied()));
        let (method, url, headers, _) = parts(comment.request());
        assert_eq!((method.as_str(), url), ("GET", user));
        assert!(headers.contains(header) && headers.contains("x-tenant: a"), "{headers}");
        assert_eq!(answer(&mut comment, 200, &json!({"id": OWN, "login": "bot", "username": "bot"})), None);
        assert_eq!(next(&comment), ("GET".to_owned(), list));
        let mut second = comment.clone();
        if kind == "gitlabmergerequestcomment" {
            // A page of GitLab lacks what the user may not read.
            assert_eq!(answer(&mut comment, 200, &json!([{"id": 1, "body": "a", "author": {"id": 8}}])), None);
            assert!(next(&comment).1.ends_with("&page=2"), "{:?}", next(&comment));
        }
        assert_eq!(answer(&mut comment, 200, &json!([])), None);
        let (method, url, headers, body) = parts(comment.request());
        assert_eq!((method.as_str(), url), ("POST", create));
        assert!(headers.contains(header), "{headers}");
        assert_eq!(answer(&mut comment, 201, &json!({"id": 1})), Some(Outcome::Delivered));

        assert_eq!(answer(&mut second, 200, &in_list(body["body"].as_str().unwrap())), None);
        let (method, url, headers, again) = parts(second.request());
        assert_eq!((method.as_str(), url, again), (edit, edited, body));
        assert!(headers.contains(header), "{headers}");
        assert_eq!(answer(&mut second, 200, &json!({"id": 25})), Some(Outcome::Delivered));
    };
    let list = "https://api.github.com/repos/o/r/issues/42/comments?per_page=50&page=1";
    let create = "https://api.github.com/repos/o/r/issues/42/comments";
    let edit = "https://api.github.com/repos/o/r/issues/comments/25";
    let urls = ["https://api.github.com/user", list, create, edit];
    check("githubpullrequestcomment", "https://github.com/o/r.git", "authorization: Bearer t", urls, "PATCH", |body| {
        json!([listed(24, 8, "other"), listed(25, OWN, body)])
    });
    let notes = "https://gitlab.example/api/v4/projects/g%2Fs%2Fr/merge_requests/42/notes";
    let list = format!("{notes}?sort=asc&order_by=created_at&per_page=50&page=1");
    let edit = format!("{notes}/25");
    let urls = ["https://gitlab.example/api/v4/user", &list, notes, &edit];
    check("gitlabmergerequestcomment", "https://gitlab.example/g/s/r", "private-token: t", urls, "PUT", |body| {
        json!([{
            "id": 25, "type": null, "body": body, "attachment": null, "system": false, "noteable_iid": 42,
            "author": {"id": OWN, "username": "bot", "name": "Bot", "state": "active"}, "resolvable": false,
        }])
    });
    let issues = "https://gitea.example:3000/api/v1/repos/o/r/issues";
    let (create, edit) = (format!("{issues}/42/comments"), format!("{issues}/comments/25"));
    let urls = ["https://gitea.example:3000/api/v1/user", &create, &create, &edit];
    check(
        "giteapullrequestcomment",
        "https://gitea.example:3000/o/r",
        "authorization: token t",
        urls,
        "PATCH",
        |body| {
            json!([{
                "id": 25, "html_url": "https://gitea.example:3000/o/r/pulls/42#issuecomment-25", "issue_url": "", "body": body,
                "user": {"id": OWN, "login": "bot"}, "original_author": "", "original_author_id": 0, "assets": [],
            }])
        },
    );
}

#[test]
fn a_comment_of_another_user_or_with_the_marker_inside_is_not_edited() {
    let mut comment = conversation(&github(), &numbered("42", applied()));
    let own = text(&comment);
    answer(&mut comment, 200, &json!({"id": OWN}));
    let quoted = format!("> {own}");
    let ghost = json!({"id": 3, "user": null, "body": own});
    let empty = json!({"id": 4, "user": {"id": OWN}, "body": null});
    let list = json!([listed(1, 8, &own), listed(2, OWN, &quoted), ghost, empty]);
    assert_eq!(answer(&mut comment.clone(), 200, &list), None);
    answer(&mut comment, 200, &list);
    assert_eq!(next(&comment).0, "POST");
}

#[test]
fn the_marker_is_different_for_each_provider_and_resource() {
    let marker =
        |target: &Target, notice: &Notice| text(&conversation(target, notice)).lines().next().unwrap().to_owned();
    let own = marker(&github(), &numbered("42", applied()));
    assert!(own.starts_with("<!-- mainstay-comment:") && own.ends_with(" -->"), "{own}");
    assert_eq!(own, marker(&github(), &numbered("42", failed())), "one comment for all messages");
    let other = Target { uid: "other".to_owned(), ..github() };
    assert_ne!(own, marker(&other, &numbered("42", applied())));
    let named = Notice { name: "other --> <b>".to_owned(), ..applied() };
    assert_ne!(own, marker(&github(), &numbered("42", named)));
}

#[test]
fn pages_are_read_until_the_comment_is_found_and_no_further_than_the_bound() {
    let mut comment = conversation(&github(), &numbered("42", applied()));
    let own = text(&comment);
    answer(&mut comment, 200, &json!({"id": OWN}));
    let full: Value = (0..PER_PAGE as u64).map(|id| listed(id, 8, "other")).collect();
    assert_eq!(answer(&mut comment, 200, &full), None);
    assert!(next(&comment).1.ends_with("/comments?per_page=50&page=2"), "{:?}", next(&comment));
    let mut found = comment.clone();
    answer(&mut found, 200, &json!([listed(77, OWN, &own)]));
    assert_eq!(next(&found), ("PATCH".to_owned(), "https://api.github.com/repos/o/r/issues/comments/77".to_owned()));
    let mut created = comment.clone();
    answer(&mut created, 200, &json!([]));
    assert_eq!(next(&created).0, "POST");
    for page in 2..20 {
        assert_eq!(answer(&mut comment, 200, &full), None, "{page}");
    }
    let why = refusal(answer(&mut comment, 200, &full));
    assert!(why.starts_with("refused: pull request 42 has more or longer comments than are read"), "{why}");
}

#[test]
fn a_page_that_is_too_long_hides_no_comment_before_its_end_and_causes_no_second_comment() {
    let mut comment = conversation(&github(), &numbered("42", applied()));
    let own = text(&comment);
    answer(&mut comment, 200, &json!({"id": OWN}));
    let long = "x".repeat(Comment::ANSWER_BYTES);
    let cut = |list: Value| list.to_string().into_bytes()[..Comment::ANSWER_BYTES].to_vec();
    let mut found = comment.clone();
    let page = cut(json!([listed(1, OWN, &own), listed(2, 8, &long)]));
    assert_eq!(found.answered(200, None, &page), None);
    assert!(next(&found).1.ends_with("/issues/comments/1"), "{:?}", next(&found));
    let page = cut(json!([listed(2, 8, &long), listed(1, OWN, &own)]));
    assert_eq!(comment.answered(200, None, &page), None);
    assert!(next(&comment).1.ends_with("&page=2"), "{:?}", next(&comment));
    let mut found = comment.clone();
    answer(&mut found, 200, &json!([listed(3, OWN, &own)]));
    assert!(next(&found).1.ends_with("/issues/comments/3"), "{:?}", next(&found));
    assert!(refusal(answer(&mut comment, 200, &json!([]))).contains("than are read"));
}

#[test]
fn a_comment_that_was_deleted_is_replaced_and_one_that_may_not_be_edited_is_not() {
    let mut comment = conversation(&github(), &numbered("42", applied()));
    let own = text(&comment);
    answer(&mut comment, 200, &json!({"id": OWN}));
    answer(&mut comment, 200, &json!([listed(1, OWN, &own)]));
    for status in [404, 410] {
        let mut comment = comment.clone();
        assert_eq!(answer(&mut comment, status, &json!({"message": "canary"})), None);
        assert_eq!(next(&comment).0, "POST", "{status}");
    }
    let why = refusal(answer(&mut comment.clone(), 403, &json!({})));
    assert!(why.starts_with("refused: pull request 42 accepts no comment with this token"), "{why}");
    let minute = Some(Duration::from_secs(60));
    let limited = comment.answered(403, minute, b"{}");
    assert!(matches!(limited, Some(Outcome::Retry { after, .. }) if after == minute), "{limited:?}");
}

#[test]
fn a_refused_token_is_tried_again_and_a_pull_request_that_takes_no_comment_is_not() {
    let comment = conversation(&github(), &numbered("42", applied()));
    let after = |bodies: &[Value], status: u16| {
        let mut comment = comment.clone();
        for body in bodies {
            assert_eq!(answer(&mut comment, 200, body), None);
        }
        refusal(answer(&mut comment, status, &json!({"message": "canary"})))
    };
    // The responses before the refusal: none, the user, and the empty list of comments.
    let before = [json!({"id": OWN}), json!([])];
    for (bodies, status, expected) in [
        (&before[..0], 401, "retry: the service refuses the credentials (status 401); correct the Secret"),
        (&before[..0], 404, "retry: the address does not exist"),
        (&before[..0], 200, "retry: the service does not answer with the user of the token"),
        (&before[..1], 403, "retry: the service refuses the credentials (status 403)"),
        (&before[..1], 404, "refused: pull request 42 is not found with this token (status 404)"),
        (&before[..1], 200, "retry: the service does not answer with comments"),
        (&before[..1], 502, "retry: the service answers with status 502"),
        (&before[..], 403, "refused: pull request 42 accepts no comment with this token (status 403)"),
        (&before[..], 404, "refused: pull request 42 is not found"),
        (&before[..], 422, "refused: the service refuses the message (status 422)"),
    ] {
        let why = after(bodies, status);
        assert!(why.starts_with(expected) && !why.contains("canary"), "{why}");
    }
}

#[test]
fn only_messages_about_a_state_with_the_number_of_a_pull_request_become_comments() {
    for kind in [ProviderType::GithubComment, ProviderType::GitlabComment, ProviderType::GiteaComment] {
        assert!(kind.takes(&numbered("42", applied())) && kind.takes(&numbered("42", notice("a", Priority::Failure))));
        assert!(!kind.takes(&numbered("42", notice("a", Priority::Routine))));
        assert!(!kind.takes(&applied()) && !kind.takes(&numbered("", applied())));
    }
    for number in ["+42", "-1", "4 2", "42/../43", "99999999999999999999"] {
        let why = github().delivery(&numbered(number, applied())).unwrap_err();
        assert!(why.starts_with("change_request of gitsync/demo.shop must be the number"), "{why}");
    }
    let why = github().delivery(&applied()).unwrap_err();
    assert!(why.starts_with("messages beyond spec.messagesPerMinute"), "{why}");
}

#[test]
fn a_comment_shows_the_message_and_the_fields_as_code() {
    let text = text(&conversation(&github(), &numbered("42", failed())));
    let (_, shown) = text.split_once('\n').unwrap();
    assert_eq!(
        shown,
        "## Mainstay\n\n⚠️ `` GitSync/shop/demo ``: `` Failed ``\n\n```text\nfailed: <@all> & more\nsecond\n```\n\n\
         - `` summary ``: `` production ``\n- `` revision ``: `` sha1:0123 ``\n"
    );
}

#[test]
fn hostile_strings_stay_within_the_code_and_are_no_commands() {
    let hostile = "``` `` ` @all #1 !1 <!-- --> <b>\n```\n/close\n@all\n~~~\n[a](http://evil)";
    let mut notice = numbered("42", failed());
    (notice.name, notice.reason, notice.message) = (hostile.to_owned(), hostile.to_owned(), hostile.to_owned());
    notice.metadata.insert(hostile.to_owned(), hostile.to_owned());
    let text = text(&conversation(&github(), &notice));
    let lines: Vec<&str> = text.lines().collect();
    assert!(!lines.iter().any(|line| line.starts_with('/')), "{text}");
    let fences: Vec<usize> = (0..lines.len()).filter(|at| lines[*at].contains("```")).collect();
    assert_eq!(fences.len(), 2, "{text}");
    assert_eq!((lines[fences[0]], lines[fences[1]]), ("```text", "```"));
    // Outside of the block, everything between pairs of double backticks is code.
    for line in lines[..fences[0]].iter().chain(&lines[fences[1] + 1..]).skip(1) {
        let outside: String = line.split("``").step_by(2).collect();
        assert!(!outside.contains(['@', '#', '!', '<', '[', '`']) || outside == "## Mainstay", "{line}");
    }
}

#[test]
fn a_comment_stays_within_the_limit_of_the_hosts() {
    let details = (0..500).map(|number| (format!("field-{number}"), "`".repeat(4000))).collect();
    let notice = Notice { message: "`".repeat(100_000), details, ..failed() };
    let text = text(&conversation(&github(), &numbered("42", notice)));
    assert!(text.len() <= 65_536, "{}", text.len());
}
