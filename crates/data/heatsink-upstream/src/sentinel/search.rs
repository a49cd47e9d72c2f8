//! Finds the primary by asking sentinels in turn, and reports it when it is another one.
//!
//! Runs on a thread of its own.
//! Bound: one connection to a sentinel, kept, and one to a server while that is checked; a
//! look every `SPACING` at most, whatever is nudged.
//! Invariant: an older answer does not replace a newer one, as in this order of events:
//!
//! ```text
//! 1. failover from P to Q; sentinel A knows (epoch 2), sentinel B is late (epoch 1)
//! 2. A is asked: Q is reported
//! 3. P comes back, and says that it is a primary until somebody tells it better
//! 4. A is lost; B is asked: P, epoch 1. Not believed; Q stays
//! ```
//!
//! Sentinels that were set up anew start from epoch 0, so after `LAG_MAX` in which nobody
//! knows better, an older answer is believed after all.

use std::time::{Duration, Instant};

use tracing::{debug, info, warn};

use super::SocketName;
use super::line::{Dialing, Line};
use super::question::{self, Answer};
use super::shared::Wake;
use super::trouble::{Trouble, Troubles};
use crate::address::SentinelUrl;

/// Shortest time between two looks.
const SPACING: Duration = Duration::from_millis(20);
/// Time to the next look after one that found nothing, doubled each time.
const RETRY_FIRST: Duration = Duration::from_millis(50);
const RETRY_LONGEST: Duration = Duration::from_secs(1);
/// Sentinels tell each other every two seconds.
const LAG_MAX: Duration = Duration::from_secs(10);

pub(super) struct Search<F> {
    url: SentinelUrl,
    dialing: Dialing,
    poll_interval: Duration,
    on_primary: F,
    /// To the sentinel that answered last.
    line: Option<(SocketName, Line)>,
    /// What was reported last, and the highest epoch seen.
    primary: Option<SocketName>,
    epoch: u64,
    /// Since when all answers have been older than `epoch`.
    lagging_since: Option<Instant>,
    troubles: Troubles,
    /// What was said last about the primary as a whole.
    outlook: Outlook,
}

#[derive(PartialEq)]
enum Outlook {
    Fine,
    /// No sentinel answered.
    Unknown,
    /// The sentinels tell of a server that says it is none.
    NotYet(SocketName),
}

impl<F: Fn(SocketName)> Search<F> {
    pub(super) fn new(
        url: SentinelUrl,
        dialing: Dialing,
        poll_interval: Duration,
        on_primary: F,
    ) -> Self {
        Self {
            url,
            dialing,
            poll_interval,
            on_primary,
            line: None,
            primary: None,
            epoch: 0,
            lagging_since: None,
            troubles: Troubles::default(),
            outlook: Outlook::Fine,
        }
    }

    /// Runs until the watch ends.
    pub(super) fn run(mut self) {
        let (mut news, mut retry) = (None, RETRY_FIRST);
        loop {
            let pause = if self.look(news.take()) {
                retry = RETRY_FIRST;
                self.poll_interval
            } else {
                let pause = retry.min(self.poll_interval);
                retry = (retry * 2).min(RETRY_LONGEST);
                pause
            };
            if self.dialing.shared.pause(SPACING) {
                return;
            }
            match self.dialing.shared.wait(pause.saturating_sub(SPACING)) {
                Wake::Stopped => return,
                Wake::Nudged(from) => news = from,
                Wake::TimedOut => {}
            }
        }
    }

    /// Looks once; false if there is reason to look again soon. `news` is the sentinel that
    /// announced something.
    fn look(&mut self, news: Option<SocketName>) -> bool {
        let outlook = match self.ask(news) {
            None => Outlook::Unknown,
            Some(primary) if self.primary.as_ref() == Some(&primary) => Outlook::Fine,
            Some(primary) if self.is_promoted(&primary) => {
                info!(name = self.url.name, %primary, "primary found");
                self.primary = Some(primary.clone());
                self.dialing.shared.report(|| (self.on_primary)(primary));
                Outlook::Fine
            }
            Some(primary) => Outlook::NotYet(primary),
        };
        if outlook != self.outlook && !self.dialing.shared.stopped() {
            match &outlook {
                Outlook::Fine => info!(name = self.url.name, "the primary is known again"),
                Outlook::Unknown => warn!(name = self.url.name, "no sentinel tells the primary"),
                Outlook::NotYet(server) => {
                    warn!(name = self.url.name, %server, "called the primary, but says it is not");
                }
            }
            self.outlook = outlook;
        }
        self.outlook == Outlook::Fine
    }

    /// The primary, as told by the first sentinel that is up to date.
    fn ask(&mut self, news: Option<SocketName>) -> Option<SocketName> {
        let mut sentinels = self.dialing.shared.known();
        self.troubles.keep(&sentinels);
        // The one that has news, else the one that answered last, goes first.
        let first = news.or_else(|| self.line.as_ref().map(|(sentinel, _)| sentinel.clone()));
        if let Some(at) = first.and_then(|first| sentinels.iter().position(|s| *s == first)) {
            sentinels[..=at].rotate_right(1);
        }
        let mut late = None;
        for sentinel in sentinels {
            match self.ask_one(&sentinel) {
                Ok(answer) => {
                    self.troubles.over(&sentinel);
                    if !self.is_late(&answer) {
                        self.lagging_since = None;
                        self.epoch = self.epoch.max(answer.epoch.unwrap_or(0));
                        self.dialing.shared.learn(&sentinel, answer.others);
                        return Some(answer.primary);
                    }
                    debug!(%sentinel, primary = %answer.primary, "an old answer");
                    late.get_or_insert(answer);
                }
                // The stop itself cuts connections.
                Err(_) if self.dialing.shared.stopped() => return None,
                Err(trouble) => self.troubles.occurred(&self.url.name, &sentinel, &trouble),
            }
        }
        let late = late?;
        let since = *self.lagging_since.get_or_insert_with(Instant::now);
        if since.elapsed() < LAG_MAX {
            return self.primary.clone();
        }
        self.lagging_since = None;
        self.epoch = late.epoch.unwrap_or(0);
        Some(late.primary)
    }

    /// Asks over the connection that is there, or a new one, which is kept.
    fn ask_one(&mut self, sentinel: &SocketName) -> Result<Answer, Trouble> {
        if let Some((_, mut line)) = self.line.take_if(|(peer, _)| peer == sentinel)
            && let Ok(answer) = question::ask(&mut line, &self.url.name)
        {
            self.line = Some((sentinel.clone(), line));
            return Ok(answer);
        }
        let mut line = self.dialing.open(sentinel, self.url.sentinel_credentials.as_ref())?;
        let answer = question::ask(&mut line, &self.url.name)?;
        self.line = Some((sentinel.clone(), line));
        Ok(answer)
    }

    /// Whether a failover is known that this answer does not know of.
    fn is_late(&self, answer: &Answer) -> bool {
        answer.epoch.is_some_and(|epoch| epoch < self.epoch)
    }

    /// Whether the server says so, too. If it cannot be asked, the sentinels are believed.
    fn is_promoted(&self, server: &SocketName) -> bool {
        let line = self.dialing.open(server, self.url.credentials.as_ref());
        match line.and_then(|mut line| question::is_primary(&mut line)) {
            Ok(is_primary) => is_primary,
            Err(error) => {
                debug!(%server, %error, "cannot ask whether it is the primary");
                true
            }
        }
    }
}
