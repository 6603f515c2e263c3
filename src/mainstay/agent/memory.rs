//! The memory that an agent needs for an expected load.

/// Memory of an agent whose load is unknown, in MiB.
const DEFAULT: u64 = 160;
/// Memory counted for a GitSync and for an object of 1 KiB, in KiB.
const GIT_SYNC: u64 = 24;
const OBJECT: u64 = 2;
/// Number of objects of a GitSync, if it is not known.
const OBJECTS: u64 = 4;

/// Returns the memory that an agent needs for this many GitSyncs and objects in one namespace, in MiB. Without a number
/// of objects, each GitSync has four.
///
/// Three tenths of the memory are for GitSyncs and objects. A single namespace can use seven eighths of that part. So
/// the agent needs 80/21 of the counted memory.
pub(crate) fn needed(git_syncs: u64, objects: u64) -> u64 {
    let objects = if objects == 0 { git_syncs.saturating_mul(OBJECTS) } else { objects };
    let counted = git_syncs.saturating_mul(GIT_SYNC).saturating_add(objects.saturating_mul(OBJECT));
    counted.saturating_mul(5).div_ceil(1344).max(DEFAULT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainstay_engine::managed::kept_within;

    #[test]
    fn the_expected_load_fits_into_the_memory() {
        for (git_syncs, objects, mib) in
            [(0, 0, 160), (1, 1, 160), (1_000, 4_000, 160), (4_000, 0, 477), (4_000, 16_000, 477), (0, 100_000, 745)]
        {
            assert_eq!(needed(git_syncs, objects), mib, "{git_syncs} {objects}");
        }
        for git_syncs in [1_400, 2_000, 10_000, 50_000] {
            let kept = kept_within(usize::try_from(needed(git_syncs, 0) << 20).unwrap()) / 8 * 7;
            let counted = git_syncs * u64::try_from(super::super::inputs::COUNTED).unwrap();
            let objects = git_syncs * OBJECTS * (OBJECT << 10);
            assert!(kept as u64 >= counted + objects, "{git_syncs}: {kept}");
        }
        assert!(needed(u64::MAX, u64::MAX) > 1 << 40, "without an overflow");
    }
}
