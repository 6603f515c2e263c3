//! The resources of `mainstay get`, and their names.

/// A kind of resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) struct Resource {
    /// The API group of the kind.
    pub(in crate::cli) group: &'static str,
    /// The name of the kind.
    pub(in crate::cli) kind: &'static str,
    /// The plural, singular and short names of the kind; the plural is first.
    names: &'static [&'static str],
}

const SERVERLESS: &str = "serverless.kyma-project.io";

/// GitSyncs.
pub(in crate::cli) const GIT_SYNCS: Resource =
    Resource { group: "mainstay.dev", kind: "GitSync", names: &["gitsyncs", "gitsync", "gs"] };
/// GitRepositories.
const GIT_REPOSITORIES: Resource =
    Resource { group: SERVERLESS, kind: "GitRepository", names: &["gitrepositories", "gitrepository", "gitrepos"] };

/// All resources, in the order of printing.
pub(in crate::cli) const ALL: [Resource; 12] = [
    GIT_REPOSITORIES,
    Resource { group: "mainstay.dev", kind: "OCIRepository", names: &["ocirepositories", "ocirepository", "ocirepo"] },
    Resource { group: "mainstay.dev", kind: "HelmChart", names: &["helmcharts", "helmchart"] },
    Resource {
        group: "mainstay.dev",
        kind: "ImageRepository",
        names: &["imagerepositories", "imagerepository", "imgrepo"],
    },
    Resource { group: "mainstay.dev", kind: "ImagePolicy", names: &["imagepolicies", "imagepolicy", "imgpol"] },
    Resource {
        group: "mainstay.dev",
        kind: "ImageUpdateAutomation",
        names: &["imageupdateautomations", "imageupdateautomation", "iua"],
    },
    GIT_SYNCS,
    Resource { group: "mainstay.dev", kind: "Receiver", names: &["receivers", "receiver"] },
    Resource { group: "mainstay.dev", kind: "Provider", names: &["providers", "provider"] },
    Resource { group: "mainstay.dev", kind: "Alert", names: &["alerts", "alert"] },
    Resource { group: SERVERLESS, kind: "Function", names: &["functions", "function"] },
    Resource { group: "gateway.kyma-project.io", kind: "APIRule", names: &["apirules", "apirule"] },
];

impl Resource {
    /// Returns the resource with this plural, singular or short name, in any case, with or without its group.
    pub(in crate::cli) fn named(text: &str) -> Option<Self> {
        let text = text.to_lowercase();
        let is_it = |one: &Self| {
            one.names.iter().any(|name| {
                let rest = text.strip_prefix(name);
                rest.is_some_and(|rest| rest.is_empty() || rest.strip_prefix('.') == Some(one.group))
            })
        };
        ALL.into_iter().find(is_it)
    }
}

/// Names of the equivalent kinds in other tools.
const ELSEWHERE: [(&[&str], Resource); 2] = [
    (
        &[
            "ks",
            "kustomizations",
            "kustomization",
            "hr",
            "helmreleases",
            "helmrelease",
            "app",
            "apps",
            "applications",
            "application",
        ],
        GIT_SYNCS,
    ),
    (&["source", "sources", "repo", "repos", "repositories"], GIT_REPOSITORIES),
];

/// Returns the counterpart of a kind of another tool, such as `ks`, with or without its group.
pub(in crate::cli) fn counterpart(word: &str) -> Option<Resource> {
    let name = word.to_lowercase();
    let name = name.split('.').next().unwrap_or_default();
    ELSEWHERE.iter().find(|(names, _)| names.contains(&name)).map(|(_, ours)| *ours)
}

/// Returns the hint for a kind of another tool: the command for its counterpart.
pub(in crate::cli) fn counterpart_hint(what: &str) -> Option<String> {
    let (kind, name) = what.split_once('/').unwrap_or((what, "NAME"));
    let ours = counterpart(kind)?.kind;
    Some(format!("the counterpart of {kind} is a {ours}: {}/{name}", ours.to_lowercase()))
}

/// Returns why a word is not a kind, with the intended kind if it is known.
fn unknown(word: &str) -> String {
    if let Some(ours) = counterpart(word) {
        return format!("{word:?} is not a kind of Mainstay; its counterpart: mainstay get {}", ours.names[0]);
    }
    let known = ALL.map(|resource| resource.names[0]).join(", ");
    format!("{word:?} is none of {known}, all; `kubectl get` prints other kinds")
}

