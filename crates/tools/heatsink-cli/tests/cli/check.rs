//! `heatsink check FILE`.

use crate::support::Place;

/// The keys that are promised to stay.
const CONTRACT: &str = r#"
listen = "127.0.0.1:6380"
admin = "127.0.0.1:9600"
upstream = "redis://127.0.0.1:6379"
role = "all"                 # all | proxy | aggregator
namespace = "default"
workers = 0                  # 0 = one per core

[coordination]
url = "redis://127.0.0.1:6379"   # default: the upstream

[detect]
window_ms = 1000
tick_ms = 50
hot_threshold = 1000         # requests/s on one key over the whole fleet
report_threshold = 1000      # requests/s on one proxy; lowered to hot_threshold / live proxies
retire_fraction = 0.5        # retire below this fraction of hot_threshold ...
hold_seconds = 30            # ... for this long
sketch_depth = 4
sketch_width = 2048

[local_cache]
entries = 2048
max_bytes = "64MiB"
max_ttl_ms = 60000
ttl_fraction = 0.2

[coalesce]
max_wait_ms = 1000

[[policy]]                   # first match wins; the last resort is mode = "coherent"
match = "balance:*"          # glob, as in Redis
mode = "exact"               # off | observe | exact | coherent | relaxed
"#;

/// The same settings with the values of `report`, without comments and order.
fn plain(report: &str) -> Vec<String> {
    report
        .lines()
        .map(|line| line.split(" # ").next().unwrap_or_default().trim().to_owned())
        .collect()
}

#[test]
fn the_promised_keys_are_valid_and_come_from_the_file() {
    let place = Place::with_file(CONTRACT);
    let run = place.run(&["check", "heatsink.toml"]);
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
    assert!(run.stdout.starts_with("heatsink.toml: ok\n"), "{}", run.stdout);
    for line in [
        "listen = \"127.0.0.1:6380\"                  # file, line 2",
        "admin = \"127.0.0.1:9600\"                   # file, line 3",
        "limits.max_clients = 10000                 # default",
        "limits.max_bulk_bytes = \"512MiB\"           # default",
        "detect.retire_fraction = 0.5               # file, line 17",
        "[[policy]]",
        "mode = \"exact\"                             # file, line 33",
    ] {
        assert!(run.stdout.lines().any(|shown| shown == line), "{line}\n{}", run.stdout);
    }
}

#[test]
fn what_is_shown_is_a_valid_file_with_the_same_meaning() {
    let first = Place::with_file(
        "namespace = \"a-b\"\n[limits]\nmax_output_bytes = 1000\n\
         [[policy]]\nmatch = 'a\"b\\c'\nmode = \"off\"\n",
    )
    .run(&["check", "heatsink.toml"]);
    let report = first.stdout.strip_prefix("heatsink.toml: ok\n").expect("valid");
    let second = Place::with_file(report).run(&["check", "heatsink.toml"]);
    assert_eq!((second.code, second.stderr.as_str()), (Some(0), ""));
    assert_eq!(plain(&second.stdout), plain(&first.stdout));
}

#[test]
fn an_empty_file_means_the_defaults() {
    let run = Place::with_file("").run(&["check", "heatsink.toml"]);
    assert_eq!(run.code, Some(0));
    assert!(run.stdout.contains("\nupstream = \"embedded://\" "), "{}", run.stdout);
    assert!(run.stdout.lines().skip(1).all(|line| line.contains(" # default")), "{}", run.stdout);
    let coordination = run.stdout.lines().find(|line| line.starts_with("coordination.url"));
    let coordination = coordination.expect("every key is shown");
    assert!(coordination.ends_with(" # default, that of upstream"), "{coordination}");
}

#[test]
fn an_unknown_key_is_answered_with_the_nearest() {
    let run = Place::with_file("\n\nlisen = \"127.0.0.1:1\"\n").run(&["check", "heatsink.toml"]);
    assert_eq!(run.code, Some(3));
    assert_eq!(run.stdout, "");
    assert_eq!(run.stderr, "heatsink.toml:3: unknown key \"lisen\"; did you mean \"listen\"?\n");
}

#[test]
fn all_mistakes_are_reported_at_once() {
    let run = Place::with_file(
        "workers = 1000\nlisten = 6380\nupstream = \"redis://bob:hunter2@h:x\"\n\
         colour = \"red\"\n[limits]\n\nmax_clients = \"many\"\n\
         [local_cache]\nttl_fraction = 1.5\n[[policy]]\nmatch = \"*\"\nmode = \"exakt\"\n",
    )
    .run(&["check", "heatsink.toml"]);
    assert_eq!(run.code, Some(3));
    assert_eq!(
        run.stderr,
        "heatsink.toml:1: workers: 1000 is not a whole number from 0 to 256\n\
         heatsink.toml:2: listen: 6380 is not an IP address with a port, such as \
         \"127.0.0.1:6380\"\n\
         heatsink.toml:3: upstream: \"redis://bob:***@h:x\": port \"x\" is not a number from 1 to \
         65535\n\
         heatsink.toml:4: unknown key \"colour\"\n\
         heatsink.toml:7: limits.max_clients: \"many\" is not a whole number from 1 to 1000000\n\
         heatsink.toml:9: local_cache.ttl_fraction: 1.5 is not a number above 0 and up to 1\n\
         heatsink.toml:12: policy.mode: \"exakt\" is not one of off, observe, exact, coherent, \
         relaxed; did you mean \"exact\"?\n"
    );
}

