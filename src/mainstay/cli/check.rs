//! `mainstay check`: tests the cluster, the agent's permissions and the repositories as the agent would, and reports
//! problems, also those in the statuses of Mainstay's objects.
//!
//! Repositories are accessed from the machine of the command, so network policies and proxies of the cluster are not
//! tested.
//!
//! Invariant: nothing is written. Invariant: no value of a Secret is printed.

mod containerd;
mod dependencies;
mod nats;
mod repository;
mod states;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde::Deserialize as _;
use serde_json::{Value, json};

use self::repository::{Asked, Finding, wrong};
use super::{
    Error, Exit,
    connection::HomeConnection,
    lease::Lease,
    output::{self, OutputArgument},
    progress::Progress,
};
use mainstay_api::{
    git_repository::{Verify, VerifyMode, VerifySecretRef},
    names,
};
use mainstay_cluster::{Cluster, Kind, Persistence, Scope};
use mainstay_git::Reference;
use mainstay_object::failure::chain;
use mainstay_object::printable;

/// The roles that the agent needs.
const ROLES: &str = include_str!("../../../manifests/rbac.yaml");
/// The agent's ServiceAccount.
const ACCOUNT: &str = "mainstay";
/// Maximum number of concurrent reviews.
const AT_ONCE: usize = 8;
/// Maximum number of missing permissions in one line.
const SHOWN: usize = 5;

/// Arguments of `check`.
#[derive(clap::Args, Debug)]
pub(super) struct Arguments {
    /// GitRepository to check, instead of the agent and all GitRepositories of the namespace; `NAMESPACE/NAME` for
    /// another namespace
    #[arg(long, value_name = "NAME", conflicts_with = "git_url")]
    repository: Option<String>,
    /// Address of a repository to check, instead of the agent and its GitRepositories
    #[arg(long, value_name = "URL")]
    git_url: Option<String>,
    /// Secret in the namespace with the credentials of that repository
    #[arg(long, value_name = "SECRET", requires = "git_url")]
    secret: Option<String>,
    /// Secret in the namespace with the keys that commits of that repository must be signed with
    #[arg(long, value_name = "SECRET", requires = "git_url")]
    verify_secret: Option<String>,
    /// Required signatures: `HEAD` for the commit, `Tag`, or `TagAndHEAD`
    #[arg(long, value_name = "MODE", requires = "verify_secret", default_value = "HEAD", value_parser = verify_mode)]
    verify_mode: VerifyMode,
    /// Branch, tag or commit to look up; by default those that GitSyncs and Functions follow, else the default branch
    #[arg(long, value_name = "REFERENCE", value_parser = reference)]
    reference: Option<Reference>,
    #[command(flatten)]
    output: OutputArgument,
    #[command(flatten)]
    connection: HomeConnection,
}

fn reference(text: &str) -> Result<Reference, String> {
    Reference::parse(text).map_err(|error| chain(&error))
}

fn verify_mode(text: &str) -> Result<VerifyMode, String> {
    serde_json::from_value(json!(text)).map_err(|_| "must be HEAD, Tag or TagAndHEAD".to_owned())
}

/// Prints findings, and records whether a finding is a problem.
struct Report {
    exit: Exit,
    output: OutputArgument,
    /// The items of machine-readable output, which are printed at the end.
    items: Vec<Value>,
    progress: Progress,
}

impl Report {
    fn add(&mut self, finding: Finding) -> Result<(), Error> {
        self.progress.clear();
        let (text, hint) = match &finding {
            Ok(text) => (text, None),
            Err((text, hint)) => (text, hint.as_ref()),
        };
        self.items.push(json!({ "ok": finding.is_ok(), "text": text, "hint": hint }));
        if finding.is_err() {
            self.exit = Exit::Failed;
        }
        match finding {
            _ if !self.output.is_text() => Ok(()),
            Ok(text) => output::print(&format!("ok     {text}\n")),
            Err((text, hint)) => {
                let hint = hint.map(|hint| format!("       {hint}\n")).unwrap_or_default();
                output::print(&format!("wrong  {text}\n{hint}"))
            }
        }
    }

