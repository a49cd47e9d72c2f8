//! Names of what a move needs besides the shards, and the manifest.

use std::fmt::Write as _;

use heatsink_cluster::slot;
use heatsink_split::{Kind, Layout, placement};
use serde::{Deserialize, Serialize};

/// The end of the ids of splits whose shards have guards; no hexadecimal digit.
const GUARDED: &str = "g";

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
    pub(crate) fn new(key: &[u8], layout: &Layout, at_ms: u64) -> Self {
        let mut hexadecimal = String::with_capacity(2 * key.len());
        for byte in key {
            // Writing to a `String` cannot fail.
            let _ = write!(hexadecimal, "{byte:02x}");
        }
        Self {
            key: hexadecimal,
            kind: layout.kind.name().to_owned(),
            tags: (0..layout.len()).map(|shard| layout.tag(shard).to_owned()).collect(),
            expires: layout.expires,
            at_ms,
        }
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

/// The same for a split, whose shards have guards. Those of earlier releases have none, and other
/// ids.
pub(crate) fn new_split_id(now_ms: u64) -> String {
    new_id(now_ms) + GUARDED
}

/// Whether the shards of the split with this id have guards.
pub(crate) fn is_guarded(id: &str) -> bool {
    id.ends_with(GUARDED)
}

/// When an id was made, in milliseconds of Unix time by the clock of whoever made it.
pub(crate) fn time(id: &str) -> u64 {
    let time = id.split_once('-').and_then(|(time, _)| u64::from_str_radix(time, 16).ok());
    time.unwrap_or(0)
}

/// Where an attempt builds the whole value.
pub(crate) fn whole(key: &[u8], id: &str, attempt: &str) -> Vec<u8> {
    placement::name_in_slot(slot::of_key(key), id, &format!("whole:{attempt}"))
}

/// The attempts at a whole value that were begun, so that what dead movers left can be removed.
pub(crate) fn attempts(key: &[u8], id: &str) -> Vec<u8> {
    placement::name_in_slot(slot::of_key(key), id, "attempts")
}

/// What a [`proof`] says.
pub(crate) const MADE_WHOLE: &[u8] = b"1";
pub(crate) const EVICTED: &[u8] = b"evicted";

/// What is left beside a key for a while when its value was made whole there, or was evicted in part.
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
            for name in [
                placement::permit_name(key, "id"),
                whole(key, "id", "1"),
                attempts(key, "id"),
                placement::manifest_name(key, "id"),
                proof(key, "id"),
            ] {
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
            layout.guard(1),
            whole(b"k", "id", "1"),
            attempts(b"k", "id"),
            placement::manifest_name(b"k", "id"),
            proof(b"k", "id"),
            placement::permit_name(b"k", "id"),
        ];
        for name in names {
            assert!(policy::is_own(&name), "{}", String::from_utf8_lossy(&name));
        }
    }

    #[test]
    fn ids_tell_when_they_were_made_and_of_guards() {
        let id = new_split_id(0x19f_2c1a_77d0);
        assert_eq!(time(&id), 0x19f_2c1a_77d0);
        assert!(is_guarded(&id));
        assert!(!is_guarded(&new_id(5)), "one of an earlier release");
    }

    #[test]
    fn a_manifest_is_read_as_it_was_written() {
        let layout = Layout::new("id", Kind::Set, true, &["a", "b"]);
        let manifest = Manifest::new(b"k\xff\0", &layout, 5);
        let known = Manifest::read(b"id", &manifest.to_bytes()).expect("understood");
        assert_eq!(known.key, b"k\xff\0");
        assert_eq!(known.layout, layout);
        assert_eq!(known.tags, ["a", "b"]);
        assert_eq!(Manifest::read(b"id", b"{}"), None);
    }
}