#[test]
fn settings_that_do_not_fit_together_are_refused() {
    let run = Place::with_file("role = \"aggregator\"\n[detect]\ntick_ms = 2000\n")
        .run(&["check", "heatsink.toml"]);
    assert_eq!(run.code, Some(3));
    assert_eq!(
        run.stderr,
        "heatsink.toml:1: role: \"aggregator\" needs a Redis in which to meet the others; set \
         coordination.url (or upstream)\n\
         heatsink.toml:3: detect.tick_ms: 2000 is more than detect.window_ms, which is 1000\n"
    );
}

#[test]
fn broken_syntax_names_file_and_line() {
    let run = Place::with_file("workers = 1\nlisten = \"127\n").run(&["check", "heatsink.toml"]);
    assert_eq!(run.code, Some(3));
    assert!(run.stderr.starts_with("heatsink.toml:2: "), "{}", run.stderr);
    assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
}

#[test]
fn a_file_that_cannot_be_read_is_a_failure_at_run_time() {
    let run = Place::empty().run(&["check", "nowhere.toml"]);
    assert_eq!(run.code, Some(1));
    assert_eq!(run.stdout, "");
    assert_eq!(
        run.stderr,
        "heatsink: cannot read nowhere.toml: No such file or directory (os error 2)\n"
    );
}

#[test]
fn passwords_are_not_shown() {
    let run = Place::with_file(
        "upstream = \"redis://bob:hunter2@h:1/2\"\n[coordination]\nurl = \"redis://:hunter2@h\"\n",
    )
    .run(&["check", "heatsink.toml"]);
    assert_eq!(run.code, Some(0));
    assert!(!run.stdout.contains("hunter2"), "{}", run.stdout);
    assert!(run.stdout.contains("\nupstream = \"redis://bob:***@h:1/2\" "), "{}", run.stdout);
    assert!(run.stdout.contains("\ncoordination.url = \"redis://:***@h\" "), "{}", run.stdout);
}

#[test]
fn keys_of_tls_users_and_handover_are_shown_with_their_values() {
    let place = Place::with_file(
        "upstream = \"redis+cluster://h:1,h:2\"\ncluster_announce = \"[::1]:6380\"\n\
         handover = \"h.sock\"\nreload_on_change = false\n[timeouts]\ncluster_retry_ms = 5\n\
         [[policy]]\nmatch = \"cache:*\"\nmode = \"coherent\"\nreplica_reads = true\n",
    );
    let run = place.run(&["check", "heatsink.toml"]);
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
    for line in [
        "upstream = \"redis+cluster://h:1,h:2\"",
        "cluster_announce = \"[::1]:6380\"",
        "auth = \"pass-through\"",
        "users = \"\"",
        "handover = \"h.sock\"",
        "reload_on_change = false",
        "tls.listen = \"\"",
        "tls.require_client_certificate = false",
        "upstream_tls.ca = \"\"",
        "timeouts.cluster_retry_ms = 5",
        "timeouts.handover_ms = 60000",
        "replica_reads = true",
    ] {
        assert!(plain(&run.stdout).iter().any(|shown| shown == line), "{line}\n{}", run.stdout);
    }
    let report = run.stdout.strip_prefix("heatsink.toml: ok\n").expect("valid");
    let again = Place::with_file(report).run(&["check", "heatsink.toml"]);
    assert_eq!(plain(&again.stdout), plain(&run.stdout));
}

#[test]
fn keys_that_need_each_other_are_refused_alone() {
    let run = Place::with_file(
        "upstream = \"redis://h\"\nauth = \"service\"\nreload_on_change = \"yes\"\n",
    )
    .run(&["check", "heatsink.toml"]);
    assert_eq!(run.code, Some(3));
    assert_eq!(
        run.stderr,
        "heatsink.toml:3: reload_on_change: \"yes\" is neither true nor false\n"
    );
    let run = Place::with_file(
        "auth = \"service\"\n[tls]\nlisten = \"127.0.0.1:0\"\n[upstream_tls]\nca = \"ca.pem\"\n\
         [[policy]]\nmatch = \"*\"\nmode = \"exact\"\nreplica_reads = true\n",
    )
    .run(&["check", "heatsink.toml"]);
    assert_eq!(run.code, Some(3));
    assert_eq!(
        run.stderr,
        "heatsink.toml:1: auth: \"service\" needs a users file; set users to its path\n\
         heatsink.toml:3: tls.listen: needs tls.certificate and tls.key\n\
         heatsink.toml:5: upstream_tls.ca: has no effect, since upstream is not a rediss:// URL\n\
         heatsink.toml:9: policy.replica_reads: a replica may answer with an older value, which \
         mode \"exact\" rules out; use mode \"coherent\" or \"relaxed\", or leave it out\n"
    );
}
