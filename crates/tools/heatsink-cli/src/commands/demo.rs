//! `heatsink demo`: a shop before a small cluster, and what Heatsink does about its hot keys.
//!
//! Invariant: what the demo claims and does not show makes it a failure.

use std::io::{self, IsTerminal as _, Write as _};

use heatsink_demo::plain::Plain;
use heatsink_demo::screen::Screen;
use heatsink_demo::{DemoError, View, run as run_demo};

use super::interrupt;
use crate::cli::demo::DemoArgs;
use crate::exit::Failure;

/// Runs it to its end, to a signal or to the key that ends it.
pub(crate) fn run(args: &DemoArgs) -> Result<(), Failure> {
    let options = args.options()?;
    let stop = interrupt::stop_flag()?;
    let is_live = !args.plain && io::stdout().is_terminal() && io::stdin().is_terminal();
    let mut view: Box<dyn View> =
        if is_live { Box::new(Screen::new()) } else { Box::new(Plain::new(io::stdout())) };
    let summary = run_demo(&options, &stop, &mut *view);
    // The terminal is given back before anything is said on it.
    drop(view);
    let summary = summary.map_err(|error| match error {
        DemoError::Options(why) => Failure::Usage(why),
        DemoError::Io(error) => Failure::Runtime(format!("the demo cannot go on: {error}")),
    })?;
    writeln!(io::stdout(), "{summary}")
        .map_err(|error| Failure::Runtime(format!("cannot write to stdout: {error}")))?;
    if summary.holds() {
        Ok(())
    } else {
        Err(Failure::Runtime("the demo did not show what it claims".to_owned()))
    }
}
