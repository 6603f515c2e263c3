//! An attempt waits for memory: a commit that does not fit is read again only when there may be enough memory.
//!
//! Not here: the amount of memory, and the order in which GitSyncs get it (`managed::memory_budget`).

use jiff::Timestamp;

use super::attempt::Attempt;
use super::no_memory::NoMemory;
use super::outcome::Refused;
use super::resolve::SyncRequest;
use mainstay_engine::managed::{Part, Waiting, memory_limit};
use mainstay_git::Commit;

impl Attempt<'_> {
    /// Registers that a commit's objects wait for memory. Older GitSyncs come first.
    pub(super) fn wait_for_memory(&self, bytes: usize, problem: &str) -> String {
        let since = self.sync.metadata.creation_timestamp.as_ref().map_or(Timestamp::MIN, |time| time.0);
        let waiting = Waiting { since, part: Part::Reading, bytes, room: self.state.reading.room() };
        let needed = memory_limit(self.context.writer.wait_for_memory(self.owner, waiting));
        format!("{problem}; set limits.memory of the agent's Deployment to at least {}Mi", needed.div_ceil(1 << 20))
    }

    /// Returns the earlier error of a commit that did not fit into memory, as long as there is still not enough. Sends
    /// no request.
    pub(super) fn still_without_memory(&self, is_same: impl Fn(&NoMemory) -> bool) -> Option<Refused> {
        let known = self.state.reading.no_memory().filter(|known| is_same(known))?;
        let may_fit = self.context.writer.may_keep_in_memory(self.owner, Part::Reading, known.bytes);
        (!may_fit).then(|| known.refused())
    }

    /// Same as `still_without_memory`, but before the fetch: the commit and the request must be those that did not fit.
    pub(super) fn is_without_memory(&self, commit: Commit, request: &SyncRequest) -> Option<Refused> {
        self.still_without_memory(|known| {
            known.commit == commit && known.request.1 == request.generation && known.values == request.values
        })
    }
}
