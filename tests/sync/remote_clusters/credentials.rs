//! The credentials of a remote cluster: their Secret, their change, and their secrecy.

use mainstay_testkit::{canary, logs};

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn new_credentials_for_the_same_cluster_are_used_at_once_and_nothing_is_forgotten() {
    let (mut world, mut other) = applied(json!({"interval": "1s"})).await;
    other.open("the-next-token").await;
    world.condition_is("demo", "Ready", "False ClusterUnavailable").await;
    let wrong = other.kubeconfig("a-wrong-token");
    world.set_secret("other", json!({"value": wrong}));
    let refused =
        "False ClusterUnavailable: the cluster does not accept the credentials in Secret other (spec.kubeConfig)";
    world.condition_is("demo", "Ready", refused).await;
    let uid = || other.server.object("v1", "configmaps", NAMESPACE, "a").unwrap()["metadata"]["uid"].clone();
    let before = uid();
    world.set_secret("other", json!({"value": other.kubeconfig("the-next-token")}));
    world.ready("demo").await;
    other.edit("a", "edited");
    world.until("it is reverted", |_| other.data("a") == "1").await;
    world.remote.remove("b.yaml");
    world.commit("demo", "two").await;
    world.until("what left is gone", |_| other.data("b") == "absent").await;
    assert_eq!(uid(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_cannot_be_used_is_refused_with_what_to_do() {
    let mut world = World::new().await;
    world.remote.file("a.yaml", config_map("a", "1")).commit("one");
    world.sync("demo", to("other"));
    world.start();
    world.condition_is("demo", "Ready", "False SecretNotFound: Secret other with the kubeconfig does not exist").await;
    world.set_secret("other", json!({"config": "x"}));
    let no_key =
        "False SpecInvalid: Secret other (spec.kubeConfig) has no key value or value.yaml; put the kubeconfig there";
    world.condition_is("demo", "Ready", no_key).await;
    let program = plain("https://192.0.2.1", "exec: {command: /bin/sh, args: [-c, 'touch /tmp/mainstay-was-here']}");
    world.set_secret("other", json!({"value.yaml": program}));
    let refused = "False SpecInvalid: Secret other (spec.kubeConfig) in value.yaml: users[0].user.exec: is not allowed";
    world.condition_is("demo", "Ready", refused).await;
    let other = Other::new().await;
    world.set_secret("other", json!({"value": other.kubeconfig(CANARY)}));
    world.ready("demo").await;
    assert_eq!((other.data("a"), world.data("a")), ("1".into(), "absent".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_of_another_cluster_are_shown_nowhere() {
    logs::keep();
    let (mut world, mut other) = applied(json!({"interval": "1s"})).await;
    world.set_secret("other", json!({"value": other.kubeconfig(CANARY).replace("token:", "tokem:")}));
    world
        .condition_is(
            "demo",
            "Ready",
            "False SpecInvalid: Secret other (spec.kubeConfig) in value: users[0].user.tokem",
        )
        .await;
    world.set_secret("other", json!({"value": format!("a: [{CANARY}")}));
    world
        .condition_is("demo", "Ready", "False SpecInvalid: Secret other (spec.kubeConfig) in value: is not valid YAML")
        .await;
    world.set_secret("other", json!({"value": other.kubeconfig(CANARY)}));
    world.ready("demo").await;
    other.open("another-token").await;
    world.condition_is("demo", "Ready", "False ClusterUnavailable").await;
    canary::nothing_is_shown(&mut world, &[CANARY]).await;
    assert!(!other.inventories().iter().any(|map| map.to_string().contains(CANARY)));
}
