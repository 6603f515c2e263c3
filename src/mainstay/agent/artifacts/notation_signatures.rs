//! Reads the signatures of notation of a manifest from its registry, and has them judged.
//!
//! Invariant: at most [`MOST`] signatures are read.

use std::sync::Arc;

use jiff::Timestamp;

use super::failure::Failure;
use super::notation::{Demand, Flaw, Format, Notation, Rules, Target, Verdict};
use super::referrers::{self, Found, Referrer};
use super::search::{MOST, Search};
use super::signatures::Holder;
use mainstay_function::registry::{Client, Digest};
use mainstay_git::Source;
use mainstay_object::failure::chain;

/// The type of manifests that hold signatures.
const HOLDER: &str = "application/vnd.cncf.notary.signature";

/// The signatures of an artifact.
struct Signatures<'s> {
    search: Search<'s, Flaw>,
    notation: &'s Arc<Notation>,
    rules: Arc<Rules>,
    target: Target,
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
    let unsent = Flaw::unreadable("is not sent by the registry, or is too large");
    let mut signatures = Signatures { search: Search::new(client, source, unsent), notation, rules, target };
    signatures.search.is_cut = is_cut;
    let mut tolerated = None;
    for referrer in &referrers {
        match signatures.held(&referrer.digest).await? {
            Some(Verdict::Trusted(signer)) => return Ok(Some(signer)),
            Some(Verdict::Tolerated(why)) => tolerated = tolerated.or(Some(why)),
            None => {}
        }
    }
    let Some(why) = tolerated else { return Err(signatures.outcome()) };
    tracing::warn!(repository, %digest, "the trust policy takes an artifact whose signature {why}");
    Ok(None)
}

impl Signatures<'_> {
    /// Returns the verdict about the signature of an image, if it counts.
    async fn held(&mut self, image: &Digest) -> Result<Option<Verdict>, String> {
        let Some(manifest) = self.search.manifest(image).await else { return Ok(None) };
        let layers = serde_json::from_slice::<Holder>(&manifest).map(|holder| holder.layers).unwrap_or_default();
        let [layer] = &layers[..] else {
            self.search.reject(Flaw::unreadable("has a manifest without one layer"));
            return Ok(None);
        };
        let Some(format) = Format::of(&layer.media_type) else {
            self.search.reject(Flaw::unreadable("is neither of the type application/jose+json nor application/cose"));
            return Ok(None);
        };
        let Some(envelope) = self.search.signature(&layer.digest, layer.size).await else { return Ok(None) };
        let (notation, rules, target) = (Arc::clone(self.notation), Arc::clone(&self.rules), self.target.clone());
        let now = Timestamp::now();
        self.search.judge(move || notation.judge(&rules, (format, &envelope[..]), &target, now)).await
    }

    fn outcome(self) -> Failure {
        let secret = self.notation.secret();
        let help = format!("sign it with `notation sign`, as a signer that the Secret {secret} trusts");
        let is_cut = self.search.is_cut;
        self.search.outcome(|flaw, count| match flaw {
            None if is_cut => format!("no signature of notation was found; {help}"),
            None => format!("it is not signed with notation; {help}"),
            Some(flaw) if count == 1 => format!("its signature {}; {help}", flaw.into_text()),
            Some(flaw) => format!("none of its {count} signatures counts: one {}; {help}", flaw.into_text()),
        })
    }
}
