//! Tests that libgit2 refuses two files with the same SHA-1. libgit2 computes the ids of all objects and the checksums
//! of all packs.
//!
//! There is no public pair of Git objects with the same id: an object begins with its kind and its size, unlike the
//! files of the known pair. So the tests call libgit2's hash function with these files.

use std::ffi::{c_int, c_void};

/// The first 320 bytes of a file that the SHAttered attack (2017) published. All further bytes are the same in both
/// files.
const FIRST: &str = "\
    255044462d312e330a25e2e3cfd30a0a0a312030206f626a0a3c3c2f57696474682032203020522f4865696768742033203020522f547970\
    652034203020522f537562747970652035203020522f46696c7465722036203020522f436f6c6f7253706163652037203020522f4c656e67\
    74682038203020522f42697473506572436f6d706f6e656e7420383e3e0a73747265616d0affd8fffe00245348412d312069732064656164\
    2121212121852fec092339759c39b1a1c63c4c97e1fffe017346dc9166b67e118f029ab621b2560ff9ca67cca8c7f85ba84c79030c2b3de2\
    18f86db3a90901d5df45c14f26fedfb3dc38e96ac22fe7bd728f0e45bce046d23c570feb141398bb552ef5a0a82be331fea48037b8b5d71f\
    0e332edf93ac3500eb4ddc0decc1a864790c782c76215660dd309791d06bd0af3f98cda4bc4629b1";
/// The first 320 bytes of the other file.
const SECOND: &str = "\
    255044462d312e330a25e2e3cfd30a0a0a312030206f626a0a3c3c2f57696474682032203020522f4865696768742033203020522f547970\
    652034203020522f537562747970652035203020522f46696c7465722036203020522f436f6c6f7253706163652037203020522f4c656e67\
    74682038203020522f42697473506572436f6d706f6e656e7420383e3e0a73747265616d0affd8fffe00245348412d312069732064656164\
    2121212121852fec092339759c39b1a1c63c4c97e1fffe017f46dc93a6b67e013b029aaa1db2560b45ca67d688c7f84b8c4c791fe02b3df6\
    14f86db1690901c56b45c1530afedfb76038e972722fe7ad728f0e4904e046c230570fe9d41398abe12ef5bc942be33542a4802d98b5d70f\
    2a332ec37fac3514e74ddc0f2cc1a874cd0c78305a21566461309789606bd0bf3f98cda8044629a1";

/// `GIT_HASH_ALGORITHM_SHA1` of libgit2's `util/hash.h`.
const SHA1: c_int = 1;

#[expect(unsafe_code, reason = "the function is libgit2's own, and no crate declares it")]
mod libgit2 {
    use super::{SHA1, c_int, c_void};

    unsafe extern "C" {
        fn git_hash_buf(out: *mut u8, data: *const c_void, length: usize, algorithm: c_int) -> c_int;
    }

    /// Returns the SHA-1 of bytes, or libgit2's error.
    pub(super) fn sha1(bytes: &[u8]) -> Result<[u8; 20], git2::Error> {
        let mut out = [0; 20];
        // SAFETY: `out` has the 20 bytes of a SHA-1, and `bytes` is readable for its length.
        let code = unsafe { git_hash_buf(out.as_mut_ptr(), bytes.as_ptr().cast(), bytes.len(), SHA1) };
        if code == 0 { Ok(out) } else { Err(git2::Error::last_error(code)) }
    }
}

#[test]
fn a_sha1_collision_is_an_error_of_libgit2() {
    // The first call initialises the library.
    git2::Oid::hash_object(git2::ObjectType::Blob, b"").unwrap();
    let [first, second] = [FIRST, SECOND].map(|text| hex::decode(text).unwrap());
    assert_ne!(first, second);
    for bytes in [&first, &second] {
        assert!(libgit2::sha1(&bytes[..128]).is_ok(), "half of the attack is none");
        let refused = libgit2::sha1(bytes).unwrap_err();
        assert_eq!((refused.class(), refused.message()), (git2::ErrorClass::Sha1, "SHA1 collision attack detected"));
    }
}
