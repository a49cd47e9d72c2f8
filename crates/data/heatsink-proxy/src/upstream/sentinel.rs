//! Follows the primary that sentinels tell of: its connections lead there from then on.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use heatsink_tls::ClientTls;
use heatsink_upstream::address::{Endpoint, SentinelUrl};
use heatsink_upstream::sentinel::{Connector, ReadWrite, SentinelWatch};

use crate::runtime::shared::{Message, Shared};
use crate::upstream::nodes::NodeId;

/// How often the sentinels are asked without a reason.
const POLL: Duration = Duration::from_secs(1);

/// Starts to watch; the watch lives as long as `shared`. Waits for the first answer of the
/// sentinels as long as for a connection, so that no client comes too early.
pub(crate) fn watch(
    url: SentinelUrl,
    tls: Option<&ClientTls>,
    shared: &Arc<Shared>,
) -> io::Result<()> {
    let connector = tls.cloned().map(|tls| -> Connector {
        Arc::new(move |stream: TcpStream, host: &str| {
            let stream: Box<dyn ReadWrite> = Box::new(tls.connect_blocking(stream, host)?);
            Ok(stream)
        })
    });
    let timeout = shared.live().timeouts.connect;
    let told = Arc::downgrade(shared);
    let (found, first) = mpsc::channel();
    let watch = SentinelWatch::start(url, timeout, POLL, connector, move |primary| {
        let Some(shared) = told.upgrade() else { return };
        tracing::info!("the primary is {}:{}", primary.host, primary.port);
        let nodes = shared.nodes.all();
        if let Some(node) = nodes.get(NodeId::FIRST.index()) {
            node.dialer.move_to(Endpoint::tcp(&primary.host, primary.port));
        }
        for mailbox in &shared.mailboxes {
            mailbox.send(Message::PrimaryMoved);
        }
        let _ = found.send(());
    })?;
    let _ = shared.sentinel.set(watch);
    if first.recv_timeout(timeout).is_err() {
        tracing::warn!("no sentinel has told where the primary is yet");
    }
    Ok(())
}
