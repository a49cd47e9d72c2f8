//! Names of what a move needs besides the shards, and the manifest.

use std::fmt::Write as _;

use heatsink_cluster::slot;
use heatsink_split::{Kind, Layout, placement};
use serde::{Deserialize, Serialize};

/// A split as the upstream's index has it: enough to make the key whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    /// The key, in hexadecimal.
    key: String,
    kind: String,
    tags: Vec<String>,
    #[serde(default)]
    expires: bool,
    /// When it was written, for people to see.
    at_ms: u64,
}

impl Manifest {
    pub(crate) fn new(key: &[u8], kind: Kind, tags: &[String], expires: bool, at_ms: u64) -> Self {
        let mut hexadecimal = String::with_capacity(2 * key.len());
        for byte in key {
            // Writing to a `String` cannot fail.
            let _ = write!(hexadecimal, "{byte:02x}");
        }
        Self { key: hexadecimal, kind: kind.name().to_owned(), tags: tags.to_vec(), expires, at_ms }
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// The key and the layout of a field of the index; none if it is not understood.
    pub(crate) fn read(id: &[u8], body: &[u8]) -> Option<Known> {
        let manifest: Self = serde_json::from_slice(body).ok()?;
        let id = std::str::from_utf8(id).ok()?;
        let key = manifest.key.as_bytes();
        let byte = |two: &[u8]| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok();
        if !key.len().is_multiple_of(2) {
            return None;
        }
        let key: Vec<u8> = key.chunks(2).map(byte).collect::<Option<_>>()?;
        let kind = Kind::from_name(&manifest.kind)?;
        if manifest.tags.is_empty() {
            return None;
        }
        let layout = Layout::new(id, kind, manifest.expires, &manifest.tags);
        Some(Known { key, layout, tags: manifest.tags })
    }
}

/// A split that is known from the index.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Known {
    pub(crate) key: Vec<u8>,
    pub(crate) layout: Layout,
    pub(crate) tags: Vec<String>,
}

/// The index of all splits.
pub(crate) fn index(namespace: &str) -> Vec<u8> {
    format!("heatsink:{{{namespace}}}:splits").into_bytes()
}

/// An id that is never used again.
pub(crate) fn new_id(now_ms: u64) -> String {
    format!("{now_ms:x}-{:08x}", fastrand::u32(..))
}

/// When an id was made, in milliseconds of Unix time by the clock of whoever made it.
pub(crate) fn time(id: &str) -> u64 {
    let time = id.split_once('-').and_then(|(time, _)| u64::from_str_radix(time, 16).ok());
    time.unwrap_or(0)
}

/// Where one attempt builds the whole value.
pub(crate) fn whole(key: &[u8], id: &str) -> Vec<u8> {
    let what = format!("whole:{:08x}", fastrand::u32(..));
    placement::name_in_slot(slot::of_key(key), id, &what)
}

/// What is left beside a key for a while when its value was made whole there.
pub(crate) fn proof(key: &[u8], id: &str) -> Vec<u8> {
    placement::name_in_slot(slot::of_key(key), id, "made-whole")
}

#[cfg(test)]
mod tests {
    use heatsink_control::policy;
    use heatsink_split::layout;

    use super::*;

    #[test]
    fn names_beside_a_key_share_its_slot_whatever_is_in_it() {
        for key in [b"plain".as_slice(), b"{tag}rest", b"a}b", b"{}", b"\xff{", b""] {
            for name in [placement::permit_name(key, "id"), whole(key, "id"), proof(key, "id")] {
                assert_eq!(slot::of_key(&name), slot::of_key(key), "{key:?}");
            }
        }
    }

    #[test]
    fn whatever_is_kept_for_a_split_or_a_copy_is_known_as_our_own() {
        let layout = Layout::new("id", Kind::Set, false, &["a", "b"]);
        let copy = layout::copy_name("a", "id", 0);
        let names = [
            layout.name(1, layout::Names::Live).to_vec(),
            layout.name(1, layout::Names::Sealed).to_vec(),
            layout::lock_name(&copy),
            layout::writers_name(&copy),
            copy,
            index("default"),
            whole(b"k", "id"),
            proof(b"k", "id"),
            placement::permit_name(b"k", "id"),
        ];
        for name in names {
            assert!(policy::is_own(&name), "{}", String::from_utf8_lossy(&name));
        }
    }

    #[test]
    fn a_manifest_is_read_as_it_was_written() {
        let tags = vec!["a".to_owned(), "b".to_owned()];
        let manifest = Manifest::new(b"k\xff\0", Kind::Set, &tags, true, 5);
        let known = Manifest::read(b"id", &manifest.to_bytes()).expect("understood");
        assert_eq!(known.key, b"k\xff\0");
        assert_eq!(known.layout, Layout::new("id", Kind::Set, true, &tags));
        assert_eq!(Manifest::read(b"id", b"{}"), None);
    }
}
