//! Lines, for logs and for whoever has no terminal.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::thread;
use std::time::Duration;

use heatsink_control::words;

use crate::sample::{Sample, Scene, View, Wish, treatment};

/// Writes lines to something.
#[derive(Debug)]
pub struct Plain<W> {
    out: W,
    count: u64,
}

impl<W: Write> Plain<W> {
    /// Writes them there.
    pub fn new(out: W) -> Self {
        Self { out, count: 0 }
    }
}

impl<W: Write> View for Plain<W> {
    fn open(&mut self, scene: &Scene) -> io::Result<()> {
        writeln!(self.out, "page     {}", scene.page)?;
        writeln!(self.out, "proxies  {}", scene.proxies.join(", "))?;
        writeln!(self.out, "before   {}", scene.upstream)?;
        let rate = words::whole(f64::from(scene.rate_per_second));
        writeln!(self.out, "load     {rate} req/s for {} s", scene.length.as_secs())?;
        self.out.flush()
    }

    fn event(&mut self, at: Duration, what: &str) -> io::Result<()> {
        writeln!(self.out, "{:5.1} s  == {what}", at.as_secs_f64())?;
        self.out.flush()
    }

    fn sample(&mut self, sample: &Sample) -> io::Result<()> {
        self.count += 1;
        // A line a second is enough to read.
        if self.count.is_multiple_of(2) {
            writeln!(self.out, "{}", line(sample))?;
            self.out.flush()?;
        }
        Ok(())
    }

    fn wait(&mut self, time: Duration) -> io::Result<Option<Wish>> {
        thread::sleep(time);
        Ok(None)
    }
}

fn line(sample: &Sample) -> String {
    let mut line = format!(
        "{:5.1} s  {:>6} req/s  p50 {:>8}  p99 {:>8}  nodes",
        sample.at.as_secs_f64(),
        words::whole(sample.requests_per_second),
        time(sample.p50),
        time(sample.p99),
    );
    for node in &sample.nodes {
        let _ = write!(line, " {:>6}", words::percent(node.load.unwrap_or(node.share)));
    }
    let _ = write!(line, "  saved {:>6}", words::percent(sample.saved));
    if sample.given_up_per_second > 0.0 {
        let _ = write!(line, "  given up {}/s", words::whole(sample.given_up_per_second));
    }
    if sample.mismatches + sample.errors > 0 {
        let _ = write!(line, "  WRONG {} ERRORS {}", sample.mismatches, sample.errors);
    }
    if let Some(hot) = sample.hot_keys.first() {
        let rate = words::whole(hot.frequency);
        let _ = write!(line, "  hot {} {rate} req/s {}", hot.key, treatment(hot));
    }
    line
}

/// A time with the digits that matter.
pub(crate) fn time(time: Duration) -> String {
    let ms = time.as_secs_f64() * 1000.0;
    if ms < 9.95 { format!("{ms:.1} ms") } else { format!("{ms:.0} ms") }
}
