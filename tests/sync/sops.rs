//! Files encrypted by the official `sops` are applied as `sops` decrypts them. A faulty file changes nothing, and the
//! message names the position without a value. Encrypted values are not shown, not stored, and not passed to tools.

use std::path::Path;
use std::process::{Child, Stdio};

use mainstay_manifest::sops::{Format, Keys, Plain, open};
use mainstay_object::Step;
use serde_json::{Value, json};

use mainstay_testkit::canary;
use mainstay_testkit::logs;
use mainstay_testkit::sops::{AgeKey, Sops};
use mainstay_testkit::world::{World, config_map, free_address};

/// Must not appear anywhere.
const CANARY: &str = "canary-hush-7291";

/// The part of a GitSync that names the Secret `keys`.
fn decryption() -> Value {
    json!({"baseDir": "/apps", "decryption": {"provider": "sops", "secretRef": {"name": "keys"}}})
}

fn secret(name: &str, value: &str) -> String {
    format!("apiVersion: v1\nkind: Secret\nmetadata:\n  name: {name}\nstringData:\n  password: {value}\n")
}

const SELECTED: [&str; 2] = ["--encrypted-regex", "^(data|stringData)$"];

/// Returns `data` of a live object, decoded for Secrets.
fn live(world: &World, resource: &str, name: &str) -> Value {
    let Some(object) = world.get("v1", resource, name) else { return Value::Null };
    let mut data = object["data"].clone();
    if resource == "secrets" {
        use base64::Engine as _;
        for value in data.as_object_mut().unwrap().values_mut() {
            let bytes = base64::engine::general_purpose::STANDARD.decode(value.as_str().unwrap()).unwrap();
            *value = String::from_utf8(bytes).unwrap().into();
        }
    }
    data
}

/// Returns two documents under one MAC, whose kind and name are readable.
fn maps(name: &str) -> String {
    let map = |name: &str| {
        format!(
            "# sops:clear\napiVersion: v1\n# sops:clear\nkind: ConfigMap\n# sops:clear\nmetadata:\n  name: {name}\n  \
             labels: {{n: \"1\"}}\n\
             data:\n  # sops:enc\n  a: \"1 é\"\n  b: |\n    two\n    lines\n  c_secret: \"true\"\n  d_unencrypted: x\n"
        )
    };
    format!("{}---\n{}", map(name), map(&format!("{name}-2")))
}

/// Returns the value of a document at a path.
fn at<'v>(document: &'v Value, path: &[Step]) -> &'v Value {
    path.iter().fold(document, |value, step| match step {
        Step::Key(key) => &value[key],
        Step::Item(at) => &value[at],
    })
}

