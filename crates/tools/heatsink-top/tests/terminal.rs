//! `top` under a real pseudo terminal, against a real admin server: what it shows, what its keys
//! do, and that it outlives the server.
//!
//! No harness of its own: the same program is the test and, started again with an address in
//! its environment, `top`.

mod server;

use std::io::{Read as _, Write};
use std::num::NonZeroU16;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use heatsink_top::{Options, run};
use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};
use server::Served;

const ADDRESS: &str = "HEATSINK_TOP_TEST_ADDRESS";
const PATIENCE: Duration = Duration::from_secs(30);

fn main() {
    if let Ok(address) = std::env::var(ADDRESS) {
        let mut options = Options::new(address);
        options.interval = Duration::from_millis(100);
        options.token = std::env::var("HEATSINK_TOKEN").ok();
        if let Err(error) = run(&options) {
            eprintln!("heatsink top: {error}");
            std::process::exit(1);
        }
        return;
    }
    for (name, test) in [
        ("what_is_hot_is_shown_and_changed", what_is_hot_is_shown_and_changed as fn()),
        ("a_restart_is_survived", a_restart_is_survived),
        ("a_wrong_token_is_said_at_once", a_wrong_token_is_said_at_once),
    ] {
        print!("test {name} ... ");
        let _ = std::io::stdout().flush();
        test();
        println!("ok");
    }
}

/// `top` in a terminal of 80 columns and 24 lines. Ends with the test.
struct Terminal {
    child: Box<dyn Child + Send + Sync>,
    _master: Box<dyn MasterPty + Send>,
    keyboard: Box<dyn Write + Send>,
    output: Receiver<Vec<u8>>,
    screen: vt100::Parser,
    raw: Vec<u8>,
}

impl Terminal {
    fn start(address: &str, environment: &[(&str, &str)]) -> Self {
        let size = PtySize { rows: 24, cols: 80, pixel_width: 0, pixel_height: 0 };
        let pair = native_pty_system().openpty(size).unwrap();
        let mut command = CommandBuilder::new(std::env::current_exe().unwrap());
        command.env(ADDRESS, address);
        command.env("TERM", "xterm-256color");
        command.env_remove("NO_COLOR");
        for (name, value) in environment {
            command.env(name, value);
        }
        let child = pair.slave.spawn_command(command).unwrap();
        drop(pair.slave);
        let mut reader = pair.master.try_clone_reader().unwrap();
        let keyboard = pair.master.take_writer().unwrap();
        let (sender, output) = mpsc::channel();
        std::thread::spawn(move || {
            let mut chunk = [0; 4096];
            while let Ok(read @ 1..) = reader.read(&mut chunk) {
                if sender.send(chunk[..read].to_vec()).is_err() {
                    return;
                }
            }
        });
        let [rows, columns] = [24, 80].map(|count| NonZeroU16::new(count).unwrap());
        let screen = vt100::Parser::new(rows, columns, 0);
        Self { child, _master: pair.master, keyboard, output, screen, raw: Vec::new() }
    }

    fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
        self.keyboard.flush().unwrap();
    }

    /// Waits until the screen is as wanted.
    #[track_caller]
    fn until(&mut self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let contents = self.screen.screen().contents();
            if wanted(&contents) {
                return contents;
            }
            match self.output.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(bytes) => {
                    self.screen.process(&bytes);
                    self.raw.extend(bytes);
                }
                Err(RecvTimeoutError::Timeout) => panic!("never: {what}\n{contents}"),
                Err(RecvTimeoutError::Disconnected) => {
                    panic!("it ended before: {what}\n{contents}")
                }
            }
        }
    }

    #[track_caller]
    fn shows(&mut self, text: &str) -> String {
        self.until(text, |contents| contents.contains(text))
    }

    /// Waits until it has ended, and says with which status.
    fn end(mut self) -> u32 {
        let status = self.child.wait().unwrap();
        while let Ok(bytes) = self.output.recv_timeout(PATIENCE) {
            self.screen.process(&bytes);
        }
        assert!(!self.screen.screen().alternate_screen(), "the terminal is given back");
        status.exit_code()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
    }
}

fn what_is_hot_is_shown_and_changed() {
    let served = Served::start(None, None);
    let mut terminal = Terminal::start(&served.url(), &[("NO_COLOR", "1")]);
    let screen = terminal.shows("user:9999");
    assert!(screen.contains("● live") && screen.contains("48,211"), "{screen}");
    // Of the whole fleet, whichever process answers.
    let screen = terminal.shows("saved/s 1,200 (75 %)");
    assert!(screen.contains("n1:6379") && screen.contains("hottest 75 %"), "{screen}");
    assert!(screen.contains("count:views") && screen.contains("? help"), "{screen}");

    // Rates are live.
    served.change(|keys| keys[0].entry.frequency = 51_999.0);
    terminal.shows("51,999");

    terminal.press("\r");
    terminal.shows("threshold 5 000");
    terminal.shows("Policy coherent");
    terminal.press("\u{1b}");
    terminal.shows("Hot keys: 2");

    terminal.press("d");
    terminal.shows("y demote");
    assert_eq!(served.keys().len(), 2, "nothing happens before the yes");
    terminal.press("y");
    terminal.shows("Demoted user:9999: not promoted automatically for 300 s");
    terminal.shows("Hot keys: 1");
    assert_eq!(served.keys(), ["count:views"]);

    terminal.press("ncart:7\r");
    let screen = terminal.shows("> local_cache");
    assert!(screen.contains("0-9 seconds") && screen.contains("until it is removed"), "{screen}");
    terminal.press("90");
    terminal.shows("Seconds to live: 90");
    terminal.press("\r");
    let screen = terminal.shows("y promote");
    assert!(screen.contains("for 90 seconds"), "{screen}");
    terminal.press("y");
    terminal.shows("Promoted cart:7: local_cache");
    terminal.shows("Hot keys: 2");
    assert_eq!(served.keys(), ["count:views", "cart:7"]);
    assert_eq!(served.ttl_seconds("cart:7"), Some(90));

    let raw = String::from_utf8_lossy(&terminal.raw).into_owned();
    assert!(!raw.contains("\u{1b}[38;") && !raw.contains("\u{1b}[31m"), "no colours were wanted");
    terminal.press("q");
    assert_eq!(terminal.end(), 0);
}

fn a_restart_is_survived() {
    let served = Served::start(None, None);
    let mut terminal = Terminal::start(&served.url(), &[]);
    terminal.shows("● live");
    let address = served.stop();
    terminal.shows("reconnecting");
    let screen = terminal.shows("nothing answers");
    assert!(screen.contains("user:9999"), "what was seen stays: {screen}");
    let served = Served::start(Some(address), None);
    terminal.shows("● live");
    served.change(|keys| keys[0].entry.frequency = 77_777.0);
    terminal.shows("77,777");
    let raw = String::from_utf8_lossy(&terminal.raw).into_owned();
    assert!(raw.contains("\u{1b}[38;5;") || raw.contains("\u{1b}[31m"), "with colours");
    terminal.press("q");
    assert_eq!(terminal.end(), 0);
}

fn a_wrong_token_is_said_at_once() {
    let served = Served::start(None, Some("s3cret"));
    let mut terminal = Terminal::start(&served.url(), &[("HEATSINK_TOKEN", "wrong")]);
    terminal.shows("not the one of the configuration");
    assert_eq!(terminal.end(), 1);
    let mut terminal = Terminal::start(&served.url(), &[("HEATSINK_TOKEN", "s3cret")]);
    terminal.shows("user:9999");
    terminal.press("\u{3}");
    assert_eq!(terminal.end(), 0);
}
