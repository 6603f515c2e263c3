//! Manifests: reading and pushing them.

use bytes::Bytes;
use reqwest::Method;
use reqwest::header::{self, HeaderValue};

use super::send::{Ask, allowed};
use super::tags::next;
use super::{Client, Content, Error, Fault};
use crate::registry::Digest;

/// Maximum size of a manifest in bytes, as the distribution specification recommends.
const MAX_MANIFEST: u64 = 4 << 20;

/// Maximum number of pages of an index of referring manifests. The pages together have less than twice [`MAX_MANIFEST`].
const MAX_REFERRER_PAGES: usize = 16;

const ACCEPTED: &str = "application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json, \
                        application/vnd.docker.distribution.manifest.v2+json, \
                        application/vnd.docker.distribution.manifest.list.v2+json";

/// A stored manifest.
#[derive(Clone, Debug)]
pub struct Manifest {
    /// Media type.
    pub media_type: String,
    /// Digest of the bytes.
    pub digest: Digest,
    /// The document.
    pub bytes: Bytes,
}

/// The index of the manifests that refer to a manifest.
#[derive(Clone, Debug)]
pub struct Referrers {
    /// The documents of its pages.
    pub pages: Vec<Vec<u8>>,
    /// Whether the registry has more pages.
    pub is_cut: bool,
}

impl Client {
    /// Returns the manifest with a digest.
    pub async fn manifest(&self, digest: &Digest) -> Result<Manifest, Error> {
        self.read_manifest(digest).await.map_err(self.failed("could not read an image from"))
    }

    async fn read_manifest(&self, digest: &Digest) -> Result<Manifest, Fault> {
        let url = self.address("manifests", digest.as_str());
        let response = self.ask(&Ask::accepting(Method::GET, ACCEPTED), &url).await?;
        let media_type = response.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let media_type = media_type.and_then(|text| text.split(';').next()).unwrap_or_default().trim().to_owned();
        let bytes = Bytes::from(self.body(response, "the manifest", MAX_MANIFEST).await?);
        if Digest::of(&bytes) != *digest {
            return Err(Fault::Digest { what: "the manifest" });
        }
        Ok(Manifest { media_type, digest: digest.clone(), bytes })
    }

    /// Returns the digest that a tag or digest resolves to; `None` if the image does not exist.
    pub async fn points_to(&self, reference: &str) -> Result<Option<Digest>, Error> {
        let fail = self.failed("could not look for an image at");
        let url = self.address("manifests", reference);
        match self.ask(&Ask::accepting(Method::HEAD, ACCEPTED), &url).await {
            Ok(response) => {
                let named = response.headers().get("docker-content-digest").and_then(|value| value.to_str().ok());
                Ok(named.and_then(|named| named.parse().ok()))
            }
            Err(Fault::Status { status: 404, .. }) => Ok(None),
            Err(fault) => Err(fail(fault)),
        }
    }

    /// Returns the index of the manifests that refer to a manifest, such as its signatures; `None` if the registry keeps no
    /// such index. With an artifact type, the registry may leave out manifests of other types.
    ///
    /// # Errors
    /// The registry cannot be reached, or denies access.
    pub async fn referrers(&self, digest: &Digest, artifact_type: Option<&str>) -> Result<Option<Referrers>, Error> {
        self.list_referrers(digest, artifact_type).await.map_err(self.failed("could not look for signatures at"))
    }

    async fn list_referrers(&self, digest: &Digest, artifact_type: Option<&str>) -> Result<Option<Referrers>, Fault> {
        let mut url = self.address("referrers", digest.as_str());
        if let Some(artifact_type) = artifact_type {
            url.query_pairs_mut().append_pair("artifactType", artifact_type);
        }
        let (mut pages, mut bytes) = (Vec::new(), 0);
        while pages.len() < MAX_REFERRER_PAGES && bytes < MAX_MANIFEST {
            let ask = Ask::accepting(Method::GET, "application/vnd.oci.image.index.v1+json");
            let response = match self.ask(&ask, &url).await {
                Ok(response) => response,
                // Registries of an older version of the specification do not know the request.
                Err(Fault::Status { status: 400 | 404 | 405, .. }) if pages.is_empty() => return Ok(None),
                Err(fault) => return Err(fault),
            };
            let next = next(response.headers(), &url);
            let page = self.body(response, "the index of signatures", MAX_MANIFEST).await?;
            bytes += page.len() as u64;
            pages.push(page);
            let Some(next) = next else { return Ok(Some(Referrers { pages, is_cut: false })) };
            allowed(&url, &next)?;
            url = next;
        }
        Ok(Some(Referrers { pages, is_cut: true }))
    }

    /// Pushes a manifest with a tag, and verifies that the manifest is stored.
    pub(crate) async fn push_manifest(
        &self,
        tag: &str,
        media_type: &'static str,
        bytes: &Bytes,
    ) -> Result<Digest, Error> {
        self.put_manifest(tag, media_type, bytes).await.map_err(self.failed("could not push the image to"))
    }

    async fn put_manifest(&self, tag: &str, media_type: &'static str, bytes: &Bytes) -> Result<Digest, Fault> {
        let digest = Digest::of(bytes);
        let content = Content::Bytes(bytes);
        let mut ask = Ask { body: Some(&content), ..Ask::new(Method::PUT) };
        ask.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
        let put = self.ask(&ask, &self.address("manifests", tag)).await.map_err(about_parts)?;
        self.same_digest(&put, &digest, "the image that it keeps")?;
        // Compares the bytes, not only the digest. If Docker's registry is killed during the write, it keeps partial
        // bytes but later reports the full digest.
        let kept = self.address("manifests", digest.as_str());
        let kept = self.ask(&Ask::accepting(Method::GET, ACCEPTED), &kept).await?;
        self.same_digest(&kept, &digest, "the image that it keeps")?;
        if self.body(kept, "the image that it keeps", MAX_MANIFEST).await? != *bytes {
            return Err(Fault::Digest { what: "the image that it keeps" });
        }
        Ok(digest)
    }
}

/// Converts `DIGEST_INVALID` into missing blobs. The manifest is pushed with a tag, so the request contains no digest
/// that could be invalid. Docker's registry (2.8 and 3) returns the code for an empty link to a blob. A kill during a
/// repeated push leaves such a link.
fn about_parts(fault: Fault) -> Fault {
    match fault {
        Fault::Status { status, code: Some(code), .. } if code == "DIGEST_INVALID" => Fault::Parts { status },
        other => other,
    }
}
