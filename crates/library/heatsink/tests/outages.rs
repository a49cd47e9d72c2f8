//! What callers notice while servers or the database fail, and what is left behind: nothing.

mod common;

use std::time::Instant;

use common::{Database, MS, S, get};
use heatsink::{Cache, Local, Source};
use heatsink_testkit::RedisServer;

#[test]
fn who_asks_without_a_pause_does_not_hold_up_what_is_being_stored() {
    let server = RedisServer::start();
    let db = Database::default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let cache = Cache::<u32, String>::builder("users").redis(server.url());
        let cache = cache.local(Local::off()).build().await.unwrap();
        let end = Instant::now() + S(5);
        while get(&cache, &db, 1, MS(0)).await.unwrap().source() != Source::Shared {
            assert!(Instant::now() < end, "{:?}", cache.counts());
        }
    });
}