    /// Adds whether the cluster knows each kind of Mainstay. Returns whether the cluster knows all of these kinds.
    async fn add_definitions(&mut self, cluster: &Cluster, installed: &Installed) -> Result<bool, Error> {
        let mut is_defined = true;
        for definition in mainstay_api::definitions() {
            if !installed.functions && definition.metadata.name.as_deref() == Some(names::FUNCTION_DEFINITION) {
                continue;
            }
            let (group, kind) = (&definition.spec.group, &definition.spec.names.kind);
            let served = cluster.kind(&format!("{group}/v1alpha1"), kind).await?;
            is_defined &= served.is_some();
            self.add(match served {
                Some(_) => Ok(format!("the cluster knows the kind {kind}")),
                None => wrong(
                    format!("the cluster does not know the kind {kind}"),
                    "mainstay install --git-url URL | kubectl apply -f -",
                ),
            })?;
        }
        Ok(is_defined)
    }

    /// Returns the exit code, once everything is printed.
    fn finish(self) -> Result<Exit, Error> {
        drop(self.progress);
        if !self.output.is_text() {
            self.output.print(&json!({ "items": self.items }), String::new)?;
        }
        Ok(self.exit)
    }
}

pub(super) async fn run(arguments: Arguments) -> Result<Exit, Error> {
    let named = &arguments.connection.namespace;
    let progress = Progress::begin();
    progress.say("asking the cluster and the repositories");
    let mut report = Report { exit: Exit::Fine, output: arguments.output, items: Vec::new(), progress };
    let mut asked = Asked { home: named.clone(), reference: arguments.reference.clone(), is_dev: false };
    if let Some(url) = &arguments.git_url {
        let verify = arguments.verify_secret.clone();
        let verify = verify.map(|name| Verify { mode: arguments.verify_mode, secret_ref: VerifySecretRef { name } });
        let secret = arguments.secret.clone();
        let cluster = match (&secret, &verify) {
            (None, None) => None,
            _ => Some(arguments.connection.connect().await?),
        };
        for finding in repository::at(cluster.as_ref(), url, secret, verify, &asked).await? {
            report.add(finding)?;
        }
        return report.finish();
    }
    let cluster = arguments.connection.connect().await?;
    let lease = Lease::find(&cluster, named).await?;
    let namespace = &lease.namespace;
    asked.home.clone_from(namespace);
    asked.is_dev = lease.is_of_dev();
    if let Some(name) = &arguments.repository {
        for finding in repository::named(&cluster, name, &asked).await? {
            report.add(finding)?;
        }
        return report.finish();
    }
    let kinds = cluster.kinds().await?;
    report.add(Ok(format!("the cluster answers and serves {} kinds", kinds.len())))?;
    let installed = Installed::find(&cluster, namespace).await?;
    let is_defined = report.add_definitions(&cluster, &installed).await?;
    report.add(permissions(&cluster, &lease, installed).await?)?;
    for finding in settings(&cluster, namespace).await? {
        report.add(finding)?;
    }
    report.add(agent(&lease))?;
    if let Some(finding) = containerd::finding(&cluster, namespace).await? {
        report.add(finding)?;
    }
    for finding in nats::findings(&cluster).await? {
        report.add(finding)?;
    }
    if is_defined {
        for finding in repository::all(&cluster, &asked).await? {
            report.add(finding)?;
        }
        for finding in states::findings(&cluster, &asked.home).await? {
            report.add(finding)?;
        }
    }
    report.finish()
}

