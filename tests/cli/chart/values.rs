//! The values of the chart: their schema, their defaults, and the refusal of wrong ones.

use super::*;

#[test]
fn the_schema_describes_every_value_with_its_default() {
    let text = fs::read_to_string(Path::new(CHART).join("values.yaml")).unwrap();
    let defaults: Value = serde_yaml::from_str(&text).unwrap();
    let readme = fs::read_to_string(Path::new(CHART).join("README.md")).unwrap();
    let (leaves, parents) = values_of_schema();
    for parent in parents {
        assert_eq!(parent["additionalProperties"], false, "{parent}");
    }
    for (path, schema) in leaves {
        assert!(schema["description"].as_str().is_some_and(|text| text.ends_with('.')), "{path}: {schema}");
        if path == "global" {
            continue;
        }
        let default = defaults.pointer(&format!("/{}", path.replace('.', "/")));
        assert_eq!(default, Some(&schema["default"]), "{path} in values.yaml");
        let has_row = |path: &str| readme.contains(&format!("\n| `{path}` | "));
        let is_below = path.rsplit_once('.').is_some_and(|(parent, _)| has_row(parent));
        assert!(has_row(&path) || is_below, "{path} is missing in README.md");
    }
}

/// The numbers exist twice: for kustomize and for Helm.
#[test]
fn the_default_resources_are_those_of_the_manifests() {
    let text = fs::read_to_string(Path::new(CHART).join("values.yaml")).unwrap();
    let defaults: Value = serde_yaml::from_str(&text).unwrap();
    let mut found = BTreeMap::new();
    let files = [
        "deployment.yaml",
        "registry/registry.yaml",
        "eventing/deployment.yaml",
        "eventing/nats.yaml",
        "eventing/nats-server.yaml",
        "eventing/drain.yaml",
        "console/deployment.yaml",
    ];
    for file in files {
        let text = fs::read_to_string(Path::new(CHART).parent().unwrap().join(file)).unwrap();
        for document in serde_yaml::Deserializer::from_str(&text) {
            let document = Value::deserialize(document).unwrap();
            let pod = &document["spec"]["template"]["spec"];
            for container in ["initContainers", "containers"].iter().filter_map(|list| pod[list].as_array()).flatten() {
                found.insert(container["name"].as_str().unwrap().to_owned(), container["resources"].clone());
            }
        }
    }
    assert_eq!(defaults["resources"], json!(found));
}

/// Variables of the agent's container cannot be set again, because duplicate names are refused.
#[test]
fn no_value_sets_a_variable_of_the_agent_twice() {
    let (values, _) = values_of_schema();
    let refused = values["extraEnv"]["propertyNames"]["not"]["enum"].as_array().unwrap();
    let flags = [
        "--receiver-url=https://h",
        "--base-ca=a",
        "--image-pull-secret=a",
        r#"--base-images={"nodejs24":"r.io/n@sha256:0000000000000000000000000000000000000000000000000000000000000000"}"#,
        "--git-url=https://h/x",
    ];
    let all = installed(&flags);
    let container = &all["Deployment mainstay-system/mainstay"]["spec"]["template"]["spec"]["containers"][0];
    let mut set: Vec<&Value> = container["env"].as_array().unwrap().iter().map(|variable| &variable["name"]).collect();
    set.sort_by_key(|name| name.as_str());
    assert_eq!(refused.iter().collect::<Vec<_>>(), set);
}