/// The requested resources: `gitsyncs`, `gitsyncs,functions`, `all`, or `gitsync/shop`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli) struct Asked {
    pub(in crate::cli) resources: Vec<Resource>,
    /// The name after the slash, if there is one.
    pub(super) name: Option<String>,
    /// Whether kinds that the cluster does not serve are skipped, as with `all`.
    pub(super) is_all: bool,
}

/// Parses the requested resources.
pub(super) fn asked(text: &str) -> Result<Asked, String> {
    if text == "all" {
        return Ok(Asked { resources: ALL.to_vec(), name: None, is_all: true });
    }
    let (kinds, name) = text.split_once('/').map_or((text, None), |(kind, name)| (kind, Some(name)));
    let find = |word: &str| Resource::named(word).ok_or_else(|| unknown(word));
    let resources = kinds.split(',').map(find).collect::<Result<Vec<_>, _>>()?;
    if name.is_some_and(|name| name.is_empty() || name.contains('/') || resources.len() > 1) {
        return Err("write one kind and one name, as in gitsync/shop".to_owned());
    }
    Ok(Asked { resources, name: name.map(str::to_owned), is_all: false })
}

/// Returns the names of kinds for completion.
pub(in crate::cli) fn words() -> impl Iterator<Item = &'static str> {
    ALL.into_iter().map(|resource| resource.names[0]).chain(["all"])
}

#[cfg(test)]
mod tests {
    use kube::CustomResourceExt as _;

    use super::*;

    #[test]
    fn each_definition_has_a_resource_with_its_names() {
        let mut missing: Vec<Resource> = ALL.to_vec();
        for definition in mainstay_api::definitions().into_iter().chain([mainstay_api::ApiRule::crd()]) {
            let (spec, names) = (&definition.spec, &definition.spec.names);
            let found = ALL.into_iter().find(|one| one.group == spec.group && one.kind == names.kind);
            let found = found.unwrap_or_else(|| panic!("{} is not in the table", names.kind));
            assert_eq!(Some(&*names.plural), found.names.first().copied());
            assert!(
                names
                    .singular
                    .iter()
                    .chain(names.short_names.iter().flatten())
                    .all(|name| found.names.contains(&&**name))
            );
            missing.retain(|one| *one != found);
        }
        assert!(missing.is_empty(), "without a definition: {missing:?}");
    }

    #[test]
    fn takes_the_names_that_kubectl_takes() {
        let kinds = |text: &str| {
            let asked = asked(text)?;
            let kinds: Vec<_> = asked.resources.iter().map(|one| one.kind).collect();
            Ok::<_, String>((kinds.join(" "), asked.name))
        };
        for (text, expected, name) in [
            ("gitsyncs", "GitSync", None),
            ("gs", "GitSync", None),
            ("GitSync", "GitSync", None),
            ("gitsyncs.mainstay.dev", "GitSync", None),
            ("gitsync/shop", "GitSync", Some("shop")),
            ("gitrepositories,functions", "GitRepository Function", None),
            ("functions.serverless.kyma-project.io/a", "Function", Some("a")),
            (
                "all",
                "GitRepository OCIRepository HelmChart ImageRepository ImagePolicy ImageUpdateAutomation GitSync Receiver Provider Alert Function APIRule",
                None,
            ),
        ] {
            assert_eq!(kinds(text), Ok((expected.to_owned(), name.map(str::to_owned))), "{text}");
        }
        for text in ["", "pods", "gitsyncs.example.org", "gitsyncs,", "gitsync/", "gitsyncs,functions/a", "gitsync/a/b"]
        {
            assert!(kinds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_kind_of_another_tool_is_answered_with_its_counterpart() {
        for (text, expected) in [
            ("ks", "mainstay get gitsyncs"),
            ("Kustomizations", "mainstay get gitsyncs"),
            ("kustomizations.kustomize.toolkit.fluxcd.io", "mainstay get gitsyncs"),
            ("sources", "mainstay get gitrepositories"),
            ("pods", "kubectl get"),
        ] {
            let error = asked(text).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        let hint = |what| counterpart_hint(what).unwrap_or_default();
        assert_eq!(hint("ks/shop"), "the counterpart of ks is a GitSync: gitsync/shop");
        assert_eq!(hint("sources"), "the counterpart of sources is a GitRepository: gitrepository/NAME");
        assert_eq!(hint("deploy/web"), "");
    }
}
