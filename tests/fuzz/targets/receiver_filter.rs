#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| mainstay_gitsync::receiver::fuzz::receiver_filter(bytes));
