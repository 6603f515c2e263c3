#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| mainstay_notification::fuzz::hub_address(bytes));
