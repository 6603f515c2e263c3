#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| mainstay_function::admission::fuzz::admission_review(bytes));
