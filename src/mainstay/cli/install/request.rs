//! Resolves the flags and values of `install` into an [`Installation`], or the list of all problems.

use super::agent;
use super::arguments::Arguments;
use super::choice::{self, OfFunctions, Restricted};
use super::label::{RULE, is_label};
use super::registry::Registry;
use super::values::{Given, Values};
use crate::{Component, Components, cli::deploy_key};
use mainstay_api::{Span, names};
use mainstay_git::{BaseDir, Reference, RemoteUrl};
use mainstay_gitsync::receiver::BaseUrl;

/// The image in the Deployment of `manifests/`.
pub(super) const IMAGE: &str = concat!("mainstay:", env!("CARGO_PKG_VERSION"));

/// A resolved installation.
#[derive(Debug)]
pub(super) struct Installation {
    /// Namespace of the agent.
    pub(super) namespace: String,
    /// Name of the GitRepository.
    pub(super) name: String,
    /// URL of the repository, as given.
    pub(super) url: String,
    /// Authentication of the repository.
    pub(super) access: Access,
    /// The directories to follow, each with the name of its GitSync.
    pub(super) syncs: Vec<(String, BaseDir)>,
    /// The branch.
    pub(super) branch: String,
    /// Namespace for objects without one.
    pub(super) target_namespace: String,
    /// Poll interval, if given.
    pub(super) interval: Option<Span>,
    /// Image of the agent.
    pub(super) image: String,
    /// URL of Receivers, if known.
    pub(super) receiver_url: Option<BaseUrl>,
    /// The registry for the images of Functions.
    pub(super) registry: Registry,
    /// Host keys, in addition to the published keys of well-known hosts.
    pub(super) known_hosts: Option<String>,
    /// Whether the CRDs are included.
    pub(super) with_definitions: bool,
    /// Whether Functions are served in v1alpha2, too.
    pub(super) v1alpha2: bool,
    /// The components, if the user chose them.
    pub(super) chosen: Option<Components>,
    /// The permissions of `--profile restricted`, if chosen.
    pub(super) restricted: Option<Restricted>,
    /// Port of the repository for the egress policy, if requested.
    pub(super) egress_port: Option<u16>,
    /// The agent's arguments for these choices.
    pub(super) agent_arguments: Vec<String>,
    /// The settings for the Deployments.
    pub(super) values: Values,
}

impl Installation {
    /// Returns whether a component is installed, or may be added.
    pub(super) fn has(&self, component: Component) -> bool {
        self.chosen.as_ref().is_none_or(|chosen| chosen.has(component))
    }
}

/// Authentication of a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// Without credentials.
    Anonymous,
    /// With the user name and password of this Secret.
    Basic(String),
    /// With the SSH key of this Secret, which the user provides.
    Key(String),
    /// With an SSH key that the agent creates and stores in this Secret.
    NewKey(String),
}

/// Validates flags and values. Returns the installation, and notes for the user.
pub(super) fn resolve(arguments: &Arguments, given: &Given) -> Result<(Installation, Vec<String>), Vec<String>> {
    let resolved = resolve_values(arguments, given);
    resolved.map_err(|problems| problems.iter().map(|problem| given.located(problem)).collect())
}

