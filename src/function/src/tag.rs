//! Computes the tag of an image, a digest of all its inputs, and the causes of a build.
//!
//! Invariant: equal inputs result in equal tags on every machine, and different inputs in different tags. Each part is
//! prefixed with its length, so different sequences of parts have different encodings.
//!
//! Not among the inputs: environment, labels, replicas, passwords, other directories of the repository, and the
//! registry. The builder is no input either, because Kaniko produces the same files. Changing the builder rebuilds no
//! images.

use std::fmt;

use jiff::Timestamp;
use sha2::{Digest as _, Sha256};

use super::{BaseImage, Code, Credentials, ResolvedFunction, Settings, Violation, resolve};
use mainstay_api::Function;
use mainstay_api::build::IMAGE_FORMAT;
use mainstay_api::function::{Built, Inputs};

/// The inputs of an image as digests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// The image's tag, which has 64 hexadecimal digits.
    pub tag: String,
    /// Digests of the inputs, to determine the causes of a build.
    pub inputs: Inputs,
}

/// Why an image is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BuildCause {
    /// The source changed or is new.
    Source,
    /// The dependencies changed.
    Deps,
    /// The runtime, or the files that Mainstay adds to it, changed.
    Runtime,
    /// The base image changed.
    Base,
    /// The registry changed.
    Registry,
    /// The annotation `mainstay.dev/rebuild` changed.
    Requested,
    /// The last build failed, or its image may be invalid.
    Retry,
}

impl fmt::Display for BuildCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Source => "SOURCE",
            Self::Deps => "DEPS",
            Self::Runtime => "RUNTIME",
            Self::Base => "BASE",
            Self::Registry => "REGISTRY",
            Self::Requested => "REQUESTED",
            Self::Retry => "RETRY",
        })
    }
}

/// Returns the recipe of a Function's image. `tree` is the Git tree of `baseDir` in hexadecimal digits, followed by the
/// other inputs that determine the files of the build; `None` for inline Functions. `since` is the last time at which a
/// base image tag was due for resolution.
pub(crate) fn recipe(
    function: &ResolvedFunction,
    tree: Option<&str>,
    platform: &str,
    since: Option<Timestamp>,
) -> Recipe {
    let (source, deps): (Vec<&str>, Vec<&str>) = match &function.code {
        Code::Inline { source, dependencies } => (vec!["inline", source], vec![dependencies]),
        Code::Git { .. } => (vec!["git", tree.unwrap_or_default()], Vec::new()),
    };
    let server = function.runtime.server_digest();
    let format = IMAGE_FORMAT.to_string();
    let base = function.base.to_string();
    let requested: Vec<&str> = function.rebuild.as_deref().into_iter().collect();
    let runtime = [function.runtime.runs_as, server.as_str(), format.as_str()];
    let since = since.map(|since| since.to_string());
    let base: Vec<&str> = [base.as_str(), platform].into_iter().chain(since.as_deref()).collect();
    let identity = [function.namespace.as_str(), function.name.as_str()];
    let parts: [&[&str]; 6] = [&identity, &source, &deps, &runtime, &base, &requested];
    let mut whole = Sha256::new();
    for part in parts {
        whole.update(Sha256::digest(prefixed(part)));
    }
    let short = |part: &[&str]| {
        let digest = hex::encode(Sha256::digest(prefixed(part)));
        if part.is_empty() { String::new() } else { digest[..16].to_owned() }
    };
    Recipe {
        tag: hex::encode(whole.finalize()),
        inputs: Inputs {
            source: short(&source),
            deps: short(&deps),
            runtime: short(&runtime),
            base: short(&base),
            requested: short(&requested),
        },
    }
}

/// Returns the parts, each prefixed with its length in eight bytes.
fn prefixed(parts: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(parts.iter().map(|part| part.len() + 8).sum());
    for part in parts {
        bytes.extend((part.len() as u64).to_be_bytes());
        bytes.extend(part.as_bytes());
    }
    bytes
}

/// Returns why a change of a Function builds its image. Both states are resolved with the same settings, so only the
/// difference of the two objects counts. `before` is `None` for a new Function.
///
/// # Errors
/// Fails with the problems of the new state.
pub fn causes_of_change(
    before: Option<&Function>,
    after: &Function,
    settings: &Settings,
) -> Result<Vec<BuildCause>, Vec<Violation>> {
    let recipe_of = |function: &Function| {
        let resolved = resolve(function, settings, &Credentials::default())?;
        // The tree of a Function from Git is the same in both states, unless its place in Git changes.
        let place = match &resolved.code {
            Code::Inline { .. } => None,
            Code::Git { repository, reference, base_dir } => Some(format!("{repository} {reference} {base_dir}")),
        };
        Ok::<_, Vec<Violation>>(recipe(&resolved, place.as_deref(), &settings.platform, None))
    };
    let after = recipe_of(after)?;
    let built = before.and_then(|before| recipe_of(before).ok()).map(|before| Built {
        tag: before.tag,
        inputs: before.inputs,
        ..Built::default()
    });
    Ok(causes(&after, "", built.as_ref()))
}

/// Returns when the tag of this base image was last due for resolution. The result is the `since` of [`recipe`].
pub(crate) fn resolved_since(base: &BaseImage, settings: &Settings, now: Timestamp) -> Option<Timestamp> {
    let schedule = settings.base_schedule.as_ref().filter(|_| matches!(base, BaseImage::Tagged(_)))?;
    schedule.previous(now)
}

/// Returns why this recipe has to be built for this repository. Empty if `built` is up to date.
pub fn causes(recipe: &Recipe, repository: &str, built: Option<&Built>) -> Vec<BuildCause> {
    let Some(built) = built else { return vec![BuildCause::Source] };
    let (new, old) = (&recipe.inputs, &built.inputs);
    let mut causes: Vec<_> = [
        (new.source != old.source, BuildCause::Source),
        (new.deps != old.deps, BuildCause::Deps),
        (new.runtime != old.runtime, BuildCause::Runtime),
        (new.base != old.base, BuildCause::Base),
        (built.repository != repository, BuildCause::Registry),
        (new.requested != old.requested, BuildCause::Requested),
    ]
    .into_iter()
    .filter_map(|(differs, cause)| differs.then_some(cause))
    .collect();
    // Short digests can collide, and users can edit a status. So the tag is compared as well.
    if causes.is_empty() && recipe.tag != built.tag {
        causes.push(BuildCause::Source);
    }
    causes
}

#[cfg(test)]
mod tests;
