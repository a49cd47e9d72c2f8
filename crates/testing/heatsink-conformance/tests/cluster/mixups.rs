//! A reply is never another one's, whatever happens to nodes, links and clients meanwhile.
//!
//! Every few bytes of a value name its client, its key and their own place, and most requests ask
//! for a range that begins anywhere. So every reply shows which request of which client it answers:
//! one that is out of order, given to somebody else or put together from two does not pass.
//!
//! `HEATSINK_CLUSTER_SECONDS` and `HEATSINK_CLUSTER_SEED` make a campaign of it.

use std::fmt;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::ops::AddAssign;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use heatsink_conformance::ClusterRig;
use heatsink_testkit::{RawClient, RedisCluster, RedisServer, Reply, encode, key_slot, poll_until};

use crate::load::{REPLY_TIMEOUT, StopOnDrop, duration, seed};

const SECONDS: u64 = 3;
/// Of a client; the last few are large.
const KEYS: usize = 15;
const LARGE_KEYS: usize = 2;
const VALUE_BYTES: usize = 20 << 10;
/// A reply of this size is passed on in pieces.
const LARGE_BYTES: usize = 2 << 20;
const RANGE_BYTES: usize = 10 << 10;
/// Requests that are sent at once, at most.
const BURST: usize = 300;
/// How many bursts one sends that reads nothing.
const SULKED_BURSTS: usize = 4;
/// How long it stays.
const SULK: Duration = Duration::from_millis(300);
/// How long one waits for a bite that reads slowly, and before the first.
const SIP: Duration = Duration::from_millis(2);
const FIRST_SIP: Duration = Duration::from_millis(20);

/// Longer than nodes take to agree that one has failed.
const TAKEN_OVER: Duration = Duration::from_secs(3);
/// How often connections to a node are cut, on average.
const CUT_EVERY_MS: u64 = 40;

/// What a client may be told instead of its value, while nodes are lost and found.
const ALLOWED: [&str; 6] = [
    "-ERR heatsink: upstream ",
    "-CLUSTERDOWN ",
    "-TRYAGAIN ",
    "-LOADING ",
    "-MASTERDOWN ",
    "-MOVED ",
];

/// How a client treats what it is told.
#[derive(Clone, Copy, Debug)]
enum Temper {
    Prompt,
    /// Reads a little at a time.
    Slow,
    /// Reads some of it, and leaves.
    Leaving,
    /// Reads nothing, and leaves.
    Sulking,
}

const TEMPERS: [Temper; 8] = [
    Temper::Prompt,
    Temper::Prompt,
    Temper::Prompt,
    Temper::Slow,
    Temper::Slow,
    Temper::Leaving,
    Temper::Leaving,
    Temper::Sulking,
];

/// What clients saw.
#[derive(Default)]
struct Tally {
    right: usize,
    refused: usize,
    /// Closed by Heatsink in the middle of a reply.
    cut: usize,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.right += other.right;
        self.refused += other.refused;
        self.cut += other.cut;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { right, refused, cut } = self;
        write!(f, "{right} right, {refused} refused, {cut} cut")
    }
}

/// A key and its value.
struct Entry {
    key: String,
    value: Vec<u8>,
}

impl Entry {
    fn new(cluster: &RedisCluster, client: usize, number: usize) -> Self {
        let primaries = cluster.primaries();
        let node = primaries[number % primaries.len()];
        let key = cluster.key_on(node, &format!("mix{client}:{number}"));
        let is_large = number + LARGE_KEYS >= KEYS;
        let len = if is_large { LARGE_BYTES } else { VALUE_BYTES } + number;
        let blocks = (0..len).map(|block| format!("<{client:02}.{number:02}.{block:06}>"));
        let value = blocks.take(len / 14 + 1).collect::<String>().into_bytes();
        Self { key, value: value[..len].to_vec() }
    }

    fn is_large(&self) -> bool {
        self.value.len() > LARGE_BYTES
    }
}

/// A request, and the only reply that is right.
struct Asked {
    command: Vec<String>,
    frame: Vec<u8>,
}

impl Asked {
    fn any(entries: &[Entry], rng: &mut Rng) -> Self {
        let entry = &entries[rng.usize(..entries.len())];
        let bulk = |value: &[u8]| {
            let head = format!("${}\r\n", value.len()).into_bytes();
            [&head, value, b"\r\n"].concat()
        };
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        match rng.usize(..20) {
            0 => {
                let frame = format!(":{}\r\n", entry.value.len()).into_bytes();
                Self { command: words(&["STRLEN", &entry.key]), frame }
            }
            1 => {
                let several: Vec<_> =
                    (0..3).map(|_| &entries[rng.usize(..entries.len())]).collect();
                let keys = several.iter().map(|entry| entry.key.as_str());
                let command: Vec<&str> = ["MGET"].into_iter().chain(keys).collect();
                let values: Vec<u8> = several.iter().flat_map(|entry| bulk(&entry.value)).collect();
                Self { command: words(&command), frame: [&b"*3\r\n"[..], &values].concat() }
            }
            // All of it, in pieces; seldom, for the sake of the others.
            2 if entry.is_large() => {
                Self { command: words(&["GET", &entry.key]), frame: bulk(&entry.value) }
            }
            _ => {
                let start = rng.usize(..entry.value.len() - RANGE_BYTES);
                let end = start + RANGE_BYTES;
                let (first, last) = (start.to_string(), (end - 1).to_string());
                let command = words(&["GETRANGE", &entry.key, &first, &last]);
                Self { command, frame: bulk(&entry.value[start..end]) }
            }
        }
    }