/// Validates flags and values. Each problem begins with its flag.
fn resolve_values(arguments: &Arguments, given: &Given) -> Result<(Installation, Vec<String>), Vec<String>> {
    let values = &given.values;
    let git = &values.git;
    let mut problems = problems_of_names(arguments, values);
    problems.extend(agent::problems(values));
    let registry = parsed("--registry", values.registry.parse(), &mut problems);
    let interval = (!git.interval.is_empty()).then(|| git.interval.parse::<Span>().map_err(|error| error.to_string()));
    let interval = parsed("--interval", interval.transpose(), &mut problems);
    let receiver_url = (!values.receiver_url.is_empty()).then(|| values.receiver_url.parse::<BaseUrl>());
    let receiver_url = parsed("--receiver-url", receiver_url.transpose(), &mut problems);
    let named = named_components(values);
    problems.extend(values.console.problems());
    problems.extend(values.nats.problems(&named, |name| given.names(&["nats", name])));
    let url = address(&git.url).map_err(|why| problems.push(why)).ok();
    let name = Some(git.name.clone()).filter(|name| !name.is_empty());
    let name = name.or_else(|| url.as_ref().map(name_of)).unwrap_or_default();
    let syncs = syncs(&name, &git.paths).map_err(|why| problems.push(why)).unwrap_or_default();
    if values.v1alpha2 && !values.crds {
        problems.push(
            "--v1alpha2 needs the definitions, which say which versions are served; leave out --no-crds".to_owned(),
        );
    }
    let chosen = arguments.choice.components(&named, &of_functions(arguments, values, &registry), &mut problems);
    let restricted = arguments.choice.restricted(&arguments.namespace, &git.target_namespace, &mut problems);
    let (Some(url), true) = (url, problems.is_empty()) else { return Err(problems) };
    let known_hosts = (arguments.known_hosts.is_some() || !git.known_hosts.is_empty()).then(|| git.known_hosts.clone());
    let access = access(&url, &git.secret, &name);
    let mut notes = repository_notes(&url, &access, known_hosts.as_deref(), arguments).map_err(|why| vec![why])?;
    let has_functions = chosen.as_ref().is_none_or(|chosen| chosen.has(Component::Functions));
    let registry = if has_functions { registry } else { Registry::None };
    notes.extend(registry.note(&arguments.namespace));
    notes.extend(restricted.iter().flat_map(Restricted::notes));
    let pull = Some(&values.image_pull_secret).filter(|secret| !secret.is_empty());
    notes.extend(pull.map(|secret| pull_note(secret, &arguments.namespace)));
    notes.extend(values.nats.notes());
    notes.extend(ca_note(&values.base_ca, &arguments.namespace));
    notes.extend(unused_note(arguments));
    let installation = Installation {
        namespace: arguments.namespace.clone(),
        name,
        url: git.url.trim().to_owned(),
        access,
        syncs,
        branch: git.branch.clone(),
        target_namespace: git.target_namespace.clone(),
        interval,
        image: values.image.clone(),
        receiver_url,
        registry,
        known_hosts,
        with_definitions: values.crds,
        v1alpha2: values.v1alpha2,
        egress_port: values.egress_policy.then(|| choice::port(&url)),
        agent_arguments: agent::arguments(&named, restricted.as_ref(), values),
        chosen,
        restricted,
        values: values.clone(),
    };
    Ok((installation, notes))
}

/// Returns the components that the user named.
fn named_components(values: &Values) -> Vec<Component> {
    let component = |name: &String| Component::ALL.into_iter().find(|component| component.name() == name);
    values.components.iter().filter_map(component).collect()
}

/// Returns the problems of names.
fn problems_of_names(arguments: &Arguments, values: &Values) -> Vec<String> {
    let (git, image, mut problems) = (&values.git, &values.image, Vec::new());
    for (flag, value) in [("--namespace", &arguments.namespace), ("--target-namespace", &git.target_namespace)] {
        if !is_label(value) {
            problems.push(format!("{flag} {value:?} is not a valid name of a namespace: {RULE}"));
        }
    }
    if Reference::parse(&git.branch).is_err() {
        problems.push(format!("--git-branch {:?} is not a valid name of a branch", git.branch));
    }
    if image.is_empty() || image.contains(char::is_whitespace) {
        problems.push(format!(
            "--image {image:?} is not a valid image name; give one such as registry.example.com/mainstay:1.0"
        ));
    }
    let names =
        [("--name", &git.name), ("--git-secret", &git.secret), ("--image-pull-secret", &values.image_pull_secret)];
    for (flag, name) in names {
        if !name.is_empty() && !is_label(name) {
            problems.push(format!("{flag} {name:?} is not a valid name of an object: {RULE}"));
        }
    }
    problems
}

