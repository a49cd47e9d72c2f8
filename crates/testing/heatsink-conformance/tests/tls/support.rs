//! Heatsink with TLS on the side that a test is about.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use heatsink_conformance::Heatsink;
use heatsink_proxy::config::{Config, Listen, Target, Upstream};
use heatsink_testkit::{Certificates, Identity, RawClient, RedisServer, Reply};
use heatsink_tls::{ClientFiles, ClientTls, ServerFiles, ServerTls};
use heatsink_upstream::address::Endpoint;

pub(crate) const NAME: &str = "127.0.0.1";

/// Trust in what is signed by the authority of the file `ca`.
pub(crate) fn trusting(ca: &Path) -> ClientFiles {
    ClientFiles { ca: Some(ca.into()), ..ClientFiles::default() }
}

/// The same, with a certificate to show.
pub(crate) fn showing(ca: &Path, identity: &Identity) -> ClientFiles {
    ClientFiles {
        certificate: Some(identity.certificate().into()),
        key: Some(identity.key().into()),
        ..trusting(ca)
    }
}

/// A server at `port`, over TLS.
pub(crate) fn upstream(port: u16, files: ClientFiles) -> Upstream {
    let tls = ClientTls::load(files).expect("valid files");
    Upstream { tls: Some(tls), ..Upstream::new(Target::Server(Endpoint::tcp(NAME, port))) }
}

/// What a listener shows.
pub(crate) fn server_files(identity: &Identity) -> ServerFiles {
    ServerFiles {
        certificate: identity.certificate().into(),
        key: identity.key().into(),
        client_ca: None,
        require_client_certificate: false,
    }
}

/// A plain server, and Heatsink before it with a TLS listener.
pub(crate) struct Listening {
    pub(crate) heatsink: Heatsink,
    pub(crate) server: RedisServer,
    pub(crate) certificates: Certificates,
    /// The listener's certificates.
    pub(crate) tls: ServerTls,
}

impl Listening {
    pub(crate) fn new() -> Self {
        Self::with(Certificates::generate(), RedisServer::start(), |_| {}, |_| {})
    }

    pub(crate) fn with(
        certificates: Certificates,
        server: RedisServer,
        files: impl FnOnce(&mut ServerFiles),
        adjust: impl FnOnce(&mut Config),
    ) -> Self {
        let mut shown = server_files(certificates.server());
        files(&mut shown);
        let tls = ServerTls::load(shown).expect("valid files");
        let target = Target::Server(Endpoint::tcp(NAME, server.port()));
        let heatsink = Heatsink::before(Upstream::new(target), |config| {
            listen_too(config, tls.clone());
            adjust(config);
        });
        Self { heatsink, server, certificates, tls }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        tls_addr(&self.heatsink)
    }

    /// A client that trusts the listener and shows nothing.
    #[track_caller]
    pub(crate) fn client(&self) -> RawClient {
        RawClient::connect_tls(self.addr(), self.certificates.ca(), None, NAME)
    }

    /// What a client that shows `identity` is answered.
    pub(crate) fn try_ping(&self, identity: Option<&Identity>) -> std::io::Result<Reply> {
        let ca = self.certificates.ca();
        RawClient::try_connect_tls(self.addr(), ca, identity, NAME)?.try_command(&["PING"])
    }
}

/// Adds a TLS listener.
pub(crate) fn listen_too(config: &mut Config, tls: ServerTls) {
    let listen = Listen::Address((Ipv4Addr::LOCALHOST, 0).into());
    config.listen_tls = Some((listen, tls));
}

pub(crate) fn tls_addr(heatsink: &Heatsink) -> SocketAddr {
    heatsink.proxy().local_tls_addr().expect("a TLS listener")
}

/// Bytes without a pattern that compresses or repeats.
pub(crate) fn noise(len: u32) -> Vec<u8> {
    (0..len).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

pub(crate) fn pong() -> Reply {
    Reply::Simple("PONG".into())
}
