//! Who reads: part of the identity of every entry and every flight.
//!
//! Called by: the proxy, which numbers its logins.
//! Invariant: two readers are equal only if the server would answer both with the same bytes.

/// A login: an ACL user and a database, numbered by the caller. A number is not used again
/// for another login.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LoginId(pub u32);

/// The protocol that a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// RESP2.
    Resp2,
    /// RESP3.
    Resp3,
}

/// What decides the bytes of a reply besides the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reader {
    /// ACL user and database.
    pub login: LoginId,
    /// Protocol of the client.
    pub protocol: Protocol,
}

impl Reader {
    /// A number that is different for different readers.
    #[inline]
    pub(crate) fn tag(self) -> u64 {
        u64::from(self.login.0) << 1 | u64::from(self.protocol == Protocol::Resp3)
    }
}