/// Returns the value of a flag, or the default, and adds the problem of an invalid value.
fn parsed<T: Default>(flag: &str, value: Result<T, String>, problems: &mut Vec<String>) -> T {
    value.unwrap_or_else(|why| {
        problems.push(format!("{flag}: {why}"));
        T::default()
    })
}

/// Returns the flags that need the component for Functions.
fn of_functions(arguments: &Arguments, values: &Values, registry: &Registry) -> OfFunctions {
    OfFunctions {
        has_registry: match registry {
            Registry::Internal => arguments.registry.is_some(),
            Registry::None => false,
            Registry::Existing(_) => true,
        },
        has_base_images: !values.base_images.is_empty(),
        has_base_ca: !values.base_ca.is_empty(),
        v1alpha2: values.v1alpha2,
    }
}

/// Returns the authentication of the repository. `secret` may be empty.
fn access(url: &RemoteUrl, secret: &str, name: &str) -> Access {
    match (url.known_hosts_name(), secret) {
        (Some(_), "") => Access::NewKey(format!("{name}-git")),
        (Some(_), secret) => Access::Key(secret.to_owned()),
        (None, "") => Access::Anonymous,
        (None, secret) => Access::Basic(secret.to_owned()),
    }
}

/// Returns the notes about the repository.
///
/// # Errors
/// Why the agent could not use the repository.
fn repository_notes(
    url: &RemoteUrl,
    access: &Access,
    known_hosts: Option<&str>,
    arguments: &Arguments,
) -> Result<Vec<String>, String> {
    let mut notes = Vec::new();
    notes.extend(host_key_note(url, known_hosts)?);
    if url.is_unprotected() {
        notes.push(
            "git:// is neither encrypted nor authenticated: anyone on the network path can replace the repository; \
             use https:// \
             or ssh://, or have commits verified (`verify` in the spec of the GitRepository)"
                .to_owned(),
        );
        if *access != Access::Anonymous {
            return Err("--git-secret: authentication at a git:// address is not supported; leave it out, or give \
                        the https:// or ssh:// address"
                .to_owned());
        }
    }
    if let Access::NewKey(secret) = access {
        let namespace = &arguments.namespace;
        if deploy_key::takes_only_rsa(url) {
            let page = deploy_key::page(url).url.map(|url| format!(" at {url}")).unwrap_or_default();
            return Err(format!(
                "--git-url: Azure DevOps takes RSA keys only, and the agent makes an ed25519 key: make one with \
                 `ssh-keygen -t rsa -b 3072 -m PEM -N '' -f azure`, add azure.pub{page}, install again with \
                 --git-secret {secret}, and then `kubectl create secret generic {secret} -n {namespace} \
                 --from-file=key=azure`",
            ));
        }
        notes.push(format!("the agent makes an SSH key; show its public half: mainstay identity -n {namespace}"));
    }
    Ok(notes)
}

/// Returns the note about the host key of the repository, if it is not known.
///
/// # Errors
/// Why the file of `--known-hosts` is of no use.
fn host_key_note(url: &RemoteUrl, known_hosts: Option<&str>) -> Result<Option<String>, String> {
    let Some(host) = url.known_hosts_name() else {
        let problem = "--known-hosts needs an SSH address; give one in --git-url, or remove --known-hosts";
        return if known_hosts.is_some() { Err(problem.to_owned()) } else { Ok(None) };
    };
    let lists_host = |text: &str| mainstay_git::lists_host(text, &host);
    match known_hosts {
        Some(text) if !lists_host(text) => {
            Err(format!("the file of --known-hosts has no line that can be read for {host}; `ssh-keyscan` prints some"))
        }
        None if !lists_host(mainstay_git::PUBLISHED) => Ok(Some(format!(
            "the key of {host} is not known, so the agent will refuse it: compare the output of ssh-keyscan with \
             the key that the host publishes, and install again with --known-hosts FILE"
        ))),
        _ => Ok(None),
    }
}

