//! Measures the heap and the CPU time of the agent, without those of the modelled server in the same process.
//!
//! A chunk counts with its header, as the allocator of glibc takes it. Free chunks and fragments do not count.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// Size of the header of a chunk, in bytes.
const HEADER: usize = size_of::<usize>();

/// The allocator of the system, with a count of its bytes.
pub(crate) struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
/// Nanoseconds of CPU time that are not the agent's.
static APART: AtomicUsize = AtomicUsize::new(0);

fn add(chunk: *mut u8) {
    if !chunk.is_null() {
        let live = LIVE.fetch_add(size_of_chunk(chunk), Relaxed) + size_of_chunk(chunk);
        PEAK.fetch_max(live, Relaxed);
    }
}

#[expect(unsafe_code, reason = "the C library knows the size of its chunks")]
fn size_of_chunk(chunk: *mut u8) -> usize {
    // SAFETY: the chunk comes from the allocator of the system and is not freed yet.
    HEADER + unsafe { libc::malloc_usable_size(chunk.cast()) }
}

#[expect(unsafe_code, reason = "passes each call to the allocator of the system")]
// SAFETY: each function passes its arguments to the same function of the system and returns its result.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        let chunk = unsafe { System.alloc(layout) };
        add(chunk);
        chunk
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        let chunk = unsafe { System.alloc_zeroed(layout) };
        add(chunk);
        chunk
    }

    unsafe fn dealloc(&self, chunk: *mut u8, layout: Layout) {
        LIVE.fetch_sub(size_of_chunk(chunk), Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(chunk, layout) };
    }

    unsafe fn realloc(&self, chunk: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let before = size_of_chunk(chunk);
        // SAFETY: as above.
        let moved = unsafe { System.realloc(chunk, layout, size) };
        if !moved.is_null() {
            LIVE.fetch_sub(before, Relaxed);
            add(moved);
        }
        moved
    }
}

/// Returns the bytes on the heap.
pub(crate) fn heap() -> usize {
    LIVE.load(Relaxed)
}

/// Returns the peak of the bytes on the heap since the last call.
pub(crate) fn peak() -> usize {
    PEAK.swap(heap(), Relaxed)
}

/// Returns the CPU time of the agent since the process started.
pub(crate) fn cpu() -> Duration {
    of_process().saturating_sub(Duration::from_nanos(APART.load(Relaxed) as u64))
}

/// Runs work that is not the agent's, so that its CPU time does not count.
pub(crate) fn apart<T>(work: impl FnOnce() -> T) -> T {
    let before = of_process();
    let result = work();
    let nanos = of_process().saturating_sub(before).as_nanos();
    APART.fetch_add(usize::try_from(nanos).unwrap_or_default(), Relaxed);
    result
}

#[expect(unsafe_code, reason = "the standard library has no clock of CPU time")]
fn of_process() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a time that lives until the call returns.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    Duration::new(u64::try_from(time.tv_sec).unwrap_or_default(), u32::try_from(time.tv_nsec).unwrap_or_default())
}
