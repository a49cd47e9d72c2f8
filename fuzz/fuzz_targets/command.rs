//! The command table: lookups, keys, learning from a server.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| heatsink_fuzz_oracles::command(data));