/// Returns the note about flags without effect.
fn unused_note(arguments: &Arguments) -> Option<String> {
    let unused = [
        ("--git-user", arguments.git_user.is_some()),
        ("--git-email", arguments.git_email.is_some()),
        ("--git-label", arguments.git_label.is_some()),
    ];
    let unused: Vec<&str> = unused.into_iter().filter_map(|(flag, is_used)| is_used.then_some(flag)).collect();
    (!unused.is_empty())
        .then(|| format!("nothing is written to Git: a read-only key will do, and {} has no effect", unused.join(", ")))
}

/// Returns the warning about the default image if it is used and has no registry.
pub(super) fn image_warning(installation: &Installation) -> Option<String> {
    (installation.image == IMAGE && !IMAGE.contains('/')).then(|| {
        format!(
            "--image is not set, and nodes cannot pull the default {IMAGE}, which is in no registry: build the image \
             with \
             manifests/Dockerfile, push it, and name it with --image"
        )
    })
}

/// Returns the instructions for storing the CA bundle of base images.
fn ca_note(base_ca: &str, namespace: &str) -> Option<String> {
    let (secret, key) = base_ca.split_once('/').unwrap_or((base_ca, "ca.crt"));
    (!secret.is_empty()).then(|| {
        format!(
            "store the CA bundle of the registries of base images; its label has it copied to the namespaces of \
             Functions:\n  \
             kubectl create secret generic {secret} -n {namespace} --from-file={key}=FILE\n  \
             kubectl label secret {secret} -n {namespace} {}={}",
            names::CONFIG,
            names::CREDENTIALS
        )
    })
}

/// Returns the instructions for storing the Secret that pulls the image.
fn pull_note(secret: &str, namespace: &str) -> String {
    format!(
        "store the login for the agent's image; its label has it copied to the namespaces of Functions, whose builds \
         run that \
         image:\n  kubectl create secret docker-registry {secret} -n {namespace} --docker-server=HOST \
         --docker-username=USER \
         --docker-password=PASSWORD\n  kubectl label secret {secret} -n {namespace} {}={}",
        names::CONFIG,
        names::CREDENTIALS
    )
}

fn address(text: &str) -> Result<RemoteUrl, String> {
    if text.is_empty() {
        return Err("--git-url is needed, or git.url in a file of --values".to_owned());
    }
    let url = RemoteUrl::parse(text).map_err(|error| format!("--git-url: {}", error.fault()))?;
    if url.local_path().is_some() {
        return Err(
            "--git-url: a repository of this file system cannot be reached from a cluster; give the address of a \
                    Git server, or try `mainstay dev PATH`"
                .to_owned(),
        );
    }
    if url.holds_credentials() {
        return Err(
            "--git-url: an address with a user or password would be stored in the open; put them into a Secret and \
                    name it with --git-secret"
                .to_owned(),
        );
    }
    Ok(url)
}

/// Returns the last part of the URL as an object name.
fn name_of(url: &RemoteUrl) -> String {
    let last = url.repository_path().and_then(|path| path.rsplit('/').next()).unwrap_or_default();
    // Names of Secrets and of further GitSyncs are derived from this name, so it is short.
    Some(label(last, 40)).filter(|name| !name.is_empty()).unwrap_or_else(|| "repository".to_owned())
}

/// Converts a string to a name. Other characters become dashes.
fn label(text: &str, most: usize) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let text: String = text.chars().map(plain).collect();
    let parts: Vec<&str> = text.split('-').filter(|part| !part.is_empty()).collect();
    let mut name = parts.join("-");
    name.truncate(most);
    name.trim_end_matches('-').to_owned()
}

