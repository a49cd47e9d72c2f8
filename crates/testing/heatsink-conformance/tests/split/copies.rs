//! Copies of a value: reads are spread over the nodes, and none of them is older than the key.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use heatsink_conformance::{ClusterRig, Rig};
use heatsink_proxy::Handle;
use heatsink_proxy::hot_keys::{Copies, HotKeys};
use heatsink_split::{layout, placement};
use heatsink_testkit::{RawClient, RedisCluster, Reply, eventually};

const KEY: &[u8] = b"{hot}value";
const LIFE: Duration = Duration::from_secs(1);

fn rig() -> ClusterRig {
    Rig::cluster().servers(|cluster| cluster.replicas_per_primary(0)).workers(2).start()
}

/// Fills copies as a mover does, for one key.
struct Filler {
    handle: Handle,
    data: RawClient,
    copies: Copies,
    serial: u64,
}

impl Filler {
    /// Two copies, on the nodes that do not have the key.
    fn new(rig: &ClusterRig) -> Self {
        let handle = rig.heatsink.proxy().handle();
        let mut client = rig.client();
        eventually(Duration::from_secs(5), || {
            client.command(&["PING"]);
            handle.slot_owners()
        });
        let owners = handle.slot_owners().expect("a map");
        let own = owners[usize::from(heatsink_cluster::slot::of_key(KEY))];
        let tags = placement::tags(Some(&owners), 3, KEY);
        let elsewhere = |tag: &&String| {
            owners[usize::from(heatsink_cluster::slot::of_key(tag.as_bytes()))] != own
        };
        let names = tags.iter().filter(elsewhere).enumerate();
        let names = names.map(|(index, tag)| layout::copy_name(tag, "test", index)).collect();
        let copies = Copies { names, read: false, life: LIFE };
        let data = RawClient::over_stream(handle.connect().expect("a connection within"));
        let mut filler = Self { handle, data, copies, serial: 0 };
        assert_eq!(filler.copies.names.len(), 2);
        filler.tell();
        filler
    }

    fn tell(&mut self) {
        let hot = HotKeys::default().with_copies([(KEY.to_vec(), self.copies.clone())]);
        let version = self.handle.set_hot_keys(hot);
        eventually(Duration::from_secs(5), || self.handle.settled_version() >= version);
    }

    fn begin(&mut self) {
        self.copies.read = true;
        self.tell();
    }

    /// Fills each copy once; how many took it.
    fn fill(&mut self) -> usize {
        let names = self.copies.names.clone();
        names.iter().filter(|copy| self.fill_one(copy)).count()
    }

    fn fill_one(&mut self, copy: &[u8]) -> bool {
        self.serial += 1;
        let token = self.serial.to_string().into_bytes();
        let (lock, writers) = (layout::lock_name(copy), layout::writers_name(copy));
        let life = LIFE.as_millis().to_string().into_bytes();
        let data = &mut self.data;
        data.command(&[b"SET", &lock[..], &token, b"PX", &life]);
        let Reply::Bulk(dump) = data.command(&[b"DUMP", KEY]) else { return false };
        data.command(&[b"WATCH", &lock[..], &writers]);
        let locked = data.command(&[b"GET", &lock[..]]) == Reply::Bulk(token);
        let written = data.command(&[b"EXISTS", &writers[..]]) != Reply::Integer(0);
        if !locked || written {
            data.command(&["UNWATCH"]);
            return false;
        }
        data.command(&["MULTI"]);
        data.command(&[b"RESTORE", copy, &life, &dump, b"REPLACE"]);
        data.command(&["EXEC"]) != Reply::Null
    }
}

#[test]
fn reads_are_spread_over_the_copies() {
    let rig = rig();
    let mut clients: Vec<_> = (0..30).map(|_| rig.client()).collect();
    let value = vec![b'x'; 100 << 10];
    clients[0].command(&[b"SET", KEY, &value]);
    let mut filler = Filler::new(&rig);
    assert_eq!(filler.fill(), 2);
    filler.begin();
    let before: Vec<_> = (0..3).map(|node| rig.cluster.calls(node, "get")).collect();
    for _ in 0..10 {
        for client in &mut clients {
            assert_eq!(client.command(&[b"GET", KEY]), Reply::Bulk(value.clone()));
        }
    }
    let after = (0..3).map(|node| rig.cluster.calls(node, "get"));
    let reads: Vec<_> = after.zip(before).map(|(after, before)| after - before).collect();
    let most = *reads.iter().max().expect("three") as f64;
    let mean = reads.iter().sum::<u64>() as f64 / 3.0;
    assert!(most / mean <= 1.10, "{reads:?}");
    assert_eq!(reads.iter().sum::<u64>(), 300);
}

