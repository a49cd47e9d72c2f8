//! Opens connections to one endpoint, without ever blocking a worker on a name lookup.
//!
//! Called by: workers, when a link is needed.
//! A host name is resolved once at start and again, on a thread of its own, after every
//! address it gave has failed; addresses are tried in turn.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread;
use std::time::Duration;

use heatsink_tls::ClientTls;
use mio::net::{TcpStream, UnixStream};
use socket2::SockRef;

use crate::address::Endpoint;
use crate::connection::Connection;
use crate::stream::Stream;
use crate::watched::Watched;

/// Opens connections to one endpoint; shared by all workers.
#[derive(Debug)]
pub struct Dialer {
    endpoint: Arc<RwLock<Endpoint>>,
    tls: Option<ClientTls>,
    addresses: Arc<Mutex<Addresses>>,
    resolving: Arc<AtomicBool>,
}

#[derive(Debug, Default)]
struct Addresses {
    list: Vec<SocketAddr>,
    /// The one to try next.
    next: usize,
}

impl Dialer {
    /// Resolves the endpoint's name, if it has one. A name that cannot be resolved now is
    /// not an error: connections fail until it can be.
    pub fn new(endpoint: Endpoint, tls: Option<ClientTls>) -> Self {
        let list = resolve(&endpoint).unwrap_or_default();
        Self {
            endpoint: Arc::new(RwLock::new(endpoint)),
            tls,
            addresses: Arc::new(Mutex::new(Addresses { list, next: 0 })),
            resolving: Arc::default(),
        }
    }

    /// The same without waiting for the resolution of a name.
    pub fn unresolved(endpoint: Endpoint, tls: Option<ClientTls>) -> Self {
        let dialer = Self::new(Endpoint::Unknown(String::new()), tls);
        dialer.move_to(endpoint);
        dialer
    }

    /// Where this leads.
    pub fn endpoint(&self) -> Endpoint {
        self.endpoint.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// From now on this leads elsewhere. Connections that are open stay as they are.
    pub fn move_to(&self, endpoint: Endpoint) {
        let list = match &endpoint {
            Endpoint::Tcp { host, port } => host.parse().map(|ip| SocketAddr::new(ip, *port)).ok(),
            Endpoint::InProcess(_) | Endpoint::Unknown(_) => None,
        };
        {
            let mut addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
            *self.endpoint.write().unwrap_or_else(PoisonError::into_inner) = endpoint;
            *addresses = Addresses { list: list.into_iter().collect(), next: 0 };
        }
        self.resolve_again();
    }

    /// Starts to connect.
    pub fn open(&self) -> io::Result<Connection> {
        let endpoint = self.endpoint();
        if let Endpoint::InProcess(store) = &endpoint {
            let stream = store.dial()?;
            stream.set_nonblocking(true)?;
            let stream = Stream::Unix(Watched::new(UnixStream::from_std(stream)));
            return Ok(Connection { stream, address: None });
        }
        let address = {
            let addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
            addresses.list.get(addresses.next).copied()
        };
        let Some(address) = address else {
            self.resolve_again();
            let text = match endpoint {
                Endpoint::Unknown(_) => "its address is not known yet",
                _ => "host name not found",
            };
            return Err(io::Error::new(io::ErrorKind::NotFound, text));
        };
        let stream = TcpStream::connect(address).inspect_err(|_| self.failed(address))?;
        stream.set_nodelay(true)?;
        // A host that vanished without a word is noticed even when nothing is being sent.
        let keepalive = socket2::TcpKeepalive::new()
            .with_time(Duration::from_secs(15))
            .with_interval(Duration::from_secs(5))
            .with_retries(3);
        let socket = SockRef::from(&stream);
        socket.set_tcp_keepalive(&keepalive)?;
        // … and when something is.
        socket.set_tcp_user_timeout(Some(Duration::from_secs(30)))?;
        let stream = match (&self.tls, endpoint) {
            (Some(tls), Endpoint::Tcp { host, .. }) => {
                Stream::Tls(Box::new(tls.connect(Watched::new(stream), &host)?))
            }
            _ => Stream::Tcp(Watched::new(stream)),
        };
        Ok(Connection { stream, address: Some(address) })
    }

    /// A connection to `address` could not be established: the next try takes the next one.
    /// Workers fail on their own; only the first that tells of an address moves on.
    pub fn failed(&self, address: SocketAddr) {
        let all_failed = {
            let mut addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
            if addresses.list.get(addresses.next) != Some(&address) {
                return;
            }
            addresses.next += 1;
            let all_failed = addresses.next >= addresses.list.len();
            if all_failed {
                addresses.next = 0;
            }
            all_failed
        };
        if all_failed {
            self.resolve_again();
        }
    }

    fn resolve_again(&self) {
        let endpoint = self.endpoint();
        let Endpoint::Tcp { host, .. } = &endpoint else { return };
        if host.parse::<std::net::IpAddr>().is_ok() || self.resolving.swap(true, Ordering::AcqRel) {
            return;
        }
        let (addresses, resolving) = (Arc::clone(&self.addresses), Arc::clone(&self.resolving));
        let current = Arc::clone(&self.endpoint);
        let lookup = move || {
            match resolve(&endpoint) {
                Ok(list) => {
                    let mut addresses = addresses.lock().unwrap_or_else(PoisonError::into_inner);
                    // It may lead elsewhere by now; then whoever finds no address asks again.
                    let current = current.read().unwrap_or_else(PoisonError::into_inner);
                    if current.to_string() == endpoint.to_string() && addresses.list != list {
                        *addresses = Addresses { list, next: 0 };
                    }
                }
                Err(error) => tracing::warn!(%endpoint, %error, "host name not resolved"),
            }
            resolving.store(false, Ordering::Release);
        };
        if thread::Builder::new().name("resolve".to_owned()).spawn(lookup).is_err() {
            self.resolving.store(false, Ordering::Release);
        }
    }
}

fn resolve(endpoint: &Endpoint) -> io::Result<Vec<SocketAddr>> {
    match endpoint {
        Endpoint::Tcp { host, port } => Ok((host.as_str(), *port).to_socket_addrs()?.collect()),
        Endpoint::InProcess(_) | Endpoint::Unknown(_) => Ok(Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_failed_twice_is_left_once() {
        let dialer = Dialer::new(Endpoint::tcp("127.0.0.1", 1), None);
        let list: Vec<SocketAddr> =
            ["127.0.0.1:1", "127.0.0.2:1"].iter().map(|text| text.parse().unwrap()).collect();
        *dialer.addresses.lock().unwrap() = Addresses { list: list.clone(), next: 0 };
        // Two workers tell of the same failure.
        dialer.failed(list[0]);
        dialer.failed(list[0]);
        assert_eq!(dialer.addresses.lock().unwrap().next, 1);
        dialer.failed(list[1]);
        assert_eq!(dialer.addresses.lock().unwrap().next, 0);
    }
}
