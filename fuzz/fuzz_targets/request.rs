//! Requests of clients: framing, passing on, telnet lines.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| heatsink_fuzz_oracles::request(data));
