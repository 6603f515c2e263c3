//! Virtual time for a process: waiting takes no real time, and random numbers come from a seed.
//!
//! Tokio's paused clock advances when all tasks wait. The product also reads the clocks of the standard library, so
//! this file replaces four functions of the C library. `clock_gettime` returns tokio's clock, and `getrandom` returns
//! numbers from the seed. `pthread_create` counts the working threads, and `epoll_wait` waits for them before the clock
//! advances.
//!
//! Invariant: before [`start`], and on other kinds of clocks, each function does what the C library does.
//!
//! Not here: more than one virtual time in a process. Each schedule runs in its own process.

use std::cell::Cell;
use std::ffi::{c_int, c_long, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};

use tokio::time::Instant;

/// 2026-03-02 08:00:00 UTC, a Monday: the wall-clock time when virtual time begins.
const WALL: u64 = 1_772_438_400;
/// Seconds of the monotonic clock at that time: later than on any machine.
const UPTIME: u64 = 1 << 30;
/// Number of naps of [`NAP`] after which a working thread is no longer waited for, because it may wait for this thread.
const PATIENCE: u32 = 10_000;
/// Length of a nap in real nanoseconds.
const NAP: i64 = 50_000;

static ON: AtomicBool = AtomicBool::new(false);
static BEGAN: OnceLock<Instant> = OnceLock::new();
/// Nanoseconds since the beginning, when last read.
static NOW: AtomicU64 = AtomicU64::new(0);
/// Number of working threads, except this thread and the threads of the runtime, which counts its own threads.
static WORKING: AtomicUsize = AtomicUsize::new(0);
/// Whether the thread with the runtime waits, so that other threads may work one after the other, in the order of their
/// start.
static THEIRS: AtomicBool = AtomicBool::new(false);
static BEGUN: AtomicU64 = AtomicU64::new(0);
static ENDED: AtomicU64 = AtomicU64::new(0);
/// States of the random generators: of the thread with the runtime, and of all other threads together.
static CHANCE: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

thread_local! {
    static HAS_RUNTIME: Cell<bool> = const { Cell::new(false) };
    static IS_COUNTED: Cell<bool> = const { Cell::new(false) };
    static IS_ASKING: Cell<bool> = const { Cell::new(false) };
}

/// Starts virtual time for this process, and returns a runtime of this thread that uses it.
pub(crate) fn start(seed: u64) -> tokio::runtime::Runtime {
    assert!(!ON.swap(true, SeqCst), "a process has one virtual time");
    HAS_RUNTIME.set(true);
    CHANCE[0].store(seed, SeqCst);
    CHANCE[1].store(!seed, SeqCst);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        // The runtime itself waits for these threads.
        .on_thread_start(end_counted)
        .build()
        .unwrap();
    runtime.block_on(async { BEGAN.set(Instant::now()).unwrap() });
    runtime
}

/// Stops waiting for this thread.
fn end_counted() {
    if IS_COUNTED.replace(false) {
        ENDED.fetch_add(1, SeqCst);
        WORKING.fetch_sub(1, SeqCst);
    }
}

/// Nanoseconds since the beginning of virtual time.
pub(crate) fn elapsed() -> u64 {
    let Some(began) = BEGAN.get() else { return 0 };
    // Without a runtime, tokio reads the clock of the standard library, which calls this function.
    if !HAS_RUNTIME.get() || IS_ASKING.replace(true) {
        return NOW.load(SeqCst);
    }
    let now = Instant::now().saturating_duration_since(*began);
    IS_ASKING.set(false);
    let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
    NOW.fetch_max(now, SeqCst).max(now)
}

