//! Which servers an upstream URL means: the one it names, or all primaries of its cluster.
//!
//! Called by: [`crate::plan`], and the load generator for the servers behind a target.
//! Bound: as many nodes as the cluster has primaries with slots.

use std::time::Duration;

use heatsink_cluster::topology::Topology;
use heatsink_tls::ClientTls;
use heatsink_upstream::address::{ClusterUrl, ServerUrl, Url};

use heatsink_upstream::client::{Client, ClientError};

/// The servers that hold the data behind a URL. `all_nodes` asks a single server, too,
/// whether it belongs to a cluster, and goes on to the others.
pub fn primaries(
    url: &Url,
    all_nodes: bool,
    tls: Option<&ClientTls>,
    timeout: Duration,
) -> Result<Vec<ServerUrl>, ClientError> {
    match url {
        Url::Server(server) if !all_nodes => Ok(vec![server.clone()]),
        Url::Server(server) => of_seed(server, tls, timeout),
        Url::Cluster(cluster) => of_cluster(cluster, tls, timeout),
        Url::Sentinel(_) => Err(ClientError::Unsupported(
            "redis+sentinel:// is not supported here; name the primary itself with redis://"
                .to_owned(),
        )),
        Url::Embedded => Err(ClientError::Unsupported(
            "embedded:// is inside another process; name a server with redis://".to_owned(),
        )),
    }
}

fn of_cluster(
    cluster: &ClusterUrl,
    tls: Option<&ClientTls>,
    timeout: Duration,
) -> Result<Vec<ServerUrl>, ClientError> {
    let mut failure = ClientError::Unsupported("the cluster has no node to ask".to_owned());
    for (host, port) in &cluster.seeds {
        let seed = ServerUrl {
            host: host.clone(),
            port: *port,
            tls: cluster.tls,
            credentials: cluster.credentials.clone(),
            db: 0,
        };
        match of_seed(&seed, tls, timeout) {
            Ok(nodes) => return Ok(nodes),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

fn of_seed(
    seed: &ServerUrl,
    tls: Option<&ClientTls>,
    timeout: Duration,
) -> Result<Vec<ServerUrl>, ClientError> {
    let mut client = Client::open(seed, tls, timeout)?;
    let reply = client.ask(&["CLUSTER", "SLOTS"])?;
    let topology = Topology::parse(&reply, &seed.host).map_err(|error| ClientError::Refused {
        server: seed.to_string(),
        reply: error.to_string(),
    })?;
    if topology.shards.is_empty() {
        let reply = "no slot of the cluster is served".to_owned();
        return Err(ClientError::Refused { server: seed.to_string(), reply });
    }
    let primaries = topology.shards.into_iter().map(|shard| ServerUrl {
        host: shard.primary.host,
        port: shard.primary.port,
        ..seed.clone()
    });
    Ok(primaries.collect())
}
