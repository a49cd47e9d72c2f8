//! Cluster: stores on ports of this machine, with the slots divided among them.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;

use crate::cluster::Membership;
use crate::server::{Pace, Server, Setup};

/// A running cluster of primaries without replicas; it stops when dropped.
///
/// ```
/// use std::io::{Read, Write};
/// use heatsink_embedded::{Cluster, Pace};
///
/// let cluster = Cluster::start(3, Pace::default())?;
/// let mut first = std::net::TcpStream::connect(cluster.addresses()[0])?;
/// first.write_all(b"GET foo\r\n")?;
/// let mut reply = [0; 12];
/// first.read_exact(&mut reply)?;
/// assert_eq!(&reply, b"-MOVED 12182"); // and where the last node is
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Cluster {
    addresses: Arc<[SocketAddr]>,
    nodes: Vec<Server>,
}

impl Cluster {
    /// Starts this many nodes, each of them as fast as `pace` says, on free ports.
    pub fn start(nodes: usize, pace: Pace) -> io::Result<Self> {
        if nodes == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a cluster has nodes"));
        }
        let bind = |_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        let listeners = (0..nodes).map(bind).collect::<io::Result<Vec<_>>>()?;
        let addresses: Arc<[SocketAddr]> =
            listeners.iter().map(TcpListener::local_addr).collect::<io::Result<_>>()?;
        let start = |(own, listener)| {
            let membership = Some(Membership::new(Arc::clone(&addresses), own));
            let listener = Some(listener);
            Server::start_with(Setup { seed: fastrand::u64(..), listener, membership, pace })
        };
        let nodes = listeners.into_iter().enumerate().map(start).collect::<io::Result<_>>()?;
        Ok(Self { addresses, nodes })
    }

    /// Where the nodes listen.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The stores themselves, in the order of their slots.
    pub fn nodes(&self) -> &[Server] {
        &self.nodes
    }
}
