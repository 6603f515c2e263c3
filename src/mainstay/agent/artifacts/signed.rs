//! The signature that `spec.verify` requires.

use super::identities::Identities;
use mainstay_api::oci_repository::OciVerify;

/// A required signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::agent) enum Signed {
    /// A signature by a key or a certificate of the Secret in `spec.verify.secretRef`.
    ByKey(Tool),
    /// A signature of cosign without a key: a certificate names the signer.
    ByIdentity(Identities),
}

/// A tool that signs artifacts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::agent) enum Tool {
    Cosign,
    Notation,
    Helm,
}

impl Tool {
    /// Returns the tool's name in `spec.verify.provider`.
    fn name(self) -> &'static str {
        match self {
            Self::Cosign => "cosign",
            Self::Notation => "notation",
            Self::Helm => "helm",
        }
    }
}

/// Returns the required signature, and adds the problems of the field. `tools` are those that sign at this place.
pub(super) fn signed(verify: Option<&OciVerify>, tools: &[Tool], problems: &mut Vec<String>) -> Option<Signed> {
    let verify = verify?;
    let tool = tools.iter().copied().find(|tool| tool.name() == verify.provider);
    if tool.is_none() {
        let names: Vec<&str> = tools.iter().map(|tool| tool.name()).collect();
        let others = ": cosign and notation sign only charts whose repository begins with oci://";
        let why = if names == ["helm"] { others } else { "" };
        problems.push(format!("spec.verify.provider: must be {}{why}", names.join(" or ")));
    }
    let listed = verify.match_oidc_identity.as_deref().unwrap_or_default();
    if verify.secret_ref.is_some() {
        for (field, is_set) in [
            ("matchOIDCIdentity", !listed.is_empty()),
            ("trustedRootSecretRef", verify.trusted_root_secret_ref.is_some()),
        ] {
            if is_set {
                problems.push(format!(
                    "spec.verify.{field}: has an effect only without spec.verify.secretRef; remove one of them"
                ));
            }
        }
        return tool.map(Signed::ByKey);
    }
    let content = match tool {
        Some(Tool::Helm) => Some("OpenPGP keys"),
        Some(Tool::Notation) => Some("trustpolicy.json and the trusted certificates"),
        Some(Tool::Cosign) | None => None,
    };
    if let Some(content) = content {
        problems.push(format!("spec.verify.secretRef: is missing; name a Secret with {content}"));
        return None;
    }
    if listed.is_empty() {
        let keyless = "for signatures without a key, list at least one identity in spec.verify.matchOIDCIdentity";
        problems.push(format!("spec.verify.secretRef: is missing; name a Secret with public keys, or, {keyless}"));
    }
    match Identities::read(listed) {
        Ok(identities) => tool.map(|_| Signed::ByIdentity(identities)),
        Err(wrong) => {
            problems.extend(wrong);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const IN_REGISTRIES: [Tool; 2] = [Tool::Cosign, Tool::Notation];

    fn read(verify: Value, tools: &[Tool]) -> Result<Option<Signed>, Vec<String>> {
        let verify: OciVerify = serde_json::from_value(verify).unwrap();
        let mut problems = Vec::new();
        let signed = signed(Some(&verify), tools, &mut problems);
        if problems.is_empty() { Ok(signed) } else { Err(problems) }
    }

    #[track_caller]
    fn check(verify: Value, tools: &[Tool], problem: &str) {
        assert_eq!(read(verify, tools).unwrap_err(), [problem]);
    }

    #[test]
    fn a_signature_is_by_a_key_or_by_an_identity() {
        let by_key = read(json!({"secretRef": {"name": "keys"}}), &IN_REGISTRIES);
        assert_eq!(by_key, Ok(Some(Signed::ByKey(Tool::Cosign))));
        let by_certificate = read(json!({"provider": "notation", "secretRef": {"name": "keys"}}), &IN_REGISTRIES);
        assert_eq!(by_certificate, Ok(Some(Signed::ByKey(Tool::Notation))));
        let identities = json!([{"issuer": "^https://ci$", "subject": "web"}]);
        let by_identity = read(json!({"matchOIDCIdentity": identities}), &IN_REGISTRIES);
        let Ok(Some(Signed::ByIdentity(found))) = by_identity else { panic!("{by_identity:?}") };
        assert_eq!(found.patterns().collect::<Vec<_>>(), [("^https://ci$", "web")]);
    }

    #[test]
    fn names_each_wrong_field() {
        let identities = json!([{"issuer": "^https://ci$", "subject": "web"}]);
        let remedy = "has an effect only without spec.verify.secretRef; remove one of them";
        let both = json!({"secretRef": {"name": "keys"}, "matchOIDCIdentity": identities});
        check(both, &IN_REGISTRIES, &format!("spec.verify.matchOIDCIdentity: {remedy}"));
        let both = json!({"secretRef": {"name": "keys"}, "trustedRootSecretRef": {"name": "root"}});
        check(both, &IN_REGISTRIES, &format!("spec.verify.trustedRootSecretRef: {remedy}"));
        let found = read(json!({"matchOIDCIdentity": []}), &IN_REGISTRIES).unwrap_err().join(" ");
        assert!(found.contains("list at least one identity in spec.verify.matchOIDCIdentity"), "{found}");
        let wrong = json!({"matchOIDCIdentity": [{"issuer": "(", "subject": "web"}]});
        let found = read(wrong, &IN_REGISTRIES).unwrap_err().join(" ");
        assert!(found.starts_with("spec.verify.matchOIDCIdentity[0].issuer: is not a regular expression"), "{found}");
        let missing = "spec.verify.secretRef: is missing; name a Secret with";
        let without = json!({"provider": "notation", "matchOIDCIdentity": identities});
        check(without, &IN_REGISTRIES, &format!("{missing} trustpolicy.json and the trusted certificates"));
        check(json!({"provider": "helm"}), &[Tool::Helm], &format!("{missing} OpenPGP keys"));
        let other = "spec.verify.provider: must be cosign or notation";
        check(json!({"provider": "helm", "secretRef": {"name": "keys"}}), &IN_REGISTRIES, other);
    }
}
