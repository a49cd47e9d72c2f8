//! Writes the corpus to files, for a fuzzer to start from:
//! `cargo run -p heatsink-fuzz-oracles --example seeds -- fuzz/corpus`

use std::fs;
use std::io;
use std::path::Path;

use heatsink_fuzz_oracles::corpus;

fn main() -> io::Result<()> {
    let directory = std::env::args_os().nth(1).expect("a directory to write to");
    for (target, samples) in
        [("request", corpus::REQUESTS), ("reply", corpus::REPLIES), ("command", corpus::COMMANDS)]
    {
        let directory = Path::new(&directory).join(target);
        fs::create_dir_all(&directory)?;
        for (number, sample) in samples.iter().enumerate() {
            fs::write(directory.join(format!("seed-{number:02}")), sample)?;
        }
    }
    Ok(())
}
