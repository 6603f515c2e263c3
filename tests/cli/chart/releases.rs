//! Releases of the chart with a running agent: their upgrades, their end, and the takeover of an installation.

use mainstay_testkit::shell::Shell;

use super::*;

/// Namespace of the releases.
const HOME: &str = "mainstay-tests-helm";
/// Values of the releases.
const VALUES: &str = "git.url=git@git.example.com:team/shop.git,v1alpha2=true";

/// Waits until the agent has generated all keys, certificates and logins, and returns them.
async fn generated(shell: &Shell) -> String {
    let mut all = String::new();
    for (what, path) in [
        ("secret shop-git", ".data"),
        ("secret mainstay-admission", ".data"),
        ("secret serverless-docker-registry", ".data"),
        ("crd functions.serverless.kyma-project.io", ".spec.conversion.webhook.clientConfig.caBundle"),
        ("mutatingwebhookconfiguration mainstay-admission", ".webhooks[*].clientConfig.caBundle"),
        ("validatingwebhookconfiguration mainstay-admission", ".webhooks[*].clientConfig.caBundle"),
    ] {
        let get = format!("kubectl get {what} -n {HOME} -o jsonpath='{{{path}}}'");
        all.push_str(&shell.until(&format!("{get} | grep .")).await.out);
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_keeps_generated_secrets_and_an_uninstall_keeps_what_others_need() {
    let shell = Shell::embedded(HOME).await;
    let install = format!("helm install mainstay {CHART} -n {HOME} --create-namespace --set {VALUES}");
    let notes = shell.run(&install).await.out;
    for expected in [
        format!("\n  mainstay identity -n {HOME}\n"),
        "\nWARNING: git.knownHosts has no key of git.example.com, ".to_owned(),
        concat!("\nWARNING: the image mainstay:", env!("CARGO_PKG_VERSION"), " is in no registry").to_owned(),
    ] {
        assert!(notes.contains(&expected), "{notes}");
    }
    let agent = shell.agent("agent").await;
    let made = generated(&shell).await;
    shell.until(&format!("kubectl get gitsync shop -n {HOME}")).await;

    let upgrade = format!("helm upgrade mainstay {CHART} -n {HOME} --reset-then-reuse-values --set git.interval=90s");
    shell.run(&upgrade).await;
    let interval = format!("kubectl get gitsync shop -n {HOME} -o jsonpath='{{.spec.interval}}' | grep -x 1m30s");
    shell.until(&interval).await;
    assert_eq!(generated(&shell).await, made);

    drop(agent);
    shell.run(&format!("helm uninstall mainstay -n {HOME}")).await;
    assert_eq!(shell.run(&format!("helm list -q -n {HOME}")).await.out, "");
    shell.run(&format!("! kubectl get deployment mainstay -n {HOME}")).await;
    shell.run(&format!("kubectl get gitsync/shop gitrepository/shop secret/shop-git -n {HOME}")).await;
    let registry = format!("kubectl get deployment,service,secret,pvc serverless-docker-registry -n {HOME}");
    shell.run(&registry).await;
    shell.run("mainstay crd | kubectl get -f -").await;

    // A release of the same name adopts them again.
    shell.run(&install).await;
    let key = format!("kubectl get secret shop-git -n {HOME} -o jsonpath='{{.data}}'");
    assert!(made.starts_with(&shell.run(&key).await.out));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_takes_over_what_install_has_made() {
    let shell = Shell::embedded(HOME).await;
    let flags = format!("-n {HOME} --git-url git@git.example.com:team/shop.git --v1alpha2");
    shell.run(&format!("mainstay install {flags} | kubectl apply -f -")).await;
    let _agent = shell.agent("agent").await;
    let made = generated(&shell).await;
    let install = format!("helm install mainstay {CHART} -n {HOME} --set {VALUES}");
    let refused = shell.try_run(&install).await;
    assert!(
        refused.code != 0 && refused.err.contains("cannot be imported into the current release"),
        "{}",
        refused.err
    );
    shell.run(&format!("{install} --take-ownership")).await;
    assert_eq!(generated(&shell).await, made);
    let pods = format!("kubectl get replicasets -n {HOME} -o name | wc -l");
    assert_eq!(shell.run(&pods).await.out.trim(), "2", "no pod is replaced");
}
