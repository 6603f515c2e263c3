//! Reads the signatures of notation of a manifest from its registry, and has them judged.
//!
//! Invariant: at most [`MOST`] signatures are read, and each has at most [`LONGEST`] bytes.
//! Invariant: a failed request for one signature does not hide another one that is valid.

use std::sync::Arc;

use jiff::Timestamp;

use super::failure::Failure;
use super::notation::{Demand, Flaw, Format, Notation, Rules, Target, Verdict};
use super::referrers::{self, Found, Referrer};
use super::signatures::Holder;
use mainstay_function::registry::{Client, Digest, Error};
use mainstay_git::Source;
use mainstay_object::failure::{Class, chain};

/// Maximum number of signatures that are read.
const MOST: usize = 32;
/// Maximum size of an envelope, in bytes.
const LONGEST: u64 = 256 << 10;
/// The type of manifests that hold signatures.
const HOLDER: &str = "application/vnd.cncf.notary.signature";

/// The search for a signature that counts.
struct Search<'s> {
    client: &'s Client,
    source: &'s Source,
    notation: &'s Arc<Notation>,
    rules: Arc<Rules>,
    target: Target,
    /// Whether the registry lists more signatures than are read.
    is_cut: bool,
    /// The number of signatures that do not count.
    flawed: usize,
    flaw: Option<Flaw>,
    /// The first failed request.
    failed: Option<String>,
}

/// Returns the signer of the manifest: the end of a sentence. `None` if the trust policy accepts it without a trusted signer.
/// `repository` has its host.
pub(super) async fn verify(
    client: &Client,
    digest: &Digest,
    repository: &str,
    notation: &Arc<Notation>,
    source: &Source,
) -> Result<Option<String>, Failure> {
    let secret = notation.secret();
    let rules = match notation.demand(repository) {
        Some(Demand::Nothing) => return Ok(None),
        Some(Demand::Signature(rules)) => Arc::clone(rules),
        None => {
            let missing = format!("no statement of the trust policy in the Secret {secret} applies to it");
            return Err(Failure::Unsigned(format!("{missing}; add {repository} to registryScopes of one of them")));
        }
    };
    let manifest = client.again(|| client.manifest(digest)).await.map_err(|error| chain(&error))?;
    let (media_type, size) = (manifest.media_type, manifest.bytes.len() as u64);
    let target = Target { media_type, digest: digest.clone(), size };
    let is_holder = |referrer: &Referrer| referrer.artifact_type == HOLDER;
    let Found { referrers, is_cut } = referrers::find(client, digest, Some(HOLDER), is_holder, MOST).await?;
    let mut search = Search { client, source, notation, rules, target, is_cut, flawed: 0, flaw: None, failed: None };
    let mut tolerated = None;
    for referrer in &referrers {
        match search.held(&referrer.digest).await? {
            Some(Verdict::Trusted(signer)) => return Ok(Some(signer)),
            Some(Verdict::Tolerated(why)) => tolerated = tolerated.or(Some(why)),
            None => {}
        }
    }
    let Some(why) = tolerated else { return Err(search.outcome()) };
    tracing::warn!(repository, %digest, "the trust policy takes an artifact whose signature {why}");
    Ok(None)
}

impl Search<'_> {
    /// Returns the verdict about the signature of an image, if it counts.
    async fn held(&mut self, image: &Digest) -> Result<Option<Verdict>, String> {
        let manifest = match self.client.again(|| self.client.manifest(image)).await {
            Ok(manifest) => manifest,
            Err(error) => return Ok(self.missed(&error)),
        };
        let layers = serde_json::from_slice::<Holder>(&manifest.bytes).map(|holder| holder.layers).unwrap_or_default();
        let [layer] = &layers[..] else { return Ok(self.flawed(Flaw::unreadable("has a manifest without one layer"))) };
        let Some(format) = Format::of(&layer.media_type) else {
            let why = "is neither of the type application/jose+json nor application/cose";
            return Ok(self.flawed(Flaw::unreadable(why)));
        };
        let envelope = match self.client.small_blob(&layer.digest, layer.size, LONGEST).await {
            Ok(envelope) => envelope,
            Err(error) => return Ok(self.missed(&error)),
        };
        let (notation, rules, target) = (Arc::clone(self.notation), Arc::clone(&self.rules), self.target.clone());
        let now = Timestamp::now();
        let judge = move || notation.judge(&rules, (format, &envelope[..]), &target, now);
        match self.source.run_alone(judge).await.map_err(|fault| fault.to_string())? {
            Ok(verdict) => Ok(Some(verdict)),
            Err(flaw) => Ok(self.flawed(flaw)),
        }
    }

    fn flawed(&mut self, flaw: Flaw) -> Option<Verdict> {
        self.flawed += 1;
        self.flaw = self.flaw.take().max(Some(flaw));
        None
    }

    fn missed(&mut self, error: &Error) -> Option<Verdict> {
        if error.fault.class() == Class::Invalid {
            return self.flawed(Flaw::unreadable("is not sent by the registry, or is too large"));
        }
        self.failed.get_or_insert_with(|| format!("a signature: {}", chain(error)));
        None
    }

    fn outcome(self) -> Failure {
        if let Some(failed) = self.failed {
            return Failure::Read(failed);
        }
        let secret = self.notation.secret();
        let help = format!("sign it with `notation sign`, as a signer that the Secret {secret} trusts");
        let count = self.flawed;
        let mut why = match self.flaw {
            None if self.is_cut => format!("no signature of notation was found; {help}"),
            None => format!("it is not signed with notation; {help}"),
            Some(flaw) if count == 1 => format!("its signature {}; {help}", flaw.into_text()),
            Some(flaw) => format!("none of its {count} signatures counts: one {}; {help}", flaw.into_text()),
        };
        if self.is_cut {
            why.push_str(&referrers::rest(MOST));
        }
        Failure::Unsigned(why)
    }
}
