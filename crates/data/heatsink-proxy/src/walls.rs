//! The rooms' walls: which room may know of which, held against the source files.
//!
//! A room may call the rooms below it. What it wants from one above, it returns, or notes among
//! [`crate::upstream::effects`], [`crate::cluster::effects`] or [`crate::relay::effects`]; so it need not
//! import it, and must not.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The rooms in layers, bottom to top. Those of one layer may know of each other.
const LAYERS: [&[&str]; 8] = [
    &["downstream", "observe", "reserved"],
    &["upstream"],
    &["cluster"],
    &["relay"],
    &["session"],
    &["hot"],
    &["decide"],
    &["runtime"],
];

/// Rooms that do not know of those below them either.
const APART: [(&str, &str); 1] = [("hot", "session")];

/// What belongs to no room: plain types that rooms pass to each other, and what a worker has from
/// outside.
const GROUND: [&str; 7] = [
    "config",
    "hot_keys",
    "splits",
    "runtime::clock",
    "runtime::shared",
    "runtime::socket",
    "runtime::world",
];

/// Tests that drive a whole worker, or a room with what others make of it.
const TESTS: [&str; 6] = [
    "cluster/alone.rs",
    "downstream/order/tests.rs",
    "hot/alone.rs",
    "hot/interleavings.rs",
    "session/alone.rs",
    "upstream/alone.rs",
];

/// Imports that stand as exceptions, and why.
const EXCEPTIONS: [(&str, &str, &str); 4] = [
    (
        "downstream/connection.rs",
        "hot",
        "the record of a client has a field for what hot keys mean to it, which only `hot` looks into",
    ),
    (
        "downstream/connection.rs",
        "session",
        "it has fields for its session and its dedicated connection, too",
    ),
    (
        "downstream/connection.rs",
        "cluster",
        "and for its transaction, and what it has written that replicas may not have",
    ),
    (
        "downstream/directory.rs",
        "upstream::nodes",
        "a node's number, by which other workers find a client's dedicated connection",
    ),
];

fn source_files(dir: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("a folder of this crate") {
        let path = entry.expect("a file of this crate").path();
        if path.is_dir() {
            source_files(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// Each source file, by its path from the crate's root on.
fn sources() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    source_files(&root, &mut files);
    let name = |path: &PathBuf| {
        let within = path.strip_prefix(&root).expect("found there");
        within.to_string_lossy().replace('\\', "/")
    };
    files.iter().map(|path| (name(path), fs::read_to_string(path).expect("text"))).collect()
}

/// The room of a file, and how high it lies.
fn room_of(file: &str) -> Option<(&str, usize)> {
    let room = file.split('/').next()?.trim_end_matches(".rs");
    let layer = LAYERS.iter().position(|rooms| rooms.contains(&room))?;
    Some((room, layer))
}

/// Paths of this crate that a text names outside of comments, as `room::module` or `room`.
fn named(text: &str) -> BTreeSet<String> {
    let code = text.lines().map(str::trim_start).filter(|line| !line.starts_with("//"));
    let mut paths = BTreeSet::new();
    for line in code {
        for (at, _) in line.match_indices("crate::") {
            let path = &line[at + "crate::".len()..];
            let end = path.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
            let path = path[..end.unwrap_or(path.len())].trim_end_matches(':');
            let module: Vec<&str> = path.split("::").take(2).collect();
            paths.insert(module.join("::"));
        }
        if let Some(list) = line.strip_prefix("use crate::{") {
            let rooms = list.trim_end_matches("};").split(',').map(|room| room.trim().to_owned());
            paths.extend(rooms);
        }
    }
    paths
}

#[test]
fn no_room_knows_of_one_above_it() {
    let mut wrong = Vec::new();
    let mut used = BTreeSet::new();
    for (file, text) in sources() {
        let Some((own, layer)) = room_of(&file).filter(|_| !TESTS.contains(&&*file)) else {
            continue;
        };
        for path in named(&text) {
            if GROUND.iter().any(|ground| path.starts_with(ground)) {
                continue;
            }
            let as_file = path.replace("::", "/");
            let Some((room, of)) = room_of(&as_file) else { continue };
            let exception = EXCEPTIONS
                .iter()
                .position(|(of_file, to, _)| *of_file == file && path.starts_with(to));
            match exception {
                Some(exception) => drop(used.insert(exception)),
                None if of > layer || APART.contains(&(own, room)) => {
                    wrong.push(format!("{file} knows of {room}, by {path}"));
                }
                None => {}
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(used.len(), EXCEPTIONS.len(), "an exception that is none any more");
}

/// What all workers share has the cluster's map in it, which is not for the links to look into.
#[test]
fn the_links_look_into_no_map() {
    let looks = |(file, text): &(String, String)| {
        let code = text.lines().map(str::trim_start).filter(|line| !line.starts_with("//"));
        room_of(file).is_some_and(|(room, _)| room == "upstream")
            && code.into_iter().any(|line| line.contains(".cluster"))
    };
    let wrong: Vec<String> = sources().into_iter().filter(looks).map(|(file, _)| file).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_event_loop_has_its_methods_in_its_own_folder() {
    let is_elsewhere = |(file, text): &(String, String)| {
        !file.starts_with("runtime/") && text.lines().any(|line| line.starts_with("impl Worker "))
    };
    let elsewhere: Vec<String> =
        sources().into_iter().filter(is_elsewhere).map(|(file, _)| file).collect();
    assert!(elsewhere.is_empty(), "{elsewhere:#?}");
}

#[test]
fn a_name_in_a_comment_is_no_import() {
    let text = "//! [`crate::hot`]\nuse crate::relay::effects::Effect;\nuse crate::{cluster, hot};\n\
                    /// crate::decide\n    let client: crate::downstream::connection::Client;\n";
    let paths: Vec<String> = named(text).into_iter().filter(|path| !path.is_empty()).collect();
    assert_eq!(paths, ["cluster", "downstream::connection", "hot", "relay::effects"]);
}
