//! See [`crate::fuzz`].

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::inventory::Inventory;
use super::places::Places;

/// A part of an inventory, as it is stored and before it is compressed: what is read is written and read again as the same.
pub fn inventory(bytes: &[u8]) {
    for content in [bytes.to_vec(), compressed(bytes)] {
        let keys = Inventory::keys_of(&content).unwrap_or_default();
        // Where the objects come from is stored beside them.
        let _ = Places::decode(&content, &keys.iter().collect::<Vec<_>>());
        let Ok(inventory) = Inventory::decode([content.as_slice()]) else { continue };
        let shards = inventory.encode();
        let again = Inventory::decode(shards.iter().map(|shard| shard.content.as_slice()));
        assert_eq!(again, Ok(inventory));
    }
}

fn compressed(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    // Writing to a Vec cannot fail.
    let _ = gzip.write_all(bytes);
    gzip.finish().unwrap_or_default()
}
