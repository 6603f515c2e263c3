//! Finds a chart in a chart repository over HTTP, and downloads its archive.
//!
//! Invariant: an archive is passed on only if its bytes match the digest in the index, if the index has one.
//! Invariant: neither an index nor an archive is in memory as a whole.

use reqwest::Url;

use super::download::{Written, write};
use super::wanted::Chart;
use mainstay_function::registry::{Client, Digest};
use mainstay_git::{ARTIFACT_BYTES, Source, highest_version};
use mainstay_manifest::{CHART_INDEX_BYTES, ChartVersion, chart_versions};
use mainstay_object::failure::chain;

/// A version of a chart in its repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Published {
    pub(super) version: String,
    pub(super) url: Url,
    /// Digest of the archive, if the index has one.
    digest: Option<Digest>,
    /// The time of the publication in the index.
    created: String,
}

/// The version that was chosen from an index.
#[derive(Debug)]
pub(super) struct Chosen {
    chart: Chart,
    /// The entity tag of the index.
    tag: String,
    published: Published,
}

/// Returns the version that the spec follows. `last` is the choice from the last index. An unchanged index is not read
/// again.
pub(super) async fn find(
    client: &Client,
    chart: &Chart,
    source: &Source,
    last: &mut Option<Chosen>,
) -> Result<Published, String> {
    let mut url = chart.repository.clone();
    url.set_path(&format!("{}index.yaml", chart.repository.path()));
    let known = last.as_ref().filter(|last| last.chart == *chart);
    let tag = known.map(|known| known.tag.clone());
    let sent = client.again(|| client.file(&url, tag.as_deref(), CHART_INDEX_BYTES)).await;
    let sent = sent.map_err(|error| format!("index.yaml: {}", chain(&error)))?;
    let Some(sent) = sent else {
        let known = known.ok_or("index.yaml: the server did not send it")?;
        return Ok(known.published.clone());
    };
    let _downloading = source.downloading().await.map_err(|fault| fault.to_string())?;
    let written = write(sent.bytes, source).await.map_err(|why| format!("index.yaml {why}"))?;
    let name = chart.name.clone();
    let read = source.run_alone(move || chart_versions(written.file, &name)).await;
    let versions = read.map_err(|fault| fault.to_string())?.map_err(|why| format!("index.yaml: {why}"))?;
    let versions = versions.ok_or_else(|| format!("index.yaml has no chart {}", chart.name))?;
    let published = choose(chart, &versions)?;
    *last = sent.tag.map(|tag| Chosen { chart: chart.clone(), tag, published: published.clone() });
    Ok(published)
}

fn choose(chart: &Chart, versions: &[ChartVersion]) -> Result<Published, String> {
    let all = || versions.iter().map(|entry| &*entry.version);
    let missing = || format!("none of the {} versions of the chart is in the range {}", versions.len(), chart.range);
    let version = highest_version(&chart.range, all())?.ok_or_else(missing)?;
    let entry = versions.iter().find(|entry| entry.version == version).ok_or_else(missing)?;
    let fail = |why: &str| format!("index.yaml: version {version} {why}");
    if entry.url.is_empty() {
        return Err(fail("has no URL of its archive"));
    }
    let mut url = chart.repository.join(&entry.url).map_err(|_| fail("has an invalid URL of its archive"))?;
    match (chart.repository.scheme(), url.scheme()) {
        (_, "https") | ("http", "http") => {}
        (_, "oci") => {
            let instead = "set spec.repository to oci://HOST/PATH without the name of the chart";
            return Err(fail(&format!("has its archive in a registry; {instead}")));
        }
        _ => return Err(fail("has an archive whose URL does not begin with https://")),
    }
    // These fail only for addresses without a host.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_fragment(None);
    let digest = match &*entry.digest {
        "" => None,
        text => {
            let full = format!("sha256:{}", text.strip_prefix("sha256:").unwrap_or(text).to_ascii_lowercase());
            Some(full.parse().map_err(|_| fail("has a digest that is not SHA-256"))?)
        }
    };
    Ok(Published { version: version.to_owned(), url, digest, created: entry.created.clone() })
}

/// Returns the archive of a version.
pub(super) async fn download(client: &Client, published: &Published, source: &Source) -> Result<Written, String> {
    let sent = client.again(|| client.file(&published.url, None, ARTIFACT_BYTES)).await;
    let sent = sent.map_err(|error| chain(&error))?.ok_or("the server did not send the archive")?;
    let written = write(sent.bytes, source).await.map_err(|why| format!("the archive {why}"))?;
    if published.digest.as_ref().is_some_and(|digest| *digest != written.digest) {
        return Err(format!("the archive of version {} does not have the digest in index.yaml", published.version));
    }
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(range: &str, entry: ChartVersion) -> Result<Published, String> {
        let repository = "https://charts.example.org/stable/".parse().unwrap();
        let chart = Chart { repository, name: "shop".to_owned(), range: range.to_owned() };
        let old = ChartVersion { version: "0.1.0".to_owned(), url: "old.tgz".to_owned(), ..ChartVersion::default() };
        choose(&chart, &[old, entry])
    }

    fn at(url: &str) -> ChartVersion {
        ChartVersion { version: "1.2.0".to_owned(), url: url.to_owned(), ..ChartVersion::default() }
    }

    #[test]
    fn an_address_is_relative_to_the_repository_or_https() {
        let check = |url: &str, expected: &str| assert_eq!(chosen("*", at(url)).unwrap().url.as_str(), expected);
        check("shop-1.2.0.tgz", "https://charts.example.org/stable/shop-1.2.0.tgz");
        check("/shop.tgz?a=b", "https://charts.example.org/shop.tgz?a=b");
        check("https://u:p@cdn.example.org/shop.tgz#x", "https://cdn.example.org/shop.tgz");
        for url in ["http://charts.example.org/shop.tgz", "file:///etc/passwd", "//\u{0}"] {
            assert!(chosen("*", at(url)).is_err(), "{url}");
        }
        assert!(chosen("*", at("oci://r.example.org/shop:1.2.0")).unwrap_err().contains("spec.repository"));
        assert!(chosen("*", at("")).unwrap_err().contains("has no URL"));
    }

    #[test]
    fn a_version_has_a_digest_or_none() {
        let digest = "a".repeat(64);
        let with = |digest: &str| chosen("1.x", ChartVersion { digest: digest.to_owned(), ..at("a.tgz") });
        for text in [digest.to_uppercase(), format!("sha256:{digest}")] {
            assert_eq!(with(&text).unwrap().digest.unwrap().hex(), digest);
        }
        assert_eq!(with("").unwrap().digest, None);
        assert!(with("sha1:00").unwrap_err().contains("not SHA-256"));
        assert!(chosen("2.x", at("a.tgz")).unwrap_err().contains("none of the 2 versions"));
    }
}
