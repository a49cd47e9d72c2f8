//! Files that may change. They are polled, since no notification works alike for a file that is
//! written in place, replaced by `rename`, or reached through a link that is switched over.
//!
//! Called by: `reload`.
//! Bound: one `stat` a file and look; contents are not read.
//! Invariant: a change is reported once, and only after two looks in a row have seen the same,
//! so that a file is not read while it is being written.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What tells one content of a file from another. `None`: it is not there.
pub(super) type Stamp = Option<(u64, u64, u64, (i64, i64), (i64, i64))>;

/// The stamp of `path`; links are followed.
pub(super) fn stamp(path: &Path) -> Stamp {
    let file = fs::metadata(path).ok()?;
    let (modified, changed) =
        ((file.mtime(), file.mtime_nsec()), (file.ctime(), file.ctime_nsec()));
    Some((file.dev(), file.ino(), file.size(), modified, changed))
}

/// Files that are watched.
#[derive(Debug)]
pub(super) struct Watch {
    paths: Vec<PathBuf>,
    known: Vec<Stamp>,
    /// What the last look saw, if it was not what is known.
    unsettled: Option<Vec<Stamp>>,
}

impl Watch {
    /// Watches `paths`; what is there now is known.
    pub(super) fn new(paths: Vec<PathBuf>) -> Self {
        let known = paths.iter().map(|path| stamp(path)).collect();
        Self { paths, known, unsettled: None }
    }

    /// What is there now is known.
    pub(super) fn settle(&mut self) {
        self.known = self.look();
        self.unsettled = None;
    }

    /// Looks; true if something has changed and come to rest. From then on it is known.
    pub(super) fn has_changed(&mut self) -> bool {
        let seen = self.look();
        if seen == self.known {
            self.unsettled = None;
            return false;
        }
        if self.unsettled.as_ref() == Some(&seen) {
            self.known = seen;
            self.unsettled = None;
            return true;
        }
        self.unsettled = Some(seen);
        false
    }

    fn look(&self) -> Vec<Stamp> {
        self.paths.iter().map(|path| stamp(path)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// Looks until there is an answer; a change takes two looks.
    fn looks(watch: &mut Watch) -> [bool; 3] {
        [watch.has_changed(), watch.has_changed(), watch.has_changed()]
    }

    #[test]
    fn a_change_is_reported_once_it_has_settled() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name: &str| directory.path().join(name);
        fs::write(at("file"), "one").expect("written");
        fs::create_dir(at("v1")).expect("made");
        fs::create_dir(at("v2")).expect("made");
        fs::write(at("v1/file"), "same").expect("written");
        fs::write(at("v2/file"), "same").expect("written");
        symlink("v1", at("current")).expect("linked");
        let mut watch = Watch::new(vec![at("file"), at("current/file"), at("missing")]);
        assert_eq!(looks(&mut watch), [false, false, false]);

        // Written in place.
        fs::write(at("file"), "longer").expect("written");
        assert_eq!(looks(&mut watch), [false, true, false]);
        // Replaced by another of the same length.
        fs::write(at("new"), "LONGER").expect("written");
        fs::rename(at("new"), at("file")).expect("renamed");
        assert_eq!(looks(&mut watch), [false, true, false]);
        // The directory it is in is switched over.
        symlink("v2", at("next")).expect("linked");
        fs::rename(at("next"), at("current")).expect("renamed");
        assert_eq!(looks(&mut watch), [false, true, false]);
        // It appears, it goes.
        fs::write(at("missing"), "").expect("written");
        assert_eq!(looks(&mut watch), [false, true, false]);
        fs::remove_file(at("missing")).expect("removed");
        assert_eq!(looks(&mut watch), [false, true, false]);
    }

    #[test]
    fn what_changes_at_every_look_is_waited_for() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("file");
        let mut watch = Watch::new(vec![path.clone()]);
        for len in 1..5 {
            fs::write(&path, "x".repeat(len)).expect("written");
            assert!(!watch.has_changed());
        }
        assert!(watch.has_changed());
        fs::write(&path, "settled").expect("written");
        watch.settle();
        assert!(!watch.has_changed() && !watch.has_changed());
    }
}
