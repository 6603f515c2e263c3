#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| mainstay::fuzz::docker_config(bytes));
