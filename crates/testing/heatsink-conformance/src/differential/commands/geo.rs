//! Places.
//!
//! Called by: `commands::any`. Bound: ten places. Invariant: as `commands`.

use super::{Command, exact};
use crate::differential::words::{Pool, Words};

pub(super) fn next(w: &mut Words) -> Command {
    let key = w.key(Pool::Geo);
    let place = format!("place{}", w.below(10));
    let other = format!("place{}", w.below(10));
    let unit = w.pick(&["m", "km", "ft", "mi", "parsec"]);
    match w.below(10) {
        0..=3 => exact!["GEOADD", key, coordinate(w, 180), coordinate(w, 85), place],
        4 => exact!["GEOPOS", key, place, other],
        5 => exact!["GEODIST", key, place, other, unit],
        6 => exact!["GEOHASH", key, place, other],
        7 => exact![
            "GEOSEARCH",
            key,
            "FROMLONLAT",
            coordinate(w, 180),
            coordinate(w, 85),
            "BYRADIUS",
            "5000",
            "km",
            "ASC",
            "WITHCOORD",
            "WITHDIST"
        ],
        8 => exact![
            "GEOSEARCHSTORE",
            w.key(Pool::Zset),
            key,
            "FROMMEMBER",
            place,
            "BYBOX",
            "9000",
            "9000",
            unit
        ],
        _ => exact!["GEORADIUSBYMEMBER", key, place, "4000", "km", "WITHHASH", "DESC"],
    }
}

/// Mostly within the bound, now and then outside of what the server takes.
fn coordinate(w: &mut Words, bound: u64) -> String {
    let sign = w.pick(&["", "-"]);
    let bound = if w.chance(5) { bound * 2 } else { bound };
    format!("{sign}{}.{}", w.below(bound), w.below(1000))
}
