//! What one client may do to the others, and to this process.

use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use heatsink_conformance::ClusterRig;
use heatsink_testkit::{ProcStats, RedisCluster, Reply, encode, eventually};

use crate::open::before_open;
use crate::witness::Witness;

const GETS: usize = 100_000;
const VALUE_BYTES: usize = 10 << 10;
const LARGE_BYTES: usize = 100 << 20;
/// Less than half of all replies together, which are 1 GB. What may be asked for before replies
/// are read is 80 MiB of them; they lie where they came in or where they go out, and the allocator
/// keeps what buffers that grow leave behind.
const GROWTH_BYTES: u64 = 480 << 20;
/// Who is stopped by a client that does not read waits until it does, which is never.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Longer than the test takes.
const PATIENCE_MS: &str = "120000";

fn resident_bytes() -> u64 {
    ProcStats::of(std::process::id()).expect("own figures").rss_bytes
}

/// No node is replaced because it did not get a processor for a second.
///
/// 1. `SET` of a large value is acknowledged; its replica has not read it yet
/// 2. the primary does not get a processor for longer than the others have patience
/// 3. the replica takes over, and `GET` finds nothing: what the cluster has lost
fn forgive_pauses(cluster: &RedisCluster) {
    for node in cluster.nodes() {
        let set = ["CONFIG", "SET", "cluster-node-timeout", PATIENCE_MS];
        assert_eq!(node.client().command(&set), Reply::ok());
    }
}

#[test]
fn a_client_that_does_not_read_and_one_with_a_large_value() {
    let rig = ClusterRig::with(RedisCluster::builder(), |config| {
        config.workers = 2;
        // A busy machine may take longer to hand a large value over.
        config.live.timeouts.silence = None;
    });
    forgive_pauses(&rig.cluster);
    let mut client = rig.client();
    let keys: Vec<String> = (0..100).map(|n| format!("filled:{n}")).collect();
    let value = "v".repeat(VALUE_BYTES);
    for key in &keys {
        assert_eq!(client.command(&["SET", key, &value]), Reply::ok());
    }
    let witness = Witness::of(&rig.cluster);
    let before = resident_bytes();
    let mut greedy = rig.client();
    let mut sending = greedy.stream().try_clone().expect("a second handle");
    thread::scope(|scope| {
        let keys = &keys;
        // Blocks until its replies are read.
        scope.spawn(move || {
            let mut bytes = Vec::new();
            for n in 0..GETS {
                bytes.extend(encode(&["GET", &keys[n % keys.len()]]));
            }
            sending.set_write_timeout(None).expect("no timeout");
            sending.write_all(&bytes).expect("all is sent in the end");
        });
        let until = Instant::now() + Duration::from_secs(2);
        let of_value = Reply::Integer(VALUE_BYTES as i64);
        let (mut longest, mut most, mut served) = (Duration::ZERO, 0, 0);
        while Instant::now() < until {
            let begun = Instant::now();
            let key = &keys[served % keys.len()];
            let length = client.command(&["STRLEN", key]);
            witness.check(&format!("STRLEN {key}"), served, &length, &of_value);
            longest = longest.max(begun.elapsed());
            most = most.max(resident_bytes());
            served += 1;
        }
        let growth = most.saturating_sub(before);
        println!("{served} served, longest {longest:?}, {} MiB more", growth >> 20);
        assert!(longest < LONGEST_PAUSE && served > 100, "{served} served, longest {longest:?}");
        assert!(growth < GROWTH_BYTES, "{} MiB more", growth >> 20);
        greedy.set_timeout(Duration::from_secs(30));
        let expected = Reply::bulk(&value);
        for n in 0..GETS {
            let reply = greedy.read_reply();
            witness.check(&format!("GET {}", keys[n % keys.len()]), n, &reply, &expected);
        }
    });
    let large = vec![b'x'; LARGE_BYTES];
    client.set_timeout(Duration::from_secs(30));
    let set = client.command(&[&b"SET"[..], b"large", &large]);
    witness.check("SET large", 0, &set, &Reply::ok());
    let got = client.command(&["GET", "large"]);
    witness.check("GET large", 1, &got, &Reply::Bulk(large));
    let length = client.command(&["STRLEN", "large"]);
    witness.check("STRLEN large", 2, &length, &Reply::Integer(LARGE_BYTES as i64));
    let deleted = client.command(&["DEL", "large"]);
    witness.check("DEL large", 3, &deleted, &Reply::Integer(1));
}

/// What is queued in a transaction is kept, in case its slot moves: it counts like a request that waits.
#[test]
fn over_the_total_of_held_requests_the_longest_transaction_is_refused() {
    const MAX: u64 = 10 << 20;
    const LEN: usize = 3 << 20;
    const SOON: Duration = Duration::from_secs(10);
    for workers in [1, 2] {
        let heatsink = before_open(|config| {
            config.workers = workers;
            config.live.limits.max_total_input_bytes = MAX;
        });
        let handle = heatsink.proxy().handle();
        let value = "x".repeat(LEN / 3);
        let begin = |commands: usize| {
            let mut client = heatsink.client();
            client.set_timeout(SOON);
            assert_eq!(client.command(&["MULTI"]), Reply::ok());
            let before = handle.input();
            for _ in 0..commands {
                if client.try_send_raw(&encode(&["SET", "kept", &value])).is_err()
                    || client.try_read_reply().is_err()
                {
                    break;
                }
            }
            // The last one is kept when the next one comes.
            let _ = client.try_send_raw(&encode(&["PING"]));
            let _ = client.try_read_reply();
            eventually(SOON, || {
                let now = handle.input();
                now.held_bytes >= before.held_bytes + (commands * value.len()) as u64
                    || now.closed_total > before.closed_total
            });
            client
        };
        let mut small = begin(1);
        let large: Vec<_> = (0..8).map(|_| begin(3)).collect();
        eventually(SOON, || handle.input().held_bytes <= MAX);
        assert!(handle.input().closed_total >= 5, "{:?}", handle.input());
        // It is not the largest.
        assert_eq!(small.command(&["EXEC"]).items().len(), 2);
        drop(large);
        // What was queued is forgotten with the transaction, though the client stays.
        eventually(SOON, || handle.input().held_bytes == 0);
        assert_eq!(small.command(&["PING"]).text(), "PONG");
    }
}
