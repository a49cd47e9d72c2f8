//! What can go wrong with a sentinel, said once per change.

use std::collections::HashMap;
use std::fmt;

use tracing::{debug, warn};

use super::SocketName;
use crate::error::LinkError;

/// Why a sentinel was of no use.
#[derive(Debug)]
pub(super) enum Trouble {
    /// Not reached, lost, or it answered with an error.
    Link(LinkError),
    /// It watches no primary of that name.
    UnknownName,
}

impl From<LinkError> for Trouble {
    fn from(error: LinkError) -> Self {
        Self::Link(error)
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Link(error) = self else {
            return f.write_str("it watches no primary of that name");
        };
        error.fmt(f)?;
        match error {
            LinkError::Refused(text) if text.starts_with(b"NOAUTH") => {
                f.write_str(" (sentinel_password is missing in the URL)")
            }
            LinkError::Refused(text) if text.starts_with(b"WRONGPASS") => {
                f.write_str(" (sentinel_user or sentinel_password in the URL is wrong)")
            }
            _ => Ok(()),
        }
    }
}

/// The last trouble with each sentinel, so that it is not told again and again.
/// Bound: the sentinels known.
#[derive(Default)]
pub(super) struct Troubles(HashMap<SocketName, String>);

impl Troubles {
    /// Tells of a trouble if it is a new one.
    pub(super) fn occurred(&mut self, name: &str, sentinel: &SocketName, trouble: &Trouble) {
        let text = trouble.to_string();
        if self.is_news(sentinel, &text) {
            warn!(%sentinel, primary = name, "sentinel of no use: {text}");
        } else {
            debug!(%sentinel, primary = name, "sentinel still of no use: {text}");
        }
    }

    /// A sentinel works: its next trouble is news.
    pub(super) fn over(&mut self, sentinel: &SocketName) {
        self.0.remove(sentinel);
    }

    /// Forgets sentinels that are gone.
    pub(super) fn keep(&mut self, sentinels: &[SocketName]) {
        self.0.retain(|sentinel, _| sentinels.contains(sentinel));
    }

    fn is_news(&mut self, sentinel: &SocketName, text: &str) -> bool {
        match self.0.insert(sentinel.clone(), text.to_owned()) {
            None => true,
            Some(last) => last != text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trouble_is_news_once_until_it_changes_or_is_over() {
        let sentinel = SocketName { host: "h".to_owned(), port: 1 };
        let mut troubles = Troubles::default();
        assert!(troubles.is_news(&sentinel, "refused"));
        assert!(!troubles.is_news(&sentinel, "refused"));
        assert!(troubles.is_news(&sentinel, "silent"));
        troubles.over(&sentinel);
        assert!(troubles.is_news(&sentinel, "silent"));
        troubles.keep(&[]);
        assert!(troubles.is_news(&sentinel, "silent"));
    }

    #[test]
    fn what_is_wrong_with_the_url_is_said() {
        for (reply, advice) in [
            ("NOAUTH Authentication required.", "sentinel_password is missing"),
            ("WRONGPASS invalid username-password pair", "sentinel_password in the URL is wrong"),
        ] {
            let text = Trouble::from(LinkError::Refused(reply.into())).to_string();
            assert!(text.contains(reply) && text.contains(advice), "{text}");
        }
    }
}
