#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| mainstay_function::registry::fuzz::registry_answer(bytes));