/// Returns the findings about the operator's settings, if their ConfigMap exists.
async fn settings(cluster: &Cluster, namespace: &str) -> Result<Vec<Finding>, Error> {
    let maps = Kind::fixed("v1", "ConfigMap", "configmaps", Scope::Namespaced);
    let Some(mut map) = cluster.get(&maps, Some(namespace), names::SETTINGS).await? else { return Ok(Vec::new()) };
    let data = serde_json::from_value(map["data"].take()).unwrap_or_default();
    let what = format!("ConfigMap {namespace}/{}", names::SETTINGS);
    Ok(match mainstay_function::Settings::from_config_map(mainstay_function::Settings::default(), &data) {
        Ok((_, without_effect)) if without_effect.is_empty() => vec![Ok(format!("{what} has {} settings", data.len()))],
        Ok((_, without_effect)) => {
            let ignored =
                without_effect.iter().map(|one| format!("{} has no effect: {}", printable(&one.key), one.why));
            ignored.map(|one| Ok(format!("{what}: {one}"))).collect()
        }
        Err(mistakes) => {
            let hint = format!(
                "kubectl -n {namespace} edit configmap {}; until then the last valid settings stay",
                names::SETTINGS
            );
            mistakes.iter().map(|one| wrong(format!("{what}: {}", printable(&one.to_string())), hint.clone())).collect()
        }
    })
}

/// Returns whether an agent leads.
fn agent(lease: &Lease) -> Finding {
    let namespace = &lease.namespace;
    match &lease.holder {
        Some(holder) => Ok(format!("the agent {holder} is running")),
        None => wrong(
            format!("no agent is running in the namespace {namespace}"),
            format!("kubectl -n {namespace} describe deployment,pods -l app.kubernetes.io/name=mainstay"),
        ),
    }
}

/// The installed parts, as given by the arguments of the agent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Installed {
    pub(super) functions: bool,
    restricted: bool,
}

impl Installed {
    /// Reads the agent's Deployment. Without one, the defaults apply.
    pub(super) async fn find(cluster: &Cluster, namespace: &str) -> Result<Self, Error> {
        let deployments = Kind::fixed("apps/v1", "Deployment", "deployments", Scope::Namespaced);
        let found = cluster.get(&deployments, Some(namespace), ACCOUNT).await?.unwrap_or_default();
        let arguments = found["spec"]["template"]["spec"]["containers"][0]["args"].as_array();
        let mut arguments = arguments.into_iter().flatten().filter_map(Value::as_str);
        let components = arguments.clone().find_map(|argument| argument.strip_prefix("--components="));
        Ok(Self {
            functions: components.is_none_or(|names| names.split(',').any(|name| name == "functions")),
            restricted: arguments.any(|argument| argument == "--profile=restricted"),
        })
    }
}

