//! Kaniko's executor as the builder: the operator's image and arguments, and the meaning of its log.
//!
//! Invariant: the operator's arguments cannot change the inputs or the destination of a build, and cannot send a login
//! in plain text.
//!
//! Not here: the pod that runs the executor (`children::kaniko`), and the Dockerfile, which a container of that pod
//! writes.

mod failure;

pub(super) use failure::of_log;

use super::base::BaseImage;

/// The program that builds images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Builder {
    /// Mainstay's own program, without root.
    Own,
    /// Kaniko's executor, which needs root in its container.
    Kaniko,
}

impl std::str::FromStr for Builder {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "mainstay" => Ok(Self::Own),
            "kaniko" => Ok(Self::Kaniko),
            _ => Err("must be mainstay or kaniko".to_owned()),
        }
    }
}

/// The default arguments: those of Kyma's chart without the options that skip TLS verification.
pub(super) const DEFAULT_ARGS: [&str; 3] = ["--skip-unused-stages", "--log-format=text", "--cache=true"];
/// An example of an image, for messages.
pub(super) const EXAMPLE: &str = "such as ghcr.io/osscontainertools/kaniko:VERSION@sha256:… (Google's own is archived)";

/// Maximum number of arguments, and maximum bytes of one.
const MAX_ARGS: usize = 64;
const MAX_ARG: usize = 1024;
/// Flags that the build sets itself or that are not allowed.
const OURS: [&str; 14] = [
    "--build-arg",
    "--context",
    "--context-sub-path",
    "--custom-platform",
    "--customPlatform",
    "--destination",
    "--digest-file",
    "--dockerfile",
    "--help",
    "--no-push",
    "--tar-path",
    "--tarPath",
    "--target",
    "--version",
];
/// Flags that apply to all registries.
const FOR_ALL: [&str; 4] = ["--insecure", "--insecure-pull", "--skip-tls-verify", "--skip-tls-verify-pull"];

/// Parses the image of the executor, with a digest or a tag.
pub(super) fn image(text: &str) -> Result<String, String> {
    let image = BaseImage::chosen(text).map_err(|_| format!("it is not the name of an image, {EXAMPLE}"))?;
    Ok(image.to_string())
}

/// Parses the arguments: separated by commas as in Kyma's chart, or a JSON list. They are checked only if Kaniko
/// builds.
pub(super) fn list(text: &str) -> Result<Vec<String>, String> {
    let args: Vec<String> = if text.starts_with('[') {
        serde_json::from_str(text).map_err(|error| format!("it is not a JSON list of strings: {error}"))?
    } else {
        text.split(',').map(|arg| arg.trim().to_owned()).filter(|arg| !arg.is_empty()).collect()
    };
    if args.len() > MAX_ARGS {
        return Err(format!("it has {} arguments; the limit is {MAX_ARGS}", args.len()));
    }
    Ok(args)
}

/// Returns why an argument cannot be used.
pub(super) fn flaw(arg: &str) -> Option<String> {
    let shown = super::violation::shown(arg);
    let name = arg.split('=').next().unwrap_or_default();
    let is_flag = name.strip_prefix("--").is_some_and(|rest| {
        !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') && !rest.starts_with('-')
    });
    if !is_flag || arg.len() > MAX_ARG || arg.chars().any(mainstay_object::is_unprintable) {
        return Some(format!("\"{shown}\" is not one of the executor's flags, written as --NAME or --NAME=VALUE"));
    }
    if OURS.contains(&name) {
        return Some(format!("remove {name}: each build has its own"));
    }
    FOR_ALL.contains(&name).then(|| {
        format!(
            "remove {name}: it applies to all registries, including those that receive a login. Registries with isInternal: \
             \"true\" or a ca.crt in their Secret need no flag; for one registry, use --insecure-registry=HOST or \
             --skip-tls-verify-registry=HOST"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_a_list_of_flags() {
        assert_eq!(list("--cache=true, --push-retry=3,"), Ok(vec!["--cache=true".into(), "--push-retry=3".into()]));
        assert_eq!(list(r#"["--label=a=b,c"]"#), Ok(vec!["--label=a=b,c".into()]));
        assert!(list("[1]").unwrap_err().starts_with("it is not a JSON list of strings"));
        assert!(list(&"--a,".repeat(65)).unwrap_err().contains("the limit is 64"));
        for arg in DEFAULT_ARGS.iter().chain(&["--label=a b", "--cache-repo=h.io/c", "--insecure-registry=h:1"]) {
            assert_eq!(flaw(arg), None, "{arg}");
        }
    }

    #[test]
    fn a_flag_that_operators_may_not_set_is_refused() {
        let long = format!("--{}", "a".repeat(1100));
        for arg in ["", "-d", "bake", "--", "---x", "--a b", "--a=\nb", "--a=\u{202e}", "=", "$(X)", &long] {
            assert!(flaw(arg).unwrap().contains("is not one of the executor's flags"), "{arg}");
        }
        for arg in ["--destination=evil.io/x", "--context=git://evil.io", "--digest-file=/x", "--no-push", "--version"]
        {
            assert!(flaw(arg).unwrap().ends_with("each build has its own"), "{arg}");
        }
        for arg in ["--insecure", "--insecure=true", "--skip-tls-verify", "--skip-tls-verify-pull"] {
            assert!(flaw(arg).unwrap().contains("it applies to all registries"), "{arg}");
        }
    }

    #[test]
    fn an_image_is_named_by_a_tag_or_a_digest() {
        let pinned = format!("ghcr.io/osscontainertools/kaniko:v1@sha256:{}", "0".repeat(64));
        for name in ["gcr.io/kaniko-project/executor:v1.24.0", &pinned] {
            assert_eq!(image(name).as_deref(), Ok(name));
        }
        for name in ["kaniko", "a b:1", "h.io/x:1\n--privileged", "h.io/x@sha256:0", "$(X):1", ""] {
            assert!(image(name).unwrap_err().starts_with("it is not the name of an image, such as"), "{name}");
        }
    }
}