    /// What is wrong with a reply to it.
    fn judge(&self, got: &[u8], tally: &mut Tally) -> Result<(), String> {
        if got == self.frame {
            tally.right += 1;
            return Ok(());
        }
        if ALLOWED.iter().any(|error| got.starts_with(error.as_bytes())) {
            tally.refused += 1;
            return Ok(());
        }
        Err(self.difference(got))
    }

    /// The same for what had come of a reply when the connection was closed.
    fn judge_part(&self, got: &[u8], tally: &mut Tally) -> Result<(), String> {
        tally.cut += 1;
        // Between two replies there is no need to.
        let is_part = !got.is_empty() && self.frame.starts_with(got);
        if is_part { Ok(()) } else { Err(self.difference(got)) }
    }

    fn difference(&self, got: &[u8]) -> String {
        let same = got.iter().zip(&self.frame).take_while(|(got, wanted)| got == wanted).count();
        let around = |bytes: &[u8]| {
            let begin = same.saturating_sub(40).min(bytes.len());
            bytes[begin..bytes.len().min(begin + 200)].escape_ascii().to_string()
        };
        format!(
            "{}: {} bytes, not {}; other ones from {same} on: {}, not {}",
            self.command.join(" "),
            got.len(),
            self.frame.len(),
            around(got),
            around(&self.frame)
        )
    }
}

/// Sends a burst and reads as much of the replies as it likes; false if the connection is over.
fn round(
    temper: Temper,
    client: &mut RawClient,
    entries: &[Entry],
    rng: &mut Rng,
    tally: &mut Tally,
) -> Result<bool, String> {
    let asked: Vec<_> = (0..rng.usize(1..BURST)).map(|_| Asked::any(entries, rng)).collect();
    let count = asked.len();
    let bytes: Vec<u8> = asked.iter().flat_map(|asked| encode(&asked.command)).collect();
    if matches!(temper, Temper::Sulking) {
        client.set_timeout(SULK);
        for _ in 0..SULKED_BURSTS {
            if client.try_send_raw(&bytes).is_err() {
                break;
            }
        }
        thread::sleep(SULK);
        return Ok(false);
    }
    if client.try_send_raw(&bytes).is_err() {
        // Closed, and nothing was outstanding.
        return Ok(false);
    }
    let read = match temper {
        Temper::Leaving => rng.usize(..count),
        _ => count,
    };
    if matches!(temper, Temper::Slow) {
        thread::sleep(FIRST_SIP);
    }
    for (position, asked) in asked.iter().enumerate().take(read) {
        let at = |why| format!("reply {position} of {count}: {why}");
        match client.try_read_frame(REPLY_TIMEOUT) {
            Ok(Some(frame)) => asked.judge(&frame, tally).map_err(at)?,
            Ok(None) => return Err(at(format!("{}: nothing came", asked.command.join(" ")))),
            Err(error) if error.kind() == ErrorKind::InvalidData => {
                return Err(at(asked.difference(&client.read_to_close())));
            }
            Err(_) => {
                asked.judge_part(&client.read_to_close(), tally).map_err(at)?;
                return Ok(false);
            }
        }
        if matches!(temper, Temper::Slow) && rng.u8(..) < 10 {
            thread::sleep(SIP);
        }
    }
    Ok(!matches!(temper, Temper::Leaving))
}

/// Asks until told to stop, on one connection after the other.
fn ask(
    addr: SocketAddr,
    temper: Temper,
    entries: &[Entry],
    mut rng: Rng,
    stop: &AtomicBool,
) -> Result<Tally, String> {
    let mut tally = Tally::default();
    while !stop.load(Ordering::Acquire) {
        let mut client = RawClient::connect(addr);
        client.set_timeout(REPLY_TIMEOUT);
        let mut goes_on = true;
        while goes_on && !stop.load(Ordering::Acquire) {
            goes_on = round(temper, &mut client, entries, &mut rng, &mut tally)
                .map_err(|why| format!("{temper:?}, {tally}: {why}"))?;
        }
    }
    Ok(tally)
}

