//! The flags for the scope of an installation: components, permissions and network policies.

use super::kinds::Resource;
use super::label::{RULE, is_label};
use crate::{Component, Components, agent::Profile};
use mainstay_cluster::Scope;
use mainstay_git::RemoteUrl;

/// Default `ServiceAccount` of GitSyncs that specify none.
const ACCOUNT: &str = "mainstay-applies";

/// How much is installed.
#[derive(clap::Args, Clone, Debug, Default)]
pub(super) struct Choice {
    /// Parts to install, separated by commas: sync, functions, eventing, exposure, console. Other parts get no
    /// definition, webhook, right or task. By default sync and functions; the agent then also serves parts that you add yourself
    #[arg(long, value_name = "NAMES", value_enum, value_delimiter = ',')]
    pub(super) components: Vec<Component>,
    /// Permissions of the agent. `full`: it may apply everything. `restricted`: it impersonates one ServiceAccount to
    /// apply, and may read and apply only --kinds in --namespaces
    #[arg(long, value_name = "PROFILE", value_enum, default_value = "full")]
    pub(super) profile: Profile,
    /// Kinds in the repository, for --profile restricted, such as apps/Deployment,Service; custom kinds by their
    /// plural, such as example.com/widgets
    #[arg(long, value_name = "KINDS", value_delimiter = ',')]
    kinds: Vec<String>,
    /// Namespaces of the objects in the repository, for --profile restricted; they must exist. Without this flag, the
    /// permissions are cluster-wide
    #[arg(long, value_name = "NS", value_delimiter = ',')]
    namespaces: Vec<String>,
    /// ServiceAccount to impersonate for GitSyncs, for --profile restricted [default: mainstay-applies]
    #[arg(long, value_name = "NAME")]
    service_account: Option<String>,
    /// Limit the agent's egress by a NetworkPolicy to DNS, API servers (443, 6443), Git (22, 443 and the port of
    /// --git-url) and registries
    #[arg(long)]
    pub(super) egress_policy: bool,
}

/// The permissions of `--profile restricted`.
#[derive(Debug)]
pub(super) struct Restricted {
    /// Kinds that may be applied.
    pub(super) kinds: Vec<Resource>,
    /// Namespaces in which these kinds may be applied; empty means all.
    pub(super) namespaces: Vec<String>,
    /// The `ServiceAccount` with these permissions, in the agent's namespace.
    pub(super) account: String,
}

/// Whether each flag that concerns Functions is used.
pub(super) struct OfFunctions {
    pub(super) has_registry: bool,
    pub(super) has_base_images: bool,
    pub(super) has_base_ca: bool,
    pub(super) v1alpha2: bool,
}

impl Choice {
    /// Returns the chosen components; `None` stands for the default components, and for components that the user adds
    /// separately.
    pub(super) fn components(
        &self,
        named: &[Component],
        of_functions: &OfFunctions,
        problems: &mut Vec<String>,
    ) -> Option<Components> {
        let restricted = [Component::Sync];
        let chosen = match (named, self.profile) {
            ([], Profile::Full) => return None,
            ([], Profile::Restricted) => &restricted[..],
            (chosen, _) => chosen,
        };
        let components = match Components::of(chosen) {
            Ok(components) => components,
            Err(why) => {
                problems.push(format!("--components: {why}"));
                return None;
            }
        };
        if self.profile == Profile::Restricted {
            for component in [Component::Functions, Component::Exposure] {
                if components.has(component) {
                    let name = component.name();
                    problems.push(format!(
                        "--profile restricted: the component {name} writes to all namespaces with permissions of its \
                         own; leave it out of --components"
                    ));
                }
            }
        }
        if !components.has(Component::Functions) {
            let flags = [
                ("--registry", of_functions.has_registry),
                ("--base-images", of_functions.has_base_images),
                ("--base-ca", of_functions.has_base_ca),
                ("--v1alpha2", of_functions.v1alpha2),
            ];
            let useless = flags.into_iter().filter(|(_, is_given)| *is_given);
            problems.extend(
                useless.map(|(flag, _)| {
                    format!("{flag} is for Functions; leave it out, or add functions to --components")
                }),
            );
        }
        Some(components)
    }

