//! Chooses the image repository of a Function from the registry Secrets of its namespace.

use super::stage::Repository;
use super::tag::{Recipe, causes};
use super::{Builder, ResolvedFunction, Settings};
use crate::registry::{self, Access, Transport, image_name, is_of_namespace};
use mainstay_api::conditions::cut;
use mainstay_api::function::Built;
use mainstay_cluster::secrets::Known;

/// Returns the repository from the external registry's Secret, else from the default registry's Secret. Fails with the
/// reason why neither can be used.
pub(super) fn choose(
    settings: &Settings,
    external: &Known,
    default: &Known,
    function: &ResolvedFunction,
) -> Result<Repository, String> {
    let names = [&settings.external_registry_secret, &settings.default_registry_secret];
    for (name, known) in names.into_iter().zip([external, default]) {
        // The default Secret is not used until the external registry's Secret is known to be absent.
        if let (false, Some((_, problem))) = (matches!(known, Known::Absent), known.problem()) {
            return Err(format!("Secret \"{name}\" {problem}"));
        }
    }
    let chosen = registry::choose(external.data(), default.data()).map_err(|problem| problem.to_string())?;
    let (secret, known) = if external.data().is_some() { (names[0], external) } else { (names[1], default) };
    let repository = |address: &registry::Address| {
        let image = address.image(&function.namespace, &function.name, "latest");
        image.map(|image| format!("{}/{}", image.registry, image.repository)).map_err(|error| error.to_string())
    };
    let pushed = chosen.push.image(&function.namespace, &function.name, "latest").map_err(|error| error.to_string())?;
    let transport = match known.data().map(|data| Access::own(data, &pushed)) {
        Some(Ok(access)) => access.transport(),
        // Mainstay's own builder reports the problem itself.
        Some(Err(problem)) if settings.builder == Builder::Kaniko => return Err(problem.to_string()),
        Some(Err(_)) | None => Transport::default(),
    };
    let no_pull = known.kind().and_then(|kind| no_pull(secret, kind));
    let (push, pull) = (repository(&chosen.push)?, repository(&chosen.pull)?);
    let is_limited = known.data().is_some_and(is_of_namespace);
    Ok(Repository { push, pull, secret: secret.clone(), transport, no_pull, is_limited })
}

impl Repository {
    /// Returns this repository, or the repository with the former name if an earlier release built this recipe there. A
    /// new name alone is no reason to build, unless the login is limited to the new name.
    #[must_use]
    pub(super) fn keeping(self, built: Option<&Built>, recipe: &Recipe, function: &ResolvedFunction) -> Self {
        let name = image_name(&function.namespace, &function.name);
        let former = |repository: &str| {
            let path = repository.strip_suffix(&name)?;
            Some(format!("{path}{}-{}", function.namespace, function.name))
        };
        let (Some(push), Some(pull), false) = (former(&self.push), former(&self.pull), self.is_limited) else {
            return self;
        };
        if causes(recipe, &push, built).is_empty() { Self { push, pull, ..self } } else { self }
    }
}

/// Returns why nodes do not use a Secret of this type, and a hint. Builds read the Secret's keys whatever its type is.
fn no_pull(secret: &str, kind: &str) -> Option<String> {
    const TYPED: &str = "kubernetes.io/dockerconfigjson";
    let kind = mainstay_object::printable(cut(kind, 64));
    (kind != TYPED).then(|| {
        format!(
            "the Secret {secret} is of type {kind}: builds push with it, but nodes pull only with one of type \
             {TYPED}; delete it and recreate it with that type, with .dockerconfigjson and the same other keys"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BaseImage, Credentials, resolve, tag};

    #[test]
    fn an_image_of_an_earlier_release_is_not_built_again_under_another_name() {
        let spec = serde_json::json!({"source": "x", "runtime": "nodejs22"});
        let function: mainstay_api::Function = serde_json::from_value(serde_json::json!({
            "apiVersion": "serverless.kyma-project.io/v1alpha1", "kind": "Function",
            "metadata": {"name": "fn", "namespace": "team-a"}, "spec": spec,
        }))
        .unwrap();
        let settings = Settings { base_images: [("*".to_owned(), BaseImage::Scratch)].into(), ..Settings::default() };
        let function = resolve(&function, &settings, &Credentials::default()).unwrap();
        let recipe = tag::recipe(&function, None, &settings.platform, None);
        let repository = || Repository {
            push: "r.io/x/team-a_fn".into(),
            pull: "p.io/team-a_fn".into(),
            secret: "s".into(),
            transport: Transport::default(),
            no_pull: None,
            is_limited: false,
        };
        let built = |repository: &str| Built {
            repository: repository.into(),
            tag: recipe.tag.clone(),
            inputs: recipe.inputs.clone(),
            ..Built::default()
        };
        let with = |built: Option<&Built>, recipe: &Recipe| {
            let kept = repository().keeping(built, recipe, &function);
            (kept.push, kept.pull)
        };
        let (now, before) = (
            ("r.io/x/team-a_fn".to_owned(), "p.io/team-a_fn".to_owned()),
            ("r.io/x/team-a-fn".to_owned(), "p.io/team-a-fn".to_owned()),
        );
        assert_eq!(with(None, &recipe), now);
        assert_eq!(with(Some(&built("r.io/x/team-a-fn")), &recipe), before);
        assert_eq!(with(Some(&built("other.io/x/team-a-fn")), &recipe), now, "it is built in the new registry");
        let limited = Repository { is_limited: true, ..repository() };
        let kept = limited.keeping(Some(&built("r.io/x/team-a-fn")), &recipe, &function);
        assert_eq!(kept.push, now.0, "the former name may be that of another namespace");
        let mut changed = recipe.clone();
        changed.inputs.source = "other".into();
        assert_eq!(with(Some(&built("r.io/x/team-a-fn")), &changed), now, "what is built anyway gets its own name");
    }

    #[test]
    fn nodes_pull_with_a_typed_secret_only() {
        assert_eq!(no_pull("s", "kubernetes.io/dockerconfigjson"), None);
        let words = no_pull("s", "Opaque").unwrap();
        assert!(words.starts_with("the Secret s is of type Opaque: builds push with it, but nodes"), "{words}");
    }
}
