//! No resolved Function uses credentials of a build or a repository.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::children::deployment;
use mainstay_api::git_repository::GitRepositorySpec;
use mainstay_cluster::secrets::Purpose;

/// Secrets that are credentials of builds and of the GitRepositories of the namespace.
const CREDENTIALS: [&str; 5] = [
    "serverless-registry-config",
    "serverless-registry-config-default",
    "serverless-package-registry-config",
    "shop-git",
    "shop-proxy",
];

fn credentials() -> Credentials {
    let repository: GitRepositorySpec = serde_json::from_value(json!({
        "url": "https://git.example.com/shop", "auth": {"type": "basic", "secretName": "shop-git"},
        "proxySecretRef": {"name": "shop-proxy"},
    }))
    .unwrap();
    Credentials::new(&settings(), [&repository])
}

/// Collects every string in a document.
fn texts<'v>(value: &'v Value, all: &mut Vec<&'v str>) {
    match value {
        Value::String(text) => all.push(text),
        Value::Array(items) => items.iter().for_each(|item| texts(item, all)),
        Value::Object(fields) => fields.values().for_each(|field| texts(field, all)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Collects every field in a schema whose name refers to a Secret.
fn secret_fields(schema: &Value, path: &str, all: &mut Vec<String>) {
    match schema {
        Value::Object(fields) => {
            for (name, field) in fields {
                let path =
                    if name == "properties" || name == "items" { path.to_owned() } else { format!("{path}.{name}") };
                let is_about_one = ["secret", "envfrom", "volume", "mount", "template"];
                if is_about_one.iter().any(|word| name.to_ascii_lowercase().contains(word)) {
                    all.push(path.clone());
                }
                secret_fields(field, &path, all);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| secret_fields(item, path, all)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn the_fields_that_name_a_secret_are_checked() {
    let definitions = mainstay_api::definitions();
    let definition = definitions.iter().find(|one| one.spec.names.kind == "Function").unwrap();
    let schema = definition.spec.versions[0].schema.as_ref().unwrap().open_api_v3_schema.as_ref().unwrap();
    let spec = serde_json::to_value(schema).unwrap()["properties"]["spec"].take();
    let mut all = Vec::new();
    secret_fields(&spec, "spec", &mut all);
    // A new field needs the same checks before it is added to this list.
    let (refused, labels) =
        (["spec.env.valueFrom.secretKeyRef", "spec.secretMounts", "spec.secretMounts.secretName"], "spec.template");
    // Covered by `a_secret_is_not_sent_to_an_address_that_the_function_names`.
    let repository = "spec.gitRepository.auth.secretName";
    let place = "spec.secretMounts.mountPath";
    all.retain(|path| path != labels && path != repository && path != place);
    all.dedup();
    assert_eq!(all, refused);
}

#[test]
fn says_which_variable_reads_whose_credentials() {
    for (secret, purpose) in [
        ("serverless-registry-config", "the image registry"),
        ("serverless-registry-config-default", "the image registry"),
        ("serverless-package-registry-config", "the package registries"),
        ("shop-git", "a Git repository"),
        ("shop-proxy", "a proxy of a Git repository"),
    ] {
        let env = format!(
            "{NODE}env: [{{name: A, valueFrom: {{secretKeyRef: {{name: {secret}, key: k, optional: true}}}}}}]"
        );
        let refused = text(&resolve(&function(&env, &[]), &settings(), &credentials()).expect_err(secret));
        assert_eq!(
            refused,
            format!(
                "invalid value: env A reads Secret \"{secret}\", which holds the credentials for {purpose}: spec.env\nthe code of \
                 a Function may not read them; give it a Secret of its own"
            )
        );
    }
    let env = format!("{NODE}env: [{{name: A, valueFrom: {{secretKeyRef: {{name: hello, key: k}}}}}}]");
    assert!(resolve(&function(&env, &[]), &settings(), &credentials()).is_ok());
}

fn variable() -> impl Strategy<Value = Value> {
    let name = prop_oneof![Just("A"), Just("B"), Just("FUNC_PORT"), Just("$(A)")];
    let object = prop::sample::select([&CREDENTIALS[..], &["hello", "other"]].concat());
    (name, object, 0..5_u8).prop_map(|(name, object, how)| {
        let key = json!({"name": object, "key": "k"});
        match how {
            0 => json!({"name": name, "valueFrom": {"secretKeyRef": key}}),
            1 => json!({"name": name, "valueFrom": {"secretKeyRef": key, "configMapKeyRef": key}}),
            2 => json!({"name": name, "value": "x", "valueFrom": {"secretKeyRef": key}}),
            3 => json!({"name": name, "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "k"}}}),
            _ => json!({"name": name, "value": "x"}),
        }
    })
}

proptest! {
    #[test]
    fn no_resolved_function_names_a_credential_of_a_build_a_repository_or_the_agent(
        env in prop::collection::vec(variable(), 0..6),
    ) {
        let mut function = function(NODE, &[]);
        function.spec.env = Some(serde_json::from_value(Value::from(env)).unwrap());
        if let Ok(resolved) = resolve(&function, &settings(), &credentials()) {
            // The kubelet pulls the image with one of these Secrets. The code cannot read it.
            let pod = deployment::build(&resolved, "hello", "image", "pull", &settings());
            let mut all = Vec::new();
            texts(&pod, &mut all);
            prop_assert!(!all.iter().any(|text| CREDENTIALS.contains(text)), "{pod}");
        }
    }
}

#[test]
fn a_secret_is_not_sent_to_an_address_that_the_function_names() {
    let with = |credentials: &Credentials, secret: &str, url: &str| {
        let auth = format!("auth: {{type: basic, secretName: {secret}}}");
        let spec = format!(
            "type: git\nsource: ''\nruntime: nodejs22\nreference: main\nbaseDir: /\ngitRepository: {{url: '{url}', {auth}}}"
        );
        resolve(&function(&spec, &[]), &settings(), credentials).map_err(|violations| text(&violations))
    };
    let known =
        credentials().and([("token".to_owned(), Purpose::ServiceAccount), ("pair".to_owned(), Purpose::GeneratedKey)]);
    let known = known.and([
        ("hook".to_owned(), Purpose::Receiver),
        ("token".to_owned(), Purpose::FunctionRepository),
        ("other".to_owned(), Purpose::FunctionRepository),
        ("clusters".to_owned(), Purpose::KubeConfig),
        ("sops".to_owned(), Purpose::Decryption),
        ("values".to_owned(), Purpose::Values),
    ]);
    for (secret, purpose) in [
        ("serverless-registry-config", "the image registry"),
        ("serverless-package-registry-config", "the package registries"),
        ("shop-git", "a Git repository"),
        ("shop-proxy", "a proxy of a Git repository"),
        ("token", "a ServiceAccount"),
        ("hook", "a Receiver"),
        ("clusters", "another cluster"),
        ("sops", "the decryption of files"),
        ("values", "the variables or charts of a GitSync"),
        ("bootstrap-token-abc", "nodes that join the cluster"),
    ] {
        let expected = format!(
            "invalid value: the repository is read with Secret \"{secret}\", which holds the credentials for {purpose}: \
             spec.gitRepository.auth.secretName\na Function must not send them to an address of its choice; use a separate \
             Secret for its repository"
        );
        assert_eq!(with(&known, secret, "https://evil.example/shop").unwrap_err(), expected, "{secret}");
    }
    // The Secret may be sent to the server to which a GitRepository already sends it.
    with(&known, "shop-git", "https://git.example.com/other").unwrap();
    for other in
        ["http://git.example.com/shop", "https://git.example.com:444/shop", "https://git.example.com.evil/shop"]
    {
        with(&known, "shop-git", other).unwrap_err();
    }
    for own in ["other", "new"] {
        with(&known, own, "https://evil.example/shop").unwrap();
    }
    // A key that the agent generated must not be sent as a password.
    with(&known, "pair", "https://evil.example/shop").unwrap_err();
    let key = "auth: {type: key, secretName: pair}";
    let spec = format!(
        "type: git\nsource: ''\nreference: main\nbaseDir: /\ngitRepository: {{url: 'git@h.example:o/r', {key}}}"
    );
    resolve(&function(&spec, &[]), &settings(), &known).unwrap();
}

#[test]
fn the_code_does_not_read_what_its_own_repository_is_read_with() {
    let env = "env: [{name: A, valueFrom: {secretKeyRef: {name: mine, key: password}}}]";
    let git = "type: git\nsource: ''\nruntime: nodejs22\nreference: main\nbaseDir: /\n";
    let own = format!("{git}gitRepository: {{url: 'https://h/r', auth: {{type: basic, secretName: mine}}}}\n{env}");
    let said = refused(&own);
    let expected = "invalid value: env A reads Secret \"mine\", which holds the credentials for the Git repository of a Function: spec.env";
    assert!(said.starts_with(expected), "{said}");
    // Another Function of the namespace must not use the Secret, either.
    let other = function(&format!("{NODE}{env}"), &[]);
    let known = credentials().and([("mine".to_owned(), Purpose::FunctionRepository)]);
    assert!(text(&resolve(&other, &settings(), &known).unwrap_err()).starts_with(expected));
    assert!(resolve(&other, &settings(), &credentials()).is_ok());
}
