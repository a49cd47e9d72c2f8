//! `heatsink scan`: hot keys of a server that is not behind Heatsink.
//!
//! Invariant: nothing that costs the server anything is done before the cost was stated and
//! accepted; stdout carries the result and nothing else.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use heatsink_control::words;
use heatsink_scan::scan::Progress;
use heatsink_scan::{Method, Plan, scan};
use heatsink_upstream::client::ClientError;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::interrupt;
use crate::cli::scan::ScanArgs;
use crate::exit::Failure;

/// Plans, asks, looks, and prints what was found.
pub(crate) fn run(args: &ScanArgs) -> Result<(), Failure> {
    let plan = Plan::make(args.options()?).map_err(failure)?;
    eprintln!("{plan}");
    if !args.yes && !is_accepted()? {
        return Err(Failure::Usage("nothing was done".to_owned()));
    }
    let stop = interrupt::stop_flag()?;
    let bar = bar(&plan);
    let report = scan::run(&plan, &stop, &mut |progress| show(&bar, &plan, progress));
    bar.finish_and_clear();
    let report = report.map_err(failure)?;
    let text = if args.json {
        serde_json::to_string_pretty(&report)
            .map_err(|error| Failure::Runtime(format!("cannot write JSON: {error}")))?
    } else {
        report.text(columns())
    };
    writeln!(io::stdout(), "{text}")
        .map_err(|error| Failure::Runtime(format!("cannot write to stdout: {error}")))
}

/// Columns of the terminal that the result goes to, if it goes to one.
fn columns() -> Option<u16> {
    let stdout = io::stdout();
    // A file or a pipe has no size, and a terminal may not tell it.
    let size = rustix::termios::tcgetwinsize(&stdout).ok()?;
    (size.ws_col > 0 && stdout.is_terminal()).then_some(size.ws_col)
}

fn failure(error: ClientError) -> Failure {
    match error {
        ClientError::Unsupported(why) => Failure::Usage(why),
        error => Failure::Runtime(error.to_string()),
    }
}

/// Asks on the terminal. Where there is none, nobody can say yes.
fn is_accepted() -> Result<bool, Failure> {
    if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
        return Err(Failure::Usage(
            "cannot ask whether this cost is accepted, without a terminal; --yes accepts it"
                .to_owned(),
        ));
    }
    eprint!("Continue? [y/N] ");
    let mut answer = String::new();
    io::stdin()
        .lock()
        .read_line(&mut answer)
        .map_err(|error| Failure::Runtime(format!("cannot read the answer: {error}")))?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

fn bar(plan: &Plan) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let length = plan.options.duration.as_millis() as u64;
    let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{bar:30} {percent:>3} %  {msg}");
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn show(bar: &ProgressBar, plan: &Plan, progress: Progress) {
    bar.set_position(progress.elapsed.as_millis() as u64);
    if plan.method == Method::Monitor {
        bar.set_message(format!("{} commands", words::whole(progress.commands as f64)));
    }
}
