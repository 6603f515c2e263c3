//! What an image is built from, as one digest: its tag. And why the next image is built.
//!
//! Invariant: equal inputs give equal tags on every machine, and inputs that differ in any way give different ones;
//! every part is preceded by its length, so that no two sequences of parts read the same.
//!
//! Deliberately not among the inputs: environment, labels, numbers of pods, passwords, other directories of the
//! repository, and the registry: it holds the image, it does not change it.

use std::fmt;

use sha2::{Digest as _, Sha256};

use super::{Code, ResolvedFunction};
use crate::api::build::IMAGE_FORMAT;
use crate::api::function::{Built, Inputs};

/// What an image is built from, ready to be compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// The image's tag: 64 hexadecimal digits.
    pub tag: String,
    /// Digests of the inputs, to tell why a build is made.
    pub inputs: Inputs,
}

/// Why an image is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// The source changed, or was never built.
    Source,
    /// The dependencies changed.
    Deps,
    /// The runtime, or what Mainstay adds to it, changed.
    Runtime,
    /// The base image changed.
    Base,
    /// Another registry is to hold the image.
    Registry,
    /// The annotation `mainstay.dev/rebuild` changed.
    Requested,
    /// The last build failed, or its image cannot be trusted.
    Retry,
}

impl fmt::Display for Cause {
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

/// The recipe of a Function's image. `tree` is the Git tree of `baseDir`, in hexadecimal digits; inline Functions have
/// none.
pub fn recipe(function: &ResolvedFunction, tree: Option<&str>, platform: &str) -> Recipe {
    let (source, deps): (Vec<&str>, Vec<&str>) = match &function.code {
        Code::Inline { source, dependencies } => (vec!["inline", source], vec![dependencies]),
        Code::Git { .. } => (vec!["git", tree.unwrap_or_default()], Vec::new()),
    };
    let server = function.runtime.server_digest();
    let format = IMAGE_FORMAT.to_string();
    let base = function.base.to_string();
    let requested: Vec<&str> = function.rebuild.as_deref().into_iter().collect();
    let runtime = [function.runtime.runs_as, server.as_str(), format.as_str()];
    let base = [base.as_str(), platform];
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

/// The parts, each after its length as eight bytes.
fn prefixed(parts: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(parts.iter().map(|part| part.len() + 8).sum());
    for part in parts {
        bytes.extend((part.len() as u64).to_be_bytes());
        bytes.extend(part.as_bytes());
    }
    bytes
}

/// Why this recipe has to be built for this repository although `built` exists; empty when it has not.
pub fn causes(recipe: &Recipe, repository: &str, built: Option<&Built>) -> Vec<Cause> {
    let Some(built) = built else { return vec![Cause::Source] };
    let (new, old) = (&recipe.inputs, &built.inputs);
    let mut causes: Vec<_> = [
        (new.source != old.source, Cause::Source),
        (new.deps != old.deps, Cause::Deps),
        (new.runtime != old.runtime, Cause::Runtime),
        (new.base != old.base, Cause::Base),
        (built.repository != repository, Cause::Registry),
        (new.requested != old.requested, Cause::Requested),
    ]
    .into_iter()
    .filter_map(|(differs, cause)| differs.then_some(cause))
    .collect();
    // Short digests can agree by accident, and a status can be edited; the tag has the last word.
    if causes.is_empty() && recipe.tag != built.tag {
        causes.push(Cause::Source);
    }
    causes
}

#[cfg(test)]
mod tests;