/// SplitMix64.
pub(crate) fn mixed(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

fn chance() -> u64 {
    let state = &CHANCE[usize::from(!HAS_RUNTIME.get())];
    mixed(state.fetch_add(0x9e37_79b9_7f4a_7c15, SeqCst))
}

#[expect(unsafe_code, reason = "takes the place of the C library's function")]
#[unsafe(no_mangle)]
unsafe extern "C" fn clock_gettime(clock: libc::clockid_t, into: *mut libc::timespec) -> c_int {
    let base = match clock {
        libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_COARSE => WALL,
        libc::CLOCK_MONOTONIC | libc::CLOCK_MONOTONIC_COARSE | libc::CLOCK_BOOTTIME => UPTIME,
        _ => 0,
    };
    if base == 0 || !ON.load(SeqCst) {
        // SAFETY: the caller passes valid arguments of the system call.
        let code = unsafe { libc::syscall(libc::SYS_clock_gettime, c_long::from(clock), into) };
        return c_int::try_from(code).unwrap_or(-1);
    }
    let nanos = elapsed();
    let seconds = i64::try_from(base + nanos / 1_000_000_000).unwrap_or(i64::MAX);
    let rest = i64::try_from(nanos % 1_000_000_000).unwrap_or(0);
    // SAFETY: the caller passes a valid pointer to a time.
    unsafe { into.write(libc::timespec { tv_sec: seconds, tv_nsec: rest }) };
    0
}

#[expect(unsafe_code, reason = "takes the place of the C library's function")]
#[unsafe(no_mangle)]
unsafe extern "C" fn getrandom(into: *mut c_void, length: usize, flags: u32) -> isize {
    if !ON.load(SeqCst) {
        // SAFETY: the caller passes valid arguments of the system call.
        let code = unsafe { libc::syscall(libc::SYS_getrandom, into, length, flags) };
        return isize::try_from(code).unwrap_or(-1);
    }
    // SAFETY: the caller passes a valid buffer of this length.
    let all = unsafe { std::slice::from_raw_parts_mut(into.cast::<u8>(), length) };
    for some in all.chunks_mut(8) {
        some.copy_from_slice(&chance().to_le_bytes()[..some.len()]);
    }
    isize::try_from(length).unwrap_or(-1)
}

#[expect(unsafe_code, reason = "takes the place of the C library's function")]
#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_wait(poll: c_int, events: *mut libc::epoll_event, most: c_int, timeout: c_int) -> c_int {
    let wait = |timeout: c_int| {
        // SAFETY: the caller passes valid arguments of the system call.
        let code = unsafe {
            let (poll, most, timeout) = (c_long::from(poll), c_long::from(most), c_long::from(timeout));
            libc::syscall(libc::SYS_epoll_pwait, poll, events, most, timeout, 0 as c_long, 8 as c_long)
        };
        c_int::try_from(code).unwrap_or(-1)
    };
    if ON.load(SeqCst) && HAS_RUNTIME.get() && WORKING.load(SeqCst) > 0 {
        THEIRS.store(true, SeqCst);
        nap_until(|| WORKING.load(SeqCst) == 0);
        THEIRS.store(false, SeqCst);
    }
    wait(timeout)
}

/// Sleeps in real time until `holds` returns true, for a limited number of naps.
#[expect(unsafe_code, reason = "the standard library would sleep in virtual time")]
fn nap_until(holds: impl Fn() -> bool) {
    for _ in 0..PATIENCE {
        if holds() {
            return;
        }
        let nap = libc::timespec { tv_sec: 0, tv_nsec: NAP };
        // SAFETY: the kernel only reads `nap`.
        unsafe { libc::syscall(libc::SYS_nanosleep, &raw const nap, std::ptr::null_mut::<libc::timespec>()) };
    }
}

type Start = extern "C" fn(*mut c_void) -> *mut c_void;
type Counted = (Start, *mut c_void, u64);
type Create = unsafe extern "C" fn(*mut libc::pthread_t, *const libc::pthread_attr_t, Start, *mut c_void) -> c_int;

#[expect(unsafe_code, reason = "takes the place of the C library's function")]
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_create(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    start: Start,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: the next function of this name is the C library's, with this type.
    let create = unsafe {
        let found = libc::dlsym(libc::RTLD_NEXT, c"pthread_create".as_ptr());
        std::mem::transmute::<*mut c_void, Create>(found)
    };
    if !ON.load(SeqCst) {
        // SAFETY: the caller passes valid arguments of the C library function.
        return unsafe { create(thread, attributes, start, argument) };
    }
    WORKING.fetch_add(1, SeqCst);
    let counted = Box::into_raw(Box::<Counted>::new((start, argument, BEGUN.fetch_add(1, SeqCst))));
    // SAFETY: the caller passes valid arguments of the C library function; the thread reads `counted` once.
    let code = unsafe { create(thread, attributes, run_counted, counted.cast()) };
    if code != 0 {
        WORKING.fetch_sub(1, SeqCst);
        ENDED.fetch_add(1, SeqCst);
        // SAFETY: no thread was created that would read `counted`.
        drop(unsafe { Box::from_raw(counted) });
    }
    code
}

#[expect(unsafe_code, reason = "what it gets is a pointer")]
extern "C" fn run_counted(counted: *mut c_void) -> *mut c_void {
    // SAFETY: `pthread_create` allocated `counted` for this thread alone.
    let (start, argument, number) = *unsafe { Box::from_raw(counted.cast::<Counted>()) };
    nap_until(|| THEIRS.load(SeqCst) && ENDED.load(SeqCst) >= number);
    IS_COUNTED.set(true);
    let result = start(argument);
    end_counted();
    result
}
