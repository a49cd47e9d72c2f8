//! Why an upstream connection could not be had or was lost.

use std::fmt;
use std::io;

/// What ended a link. `Display` is meant for the client that waited: short and exact.
#[derive(Debug)]
pub enum LinkError {
    /// The connection could not be opened.
    Connect(io::Error),
    /// Connecting, or the greeting behind it, took too long.
    ConnectTimeout,
    /// The server did not answer the TLS handshake in time.
    TlsTimeout,
    /// The server closed the connection before it said anything, and was not spoken to in TLS.
    Mute,
    /// Another server has taken this one's place; `ready` says whether requests had gone out.
    Replaced {
        /// Requests had gone out.
        ready: bool,
    },
    /// The server refused the greeting; its own error, without the leading `-`.
    Refused(Vec<u8>),
    /// The server closed the connection.
    Closed,
    /// Reading or writing failed.
    Io(io::Error),
    /// Requests waited and the server sent nothing for too long.
    Silent,
    /// The server sent something that is not RESP, or a reply nobody asked for.
    Garbled,
}

impl LinkError {
    /// True if the connection was never usable, so that no request can have reached the
    /// server over it.
    pub fn before_ready(&self) -> bool {
        matches!(
            self,
            Self::Connect(_)
                | Self::ConnectTimeout
                | Self::TlsTimeout
                | Self::Mute
                | Self::Replaced { ready: false }
                | Self::Refused(_)
        )
    }
}

impl LinkError {
    /// True if the server does not know something that the greeting asked for, whoever asks:
    /// the command, or the protocol.
    pub fn is_unsupported(&self) -> bool {
        let Self::Refused(error) = self else { return false };
        let text = error.to_ascii_lowercase();
        let says = |words: &[u8]| text.windows(words.len()).any(|window| window == words);
        let words: [&[u8]; 4] = [b"unknown", b"unsupported", b"not supported", b"invalid request"];
        text.starts_with(b"noproto") || text.starts_with(b"err") && words.into_iter().any(says)
    }

    /// True if the server knows what the greeting asked for and does not allow it to this user.
    pub fn is_not_allowed(&self) -> bool {
        matches!(self, Self::Refused(error) if error.starts_with(b"NOPERM"))
    }

    /// True if the server is there, but not for who or what the greeting named: a user, a
    /// password, a database, a protocol.
    pub fn is_refused_login(&self) -> bool {
        let Self::Refused(error) = self else { return false };
        let kind = error.split(|byte| *byte == b' ').next().unwrap_or_default();
        match kind {
            b"WRONGPASS" | b"NOPERM" | b"NOAUTH" | b"NOPROTO" => true,
            // Passwords of old servers, and databases.
            b"ERR" => !error.starts_with(b"ERR max number of clients reached"),
            _ => false,
        }
    }
}

/// What kind of trouble a connection had, for whoever counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// Nobody listens there.
    Refused,
    /// No answer in time, to the greeting or to a request.
    Timeout,
    /// The connection broke while it was in use.
    Lost,
    /// The server refused the login.
    Auth,
    /// The server is still loading its data.
    Loading,
    /// The server has as many clients as it takes.
    MaxClients,
    /// The address is not known: a name that is not found, a primary that no sentinel names.
    Address,
    /// What came is not RESP, or not TLS.
    Protocol,
    /// Another server has taken this one's place.
    Replaced,
    /// Anything else, such as a network that cannot be reached.
    Other,
}

impl ErrorKind {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 10] = [
        Self::Refused,
        Self::Timeout,
        Self::Lost,
        Self::Auth,
        Self::Loading,
        Self::MaxClients,
        Self::Address,
        Self::Protocol,
        Self::Replaced,
        Self::Other,
    ];

    /// Its name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Timeout => "timeout",
            Self::Lost => "lost",
            Self::Auth => "auth",
            Self::Loading => "loading",
            Self::MaxClients => "max_clients",
            Self::Address => "address",
            Self::Protocol => "protocol",
            Self::Replaced => "replaced",
            Self::Other => "other",
        }
    }
}

