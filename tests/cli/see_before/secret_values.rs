//! Previews mask the values of Secrets, of substitutions from Secrets, and of encrypted objects.

use mainstay_testkit::sops::{AgeKey, Sops};

use super::*;

/// The value of `CANARY` in base64.
const CANARY_BASE64: &str = "aGVyb24tdGVhcG90LTc3NDE=";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_of_secrets_are_in_no_output() {
    let of = |value: &str, text: &str| {
        let secret = format!(
            "apiVersion: v1\nkind: Secret\nmetadata: {{name: s}}\nstringData: {{key: {value}, same: {CANARY}}}\n"
        );
        [
            ("s.yaml", secret),
            ("web.yaml", deployment("web", "nginx", 1).replace("value: \"1\"", &format!("value: \"{text}\""))),
            ("a.yaml", config_map("a", text)),
        ]
    };
    let from = json!([{"kind": "Secret", "name": "values"}]);
    let world = World::new().await;
    world.set_secret("values", json!({"PASSWORD": CANARY}));
    let world = applied(world, &of("first-value", "${PASSWORD}"), json!({"substituteFrom": from})).await;
    let clone = Clone::of(&world);
    let program = Program::of(&world).await;
    // First another Secret value, then a plain value.
    for text in ["x${PASSWORD}", "plain"] {
        for (path, text) in of("second-value", text) {
            clone.file(path, text);
        }
        for output in ["text", "wide", "json", "yaml", "markdown"] {
            let path = clone.text();
            let preview = ["diff", "demo", "--path", &path, "-o", output, "-n", NAMESPACE];
            let (code, out, error) = program.run(&preview).await;
            assert_eq!((code, &*error), (1, ""), "{out}");
            let base64 = ["Zmlyc3QtdmFsdWU", "c2Vjb25kLXZhbHVl"];
            for secret in [CANARY, CANARY_BASE64, "first-value", "second-value", base64[0], base64[1]] {
                assert!(!out.contains(secret), "{secret} is in {out}");
            }
            for seen in ["key: (masked, before)", "key: (masked, after)", "same: (masked)"] {
                assert!(out.contains(seen), "{seen} is not in {out}");
            }
            assert!(!out.contains("plain"), "what is there now is of a Secret: {out}");
        }
    }
    // The Secret has a different value than the cluster's object, and the commit no longer refers to it.
    world.set_secret("values", json!({"PASSWORD": "another-value"}));
    for (path, text) in of("second-value", "plain") {
        clone.file(path, text);
    }
    let (code, out) = mainstay(&world, &["diff", "demo", "--path", &clone.text()]).await;
    assert!(code == 1 && !out.contains(CANARY) && out.contains("3 changed"), "{out}");
    let shallow = tempfile::tempdir().unwrap();
    for (path, text) in of("second-value", "plain") {
        fs::write(shallow.path().join(path), text).unwrap();
    }
    let (code, out) = mainstay(&world, &["diff", "demo", "--path", &shallow.path().display().to_string()]).await;
    assert!(code == 1 && !out.contains(CANARY) && out.contains("note: values are masked"), "{out}");
    world.delete("v1", "secrets", "values");
    let (code, out) = mainstay(&world, &["diff", "demo", "--path", &clone.text()]).await;
    assert!(code == 2 && out.contains("spec.substituteFrom[0]: Secret values does not exist"), "{out}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn encrypted_objects_are_compared_decrypted_and_not_shown() {
    let (sops, key) = (Sops::new(), AgeKey::new());
    let sealed = |value: &str| {
        let rule = ["--age", key.recipient.as_str(), "--encrypted-regex", "^data$"];
        sops.encrypt("m.yaml", &config_map("m", value), &rule)
    };
    let world = World::new().await;
    world.set_secret("keys", json!({"a.agekey": key.identity.as_str()}));
    let decryption = json!({"provider": "sops", "secretRef": {"name": "keys"}});
    let world = applied(world, &[("m.yaml", sealed(CANARY))], json!({"decryption": decryption})).await;
    assert_eq!(world.data("m"), CANARY);
    let clone = Clone::of(&world);
    let preview = ["diff", "demo", "--path", &clone.text()];
    // The same value is unchanged, although it is encrypted again.
    clone.file("m.yaml", sealed(CANARY));
    let (code, out) = mainstay(&world, &preview).await;
    assert!(code == 0 && out.contains("1 unchanged"), "{out}");
    for text in [sealed("second-value"), config_map("m", "plain")] {
        clone.file("m.yaml", text);
        let (code, out) = mainstay(&world, &preview).await;
        assert!(code == 1 && out.contains("key: (masked, after)"), "{out}");
        assert!([CANARY, "second-value", "plain"].iter().all(|value| !out.contains(value)), "{out}");
    }
    world.delete("v1", "secrets", "keys");
    let (code, out) = mainstay(&world, &preview).await;
    assert!(code == 2 && out.contains("Secret keys with the keys that decrypt does not exist"), "{out}");
}
