//! Shards: several agents divide the GitSyncs of a cluster among themselves.
//!
//! Each agent holds one of a fixed number of Leases, `mainstay-shard-0` and so on ([`Elector`](crate::Elector)). The
//! agents that hold one are the members. Rendezvous hashing over the members selects the owner of a GitSync
//! ([`Members::owner`]), so that an agent that comes or goes moves only its own share.
//!
//! Each member publishes in its Lease the view by which it acts: the members, and a generation. A member that sees other
//! members does three steps ([`board`]):
//!
//! 1. It stops the work for the GitSyncs that it loses.
//! 2. It publishes the new view, and waits until its own watch of the Leases shows it.
//! 3. It begins with a GitSync that it gains once no other live member has published a view in which it owns it.
//!
//! A process keeps the times of the Leases that it has seen ([`Seen`]): work that begins again does not wait again for a dead
//! member.
//!
//! A member also shows which Leases have expired, each with its version. A candidate takes such a Lease immediately, although
//! it has just started. The other members count the dead one a little longer, so that its share goes to the successor.
//!
//! Invariant: two members never act on one GitSync. Both publish before they look at the view of the other. Both views
//! are in one watch, whose order is the same for all, so that at least one of them sees the view of the other.
//! Invariant: a member that does not renew its Lease stops before the Lease expires (`lease`).
//! Invariant: members act only while one of them holds the Lease of the leader, so that an agent without shards does not
//! act beside them.
//!
//! Not here: the work for a GitSync, and the Leases themselves (`lease`).

mod board;
mod expiries;
mod follow;
mod member;
mod ownership;
mod seen;
#[cfg(test)]
mod tests;
mod view;

pub use follow::{Followed, follow};
pub use member::{MOST, Member, Members};
pub use ownership::Ownership;
pub use seen::Seen;
pub use view::{PushNote, claims, members_of};

pub(crate) use expiries::follow_expiries;
pub(crate) use view::{is_of_members, released};