#[test]
fn a_write_removes_the_copies_before_it_is_acknowledged() {
    let rig = rig();
    let mut clients: Vec<_> = (0..6).map(|_| rig.client()).collect();
    clients[0].command(&[b"SET", KEY, b"old"]);
    let mut filler = Filler::new(&rig);
    assert_eq!(filler.fill(), 2);
    filler.begin();
    assert_eq!(clients[0].command(&[b"SET", KEY, b"new"]), Reply::Simple("OK".into()));
    for client in &mut clients {
        assert_eq!(client.command(&[b"GET", KEY]), Reply::Bulk(b"new".to_vec()));
    }
    assert_eq!(filler.fill(), 2);
    for client in &mut clients {
        assert_eq!(client.command(&[b"GET", KEY]), Reply::Bulk(b"new".to_vec()));
    }
    // A copy that is gone says -1 to this, as a key that is gone would.
    clients[0].command(&[b"SET", KEY, b"new"]);
    for client in &mut clients {
        assert_eq!(client.command(&[b"BITPOS", KEY, b"1"]), Reply::Integer(1));
    }
    // What is wrong with a write changes nothing.
    assert!(matches!(clients[1].command(&[b"SADD", KEY, b"x"]), Reply::Error(_)));
    assert_eq!(clients[2].command(&[b"GET", KEY]), Reply::Bulk(b"new".to_vec()));
    assert_eq!(clients[3].command(&[b"DEL", KEY]), Reply::Integer(1));
    for client in &mut clients {
        assert_eq!(client.command(&[b"GET", KEY]), Reply::Null);
    }
}

/// Pipelined, a read in front of a write and one behind it.
#[test]
fn a_pipeline_keeps_its_order() {
    let rig = rig();
    let mut clients: Vec<_> = (0..6).map(|_| rig.client()).collect();
    clients[0].command(&[b"SET", KEY, b"0"]);
    let mut filler = Filler::new(&rig);
    filler.begin();
    for round in 0..50_u32 {
        if round % 3 == 0 {
            filler.fill();
        }
        let client = &mut clients[round as usize % 6];
        let next = (round + 1).to_string();
        client.send(&[b"GET", KEY]);
        client.send(&[b"SET", KEY, next.as_bytes()]);
        client.send(&[b"GET", KEY]);
        assert_eq!(client.read_reply(), Reply::Bulk(round.to_string().into_bytes()));
        assert_eq!(client.read_reply(), Reply::Simple("OK".into()));
        assert_eq!(client.read_reply(), Reply::Bulk(next.into_bytes()));
    }
}

/// One writer counts up, others read from the copies and the key, a filler fills all the time:
/// nobody reads what is older than a write that was acknowledged before, or than what it has read.
#[test]
fn no_read_is_older_than_an_acknowledged_write() {
    let rig = rig();
    rig.client().command(&[b"SET", KEY, b"0"]);
    let mut filler = Filler::new(&rig);
    filler.begin();
    let (over, acknowledged) = (AtomicBool::new(false), AtomicU64::new(0));
    let (reads, taken) = (AtomicU64::new(0), AtomicU64::new(0));
    let counts = || [&reads, &acknowledged, &taken].map(|count| count.load(Ordering::Relaxed));
    let is_enough = |[reads, writes, taken]: [u64; 3]| reads > 500 && writes > 50 && taken > 10;
    thread::scope(|scope| {
        for _ in 0..5 {
            scope.spawn(|| {
                let mut client = rig.client();
                let mut last = 0;
                while !over.load(Ordering::Acquire) {
                    let known = acknowledged.load(Ordering::Acquire);
                    for _ in 0..3 {
                        client.send(&[b"GET", KEY]);
                    }
                    for _ in 0..3 {
                        let Reply::Bulk(text) = client.read_reply() else { panic!() };
                        let value = String::from_utf8(text).expect("a number");
                        let value: u64 = value.parse().expect("a number");
                        assert!(
                            value >= known.max(last),
                            "{value}, {known} was known, {last} read"
                        );
                        last = value;
                        reads.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        scope.spawn(|| {
            let mut client = rig.client();
            let mut value = 0_u64;
            while !over.load(Ordering::Acquire) {
                value += 1;
                client.command(&[b"SET", KEY, value.to_string().as_bytes()]);
                acknowledged.store(value, Ordering::Release);
                // Copies are taken in between.
                let before = taken.load(Ordering::Relaxed);
                let until = Instant::now() + Duration::from_millis(20);
                while taken.load(Ordering::Relaxed) < before + 2 && Instant::now() < until {
                    thread::yield_now();
                }
            }
        });
        let begun = Instant::now();
        // As long as it takes on a busy machine.
        while begun.elapsed() < Duration::from_secs(3)
            || !is_enough(counts()) && begun.elapsed() < Duration::from_secs(20)
        {
            taken.fetch_add(filler.fill() as u64, Ordering::Relaxed);
        }
        over.store(true, Ordering::Release);
    });
    assert!(is_enough(counts()), "reads, writes and copies filled: {:?}", counts());
}

/// A copy that cannot be reached has expired before the write is acknowledged.
#[test]
fn a_write_waits_for_a_copy_that_cannot_be_reached() {
    let settings = RedisCluster::builder().replicas_per_primary(0);
    let settings = settings.line("cluster-require-full-coverage no");
    let mut rig = ClusterRig::with(settings, |config| config.workers = 1);
    let mut client = rig.client();
    client.command(&[b"SET", KEY, b"old"]);
    let mut filler = Filler::new(&rig);
    assert_eq!(filler.fill(), 2);
    filler.begin();
    let slot = heatsink_cluster::slot::of_key(&filler.copies.names[0]);
    let node = rig.cluster.owner_of(slot);
    rig.cluster.kill(node);
    let begun = Instant::now();
    client.set_timeout(Duration::from_secs(20));
    let reply = client.command(&[b"SET", KEY, b"new"]);
    let took = begun.elapsed();
    assert_eq!(reply, Reply::Simple("OK".into()));
    assert!(took >= LIFE, "{took:?}");
    assert_eq!(client.command(&[b"GET", KEY]), Reply::Bulk(b"new".to_vec()));
}
