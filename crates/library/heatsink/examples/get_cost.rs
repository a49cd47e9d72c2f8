//! What a hit in this process costs: `cargo run --release -p heatsink --no-default-features
//! --example get_cost`.

use std::hint::black_box;
use std::time::{Duration, Instant};

use heatsink::Cache;

const KEYS: u64 = 1000;
const ROUNDS: u64 = 3000;
const RUNS: usize = 7;

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        for (name, detector) in [("with the detector", true), ("without", false)] {
            let mut builder = Cache::<u64, String>::builder("hits").ttl(Duration::from_secs(3600));
            if !detector {
                builder = builder.detector(None);
            }
            let cache = builder.build().await.expect("a cache");
            for key in 0..KEYS {
                cache.put(&key, format!("value {key}")).await.expect("it is in memory");
            }
            let mut best = f64::MAX;
            for _ in 0..RUNS {
                let start = Instant::now();
                for _ in 0..ROUNDS {
                    for key in 0..KEYS {
                        let load = |_| async { Err::<String, ()>(()) };
                        black_box(cache.get(black_box(&key)).load(load).await).expect("a hit");
                    }
                }
                best = best.min(start.elapsed().as_nanos() as f64 / (KEYS * ROUNDS) as f64);
            }
            println!("{name}: {best:.1} ns a hit");
        }
    });
}
