//! Puts the page's chart library where the crate can include it.
//!
//! Chart.js comes out of a crate of the registry, so that `cargo build` alone gives a page that
//! works offline, and no copy of it lies in this repository. The crate is a dependency of this
//! script only: nothing of it is in the program but the text of the library. The digest is that
//! of the file in the release of Chart.js itself (`dist/chart.umd.js` of the npm package
//! chart.js 4.5.1), so what browsers run does not hang on who packed it.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::{env, fs};

use rustlavel_chart::plugin::CHART_JS;
use sha2::{Digest as _, Sha256};

/// The SHA-256 of the library's file, as its authors released it.
const CHART_JS_SHA256: &str = "ecc3cd1eeb8c34d2178e3f59fd63ec5a3d84358c11730af0b9958dc886d7652a";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let mut digest = String::new();
    for byte in Sha256::digest(CHART_JS) {
        let _ = write!(digest, "{byte:02x}");
    }
    assert_eq!(digest, CHART_JS_SHA256, "the chart library is not the release that is expected");
    let out_dir = PathBuf::from(env::var_os("OUT_DIR").expect("set by cargo"));
    fs::write(out_dir.join("chart.js"), CHART_JS).expect("the build directory can be written");
}
