//! What only the replies show: bytes, misses, and how many writes are out at once.

use heatsink_testkit::{encode, eventually};

use crate::rig::{Counted, SOON, WINDOW_S};

fn per_window(rate: f64) -> u64 {
    (rate * f64::from(WINDOW_S)).round() as u64
}

fn misses_and_bytes(mut counted: Counted) {
    let mut client = counted.client();
    client.command(&["SET", "there", &"x".repeat(1000)]);
    for _ in 0..10 {
        client.command(&["GET", "there"]);
        client.command(&["GET", "absent"]);
        client.command(&["MGET", "there", "absent"]);
        client.command(&["HGETALL", "absent"]);
    }
    // 20 replies of a kilobyte, and one request.
    counted.until("there", |heat| (21_000..25_000).contains(&per_window(heat.bytes_per_second)));
    counted.until("there", |heat| per_window(heat.misses_per_second) == 0);
    counted.until("absent", |heat| per_window(heat.misses_per_second) == 30);
}

#[test]
fn misses_and_bytes_before_a_server() {
    misses_and_bytes(Counted::before_server(|_| ()));
}

#[test]
fn misses_and_bytes_before_a_cluster() {
    misses_and_bytes(Counted::before_cluster());
}

#[test]
fn a_large_reply_counts_whole_though_it_is_passed_on_in_pieces() {
    let mut counted = Counted::before_server(|_| ());
    let mut client = counted.client();
    counted.server().client().command(&["SET", "large", &"x".repeat(8 << 20)]);
    for _ in 0..2 {
        client.command(&["GET", "large"]);
    }
    let large = 8 << 20;
    counted.until("large", |heat| {
        (2 * large..2 * large + 1000).contains(&per_window(heat.bytes_per_second))
    });
}

#[test]
fn writes_in_flight_are_those_that_wait_at_once() {
    let mut counted = Counted::before_server(|_| ());
    let mut clients: Vec<_> = (0..20).map(|_| counted.client()).collect();
    clients[0].command(&["SET", "counter", "0"]);
    counted.server().pause();
    for client in &mut clients {
        client.send_raw(&encode(&["INCR", "counter"]));
    }
    counted.until("counter", |heat| heat.writes_in_flight >= 20);
    counted.server().resume();
    for client in &mut clients {
        client.read_reply();
    }
    counted.until("counter", |heat| heat.writes_in_flight == 0);
}

#[test]
fn a_pipeline_of_one_client_is_no_contention() {
    let mut counted = Counted::before_server(|_| ());
    let (mut one, mut other) = (counted.client(), counted.client());
    one.command(&["RPUSH", "list", "0"]);
    counted.server().pause();
    one.send_raw(
        &[encode(&["RPUSH", "list", "x"]), encode(&["DEL", "list", "b"])].concat().repeat(20),
    );
    other.send_raw(&encode(&["RPUSH", "list", "y"]).repeat(40));
    // All of them are out, and they are two clients'.
    counted.until("list", |heat| per_window(heat.writes_per_second) == 81);
    counted.until("list", |heat| heat.writes_in_flight == 2);
    counted.server().resume();
    for client in [&mut one, &mut other] {
        (0..40).for_each(|_| drop(client.read_reply()));
    }
    counted.until("list", |heat| heat.writes_in_flight == 0);
}

#[test]
fn a_large_request_counts_whole_though_it_is_passed_on_in_pieces() {
    let mut counted = Counted::before_server(|_| ());
    let mut client = counted.client();
    let before = counted.heatsink().proxy().handle().requests_total();
    let large = 8_u64 << 20;
    for _ in 0..2 {
        client.command(&["SET", "large", &"x".repeat(large as usize)]);
    }
    counted.until("large", |heat| {
        (2 * large..2 * large + 1000).contains(&per_window(heat.bytes_per_second))
    });
    eventually(SOON, || counted.heatsink().proxy().handle().requests_total() == before + 2);
}

#[test]
fn requests_on_a_clients_own_connection_are_part_of_the_upstreams_load() {
    let counted = Counted::before_server(|_| ());
    let total = || counted.heatsink().proxy().upstream_load().primaries[0].requests_total;
    let mut client = counted.client();
    client.command(&["SUBSCRIBE", "channel"]);
    let before = std::cell::Cell::new(0);
    let is_still = || before.replace(total()) == total();
    eventually(SOON, || total() > 0 && is_still());
    let before = total();
    let mut other = counted.client();
    for _ in 0..10 {
        other.command(&["MULTI"]);
        other.command(&["INCR", "a"]);
        other.command(&["EXEC"]);
        other.command(&["SET", "large", &"x".repeat(1 << 20)]);
    }
    eventually(SOON, || total() == before + 40);
}

#[test]
fn a_lost_connection_leaves_nothing_in_flight() {
    let mut counted = Counted::before_server(|config| {
        config.live.timeouts.silence = Some(std::time::Duration::from_millis(300));
    });
    let mut client = counted.client();
    client.command(&["SET", "counter", "0"]);
    counted.server().pause();
    let many = [encode(&["INCR", "counter"]), encode(&["MSET", "counter", "1", "b", "2"])];
    client.send_raw(&many.concat().repeat(10));
    counted.until("counter", |heat| heat.writes_in_flight == 1);
    counted.until("counter", |heat| per_window(heat.writes_per_second) == 21);
    for _ in 0..20 {
        assert!(client.read_reply().is_error(), "the server is silent");
    }
    counted.server().resume();
    counted.until("counter", |heat| heat.writes_in_flight == 0);
}
