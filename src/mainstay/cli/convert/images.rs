//! The kinds of Flux's image automation become the same kinds of Mainstay.

use serde_json::{Value, json};

use super::converted::{Converted, Printed};
use super::document::Document;
use super::fields::Fields;
use super::known::{BRANCH, Known, annotations, labels};
use super::oci_repository::identity;
use super::report::Conversion;

/// The kinds.
pub(super) const KINDS: [&str; 3] = ["ImageRepository", "ImagePolicy", "ImageUpdateAutomation"];
/// Fields that are taken as they are.
const REPOSITORY: [&str; 10] = [
    "image",
    "interval",
    "timeout",
    "secretRef",
    "certSecretRef",
    "proxySecretRef",
    "exclusionList",
    "insecure",
    "accessFrom",
    "suspend",
];
const POLICY: [&str; 6] =
    ["imageRepositoryRef", "policy", "filterTags", "digestReflectionPolicy", "interval", "suspend"];
const AUTOMATION: [&str; 4] = ["interval", "policySelector", "update", "suspend"];
/// Fields of `git` that are not supported, with the remedy.
const REFUSED: [(&str, &str); 4] = [
    ("/checkout/ref/tag", "name a branch"),
    ("/checkout/ref/semver", "name a branch"),
    ("/checkout/ref/name", "name a branch"),
    ("/checkout/ref/commit", "name a branch"),
];

pub(super) fn convert<'a>(known: &mut Known<'a>, document: &'a Document, conversion: &mut Conversion) {
    let mut fields = Fields::new(&document.object);
    let namespace = known.namespace(document.namespace()).to_owned();
    let kind = match document.kind() {
        "ImageRepository" => Printed::ImageRepository,
        "ImagePolicy" => Printed::ImagePolicy,
        _ => Printed::ImageUpdateAutomation,
    };
    let taken: &[&str] = match kind {
        Printed::ImageRepository => &REPOSITORY,
        Printed::ImagePolicy => &POLICY,
        _ => &AUTOMATION,
    };
    let mut made = Converted::in_place_of(document, kind, &namespace, document.name());
    made.put_metadata("labels", labels(&mut fields));
    made.put_metadata("annotations", annotations(&mut fields));
    for name in taken {
        let path = format!("spec.{name}");
        if let Some(value) = fields.take(&path) {
            made.set(name, value, document, &path);
        }
    }
    match kind {
        Printed::ImageRepository => identity(&mut fields, &mut made, document),
        Printed::ImagePolicy => policy(known, &mut made, document),
        _ => automation(known, &mut made, document, &mut fields),
    }
    conversion.add(made, document, fields.finish());
}

/// The repository may be in another namespace, which may change, too.
fn policy(known: &Known<'_>, made: &mut Converted, document: &Document) {
    let place = document.field("/spec/imageRepositoryRef/namespace");
    if !place.is_empty() {
        made.put("imageRepositoryRef.namespace", known.namespace(place));
    }
}

fn automation<'a>(known: &mut Known<'a>, made: &mut Converted, document: &'a Document, fields: &mut Fields) {
    let namespace = known.namespace(document.namespace()).to_owned();
    let of = match document.field("/spec/sourceRef/namespace") {
        "" => document.namespace(),
        other => other,
    };
    let name = document.field("/spec/sourceRef/name");
    fields.take("spec.sourceRef");
    made.set("sourceRef", json!({"kind": "GitRepository", "name": name}), document, "spec.sourceRef");
    known.needed.insert((namespace.clone(), of, name));
    let source = known.sources.get(&(of, name)).copied();
    let mut git = fields.take("spec.git").unwrap_or_else(|| json!({}));
    for (path, remedy) in REFUSED {
        let Some((parent, field)) = path.rsplit_once('/') else { continue };
        let taken = git.pointer_mut(parent).and_then(Value::as_object_mut).and_then(|parent| parent.remove(field));
        if taken.is_some() {
            fields.lost(&format!("spec.git{}", path.replace('/', ".")), remedy);
        }
    }
    if git["checkout"].is_null() {
        // Flux reads the branch of the GitRepository, which has none here.
        let branch = match source.map_or("", |source| source.field("/spec/ref/branch")) {
            "" => BRANCH,
            branch => branch,
        };
        git["checkout"] = json!({"ref": {"branch": branch}});
    }
    made.set("git", git, document, "spec.git");
    let secret = source.map_or("", |source| source.field("/spec/secretRef/name"));
    let with = if secret.is_empty() { String::new() } else { format!("; Flux pushes with {secret}") };
    fields.ask(
        "spec.git.push",
        format!("name a Secret with write access in `git.push.secretRef`: nothing is pushed without it{with}"),
    );
    if namespace != document.namespace() {
        fields.ask("spec.update", format!("write the namespace {namespace} into the markers of the files"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::convert::flux;

    /// Converts an ImageUpdateAutomation with this `git`. Returns the new `git` and the report.
    fn converted(git: &Value) -> (Value, String) {
        let mut object = json!({
            "apiVersion": "image.toolkit.fluxcd.io/v1", "kind": "ImageUpdateAutomation",
            "metadata": {"name": "images", "namespace": "shop"},
            "spec": {"interval": "30m", "sourceRef": {"kind": "GitRepository", "name": "shop"}},
        });
        object["spec"]["git"] = git.clone();
        object["spec"]["git"]["commit"] = json!({"author": {"email": "bot@example.org"}});
        let conversion = flux::convert(&[Document::of(object)], None);
        let [made] = &conversion.objects[..] else { panic!("{}", conversion.text()) };
        assert_eq!(made.problem(), None);
        (made.object["spec"]["git"].clone(), conversion.text())
    }

    #[test]
    fn a_refspec_that_the_agent_refuses_is_reported() {
        let main = json!({"ref": {"branch": "main"}});
        for (push, checkout, problem) in [
            (json!({"refspec": "refs/heads/main:refs/heads/auto"}), &main, None),
            (json!({"branch": "auto", "refspec": "HEAD:refs/for/main"}), &main, None),
            (json!({"branch": "auto"}), &main, None),
            (json!({"refspec": "+refs/heads/main:refs/heads/auto"}), &main, Some("a forced push")),
            (json!({"refspec": "refs/heads/*:refs/heads/*"}), &main, Some("patterns are not supported")),
            (json!({"refspec": "refs/heads/main:refs/tags/v1"}), &main, Some("the destination must begin with")),
            // Without a checkout, the converted object reads the branch of the GitRepository.
            (json!({"refspec": "refs/heads/main:refs/heads/auto"}), &Value::Null, Some("the source must be")),
        ] {
            let (git, text) = converted(&json!({"push": push, "checkout": checkout}));
            assert_eq!(git["push"], push, "the field is kept");
            let said = text.contains("spec.git.push.refspec");
            assert_eq!(said, problem.is_some(), "{text}");
            assert!(text.contains(problem.unwrap_or_default()), "{text}");
        }
    }
}