    /// Returns the permissions of `--profile restricted`, if chosen. `home` is the agent's namespace, and `target` is
    /// the namespace of objects that specify none.
    pub(super) fn restricted(&self, home: &str, target: &str, problems: &mut Vec<String>) -> Option<Restricted> {
        if self.profile == Profile::Full {
            let flags = [
                ("--kinds", !self.kinds.is_empty()),
                ("--namespaces", !self.namespaces.is_empty()),
                ("--service-account", self.service_account.is_some()),
            ];
            let useless = flags.into_iter().filter(|(_, is_given)| *is_given);
            problems.extend(
                useless.map(|(flag, _)| format!("{flag} needs --profile restricted; add it, or remove {flag}")),
            );
            return None;
        }
        let mut kinds = Vec::new();
        for text in &self.kinds {
            match text.parse::<Resource>() {
                Ok(kind) => kinds.push(kind),
                Err(why) => problems.push(format!("--kinds: {why}")),
            }
        }
        if self.kinds.is_empty() {
            problems.push("--profile restricted: name the kinds of the repository with --kinds".to_owned());
        }
        if self.namespaces.is_empty() && kinds.iter().any(Resource::is_secret) {
            problems
                .push("--kinds Secret needs --namespaces: the agent would read all Secrets of the cluster".to_owned());
        }
        for namespace in &self.namespaces {
            if !is_label(namespace) {
                problems.push(format!("--namespaces {namespace:?} is not a valid name of a namespace: {RULE}"));
            }
            if namespace == home {
                problems.push(format!(
                    "--namespaces: {home} is the agent's namespace; pods that a repository creates there could have \
                     the agent's permissions"
                ));
            }
        }
        let is_in = |namespace: &str| self.namespaces.iter().any(|one| one == namespace);
        if !self.namespaces.is_empty() && !is_in(target) {
            problems.push(format!("--target-namespace {target} is not among --namespaces; name one of them"));
        }
        let account = self.service_account.as_deref().unwrap_or(ACCOUNT);
        if !is_label(account) {
            problems.push(format!("--service-account {account:?} is not a valid name of an object: {RULE}"));
        }
        if account == "mainstay" {
            problems.push("--service-account: mainstay is the agent's own; name a different one".to_owned());
        }
        Some(Restricted { kinds, namespaces: self.namespaces.clone(), account: account.to_owned() })
    }

    /// Returns the names of the components in the flags.
    pub(super) fn component_names(&self) -> Vec<String> {
        self.components.iter().map(|component| component.name().to_owned()).collect()
    }

    /// Returns the corresponding arguments of `mainstay agent`.
    pub(super) fn agent_arguments(named: &[Component], restricted: Option<&Restricted>) -> Vec<String> {
        let mut arguments = Vec::new();
        if restricted.is_some() && named.is_empty() {
            arguments.push(format!("--components={}", Component::Sync.name()));
        } else if !named.is_empty() {
            let names: Vec<&str> = named.iter().map(|component| component.name()).collect();
            arguments.push(format!("--components={}", names.join(",")));
        }
        if let Some(restricted) = restricted {
            arguments.push("--profile=restricted".to_owned());
            if !restricted.namespaces.is_empty() {
                arguments.push(format!("--namespaces={}", restricted.namespaces.join(",")));
            }
        }
        arguments
    }
}

/// Returns the port of a repository, for the egress policy.
pub(super) fn port(url: &RemoteUrl) -> u16 {
    let usual = match url.scheme() {
        "ssh" => 22,
        "http" => 80,
        "git" => 9418,
        _ => 443,
    };
    url.port().unwrap_or(usual)
}

impl Restricted {
    /// Returns notes for the administrator.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.namespaces.is_empty() && self.kinds.iter().any(|kind| kind.scope == Scope::Namespaced) {
            notes.push(
                "without --namespaces, the permissions are cluster-wide: a user who can push to the repository can \
                 run workloads as any ServiceAccount of the cluster"
                    .to_owned(),
            );
        }
        if let [first, ..] = &*self.namespaces {
            notes.push(format!(
                "the namespaces of --namespaces must exist before this is applied (kubectl create namespace {first})"
            ));
        }
        notes
    }
}
