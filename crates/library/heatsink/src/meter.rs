//! What happens, for the `metrics` facade.
//!
//! Called by: the application: [`Meter`] as an observer, [`publish`] before it is scraped.

use metrics::{Label, counter, gauge, histogram};

use crate::cache::Cache;
use crate::entry::Source;
use crate::observer::{Event, Observer};

/// An observer that reports to the `metrics` facade: how long callers waited and loads took, and
/// what went wrong. What is only counted is published by [`publish`].
#[derive(Debug, Clone, Copy, Default)]
pub struct Meter;

impl Observer for Meter {
    fn on(&self, cache: &str, event: Event<'_>) {
        let name = || Label::new("cache", cache.to_owned());
        match event {
            Event::Answered { source, waited, stale } => {
                let source = match source {
                    Some(_) if stale => "stale",
                    Some(Source::Local) => "local",
                    Some(Source::Shared) => "shared",
                    Some(Source::Loaded) => "loaded",
                    Some(Source::Joined) => "joined",
                    None => "failed",
                };
                let labels = vec![name(), Label::new("source", source)];
                histogram!("heatsink_cache_wait_seconds", labels).record(waited);
            }
            Event::Loaded { cost, failure, .. } => {
                let end = failure.unwrap_or("ok").to_owned();
                let labels = vec![name(), Label::new("end", end)];
                histogram!("heatsink_cache_load_seconds", labels).record(cost);
            }
            Event::TooLarge { bytes } => {
                histogram!("heatsink_cache_too_large_bytes", vec![name()]).record(bytes as f64);
            }
            Event::LeaseLost | Event::Undecodable | Event::SharedFailed { .. } => {}
        }
    }
}

/// Publishes a cache's counters, as of now.
pub fn publish<K, V>(cache: &Cache<K, V>)
where
    K: std::hash::Hash + Eq + Clone + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    let counts = cache.counts();
    let name = || Label::new("cache", cache.name().to_owned());
    let answered = [
        ("local", counts.local_hits),
        ("shared", counts.shared_hits),
        ("loaded", counts.loaded),
        ("joined", counts.loads_deduped),
        ("stale", counts.stale_served),
        ("failed", counts.failed),
        ("abandoned", counts.abandoned),
    ];
    for (source, count) in answered {
        let labels = vec![name(), Label::new("source", source)];
        counter!("heatsink_cache_gets_total", labels).absolute(count);
    }
    for (what, count) in [
        ("heatsink_cache_loads_total", counts.loads),
        ("heatsink_cache_loads_failed_total", counts.loads_failed),
        ("heatsink_cache_refreshes_total", counts.refreshes),
        ("heatsink_cache_early_refreshes_total", counts.early_refreshes),
        ("heatsink_cache_leases_lost_total", counts.leases_lost),
        ("heatsink_cache_leases_waited_total", counts.leases_waited),
        ("heatsink_cache_undecodable_total", counts.undecodable),
        ("heatsink_cache_too_large_total", counts.too_large),
        ("heatsink_cache_shared_errors_total", counts.shared_errors),
        ("heatsink_cache_invalidations_total", counts.invalidations),
    ] {
        counter!(what, vec![name()]).absolute(count);
    }
    gauge!("heatsink_cache_local_entries", vec![name()]).set(cache.local_len() as f64);
    gauge!("heatsink_cache_loading", vec![name()]).set(cache.loading() as f64);
}
