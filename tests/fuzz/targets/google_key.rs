#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| mainstay_git::fuzz::google_key(bytes));
