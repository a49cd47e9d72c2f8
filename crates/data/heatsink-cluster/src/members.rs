//! Who belongs to a cluster: the addresses in the reply of `CLUSTER NODES`.
//!
//! Called by: routing, to follow redirections to nodes of the cluster and to nobody else.
//! Bound: two addresses a line.

use crate::topology::NodeAddress;

/// Reads `CLUSTER NODES`. An empty address is that of the node itself, so `asked_host`. A node
/// with a host name is known by both.
pub fn parse(text: &str, asked_host: &str) -> Vec<NodeAddress> {
    let mut members = Vec::new();
    for line in text.lines() {
        let Some(place) = line.split(' ').nth(1) else { continue };
        let mut parts = place.split(',');
        let Some((host, port)) = parts.next().and_then(address) else { continue };
        let host = if host.is_empty() { asked_host } else { host };
        members.push(NodeAddress { host: host.to_owned(), port });
        // A host name comes next, before further fields of the form `name=value`.
        if let Some(name) = parts.next().filter(|name| !name.is_empty() && !name.contains('=')) {
            members.push(NodeAddress { host: name.to_owned(), port });
        }
    }
    members
}

/// `host:port@bus-port`, where the host may hold colons itself, and old servers leave the bus
/// port out.
fn address(text: &str) -> Option<(&str, u16)> {
    let text = text.split_once('@').map_or(text, |(text, _)| text);
    let (host, port) = text.rsplit_once(':')?;
    Some((host, port.parse().ok().filter(|port| *port > 0)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_address() {
        let text = "\
            07c3 127.0.0.1:30004@31004,host4 slave e7d1 0 1426238317239 4 connected\n\
            67ed 10.0.0.2:30002@31002 master - 0 1426238316232 2 connected 5461-10922\n\
            292f 10.0.0.3:30003@31003,,shard-id=69bc master - 0 1426238318243 3 connected\n\
            6ec2 ::1:30005 slave 67ed 0 1426238316232 5 connected\n\
            824f :30001@31001 myself,master - 0 0 1 connected 0-5460\n\
            0000 :0@0 handshake,noaddr - 0 0 0 disconnected\n\
            rubbish\n";
        let members = parse(text, "10.0.0.1");
        let shown: Vec<String> = members.iter().map(ToString::to_string).collect();
        assert_eq!(
            shown,
            [
                "127.0.0.1:30004",
                "host4:30004",
                "10.0.0.2:30002",
                "10.0.0.3:30003",
                "[::1]:30005",
                "10.0.0.1:30001",
            ]
        );
    }
}
