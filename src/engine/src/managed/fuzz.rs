//! Fuzz targets for readers of hostile input. Each accepts any bytes, ends soon, does not panic, and checks properties.

use std::io::Write as _;
use std::sync::Arc;

use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use serde_json::Value;

use super::AppliedConfiguration;
use super::adoption::{self, Appliers, Moment};
use super::aliases;
use super::collision;
use super::desired::{Desired, Mark};
use super::fields::Fields;
use super::inventory::Inventory;
use super::ownership::released;
use super::places::{self, Places};
use super::projection::{differences, digest, empty_containers};
use super::verdict::{self, LastApplied, Verdict, decide};
use mainstay_api::DriftPolicy;
use mainstay_cluster::{Kind, Scope};
use mainstay_object::{Digest, Key, Object, Place, ended, health, split_api_version};

/// Separates an inventory part from the source locations of its objects.
const PLACES: &[u8] = b"\nplaces\n";
/// A time of a request.
const NOW: &str = "2026-01-01T00:00:00Z";

/// Decodes an inventory part, plain and compressed. A decoded part must be the same after it is encoded and decoded
/// again. Source locations may follow the part.
pub fn inventory(bytes: &[u8]) {
    let end = bytes.windows(PLACES.len()).position(|window| window == PLACES);
    let (bytes, from) = end.map_or((bytes, &b""[..]), |end| (&bytes[..end], &bytes[end + PLACES.len()..]));
    for content in [bytes.to_vec(), compressed(bytes)] {
        let Ok(inventory) = Inventory::decode([content.as_slice()]) else { continue };
        let keys = Inventory::keys_of(&content).unwrap_or_default();
        let keys: Vec<_> = keys.iter().collect();
        places_of(&keys, from);
        let shards = inventory.encode();
        let again = Inventory::decode(shards.iter().map(|shard| shard.content.as_slice()));
        assert_eq!(again, Ok(inventory));
    }
}

/// Decodes source locations also with a valid header, which an attacker can forge.
fn places_of(keys: &[&Key], bytes: &[u8]) {
    let _ = Places::decode(bytes, keys);
    let names: String = keys.iter().map(|key| key.to_string() + "\n").collect();
    let content = compressed(&[places::MAGIC, Digest::of(names.as_bytes()).as_bytes(), bytes].concat());
    let Ok(mut places) = Places::decode(&content, keys) else { return };
    places.of.retain(|_, place| place.file.len() <= places::LONGEST_PATH);
    let listed: Vec<_> = keys.iter().map(|key| (*key, places.of.get(*key))).collect();
    let Some(content) = Places::encode(&places.commit, listed.into_iter()) else { return };
    assert_eq!(Places::decode(&content, keys), Ok(places));
}

/// Checks that a takeover can be undone.
fn adopted(desired: &Desired, live: &Value) {
    let (entries, from) = (&live["metadata"]["managedFields"], Appliers::former(Arc::default()));
    for moment in [Moment::Before, Moment::After] {
        let Some(taken) = adoption::take_over(entries, desired, &desired.body(), &from, moment, NOW) else { continue };
        let back = adoption::put_back(&taken.entries, &taken, &[]);
        assert!(back.is_some(), "what changed hands is reverted");
        let _ = adoption::without(live.clone(), &taken.taken, &Fields::new());
    }
    let _ = aliases::stale(&desired.key, &desired.body(), live);
}

fn compressed(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    // Writing to a Vec cannot fail.
    let _ = gzip.write_all(bytes);
    gzip.finish().unwrap_or_default()
}

/// Checks a live object: an unchanged object is not reverted, and does not differ from itself.
pub(crate) fn live_object(live: &Value) {
    let empty = empty_containers(live, live);
    assert_eq!(differences(live, live, &empty), [], "an object is what it is");
    let ours = digest(live, &empty);
    let verified =
        LastApplied { uid: verdict::uid(live).into(), digest: ours, empty_containers: empty, ..LastApplied::default() };
    let now = NOW.parse().unwrap_or(Timestamp::UNIX_EPOCH);
    let verdict = decide(&verified, &Mark::Label("shop.web".into()), live, DriftPolicy::Revert, now);
    assert!(ours.is_none() || verdict != Verdict::Revert, "what was not changed is not reverted");
    let _ = AppliedConfiguration::of(live);
    let _ = (collision::known(live, live, NOW), collision::lost(live, live));
    let entries = &live["metadata"]["managedFields"];
    let _ = released(entries);
    if let Ok(object) = Object::from_value(live, Place::file("web.yaml")) {
        let kind = Arc::new(Kind::fixed("v1", "ConfigMap", "configmaps", Scope::Namespaced));
        let (key, mark) = (object.key.clone(), Mark::Label("shop.web".into()));
        let desired = Desired { key, kind, object: Arc::new(object), mark, ignored: None };
        adopted(&desired, live);
    }
    let text = |name: &str| live[name].as_str().unwrap_or_default();
    let key = Key::new(split_api_version(text("apiVersion")).0, text("kind"), None, "web".to_owned());
    let _ = (health(&key, live), ended(&key, live));
}
