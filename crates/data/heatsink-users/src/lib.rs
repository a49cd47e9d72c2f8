//! The users file of `auth = "service"`, and the verification of passwords against it.
//!
//! - [`Users`]: the file, reloadable.
//! - [`Verifier`]: threads that do the deliberately slow verification away from the event
//!   loop, behind a bounded queue.
//! - [`hash`]: makes the line to put into the file.
//!
//! The file is TOML; hashes are PHC strings of Argon2id, several while a password rotates:
//!
//! ```toml
//! [[user]]
//! name = "app"
//! hash = "$argon2id$v=19$m=19456,t=2,p=1$..."
//!
//! [[user]]
//! name = "batch"
//! hashes = ["$argon2id$...", "$argon2id$..."]
//! enabled = false
//! ```
//!
//! Promises: a refusal takes as long for a user that does not exist as for a wrong password,
//! provided the hashes in the file share their parameters; a recent success is remembered as
//! a keyed digest (at most [`REMEMBERED_LIMIT`]), so that a storm of reconnections costs
//! microseconds each; an invalid file never replaces a valid one; no message quotes the file.
//!
//! ```
//! use heatsink_users::{Users, Verdict, Verifier, hash};
//! use std::sync::mpsc;
//!
//! let file = tempfile::NamedTempFile::new()?;
//! let text = format!("[[user]]\nname = \"app\"\nhash = \"{}\"\n", hash(b"secret"));
//! std::fs::write(file.path(), text)?;
//!
//! let users = Users::load(file.path())?;
//! let (sender, verdicts) = mpsc::channel();
//! let verifier = Verifier::start(users, 1, move |ticket: u32, verdict| {
//!     sender.send((ticket, verdict)).unwrap();
//! })?;
//! verifier.submit(7, b"app", b"secret")?;
//! assert_eq!(verdicts.recv()?, (7, Verdict::Granted));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod error;
mod file;
mod recent;
mod table;
mod verifier;

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use argon2::password_hash::PasswordHasher;
use argon2::password_hash::phc::PasswordHash;
use argon2::{Algorithm, Argon2, Params, Version};

pub use error::{UsersError, UsersProblem};
pub use recent::REMEMBERED_LIMIT;
pub use verifier::{
    Busy, NAME_LIMIT_BYTES, PASSWORD_LIMIT_BYTES, QUEUE_LIMIT_PER_THREAD, Verifier,
};

use table::Table;

/// What a verification says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// The user exists, is enabled, and this is a password of theirs.
    Granted,
    /// Anything else, on purpose without saying what.
    Refused,
}

/// The users of a file. Clones share it.
#[derive(Debug, Clone)]
pub struct Users {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    current: RwLock<Arc<Table>>,
}

impl Users {
    /// Reads and checks the file.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, UsersError> {
        let path = path.as_ref().to_owned();
        let current = RwLock::new(Arc::new(file::read(&path)?));
        Ok(Self { shared: Arc::new(Shared { path, current }) })
    }

    /// Reads the file again. If it is not valid, the users stay as they were. Remembered
    /// successes are forgotten. Verifications under way finish by the old file.
    pub fn reload(&self) -> Result<(), UsersError> {
        let fresh = Arc::new(file::read(&self.shared.path)?);
        *self.shared.current.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(())
    }

    /// How many users the file has, disabled ones included.
    pub fn user_count(&self) -> usize {
        self.table().user_count()
    }

    fn table(&self) -> Arc<Table> {
        Arc::clone(&self.shared.current.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Hashes a password for the users file: Argon2id with 19 MiB, two passes, one lane and a
/// random salt. Passwords over [`PASSWORD_LIMIT_BYTES`] can be hashed but never match.
pub fn hash(password: &[u8]) -> String {
    let params = Params::new(19_456, 2, 1, None).expect("constant parameters are in range");
    let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
    let hash: PasswordHash =
        argon2.hash_password(password).expect("a password of less than 4 GiB hashes");
    hash.to_string()
}