/// Returns the name of a GitSync for each directory.
fn syncs(name: &str, paths: &[String]) -> Result<Vec<(String, BaseDir)>, String> {
    let mut syncs: Vec<(String, BaseDir)> = Vec::new();
    for path in paths.iter().map(String::as_str).chain(paths.is_empty().then_some("/")) {
        let directory = BaseDir::parse(path).map_err(|error| format!("--git-path {path:?}: {}", error.fault()))?;
        if syncs.iter().any(|(_, known)| *known == directory) {
            return Err(format!("--git-path names {directory} twice"));
        }
        let mut sync = name.to_owned();
        if paths.len() > 1 {
            sync = label(&format!("{name}-{}", directory.path()), 63);
            if syncs.iter().any(|(known, _)| *known == sync) {
                return Err(format!(
                    "--git-path {path:?} would make a second GitSync {sync}; install it by a GitSync of your own"
                ));
            }
        }
        syncs.push((sync, directory));
    }
    Ok(syncs)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Change<'a> = &'a dyn Fn(&mut Arguments);

    fn arguments(url: &str) -> Arguments {
        Arguments {
            git_url: Some(url.into()),
            namespace: "flux".into(),
            image: Some("mainstay:1".into()),
            ..Arguments::default()
        }
    }

    /// Returns the installation for these flags, with notes.
    fn resolve(arguments: &Arguments, known_hosts: Option<&str>) -> Result<(Installation, Vec<String>), Vec<String>> {
        let given = Given::merge(arguments, Vec::new(), known_hosts)?;
        super::resolve(arguments, &given)
    }

    #[track_caller]
    fn refused(change: impl FnOnce(&mut Arguments), expected: &str) {
        let mut arguments = arguments("git@github.com:team/shop.git");
        change(&mut arguments);
        let problems = resolve(&arguments, None).unwrap_err().join("\n");
        assert!(problems.contains(expected), "{problems}");
    }

    #[test]
    fn takes_base_images_that_the_agent_would_take() {
        let images = format!(r#"{{"nodejs24": "registry.local/node@sha256:{}"}}"#, "0".repeat(64));
        let given = Arguments { base_images: Some(images.clone()), ..arguments("https://h/x") };
        let taken = resolve(&given, None).unwrap().0.values.base_images;
        assert_eq!(serde_json::Value::Object(taken), serde_json::from_str::<serde_json::Value>(&images).unwrap());
        for (wrong, expected) in [
            ("node:24", "--base-images: it is not the expected JSON object"),
            (
                r#"{"nodejs24": "node:24"}"#,
                "--base-images: nodejs24: \"node:24\": the image must be pinned by its digest",
            ),
            (r#"{"cobol85": "scratch"}"#, "--base-images: there is no runtime \"cobol85\""),
        ] {
            refused(|arguments| arguments.base_images = Some(wrong.to_owned()), expected);
        }
    }

    #[test]
    fn chooses_a_new_key_for_ssh_and_a_secret_or_none_for_https() {
        let access = |url: &str, secret: Option<&str>| {
            let arguments = Arguments { git_secret: secret.map(str::to_owned), ..arguments(url) };
            let (request, _) = resolve(&arguments, None).unwrap();
            (request.name, request.access)
        };
        let shop = |access| ("shop".to_owned(), access);
        assert_eq!(access("git@github.com:team/shop.git", None), shop(Access::NewKey("shop-git".into())));
        assert_eq!(access("ssh://git@github.com/team/Shop.git", Some("mine")), shop(Access::Key("mine".into())));
        assert_eq!(access("https://github.com/team/shop", None), shop(Access::Anonymous));
        assert_eq!(access("https://github.com/team/shop/", Some("login")), shop(Access::Basic("login".into())));
        assert_eq!(access("git@h:__.git", None).0, "repository");
        assert_eq!(access("git@h:a/My_Repo.v2.git", None).0, "my-repo-v2");
    }

    #[test]
    fn creates_a_git_sync_for_each_directory() {
        let syncs = |paths: &[&str]| {
            let paths: Vec<String> = paths.iter().map(ToString::to_string).collect();
            syncs("shop", &paths).map(|all| all.iter().map(|(name, dir)| format!("{name} {dir}")).collect::<Vec<_>>())
        };
        assert_eq!(syncs(&[]).unwrap(), ["shop /"]);
        assert_eq!(syncs(&["apps"]).unwrap(), ["shop /apps"]);
        assert_eq!(syncs(&["apps", "infra/base/"]).unwrap(), ["shop-apps /apps", "shop-infra-base /infra/base"]);
        assert!(syncs(&["apps", "/apps/"]).unwrap_err().contains("twice"));
        assert!(syncs(&["a/b", "a-b"]).unwrap_err().contains("second GitSync shop-a-b"));
        assert!(syncs(&["../x"]).unwrap_err().contains("`..` is not allowed"));
    }

    #[test]
    fn events_on_nats_need_their_component_and_an_address_without_a_login() {
        use crate::Component::{Eventing, Sync};
        let nats = |url: &str| Some(url.to_owned());
        refused(
            |a| a.nats.nats_url = nats("tls://h:4222"),
            "--nats-url needs the component eventing; add eventing to --components",
        );
        refused(
            |a| a.nats.nats_credentials = nats("nats"),
            "--nats-credentials needs events on NATS; set --nats embedded or --nats-url",
        );
        refused(|a| a.nats.event_dispatchers = Some(3), "--event-dispatchers needs events on NATS");
        for url in ["http://h", "tls://me:hunter2@h", "tls://h:4222,", ","] {
            let problems = of_flags_with(|a| a.nats.nats_url = nats(url));
            assert!(problems.starts_with("--nats-url: "), "{problems}");
            assert!(!problems.contains("hunter2"), "{problems}");
        }
        let chosen = |change: &dyn Fn(&mut Arguments)| {
            let mut arguments = arguments("https://h/x");
            arguments.choice.components = vec![Sync, Eventing];
            arguments.nats.nats_url = nats("tls://one:4222,tls://two");
            change(&mut arguments);
            resolve(&arguments, None).map(|(_, notes)| notes.join("\n"))
        };
        let said = chosen(&|a| a.nats.nats_credentials = nats("login")).unwrap();
        assert!(said.contains("kubectl create secret generic login -n kyma-system"), "{said}");
        assert!(!said.contains("unencrypted") && !said.contains("--nats-credentials is not set"), "{said}");
        let said = chosen(&|a| a.nats.nats_url = nats("one")).unwrap();
        assert!(said.contains("unencrypted") && said.contains("--nats-credentials is not set"), "{said}");
        let embedded = |change: &dyn Fn(&mut Arguments)| {
            chosen(&|a| {
                (a.nats.nats, a.nats.nats_url) = (nats("embedded"), None);
                change(a);
            })
        };
        let said = embedded(&|a| a.nats.nats_replicas = Some(3)).unwrap();
        assert!(said.contains("Secret kyma-system/mainstay-nats") && !said.contains("unencrypted"), "{said}");
        let digest = "0".repeat(64);
        assert!(embedded(&|a| a.nats.nats_image = Some(format!("r.io/nats@sha256:{digest}"))).is_ok());
        let wrong: [(Change<'_>, &str); 6] = [
            (&|a| a.nats.nats_url = nats("tls://h"), "--nats-url is the address of an existing NATS"),
            (&|a| a.nats.nats_credentials = nats("a"), "--nats-credentials is for an existing NATS"),
            (&|a| a.nats.nats_replicas = Some(2), "--nats-replicas 2 is also the number of servers"),
            (&|a| a.nats.nats_image = nats("nats:2"), "--nats-image (nats.image): "),
            (&|a| a.nats.nats = nats("yes"), "--nats (nats.server): "),
            (&|a| a.choice.components = vec![Sync], "--nats needs the component eventing"),
        ];
        for (change, expected) in wrong {
            let said = embedded(change).unwrap_err().concat();
            assert!(said.contains(expected), "{said}");
        }
        let said = chosen(&|a| a.nats.nats_credentials = nats("a/b")).unwrap_err().concat();
        assert!(said.contains("--nats-credentials \"a/b\" is not a valid name"), "{said}");
    }

    /// Returns the problems of flags.
    fn of_flags_with(change: impl FnOnce(&mut Arguments)) -> String {
        let mut arguments = arguments("https://h/x");
        change(&mut arguments);
        resolve(&arguments, None).unwrap_err().join("\n")
    }

    #[test]
    fn names_the_wrong_flag_and_what_to_do() {
        refused(|a| a.git_url = Some("https://me:hunter2@h/x".into()), "name it with --git-secret");
        refused(|a| a.git_url = Some("/srv/shop".into()), "mainstay dev PATH");
        refused(|a| a.git_url = Some("shop".into()), "--git-url: the URL must have the form");
        refused(|a| a.git_url = Some("https://gіthub.com/a/b".into()), "--git-url: the host of a URL must be ASCII");
        refused(|a| a.git_url = Some("git://gіthub.com/a/b".into()), "--git-url: the host of a URL must be ASCII");
        let daemon = |a: &mut Arguments| {
            a.git_url = Some("git://h/x".into());
            a.git_secret = Some("mine".into());
        };
        refused(daemon, "authentication at a git:// address is not supported");
        for url in
            ["git@ssh.dev.azure.com:v3/org/project/repo", "ssh://org@vs-ssh.visualstudio.com/v3/org/project/repo"]
        {
            refused(|a| a.git_url = Some(url.into()), "takes RSA keys only, and the agent makes an ed25519 key");
        }
        refused(|a| a.namespace = "Flux".into(), "--namespace \"Flux\" is not a valid name of a namespace");
        refused(|a| a.git_branch = Some("a b".into()), "--git-branch");
        refused(|a| a.image = Some(String::new()), "--image");
        refused(|a| a.name = Some("a/b".into()), "--name \"a/b\" is not a valid name of an object");
        let mut both = arguments("https://me:hunter2@h/x");
        both.namespace = "Flux".into();
        let problems = resolve(&both, None).unwrap_err();
        assert_eq!(problems.len(), 2, "all at once: {problems:?}");
        assert!(!problems.concat().contains("hunter2"));
        let said = resolve(&arguments("git@github.com:a/b"), Some("other ssh-ed25519 x")).unwrap_err();
        assert!(said[0].contains("no line that can be read for github.com"), "{said:?}");
        assert!(
            resolve(&arguments("https://h/x"), Some("h ssh-ed25519 x")).unwrap_err()[0]
                .contains("remove --known-hosts")
        );
    }

    #[test]
    fn notes_unknown_host_keys_and_flags_without_effect() {
        let notes = |url: &str| {
            let arguments = Arguments { git_email: Some("a@example.com".into()), ..arguments(url) };
            resolve(&arguments, None).unwrap().1.join("\n")
        };
        let said = notes("ssh://git@git.example.com:2222/x");
        assert!(said.contains("the key of [git.example.com]:2222 is not known"), "{said}");
        assert!(said.contains("mainstay identity -n flux") && said.contains("--git-email has no effect"), "{said}");
        assert!(!notes("git@github.com:a/b").contains("is not known"));
        assert!(notes("git://h/a").contains("git:// is neither encrypted nor authenticated"));
        assert!(!notes("https://h/a").contains("authenticated"));
        let own = Arguments { git_secret: Some("mine".into()), ..arguments("git@ssh.dev.azure.com:v3/o/p/r") };
        assert!(resolve(&own, None).is_ok());
    }
}