/// Checks whether the agent's ServiceAccount has the permissions of its roles in `manifests/`.
async fn permissions(cluster: &Cluster, lease: &Lease, installed: Installed) -> Result<Finding, Error> {
    let namespace = lease.namespace.as_str();
    let accounts = Kind::fixed("v1", "ServiceAccount", "serviceaccounts", Scope::Namespaced);
    if cluster.get_metadata(&accounts, Some(namespace), ACCOUNT).await?.is_none() {
        let what = format!("there is no ServiceAccount {namespace}/{ACCOUNT}");
        if let Some(holder) = &lease.holder {
            return Ok(Ok(format!("{what}: the agent {holder} acts as the user of its kubeconfig")));
        }
        return Ok(wrong(
            what,
            "create it with `mainstay install`, or select the namespace of the agent with -n NAMESPACE",
        ));
    }
    let user = format!("system:serviceaccount:{namespace}:{ACCOUNT}");
    let groups = ["system:serviceaccounts", &format!("system:serviceaccounts:{namespace}"), "system:authenticated"];
    let reviews = Kind::fixed("authorization.k8s.io/v1", "SubjectAccessReview", "subjectaccessreviews", Scope::Cluster);
    let needed = needed(namespace, installed)?;
    let count = needed.len();
    let asked = stream::iter(needed).map(|(what, attributes)| {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {"user": user, "groups": groups, "resourceAttributes": attributes},
        });
        let reviews = &reviews;
        async move {
            let answer = cluster.create(reviews, None, "permissions", &review, Persistence::Kept).await?;
            Ok::<_, mainstay_cluster::Error>((what, answer["status"]["allowed"] == true))
        }
    });
    let answers: Vec<(String, bool)> = match asked.buffered(AT_ONCE).try_collect().await {
        Ok(answers) => answers,
        Err(error) if error.is_forbidden() => {
            return Ok(Ok("the agent's permissions were not checked: only an administrator can check them".to_owned()));
        }
        Err(error) => return Err(error.into()),
    };
    let lacking: Vec<String> = answers.into_iter().filter_map(|(what, may)| (!may).then_some(what)).collect();
    Ok(if lacking.is_empty() {
        Ok(format!("ServiceAccount {namespace}/{ACCOUNT} has all {count} permissions that the agent needs"))
    } else {
        let more = if lacking.len() > SHOWN { format!(" and {} more", lacking.len() - SHOWN) } else { String::new() };
        let some = lacking[..lacking.len().min(SHOWN)].join(", ");
        wrong(
            format!("ServiceAccount {namespace}/{ACCOUNT} may not {some}{more}"),
            "`mainstay install` prints its roles; apply them again",
        )
    })
}

/// Returns the permissions of the agent's roles, as strings and as attributes of a review.
fn needed(namespace: &str, installed: Installed) -> Result<Vec<(String, Value)>, Error> {
    let mut needed = Vec::new();
    for document in serde_yaml::Deserializer::from_str(ROLES) {
        let role = Value::deserialize(document).map_err(Error::WriteYaml)?;
        let (kind, name) = (role["kind"].as_str(), role["metadata"]["name"].as_str());
        let within = match (kind, name) {
            // With `--profile restricted`, the needed permissions in other namespaces depend on the flags of the
            // installation.
            (Some("ClusterRole"), Some("mainstay-agent")) if !installed.restricted => None,
            (Some("ClusterRole"), Some("mainstay-functions")) if installed.functions => None,
            (Some("Role"), _) => Some(namespace),
            _ => continue,
        };
        let texts = |value: &Value| -> Vec<String> {
            value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        for rule in role["rules"].as_array().into_iter().flatten() {
            for (group, resource) in texts(&rule["apiGroups"])
                .iter()
                .flat_map(|g| texts(&rule["resources"]).into_iter().map(move |r| (g, r)))
            {
                let (resource, subresource) = resource.split_once('/').unwrap_or((&resource, ""));
                for verb in texts(&rule["verbs"]) {
                    let mut attributes =
                        json!({"group": group, "resource": resource, "subresource": subresource, "verb": verb});
                    let mut what = format!("{verb} {resource}");
                    if !subresource.is_empty() {
                        what = format!("{what}/{subresource}");
                    }
                    if let Some(within) = within {
                        attributes["namespace"] = json!(within);
                        what = format!("{what} in {within}");
                    }
                    needed.push((what, attributes));
                }
            }
        }
    }
    Ok(needed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asks_for_each_verb_of_the_roles_within_the_namespace_where_the_role_is_of_one() {
        let needed = needed("flux", Installed { functions: true, restricted: false }).unwrap();
        let find =
            |what: &str| needed.iter().find(|(known, _)| known == what).map(|(_, attributes)| attributes.clone());
        let patch = find("patch gitsyncs/status").unwrap();
        assert_eq!(
            patch,
            json!({"group": "mainstay.dev", "resource": "gitsyncs", "subresource": "status", "verb": "patch"})
        );
        assert_eq!(find("patch secrets in flux").unwrap()["namespace"], "flux");
        assert!(find("update leases in flux").is_some() && find("watch secrets").is_some());
        assert!(find("patch secrets").is_none(), "only in the agent's own namespace");
    }
}
