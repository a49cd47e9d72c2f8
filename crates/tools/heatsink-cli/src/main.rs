//! The binary `heatsink`: reads what was typed, hands a validated configuration to a command,
//! and turns the outcome into an exit code. It only wires; the work is in the modules.

mod cli;
mod commands;
mod config;
mod exit;
mod logging;

use std::process::ExitCode;

fn main() -> ExitCode {
    let matches = cli::command().get_matches();
    let outcome = match cli::Request::from(&matches) {
        cli::Request::Serve { flags, file } => commands::serve::run(flags, file),
        cli::Request::Drain { flags, file } => commands::drain::run(flags, file),
        cli::Request::Demo(args) => commands::demo::run(&args),
        cli::Request::Load(args) => commands::load::run(&args),
        cli::Request::Scan(args) => commands::scan::run(&args),
        cli::Request::Keys(request) => commands::keys::run(&request),
        cli::Request::Top(request) => commands::top::run(request),
        cli::Request::Completions { shell } => commands::completions::run(shell),
        cli::Request::HashPassword => commands::hash_password::run(),
        cli::Request::Check { file } => commands::check::run(&file),
    };
    exit::finish(outcome)
}
