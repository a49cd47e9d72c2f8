//! `--help`, `--version` and wrong usage.

use crate::support::Place;

#[test]
fn help_names_every_option_with_its_default_and_the_exit_codes() {
    let place = Place::empty();
    let run = place.run(&["serve", "--help"]);
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""));
    for part in [
        "--listen <ADDR>",
        "[default: 127.0.0.1:6380]",
        "--limits-max-clients <N>",
        "--role <all|proxy|aggregator>",
        "Limits of a client:",
        "TLS for clients:",
        "--tls-require-client-certificate <true|false>",
        "--handover <PATH>",
        "HEATSINK_LIMITS_MAX_CLIENTS",
        "Exit codes:",
        "3  invalid configuration",
    ] {
        assert!(run.stdout.contains(part), "{part}\n{}", run.stdout);
    }
    let short = place.run(&["serve", "-h"]).stdout;
    assert!(short.contains("--listen") && !short.contains("--limits-max-clients"), "{short}");
    let whole = place.run(&["--help"]).stdout;
    assert!(whole.contains("Exit codes:") && whole.contains("hash-password"), "{whole}");
    let says = |command: &str, about: &str| {
        let line = whole.lines().find(|line| line.trim_start().starts_with(command));
        assert!(line.is_some_and(|line| line.contains(about)), "{command}: {whole}");
    };
    says("demo ", "See it work");
    says("load ", "Play a scenario");
    says("scan ", "hot keys of a server");
    says("top ", "live, in the terminal");
    assert!(!run.stdout.contains("[default: ]"), "{}", run.stdout);
}

#[test]
fn the_version_is_that_of_the_package() {
    let run = Place::empty().run(&["--version"]);
    assert_eq!(run.code, Some(0));
    assert_eq!(run.stdout, format!("heatsink {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn wrong_usage_exits_with_2_and_suggests_the_nearest() {
    let place = Place::empty();
    let flag = place.run(&["serve", "--lisen", "127.0.0.1:0"]);
    assert_eq!(flag.code, Some(2));
    assert!(flag.stderr.contains("'--listen'"), "{}", flag.stderr);
    let command = place.run(&["serv"]);
    assert_eq!(command.code, Some(2));
    assert!(command.stderr.contains("'serve'"), "{}", command.stderr);
    assert_eq!(place.run(&[]).code, Some(2));
    assert_eq!(place.run(&["check"]).code, Some(2));
}