impl LinkError {
    /// What kind of trouble it is.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Connect(error) => match error.kind() {
                io::ErrorKind::ConnectionRefused => ErrorKind::Refused,
                io::ErrorKind::TimedOut => ErrorKind::Timeout,
                io::ErrorKind::NotFound => ErrorKind::Address,
                io::ErrorKind::InvalidData => ErrorKind::Protocol,
                _ => ErrorKind::Other,
            },
            Self::ConnectTimeout | Self::TlsTimeout | Self::Silent => ErrorKind::Timeout,
            Self::Mute | Self::Garbled => ErrorKind::Protocol,
            Self::Closed | Self::Io(_) => ErrorKind::Lost,
            Self::Replaced { .. } => ErrorKind::Replaced,
            Self::Refused(text) if text.starts_with(b"LOADING") => ErrorKind::Loading,
            Self::Refused(text) if text.starts_with(b"ERR max number of clients") => {
                ErrorKind::MaxClients
            }
            Self::Refused(_) if self.is_refused_login() => ErrorKind::Auth,
            Self::Refused(_) => ErrorKind::Other,
        }
    }
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(error) | Self::Io(error) => f.write_str(&describe(error)),
            Self::ConnectTimeout => f.write_str("connection timed out"),
            Self::TlsTimeout => {
                f.write_str("no answer to the TLS handshake in time; does it speak TLS?")
            }
            Self::Mute => f.write_str("connection closed without a word; does it expect TLS?"),
            Self::Replaced { .. } => f.write_str("it is no longer the primary"),
            Self::Refused(error) => {
                write!(f, "refused by the server: {}", String::from_utf8_lossy(error))
            }
            Self::Closed => f.write_str("connection closed by the server"),
            Self::Silent => f.write_str("no answer in time"),
            Self::Garbled => f.write_str("the server sent something that is not RESP"),
        }
    }
}

impl std::error::Error for LinkError {}

/// The text of an I/O error without its number.
fn describe(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        io::ErrorKind::ConnectionReset => "connection reset by the server".to_owned(),
        io::ErrorKind::BrokenPipe => "connection closed by the server".to_owned(),
        io::ErrorKind::TimedOut => "connection timed out".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_does_not_know_is_told_from_what_a_user_may_not() {
        let refused = |error: &str| LinkError::Refused(error.into());
        for error in [
            "ERR unknown command `HELLO`, with args beginning with: `3`, ",
            "ERR unknown command 'CLIENT', with args beginning with: 'TRACKING' 'ON' ",
            "ERR Unknown subcommand or wrong number of arguments for 'TRACKING'. Try CLIENT HELP.",
            "NOPROTO unsupported protocol version",
        ] {
            assert!(refused(error).is_unsupported(), "{error}");
            assert!(!refused(error).is_not_allowed(), "{error}");
        }
        let error = "NOPERM this user has no permissions to run the 'client|tracking' command";
        assert!(refused(error).is_not_allowed() && !refused(error).is_unsupported());
        for error in [
            "ERR max number of clients reached",
            "ERR DB index is out of range",
            "LOADING Redis is loading the dataset in memory",
            "NOAUTH HELLO must be called with the client already authenticated",
            "WRONGPASS invalid username-password pair or user is disabled.",
            "",
        ] {
            assert!(!refused(error).is_unsupported() && !refused(error).is_not_allowed());
        }
        assert!(!LinkError::Closed.is_unsupported());
    }

    #[test]
    fn a_server_that_takes_nobody_has_not_refused_a_login() {
        let refused = |error: &str| LinkError::Refused(error.into()).is_refused_login();
        for error in [
            "WRONGPASS invalid username-password pair or user is disabled.",
            "NOAUTH HELLO must be called with the client already authenticated",
            "ERR invalid password",
            "ERR DB index is out of range",
            "NOPERM this user has no permissions to run the 'select' command",
        ] {
            assert!(refused(error), "{error}");
        }
        for error in [
            "ERR max number of clients reached",
            "ERR max number of clients reached + cluster connections",
            "DENIED Redis is running in protected mode",
            "LOADING Redis is loading the dataset in memory",
            "",
        ] {
            assert!(!refused(error), "{error}");
        }
        assert!(!LinkError::Closed.is_refused_login());
    }

    #[test]
    fn kinds_are_numbered_and_named_apart() {
        for (number, kind) in ErrorKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, number);
            assert!(ErrorKind::ALL.iter().filter(|one| one.name() == kind.name()).count() == 1);
        }
        let refused = |error: &str| LinkError::Refused(error.into()).kind();
        assert_eq!(refused("LOADING Redis is loading"), ErrorKind::Loading);
        assert_eq!(refused("WRONGPASS invalid"), ErrorKind::Auth);
        assert_eq!(refused("ERR max number of clients reached"), ErrorKind::MaxClients);
        let connect = |kind: io::ErrorKind| LinkError::Connect(kind.into()).kind();
        assert_eq!(connect(io::ErrorKind::ConnectionRefused), ErrorKind::Refused);
        assert_eq!(connect(io::ErrorKind::HostUnreachable), ErrorKind::Other);
    }
}
