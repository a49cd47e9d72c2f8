//! `heatsink drain`: makes every split key whole, with nothing but the upstream if need be, and has
//! copies removed.
//!
//! Life: configuration -> a proxy of its own, on a port that nobody is told -> the registry's and
//! the upstream's word on what is split -> a line a key -> a summary.
//! Exit code 0: nothing is left, and nothing was evicted. May be run again at any time, and beside a running fleet.

use std::io::{self, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use heatsink_control::words;
use heatsink_fleet::{Drained, How, Progress};
use heatsink_proxy::Proxy;
use heatsink_upstream::address::Url;

use super::serve::{fleet, upstream};
use crate::config::{RawConfig, Sources};
use crate::exit::Failure;
use crate::logging;

/// Makes everything whole that `flags`, the environment and the file lead to.
pub(crate) fn run(flags: RawConfig, file: Option<PathBuf>) -> Result<(), Failure> {
    let loaded = Sources::new(flags, file).load()?;
    let config = &loaded.config;
    let _log = logging::start(&config.log, config.log_format)
        .map_err(|error| Failure::Runtime(format!("cannot start to log: {error}")))?;
    if config.upstream == Url::Embedded {
        return Err(Failure::Runtime(
            "an embedded store has nothing to drain: set upstream".to_owned(),
        ));
    }
    let store = fleet::store(&loaded, false)?;
    let (upstream, _) = upstream::resolve(&config.upstream, loaded.files.client_tls.clone())
        .map_err(|error| Failure::Runtime(format!("cannot use the upstream: {error}")))?;
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut settings = heatsink_proxy::Config::new(listen, upstream);
    settings.live = config.live.clone();
    let proxy = Proxy::start(settings)
        .map_err(|error| Failure::Runtime(format!("cannot start a proxy: {error}")))?;
    let drained = heatsink_fleet::drain(proxy.handle(), store, config.fleet.clone(), tell)
        .map_err(|error| Failure::Runtime(format!("cannot drain: {error}")))?;
    let Drained { whole, by_proxies, evicted, copies, dropped, left, failed, unknown } = drained;
    let lost = if evicted > 0 { format!("{evicted} evicted, ") } else { String::new() };
    say(&format!(
        "{whole} made whole, {by_proxies} by proxies meanwhile, {lost}{copies} rid of copies, \
         {dropped} had ended before, {left} left"
    ));
    if unknown {
        return Err(Failure::Runtime("cannot ask the upstream what is split".to_owned()));
    }
    if left > 0 {
        let failed: Vec<String> =
            failed.into_iter().map(|(key, why)| format!("\n  {}: {why}", name(&key))).collect();
        let keys = words::count(left, "key", "keys");
        let are = if left == 1 { "is" } else { "are" };
        let failed = failed.concat();
        return Err(Failure::Runtime(format!("{keys} {are} left; run it again{failed}")));
    }
    if evicted > 0 {
        let keys = words::count(evicted, "key", "keys");
        let were = if evicted == 1 { "was" } else { "were" };
        let why = format!("nothing is left to drain, but {keys} {were} evicted: no value is there");
        return Err(Failure::Runtime(why));
    }
    Ok(())
}

fn name(key: &[u8]) -> String {
    String::from_utf8_lossy(key).into_owned()
}

fn tell(progress: Progress) {
    say(&match progress {
        Progress::WithoutStore(why) => {
            format!("without the coordination store, by the upstream's index alone: {why}")
        }
        Progress::Done { key, how, done, of } => {
            let how = match how {
                How::Whole => "whole".to_owned(),
                How::WholeAs(at) => {
                    let names: Vec<String> = at.iter().map(|at| name(at)).collect();
                    format!("whole, renamed to {}", names.join(" and "))
                }
                How::WholeByProxy => "whole, by a proxy".to_owned(),
                How::Evicted => "evicted".to_owned(),
                How::CopiesRemoved => "copies removed".to_owned(),
            };
            format!("{how}: {} ({done} of {of})", name(&key))
        }
        Progress::Dropped(key) => format!("had ended before: {}", name(&key)),
        Progress::Removed(key) => format!("no longer to be split or copied: {}", name(&key)),
        Progress::Failed(key, why) => format!("not yet: {}: {why}", name(&key)),
        Progress::Trouble(why) => format!("not yet: {why}"),
    });
}

/// A line on stdout, which nobody may be reading.
fn say(line: &str) {
    let _ = writeln!(io::stdout(), "{line}");
}
