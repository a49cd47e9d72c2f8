//! What the workers of one proxy have in common: read-mostly, or touched only when a
//! connection comes or goes.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use heatsink_resp::command::CommandTable;
use heatsink_upstream::dialer::Dialer;
use mio::Waker;

use crate::config::Config;
use crate::connection::ClientKey;
use crate::directory::Directory;

/// What a worker is told by others.
#[derive(Debug)]
pub(crate) enum Message {
    /// A new client.
    Accept(std::net::TcpStream, std::net::SocketAddr),
    /// Close a client.
    Kill(ClientKey),
    /// Take no more requests, answer what is in flight, be done by then.
    Drain(Instant),
}

/// A worker's letterbox.
#[derive(Debug)]
pub(crate) struct Mailbox {
    pub(crate) sender: Sender<Message>,
    pub(crate) waker: Arc<Waker>,
}

impl Mailbox {
    /// Delivers a message; a worker that has ended takes no more.
    pub(crate) fn send(&self, message: Message) {
        if self.sender.send(message).is_ok()
            && let Err(error) = self.waker.wake()
        {
            tracing::error!(%error, "a worker could not be woken");
        }
    }
}

/// What the workers have in common.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) dialer: Dialer,
    pub(crate) directory: Directory,
    pub(crate) mailboxes: Vec<Mailbox>,
    pub(crate) client_count: AtomicUsize,
    /// Requests that were not answered when the time to drain was over.
    pub(crate) unanswered: AtomicUsize,
    table: RwLock<Arc<CommandTable>>,
    /// Changes with the table; workers look at it once a turn.
    pub(crate) table_version: AtomicU64,
    /// Some worker has asked the server for its commands since it was last lost.
    pub(crate) table_asked: AtomicBool,
}

impl Shared {
    pub(crate) fn new(config: Config, mailboxes: Vec<Mailbox>) -> Self {
        Self {
            dialer: Dialer::new(config.upstream.endpoint.clone()),
            config,
            directory: Directory::default(),
            mailboxes,
            client_count: AtomicUsize::new(0),
            unanswered: AtomicUsize::new(0),
            table: RwLock::new(Arc::new(CommandTable::default())),
            table_version: AtomicU64::new(0),
            table_asked: AtomicBool::new(false),
        }
    }

    pub(crate) fn table(&self) -> Arc<CommandTable> {
        Arc::clone(&self.table.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn publish_table(&self, table: CommandTable) {
        *self.table.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(table);
        self.table_version.fetch_add(1, Ordering::Release);
    }
}
