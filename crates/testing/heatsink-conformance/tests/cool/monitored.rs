//! `MONITOR` through Heatsink does not show how the cache looks after its connections.

use heatsink_testkit::{RawClient, Reply};

use crate::served::{rig, warm};

fn shown_before(
    monitor: &mut RawClient,
    lines: &mut Vec<String>,
    ends: impl Fn(&[String]) -> bool,
) {
    while !ends(lines) {
        lines.push(monitor.read_reply().text());
    }
}

fn count(lines: &[String], words: &str) -> usize {
    lines.iter().filter(|line| line.contains(words)).count()
}

/// The address of the connection on which these words came.
fn address(lines: &[String], words: &str) -> String {
    let line = lines.iter().find(|line| line.contains(words)).expect("a line with these words");
    let (_, rest) = line.split_once('[').expect("an address");
    rest.split_once(']').expect("its end").0.to_owned()
}

#[test]
fn what_the_cache_says_to_the_server_is_not_shown() {
    let rig = rig(&["k"], 2);
    let mut client = rig.client();
    let (mut monitor, mut server) = (rig.client(), rig.server().client());
    for monitor in [&mut monitor, &mut server] {
        assert_eq!(monitor.command(&["MONITOR"]), Reply::ok());
    }
    client.command(&["SET", "k", "1"]);
    warm(&rig, "k");
    let (mut through, mut direct) = (Vec::new(), Vec::new());
    // It is asked for its pulse, and again.
    shown_before(&mut server, &mut direct, |lines| count(lines, "\"PING\"") > 2);
    client.command(&["PING"]);
    client.command(&["ECHO", "the end"]);
    let is_over = |lines: &[String]| count(lines, "the end") == 1;
    shown_before(&mut server, &mut direct, is_over);
    shown_before(&mut monitor, &mut through, is_over);
    // On connections that clients share, a PING may be one of theirs.
    let listed = rig.server().client().command(&["CLIENT", "LIST"]).text();
    let shared = listed.lines().filter(|line| line.contains(" name=heatsink "));
    let shared: Vec<&str> = shared
        .filter_map(|line| line.split(' ').find_map(|word| word.strip_prefix("addr=")))
        .collect();
    let of_set = address(&through, "\"SET\" \"k\" \"1\"");
    assert!(shared.iter().any(|address| of_set.ends_with(address)), "{of_set}: {listed}");
    let pulses = |lines: &[String]| {
        let of_clients = |address: &&str| count(lines, &format!("{address}] \"PING\""));
        count(lines, "\"PING\"") - shared.iter().map(of_clients).sum::<usize>()
    };
    assert!(pulses(&direct) > 0, "{direct:?}");
    assert_eq!(pulses(&through), 0, "{through:?}");
    assert!(count(&through, "\"PING\"") > 0, "that of the client: {through:?}");
    assert!(count(&direct, "\"CLIENT\" \"CACHING\" \"YES\"") > 0, "{direct:?}");
    assert_eq!(count(&through, "\"CACHING\""), 0, "{through:?}");
    // Reads that clients caused are shown, all of them.
    for words in ["\"GET\" \"k\"", "\"SET\" \"k\" \"1\"", "\"ECHO\""] {
        assert!(count(&through, words) > 0, "{words}: {through:?}");
        assert_eq!(count(&through, words), count(&direct, words), "{words}");
    }
}
