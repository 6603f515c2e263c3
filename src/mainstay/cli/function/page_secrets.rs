//! The Secrets that the page of files sends to a Git host, for `mainstay ui`.
//!
//! Invariant: a Secret is sent only where the agent sends it. Its other purposes are known before it is read, because a
//! user who writes an address in the cluster must not receive a Secret that only the reader of the page may read.

use std::collections::BTreeMap;
use std::sync::Arc;

use mainstay_api::Function;
use mainstay_api::function_conditions::{self as conditions, Type};
use mainstay_api::git_repository::RepositoryAuth;
use mainstay_cluster::Cluster;
use mainstay_cluster::secrets::{Contents, Known, Purpose, Purposes, ReferencedSecrets, SecretData};
use mainstay_function::{Credentials, Settings};
use mainstay_git::RemoteUrl;

const SECRET: &str = "spec.gitRepository.auth.secretName";

/// The Secrets of a namespace, with their purposes.
pub(super) struct PageSecrets<'c> {
    cluster: &'c Cluster,
    namespace: &'c str,
    credentials: Credentials,
}

impl<'c> PageSecrets<'c> {
    /// Lists the purposes of the Secrets of a namespace with the permissions of the user.
    pub(super) async fn list(cluster: &'c Cluster, namespace: &'c str) -> Result<Self, String> {
        let listed = Box::pin(ReferencedSecrets::list(cluster, namespace)).await.map_err(|why| {
            format!("No Secret is sent to the repository, because other objects may use it for another purpose: {why}.")
        })?;
        let credentials = Credentials::new(&Settings::default(), listed.repositories());
        let credentials = credentials.and_registered(listed.purposes().clone());
        Ok(Self { cluster, namespace, credentials })
    }

    /// Reads a Secret for a GitRepository.
    pub(super) async fn read(&self, name: &str, used_for: Purpose) -> Result<SecretData, String> {
        Ok(self.contents(name, used_for).await?.data.clone())
    }

    /// Reads the login of the repository that a Function defines itself.
    pub(super) async fn own(
        &self,
        function: &Function,
        auth: &RepositoryAuth,
        url: &RemoteUrl,
    ) -> Result<SecretData, String> {
        let name = &auth.secret_name;
        if !is_built(function) {
            return Err(format!(
                "The Secret {name} is not sent to the repository, because the agent has not read it for the current spec \
                 of the Function."
            ));
        }
        let contents = self.contents(name, Purpose::FunctionRepository).await?;
        let stated: Purposes = contents.purpose.into_iter().collect();
        let credentials = self.credentials.clone().and_registered(BTreeMap::from([(name.clone(), stated)]));
        match credentials.refusal_at(auth, url, SECRET) {
            Some(refusal) => Err(refusal.to_string().replace('\n', ": ")),
            None => Ok(contents.data.clone()),
        }
    }

    /// Reads a Secret if no other purpose excludes this use.
    async fn contents(&self, name: &str, used_for: Purpose) -> Result<Arc<Contents>, String> {
        if let Some(purpose) = self.credentials.excluding(name, used_for) {
            let purpose = purpose.text();
            return Err(format!(
                "The Secret {name} holds the credentials for {purpose}, so it is not sent to the repository; name a \
                 separate Secret."
            ));
        }
        match Known::secret(self.cluster, self.namespace, name, used_for).await {
            Known::Data(contents) => Ok(contents),
            known => {
                let why = known.problem().map_or_else(|| "cannot be read".to_owned(), |(_, why)| why);
                Err(format!("The Secret {name} {why}."))
            }
        }
    }
}

/// Returns whether the agent accepted the current spec of a Function, and recorded a commit for it.
fn is_built(function: &Function) -> bool {
    let (Some(generation), Some(status)) = (function.metadata.generation, &function.status) else { return false };
    let has_commit = status.commit.as_deref().is_some_and(|commit| !commit.is_empty());
    let accepted = conditions::find(&status.conditions, Type::ConfigurationReady);
    let is_accepted = accepted.is_some_and(|one| one.status == "True" && one.observed_generation == Some(generation));
    has_commit && is_accepted && status.observed_generation == Some(generation)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    #[test]
    fn a_function_is_built_only_if_the_agent_accepted_its_current_spec() {
        let is_built = |generation: i64, status: Value| {
            let function = json!({
                "apiVersion": "serverless.kyma-project.io/v1alpha1", "kind": "Function",
                "metadata": {"name": "web", "generation": generation}, "spec": {"source": "", "type": "git"},
                "status": status,
            });
            super::is_built(&serde_json::from_value(function).unwrap())
        };
        let status = |status: &str, observed: i64, commit: Value| {
            let condition = json!({
                "type": "ConfigurationReady", "status": status, "reason": "SourceUpdated", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": observed,
            });
            json!({"observedGeneration": observed, "commit": commit, "conditions": [condition]})
        };
        assert!(is_built(2, status("True", 2, json!("abc"))));
        assert!(!is_built(3, status("True", 2, json!("abc"))), "the spec has changed");
        assert!(!is_built(2, status("False", 2, json!("abc"))), "the commit is that of an earlier spec");
        for commit in [json!(null), json!("")] {
            assert!(!is_built(2, status("True", 2, commit)));
        }
        assert!(!is_built(2, json!({"observedGeneration": 2, "commit": "abc"})));
        assert!(!is_built(2, json!({})));
    }
}