/// Opens a file and compares every value with the output of `sops`. Returns the number of values.
fn is_opened_as_sops_does(encrypted: &str, documents: &[Value], keys: &Keys) -> usize {
    let texts: Vec<(u32, &str)> = (1..).zip(encrypted.split("\n---\n")).collect();
    let opened = open(&texts, Format::Yaml, keys).unwrap().unwrap();
    let mut count = 0;
    for (number, values) in opened.documents {
        for (path, plain) in values {
            let Plain::Text(plain) = plain else { panic!("all of them are texts") };
            assert_eq!(at(&documents[number as usize - 1], &path), &json!(plain), "{path:?}");
            count += 1;
        }
    }
    count
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_rule_and_format_is_applied_as_sops_decrypts_it() {
    let sops = Sops::new();
    let (one, two, three) = (AgeKey::new(), AgeKey::new(), AgeKey::new());
    let (rsa, rsa_key) = sops.gpg_key("rsa2048");
    let (curve, curve_key) = sops.gpg_key("future-default");
    let groups = format!(
        "creation_rules:\n- path_regex: groups\n  shamir_threshold: 2\n  encrypted_regex: ^data$\n  key_groups:\n  - \
         age: ['{}']\n  \
         - age: ['{}']\n  - age: ['{}']\n",
        one.recipient, two.recipient, three.recipient
    );
    std::fs::write(sops.path().join("groups-config.yaml"), groups).unwrap();
    let age = ["--age", one.recipient.as_str()];
    // Rules, each with the number of values that it encrypts per document, and whether kind and name stay readable.
    let rules: [(&str, Vec<&str>, usize, bool); 11] = [
        ("everything", vec![], 7, false),
        ("regex", vec!["--encrypted-regex", "^(data|stringData)$"], 4, true),
        ("unregex", vec!["--unencrypted-regex", "^(apiVersion|kind|metadata)$"], 4, true),
        ("suffix", vec!["--encrypted-suffix", "_secret"], 1, true),
        ("unsuffix", vec!["--unencrypted-suffix", "data"], 2, false),
        ("comment", vec!["--encrypted-comment-regex", "sops:enc"], 1, true),
        ("uncomment", vec!["--unencrypted-comment-regex", "sops:clear"], 4, true),
        ("maconly", vec!["--encrypted-regex", "^data$", "--mac-only-encrypted"], 4, true),
        ("groups", vec!["--config", "groups-config.yaml"], 4, true),
        ("rsa", vec!["--pgp", &rsa, "--encrypted-regex", "^data$"], 4, true),
        ("curve", vec!["--pgp", &curve, "--encrypted-regex", "^data$"], 4, true),
    ];
    // Besides the first one, the groups need one of the other two keys.
    let identities = format!("# of tests\n{}\n{}\n", one.identity, three.identity);
    let secret = [("a.agekey", &identities), ("rsa.asc", &rsa_key), ("curve.asc", &curve_key)];
    let keys = Keys::of(secret.iter().map(|(name, text)| (*name, text.as_bytes()))).unwrap();
    let mut world = World::new().await;
    let mut expected = Vec::new();
    for (name, rule, values, is_clear) in &rules {
        let own = rule.iter().any(|word| ["--config", "--pgp"].contains(word));
        let arguments: Vec<&str> = if own { rule.clone() } else { [&age[..], rule].concat() };
        let file = format!("{name}.yaml");
        let encrypted = sops.encrypt(&file, &maps(name), &arguments);
        let documents = sops.documents(&file, &encrypted, &[&one, &two, &three]);
        let count = is_opened_as_sops_does(&encrypted, &documents, &keys);
        assert_eq!(count, 2 * values, "{name}: {encrypted}");
        if !is_clear {
            continue;
        }
        for mut document in documents {
            expected.push((document["metadata"]["name"].as_str().unwrap().to_owned(), document["data"].take()));
        }
        world.remote.file(&format!("apps/{file}"), encrypted);
    }
    let json =
        serde_json::to_string(&serde_yaml::from_str::<Value>(maps("json").split("---").next().unwrap()).unwrap());
    let encrypted = sops.encrypt("json.json", &json.unwrap(), &[&age[..], &SELECTED].concat());
    expected.push(("json".to_owned(), sops.documents("json.json", &encrypted, &[&one])[0]["data"].take()));
    world.remote.file("apps/json.json", encrypted);
    world.remote.commit("all of them");
    assert_eq!(expected.len(), 19);
    world.set_secret("keys", json!({"a.agekey": identities, "rsa.asc": rsa_key, "curve.asc": curve_key}));
    world.sync("demo", decryption());
    world.start();
    world.ready("demo").await;
    for (name, data) in &expected {
        assert_eq!(&live(&world, "configmaps", name), data, "{name}");
        assert_eq!(data["b"], "two\nlines\n", "{name}");
    }
    // For a file without readable kind and name, the message says what to do.
    world.remote.file("apps/all.yaml", sops.encrypt("all.yaml", &maps("all"), &age));
    world.try_commit("demo", "all of it").await;
    let said = |w: &World| w.condition("demo", "Ready");
    let told = "apps/all.yaml, document 1, line 2, column 1: apiVersion is encrypted, but the identity of an object \
                must be readable";
    world.until_or(told, |w| said(w).contains(told), || said(&world)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tampered_files_and_foreign_keys_change_no_object_and_a_corrected_key_is_used_at_once() {
    let sops = Sops::new();
    let (key, other) = (AgeKey::new(), AgeKey::new());
    let encrypt = |value: &str| {
        sops.encrypt("db.yaml", &secret("db", value), &[&["--age", &key.recipient], &SELECTED[..]].concat())
    };
    let mut world = World::new().await;
    world.remote.file("apps/db.yaml", encrypt("first")).file("apps/plain.yaml", config_map("plain", "1")).commit("one");
    world.sync("demo", decryption());
    world.start();
    // First the Secret is missing, then it has the key of another recipient, then it has the right key.
    let missing = "Secret keys with the keys that decrypt does not exist";
    world.until(missing, |w| w.condition("demo", "Ready").contains(missing)).await;
    world.set_secret("keys", json!({"a.agekey": other.identity}));
    let told =
        format!("apps/db.yaml, document 1, line 7, column 1: no key decrypts it; it is encrypted to {}", key.recipient);
    let said = |w: &World| w.condition("demo", "Ready");
    world.until_or(&told, |w| said(w).contains(&told), || said(&world)).await;
    assert_eq!(world.data("plain"), "absent");
    world.set_secret("keys", json!({"a.agekey": key.identity}));
    world.ready("demo").await;
    assert_eq!(live(&world, "secrets", "db")["password"], "first");
    // A change of the Secret that keeps the key causes no apply.
    let applies = |w: &World| {
        w.requests().iter().filter(|(asked, _)| asked.starts_with("apply secrets")).map(|(_, n)| n).sum::<u64>()
    };
    let before = applies(&world);
    assert_eq!(before, 1);
    world.set_secret("keys", json!({"a.agekey": format!("# moved\n{}\n{}", other.identity, key.identity)}));
    world.ask("demo").await;
    world.ready("demo").await;
    assert_eq!(applies(&world), before);

    let intact = encrypt(CANARY);
    let value = |text: &str| text.lines().find(|line| line.contains("password: ENC")).unwrap().to_owned();
    let flipped = {
        let own = value(&intact);
        let at = own.find("data:").unwrap() + 5;
        let mut changed = own.clone().into_bytes();
        changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
        intact.replace(&own, std::str::from_utf8(&changed).unwrap())
    };
    let mac_of_other = encrypt("something else").lines().find(|line| line.contains("mac: ENC")).unwrap().to_owned();
    let own_mac = intact.lines().find(|line| line.contains("mac: ENC")).unwrap().to_owned();
    let cases = [
        (flipped, "line 6, column 5: stringData.password cannot be decrypted"),
        (intact.replace("password: ENC", "username: ENC"), "stringData.username cannot be decrypted"),
        (intact.replace("name: db", "name: admin"), "the MAC does not match"),
        (intact.replace(&own_mac, &mac_of_other), "the MAC does not match"),
        (intact.replace(&value(&intact), &format!("    password: {CANARY}")), "stringData.password is not encrypted"),
        (
            intact[..intact.find("    lastmodified").unwrap()].to_owned(),
            "stringData.password: it has no MAC, so its changes cannot be verified",
        ),
        (intact[..intact.find("sops:").unwrap()].to_owned(), "the file is cut short"),
        (
            intact.replace("    age:", "    kms:").replace("recipient:", "arn:"),
            "encrypted by AWS KMS, which is not supported",
        ),
    ];
    for (text, expected) in cases {
        let is_refused = sops.decrypt("db.yaml", &text, &[&key]).is_err();
        world.remote.file("apps/db.yaml", text).file("apps/plain.yaml", config_map("plain", "2"));
        let commit = world.try_commit("demo", "broken").await;
        world.until(expected, |w| w.status("demo")["attemptedCommit"] == *commit).await;
        world.until_or(expected, |w| said(w).contains(expected), || said(&world)).await;
        assert!(is_refused && said(&world).starts_with("False ManifestInvalid"), "{}", said(&world));
        assert!(!said(&world).contains(CANARY), "{}", said(&world));
        assert_eq!(
            (&live(&world, "secrets", "db")["password"], world.data("plain")),
            (&json!("first"), "1".to_owned())
        );
    }
    world.remote.file("apps/db.yaml", intact);
    world.commit("demo", "mended").await;
    assert_eq!(live(&world, "secrets", "db")["password"], CANARY);
    // Without spec.decryption, an encrypted file is a problem with instructions.
    world.change("demo", json!({"decryption": null})).await;
    world.until("the hint", |w| said(w).contains("spec.decryption: {provider: sops")).await;
    assert_eq!(live(&world, "secrets", "db")["password"], CANARY);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn decrypted_values_are_neither_shown_nor_kept() {
    logs::keep();
    let sops = Sops::new();
    let key = AgeKey::new();
    let encrypt =
        |name: &str, text: &str| sops.encrypt(name, text, &[&["--age", &key.recipient], &SELECTED[..]].concat());
    let map =
        |value: &str| format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: open\ndata:\n  key: {value}\n");
    let mut world = World::new().await;
    world.listen = Some(free_address());
    world
        .remote
        .file("apps/db.yaml", encrypt("db.yaml", &secret("db", CANARY)))
        .file("apps/web/kustomization.yaml", "resources: [web.yaml]\nnamePrefix: prod-\n")
        .file("apps/web/web.yaml", encrypt("web.yaml", &secret("web", CANARY)))
        .file("apps/open.yaml", encrypt("open.yaml", &map("not-shown-8113")))
        .commit("one");
    world.set_secret("keys", json!({"a.agekey": key.identity}));
    world.sync("demo", decryption());
    world.start();
    world.ready("demo").await;
    assert_eq!(live(&world, "secrets", "db")["password"], CANARY);
    assert_eq!(live(&world, "secrets", "prod-web")["password"], CANARY);
    assert!(world.get("v1", "secrets", "prod-web").unwrap().get("sops").is_none());
    // A hand edit of an encrypted value is reverted. The report contains no values, even though the object is not a
    // Secret.
    world.edit("v1", "configmaps", "open", json!({"data": {"key": "by-hand-5512"}}));
    world.until("it is reverted", |w| w.data("open") == "not-shown-8113").await;
    world.until("it is told", |w| w.status("demo")["reverted"] == 1).await;
    let revert = world.status("demo")["lastReverts"][0].clone();
    assert_eq!((&revert["fields"], revert.get("changes")), (&json!(["data.key"]), None), "{revert}");
    // A report of remaining drift contains no values, either.
    world.change("demo", json!({"drift": "Report"})).await;
    world.edit("v1", "configmaps", "open", json!({"data": {"key": "by-hand-5513"}}));
    world.until("it is reported", |w| w.status("demo")["drifted"][0]["fields"][0] == "data.key").await;
    assert_eq!(world.status("demo")["drifted"][0]["changes"].as_array().map_or(0, Vec::len), 0);
    world.change("demo", json!({"drift": "Revert"})).await;
    world.until("it is reverted", |w| w.data("open") == "not-shown-8113").await;
    // A refusal of the server that quotes a value is withheld.
    let job = format!(
        "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: j\nspec:\n  completionMode: {CANARY}\n  template:\n    \
         spec:\n      \
         restartPolicy: Never\n      containers:\n      - name: c\n        image: x\n"
    );
    let job = sops.encrypt("job.yaml", &job, &["--age", &key.recipient, "--encrypted-regex", "^completionMode$"]);
    world.remote.file("apps/job.yaml", job);
    world.try_commit("demo", "a job that is refused").await;
    let failures = |w: &World| w.status("demo")["failures"].to_string();
    world.until_or("the refusal", |w| failures(w).contains("Job.batch"), || failures(&world)).await;
    assert!(failures(&world).contains("withheld"), "{}", failures(&world));
    // A message about an expression without a value is withheld, too.
    world.remote.remove("apps/job.yaml");
    world.remote.file("apps/open.yaml", encrypt("open.yaml", &map("not-shown-8114-${NONE_8115}")));
    world.change("demo", json!({"substitute": {"A": "1"}})).await;
    world.try_commit("demo", "an expression").await;
    let said = |w: &World| w.condition("demo", "Ready");
    let withheld =
        "apps/open.yaml, document 1, line 1, column 1: ConfigMap open: an expression in it cannot be replaced";
    world.until_or(withheld, |w| said(w).contains(withheld), || said(&world)).await;
    world.change("demo", json!({"substitute": {"NONE_8115": "x-8116"}})).await;
    world.ready("demo").await;
    assert_eq!(world.data("open"), "not-shown-8114-x-8116");
    let words = [CANARY, "not-shown-811", "NONE_8115", "x-8116", "by-hand-551", key.identity.as_str()];
    // One of the directories is the directory of kustomization builds.
    assert!(canary::nothing_is_on_disk(world.disk(), &words) > 1, "there is something to look through");
    // The objects themselves hold the values, and are not examined here.
    world.delete("mainstay.dev/v1alpha1", "gitsyncs", "demo");
    let is_let_go = |w: &World| w.get("v1", "configmaps", "open").unwrap()["metadata"].get("labels").is_none();
    world.until("the objects are let go", is_let_go).await;
    world.delete("v1", "configmaps", "open");
    canary::nothing_is_shown(&mut world, &words).await;
}

/// A renderer whose kustomize keeps a copy of its input. Ends on drop.
struct Spied(Child, tempfile::TempDir);

impl Spied {
    fn start(shared: &Path) -> Self {
        let room = tempfile::tempdir().unwrap();
        let found = |program: &str| {
            let paths = std::env::split_paths(&std::env::var_os("PATH").unwrap()).collect::<Vec<_>>();
            paths.into_iter().map(|path| path.join(program)).find(|path| path.is_file()).expect(program)
        };
        let script = format!(
            "#!/bin/sh\n{} -r \"$PWD\" {}/seen-$$\nfor last; do :; done\nexec {} kustomize \"$last\"\n",
            found("cp").display(),
            room.path().display(),
            found("kubectl").display()
        );
        // Written by another process: a file open for writing anywhere cannot be executed.
        let mut writer = mainstay_testkit::isolated("/bin/sh");
        writer.args(["-c", "printf %s \"$1\" > \"$2\" && chmod 755 \"$2\"", "write", &script]);
        assert!(writer.arg(room.path().join("kustomize")).status().unwrap().success());
        let mut command = mainstay_testkit::isolated(env!("CARGO_BIN_EXE_mainstay"));
        command.arg("renderer").arg("--shared").arg(shared).stdin(Stdio::null()).env("PATH", room.path());
        Self(command.spawn().unwrap(), room)
    }
}

impl Drop for Spied {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn overlays_change_encrypted_objects_and_no_tool_sees_a_value() {
    let sops = Sops::new();
    let key = AgeKey::new();
    let encrypt =
        |name: &str, text: &str| sops.encrypt(name, text, &[&["--age", &key.recipient], &SELECTED[..]].concat());
    let mut world = World::new().await;
    let shared = tempfile::tempdir().unwrap();
    world.renderer = Some(shared.path().to_owned());
    let spied = Spied::start(shared.path());
    let plain = "apiVersion: v1\nkind: Secret\nmetadata:\n  name: web\nstringData:\n  user: web\n";
    let component = "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\nresources: [part.yaml]\n";
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: map\ndata:\n  key: ${WORD}-canary-hush-7291\n";
    world
        .remote
        .file("apps/db.yaml", encrypt("db.yaml", &secret("db", CANARY)))
        .file("apps/map.yaml", encrypt("map.yaml", map))
        .file("apps/web/kustomization.yaml", "resources: [web.yaml]\npatches: [{path: patch.yaml}]\nnamePrefix: w-\n")
        .file("apps/web/web.yaml", plain)
        .file("apps/web/patch.yaml", encrypt("patch.yaml", &secret("web", CANARY)))
        .file("part/kustomization.yaml", component)
        .file("part/part.yaml", encrypt("part.yaml", &secret("part", CANARY)))
        .commit("one");
    world.set_secret("keys", json!({"a.agekey": key.identity}));
    let mut spec = decryption();
    let patch = "- {op: add, path: /metadata/annotations, value: {patched: yes-it-is}}\n";
    let changes = json!({
        "namePrefix": "x-", "components": ["../part"], "commonMetadata": {"labels": {"tier": "back"}},
        "patches": [{"patch": patch, "target": {"kind": "Secret"}}], "substitute": {"WORD": "hello"},
    });
    spec.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    world.synced(spec).await;
    for (name, labelled) in [("x-db", true), ("x-w-web", true), ("x-part", true)] {
        let object = world.get("v1", "secrets", name).unwrap_or_else(|| panic!("{name} is not there"));
        assert_eq!(live(&world, "secrets", name)["password"], CANARY, "{name}");
        assert_eq!(object["metadata"]["labels"]["tier"] == "back", labelled, "{name}");
        assert!(object.get("sops").is_none(), "{name}");
    }
    let patched = world.get("v1", "secrets", "x-db").unwrap();
    assert_eq!(patched["metadata"]["annotations"]["patched"], "yes-it-is");
    assert_eq!(live(&world, "secrets", "x-w-web")["user"], "web");
    assert_eq!(world.data("x-map"), "hello-canary-hush-7291");

    // A restart applies nothing, and other keys cause no render.
    let applies = |w: &World| {
        let all = w.requests();
        all.iter().filter(|(asked, _)| asked.starts_with("apply secrets")).map(|(_, count)| count).sum::<u64>()
    };
    let renders = || std::fs::read_dir(spied.1.path()).unwrap().count();
    assert_eq!((applies(&world), renders()), (3, 3));
    world.stop().await;
    world.start();
    world.ask("demo").await;
    world.ready("demo").await;
    let before = renders();
    world.set_secret("keys", json!({"a.agekey": AgeKey::new().identity}));
    let no_key = "no key decrypts it; it is encrypted to age1";
    world
        .until_or(no_key, |w| w.condition("demo", "Ready").contains(no_key), || world.condition("demo", "Ready"))
        .await;
    world.set_secret("keys", json!({"a.agekey": key.identity}));
    world.ready("demo").await;
    assert_eq!((applies(&world), renders()), (3, before));
    // A new commit changes one of the files.
    world.remote.file("apps/db.yaml", encrypt("db.yaml", &secret("db", "canary-hush-7292")));
    world.commit("demo", "another password").await;
    assert_eq!(live(&world, "secrets", "x-db")["password"], "canary-hush-7292");
    assert_eq!(live(&world, "secrets", "x-part")["password"], CANARY);

    // Patches that move an encrypted value, or remove its verification, are refused with a message.
    let said = |w: &World| w.condition("demo", "Ready");
    for (patch, expected) in [
        (
            "- {op: move, from: /stringData/password, path: /stringData/other}\n",
            "apps/db.yaml, document 1, line 1, column 1: Secret x-db: stringData.other cannot be decrypted",
        ),
        (
            "- {op: remove, path: /sops}\n",
            "stringData.password: it was encrypted by SOPS, and the metadata behind it are missing",
        ),
        ("- {op: replace, path: /sops/mac, value: x}\n", "match none of the encrypted files"),
    ] {
        let options = json!({"patches": [{"patch": patch, "target": {"kind": "Secret", "name": "db"}}]});
        world.change("demo", options).await;
        world.until_or(expected, |w| said(w).contains(expected), || said(&world)).await;
        assert!(
            said(&world).starts_with("False ManifestInvalid") && !said(&world).contains("hush"),
            "{}",
            said(&world)
        );
        assert_eq!(live(&world, "secrets", "x-db")["password"], "canary-hush-7292");
    }
    // A replacement of an encrypted value was never encrypted.
    let patch = "- {op: replace, path: /stringData/password, value: open}\n";
    world.change("demo", json!({"patches": [{"patch": patch, "target": {"name": "db"}}]})).await;
    world.ready("demo").await;
    assert_eq!(live(&world, "secrets", "x-db")["password"], "open");
    // A tampered file is named, even if a kustomization reads it.
    let tampered = encrypt("patch.yaml", &secret("web", CANARY)).replace("name: web", "name: web\n    labels: {a: b}");
    world.remote.file("apps/web/patch.yaml", tampered);
    world.try_commit("demo", "tampered").await;
    let told = "apps/web/patch.yaml, document 1, line";
    world.until_or(told, |w| said(w).contains(told) && said(w).contains("MAC does not match"), || said(&world)).await;

    let words = [CANARY, "canary-hush-7292", "hush", &key.identity];
    // Without keys, output built with them is not kept.
    world.remote.file("apps/web/patch.yaml", encrypt("patch.yaml", &secret("web", CANARY))).remove("apps/db.yaml");
    world.remote.remove("apps/map.yaml");
    world.change("demo", json!({"patches": null, "components": null, "namePrefix": null})).await;
    world.commit("demo", "a kustomization alone").await;
    world.change("demo", json!({"decryption": null})).await;
    let told = "apps/web/web.yaml, built by apps/web/kustomization.yaml with the patch apps/web/patch.yaml: Secret w-web: it is encrypted with SOPS, and \
                spec.decryption is not set";
    world.until_or(told, |w| said(w).contains(told), || said(&world)).await;
    assert!(canary::nothing_is_on_disk(spied.1.path(), &words) > 4, "there is something to look through");
    let ciphertext =
        mainstay_testkit::isolated("grep").args(["-rlF", "ENC[AES256_GCM"]).arg(spied.1.path()).output().unwrap();
    assert!(String::from_utf8(ciphertext.stdout).unwrap().contains("objects.yaml"), "the tool saw it encrypted");
    canary::nothing_is_on_disk(world.disk(), &words);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_of_several_encrypted_patches_of_one_object_are_all_decrypted() {
    let (sops, key, other) = (Sops::new(), AgeKey::new(), AgeKey::new());
    let encrypt = |name: &str, text: &str, key: &AgeKey| {
        sops.encrypt(name, text, &[&["--age", &key.recipient], &SELECTED[..]].concat())
    };
    let patch = |field: &str, value: &str| {
        format!("apiVersion: v1\nkind: Secret\nmetadata:\n  name: web\nstringData:\n  {field}: {value}\n")
    };
    let mut world = World::new().await;
    world
        .remote
        .file(
            "apps/kustomization.yaml",
            "resources: [web.yaml]\npatches: [{path: a.yaml}, {path: b.yaml}, {path: c.yaml}]\n",
        )
        .file("apps/web.yaml", encrypt("web.yaml", &patch("base", CANARY), &key))
        .file("apps/a.yaml", encrypt("a.yaml", &patch("one", "canary-hush-1"), &key))
        .file("apps/b.yaml", encrypt("b.yaml", &patch("two", "canary-hush-2"), &other))
        .file("apps/c.yaml", patch("three", "open"))
        .commit("one");
    world.set_secret("keys", json!({"a.agekey": format!("{}\n{}\n", key.identity, other.identity)}));
    world.synced(decryption()).await;
    let expected = json!({"base": CANARY, "one": "canary-hush-1", "two": "canary-hush-2", "three": "open"});
    assert_eq!(live(&world, "secrets", "web"), expected);
    // An encrypted value that was moved to a different key belongs to none of the files.
    let moved = encrypt("a.yaml", &patch("one", "canary-hush-1"), &key).replace("    one: ", "    four: ");
    world.remote.file("apps/a.yaml", moved);
    world.try_commit("demo", "two").await;
    let said = world.condition("demo", "Ready");
    assert!(said.starts_with("False ManifestInvalid") && !said.contains("hush"), "{said}");
    assert_eq!(live(&world, "secrets", "web"), expected);
}
