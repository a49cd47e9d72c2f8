//! The programs that come with Redis, first on a plain server, then through Heatsink.

use std::fmt::Write as _;
use std::io::Write;
use std::net::SocketAddr;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use heatsink_conformance::Rig;
use heatsink_testkit::{Process, RawClient, RedisServer, Reply, encode, eventually, poll_until};

const WORKERS: usize = 2;
const BOUND_SECONDS: &str = "120";
const WAIT: Duration = Duration::from_secs(10);

fn on_both(check: impl Fn(SocketAddr)) {
    let plain = RedisServer::start();
    check(plain.addr());
    drop(plain);
    println!("the plain server passed");
    check(Rig::new(WORKERS).addr());
}

fn tool(name: &str, addr: SocketAddr, args: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.args([BOUND_SECONDS, name]);
    command.args(["-h", &addr.ip().to_string(), "-p", &addr.port().to_string()]).args(args);
    command
}

/// Runs it to its end with `input`, and returns what it printed; it must not complain.
fn run(mut command: Command, input: &[u8]) -> String {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("cannot run {command:?}: {error}; run ./test"));
    let mut stdin = child.stdin.take().expect("piped");
    let input = input.to_vec();
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let Output { status, stdout, stderr } = child.wait_with_output().expect("it can be waited for");
    writer.join().expect("the writer ends").expect("all input is read");
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success() && stderr.is_empty(), "{command:?}: {status}\n{stdout}\n{stderr}");
    stdout.into_owned()
}

fn cli(addr: SocketAddr, args: &[&str], input: &str) -> String {
    run(tool("redis-cli", addr, args), input.as_bytes())
}

#[test]
fn cli_runs_commands() {
    on_both(|addr| {
        assert_eq!(cli(addr, &["SET", "k", "v"], ""), "OK\n");
        assert_eq!(cli(addr, &["GET", "k"], ""), "v\n");
        assert_eq!(cli(addr, &["-n", "3", "GET", "k"], ""), "\n");
        assert_eq!(cli(addr, &["--no-raw", "RPUSH", "l", "a", "b"], ""), "(integer) 2\n");
        assert_eq!(cli(addr, &["--no-raw", "LRANGE", "l", "0", "-1"], ""), "1) \"a\"\n2) \"b\"\n");
        assert_eq!(cli(addr, &["-r", "3", "INCR", "n"], ""), "1\n2\n3\n");
        assert_eq!(
            cli(addr, &["--eval", "/dev/stdin", "k", ",", "x"], "return KEYS[1]..ARGV[1]"),
            "kx\n"
        );
    });
}

#[test]
fn cli_speaks_resp3() {
    on_both(|addr| {
        assert_eq!(cli(addr, &["-3", "--no-raw", "HSET", "h", "f", "v"], ""), "(integer) 1\n");
        assert_eq!(cli(addr, &["-3", "--no-raw", "HGETALL", "h"], ""), "1# \"f\" => \"v\"\n");
        assert_eq!(cli(addr, &["-3", "--no-raw", "ZADD", "z", "1.5", "m"], ""), "(integer) 1\n");
        assert_eq!(cli(addr, &["-3", "--no-raw", "ZSCORE", "z", "m"], ""), "(double) 1.5\n");
        assert_eq!(cli(addr, &["-3", "--no-raw", "GET", "none"], ""), "(nil)\n");
    });
}

#[test]
fn cli_keeps_a_transaction_over_lines_of_input() {
    on_both(|addr| {
        let lines = "MULTI\nSET a 1\nINCR a\nLPUSH a x\nEXEC\nGET a\n";
        let printed = cli(addr, &["--no-raw"], lines);
        let (before, after) = printed.split_once("3) (error) WRONGTYPE").expect(&printed);
        assert_eq!(before, "OK\nQUEUED\nQUEUED\nQUEUED\n1) OK\n2) (integer) 2\n");
        assert!(after.ends_with("\n\"2\"\n"), "{printed}");
        let printed =
            cli(addr, &["--no-raw"], "MULTI\nNOSUCH\nEXEC\nMULTI\nDISCARD\nSELECT 2\nDBSIZE\n");
        assert!(
            printed.contains("EXECABORT") && printed.ends_with("OK\nOK\nOK\n(integer) 0\n"),
            "{printed}"
        );
    });
}