/// Cuts Heatsink's connections to one node after the other until told to stop; how many.
fn cut(nodes: &[SocketAddr], mut rng: Rng, stop: &AtomicBool) -> usize {
    let mut cut = 0;
    while !stop.load(Ordering::Acquire) {
        thread::sleep(Duration::from_millis(rng.u64(..2 * CUT_EVERY_MS)));
        // The node may be dead, or stand still.
        let Ok(mut client) = RawClient::try_connect(nodes[rng.usize(..nodes.len())]) else {
            continue;
        };
        client.set_timeout(Duration::from_millis(100));
        let Ok(list) = client.try_command(&["CLIENT", "LIST", "TYPE", "normal"]) else { continue };
        let list = list.text();
        let of_heatsink = list.lines().filter(|line| line.contains(" name=heatsink"));
        let id = |line: &str| Some(line.split(' ').next()?.strip_prefix("id=")?.to_owned());
        for id in of_heatsink.filter_map(id) {
            let killed = client.try_command(&["CLIENT", "KILL", "ID", &id]);
            cut += usize::from(killed.is_ok_and(|killed| killed == Reply::Integer(1)));
        }
    }
    cut
}

/// What happens to the cluster.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// A primary stands still, too briefly for the others to mind.
    Pause,
    /// A primary stands still until another has its place.
    Freeze,
    Move,
    HandOver,
    Kill,
}

const EVENTS: [Event; 5] = [Event::Move, Event::Pause, Event::HandOver, Event::Freeze, Event::Kill];

/// Waits for a node to take over, which it may not be able to.
fn take_over(cluster: &RedisCluster, heir: usize) {
    let mut client = cluster.node(heir).client();
    poll_until(TAKEN_OVER, || client.command(&["ROLE"]).items()[0].text() == "master");
}

fn happen(event: Event, cluster: &mut RedisCluster, keys: &[String], rng: &mut Rng) {
    cluster.wait_until_ok();
    let primaries = cluster.primaries();
    let node = primaries[rng.usize(..primaries.len())];
    let Some(heir) = cluster.replicas_of(node).first().copied() else { return };
    match event {
        Event::Pause => {
            cluster.pause(node);
            thread::sleep(Duration::from_millis(rng.u64(300..700)));
            cluster.resume(node);
        }
        Event::Freeze => {
            cluster.pause(node);
            take_over(cluster, heir);
            cluster.resume(node);
        }
        Event::Move => {
            let slot = key_slot(&keys[rng.usize(..keys.len())]);
            cluster.move_slot(slot, node);
        }
        Event::HandOver => {
            // Refused if it has just taken over by itself, on a busy machine.
            cluster.node(heir).client().command(&["CLUSTER", "FAILOVER"]);
            take_over(cluster, heir);
        }
        Event::Kill => {
            cluster.kill(node);
            cluster.wait_until_ok();
            cluster.restart(node);
        }
    }
}

#[test]
fn no_reply_is_another_ones_under_load() {
    let seed = seed();
    let settings = RedisCluster::builder().line("cluster-require-full-coverage no");
    let mut rig = ClusterRig::with(settings, |config| config.workers = 2);
    let addr = rig.heatsink.addr();
    let entries: Vec<Vec<Entry>> = (0..TEMPERS.len())
        .map(|client| (0..KEYS).map(|number| Entry::new(&rig.cluster, client, number)).collect())
        .collect();
    let mut client = rig.client();
    for entry in entries.iter().flatten() {
        let set = [&b"SET"[..], entry.key.as_bytes(), &entry.value];
        assert_eq!(client.command(&set), Reply::ok());
    }
    // An heir has everything.
    assert_eq!(client.command(&["WAIT", "1", "10000"]), Reply::Integer(1));
    let keys: Vec<String> = entries.iter().flatten().map(|entry| entry.key.clone()).collect();
    let nodes: Vec<SocketAddr> = rig.cluster.nodes().map(RedisServer::addr).collect();
    let cluster = &mut rig.cluster;
    let stop = AtomicBool::new(false);
    let results: Vec<_> = thread::scope(|scope| {
        let ending = StopOnDrop(&stop);
        let threads: Vec<_> = (TEMPERS.iter().zip(&entries).zip(seed..))
            .map(|((temper, entries), seed)| {
                let stop = &stop;
                scope.spawn(move || ask(addr, *temper, entries, Rng::with_seed(seed), stop))
            })
            .collect();
        let cutting = scope.spawn(|| cut(&nodes, Rng::with_seed(seed), &stop));
        let mut rng = Rng::with_seed(seed);
        let until = Instant::now() + duration(SECONDS);
        // Each at least once.
        let mut events = EVENTS;
        rng.shuffle(&mut events);
        let mut happened = 0;
        while happened < events.len() || Instant::now() < until {
            let event = match events.get(happened) {
                Some(event) => *event,
                None => EVENTS[rng.usize(..EVENTS.len())],
            };
            let begun = Instant::now();
            happen(event, cluster, &keys, &mut rng);
            println!("{event:?} took {:?}", begun.elapsed());
            happened += 1;
        }
        cluster.wait_until_ok();
        drop(ending);
        println!("{} connections cut", cutting.join().expect("shown above"));
        threads.into_iter().map(|thread| thread.join().expect("shown above")).collect()
    });
    let mut tally = Tally::default();
    let mut wrong = Vec::new();
    for result in results {
        match result {
            Ok(one) => tally += one,
            Err(why) => wrong.push(why),
        }
    }
    assert!(wrong.is_empty(), "{} clients: {wrong:#?}", wrong.len());
    println!("checked: {tally}");
    assert!(tally.right > 1000, "{tally}");
}
