//! What the optional features add: another codec, a meter.

#![cfg(all(feature = "postcard", feature = "metrics"))]

mod common;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use common::S;
use heatsink::{Cache, Meter, Postcard, Source};
use heatsink_testkit::RedisServer;
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};

/// Remembers counters by name and labels, and that histograms were written.
#[derive(Clone, Default)]
struct Remembering(Arc<Mutex<BTreeMap<String, u64>>>);

struct Cell(Remembering, String);

impl metrics::CounterFn for Cell {
    fn increment(&self, by: u64) {
        *self.0.0.lock().unwrap().entry(self.1.clone()).or_default() += by;
    }

    fn absolute(&self, value: u64) {
        self.0.0.lock().unwrap().insert(self.1.clone(), value);
    }
}

impl metrics::HistogramFn for Cell {
    fn record(&self, _: f64) {
        metrics::CounterFn::increment(self, 1);
    }
}

impl Remembering {
    fn cell(&self, key: &Key) -> Arc<Cell> {
        let labels: Vec<_> =
            key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        Arc::new(Cell(self.clone(), format!("{} {}", key.name(), labels.join(" "))))
    }

    fn get(&self, name: &str) -> Option<u64> {
        self.0.lock().unwrap().get(name).copied()
    }
}

impl Recorder for Remembering {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.cell(key))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.cell(key))
    }
}

#[test]
fn postcard_values_are_shared_and_the_meter_tells_what_happened() {
    let server = RedisServer::start();
    let metrics = Remembering::default();
    metrics::set_global_recorder(metrics.clone()).unwrap_or_else(|_| panic!("the first recorder"));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let build = || async {
            let builder = Cache::<u32, (String, u64)>::builder("pairs").ttl(S(60));
            builder.redis_with(server.url(), Postcard).observer(Meter).build().await.unwrap()
        };
        let (one, two) = (build().await, build().await);
        let load = |_| async { Ok::<_, String>(("seven".to_owned(), 7)) };
        assert_eq!(one.get(&7).load(load).await.unwrap().1, 7);
        let again = two.get(&7).load(load).await.unwrap();
        assert_eq!((&again.0[..], again.source()), ("seven", Source::Shared));
        heatsink::publish(&two);
    });
    let count = |name: &str| metrics.get(name);
    assert_eq!(count("heatsink_cache_gets_total cache=pairs source=shared"), Some(1));
    assert_eq!(count("heatsink_cache_loads_total cache=pairs"), Some(0));
    assert_eq!(count("heatsink_cache_wait_seconds cache=pairs source=loaded"), Some(1));
    assert_eq!(count("heatsink_cache_wait_seconds cache=pairs source=shared"), Some(1));
    assert_eq!(count("heatsink_cache_load_seconds cache=pairs end=ok"), Some(1));
}
