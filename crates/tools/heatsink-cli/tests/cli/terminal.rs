//! Commands on a terminal: what they draw, what they ask, which keys they obey.

use std::io::{Read, Write};
use std::num::NonZero;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use heatsink_testkit::{RedisServer, eventually};
use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};

use crate::support::{PATIENCE, Place};

const ROWS: NonZero<u16> = NonZero::new(24).expect("not 0");
const COLUMNS: NonZero<u16> = NonZero::new(80).expect("not 0");
/// Time between two looks at a screen.
const LOOK: Duration = Duration::from_millis(20);

/// A terminal of 80x24 with `heatsink ARGS` on it.
struct Terminal {
    screen: Arc<Mutex<vt100::Parser>>,
    keys: Box<dyn Write + Send>,
    child: Box<dyn Child + Send + Sync>,
    _master: Box<dyn MasterPty + Send>,
}

impl Terminal {
    fn start(place: &Place, args: &[&str]) -> Self {
        let (rows, cols) = (ROWS.get(), COLUMNS.get());
        let size = PtySize { rows, cols, pixel_width: 0, pixel_height: 0 };
        let pair = native_pty_system().openpty(size).expect("a terminal");
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_heatsink"));
        command.args(args);
        command.cwd(place.path());
        command.env("TERM", "xterm-256color");
        let child = pair.slave.spawn_command(command).expect("a process");
        let mut output = pair.master.try_clone_reader().expect("its output");
        let keys = pair.master.take_writer().expect("its input");
        let screen = Arc::new(Mutex::new(vt100::Parser::new(ROWS, COLUMNS, 0)));
        let drawn = Arc::clone(&screen);
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            // It ends with the process.
            while let Ok(count @ 1..) = output.read(&mut buffer) {
                drawn.lock().expect("a screen").process(&buffer[..count]);
            }
        });
        Self { screen, keys, child, _master: pair.master }
    }

    fn shown(&self) -> String {
        self.screen.lock().expect("a screen").screen().contents()
    }

    fn wait_for(&self, part: &str) {
        let (mut shown, mut found) = (String::new(), false);
        let deadline = Instant::now() + PATIENCE;
        while !found && Instant::now() < deadline {
            shown = self.shown();
            found = shown.contains(part);
            if !found {
                thread::sleep(LOOK);
            }
        }
        assert!(found, "{part} is missing\n{shown}");
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("pressed");
        self.keys.flush().expect("pressed");
    }

    fn exit_code(&mut self) -> u32 {
        let mut code = None;
        eventually(PATIENCE, || {
            code = self.child.try_wait().expect("a process").map(|status| status.exit_code());
            code.is_some()
        });
        code.expect("it has ended")
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It has ended unless a test has failed.
        let _ = self.child.kill();
    }
}

#[test]
fn the_demo_is_live_and_obeys_its_keys() {
    let place = Place::empty();
    let mut terminal = Terminal::start(&place, &["demo", "--duration", "600s", "--rate", "1000"]);
    for part in ["ONLY OBSERVING", "page http://127.0.0.1:", "nodes: load", "hot keys", "p99"] {
        terminal.wait_for(part);
    }
    terminal.press("m");
    terminal.wait_for("MITIGATION ON");
    terminal.wait_for("mitigation on, by hand");
    terminal.press("m");
    terminal.wait_for("mitigation off, by hand");
    terminal.press("q");
    assert_eq!(terminal.exit_code(), 0);
    // The terminal is as it was, and the summary on it.
    terminal.wait_for("the rest is not judged");
    assert!(!terminal.shown().contains("ONLY OBSERVING"), "{}", terminal.shown());
}

#[test]
fn a_scan_asks_before_it_costs_anything() {
    let server = RedisServer::start();
    let place = Place::empty();
    let url = server.url();
    let args = ["scan", &url, "--method", "monitor", "--duration", "200ms"];
    let mut refused = Terminal::start(&place, &args);
    refused.wait_for("Continue? [y/N]");
    assert_eq!(server.calls("monitor"), 0);
    refused.press("n\n");
    assert_eq!(refused.exit_code(), 2);
    assert_eq!(server.calls("monitor"), 0);
    let mut accepted = Terminal::start(&place, &args);
    accepted.wait_for("Continue? [y/N]");
    accepted.press("y\n");
    assert_eq!(accepted.exit_code(), 0);
    accepted.wait_for("ended by the duration");
    assert_eq!(server.calls("monitor"), 1);
}

#[test]
fn the_table_of_a_scan_fits_the_terminal() {
    let server = RedisServer::start();
    let place = Place::empty();
    let url = server.url();
    let key = format!("session:{}:profile", "0123456789abcdef".repeat(8));
    let args = ["scan", &url, "--method", "monitor", "--max-commands", "200", "--yes"];
    let mut terminal = Terminal::start(&place, &args);
    let mut client = server.client();
    eventually(PATIENCE, || {
        client.command(&["GET", &key]);
        client.command(&["GET", "short"]);
        terminal.child.try_wait().expect("a process").is_some()
    });
    assert_eq!(terminal.exit_code(), 0);
    terminal.wait_for("Keys are shortened to the terminal");
    let shown = terminal.shown();
    let row = shown.lines().find(|line| line.contains("session:")).expect("the key");
    let name = row.split_whitespace().find(|word| word.contains("session:")).expect("its name");
    assert!(name.starts_with("session:0") && name.ends_with(":profile"), "{shown}");
    assert!(name.contains('…') && row.contains(" %"), "one line a key: {shown}");
    // A line that the terminal had to wrap would leave a border alone at its beginning.
    assert!(!shown.lines().any(|line| line == "│" || line == "┘"), "{shown}");
}

#[test]
fn a_load_shows_how_far_it_is() {
    let server = RedisServer::start();
    let place = Place::empty();
    let url = server.url();
    let mut terminal = Terminal::start(&place, &["load", "--target", &url, "--duration", "600s"]);
    terminal.wait_for(" req/s, p50 ");
    terminal.press("\u{3}");
    assert_eq!(terminal.exit_code(), 0);
    terminal.wait_for("stopped before the end");
}
