#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| mainstay_manifest::fuzz::chart_index(bytes));
