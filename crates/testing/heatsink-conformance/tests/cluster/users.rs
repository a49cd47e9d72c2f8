//! Users with different rights, on every node.

use std::time::Duration;

use heatsink_conformance::{ClusterRig, Heatsink};
use heatsink_testkit::{
    RawClient, RedisCluster, RedisClusterBuilder, Reply, encode, eventually, key_slot,
};

const KEYS: usize = 30;
const SOON: Duration = Duration::from_secs(10);

/// `reader` may not even ask where the nodes are.
fn settings() -> RedisClusterBuilder {
    RedisCluster::builder()
        .line("user writer on >writer-pw ~* &* +@all")
        .line("user reader on >reader-pw ~shared:* +get +mget")
        .line("user finder on >finder-pw ~* +cluster|slots +command")
}

fn login(heatsink: &Heatsink, user: &str) -> RawClient {
    let mut client = heatsink.client();
    assert_eq!(client.command(&["AUTH", user, &format!("{user}-pw")]), Reply::ok());
    client
}

#[test]
fn users_have_their_own_rights_on_every_node() {
    let rig = ClusterRig::with(settings(), |config| config.workers = 2);
    let (mut writer, mut reader) = (login(&rig.heatsink, "writer"), login(&rig.heatsink, "reader"));
    let keys: Vec<String> = (0..KEYS).map(|n| format!("shared:{n}")).collect();
    for round in 0..10 {
        let (mut allowed, mut forbidden) = (Vec::new(), Vec::new());
        for key in &keys {
            allowed.extend(encode(&["SET", key, &round.to_string()]));
            allowed.extend(encode(&["GET", key]));
            forbidden.extend(encode(&["SET", key, "never"]));
            forbidden.extend(encode(&["GET", &format!("own:{key}")]));
            forbidden.extend(encode(&["STRLEN", key]));
        }
        writer.send_raw(&allowed);
        reader.send_raw(&forbidden);
        for key in &keys {
            assert_eq!(writer.read_reply(), Reply::ok(), "{key}");
            assert_eq!(writer.read_reply(), Reply::bulk(round.to_string()), "{key}");
            for _ in 0..3 {
                let refused = reader.read_reply();
                assert!(refused.is_error() && refused.error().starts_with("NOPERM"), "{refused}");
            }
        }
        let get = [&["MGET".to_owned()], &keys[..]].concat();
        let expected = Reply::bulks(keys.iter().map(|_| round.to_string()));
        assert_eq!(reader.command(&get), expected);
        let count = [&["EXISTS".to_owned()], &keys[..]].concat();
        assert!(reader.command(&count).error().starts_with("NOPERM"));
        assert_eq!(writer.command(&count).integer(), KEYS as i64);
    }
    let wrong = reader.command(&["AUTH", "writer", "wrong"]);
    assert!(wrong.error().starts_with("WRONGPASS"), "{wrong}");
    // Still who it was.
    assert_eq!(reader.command(&["GET", &keys[0]]), Reply::bulk("9"));
    assert!(reader.command(&["SET", &keys[0], "x"]).error().starts_with("NOPERM"));
    // And another afterwards.
    assert_eq!(reader.command(&["AUTH", "writer", "writer-pw"]), Reply::ok());
    for key in &keys {
        assert_eq!(reader.command(&["SET", key, "x"]), Reply::ok(), "{key}");
    }
}

#[test]
fn any_number_of_passwords_opens_a_bounded_number_of_connections() {
    let settings = RedisCluster::builder().replicas_per_primary(0);
    let settings = settings.line("user guest on nopass ~* +get +acl|whoami");
    let rig = ClusterRig::with(settings, |config| config.workers = 1);
    let (cluster, mut client) = (&rig.cluster, rig.heatsink.client());
    let keys: Vec<_> = cluster.primaries().iter().map(|at| cluster.key_on(*at, "k")).collect();
    for n in 0..100 {
        assert_eq!(client.command(&["AUTH", "guest", &n.to_string()]), Reply::ok());
        for key in &keys {
            assert_eq!(client.command(&["GET", key]), Reply::Null);
        }
        assert_eq!(client.command(&["ACL", "WHOAMI"]), Reply::bulk("guest"));
    }
    for node in cluster.primaries() {
        eventually(SOON, || {
            let list = cluster.node(node).client().command(&["CLIENT", "LIST"]).text();
            list.matches("user=guest").count() <= 6
        });
    }
}

