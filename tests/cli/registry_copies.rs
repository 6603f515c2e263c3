//! A namespace that replaces a copied registry Secret by its own.

use mainstay_testkit::dev::{Dev, wait_until};

const NAME: &str = "serverless-registry-config";

/// `kubectl create` cannot replace the copy. The command in its output can, and so can an annotation of the copy.
#[test]
fn a_copied_secret_is_taken_over_by_the_command_that_kubectl_prints() {
    let home = tempfile::tempdir().unwrap();
    let dev = Dev::start(home.path(), &[]);
    dev.event("commitApplied");
    let config = ["create", "secret", "generic", NAME, "--from-literal=username=x", "--from-literal=password=y"];
    // The Secret of the agent's namespace is copied to all namespaces once it has the label.
    dev.kubectl(&[&config[..], &["-n", "default"]].concat());
    dev.kubectl(&["label", "secret", NAME, "-n", "default", "serverless.kyma-project.io/config=credentials"]);
    dev.kubectl(&["create", "namespace", "team"]);
    wait_until("there is a copy", || dev.try_kubectl(&["get", "secret", NAME, "-n", "team"]).is_ok());

    let mine = [&config[..], &["-n", "team"]].concat();
    let command = format!("kubectl label secret {NAME} -n team serverless.kyma-project.io/managed-by=user");
    let mut refused = String::new();
    wait_until("the webhook is configured", || {
        refused = dev.try_kubectl(&mine).unwrap_err();
        refused.contains("Warning: ")
    });
    assert!(refused.contains(&command) && refused.contains("already exists"), "{refused}");
    let about = ["get", "secret", NAME, "-n", "team", "-o", "jsonpath={.metadata.annotations.mainstay\\.dev/copy-of}"];
    let about = dev.kubectl(&about);
    assert!(about.contains(&command.replace(" -n team", "")), "{about}");

    let words: Vec<&str> = command.split(' ').skip(1).collect();
    dev.kubectl(&words);
    let mine = dev.kubectl(&[&mine[..], &["--dry-run=client", "-o", "yaml"]].concat());
    let file = home.path().join("mine.yaml");
    std::fs::write(&file, mine.replace("eA==", "bWluZQ==")).unwrap();
    dev.kubectl(&["apply", "-n", "team", "-f", file.to_str().unwrap()]);
    // A change by the agent reaches other namespaces, but not the namespace with its own Secret.
    dev.kubectl(&["patch", "secret", NAME, "-n", "default", "-p", r#"{"stringData":{"username":"z"}}"#]);
    dev.kubectl(&["create", "namespace", "other"]);
    let username = ["get", "secret", NAME, "-o", "jsonpath={.data.username}", "-n"];
    wait_until("the change is copied", || {
        dev.try_kubectl(&[&username[..], &["other"]].concat()).is_ok_and(|name| name == "eg==")
    });
    assert_eq!(dev.kubectl(&[&username[..], &["team"]].concat()), "bWluZQ==");
    // A Secret with another name causes no warning.
    let other = dev.kubectl(&["create", "secret", "generic", "other", "-n", "team", "--from-literal=a=b"]);
    assert!(!other.contains("Warning"), "{other}");
}
