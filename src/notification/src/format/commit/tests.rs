//! Tests of names and descriptions of commit statuses.

use serde_json::json;

use crate::format::tests::{CLONE, applied, failed, sent, target};
use crate::notice::Notice;

#[test]
fn an_expression_names_a_commit_status() {
    let status = |expression: &str, kind: &str, address: &str| {
        let spec = json!({"type": kind, "address": address, "commitStatusExpr": expression});
        target(spec, json!({"token": "canary"}))
    };
    let github = |expression: &str| status(expression, "github", "https://github.com/o/r");
    let context = |expression: &str| sent(&github(expression), &applied()).3["context"].clone();
    let of_flux = "(event.involvedObject.kind + '/' + event.involvedObject.name + '/' + event.metadata.summary + '/' + \
                   provider.metadata.uid.split('-')[0]).lowerAscii()";
    assert_eq!(context(of_flux), "gitsync/demo/production/uid");
    assert_eq!(context("provider.metadata.labels.cluster + '/' + provider.spec.type"), "prod/github");
    assert_eq!(context("event.reason + ' ' + event.metadata.revision"), "CommitApplied sha1:0123");
    assert_eq!(context("'@all ' + 'x'"), "@\u{200b}all x");
    let long = context(&format!("'{}'", "a".repeat(600)));
    assert_eq!(long, "a".repeat(255));
    let selected = Notice { alert: Some(r#"{"metadata":{"name":"all"}}"#.into()), ..applied() };
    assert_eq!(sent(&github("alert.metadata.name"), &selected).3["context"], "all");
    for (expression, expected) in [
        ("alert.metadata.name", "spec.commitStatusExpr: line 1, column 1: "),
        ("event.metadata.missing", "spec.commitStatusExpr: line 1, column"),
        ("event.metadata", "spec.commitStatusExpr: the result must be a string"),
    ] {
        let why = github(expression).delivery(&applied()).unwrap_err();
        assert!(why.starts_with(expected) && !why.contains("canary"), "{expression}: {why}");
    }
    let of = |kind: &str, address: &str| sent(&status("'fleet/prod'", kind, address), &applied()).3;
    assert_eq!(of("gitlab", "https://gitlab.com/g/r")["name"], "fleet/prod");
    assert_eq!(of("gitea", "https://gitea.example/o/r")["context"], "fleet/prod");
    assert_eq!(of("bitbucket", "https://bitbucket.org/o/r")["name"], "fleet/prod");
    assert_eq!(of("bitbucketserver", CLONE)["name"], "fleet/prod [commit applied]");
    let azure = of("azuredevops", "https://dev.azure.com/o/p/_git/r");
    assert_eq!(azure["context"], json!({"genre": "fleet", "name": "prod"}));
}

#[test]
fn a_description_is_the_reason_and_has_no_part_of_the_message() {
    let failed_with =
        Notice { reason: "ObjectFailed".to_owned(), message: "Job canary/a failed".to_owned(), ..failed() };
    for (kind, address) in [
        ("github", "https://github.com/o/r"),
        ("gitlab", "https://gitlab.com/g/r"),
        ("gitea", "https://gitea.example/o/r"),
        ("bitbucket", "https://bitbucket.org/o/r"),
        ("bitbucketserver", CLONE),
        ("azuredevops", "https://dev.azure.com/o/p/_git/r"),
    ] {
        let target = target(json!({"type": kind, "address": address}), json!({"token": "t"}));
        let description = |notice: &Notice| sent(&target, notice).3["description"].clone();
        assert_eq!(description(&applied()), "commit applied", "{kind}");
        assert_eq!(description(&failed()), "failed", "{kind}");
        let status = sent(&target, &failed_with).3;
        assert_eq!(status["description"], "object failed", "{kind}");
        assert!(!status.to_string().contains("canary"), "{kind}: {status}");
    }
}
