//! Finds the manifests that refer to a manifest, such as its signatures.
//!
//! A registry without the API of referrers has their index under the tag `sha256-HEX`.
//!
//! Invariant: a member of an index that cannot be read hides no other member.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};
use serde_json::value::RawValue;

use mainstay_function::registry::{Client, Digest, Referrers};
use mainstay_object::failure::chain;

/// A page of the index of the manifests that refer to a manifest.
#[derive(Deserialize)]
struct Index {
    manifests: Option<Members>,
}

/// The members of an index that can be read.
struct Members(Vec<Referrer>);

/// A manifest that refers to another one.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Referrer {
    pub(super) digest: Digest,
    #[serde(default)]
    pub(super) artifact_type: String,
}

/// The manifests that were found.
pub(super) struct Found {
    pub(super) referrers: Vec<Referrer>,
    /// Whether the registry lists more than are read.
    pub(super) is_cut: bool,
}

/// Reads each member alone.
struct Each;

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Each)
    }
}

impl<'de> Visitor<'de> for Each {
    type Value = Members;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list of manifests")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Members, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = list.next_element::<&'de RawValue>()? {
            members.extend(serde_json::from_str::<Referrer>(member.get()));
        }
        Ok(Members(members))
    }
}

/// Returns at most `most` manifests that refer to the one with a digest and are wanted. With an artifact type, all wanted
/// ones have it.
pub(super) async fn find(
    client: &Client,
    digest: &Digest,
    artifact_type: Option<&str>,
    is_wanted: fn(&Referrer) -> bool,
    most: usize,
) -> Result<Found, String> {
    let listed = client.again(|| client.referrers(digest, artifact_type)).await.map_err(|error| chain(&error))?;
    let Referrers { pages, is_cut } = match listed {
        Some(listed) => listed,
        None => Referrers { pages: tagged_index(client, digest).await?.into_iter().collect(), is_cut: false },
    };
    let mut referrers = Vec::new();
    for page in &pages {
        referrers.extend(read(page)?.into_iter().filter(is_wanted).take(most + 1 - referrers.len()));
    }
    let is_cut = is_cut || referrers.len() > most;
    referrers.truncate(most);
    Ok(Found { referrers, is_cut })
}

/// Returns the end of a message about a list of signatures that was read in part.
pub(super) fn rest(most: usize) -> String {
    format!("; the registry lists more signatures than are read (at most {most} of each kind): delete old ones")
}

/// Returns the index under the tag of a digest; `None` if there is no such tag.
async fn tagged_index(client: &Client, digest: &Digest) -> Result<Option<Vec<u8>>, String> {
    let Some(named) = tagged(client, &format!("sha256-{}", digest.hex())).await? else { return Ok(None) };
    let manifest = client.again(|| client.manifest(&named)).await.map_err(|error| chain(&error))?;
    Ok(Some(manifest.bytes.to_vec()))
}

/// Returns the members of a page.
fn read(page: &[u8]) -> Result<Vec<Referrer>, String> {
    let index: Index = serde_json::from_slice(page)
        .map_err(|_| "the registry's index of signatures cannot be read; push the signatures again")?;
    Ok(index.manifests.map(|members| members.0).unwrap_or_default())
}

/// Returns the digest of a tag; `None` if there is no such tag.
pub(super) async fn tagged(client: &Client, tag: &str) -> Result<Option<Digest>, String> {
    client.again(|| client.points_to(tag)).await.map_err(|error| chain(&error))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_member_that_cannot_be_read_hides_no_other() {
        let good = json!({"digest": Digest::of(b"a").as_str(), "artifactType": "signature", "size": 1});
        let sha512 = json!({"digest": format!("sha512:{}", "0".repeat(128)), "artifactType": "signature"});
        let odd = json!({"digest": Digest::of(b"b").as_str(), "artifactType": 1});
        let page = json!({"manifests": [sha512, 1, null, [[]], odd, {}, good]}).to_string();
        let found = read(page.as_bytes()).unwrap();
        let [one] = &found[..] else { panic!("{}", found.len()) };
        assert_eq!((&one.digest, &*one.artifact_type), (&Digest::of(b"a"), "signature"));
    }

    #[test]
    fn an_index_without_members_lists_none_and_others_are_an_error() {
        for page in ["{}", r#"{"manifests": null}"#, r#"{"manifests": []}"#] {
            assert!(read(page.as_bytes()).unwrap().is_empty(), "{page}");
        }
        for page in ["", "<html>", r#"{"manifests": {}}"#, r#"{"manifests": ["#] {
            assert!(read(page.as_bytes()).err().unwrap().contains("index of signatures cannot be read"), "{page}");
        }
    }

    proptest! {
        #[test]
        fn reads_any_index_without_panic(bytes: Vec<u8>, text in "[\\[{\"a-z0:,}\\]]{0,60}") {
            let _ = (read(&bytes), read(format!("{{\"manifests\": {text}}}").as_bytes()));
        }
    }
}
