//! Reads artifacts with the protocol of their place.

use std::fs::File;

use super::charts::{self, Chosen, Published};
use super::download;
use super::failure::Failure;
use super::notation_signatures;
use super::provenance;
use super::signatures;
use super::signers::{Signers, Trusted};
use super::wanted::{Chart, Image};
use mainstay_function::registry::{Client, Digest};
use mainstay_git::Source;

/// A client for a place.
pub(super) enum Reader<'w> {
    Registry(Client, &'w Image),
    Charts(Client, &'w Chart),
}

/// A version of an artifact in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Image(download::Found),
    Chart(Published),
}

/// A downloaded artifact.
pub(super) struct Downloaded {
    pub(super) archive: File,
    /// Digest of the archive.
    pub(super) digest: String,
    /// Tag or version with a digest, in the format of Flux.
    pub(super) revision: String,
    /// Tag or version; empty if the spec names a digest.
    pub(super) tag: String,
    /// The signer, if a trusted one is required: the end of a sentence.
    pub(super) signer: Option<String>,
}

impl Reader<'_> {
    /// Returns the version that the spec follows.
    pub(super) async fn find(&self, source: &Source, last: &mut Option<Chosen>) -> Result<Found, String> {
        match self {
            Self::Registry(client, image) => download::find(client, image).await.map(Found::Image),
            Self::Charts(client, chart) => charts::find(client, chart, source, last).await.map(Found::Chart),
        }
    }

    /// Downloads a version that was found. With `signers`, one of them must have signed it.
    pub(super) async fn download(
        &self,
        found: &Found,
        source: &Source,
        signers: Option<&Signers>,
    ) -> Result<Downloaded, Failure> {
        let trusted = signers.map(|signers| &signers.trusted);
        match (self, found) {
            (Self::Registry(client, image), Found::Image(found)) => {
                let layer = download::layer(client, found, image).await?;
                let signer = match trusted {
                    Some(Trusted::Cosign(signers)) => {
                        Some(signatures::verify(client, &found.digest, signers, source).await?)
                    }
                    Some(Trusted::Notation(notation)) => {
                        let repository = format!("{}/{}", image.repository.registry, image.repository.repository);
                        notation_signatures::verify(client, &found.digest, &repository, notation, source).await?
                    }
                    Some(Trusted::Helm(keys, secret)) => {
                        let signed = provenance::of_registry(client, found, image, keys, source).await?;
                        same(&signed, &layer.digest)?;
                        Some(a_key(secret))
                    }
                    None => None,
                };
                let _downloading = source.downloading().await.map_err(|fault| fault.to_string())?;
                let archive = download::download(client, &layer, source).await?;
                let (revision, tag) = (found.revision(), found.tag.clone());
                Ok(Downloaded { archive, digest: layer.digest.to_string(), revision, tag, signer })
            }
            (Self::Charts(client, chart), Found::Chart(found)) => {
                let signed = match trusted {
                    Some(Trusted::Helm(keys, secret)) => {
                        Some((provenance::of_charts(client, chart, found, keys, source).await?, a_key(secret)))
                    }
                    Some(Trusted::Cosign(_) | Trusted::Notation(_)) => {
                        return Err("cosign and notation sign charts of registries only".into());
                    }
                    None => None,
                };
                let _downloading = source.downloading().await.map_err(|fault| fault.to_string())?;
                let written = charts::download(client, found, source).await?;
                let mut signer = None;
                if let Some((signed, by)) = signed {
                    same(&signed, &written.digest)?;
                    signer = Some(by);
                }
                let (tag, digest) = (found.version.clone(), written.digest.to_string());
                let revision = format!("{tag}@{digest}");
                Ok(Downloaded { archive: written.file, revision, digest, tag, signer })
            }
            _ => Err("the version is of a different place".into()),
        }
    }
}

/// Returns a signer whose key is not known: the end of a sentence.
fn a_key(secret: &str) -> String {
    format!("a key of the Secret {secret}")
}

/// Compares the signed digest of an archive with its digest.
fn same(signed: &Digest, digest: &Digest) -> Result<(), Failure> {
    let differs = || Failure::Unsigned("the archive does not have the digest in its provenance file".to_owned());
    (signed == digest).then_some(()).ok_or_else(differs)
}
