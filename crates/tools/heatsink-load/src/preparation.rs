//! Before and after the rounds of a target: its keys are written, checked and removed.
//!
//! Called by: [`crate::run()`].
//! Bound: [`BATCH`] requests out at once.
//! Invariant: every item has a value of this run before anything is measured, so a read that
//! finds nothing, or a value of an earlier run, is a mismatch.

use heatsink_resp::encode;
use heatsink_resp::value::Value;
use heatsink_upstream::client::{Client, ClientError};

use crate::ledger::Ledger;
use crate::options::Options;
use crate::round::{counter_place, ordinal};
use crate::stamp::{self, Stamp};
use crate::verdict::{Kind, Mismatches};
use crate::workload::KeyId;

const BATCH: usize = 256;

/// All keys of a target, and where each stands in the ledger if it holds a value.
fn all_keys(options: &Options) -> impl Iterator<Item = KeyId> + use<> {
    let items = (0..options.shape.keys).map(KeyId::Item);
    let counters = (0..options.counters).map(KeyId::Counter);
    items.chain(counters).chain([KeyId::Stock, KeyId::Expiring])
}

/// Writes all keys.
pub(crate) fn write_keys(
    client: &mut Client,
    prefix: &str,
    options: &Options,
    ledger: &Ledger,
) -> Result<(), ClientError> {
    let mut batch = Batch::new(client);
    let mut value = Vec::new();
    for key in all_keys(options) {
        let name = key.name(prefix);
        let place = match key {
            KeyId::Item(number) => number as usize,
            KeyId::Expiring => options.shape.keys as usize,
            KeyId::Counter(_) => {
                batch.add(&[b"SET", &name, b"0"])?;
                continue;
            }
            KeyId::Stock => {
                batch.add(&[b"SET", &name, options.stock.to_string().as_bytes()])?;
                continue;
            }
        };
        let (version, floor) = ledger.issue(place);
        value.clear();
        let stamp = Stamp { run: ledger.run, version, floor };
        stamp::write(&mut value, &name, stamp, options.value_bytes);
        if key == KeyId::Expiring {
            let ttl_ms = options.ttl.as_millis().to_string();
            batch.add(&[b"SET", &name, &value, b"PX", ttl_ms.as_bytes()])?;
        } else {
            batch.add(&[b"SET", &name, &value])?;
        }
        // Any error ends the run, so what counts as acknowledged here is.
        ledger.acknowledge(place, floor);
    }
    batch.finish()
}

/// Compares each counter with the increments that were acknowledged.
pub(crate) fn check_counters(
    client: &mut Client,
    prefix: &str,
    options: &Options,
    ledger: &Ledger,
    mismatches: &mut Mismatches,
) -> Result<(), ClientError> {
    for key in (0..options.counters).map(KeyId::Counter).chain([KeyId::Stock]) {
        let Some(place) = counter_place(key, options) else { continue };
        let counter = ledger.counter(place);
        let reply = client.call(&[&b"GET"[..], &key.name(prefix)])?;
        let text = reply.text().and_then(|text| std::str::from_utf8(text).ok());
        let value = text.and_then(|text| text.parse().ok());
        let total = value.and_then(|value| ordinal(key, value, options));
        let (acknowledged, issued) = (counter.acknowledged(), counter.issued());
        let shown = || key.name(prefix).escape_ascii().to_string();
        match total {
            None => mismatches.add(Kind::Corrupted, || format!("{}: {text:?}", shown())),
            Some(total) if total < acknowledged => mismatches.add(Kind::CounterLost, || {
                format!("{}: {total} of {acknowledged} acknowledged", shown())
            }),
            Some(total) if total > issued => mismatches.add(Kind::CounterTooHigh, || {
                format!("{}: {total} after {issued} increments", shown())
            }),
            Some(_) => {}
        }
    }
    Ok(())
}

/// Removes all keys.
pub(crate) fn remove_keys(
    client: &mut Client,
    prefix: &str,
    options: &Options,
) -> Result<(), ClientError> {
    let mut batch = Batch::new(client);
    for key in all_keys(options) {
        batch.add(&[b"DEL", &key.name(prefix)])?;
    }
    batch.finish()
}

/// Sends requests many at a time.
struct Batch<'a> {
    client: &'a mut Client,
    bytes: Vec<u8>,
    count: usize,
}

impl<'a> Batch<'a> {
    fn new(client: &'a mut Client) -> Self {
        Self { client, bytes: Vec::new(), count: 0 }
    }

    fn add(&mut self, args: &[&[u8]]) -> Result<(), ClientError> {
        encode::command(&mut self.bytes, args);
        self.count += 1;
        // Big values fill the buffers of a socket sooner than small ones.
        if self.count < BATCH && self.bytes.len() < 256 * 1024 { Ok(()) } else { self.send() }
    }

    fn send(&mut self) -> Result<(), ClientError> {
        self.client.send(&self.bytes)?;
        self.bytes.clear();
        for _ in 0..std::mem::take(&mut self.count) {
            if let Value::Error(text) = self.client.reply()? {
                let server = self.client.name().to_owned();
                let reply = String::from_utf8_lossy(&text).into_owned();
                return Err(ClientError::Refused { server, reply });
            }
        }
        Ok(())
    }

    fn finish(mut self) -> Result<(), ClientError> {
        self.send()
    }
}
