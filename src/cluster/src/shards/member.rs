//! The members, and the owner of a GitSync among them.

use std::fmt;

use sha2::{Digest as _, Sha256};

/// Maximum number of members.
pub const MOST: u8 = 64;

/// A member: an agent that holds the Lease of a shard. Its name is `shard-0` and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Member(u8);

impl Member {
    /// Returns the member with this number; `None` beyond the maximum.
    pub fn new(number: usize) -> Option<Self> {
        u8::try_from(number).ok().filter(|number| *number < MOST).map(Self)
    }

    /// Parses a name such as `shard-0`.
    pub fn parse(name: &str) -> Option<Self> {
        let member = Self::new(name.strip_prefix("shard-")?.parse().ok()?)?;
        // Refuses other forms of the number, such as `+1` and `01`.
        (member.to_string() == name).then_some(member)
    }

    /// Returns the weight of a GitSync for this member.
    fn weight(self, namespace: &str, name: &str) -> u64 {
        let digest = Sha256::digest(format!("{self}\0{namespace}\0{name}"));
        digest.iter().take(8).fold(0_u64, |weight, byte| (weight << 8) | u64::from(*byte))
    }
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shard-{}", self.0)
    }
}

/// A set of members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Members(u64);

impl Members {
    /// Whether this member is in the set.
    pub(super) fn has(self, member: Member) -> bool {
        self.0 & (1 << member.0) != 0
    }

    /// Returns the members in order.
    pub(super) fn iter(self) -> impl Iterator<Item = Member> {
        (0..MOST).map(Member).filter(move |member| self.has(*member))
    }

    /// Returns the number of members.
    pub fn count(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Returns the owner of a GitSync: the member to which it is pinned, or else the one with the highest weight. `None`
    /// if there is no member.
    pub fn owner(self, namespace: &str, name: &str, pin: Option<Member>) -> Option<Member> {
        let pinned = pin.filter(|pin| self.has(*pin));
        pinned.or_else(|| self.iter().max_by_key(|member| (member.weight(namespace, name), *member)))
    }
}

impl FromIterator<Member> for Members {
    fn from_iter<I: IntoIterator<Item = Member>>(members: I) -> Self {
        Self(members.into_iter().fold(0, |all, member| all | (1 << member.0)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn members(numbers: &[usize]) -> Members {
        numbers.iter().filter_map(|number| Member::new(*number)).collect()
    }

    #[test]
    fn a_name_has_one_form() {
        for number in 0..usize::from(MOST) {
            let member = Member::new(number).unwrap();
            assert_eq!(Member::parse(&member.to_string()), Some(member));
        }
        for name in ["", "shard-", "shard-64", "shard-+1", "shard-01", "shard--1", "Shard-1", "shard-1 ", "1"] {
            assert_eq!(Member::parse(name), None, "{name}");
        }
    }

    #[test]
    fn a_pin_counts_only_while_its_member_is_there() {
        let (two, all) = (Member::new(2), members(&[0, 1, 2]));
        for name in ["a", "b", "c", "d", "e"] {
            assert_eq!(all.owner("shop", name, two), two);
            assert_eq!(members(&[0, 1]).owner("shop", name, two), members(&[0, 1]).owner("shop", name, None));
        }
        assert_eq!(Members::default().owner("shop", "a", two), None);
    }

    #[test]
    fn each_member_owns_about_the_same_number() {
        for count in [2, 3, 5, 8] {
            let all: Members = (0..count).filter_map(Member::new).collect();
            let mut owned = vec![0_usize; count];
            for number in 0..4000 {
                let owner = all.owner(&format!("team-{}", number % 40), &format!("app-{number}"), None).unwrap();
                owned[usize::from(owner.0)] += 1;
            }
            let fair = 4000 / count;
            assert!(owned.iter().all(|own| own.abs_diff(fair) < fair / 5), "{owned:?}");
        }
    }

    proptest! {
        #[test]
        fn only_the_share_of_a_departed_member_moves(
            bits in 1_u64.., gone in 0..usize::from(MOST), namespace in "[a-z]{1,8}", name in "[a-z0-9.-]{1,20}",
        ) {
            let (before, gone) = (Members(bits), Member::new(gone).unwrap());
            let after: Members = before.iter().filter(|member| *member != gone).collect();
            let (old, new) = (before.owner(&namespace, &name, None), after.owner(&namespace, &name, None));
            prop_assert!(old == new || old == Some(gone));
            prop_assert_eq!(new.is_none(), after == Members::default());
        }
    }
}