#[test]
fn cli_inserts_in_bulk_and_finds_everything_again() {
    const KEYS: usize = 20_000;
    on_both(|addr| {
        let commands: Vec<u8> = (0..KEYS)
            .flat_map(|i| encode(&["SET".to_owned(), format!("bulk:{i}"), "x".repeat(i % 50)]))
            .collect();
        let printed = run(tool("redis-cli", addr, &["--pipe"]), &commands);
        assert!(printed.contains(&format!("errors: 0, replies: {KEYS}")), "{printed}");
        let scanned = cli(addr, &["--scan", "--pattern", "bulk:*"], "");
        assert_eq!(scanned.lines().count(), KEYS);
        let big = cli(addr, &["--bigkeys"], "");
        assert!(big.contains(&format!("Sampled {KEYS} keys in the keyspace!")), "{big}");
        assert!(!big.contains("Error"), "{big}");
        let mut text = String::new();
        for i in 0..1000 {
            writeln!(text, "INCR inline:{}\r", i % 10).expect("a string grows");
        }
        let printed = run(tool("redis-cli", addr, &["--pipe"]), text.as_bytes());
        assert!(printed.contains("errors: 0, replies: 1000"), "{printed}");
    });
}

/// A redis-cli that listens until it is dropped.
struct Listener {
    process: Process,
    lines_read: usize,
}

impl Listener {
    fn start(addr: SocketAddr, args: &[&str]) -> Self {
        let (host, port) = (addr.ip().to_string(), addr.port().to_string());
        let to = ["-h", &host, "-p", &port];
        Self { process: Process::spawn("redis-cli", to.iter().chain(args)), lines_read: 0 }
    }

    /// The next `count` lines that it prints.
    fn lines(&mut self, count: usize) -> Vec<String> {
        let until = self.lines_read + count;
        let printed = poll_until(WAIT, || {
            let lines: Vec<String> = self.process.stdout().lines().map(str::to_owned).collect();
            (lines.len() >= until).then_some(lines)
        });
        let printed =
            printed.unwrap_or_else(|| panic!("it only printed:\n{}", self.process.tail()));
        let lines = printed[self.lines_read..until].to_vec();
        self.lines_read = until;
        lines
    }
}

#[test]
fn cli_subscribes() {
    on_both(|addr| {
        let mut listener = Listener::start(addr, &["SUBSCRIBE", "one", "two"]);
        assert_eq!(listener.lines(6), ["subscribe", "one", "1", "subscribe", "two", "2"]);
        let mut patterns = Listener::start(addr, &["PSUBSCRIBE", "t*"]);
        assert_eq!(patterns.lines(3), ["psubscribe", "t*", "1"]);
        assert_eq!(cli(addr, &["PUBLISH", "two", "hello"], ""), "2\n");
        assert_eq!(listener.lines(3), ["message", "two", "hello"]);
        assert_eq!(patterns.lines(4), ["pmessage", "t*", "two", "hello"]);
        drop((listener, patterns));
        let mut client = RawClient::connect(addr);
        eventually(WAIT, || client.command(&["PUBLISH", "two", "x"]) == Reply::Integer(0));
    });
}

#[test]
fn cli_monitors() {
    on_both(|addr| {
        let mut monitor = Listener::start(addr, &["MONITOR"]);
        assert_eq!(monitor.lines(1), ["OK"]);
        assert_eq!(cli(addr, &["SET", "seen", "v"], ""), "OK\n");
        while !monitor.lines(1)[0].ends_with("\"SET\" \"seen\" \"v\"") {}
    });
}

fn benchmark(addr: SocketAddr, args: &[&str]) {
    let printed = run(tool("redis-benchmark", addr, &[&["-q"], args].concat()), b"");
    let lower = printed.to_lowercase();
    assert!(!lower.contains("error") && !lower.contains("warning"), "{printed}");
    let measured = printed.matches("requests per second").count();
    assert!(measured >= 18, "{measured} of the tests were measured:\n{printed}");
}

#[test]
fn benchmark_without_pipelining() {
    on_both(|addr| benchmark(addr, &["-n", "500", "-c", "20"]));
}

#[test]
fn benchmark_with_pipelining() {
    on_both(|addr| benchmark(addr, &["-n", "3200", "-c", "20", "-P", "16", "-r", "1000"]));
}
