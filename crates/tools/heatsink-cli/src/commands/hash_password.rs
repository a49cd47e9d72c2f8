//! `heatsink hash-password`: a line for the users file.
//!
//! The password comes from stdin, since arguments and variables of a process can be read by
//! others on the machine. On a terminal it is shown as it is typed; a pipe does not show it.
//! Bound: the length that a password of a login may have.

use std::io::{self, Read, Write};

use heatsink_users::PASSWORD_LIMIT_BYTES;

use crate::exit::Failure;

/// Reads a password, prints its hash.
pub(crate) fn run() -> Result<(), Failure> {
    let mut password = Vec::new();
    io::stdin()
        .take(PASSWORD_LIMIT_BYTES as u64 + 2)
        .read_to_end(&mut password)
        .map_err(|error| Failure::Runtime(format!("cannot read from stdin: {error}")))?;
    if password.last() == Some(&b'\n') {
        password.pop();
    }
    if password.is_empty() {
        return Err(Failure::Runtime("no password on stdin".to_owned()));
    }
    if password.len() > PASSWORD_LIMIT_BYTES {
        let text = format!("a password of more than {PASSWORD_LIMIT_BYTES} bytes never matches");
        return Err(Failure::Runtime(text));
    }
    writeln!(io::stdout(), "hash = \"{}\"", heatsink_users::hash(&password))
        .map_err(|error| Failure::Runtime(format!("cannot write to stdout: {error}")))
}