#[test]
fn a_user_who_may_not_ask_for_the_map_uses_that_of_others() {
    let cluster = settings().line("user default off").admin("writer", "writer-pw").start();
    let seeds = cluster.seed_url().replace("redis+cluster://", "redis+cluster://finder:finder-pw@");
    let heatsink = Heatsink::before_url(&seeds, |config| config.workers = 2);
    // The first client of all.
    let mut reader = login(&heatsink, "reader");
    for n in 0..KEYS {
        assert_eq!(reader.command(&["GET", &format!("shared:{n}")]), Reply::Null);
    }
    let mut writer = login(&heatsink, "writer");
    assert_eq!(writer.command(&["SET", "shared:1", "x"]), Reply::ok());
    assert_eq!(reader.command(&["GET", "shared:1"]), Reply::bulk("x"));
    // A client that does not say who it is, is who the URL says.
    let mut finder = heatsink.client();
    assert!(finder.command(&["GET", "shared:1"]).error().starts_with("NOPERM"));
    // Without credentials in the URL, the first who may ask does.
    let heatsink = Heatsink::before_url(&cluster.seed_url(), |config| config.workers = 1);
    let mut nobody = heatsink.client();
    assert!(nobody.command(&["GET", "shared:1"]).error().starts_with("NOAUTH"));
    let mut writer = login(&heatsink, "writer");
    assert_eq!(writer.command(&["GET", "shared:1"]), Reply::bulk("x"));
    let mut reader = login(&heatsink, "reader");
    for n in 0..KEYS {
        let reply = reader.command(&["GET", &format!("shared:{n}")]);
        assert!(!reply.is_error(), "{reply}");
    }
}

/// Asks for keys of which one is there and one has gone, so that the map is looked at again
/// and again.
fn ask_in_vain(cluster: &RedisCluster, client: &mut RawClient) {
    let (from, to) = (cluster.owner_of(key_slot("{v}a")), cluster.primaries()[0]);
    let to = if from == to { cluster.primaries()[1] } else { to };
    assert_eq!(client.command(&["MSET", "{v}a", "1", "{v}b", "2"]), Reply::ok());
    cluster.begin_move_slot(key_slot("{v}a"), to);
    assert_eq!(cluster.migrate_some_keys(key_slot("{v}a"), to, 1), 1);
    let refused = client.command(&["MGET", "{v}a", "{v}b"]);
    assert!(refused.is_error() && refused.error().starts_with("TRYAGAIN"), "{refused}");
    cluster.migrate_keys(key_slot("{v}a"), to);
    cluster.finish_move_slot(key_slot("{v}a"), to);
    assert_eq!(client.command(&["MGET", "{v}a", "{v}b"]), Reply::bulks(["1", "2"]));
}

#[test]
fn the_map_is_asked_for_with_the_rights_of_the_url() {
    let logins = ["redis+cluster://svc:svc-pw@", "redis+cluster://"];
    for login_of_url in logins {
        let cluster = RedisCluster::builder()
            .replicas_per_primary(0)
            .line("user svc on >svc-pw ~* &* +@all")
            .line("user rw on >rw-pw ~* &* +@read +@write")
            .start();
        let url = cluster.seed_url().replace("redis+cluster://", login_of_url);
        let heatsink = Heatsink::before_url(&url, |config| config.workers = 1);
        let mut client = login(&heatsink, "rw");
        // With a connection to each node.
        for node in cluster.primaries() {
            let key = cluster.key_on(node, "k");
            assert_eq!(client.command(&["GET", &key]), Reply::Null);
        }
        let asked = |cluster: &RedisCluster| -> u64 {
            cluster.primaries().iter().map(|node| cluster.calls(*node, "cluster|slots")).sum()
        };
        let before = asked(&cluster);
        ask_in_vain(&cluster, &mut client);
        assert!(asked(&cluster) > before + 5, "{login_of_url}: asked {}", asked(&cluster));
        for node in cluster.primaries() {
            let log = cluster.node(node).client().command(&["ACL", "LOG"]).to_string();
            assert!(!log.contains("cluster|"), "{login_of_url}: {log}");
        }
    }
}

#[test]
fn where_nobody_may_ask_for_the_map_a_user_who_may_does() {
    let settings = RedisCluster::builder().replicas_per_primary(0);
    let cluster = settings
        .line("user default on nopass ~* +@read +@connection")
        .line("user svc on >svc-pw ~* &* +@all")
        .admin("svc", "svc-pw")
        .start();
    let heatsink = Heatsink::before_url(&cluster.seed_url(), |config| config.workers = 1);
    let mut nobody = heatsink.client();
    let refused = nobody.command(&["GET", "k"]);
    assert!(refused.is_error() && refused.error().contains("map is not known"), "{refused}");
    let mut client = login(&heatsink, "svc");
    eventually(SOON, || client.command(&["SET", "k", "1"]) == Reply::ok());
    assert_eq!(nobody.command(&["GET", "k"]), Reply::bulk("1"));
    ask_in_vain(&cluster, &mut client);
}
