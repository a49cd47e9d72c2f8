//! What a loader traces is found under the request that waits for it.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use heatsink::{Cache, Clock};
use tracing::Instrument;

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// The spans around the event with these words.
    fn spans_of(&self, words: &str) -> String {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        let line = text.lines().find(|line| line.ends_with(words)).expect("it was traced");
        line.trim_start().split_once(' ').unwrap().1.trim_start().to_owned()
    }
}

#[tokio::test]
async fn a_load_is_a_span_of_the_request_that_waits_and_a_refresh_one_by_itself() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::DEBUG)
        .with_ansi(false)
        .without_time()
        .with_target(false)
        .with_writer(move || writer.clone())
        .finish();
    let _traced = tracing::subscriber::set_default(subscriber);

    let clock = Clock::manual();
    let cache = Cache::<u32, u32>::builder("rows").ttl(Duration::from_secs(60));
    let cache = cache.stale(Duration::from_secs(60)).clock(clock.clone()).build().await.unwrap();
    let ask = |words: &'static str| {
        let load = move |_| async move {
            tracing::info!("{words}");
            Ok::<_, String>(1)
        };
        cache.get(&1).load(load).instrument(tracing::info_span!("request"))
    };
    ask("a query").await.unwrap();
    clock.advance(Duration::from_secs(60));
    ask("a refresh").await.unwrap();
    while cache.loading() > 0 {
        tokio::task::yield_now().await;
    }
    let waited_for = r#"request:load{cache="rows" refresh=false}: a query"#;
    assert_eq!(log.spans_of("a query"), waited_for);
    assert_eq!(log.spans_of("a refresh"), r#"load{cache="rows" refresh=true}: a refresh"#);
}
