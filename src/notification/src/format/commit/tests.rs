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
fn the_description_of_a_failure_has_the_first_line_of_its_message() {
    let description = |kind: &str, address: &str, notice: &Notice| {
        let target = target(json!({"type": kind, "address": address}), json!({"token": "t"}));
        sent(&target, notice).3["description"].as_str().unwrap().to_owned()
    };
    let github = |notice: &Notice| description("github", "https://github.com/o/r", notice);
    assert_eq!(github(&applied()), "commit applied");
    assert_eq!(github(&failed()), "failed: <@\u{200b}all> & more");
    let told = |message: &str| Notice { reason: "ObjectFailed".to_owned(), message: message.to_owned(), ..failed() };
    assert_eq!(github(&told("Job shop/a failed: x")), "object failed: Job shop/a failed: x");
    assert_eq!(github(&told("2 problems:\n    a.yaml: x\n    b.yaml: y")), "object failed: 2 problems: a.yaml: x");
    assert_eq!(github(&told("see https://evil")), "object failed: see https:\u{200b}//evil");
    assert_eq!(github(&told("")), "object failed");
    let long = told(&"\u{e4}@".repeat(500));
    assert!((138..=140).contains(&github(&long).len()), "{}", github(&long));
    for (kind, address) in [
        ("gitlab", "https://gitlab.com/g/r"),
        ("gitea", "https://gitea.example/o/r"),
        ("bitbucket", "https://bitbucket.org/o/r"),
        ("bitbucketserver", CLONE),
        ("azuredevops", "https://dev.azure.com/o/p/_git/r"),
    ] {
        let text = description(kind, address, &long);
        assert!((250..=255).contains(&text.len()) && text.starts_with("object failed: "), "{kind}: {text}");
    }
}