#[test]
fn refuses_wrong_values_by_name() {
    for (values, expected) in [
        (&["--set=imgae=a/b"][..], "additional properties 'imgae' not allowed"),
        (&["--set=git.URL=https://h/x"], "additional properties 'URL' not allowed"),
        (&["--set=crds=yes"], "got string, want boolean"),
        (&["--set=baseImages.nodejs24=node:24"], "does not match pattern"),
        (&["--set=git.name=a/b"], "does not match pattern"),
        (&["--set=registry=ghcr"], "does not match pattern"),
        (&["--set=registry=me@ghcr.io/team"], "does not match pattern"),
        (&["--set=crds=false,v1alpha2=true"], "v1alpha2 needs crds"),
        (&["--set=components={functions}"], "components: name sync as well"),
        (&["--set=components={sync,builds}"], "value must be one of"),
        (&["--set=components={sync},v1alpha2=true"], "v1alpha2 needs the component functions"),
        (&["--set=components={sync},registry=ghcr.io/team"], "registry needs the component functions"),
        (
            &[
                "--set=components={sync},baseImages.nodejs24=r.io/n@sha256:0000000000000000000000000000000000000000000000000000000000000000",
            ],
            "baseImages needs the component functions",
        ),
        (&["--set=components={sync},baseCA=a"], "baseCA needs the component functions"),
        (&["--set=nats.url=tls://h"], "nats.url needs the component eventing"),
        (&["--set=nats.credentials=a"], "nats.credentials needs nats.url"),
        (&["--set=console.signIn=oidc,console.oidc.clientID=a"], "console.signIn oidc needs console.oidc.issuer"),
        (&["--set=console.oidc.clientID=a"], "console.oidc needs console.signIn oidc"),
        (&["--set=nats.server=embedded"], "nats.server needs the component eventing"),
        (&["--set=nats.server=yes"], "value must be one of"),
        (&["--set=nats.image=r.io/nats:2"], "does not match pattern"),
        (
            &["--set=nats.server=embedded,nats.url=tls://h,components={sync,eventing}"],
            "nats.url is the address of an existing NATS",
        ),
        (
            &["--set=nats.server=embedded,nats.credentials=a,components={sync,eventing}"],
            "nats.credentials is for an existing NATS",
        ),
        (
            &["--set=nats.server=embedded,nats.replicas=2,components={sync,eventing}"],
            "nats.replicas is also the number of servers",
        ),
        (
            &["--set=nats.url=tls://me:hunter2@h,components={sync,eventing}"],
            "nats.url: an address with a login would be stored in the open",
        ),
        (&["--set=nats.url=http://h,components={sync,eventing}"], "nats.url: an address has the form"),
        (&["--set=replicas=0"], "minimum"),
        (&["--set=imagePullPolicy=always"], "value must be one of"),
        (&["--set=tolerations[0].efect=NoSchedule"], "value must be one of"),
        (&["--set=extraEnv.MAINSTAY_POD=x"], "'not' failed"),
        (&["--set=podLabels.team=true"], "got boolean, want string"),
        (&["--set=git.url=https://me:hunter2@h/x"], "would be stored in the open"),
        (&["--set=git.url=ssh://me:hunter2@h/x"], "would be stored in the open"),
        (&["--set=git.url=/srv/shop"], "git.url: the URL must have the form"),
        (&["--set=git.url=https://h/x?token=hunter2"], "git.url: the URL must not contain `?`"),
        (&["--set=git.url=https://h/gr%C3%B6"], "git.name: set a name"),
        (&["--set=git.url=git://h/x,git.secret=mine"], "authentication at a git:// address is not supported"),
        (&["--set=git.url=https://h/x,git.knownHosts=h"], "git.knownHosts is for SSH addresses"),
        (&["--set=git.url=git@ssh.dev.azure.com:v3/o/p/r"], "Azure DevOps takes RSA keys only"),
        (&["--set=git.url=https://h/x,git.paths={../x}"], "`..` is not allowed"),
        (&["--set=git.url=https://h/x,git.paths={a,/a/}"], "git.paths names /a twice"),
        (&["--set=git.url=https://h/x,git.paths={a/b,a-b}"], "would make a second GitSync x-a-b"),
        (&["--set=git.url=https://h/x,git.interval=1.5h"], "does not match pattern"),
        (&["--set=git.url=https://h/x,git.interval=87601h"], "git.interval: it is at most ten years"),
    ] {
        let output = helm(&["template", "mainstay", CHART], values);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains(expected), "{values:?}: {said}");
        assert!(!said.contains("hunter2"), "{said}");
    }
}
