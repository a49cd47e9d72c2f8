//! `heatsink top`: the hot keys of a fleet, live in a terminal.
//!
//! It asks the admin API of any process of the fleet, proxy or aggregator, and survives the
//! restart of that process. Keys can be sorted by any column, looked at in detail, promoted and
//! demoted. It needs 80 columns and 24 lines, and makes do with less.
//!
//! Promised: it changes nothing without a confirmation; whatever a key is called, the terminal is
//! not disturbed by it; and the terminal is given back as it was, even after a panic.
//!
//! ```no_run
//! let options = heatsink_top::Options::new("http://127.0.0.1:9600");
//! if let Err(error) = heatsink_top::run(&options) {
//!     eprintln!("heatsink top: {error}");
//! }
//! ```

mod app;
mod draw;
mod model;
mod source;
mod terminal;

use std::fmt;
use std::io;
use std::time::Duration;

use heatsink_admin::client::{Client, ClientError};

/// What to look at, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// The admin address: `http://host:port`.
    pub admin: String,
    /// The bearer token, if the address wants one.
    pub token: Option<String>,
    /// From one look to the next.
    pub interval: Duration,
    /// Whether to use colours. Without them, what matters is bold or reversed.
    pub colours: bool,
}

impl Options {
    /// Looks at `admin` each second, with colours unless the environment has `NO_COLOR`.
    pub fn new(admin: impl Into<String>) -> Self {
        let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self {
            admin: admin.into(),
            token: None,
            interval: Duration::from_secs(1),
            colours: !no_colour,
        }
    }
}

/// Why there is nothing to see.
#[derive(Debug)]
pub enum TopError {
    /// The admin address did not answer, or refused, when it was first asked.
    Admin(ClientError),
    /// Input or output is no terminal.
    NoTerminal,
    /// The terminal failed.
    Terminal(io::Error),
}

impl fmt::Display for TopError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Admin(error) => error.fmt(f),
            Self::NoTerminal => f.write_str(
                "this is not a terminal; `heatsink keys list` prints the hot keys for scripts",
            ),
            Self::Terminal(error) => write!(f, "the terminal failed: {error}"),
        }
    }
}

impl std::error::Error for TopError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Admin(error) => Some(error),
            Self::NoTerminal => None,
            Self::Terminal(error) => Some(error),
        }
    }
}

/// Shows the fleet until the person quits.
pub fn run(options: &Options) -> Result<(), TopError> {
    use io::IsTerminal as _;
    let client = Client::new(&options.admin, options.token.as_deref())
        .map_err(TopError::Admin)?
        .with_timeout(Duration::from_secs(5));
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return Err(TopError::NoTerminal);
    }
    // A wrong address or token is better said at once than shown as a fleet that is away.
    let first = source::read(&client).map_err(TopError::Admin)?;
    terminal::run(client, options, first).map_err(TopError::Terminal)
}
