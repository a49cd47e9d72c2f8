//! The old side: waits at the path and gives the sockets to whoever may have them.
//!
//! Called by: `serve`, once its proxy runs.
//! Bound: one successor at a time, which has [`START_PATIENCE`] to become ready.
//! Invariant: the path is replaced whole, so that it leads to one process at any time; it is
//! removed at the end only while it leads to this one.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use tracing::{info, warn};

use super::super::events::Announcer;
use super::wire::{self, Sockets};

/// How long a process may take from getting the sockets to serving on them.
const START_PATIENCE: Duration = Duration::from_secs(60);
/// After an error of `accept`, such as no descriptor being left.
const PAUSE: Duration = Duration::from_millis(100);

/// A socket that listens beside the path, and is moved there when its time has come.
pub(in super::super) struct Place {
    path: PathBuf,
    temporary: PathBuf,
    listener: UnixListener,
}

impl Place {
    /// Listens beside `path`. Nothing is changed there yet.
    pub(in super::super) fn prepare(path: &Path) -> io::Result<Self> {
        match fs::symlink_metadata(path) {
            Ok(there) if !there.file_type().is_socket() => {
                let text = "there is something else than a socket";
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
            }
            _ => {}
        }
        let mut temporary = path.as_os_str().to_owned();
        temporary.push(format!(".{}", process::id()));
        let temporary = PathBuf::from(temporary);
        // Of a process that had this id and was killed; in a container that is every one.
        let _ = fs::remove_file(&temporary);
        let listener = UnixListener::bind(&temporary)?;
        let place = Self { path: path.to_owned(), temporary, listener };
        fs::set_permissions(&place.temporary, Permissions::from_mode(0o600))?;
        Ok(place)
    }

    /// Takes over the path and offers `sockets` there. A successor that is ready is announced.
    pub(in super::super) fn publish(
        self,
        sockets: Sockets,
        mut announcer: Announcer,
    ) -> io::Result<Offer> {
        let identity = identity(&self.temporary);
        fs::rename(&self.temporary, &self.path)?;
        let sockets = Arc::new(Mutex::new(Some(sockets)));
        let offer =
            Offer { path: self.path.clone(), identity, sockets: sockets.clone(), given: false };
        let listener = self.listener.try_clone()?;
        let serve = move || {
            if let Some(successor) = wait_for_successor(&listener, &sockets) {
                announcer.announce(successor);
            }
        };
        thread::Builder::new().name("handover".to_owned()).spawn(serve)?;
        Ok(offer)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // It is not there any more if it was published.
        let _ = fs::remove_file(&self.temporary);
    }
}

/// A path at which sockets are offered. Dropped, it offers nothing any more.
pub(in super::super) struct Offer {
    path: PathBuf,
    identity: Option<(u64, u64)>,
    sockets: Arc<Mutex<Option<Sockets>>>,
    given: bool,
}

impl Offer {
    /// A successor has them: the path is its business.
    pub(in super::super) fn given(mut self) {
        self.given = true;
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner).take();
        if !self.given && self.identity.is_some() && identity(&self.path) == self.identity {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|there| (there.dev(), there.ino()))
}

fn wait_for_successor(
    listener: &UnixListener,
    sockets: &Mutex<Option<Sockets>>,
) -> Option<UnixStream> {
    loop {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) => {
                warn!(%error, "cannot accept a successor");
                thread::sleep(PAUSE);
                continue;
            }
        };
        if let Err(error) = wire::check_peer(&stream) {
            warn!(%error, "refused to hand over");
            continue;
        }
        let sent = match sockets.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
            Some(sockets) => wire::send_sockets(&stream, sockets),
            None => return None,
        };
        info!("a new process asks to take over");
        let heard = sent
            .and_then(|()| stream.set_read_timeout(Some(START_PATIENCE)))
            .and_then(|()| wire::hear_ready(&stream));
        match heard {
            Ok(()) => return Some(stream),
            Err(error) => warn!(%error, "the new process did not become ready; going on"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_no_socket_is_left_alone() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("h.sock");
        fs::write(&path, "precious").expect("written");
        let error = Place::prepare(&path).err().expect("refused");
        assert_eq!(error.to_string(), "there is something else than a socket");
        assert_eq!(fs::read(&path).expect("still there"), b"precious");
    }

    #[test]
    fn a_place_that_is_not_published_leaves_nothing() {
        let directory = tempfile::tempdir().expect("a directory");
        let place = Place::prepare(&directory.path().join("h.sock")).expect("a place");
        let mode = fs::metadata(&place.temporary).expect("bound").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        drop(place);
        assert_eq!(fs::read_dir(directory.path()).expect("readable").count(), 0);
    }
}
