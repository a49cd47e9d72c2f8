//! Replies of servers: framing, passing on, decoding.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| heatsink_fuzz_oracles::reply(data));
