//! Provenance files of Helm: a signed text that lists the digest of a packed chart.
//!
//! A chart repository has the file beside the archive, under its URL with `.prov`. A registry has it as a layer.
//!
//! Invariant: the file lists the archive by its name, which contains the version. So a signed chart of one version does not
//! pass for another version.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use futures::TryStreamExt as _;
use jiff::Timestamp;
use reqwest::Url;
use serde::Deserialize;

use super::charts::Published;
use super::download::{Found, provenance};
use super::failure::Failure;
use super::wanted::{Chart, Image};
use mainstay_function::registry::{Client, Digest, Fault};
use mainstay_git::{DOCUMENT_BYTES, DocumentSigners, Source};
use mainstay_object::failure::{Class, chain};
use mainstay_object::yaml_excess;

/// The line between the two parts of the text.
const BETWEEN: &str = "\n...\n";
/// Maximum number of values in the second part. Helm lists one file.
const VALUES: usize = 1_000;
const MISSING: &str = "it has no provenance file (.prov); sign it with `helm package --sign`, and publish both files";

/// The second part of the text.
#[derive(Deserialize)]
struct Listed {
    /// The digests of files by name.
    files: HashMap<String, String>,
}

/// Returns the signed digest of an archive in a registry.
pub(super) async fn of_registry(
    client: &Client,
    found: &Found,
    image: &Image,
    signers: &Arc<DocumentSigners>,
    source: &Source,
) -> Result<Digest, Failure> {
    let layer = provenance(client, found).await?.ok_or_else(|| Failure::Unsigned(MISSING.to_owned()))?;
    let document = client.small_blob(&layer.digest, layer.size, DOCUMENT_BYTES).await.map_err(|error| {
        let why = format!("the provenance file: {}", chain(&error));
        if error.fault.class() == Class::Invalid { Failure::Unsigned(why) } else { Failure::Read(why) }
    })?;
    let name = image.repository.repository.rsplit('/').next().unwrap_or_default();
    judge(document, format!("{name}-{}.tgz", found.tag), signers, source).await
}

/// Returns the signed digest of an archive in a chart repository.
pub(super) async fn of_charts(
    client: &Client,
    chart: &Chart,
    published: &Published,
    signers: &Arc<DocumentSigners>,
    source: &Source,
) -> Result<Digest, Failure> {
    let url = Url::parse(&format!("{}.prov", published.url)).map_err(|_| "its URL is invalid")?;
    let sent = match client.again(|| client.file(&url, None, DOCUMENT_BYTES)).await {
        Ok(sent) => sent.ok_or("the server did not send the provenance file")?,
        Err(error) if matches!(error.fault, Fault::Status { status: 404, .. }) => {
            return Err(Failure::Unsigned(MISSING.to_owned()));
        }
        Err(error) => return Err(Failure::Read(format!("the provenance file: {}", chain(&error)))),
    };
    let pieces: Vec<Bytes> = sent.bytes.try_collect().await.map_err(|fault| {
        let why = format!("the provenance file: {fault}");
        if fault.class() == Class::Invalid { Failure::Unsigned(why) } else { Failure::Read(why) }
    })?;
    judge(pieces.concat(), format!("{}-{}.tgz", chart.name, published.version), signers, source).await
}

/// Returns the digest of a file in a document that a key has signed.
async fn judge(
    document: Vec<u8>,
    file: String,
    signers: &Arc<DocumentSigners>,
    source: &Source,
) -> Result<Digest, Failure> {
    let (signers, now) = (Arc::clone(signers), Timestamp::now());
    let judge = move || {
        let text = signers.signed_text(&document, now).map_err(|fault| format!("the provenance file: {fault}"))?;
        listed(&text, &file).map_err(|why| format!("the provenance file {why}"))
    };
    source.run_alone(judge).await.map_err(|fault| fault.to_string())?.map_err(Failure::Unsigned)
}

/// Returns the digest of a file in a signed text. An error is the end of a sentence.
fn listed(text: &str, file: &str) -> Result<Digest, String> {
    let (_, list) = text.split_once(BETWEEN).ok_or("has no list of files")?;
    if let Some(excess) = yaml_excess(list.as_bytes(), VALUES) {
        return Err(format!("has a list of files that {excess}; sign the archive again with `helm package --sign`"));
    }
    let listed: Listed = serde_yaml::from_str(list).map_err(|_| "has no list of files")?;
    let digest =
        listed.files.get(file).ok_or_else(|| format!("is that of a different chart: it does not list {file}"))?;
    digest.parse().map_err(|_| "has a digest that is not SHA-256".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_lists_the_digest_of_a_file() {
        let digest = Digest::of(b"x");
        let text = format!("name: shop\nversion: 1.0.0\n\n...\nfiles:\n  shop-1.0.0.tgz: {digest}\n");
        assert_eq!(listed(&text, "shop-1.0.0.tgz"), Ok(digest.clone()));
        assert!(listed(&text, "shop-1.1.0.tgz").unwrap_err().contains("different chart"));
        assert!(listed(&text.replace(digest.as_str(), "md5:00"), "shop-1.0.0.tgz").unwrap_err().contains("SHA-256"));
        for text in ["", "files: {}\n", "a\n...\nfiles: [", "a\n...\n- x\n"] {
            assert_eq!(listed(text, "shop-1.0.0.tgz"), Err("has no list of files".to_owned()), "{text}");
        }
    }

    #[test]
    fn a_list_of_files_that_takes_much_memory_is_refused() {
        let aliases = (0..900).map(|at| format!("  b{at}: *a\n"));
        let bomb = format!("a\n...\nfiles:\n  a: &a {}\n", "x".repeat(100 << 10)) + &aliases.collect::<String>();
        assert_eq!(
            listed(&bomb, "a").unwrap_err(),
            "has a list of files that has an alias (`*name`) in line 3; sign the archive again with `helm package --sign`"
        );
        let many = format!("a\n...\nfiles: [{}]", "a,".repeat(VALUES));
        assert!(
            listed(&many, "a").unwrap_err().starts_with("has a list of files that has more than 1000 values; sign")
        );
    }
}
