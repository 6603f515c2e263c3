//! Encrypted files in a form that SOPS does not write, beyond those in `sops`.

use super::*;
use mainstay_testkit::sops::{AgeKey, Sops};

const FILE: &str = "app/db.yaml";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sops_files() {
    let (sops, key, other) = (Sops::new(), AgeKey::new(), AgeKey::new());
    let plain = format!(
        "apiVersion: v1\nkind: Secret\nmetadata:\n  name: db\nstringData:\n  password: {SECRET}\n  token: {SECRET}-2\n"
    );
    let intact =
        sops.encrypt("db.yaml", &plain, &["--age", &key.recipient, "--encrypted-regex", "^(data|stringData)$"]);
    let mut attacked = Attacked::new().await;
    let use_keys = |world: &World, text: &str| world.set_secret("keys", json!({"a.agekey": text}));
    use_keys(&attacked.world, &key.identity);
    attacked.world.change("demo", json!({"decryption": {"provider": "sops", "secretRef": {"name": "keys"}}})).await;
    attacked.world.ready("demo").await;

    let line = |text: &str, of: &str| text.lines().find(|line| line.contains(of)).unwrap().to_owned();
    let value = |of: &str| line(&intact, of).split_once(": ").unwrap().1.to_owned();
    let swapped = intact
        .replace(&value("password: ENC"), "@")
        .replace(&value("token: ENC"), &value("password: ENC"))
        .replace('@', &value("token: ENC"));
    // Splits off the key block, to build replacements for it.
    let (before, rest) = intact.split_once("    age:\n").unwrap();
    let end = rest.find("    lastmodified").unwrap();
    let (entry, after) = rest.split_at(end);
    let groups = |count: usize, threshold: &str| {
        let group = format!(
            "        - age:\n{}\n",
            entry.lines().map(|line| format!("        {line}")).collect::<Vec<_>>().join("\n")
        );
        format!("{before}    key_groups:\n{}    shamir_threshold: {threshold}\n{after}", group.repeat(count))
    };
    let empty_groups = format!("{before}    key_groups: [{}]\n{after}", "{},".repeat(1_000_000));
    let many_keys = format!("{before}    age: [{}]\n{after}", "{enc: a},".repeat(1_000));
    let bare = |age: &str| format!("{before}    age: {age}\n{after}");
    for (text, expected) in [
        (swapped, "stringData.password cannot be decrypted"),
        (groups(2, "2"), "its data key is damaged"),
        (groups(2, "3"), "it needs more groups of keys than it has"),
        (groups(2, "99999999999999999999"), FILE),
        (groups(2, "-1"), FILE),
        (groups(2, "hush-hush"), FILE),
        (empty_groups, FILE),
        (many_keys, FILE),
        (bare("[]"), "it names no key that decrypts it"),
        (bare("{}"), FILE),
        (bare("[hush-hush]"), FILE),
        (bare("[{recipient: age1, enc: hush-hush}]"), FILE),
        (bare("[{recipient: age1, enc: [hush-hush]}]"), FILE),
    ] {
        attacked.refuses(&[(FILE, text.as_bytes())], &[expected, FILE]).await;
        assert!(attacked.world.get("v1", "secrets", "db").is_none());
    }
    // Files that are cut off at any point.
    let lines: Vec<&str> = intact.lines().collect();
    for kept in (6..lines.len()).step_by(3) {
        let text = lines[..kept].join("\n") + "\n";
        assert!(sops.decrypt("db.yaml", &text, &[&key]).is_err(), "{kept}");
        attacked.refuses(&[(FILE, text.as_bytes())], &[FILE]).await;
        assert!(attacked.world.get("v1", "secrets", "db").is_none(), "{kept}");
    }
    for cut in [intact.len() / 3, intact.len() / 2, intact.len() - 40] {
        attacked.refuses(&[(FILE, &intact.as_bytes()[..cut])], &[FILE]).await;
    }
    // Keys of another recipient: the message names the recipient, and no plug-in runs.
    use_keys(&attacked.world, &other.identity);
    let plugin = intact.replace(&key.recipient, "age1yubikey1qwerty");
    attacked
        .refuses(&[(FILE, plugin.as_bytes())], &["encrypted to age1yubikey1qwerty (for an age plug-in, not supported)"])
        .await;
    let said = attacked.refuses(&[(FILE, intact.replace(&key.recipient, "hush-hush\\\"").as_bytes())], &[FILE]).await;
    assert!(!said.contains("hush"), "{said}");
    attacked.refuses(&[(FILE, intact.as_bytes())], &[&format!("encrypted to {}", key.recipient)]).await;
    attacked.world.commit("demo", "without").await;
    use_keys(&attacked.world, "AGE-PLUGIN-YUBIKEY-1HUSHHUSH");
    let told = "is for a plug-in of age, and plug-ins are not run";
    attacked.world.until_or(told, |w| w.condition("demo", "Ready").contains(told), || attacked.said()).await;
    assert!(!attacked.said().contains("HUSH"), "{}", attacked.said());
    use_keys(&attacked.world, &key.identity);
    attacked.stage(&[(FILE, intact.as_bytes())]);
    attacked.world.commit("demo", "intact").await;
    assert!(attacked.world.get("v1", "secrets", "db").is_some());
}
