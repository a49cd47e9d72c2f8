//! The Redis side, from the URL to what the proxy takes; and in words for the ready line.

use std::io;

use heatsink_embedded::Server;
use heatsink_proxy::config::{Target, Upstream};
use heatsink_tls::ClientTls;
use heatsink_upstream::address::{Endpoint, Url};

/// What `url` means. The store is there for `embedded://` only; it ends when it is dropped, so
/// the caller keeps it as long as the proxy.
pub(in crate::commands) fn resolve(
    url: &Url,
    tls: Option<ClientTls>,
) -> io::Result<(Upstream, Option<Server>)> {
    let (target, credentials, db, store) = match url.clone() {
        Url::Embedded => {
            let store = Server::start()?;
            let endpoint = Endpoint::InProcess(store.dialer());
            (Target::Server(endpoint), None, 0, Some(store))
        }
        Url::Server(server) => {
            let endpoint = Endpoint::Tcp { host: server.host, port: server.port };
            (Target::Server(endpoint), server.credentials, server.db, None)
        }
        Url::Cluster(cluster) => (Target::Cluster(cluster.seeds), cluster.credentials, 0, None),
        Url::Sentinel(sentinel) => {
            let (credentials, db) = (sentinel.credentials.clone(), sentinel.db);
            (Target::Sentinel(sentinel), credentials, db, None)
        }
    };
    Ok((Upstream { target, credentials, db, tls }, store))
}

/// `upstream` in a few words, without credentials.
pub(super) fn describe(upstream: &Upstream) -> String {
    let hosts = |hosts: &[(String, u16)]| {
        let shown: Vec<String> =
            hosts.iter().map(|(host, port)| Endpoint::tcp(host, *port).to_string()).collect();
        shown.join(",")
    };
    let place = match &upstream.target {
        Target::Server(endpoint) => endpoint.to_string(),
        Target::Cluster(seeds) => format!("cluster {}", hosts(seeds)),
        Target::Sentinel(url) => {
            format!("{} of sentinels {}", url.name, hosts(&url.sentinels))
        }
    };
    match upstream.tls {
        Some(_) => format!("{place} with TLS"),
        None => place,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_url_is_resolved_and_described_without_its_password() {
        for (url, words) in [
            ("redis://bob:secret@h:1/2", "h:1"),
            ("redis+cluster://bob:secret@h:1,[::1]:2", "cluster h:1,[::1]:2"),
            ("redis+sentinel://bob:secret@h:1,i:2/main/3", "main of sentinels h:1,i:2"),
            ("embedded://", "embedded"),
        ] {
            let url: Url = url.parse().expect("valid");
            let (upstream, store) = resolve(&url, None).expect("resolved");
            assert_eq!(describe(&upstream), words);
            assert_eq!(store.is_some(), url == Url::Embedded);
            assert_eq!(upstream.credentials.is_some(), url != Url::Embedded);
        }
        let url: Url = "redis+sentinel://h/main/3".parse().expect("valid");
        assert_eq!(resolve(&url, None).expect("resolved").0.db, 3);
    }
}
