//! The terminal: keys in, frames out.
//!
//! Called by: [`crate::run`].
//! Bound: at most one frame for each key press or message, and [`MESSAGES`] messages that wait.
//! Invariant: the terminal is restored however this ends.

use std::io;
use std::sync::mpsc;
use std::time::Duration;

use heatsink_admin::client::Client;
use ratatui::crossterm::event::{self, Event, KeyEventKind};

use crate::Options;
use crate::app::{App, Step};
use crate::draw::draw;
use crate::model::Snapshot;
use crate::source;

/// Messages that wait to be drawn.
const MESSAGES: usize = 16;

/// How long a message may wait for the next look at it.
const LOOK: Duration = Duration::from_millis(50);

pub(crate) fn run(client: Client, options: &Options, first: Snapshot) -> io::Result<()> {
    let mut app = App::new(&options.admin, options.colours, first);
    let (orders, ordered) = mpsc::channel();
    let (messages, told) = mpsc::sync_channel(MESSAGES);
    let interval = options.interval;
    // It ends with its next message after this function: nothing waits for it, since it may be
    // in the middle of a request.
    std::thread::spawn(move || source::serve(&client, interval, &ordered, &messages));

    let mut terminal = ratatui::try_init()?;
    let ended = loop {
        if let Err(error) = terminal.draw(|frame| draw(frame, &mut app)) {
            break Err(error);
        }
        let step = match next(&mut app, &told) {
            Ok(step) => step,
            Err(error) => break Err(error),
        };
        match step {
            Step::Quit => break Ok(()),
            Step::Order(order) => {
                // The other side lives for as long as this end of the messages.
                let _ = orders.send(order);
            }
            Step::Draw => {}
        }
    };
    ratatui::restore();
    ended
}

/// Waits for something to draw or do.
fn next(app: &mut App, told: &mpsc::Receiver<source::Message>) -> io::Result<Step> {
    loop {
        if let Ok(message) = told.try_recv() {
            app.hear(message);
            return Ok(Step::Draw);
        }
        if event::poll(LOOK)? {
            match event::read()? {
                Event::Key(key) if key.kind != KeyEventKind::Release => return Ok(app.press(key)),
                Event::Resize(..) => return Ok(Step::Draw),
                _ => {}
            }
        }
    }
}
