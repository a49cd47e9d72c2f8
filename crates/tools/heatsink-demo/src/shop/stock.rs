//! Before the shop opens and after it has closed: items are written, checked and removed.
//!
//! Bound: [`BATCH`] requests out at once; [`PATIENCE`] for the cluster to be found.

use std::io;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use heatsink_load::ledger::Ledger;
use heatsink_load::stamp::{self, Stamp};
use heatsink_load::verdict::{Kind, Mismatches};
use heatsink_load::workload::KeyId;
use heatsink_resp::encode;
use heatsink_resp::value::Value;
use heatsink_upstream::address::ServerUrl;
use heatsink_upstream::client::{Client, ClientError};

use crate::options::{ITEM_BYTES, ITEMS};

const BATCH: usize = 128;
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(20);

/// Tells the values of this run from those of any other.
pub(super) fn run_number() -> u32 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.subsec_nanos() ^ now.as_secs() as u32
}

fn open(door: SocketAddr) -> Result<Client, ClientError> {
    let url = ServerUrl {
        host: door.ip().to_string(),
        port: door.port(),
        tls: false,
        credentials: None,
        db: 0,
    };
    Client::open(&url, None, PATIENCE)
}

/// Writes all items and the counter.
pub(super) fn fill(door: SocketAddr, prefix: &str, ledger: &Ledger) -> io::Result<()> {
    let mut client = open(door).map_err(io::Error::other)?;
    // The proxy may still be asking where the nodes are.
    let until = Instant::now() + PATIENCE;
    let counter = KeyId::Counter(0).name(prefix);
    while let Err(error) = client.call(&[b"SET", &counter[..], b"0"]) {
        match error {
            ClientError::Refused { .. } if Instant::now() < until => thread::sleep(LOOK),
            error => return Err(io::Error::other(error)),
        }
    }
    let mut requests = Vec::with_capacity(ITEMS as usize);
    for number in 0..ITEMS {
        let name = KeyId::Item(number).name(prefix);
        let (version, floor) = ledger.issue(number as usize);
        let mut value = Vec::new();
        stamp::write(&mut value, &name, Stamp { run: ledger.run, version, floor }, ITEM_BYTES);
        requests.push(vec![b"SET".to_vec(), name, value]);
        // Any error ends the demo, so what counts as acknowledged here is.
        ledger.acknowledge(number as usize, floor);
    }
    send(client, &requests).map_err(io::Error::other)
}

/// Removes all keys.
pub(super) fn clear(door: SocketAddr, prefix: &str) -> io::Result<()> {
    let keys = (0..ITEMS).map(KeyId::Item).chain([KeyId::Counter(0)]);
    let requests: Vec<_> = keys.map(|key| vec![b"DEL".to_vec(), key.name(prefix)]).collect();
    let client = open(door).map_err(io::Error::other)?;
    send(client, &requests).map_err(io::Error::other)
}

fn send(mut client: Client, requests: &[Vec<Vec<u8>>]) -> Result<(), ClientError> {
    for batch in requests.chunks(BATCH) {
        let mut bytes = Vec::new();
        for request in batch {
            encode::command(&mut bytes, request);
        }
        client.send(&bytes)?;
        for _ in batch {
            if let Value::Error(text) = client.reply()? {
                let server = client.name().to_owned();
                let reply = String::from_utf8_lossy(&text).into_owned();
                return Err(ClientError::Refused { server, reply });
            }
        }
    }
    client.quit();
    Ok(())
}

/// Compares the counter with the increments that were acknowledged.
pub(super) fn check_counter(
    door: SocketAddr,
    prefix: &str,
    ledger: &Ledger,
    mismatches: &mut Mismatches,
) -> io::Result<()> {
    let mut client = open(door).map_err(io::Error::other)?;
    let key = KeyId::Counter(0).name(prefix);
    let reply = client.call(&[b"GET", &key[..]]).map_err(io::Error::other)?;
    client.quit();
    let text = reply.text().and_then(|text| std::str::from_utf8(text).ok());
    let (acknowledged, issued) = (ledger.counter(0).acknowledged(), ledger.counter(0).issued());
    match text.and_then(|text| text.parse::<u64>().ok()) {
        None => mismatches.add(Kind::Corrupted, || format!("the counter is {text:?}")),
        Some(value) if value < acknowledged => {
            let words = || format!("{value} of {acknowledged} acknowledged");
            mismatches.add(Kind::CounterLost, words);
        }
        Some(value) if value > issued => {
            let words = || format!("{value} after {issued} increments");
            mismatches.add(Kind::CounterTooHigh, words);
        }
        Some(_) => {}
    }
    Ok(())
}
